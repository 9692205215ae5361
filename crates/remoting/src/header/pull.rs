//! Pulling messages: requests 11 and 361 and their response. The body of the response is raw records back to back.

/// Bits of a pull's `sysFlag` (Apache `PullSysFlag`).
pub mod sys_flag {
    /// The request carries an offset to commit.
    pub const COMMIT_OFFSET: i32 = 0x1;
    /// The broker may hold the request until messages arrive.
    pub const SUSPEND: i32 = 0x2;
    /// The request carries its subscription.
    pub const SUBSCRIPTION: i32 = 0x4;
}

crate::header! {
    /// Asks for messages from an offset on (Apache `PullMessageRequestHeader`).
    pub struct PullMessageRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Lite topic (5.5).
        pub lite_topic: Option<&'a str> => "liteTopic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Offset in the queue.
        pub queue_offset: i64 => "queueOffset",
        /// Messages wanted at most.
        pub max_msg_nums: i32 => "maxMsgNums",
        /// System flag bits.
        pub sys_flag: i32 => "sysFlag",
        /// Offset that the consumer has finished.
        pub commit_offset: i64 => "commitOffset" or 0,
        /// How long the broker may hold the request, ms.
        pub suspend_timeout_millis: i64 => "suspendTimeoutMillis" or 0,
        /// Filter expression.
        pub subscription: Option<&'a str> => "subscription",
        /// Version of the subscription.
        pub sub_version: i64 => "subVersion" or 0,
        /// `TAG` or `SQL92`.
        pub expression_type: Option<&'a str> => "expressionType",
        /// Bytes wanted at most.
        pub max_msg_bytes: Option<i32> => "maxMsgBytes",
        /// The kind of requester: client (absent) or proxy.
        pub request_source: Option<i32> => "requestSource",
        /// Client id behind a proxy; Apache's spelling.
        pub proxy_froward_client_id: Option<&'a str> => "proxyFrowardClientId",
        /// Broker name, as 5.x clients send it.
        pub broker_name: Option<&'a str> => "bname",
    }

    /// Where to continue, in addition to the records (Apache `PullMessageResponseHeader`).
    pub struct PullMessageResponseHeader {
        /// Broker id to ask next time.
        pub suggest_which_broker_id: i64 => "suggestWhichBrokerId",
        /// Offset to ask for next, whatever the response code.
        pub next_begin_offset: i64 => "nextBeginOffset",
        /// Smallest offset of the queue.
        pub min_offset: i64 => "minOffset",
        /// Largest offset of the queue.
        pub max_offset: i64 => "maxOffset",
        /// Offset shift of a static topic.
        pub offset_delta: Option<i64> => "offsetDelta",
        /// System flag of the topic.
        pub topic_sys_flag: Option<i32> => "topicSysFlag",
        /// System flag of the group.
        pub group_sys_flag: Option<i32> => "groupSysFlag",
        /// What forbids the pull: 1 broker, 2 group, 3 topic, 4 broadcasting, 5 subscription.
        pub forbidden_type: Option<i32> => "forbiddenType",
    }
}
