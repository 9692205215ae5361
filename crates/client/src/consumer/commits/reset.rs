//! Resets that a commit discovers. A broker keeps the offset that an administrator has chosen until the next pull. A
//! queue that has read ahead to its limit sends none.

use crate::consumer::process_queue::QueueKey;
use crate::consumer::shared::ConsumerShared;
use std::sync::Arc;

impl ConsumerShared {
    /// Drops the fetched messages of a queue, and pulls: the answer contains the new offset. The answer to a pull that
    /// is in flight contains it, too, so that pull must not be given up.
    pub(super) fn follow_reset(self: &Arc<Self>, key: &Arc<QueueKey>) {
        let generation = self.next_generation();
        {
            let mut state = self.state();
            let Some(queue) = state.queues.get_mut(key).filter(|queue| !queue.pull_is_scheduled) else {
                return;
            };
            let (waiting, _) = queue.held();
            if waiting == 0 && queue.listeners.in_flight.len() == 0 {
                return;
            }
            tracing::info!(%key, "an administrator has reset the group: what was read ahead is dropped");
            queue.restart(queue.done, generation);
        }
        self.pull(key);
    }
}
