//! Queues that are being given back: a close waits for their last commits, and reports those that failed.

use crate::consumer::process_queue::{ProcessQueue, QueueKey};
use crate::consumer::shared::{ConsumerShared, ConsumerState};
use crate::error::ClientError;
use std::sync::Arc;
use tokio::time::Instant;

impl ConsumerShared {
    /// Removes a queue from those of this member. A close waits for it until [`Self::end_queues`] has ended it.
    pub(crate) fn remove_queue(&self, state: &mut ConsumerState, key: &QueueKey) -> Option<ProcessQueue> {
        let queue = state.queues.remove(key)?;
        let last = self.is_last_due(&queue).then_some(queue.done);
        let has_lock = self.needs_locks() && queue.listeners.is_locked();
        if last.is_some() || has_lock {
            state.giving_back.insert(queue.key.clone(), last);
        }
        Some(queue)
    }

    /// Notes that these queues have gone back. While the consumer is being closed, the close reports what could not be
    /// committed, and this returns no error.
    pub(super) fn has_given_back(
        &self,
        keys: &[Arc<QueueKey>],
        committed: Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let mut state = self.state();
        for key in keys {
            state.giving_back.remove(key);
        }
        let outcome = match committed {
            Err(ClientError::NotCommitted { failed, .. }) if state.is_closing => {
                state.unsaved.extend(failed);
                Ok(())
            }
            other => other,
        };
        drop(state);
        self.gave_back.notify_waiters();
        outcome
    }

    /// Waits until all queues that are being given back are gone, until `due` at the latest.
    pub(crate) async fn until_given_back(&self, due: Instant) {
        loop {
            let changed = self.gave_back.notified();
            let is_over = self.state().giving_back.is_empty();
            if is_over || tokio::time::timeout_at(due, changed).await.is_err() {
                return;
            }
        }
    }

    /// The outcome of the last commits, with the queues that went back while the consumer was being closed.
    pub(crate) fn with_given_back(&self, committed: Result<(), ClientError>) -> Result<(), ClientError> {
        let (mut left, cut) = {
            let mut state = self.state();
            (
                std::mem::take(&mut state.unsaved),
                std::mem::take(&mut state.giving_back),
            )
        };
        let cut = cut.into_iter().filter_map(|(key, last)| Some((key, last?)));
        left.extend(cut.map(|(key, offset)| {
            let cause = ClientError::Aborted { what: "a commit" };
            self.uncommitted(&key, offset, cause)
        }));
        if left.is_empty() {
            return committed;
        }
        let (mut requested, mut failed) = match committed {
            Ok(()) => (0, Vec::new()),
            Err(ClientError::NotCommitted { requested, failed }) => (requested, failed),
            Err(other) => return Err(other),
        };
        requested += left.len();
        failed.extend(left);
        Err(ClientError::NotCommitted { requested, failed })
    }
}
