//! Static topics: settings with their mapping (351).

use crate::body::codec::value::body;
use crate::body::{TopicFilterType, TopicQueueMappingDetail};
use std::collections::BTreeMap;

body! {
    /// Settings of a topic with its mapping (answer to 351) (Apache `TopicConfigAndQueueMapping`).
    pub struct TopicConfigAndQueueMapping {
        /// Attributes by name.
        pub attributes: BTreeMap<String, String> => "attributes",
        /// Mapping of a static topic.
        pub mapping_detail: Option<TopicQueueMappingDetail> => "mappingDetail",
        /// Whether the topic is ordered.
        pub order: bool => "order",
        /// Permission bits: 4 read, 2 write, 1 inherit.
        pub perm: i32 => "perm" = 6,
        /// Queues that may be read.
        pub read_queue_nums: i32 => "readQueueNums" = 16,
        /// `SINGLE_TAG` or `MULTI_TAG`.
        pub topic_filter_type: TopicFilterType => "topicFilterType",
        /// Topic name.
        pub topic_name: String => "topicName",
        /// System flag of the topic.
        pub topic_sys_flag: i32 => "topicSysFlag",
        /// Queues that may be written.
        pub write_queue_nums: i32 => "writeQueueNums" = 16,
    }
}
