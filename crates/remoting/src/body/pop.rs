//! Consumption by pop: which client reads which queue, and how (400 to 402); batches of acknowledgements (200151); and
//! what brokers store about popped messages: check points and acknowledgements in the revive topic, and
//! `consumerOrderInfo.json`.

use crate::body::codec::value::body;
use crate::body::{MessageModel, MessageQueue};
use std::collections::BTreeMap;

body! {
    /// Asks which queues a client should read (Apache `QueryAssignmentRequestBody`).
    pub struct QueryAssignmentRequestBody {
        /// Client id.
        pub client_id: String => "clientId",
        /// Consumer group.
        pub consumer_group: String => "consumerGroup",
        /// Whether one member of the group gets a message, or every member.
        pub message_model: MessageModel => "messageModel",
        /// Name of the allocation strategy.
        pub strategy_name: Option<String> => "strategyName",
        /// Topic name.
        pub topic: String => "topic",
    }

    /// A queue that a client should read (Apache `MessageQueueAssignment`).
    pub struct MessageQueueAssignment {
        /// Further values.
        pub attachments: Option<BTreeMap<String, String>> => "attachments",
        /// Queue.
        pub message_queue: Option<MessageQueue> => "messageQueue",
        /// `PULL` or `POP`.
        pub mode: String => "mode" = "PULL",
    }

    /// The queues that a client should read (Apache `QueryAssignmentResponseBody`).
    pub struct QueryAssignmentResponseBody {
        /// The client's queues.
        pub message_queue_assignments: Vec<MessageQueueAssignment> => "messageQueueAssignments",
    }

    /// Sets how a group gets messages (Apache `SetMessageRequestModeRequestBody`).
    pub struct SetMessageRequestModeRequestBody {
        /// Consumer group.
        pub consumer_group: String => "consumerGroup",
        /// `PULL` or `POP`.
        pub mode: String => "mode" = "PULL",
        /// How many other clients share a client's queues; -1: all.
        pub pop_share_queue_num: i32 => "popShareQueueNum",
        /// Topic name.
        pub topic: String => "topic",
    }

    /// How groups get messages (Apache `MessageRequestModeSerializeWrapper`).
    pub struct MessageRequestModeSerializeWrapper {
        /// Modes by topic and group.
        pub message_request_mode_map: BTreeMap<String, BTreeMap<String, SetMessageRequestModeRequestBody>> => "messageRequestModeMap",
    }

    /// Acknowledges messages of one pop (Apache `BatchAck`).
    pub struct BatchAck {
        /// Bits of the acknowledged messages: base64 of little-endian bytes.
        pub bit_set: Option<String> => "b",
        /// Consumer group.
        pub consumer_group: String => "c",
        /// How long the messages were hidden, ms.
        pub invisible_time: i64 => "it",
        /// When they were popped, ms since the epoch.
        pub pop_time: i64 => "pt",
        /// Queue number.
        pub queue_id: i32 => "q",
        /// `1` if the messages came from the retry topic.
        pub retry: String => "r",
        /// Queue of the revive topic.
        pub revive_queue_id: i32 => "rq",
        /// Start offset.
        pub start_offset: i64 => "so",
        /// Topic.
        pub topic: String => "t",
    }

    /// Acknowledges messages (request 200151) (Apache `BatchAckMessageRequestBody`).
    pub struct BatchAckMessageRequestBody {
        /// The acknowledgements.
        pub acks: Vec<BatchAck> => "acks",
        /// Broker name.
        pub broker_name: String => "brokerName",
    }

    /// Messages of one queue that were handed out together (tag `ck` of the revive topic) (Apache `PopCheckPoint`).
    pub struct PopCheckPoint {
        /// Bits of the acknowledged messages, by their index in `d`; brokers write 0.
        pub bit_map: i32 => "bm",
        /// Broker name.
        pub broker_name: Option<String> => "bn",
        /// Consumer group.
        pub group: Option<String> => "c",
        /// Distance of each message from the start offset; brokers before 5.0 leave it out.
        pub offset_differences: Option<Vec<i32>> => "d",
        /// How long the messages are hidden, ms.
        pub invisible_time: i64 => "it",
        /// Number of messages.
        pub count: i32 => "n",
        /// When they were handed out, ms since the epoch.
        pub pop_time: i64 => "pt",
        /// Queue number.
        pub queue_id: i32 => "q",
        /// The sum of pop time and invisible time, which readers ignore.
        pub revive_time: i64 => "reviveTime",
        /// Offset of this check point in the revive topic; 0 while it is being written.
        pub revive_offset: i64 => "ro",
        /// How often a broker wrote it again because a message could not be delivered again.
        pub rewrites: Option<String> => "rp",
        /// Offset at which the pop began to read.
        pub start_offset: i64 => "so",
        /// Whether a message comes back without counting as a retry (5.5).
        pub suspend: bool => "sp",
        /// Topic that the messages are in, perhaps a retry topic.
        pub topic: Option<String> => "t",
    }

    /// Acknowledges a message of a check point (tag `ack` of the revive topic) (Apache `AckMsg`).
    pub struct AckMsg {
        /// Offset of the message.
        pub ack_offset: i64 => "ao" | "ackOffset",
        /// Broker name.
        pub broker_name: Option<String> => "bn" | "brokerName",
        /// Consumer group.
        pub group: Option<String> => "c" | "consumerGroup",
        /// When it was handed out.
        pub pop_time: i64 => "pt" | "popTime",
        /// Queue number.
        pub queue_id: i32 => "q" | "queueId",
        /// Start offset of the check point.
        pub start_offset: i64 => "so" | "startOffset",
        /// Topic that the message is in.
        pub topic: Option<String> => "t" | "topic",
    }

    /// Acknowledges messages of a check point (tag `bAck` of the revive topic) (Apache `BatchAckMsg`).
    pub struct BatchAckMsg {
        /// Unused; -1.
        pub ack_offset: i64 => "ao" | "ackOffset",
        /// Offsets of the messages.
        pub ack_offsets: Vec<i64> => "aol" | "ackOffsetList",
        /// Broker name.
        pub broker_name: Option<String> => "bn" | "brokerName",
        /// Consumer group.
        pub group: Option<String> => "c" | "consumerGroup",
        /// When they were handed out.
        pub pop_time: i64 => "pt" | "popTime",
        /// Queue number.
        pub queue_id: i32 => "q" | "queueId",
        /// Start offset of the check point.
        pub start_offset: i64 => "so" | "startOffset",
        /// Topic that the messages are in.
        pub topic: Option<String> => "t" | "topic",
    }

    /// The messages of a queue that an ordered group holds (Apache `ConsumerOrderInfoManager.OrderInfo`).
    pub struct OrderInfo {
        /// Id of the pop's attempt. A repeated attempt gets the same messages.
        pub attempt_id: Option<String> => "a",
        /// Bits of the acknowledged messages.
        pub done_bits: i64 => "cm",
        /// How long the messages are hidden, ms.
        pub invisible_time: Option<i64> => "i",
        /// When the group last popped the queue, ms since the epoch.
        pub last_consume_ms: i64 => "l",
        /// Offset of the first message, then the distance of each other one from it.
        pub offsets: Vec<i64> => "o",
        /// How often each message was handed out before, by offset.
        pub consumed_counts: Option<BTreeMap<i64, i32>> => "oc",
        /// When each message becomes visible again, by offset, ms since the epoch.
        pub visible_at: Option<BTreeMap<i64, i64>> => "ot",
        /// When the messages were handed out, ms since the epoch.
        pub pop_time: i64 => "popTime",
    }

    /// The messages that ordered groups hold (consumerOrderInfo.json) (Apache `ConsumerOrderInfoManager`).
    pub struct ConsumerOrderInfoWrapper {
        /// By `topic@group` and queue.
        pub table: BTreeMap<String, BTreeMap<i32, OrderInfo>> => "table",
        ..unknown_members
    }
}
