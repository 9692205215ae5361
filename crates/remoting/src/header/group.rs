//! Consumer groups as administrators see them: requests 207, 208, 222, 223, 303, 308, 314,
//! 315, 317, 343, 345, 352, 353.

crate::header! {
    /// Deletes a group (Apache `DeleteSubscriptionGroupRequestHeader`).
    pub struct DeleteSubscriptionGroupRequestHeader<'a> {
        /// Consumer group.
        pub group_name: &'a str => "groupName",
        /// Whether to delete its offsets, too.
        pub clean_offset: bool => "cleanOffset",
    }

    /// Asks for a group's settings (Apache `GetSubscriptionGroupConfigRequestHeader`).
    pub struct GetSubscriptionGroupConfigRequestHeader<'a> {
        /// Consumer group.
        pub group: &'a str => "group",
    }

    /// Asks for a group's progress in all queues (Apache `GetConsumeStatsRequestHeader`).
    pub struct GetConsumeStatsRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// Topics, joined by semicolons.
        pub topic_list: Option<&'a str> => "topicList",
    }

    /// Resets a group to a time or offset (Apache `ResetOffsetRequestHeader`).
    pub struct ResetOffsetRequestHeader<'a> {
        /// Consumer group.
        pub group: &'a str => "group" or "",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: Option<i32> => "queueId",
        /// Offset.
        pub offset: Option<i64> => "offset",
        /// Time, ms since the epoch.
        pub timestamp: i64 => "timestamp" or 0,
        /// Whether offsets may also move forward.
        pub is_force: bool => "isForce",
    }

    /// Copies a group's offsets (Apache `CloneGroupOffsetRequestHeader`).
    pub struct CloneGroupOffsetRequestHeader<'a> {
        /// Group to copy from.
        pub src_group: &'a str => "srcGroup" or "",
        /// Group to copy to.
        pub dest_group: &'a str => "destGroup",
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// Whether topics that the connected members of `src_group` do not subscribe to are copied, too.
        pub offline: bool => "offline",
    }

    /// Asks for the store times of a topic's messages and a group's progress in them (Apache
    /// `QueryConsumeTimeSpanRequestHeader`).
    pub struct QueryConsumeTimeSpanRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Consumer group.
        pub group: &'a str => "group" or "",
    }

    /// Asks for a group's subscription (Apache `QuerySubscriptionByConsumerRequestHeader`).
    pub struct QuerySubscriptionByConsumerRequestHeader<'a> {
        /// Consumer group.
        pub group: &'a str => "group",
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
    }

    /// Asks for the topics of a group (Apache `QueryTopicsByConsumerRequestHeader`).
    pub struct QueryTopicsByConsumerRequestHeader<'a> {
        /// Consumer group.
        pub group: &'a str => "group",
    }

    /// Allows or forbids a group to read a topic (Apache `UpdateGroupForbiddenRequestHeader`).
    pub struct UpdateGroupForbiddenRequestHeader<'a> {
        /// Consumer group.
        pub group: &'a str => "group",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Whether the group may read; absent: only asks.
        pub readable: Option<bool> => "readable",
    }

    /// Asks for the progress of all groups (Apache `GetConsumeStatsInBrokerHeader`).
    pub struct GetConsumeStatsInBrokerHeader {
        /// Whether to include orderly groups only.
        pub is_order: bool => "isOrder",
    }

    /// Asks clients for their offsets (Apache `GetConsumerStatusRequestHeader`).
    pub struct GetConsumerStatusRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Consumer group.
        pub group: &'a str => "group",
        /// Address of one client; absent for all.
        pub client_addr: Option<&'a str> => "clientAddr",
    }

    /// Asks for the smallest offsets of other groups (Apache `QueryCorrectionOffsetHeader`).
    pub struct QueryCorrectionOffsetHeader<'a> {
        /// Groups, joined by commas.
        pub filter_groups: Option<&'a str> => "filterGroups",
        /// Group to compare with.
        pub compare_group: &'a str => "compareGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
    }

    /// Asks for one statistic (Apache `ViewBrokerStatsDataRequestHeader`).
    pub struct ViewBrokerStatsDataRequestHeader<'a> {
        /// Name of the statistic.
        pub stats_name: Option<&'a str> => "statsName",
        /// Key of the statistic.
        pub stats_key: Option<&'a str> => "statsKey",
    }
}
