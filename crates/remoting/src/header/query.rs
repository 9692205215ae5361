//! Finding messages by key or id: requests 12, 33.

crate::header! {
    /// Asks for messages by key (Apache `QueryMessageRequestHeader`).
    pub struct QueryMessageRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic" or "",
        /// Key.
        pub key: &'a str => "key" or "",
        /// Messages wanted at most.
        pub max_num: i32 => "maxNum",
        /// Earliest store time, ms.
        pub begin_timestamp: i64 => "beginTimestamp",
        /// Latest store time, ms.
        pub end_timestamp: i64 => "endTimestamp",
        /// Kind of index key (5.5).
        pub index_type: Option<&'a str> => "indexType",
        /// Where the previous page ended (5.5).
        pub last_key: Option<&'a str> => "lastKey",
    }

    /// How fresh the key index is (Apache `QueryMessageResponseHeader`).
    pub struct QueryMessageResponseHeader {
        /// Store time of the last indexed message, ms.
        pub index_last_update_timestamp: i64 => "indexLastUpdateTimestamp",
        /// Commit log offset of the last indexed message.
        pub index_last_update_phyoffset: i64 => "indexLastUpdatePhyoffset",
    }

    /// Asks for the message at a commit log offset (Apache `ViewMessageRequestHeader`).
    pub struct ViewMessageRequestHeader<'a> {
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// Offset.
        pub offset: i64 => "offset",
    }

    /// Asks for entries of a consume queue (Apache `QueryConsumeQueueRequestHeader`).
    pub struct QueryConsumeQueueRequestHeader<'a> {
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// Queue number.
        pub queue_id: Option<i32> => "queueId",
        /// First index wanted.
        pub index: Option<i64> => "index",
        /// Entries wanted.
        pub count: Option<i32> => "count",
        /// Consumer group.
        pub consumer_group: Option<&'a str> => "consumerGroup",
    }
}
