//! Static topics, whose queues consist of queues of several brokers.

use crate::body::codec::value::body;
use std::collections::BTreeMap;

body! {
    /// What a name server knows of a static topic (Apache `TopicQueueMappingInfo`).
    pub struct TopicQueueMappingInfo {
        /// Broker name.
        pub broker_name: Option<String> => "bname",
        /// Physical queue id on this broker, by queue id in the static topic.
        pub curr_id_map: BTreeMap<i32, i32> => "currIdMap",
        /// Whether the mapping is outdated.
        pub dirty: bool => "dirty",
        /// Epoch.
        pub epoch: i64 => "epoch",
        /// Scope.
        pub scope: String => "scope" = "__global__",
        /// Topic name.
        pub topic: Option<String> => "topic",
        /// Queues of the static topic.
        pub total_queues: i32 => "totalQueues",
    }

    /// A range of one queue (Apache `LogicQueueMappingItem`).
    pub struct LogicQueueMappingItem {
        /// Broker name.
        pub broker_name: Option<String> => "bname",
        /// End of the range in the physical queue, exclusive; -1 while it grows.
        pub end_offset: i64 => "endOffset" = -1,
        /// Generation.
        pub generation: i32 => "gen",
        /// First offset in the static topic.
        pub logic_offset: i64 => "logicOffset",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// First offset of the range in the physical queue.
        pub start_offset: i64 => "startOffset",
        /// End, ms.
        pub time_of_end: i64 => "timeOfEnd" = -1,
        /// Begin, ms.
        pub time_of_start: i64 => "timeOfStart" = -1,
    }

    /// A static topic on one broker (Apache `TopicQueueMappingDetail`).
    pub struct TopicQueueMappingDetail {
        /// Broker name.
        pub broker_name: Option<String> => "bname",
        /// Physical queue id on this broker, by queue id in the static topic.
        pub curr_id_map: BTreeMap<i32, i32> => "currIdMap",
        /// Whether the mapping is outdated.
        pub dirty: bool => "dirty",
        /// Epoch.
        pub epoch: i64 => "epoch",
        /// Mapping items by queue number.
        pub hosted_queues: BTreeMap<i32, Vec<LogicQueueMappingItem>> => "hostedQueues",
        /// Scope.
        pub scope: String => "scope" = "__global__",
        /// Topic name.
        pub topic: Option<String> => "topic",
        /// Queues of the static topic.
        pub total_queues: i32 => "totalQueues",
    }
}
