//! Topics as administrators see them: requests 17, 202, 215, 216, 300, 351.

crate::header! {
    /// Creates or changes a topic (Apache `CreateTopicRequestHeader`).
    pub struct CreateTopicRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Topic whose settings a created topic gets, `TBW102`.
        pub default_topic: &'a str => "defaultTopic" or "",
        /// Queues that may be read.
        pub read_queue_nums: i32 => "readQueueNums",
        /// Queues that may be written.
        pub write_queue_nums: i32 => "writeQueueNums",
        /// Permission bits: 4 read, 2 write, 1 inherit.
        pub perm: i32 => "perm",
        /// `SINGLE_TAG` or `MULTI_TAG`.
        pub topic_filter_type: &'a str => "topicFilterType",
        /// System flag of the topic.
        pub topic_sys_flag: Option<i32> => "topicSysFlag",
        /// Whether the topic is ordered.
        pub order: bool => "order",
        /// Attributes, `+key=value,-key`.
        pub attributes: Option<&'a str> => "attributes",
        /// Whether to skip the checks.
        pub force: Option<bool> => "force",
    }

    /// Deletes a topic on a broker (Apache `DeleteTopicRequestHeader`).
    pub struct DeleteTopicRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic" or "",
    }

    /// Deletes a topic at a name server (Apache `DeleteTopicFromNamesrvRequestHeader`).
    pub struct DeleteTopicFromNamesrvRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
    }

    /// Asks for a topic's settings (Apache `GetTopicConfigRequestHeader`).
    pub struct GetTopicConfigRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
    }

    /// Asks for the offsets of all queues (Apache `GetTopicStatsInfoRequestHeader`).
    pub struct GetTopicStatsInfoRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
    }

    /// Asks which groups consume a topic (Apache `QueryTopicConsumeByWhoRequestHeader`).
    pub struct QueryTopicConsumeByWhoRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
    }

    /// How many topics there are (Apache `GetAllTopicConfigResponseHeader`).
    pub struct GetAllTopicConfigResponseHeader {
        /// Number of topics.
        pub total_topic_num: Option<i32> => "totalTopicNum",
    }
}
