//! Sending a message back for a retry: request 36.

crate::header! {
    /// Asks the broker to deliver a message again later (Apache `ConsumerSendMsgBackRequestHeader`).
    pub struct ConsumerSendMsgBackRequestHeader<'a> {
        /// Offset.
        pub offset: i64 => "offset",
        /// Consumer group.
        pub group: &'a str => "group",
        /// Delay level; 0 lets the broker choose, negative sends to the dead-letter topic.
        pub delay_level: i32 => "delayLevel",
        /// The message's id.
        pub origin_msg_id: Option<&'a str> => "originMsgId",
        /// The message's topic.
        pub origin_topic: Option<&'a str> => "originTopic",
        /// Unit mode.
        pub unit_mode: bool => "unitMode",
        /// Deliveries before the dead-letter topic.
        pub max_reconsume_times: Option<i32> => "maxReconsumeTimes",
    }
}
