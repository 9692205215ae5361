//! The name of a queue.

use std::fmt;
use std::sync::Arc;

/// A queue by name (Apache `MessageQueue`). Ordered as Apache orders them for allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey {
    /// The topic.
    pub topic: Arc<str>,
    /// The broker's name.
    pub broker: Arc<str>,
    /// The queue's number.
    pub queue_id: i32,
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "queue {} of topic {} on broker {}",
            self.queue_id, self.topic, self.broker
        )
    }
}
