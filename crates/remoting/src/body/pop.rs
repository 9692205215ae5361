//! Consumption by pop: which client reads which queue, and how (400 to 402), messages that are done (200151), and what
//! brokers write down of messages in flight: check points and acknowledgements in the revive topic,
//! `consumerOrderInfo.json`.

use crate::body::value::body;
use crate::body::{MessageModel, MessageQueue};
use std::collections::BTreeMap;

body! {
    /// Asks for queues (Apache `QueryAssignmentRequestBody`).
    pub struct QueryAssignmentRequestBody {
        /// Client id.
        pub client_id: String => "clientId",
        /// Consumer group.
        pub consumer_group: String => "consumerGroup",
        /// Whether one member of the group gets a message, or every member.
        pub message_model: MessageModel => "messageModel",
        /// Name of the allocation.
        pub strategy_name: Option<String> => "strategyName",
        /// Topic name.
        pub topic: String => "topic",
    }

    /// One queue (Apache `MessageQueueAssignment`).
    pub struct MessageQueueAssignment {
        /// More values.
        pub attachments: Option<BTreeMap<String, String>> => "attachments",
        /// Queue.
        pub message_queue: Option<MessageQueue> => "messageQueue",
        /// `PULL` or `POP`.
        pub mode: String => "mode" = "PULL",
    }

    /// The queues (Apache `QueryAssignmentResponseBody`).
    pub struct QueryAssignmentResponseBody {
        /// What the client gets.
        pub message_queue_assignments: Vec<MessageQueueAssignment> => "messageQueueAssignments",
    }

    /// Sets how a group gets messages (Apache `SetMessageRequestModeRequestBody`).
    pub struct SetMessageRequestModeRequestBody {
        /// Consumer group.
        pub consumer_group: String => "consumerGroup",
        /// `PULL` or `POP`.
        pub mode: String => "mode" = "PULL",
        /// Clients that share a queue; -1 all.
        pub pop_share_queue_num: i32 => "popShareQueueNum",
        /// Topic name.
        pub topic: String => "topic",
    }

    /// How groups get messages (Apache `MessageRequestModeSerializeWrapper`).
    pub struct MessageRequestModeSerializeWrapper {
        /// Modes by topic and group.
        pub message_request_mode_map: BTreeMap<String, BTreeMap<String, SetMessageRequestModeRequestBody>> => "messageRequestModeMap",
    }

    /// Messages of one pop that are done (Apache `BatchAck`).
    pub struct BatchAck {
        /// Bits of the messages that are done, base64 of little-endian bytes.
        pub bit_set: Option<String> => "b",
        /// Consumer group.
        pub consumer_group: String => "c",
        /// How long it was hidden, ms.
        pub invisible_time: i64 => "it",
        /// When it was popped, ms.
        pub pop_time: i64 => "pt",
        /// Queue number.
        pub queue_id: i32 => "q",
        /// `1` when it came from the retry topic.
        pub retry: String => "r",
        /// Queue of the revive topic.
        pub revive_queue_id: i32 => "rq",
        /// Start offset.
        pub start_offset: i64 => "so",
        /// Topic.
        pub topic: String => "t",
    }

    /// Messages that are done (request 200151) (Apache `BatchAckMessageRequestBody`).
    pub struct BatchAckMessageRequestBody {
        /// What is done.
        pub acks: Vec<BatchAck> => "acks",
        /// Broker name.
        pub broker_name: String => "brokerName",
    }

    /// Messages of one queue that were handed out together (tag `ck` of the revive topic) (Apache `PopCheckPoint`).
    pub struct PopCheckPoint {
        /// Bits of the messages that are done, by their place in `d`; brokers write 0.
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
        /// The sum of pop time and invisible time; readers do not look at it.
        pub revive_time: i64 => "reviveTime",
        /// Offset of this check point in the revive topic; 0 when it is written.
        pub revive_offset: i64 => "ro",
        /// How often a broker wrote it again because a message could not be brought back.
        pub rewrites: Option<String> => "rp",
        /// Offset at which the pop began to read.
        pub start_offset: i64 => "so",
        /// The message comes back without a try being counted (5.5).
        pub suspend: bool => "sp",
        /// Topic that the messages are in, perhaps a retry topic.
        pub topic: Option<String> => "t",
    }

    /// A message of a check point is done (tag `ack` of the revive topic) (Apache `AckMsg`).
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

    /// Messages of a check point are done (tag `bAck` of the revive topic) (Apache `BatchAckMsg`).
    pub struct BatchAckMsg {
        /// Not used: -1.
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

    /// What an ordered group has of a queue (Apache `ConsumerOrderInfoManager.OrderInfo`).
    pub struct OrderInfo {
        /// Attempt of the pop, which may ask again for the same messages.
        pub attempt_id: Option<String> => "a",
        /// Bits of the messages that are done.
        pub done_bits: i64 => "cm",
        /// How long the messages are hidden, ms.
        pub invisible_time: Option<i64> => "i",
        /// When the group last popped the queue, ms since the epoch.
        pub last_consume_ms: i64 => "l",
        /// Offset of the first message, then the distance of each other one from it.
        pub offsets: Vec<i64> => "o",
        /// How often messages were handed out before, by offset.
        pub consumed_counts: Option<BTreeMap<i64, i32>> => "oc",
        /// Until when single messages are hidden, by offset, ms since the epoch.
        pub visible_at: Option<BTreeMap<i64, i64>> => "ot",
        /// When the messages were handed out, ms since the epoch.
        pub pop_time: i64 => "popTime",
    }

    /// What ordered groups have of queues (consumerOrderInfo.json) (Apache `ConsumerOrderInfoManager`).
    pub struct ConsumerOrderInfoWrapper {
        /// By `topic@group` and queue.
        pub table: BTreeMap<String, BTreeMap<i32, OrderInfo>> => "table",
        ..unknown_members
    }
}
