//! The end of a consumer that takes messages for a time.

use crate::consumer::pop::simple::SimpleConsumer;
use crate::error::ClientError;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl SimpleConsumer {
    /// Gives back what came and was not handed out, leaves the group and ends every connection. Once begun it goes on
    /// without its caller; a later call waits for it.
    pub async fn close(&self) -> Result<(), ClientError> {
        if !self.is_ending.swap(true, Ordering::AcqRel) {
            let shared = self.shared.clone();
            self.ending.spawn(async move {
                shared.shutdown.stop();
                let left = shared.end();
                shared.give_back(left).await;
                shared.heartbeat.end().await;
                shared.client.close().await;
                shared.tracker.wait(Duration::from_secs(1)).await;
            });
        }
        self.ending.idle().await;
        Ok(())
    }
}

impl Drop for SimpleConsumer {
    fn drop(&mut self) {
        if self.is_ending.load(Ordering::Acquire) {
            return;
        }
        self.shared.shutdown.stop();
        drop(self.shared.end());
        self.shared.client.shut();
    }
}
