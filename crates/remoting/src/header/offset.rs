//! Offsets of queues and consumers: requests 14, 15, 29, 30, 31, 32.

crate::header! {
    /// Asks for a group's offset (Apache `QueryConsumerOffsetRequestHeader`).
    pub struct QueryConsumerOffsetRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup" or "",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Whether a new group gets 0 instead of "not found".
        pub set_zero_if_not_found: Option<bool> => "setZeroIfNotFound",
    }

    /// A group's offset (Apache `QueryConsumerOffsetResponseHeader`).
    pub struct QueryConsumerOffsetResponseHeader {
        /// Offset.
        pub offset: i64 => "offset",
    }

    /// Commits a group's offset (Apache `UpdateConsumerOffsetRequestHeader`).
    pub struct UpdateConsumerOffsetRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup" or "",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Offset that the consumer has finished.
        pub commit_offset: i64 => "commitOffset",
    }

    /// Asks for the offset at a time (Apache `SearchOffsetRequestHeader`).
    pub struct SearchOffsetRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Lite topic (5.5).
        pub lite_topic: Option<&'a str> => "liteTopic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Time, ms since the epoch.
        pub timestamp: i64 => "timestamp",
        /// `LOWER` or `UPPER`, in any case; anything else is LOWER.
        pub boundary_type: Option<&'a str> => "boundaryType",
    }

    /// The offset at a time (Apache `SearchOffsetResponseHeader`).
    pub struct SearchOffsetResponseHeader {
        /// Offset.
        pub offset: i64 => "offset",
    }

    /// Asks for the largest offset of a queue (Apache `GetMaxOffsetRequestHeader`).
    pub struct GetMaxOffsetRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Whether only committed messages count; absent means true.
        pub committed: Option<bool> => "committed",
    }

    /// The largest offset of a queue (Apache `GetMaxOffsetResponseHeader`).
    pub struct GetMaxOffsetResponseHeader {
        /// Offset.
        pub offset: i64 => "offset",
    }

    /// Asks for the smallest offset of a queue (Apache `GetMinOffsetRequestHeader`).
    pub struct GetMinOffsetRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
    }

    /// The smallest offset of a queue (Apache `GetMinOffsetResponseHeader`).
    pub struct GetMinOffsetResponseHeader {
        /// Offset.
        pub offset: i64 => "offset",
    }

    /// Asks when the first message of a queue was stored (Apache `GetEarliestMsgStoretimeRequestHeader`).
    pub struct GetEarliestMsgStoretimeRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
    }

    /// When the first message of a queue was stored (Apache `GetEarliestMsgStoretimeResponseHeader`).
    pub struct GetEarliestMsgStoretimeResponseHeader {
        /// Time, ms since the epoch.
        pub timestamp: i64 => "timestamp",
    }
}
