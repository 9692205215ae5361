//! Queues that have gone to other members with messages that were returned and not committed. A commit names them: the
//! application would take what it has handled for done, and the messages are delivered again.

use crate::consumer::process_queue::{ProcessQueue, QueueKey};
use crate::consumer::shared::ConsumerShared;
use crate::error::{ClientError, Uncommitted};
use std::collections::BTreeMap;
use std::sync::Arc;

impl ConsumerShared {
    /// Notes messages that were returned of a queue that has gone to another member: no commit of this one holds for
    /// them. An application that has given the queue up by itself, or hears of it in a callback, knows.
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

    /// The queues that have gone with messages that were returned and not committed, each named once.
    pub(crate) fn take_uncommitted(&self, is_wanted: impl Fn(&QueueKey) -> bool) -> Vec<Uncommitted> {
        let mut state = self.state();
        let noted = std::mem::take(&mut state.uncommitted);
        let (gone, others): (BTreeMap<_, _>, _) = noted.into_iter().partition(|(key, _)| is_wanted(key));
        state.uncommitted = others;
        let is_behind = |(key, offset): &(Arc<QueueKey>, i64)| {
            // It may have come back, and its messages again.
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
