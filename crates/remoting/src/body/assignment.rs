//! Who reads which queue, and how (requests 400 to 402).

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
}
