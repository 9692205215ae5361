//! Queues taken over from a member that still exists. It learns of the change at the same time as this one, so its last
//! commit may come after this member has read the group's offset. No message is handed out until that is settled.

use crate::consumer::process_queue::QueueKey;
use crate::consumer::shared::ConsumerShared;
use std::sync::Arc;
use std::time::Duration;

/// Pauses before the checks of the committed offset: half a second in all. A member that continues to read needs less
/// than that to learn of the change, to finish its calls, and to commit.
const PAUSES: [Duration; 7] = [
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(30),
    Duration::from_millis(60),
    Duration::from_millis(100),
    Duration::from_millis(130),
    Duration::from_millis(150),
];

impl ConsumerShared {
    /// Checks the committed offset of a queue until the previous member has committed, then lets listeners and polls
    /// have its messages. `number` distinguishes these checks from those of a later assignment.
    pub(super) async fn settle_queue(self: &Arc<Self>, key: &Arc<QueueKey>, number: u64, begin: i64) {
        let mut at = begin;
        for pause in PAUSES {
            if self.shutdown.sleep_or_stop(pause).await || !self.is_settling(key, number) {
                return;
            }
            // Without an answer the next check may get one.
            let Ok(found) = self.offsets.committed(key).await else {
                continue;
            };
            match found {
                Some(found) if self.is_own_commit(key, found) => {}
                Some(found) if found != at => at = found,
                // The commit has come, and no other after it.
                _ if at != begin => break,
                _ => {}
            }
        }
        let next_generation = self.next_generation();
        {
            let mut state = self.state();
            let queue = state.queues.get_mut(key);
            let Some(queue) = queue.filter(|queue| queue.settling == Some(number)) else {
                return;
            };
            queue.settling = None;
            if at != begin {
                tracing::info!(%key, begin, committed = at, "the previous owner has committed");
                queue.restart(at, next_generation);
                queue.is_group_start = true;
                queue.committed = -1;
            } else if queue.has_messages() {
                state.make_ready(key);
                self.wake(&state);
            }
        }
        self.pull(key);
    }

    fn is_own_commit(&self, key: &QueueKey, offset: i64) -> bool {
        let state = self.state();
        let queue = state.queues.get(key);
        queue.is_some_and(|queue| queue.own_commit == Some(offset))
    }

    fn is_settling(&self, key: &QueueKey, number: u64) -> bool {
        let state = self.state();
        let queue = state.queues.get(key);
        queue.is_some_and(|queue| queue.settling == Some(number))
    }
}
