//! The end of a consumer. Once begun it continues without its caller: an interrupt must not leave a member that reads
//! and is never closed.

use crate::consumer::process_queue::{ProcessQueue, QueueKey};
use crate::consumer::puller::Puller;
use crate::consumer::shared::ConsumerShared;
use crate::error::ClientError;
use pyrmq_remoting::sync::lock;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long, beyond the time of one commit, a close waits for queues that are being given back.
const END_MARGIN: Duration = Duration::from_millis(500);

impl Puller {
    /// Ends pulls, unregisters from the brokers and closes the connections. With a commit interval positions are
    /// committed: with `all` everything handed out, else only what a later poll has confirmed. A later call waits for
    /// the first one and returns its outcome.
    pub async fn shut(&self, all: bool) -> Result<(), ClientError> {
        let shared = &self.shared;
        {
            let mut state = shared.state();
            if !std::mem::replace(&mut state.is_closing, true) {
                let ended = shared.clone();
                shared.ending.spawn(async move {
                    let outcome = ended.end(all).await;
                    *lock(&ended.outcome) = outcome;
                });
            }
        }
        shared.ending.idle().await;
        lock(&shared.outcome).clone()
    }
}

impl ConsumerShared {
    async fn end(self: &Arc<Self>, all: bool) -> Result<(), ClientError> {
        // From here on queues stay where they are: those that a rebalance is giving back are waited for, and the others
        // are committed below. Only then does the group learn that this member leaves, and others take its queues.
        self.shutdown.stop();
        let due = Instant::now() + self.options.client.request_timeout + END_MARGIN;
        let ((), committed) = tokio::join!(self.until_given_back(due), self.commit_at_end(all));
        // A callback that has ended meanwhile gives its queues back.
        self.until_given_back(due).await;
        let committed = self.with_given_back(committed);
        if let Err(error) = &committed {
            tracing::warn!(%error, "positions not committed at the end");
        }
        if self.options.is_broadcasting {
            // The last positions stay readable.
            self.all_local_offsets();
        }
        let queues = self.close();
        if let Some(pops) = &self.pops {
            pops.close().await;
        }
        if self.needs_locks() {
            let locked = queues
                .into_values()
                .filter(|queue: &ProcessQueue| queue.listeners.is_locked());
            let keys: Vec<Arc<QueueKey>> = locked.map(|queue| queue.key).collect();
            self.locks.unlock(&keys).await;
        }
        self.heartbeat.end().await;
        self.client.close().await;
        self.tracker.wait(Duration::from_secs(1)).await;
        committed
    }

    /// Commits what is done, and repeats commits that a broker has lost meanwhile, since this consumer will not check
    /// again.
    async fn commit_at_end(self: &Arc<Self>, all: bool) -> Result<(), ClientError> {
        let repeat = self.repeat_lost_commits();
        if self.options.commit_interval.is_none() {
            // Only what the application has committed.
            return repeat.await;
        }
        if all {
            self.finish_delivered();
        }
        let (committed, repeated) = tokio::join!(self.commit_changed(), repeat);
        committed.and(repeated)
    }

    /// Marks messages that polls have handed out as done.
    pub(crate) fn finish_delivered(&self) {
        if !self.options.is_listening {
            for queue in self.state().queues.values_mut() {
                queue.done = queue.delivered;
            }
        }
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        if self.shared.state().is_closing {
            return;
        }
        self.shared.shutdown.stop();
        drop(self.shared.close());
        if let Some(pops) = &self.shared.pops {
            pops.shut();
        }
        self.shared.client.shut();
    }
}
