//! Offsets of consumers (`consumerOffset.json`, `delayOffset.json`, requests 43, 45, 220 to 223, 308).

use crate::body::codec::unknown;
use crate::body::codec::value::body;
use crate::body::codec::value::wrong;
use crate::body::{BodyKey, BodyValue, DataVersion, Json, MessageQueue, UnknownMembers, Writer};
use crate::error::WireError;
use std::collections::{BTreeMap, BTreeSet};

body! {
    /// Offsets of a client, or of all clients (answers to 221, 223) (Apache `GetConsumerStatusBody`).
    pub struct GetConsumerStatusBody {
        /// Offsets by client and queue.
        pub consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>> => "consumerTable",
        /// Offsets by queue.
        pub message_queue_table: BTreeMap<MessageQueue, i64> => "messageQueueTable",
    }

    /// All offsets (Apache `ConsumerOffsetSerializeWrapper`; `ConsumerOffsetManager` in consumerOffset.json).
    pub struct ConsumerOffsetSerializeWrapper {
        /// Version of the table.
        pub data_version: Option<DataVersion> => "dataVersion",
        /// Topics by group. 5.x writes it; it follows from the offsets.
        pub group_topic_map: Option<BTreeMap<String, BTreeSet<String>>> => "groupTopicMap",
        /// Offsets by topic, group and queue.
        pub offset_table: OffsetTable => "offsetTable",
        /// The last requested offsets that a running 5.x broker keeps, in its form; it never reads them back.
        pub pull_offset_table: Option<Json> => "pullOffsetTable",
        /// Ours, in consumerOffset.json: the end of the commit log at an operator's last change, by topic and group.
        pub pop_cutoffs: Option<BTreeMap<String, i64>> => "popCutoffs",
        ..unknown_members
    }

    /// How far the delay levels were delivered (delayOffset.json) (Apache `DelayOffsetSerializeWrapper`).
    pub struct DelayOffsetSerializeWrapper {
        /// Version of the table.
        pub data_version: DataVersion => "dataVersion",
        /// Next offset to deliver, by level.
        pub offset_table: BTreeMap<i32, i64> => "offsetTable",
        ..unknown_members
    }

    /// New offsets by queue (Apache `ResetOffsetBody`).
    pub struct ResetOffsetBody {
        /// New offsets by queue.
        pub offset_table: BTreeMap<MessageQueue, i64> => "offsetTable",
    }

    /// A queue with its new offset (Apache `MessageQueueForC`).
    pub struct MessageQueueForC {
        /// Broker name.
        pub broker_name: String => "brokerName",
        /// Offset.
        pub offset: i64 => "offset",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Topic name.
        pub topic: String => "topic",
    }

    /// New offsets as a list, for C++ clients (Apache `ResetOffsetBodyForC`).
    pub struct ResetOffsetBodyForC {
        /// New offsets, one entry for each queue.
        pub offset_table: Vec<MessageQueueForC> => "offsetTable",
    }

    /// Smallest offsets of other groups (answer to 308) (Apache `QueryCorrectionOffsetBody`).
    pub struct QueryCorrectionOffsetBody {
        /// Smallest offsets by queue number.
        pub correction_offsets: BTreeMap<i32, i64> => "correctionOffsets",
    }
}

/// Offsets by `topic@group` and queue number.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetTable {
    /// The rows of topics and groups.
    pub rows: BTreeMap<String, BTreeMap<i32, i64>>,
    /// Rows whose name has no `@`, unchanged.
    pub unknown_members: UnknownMembers,
}

impl BodyValue for OffsetTable {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        let Json::Object(members) = json else {
            return Err(wrong(what, "an object", &json));
        };
        let mut table = Self::default();
        for (key, value) in members.into_iter().filter(|(_, value)| *value != Json::Null) {
            let name = <String as BodyKey>::read(key, what)?;
            if name.contains('@') {
                table.rows.insert(name, BodyValue::read(value, what)?);
            } else {
                table.unknown_members.push(name, value);
            }
        }
        Ok(table)
    }
    fn write(&self, writer: &mut Writer) {
        writer.open_object();
        for (name, queues) in &self.rows {
            writer.name(name);
            BodyValue::write(queues, writer);
        }
        unknown::write_all(self.unknown_members.as_slice(), writer);
        writer.close_object();
    }
}
