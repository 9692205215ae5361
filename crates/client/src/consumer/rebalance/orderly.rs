//! Queues of orderly consumers: read only while their broker has locked them for this client (Apache
//! `RebalanceImpl#lockAll`).
//!
//! A queue is locked before its start is requested, so that the previous client's commits are done. A lock is renewed
//! every 20 s and trusted for 30 s; brokers keep it for 60 s. A queue whose lock is lost drops its fetched messages,
//! and begins again at the group's offset once it is locked again.

use crate::consumer::process_queue::QueueKey;
use crate::consumer::rebalance::assignment::Fresh;
use crate::consumer::shared::ConsumerShared;
use crate::error::ClientError;
use pyrmq_remoting::clock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between renewals (Apache `REBALANCE_LOCK_INTERVAL`).
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// Time until the next try for queues that another client has locked.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

impl ConsumerShared {
    /// Renews the locks of all queues, and requests missing ones again and again.
    pub(crate) async fn keep_locked(self: Arc<Self>) {
        let mut renewed = Instant::now();
        while !self.shutdown.sleep_or_stop(RETRY_INTERVAL).await {
            let is_due = renewed.elapsed() >= RENEW_INTERVAL;
            let wanted = self.queues_to_lock(is_due);
            if is_due {
                renewed = Instant::now();
            }
            if !wanted.is_empty()
                && let Err(error) = self.lock(wanted).await
            {
                tracing::warn!(%error, "cannot start consuming the locked queues");
            }
        }
    }

    fn queues_to_lock(&self, all: bool) -> Vec<Arc<QueueKey>> {
        let state = self.state();
        let queues = state.queues.values();
        let wanted = queues.filter(|queue| all || !queue.listeners.is_locked());
        wanted.map(|queue| queue.key.clone()).collect()
    }

    /// Requests the locks of these queues, and starts to read those that had none before.
    pub(crate) async fn lock(self: &Arc<Self>, queues: Vec<Arc<QueueKey>>) -> Result<(), ClientError> {
        let requested_at = clock::since_boot();
        let mut fresh = Vec::new();
        let mut unwanted = Vec::new();
        for (key, is_locked) in self.locks.lock(&queues).await {
            let mut state = self.state();
            let Some(queue) = state.queues.get_mut(&key) else {
                // Given back meanwhile.
                if is_locked {
                    unwanted.push(key);
                }
                continue;
            };
            let had_lock = queue.listeners.is_locked();
            queue.listeners.set_lock(is_locked.then_some(requested_at));
            let limit = self.options.rebalance_interval;
            if !is_locked && !had_lock && queue.listeners.waits_long_for_lock(limit) {
                tracing::warn!(
                    %key,
                    "the queue waits for its lock, which another client of the group has; if it stays so, the \
                     members share queues by different strategies (option `allocate`)"
                );
            }
            if is_locked != had_lock {
                // The messages fetched before may no longer be the group's next ones.
                let generation = self.next_generation();
                queue.restart(-1, generation);
                queue.next_pull = None;
                if is_locked {
                    // The previous client committed before it gave the lock back.
                    let is_contended = false;
                    fresh.push(Fresh {
                        key,
                        start: None,
                        generation,
                        is_contended,
                    });
                } else {
                    tracing::warn!(%key, "lock of the queue lost: another client of the group has it");
                }
            }
        }
        self.locks.unlock(&unwanted).await;
        self.begin(fresh).await
    }

    /// Gives a queue back once its listener has finished, if the group gave it to another member meanwhile.
    pub(crate) fn give_back(self: &Arc<Self>, key: &Arc<QueueKey>) {
        let (shared, key) = (self.clone(), key.clone());
        self.tracker.spawn(async move {
            // Until the lock is given back, the queue must not be taken again: the unlock would release the new lock.
            let _taking = shared.taking.lock().await;
            let lost = {
                let mut state = shared.state();
                let queue = state.queues.get(&key);
                let is_leaving = queue.is_some_and(|queue| queue.listeners.is_leaving) && !state.is_closing;
                is_leaving
                    .then(|| shared.remove_queue(&mut state, &key))
                    .flatten()
            };
            let Some(queue) = lost else {
                return;
            };
            tracing::info!(%key, "queue given back");
            if let Err(error) = shared.end_queues(vec![queue]).await {
                tracing::warn!(%error, "positions not committed");
            }
        });
    }
}
