//! Clients and their connections: requests 35, 38, 40, 203, 204, 307, 309.

crate::header! {
    /// Unregisters a client (Apache `UnregisterClientRequestHeader`).
    pub struct UnregisterClientRequestHeader<'a> {
        /// Client id.
        pub client_id: &'a str => "clientID" or "",
        /// Producer group.
        pub producer_group: Option<&'a str> => "producerGroup",
        /// Consumer group.
        pub consumer_group: Option<&'a str> => "consumerGroup",
    }

    /// Asks for the client ids of a consumer group (Apache `GetConsumerListByGroupRequestHeader`).
    pub struct GetConsumerListByGroupRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
    }

    /// Notifies a consumer that its group has changed (Apache `NotifyConsumerIdsChangedRequestHeader`).
    pub struct NotifyConsumerIdsChangedRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
    }

    /// Asks for the connections of a consumer group (Apache `GetConsumerConnectionListRequestHeader`).
    pub struct GetConsumerConnectionListRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
    }

    /// Asks for the connections of a producer group (Apache `GetProducerConnectionListRequestHeader`).
    pub struct GetProducerConnectionListRequestHeader<'a> {
        /// Producer group.
        pub producer_group: &'a str => "producerGroup",
    }

    /// Asks a consumer for its state (Apache `GetConsumerRunningInfoRequestHeader`).
    pub struct GetConsumerRunningInfoRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Client id.
        pub client_id: &'a str => "clientId",
        /// Whether to include a thread dump.
        pub jstack_enable: bool => "jstackEnable",
    }

    /// Makes one consumer consume one message (Apache `ConsumeMessageDirectlyResultRequestHeader`).
    pub struct ConsumeMessageDirectlyResultRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Client id.
        pub client_id: Option<&'a str> => "clientId",
        /// Message id.
        pub msg_id: Option<&'a str> => "msgId",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// System flag of the topic.
        pub topic_sys_flag: Option<i32> => "topicSysFlag",
        /// System flag of the group.
        pub group_sys_flag: Option<i32> => "groupSysFlag",
    }
}
