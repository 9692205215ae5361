//! Locks of queues (requests 41 and 42).

use crate::body::MessageQueue;
use crate::body::codec::value::body;
use std::collections::BTreeSet;

body! {
    /// Asks for locks (Apache `LockBatchRequestBody`).
    pub struct LockBatchRequestBody {
        /// Client id.
        pub client_id: String => "clientId",
        /// Consumer group.
        pub consumer_group: String => "consumerGroup",
        /// Queues.
        pub mq_set: BTreeSet<MessageQueue> => "mqSet",
        /// Whether to skip the other replicas.
        pub only_this_broker: bool => "onlyThisBroker",
    }

    /// Which queues are locked (Apache `LockBatchResponseBody`).
    pub struct LockBatchResponseBody {
        /// Queues that are locked now.
        pub locked: BTreeSet<MessageQueue> => "lockOKMQSet",
    }

    /// Releases locks (Apache `UnlockBatchRequestBody`).
    pub struct UnlockBatchRequestBody {
        /// Client id.
        pub client_id: String => "clientId",
        /// Consumer group.
        pub consumer_group: String => "consumerGroup",
        /// Queues.
        pub mq_set: BTreeSet<MessageQueue> => "mqSet",
        /// Whether to skip the other replicas.
        pub only_this_broker: bool => "onlyThisBroker",
    }
}
