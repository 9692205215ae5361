//! A message queue, also as the name of a member.

use crate::body::value::body;
use crate::body::value::wrong;
use crate::body::{Body, BodyKey, BodyValue, Json, Key, Writer};
use crate::error::WireError;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

body! {
    /// One queue of one broker (Apache `MessageQueue`).
    pub struct MessageQueue {
        /// Broker name.
        pub broker_name: String => "brokerName",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Topic name.
        pub topic: String => "topic",
    }
}

impl MessageQueue {
    /// A queue.
    pub fn new(topic: impl Into<String>, broker_name: impl Into<String>, queue_id: i32) -> Self {
        Self {
            broker_name: broker_name.into(),
            queue_id,
            topic: topic.into(),
        }
    }

    fn rank(&self) -> (&str, &str, i32) {
        (&self.topic, &self.broker_name, self.queue_id)
    }
}

/// By topic, broker name and number, as allocation needs it.
impl Ord for MessageQueue {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for MessageQueue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for MessageQueue {}

impl Hash for MessageQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
    }
}

impl BodyKey for MessageQueue {
    fn read(key: Key, what: &'static str) -> Result<Self, WireError> {
        match key {
            Key::Object(members) => <Self as BodyValue>::read(Json::Object(members), what),
            // Some peers quote the object to stay within standard JSON.
            Key::Str(text) => Self::decode(text.as_bytes()),
            Key::Int(number) => Err(wrong(what, "an object", &Json::Int(number))),
        }
    }
    fn write(&self, writer: &mut Writer) {
        writer.element();
        BodyValue::write(self, writer);
        writer.colon();
    }
}
