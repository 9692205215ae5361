//! Replies to requesters: request 326. Requests 324 and 325 carry the send headers.

crate::header! {
    /// Delivers a reply to the client that waits for it (Apache `ReplyMessageRequestHeader`).
    pub struct ReplyMessageRequestHeader<'a> {
        /// Producer group.
        pub producer_group: &'a str => "producerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Topic that lends its settings when this one must be created, `TBW102`.
        pub default_topic: &'a str => "defaultTopic",
        /// Queues that a created topic should get.
        pub default_topic_queue_nums: i32 => "defaultTopicQueueNums",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// System flag bits.
        pub sys_flag: i32 => "sysFlag",
        /// When the client created the message, ms since the epoch.
        pub born_timestamp: i64 => "bornTimestamp",
        /// The user's own flag.
        pub flag: i32 => "flag",
        /// Properties, `key 0x01 value 0x02` repeated.
        pub properties: Option<&'a str> => "properties",
        /// How often consumers handed the message back.
        pub reconsume_times: Option<i32> => "reconsumeTimes",
        /// Unit mode.
        pub unit_mode: bool => "unitMode",
        /// The producer's address, `ip:port`.
        pub born_host: &'a str => "bornHost",
        /// The broker's address, `ip:port`.
        pub store_host: &'a str => "storeHost",
        /// When the broker stored the message, ms since the epoch.
        pub store_timestamp: i64 => "storeTimestamp",
    }
}
