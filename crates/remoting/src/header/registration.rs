//! Brokers at a name server: requests 103, 104, 205, 217, 322, 327, 901, 904, 905.

crate::header! {
    /// Announces a broker (Apache `RegisterBrokerRequestHeader`).
    pub struct RegisterBrokerRequestHeader<'a> {
        /// Broker name.
        pub broker_name: &'a str => "brokerName",
        /// Broker address, `ip:port`.
        pub broker_addr: &'a str => "brokerAddr",
        /// Cluster name.
        pub cluster_name: &'a str => "clusterName",
        /// Replication address, `ip:port`.
        pub ha_server_addr: Option<&'a str> => "haServerAddr",
        /// Broker id; 0 is the master.
        pub broker_id: i64 => "brokerId",
        /// How long the broker lives without a heartbeat, ms.
        pub heartbeat_timeout_millis: Option<i64> => "heartbeatTimeoutMillis",
        /// Whether a slave may act for its master; its mere presence means yes (docs/wire.md).
        pub enable_acting_master: Option<bool> => "enableActingMaster",
        /// Whether the body is in the compressed form.
        pub compressed: bool => "compressed",
        /// Checksum of the body as sent; 0: unchecked.
        pub body_crc32: Option<i32> => "bodyCrc32",
    }

    /// The master of the announced broker (Apache `RegisterBrokerResponseHeader`).
    pub struct RegisterBrokerResponseHeader<'a> {
        /// Replication address, `ip:port`.
        pub ha_server_addr: Option<&'a str> => "haServerAddr",
        /// The master's address.
        pub master_addr: Option<&'a str> => "masterAddr",
    }

    /// Unregisters a broker (Apache `UnRegisterBrokerRequestHeader`).
    pub struct UnRegisterBrokerRequestHeader<'a> {
        /// Broker name.
        pub broker_name: &'a str => "brokerName" or "",
        /// Broker address, `ip:port`.
        pub broker_addr: &'a str => "brokerAddr" or "",
        /// Cluster name.
        pub cluster_name: &'a str => "clusterName" or "",
        /// Broker id; 0 is the master.
        pub broker_id: i64 => "brokerId" or 0,
    }

    /// Asks whether the topics have changed (Apache `QueryDataVersionRequestHeader`).
    pub struct QueryDataVersionRequestHeader<'a> {
        /// Broker name.
        pub broker_name: &'a str => "brokerName" or "",
        /// Broker address, `ip:port`.
        pub broker_addr: &'a str => "brokerAddr",
        /// Cluster name.
        pub cluster_name: &'a str => "clusterName",
        /// Broker id; 0 is the master.
        pub broker_id: i64 => "brokerId" or 0,
    }

    /// Whether the topics have changed (Apache `QueryDataVersionResponseHeader`).
    pub struct QueryDataVersionResponseHeader {
        /// Whether the name server knows another version.
        pub changed: bool => "changed",
    }

    /// A broker's heartbeat (Apache `BrokerHeartbeatRequestHeader`).
    pub struct BrokerHeartbeatRequestHeader<'a> {
        /// Cluster name.
        pub cluster_name: &'a str => "clusterName",
        /// Broker address, `ip:port`.
        pub broker_addr: &'a str => "brokerAddr",
        /// Broker name.
        pub broker_name: &'a str => "brokerName" or "",
        /// Broker id; 0 is the master.
        pub broker_id: Option<i64> => "brokerId",
        /// Epoch.
        pub epoch: Option<i32> => "epoch",
        /// End of the broker's commit log.
        pub max_offset: Option<i64> => "maxOffset",
        /// Confirmed commit log offset.
        pub confirm_offset: Option<i64> => "confirmOffset",
        /// How long the broker lives without a heartbeat, ms; Apache's spelling.
        pub heartbeat_timeout_mills: Option<i64> => "heartbeatTimeoutMills",
        /// Priority in elections; smaller wins.
        pub election_priority: Option<i32> => "electionPriority",
    }

    /// Asks for all brokers of a name (Apache `GetBrokerMemberGroupRequestHeader`, whose server does without either
    /// name).
    pub struct GetBrokerMemberGroupRequestHeader<'a> {
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
    }

    /// Notifies a broker that the smallest broker id has changed (Apache `NotifyMinBrokerIdChangeRequestHeader`).
    pub struct NotifyMinBrokerIdChangeRequestHeader<'a> {
        /// Smallest broker id alive.
        pub min_broker_id: Option<i64> => "minBrokerId",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
        /// Address of the broker with that id.
        pub min_broker_addr: Option<&'a str> => "minBrokerAddr",
        /// Address of the broker that left, if one did.
        pub offline_broker_addr: Option<&'a str> => "offlineBrokerAddr",
        /// Replication address of the broker that joined, if one did.
        pub ha_broker_addr: Option<&'a str> => "haBrokerAddr",
    }

    /// Announces one topic (Apache `RegisterTopicRequestHeader`).
    pub struct RegisterTopicRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
    }

    /// Stops writes to a broker (Apache `WipeWritePermOfBrokerRequestHeader`).
    pub struct WipeWritePermOfBrokerRequestHeader<'a> {
        /// Broker name.
        pub broker_name: &'a str => "brokerName",
    }

    /// Number of topics changed (Apache `WipeWritePermOfBrokerResponseHeader`).
    pub struct WipeWritePermOfBrokerResponseHeader {
        /// Number of topics changed.
        pub wipe_topic_count: i32 => "wipeTopicCount",
    }

    /// Allows writes to a broker again (Apache `AddWritePermOfBrokerRequestHeader`).
    pub struct AddWritePermOfBrokerRequestHeader<'a> {
        /// Broker name.
        pub broker_name: &'a str => "brokerName",
    }

    /// Number of topics changed (Apache `AddWritePermOfBrokerResponseHeader`).
    pub struct AddWritePermOfBrokerResponseHeader {
        /// Number of topics changed.
        pub add_topic_count: i32 => "addTopicCount",
    }
}
