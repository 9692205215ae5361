//! Offsets of consumers (`consumerOffset.json`, requests 43, 220, 222, 223, 308).

use crate::body::value::body;
use crate::body::{DataVersion, MessageQueue};
use std::collections::BTreeMap;

body! {
    /// All offsets, by `topic@group` and queue number (Apache `ConsumerOffsetSerializeWrapper`).
    pub struct ConsumerOffsetSerializeWrapper {
        /// Version of the table.
        pub data_version: Option<DataVersion> => "dataVersion",
        /// By queue.
        pub offset_table: BTreeMap<String, BTreeMap<i32, i64>> => "offsetTable",
    }

    /// New offsets by queue (Apache `ResetOffsetBody`).
    pub struct ResetOffsetBody {
        /// By queue.
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
        /// By queue.
        pub offset_table: Vec<MessageQueueForC> => "offsetTable",
    }

    /// Offsets of a client, or of all clients (answers to 221, 223) (Apache `GetConsumerStatusBody`).
    pub struct GetConsumerStatusBody {
        /// Offsets by client and queue.
        pub consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>> => "consumerTable",
        /// Offsets by queue.
        pub message_queue_table: BTreeMap<MessageQueue, i64> => "messageQueueTable",
    }

    /// Smallest offsets of other groups (answer to 308) (Apache `QueryCorrectionOffsetBody`).
    pub struct QueryCorrectionOffsetBody {
        /// Smallest offsets by queue number.
        pub correction_offsets: BTreeMap<i32, i64> => "correctionOffsets",
    }
}
