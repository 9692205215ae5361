//! Queues that went to other members while messages of them were returned and not committed. A commit reports them: the
//! application would consider these messages done, but they are delivered again.

use crate::consumer::process_queue::{ProcessQueue, QueueKey};
use crate::consumer::shared::ConsumerShared;
use crate::error::{ClientError, Uncommitted};
use std::collections::BTreeMap;
use std::sync::Arc;

impl ConsumerShared {
    /// Records that a queue went to another member while messages of it were returned and not committed: this member
    /// can no longer commit them. Not if the application gave the queue up itself, or learns of it in a callback.
    pub(crate) fn note_uncommitted(&self, queue: &ProcessQueue, is_done_committed: bool) {
        let is_known = self.options.announces_rebalances || self.options.is_listening;
        let committed = if is_done_committed {
            queue.done
        } else {
            queue.committed
        };
        let topics = &self.heartbeat.membership;
        if is_known || queue.returned <= committed || topics.subscription(&queue.key.topic).is_none() {
            return;
        }
        let mut state = self.state();
        state.uncommitted.insert(queue.key.clone(), queue.returned);
    }

    /// Takes the queues that went to other members with messages that were returned and not committed.
    pub(crate) fn take_uncommitted(&self, is_wanted: impl Fn(&QueueKey) -> bool) -> Vec<Uncommitted> {
        let mut state = self.state();
        let noted = std::mem::take(&mut state.uncommitted);
        let (gone, others): (BTreeMap<_, _>, _) = noted.into_iter().partition(|(key, _)| is_wanted(key));
        state.uncommitted = others;
        let is_behind = |(key, offset): &(Arc<QueueKey>, i64)| {
            // The queue may have come back, and its messages with it.
            let queue = state.queues.get(key);
            queue.is_none_or(|queue| queue.done < *offset)
        };
        let gone = gone.into_iter().filter(is_behind);
        gone.map(|(key, offset)| {
            let cause = ClientError::QueueGone {
                topic: self.options.client.unwrap_name(&key.topic).to_string(),
                broker: key.broker.to_string(),
                queue_id: key.queue_id,
            };
            self.uncommitted(&key, offset, cause)
        })
        .collect()
    }

    pub(crate) fn uncommitted(&self, key: &QueueKey, offset: i64, cause: ClientError) -> Uncommitted {
        Uncommitted {
            topic: self.options.client.unwrap_name(&key.topic),
            broker: key.broker.clone(),
            queue_id: key.queue_id,
            offset,
            cause,
        }
    }
}
