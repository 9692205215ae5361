//! Lite topics of 5.5: requests 200070 to 200079.

crate::header! {
    /// Takes messages of lite topics (Apache `PopLiteMessageRequestHeader`).
    pub struct PopLiteMessageRequestHeader<'a> {
        /// Client id.
        pub client_id: &'a str => "clientId",
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Messages wanted at most.
        pub max_msg_num: i32 => "maxMsgNum",
        /// How long messages stay hidden, ms.
        pub invisible_time: i64 => "invisibleTime",
        /// How long the broker may hold the request, ms.
        pub poll_time: i64 => "pollTime",
        /// When the client asked, ms since the epoch.
        pub born_time: i64 => "bornTime",
        /// Attempt of an ordered pop.
        pub attempt_id: Option<&'a str> => "attemptId",
    }

    /// Where the messages came from (Apache `PopLiteMessageResponseHeader`).
    pub struct PopLiteMessageResponseHeader<'a> {
        /// When the broker handed the messages out, ms since the epoch.
        pub pop_time: i64 => "popTime",
        /// How long messages stay hidden, ms.
        pub invisible_time: i64 => "invisibleTime",
        /// Queue of the revive topic.
        pub revive_qid: i32 => "reviveQid",
        /// First offsets per queue.
        pub start_offset_info: Option<&'a str> => "startOffsetInfo",
        /// Offsets per queue.
        pub msg_offset_info: Option<&'a str> => "msgOffsetInfo",
        /// Delivery counts per queue.
        pub order_count_info: Option<&'a str> => "orderCountInfo",
    }

    /// Notifies a client that a lite topic is gone (Apache `NotifyUnsubscribeLiteRequestHeader`).
    pub struct NotifyUnsubscribeLiteRequestHeader<'a> {
        /// Lite topic (5.5).
        pub lite_topic: &'a str => "liteTopic",
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Client id.
        pub client_id: &'a str => "clientId",
    }

    /// Asks about a topic of lite topics (Apache `GetParentTopicInfoRequestHeader`).
    pub struct GetParentTopicInfoRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
    }

    /// Asks about a lite topic (Apache `GetLiteTopicInfoRequestHeader`).
    pub struct GetLiteTopicInfoRequestHeader<'a> {
        /// Topic that the lite topics belong to.
        pub parent_topic: Option<&'a str> => "parentTopic",
        /// Lite topic (5.5).
        pub lite_topic: Option<&'a str> => "liteTopic",
    }

    /// Asks about a client (Apache `GetLiteClientInfoRequestHeader`).
    pub struct GetLiteClientInfoRequestHeader<'a> {
        /// Topic that the lite topics belong to.
        pub parent_topic: Option<&'a str> => "parentTopic",
        /// Consumer group.
        pub group: Option<&'a str> => "group",
        /// Client id.
        pub client_id: Option<&'a str> => "clientId",
        /// Entries wanted at most.
        pub max_count: Option<i32> => "maxCount",
    }

    /// Asks about a group (Apache `GetLiteGroupInfoRequestHeader`).
    pub struct GetLiteGroupInfoRequestHeader<'a> {
        /// Consumer group.
        pub group: &'a str => "group",
        /// Lite topic (5.5).
        pub lite_topic: Option<&'a str> => "liteTopic",
        /// Entries wanted at most.
        pub top_k: Option<i32> => "topK",
    }

    /// Lets messages be handed out again (Apache `TriggerLiteDispatchRequestHeader`).
    pub struct TriggerLiteDispatchRequestHeader<'a> {
        /// Consumer group.
        pub group: &'a str => "group",
        /// Client id.
        pub client_id: Option<&'a str> => "clientId",
    }
}
