//! Consuming by pop: requests 200050 to 200055. Their codes need the JSON header.

crate::header! {
    /// Pops messages, which hides them for a time (Apache `PopMessageRequestHeader`).
    pub struct PopMessageRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Messages wanted at most.
        pub max_msg_nums: i32 => "maxMsgNums",
        /// How long messages stay hidden, ms.
        pub invisible_time: i64 => "invisibleTime",
        /// How long the broker may hold the request, ms.
        pub poll_time: i64 => "pollTime",
        /// When the client asked, ms since the epoch.
        pub born_time: i64 => "bornTime",
        /// Where to begin: 0 smallest, 1 largest offset.
        pub init_mode: i32 => "initMode",
        /// `TAG` or `SQL92`.
        pub exp_type: Option<&'a str> => "expType",
        /// Filter expression.
        pub exp: Option<&'a str> => "exp",
        /// Whether the pop is ordered.
        pub order: Option<bool> => "order",
        /// Id of an ordered pop's attempt.
        pub attempt_id: Option<&'a str> => "attemptId",
    }

    /// Where the messages came from (Apache `PopMessageResponseHeader`).
    pub struct PopMessageResponseHeader<'a> {
        /// When the broker handed the messages out, ms since the epoch.
        pub pop_time: i64 => "popTime",
        /// How long messages stay hidden, ms.
        pub invisible_time: i64 => "invisibleTime",
        /// Queue of the revive topic.
        pub revive_qid: i32 => "reviveQid",
        /// Number of messages left.
        pub rest_num: i64 => "restNum",
        /// First offsets per queue.
        pub start_offset_info: Option<&'a str> => "startOffsetInfo",
        /// Offsets per queue.
        pub msg_offset_info: Option<&'a str> => "msgOffsetInfo",
        /// Delivery counts per queue.
        pub order_count_info: Option<&'a str> => "orderCountInfo",
    }

    /// Acknowledges a message (Apache `AckMessageRequestHeader`).
    pub struct AckMessageRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Handle of the popped message.
        pub extra_info: &'a str => "extraInfo",
        /// Offset.
        pub offset: i64 => "offset",
        /// Lite topic (5.5).
        pub lite_topic: Option<&'a str> => "liteTopic",
    }

    /// Changes how long a message stays hidden (Apache `ChangeInvisibleTimeRequestHeader`).
    pub struct ChangeInvisibleTimeRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Handle of the popped message.
        pub extra_info: &'a str => "extraInfo",
        /// Offset.
        pub offset: i64 => "offset",
        /// How long messages stay hidden, ms.
        pub invisible_time: i64 => "invisibleTime",
        /// Lite topic (5.5).
        pub lite_topic: Option<&'a str> => "liteTopic",
        /// Lite topics only: whether the message comes back without counting as a retry (5.5).
        pub suspend: bool => "suspend",
    }

    /// The new handle (Apache `ChangeInvisibleTimeResponseHeader`).
    pub struct ChangeInvisibleTimeResponseHeader {
        /// When the broker handed the message out, ms since the epoch.
        pub pop_time: i64 => "popTime",
        /// How long messages stay hidden, ms.
        pub invisible_time: i64 => "invisibleTime",
        /// Queue of the revive topic.
        pub revive_qid: i32 => "reviveQid",
    }

    /// Reads messages without hiding them (Apache `PeekMessageRequestHeader`).
    pub struct PeekMessageRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Messages wanted at most.
        pub max_msg_nums: i32 => "maxMsgNums",
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
    }

    /// Waits until there are messages (Apache `NotificationRequestHeader`).
    pub struct NotificationRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// How long the broker may hold the request, ms.
        pub poll_time: i64 => "pollTime",
        /// When the client asked, ms since the epoch.
        pub born_time: i64 => "bornTime",
        /// Whether the pops are ordered.
        pub order: Option<bool> => "order",
        /// Id of an ordered pop's attempt.
        pub attempt_id: Option<&'a str> => "attemptId",
        /// `TAG` or `SQL92`.
        pub exp_type: Option<&'a str> => "expType",
        /// Filter expression.
        pub exp: Option<&'a str> => "exp",
    }

    /// Whether there are messages (Apache `NotificationResponseHeader`).
    pub struct NotificationResponseHeader {
        /// Whether there are messages.
        pub has_msg: bool => "hasMsg",
        /// Whether too many requests are held already.
        pub polling_full: bool => "pollingFull",
    }

    /// Asks how many requests are held (Apache `PollingInfoRequestHeader`).
    pub struct PollingInfoRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
    }

    /// How many requests are held (Apache `PollingInfoResponseHeader`).
    pub struct PollingInfoResponseHeader {
        /// Held requests.
        pub polling_num: i32 => "pollingNum",
    }
}
