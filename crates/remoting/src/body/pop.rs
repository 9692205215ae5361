//! Consumption by pop: which client reads which queue, and how (400 to 402), and messages that are done (200151).

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
        /// Who gets a message.
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
}
