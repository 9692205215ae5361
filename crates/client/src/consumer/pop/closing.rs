//! The end of a consumer that takes messages for a time.

use crate::consumer::pop::simple::SimpleConsumer;
use crate::error::ClientError;
use pyrmq_remoting::sync::lock;
use std::time::Duration;

impl SimpleConsumer {
    /// Gives back messages that were not handed out, leaves the group and ends every connection. Once begun it
    /// continues without its caller; a later call waits for it.
    pub async fn close(&self) -> Result<(), ClientError> {
        self.begin_end();
        self.ending.idle().await;
        Ok(())
    }

    fn begin_end(&self) {
        let mut is_ending = lock(&self.is_ending);
        if std::mem::replace(&mut *is_ending, true) {
            return;
        }
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
}

impl Drop for SimpleConsumer {
    fn drop(&mut self) {
        if *lock(&self.is_ending) {
            return;
        }
        self.shared.shutdown.stop();
        drop(self.shared.end());
        self.shared.client.shut();
    }
}
