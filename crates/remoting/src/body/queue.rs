//! A message queue, also as a member's name, and the entries of its consume queue (321).

use crate::body::codec::value::body;
use crate::body::codec::value::wrong;
use crate::body::{Body, BodyKey, BodyValue, Json, Key, SubscriptionData, Writer};
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

    /// One entry of a consume queue (Apache `ConsumeQueueData`).
    pub struct ConsumeQueueData {
        /// Filter bits.
        pub bit_map: Option<String> => "bitMap",
        /// Whether the filter matches.
        pub eval: bool => "eval",
        /// Entry of the extended file.
        pub extend_data_json: Option<String> => "extendDataJson",
        /// Why the entry could not be read or filtered.
        pub msg: Option<String> => "msg",
        /// Commit log offset.
        pub physic_offset: i64 => "physicOffset",
        /// Bytes of the record.
        pub physic_size: i32 => "physicSize",
        /// Hash of the tags.
        pub tags_code: i64 => "tagsCode",
    }

    /// Entries of a consume queue (answer to 321) (Apache `QueryConsumeQueueResponseBody`).
    pub struct QueryConsumeQueueResponseBody {
        /// Filter data as text.
        pub filter_data: Option<String> => "filterData",
        /// Largest index.
        pub max_queue_index: i64 => "maxQueueIndex",
        /// Smallest index.
        pub min_queue_index: i64 => "minQueueIndex",
        /// Entries.
        pub queue_data: Vec<ConsumeQueueData> => "queueData",
        /// Subscription.
        pub subscription_data: Option<SubscriptionData> => "subscriptionData",
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

/// Ordered by topic, broker name and queue id, as allocation needs it.
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
            // Some peers quote the object to produce standard JSON.
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
