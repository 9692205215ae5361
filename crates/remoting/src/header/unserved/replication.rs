//! Between brokers: requests 902, 903, 906, 908.

crate::header! {
    /// Tells or asks for replication addresses (Apache `ExchangeHAInfoRequestHeader`).
    pub struct ExchangeHAInfoRequestHeader<'a> {
        /// The master's replication address.
        pub master_ha_address: Option<&'a str> => "masterHaAddress",
        /// The master's flushed commit log offset.
        pub master_flush_offset: Option<i64> => "masterFlushOffset",
        /// The master's address.
        pub master_address: Option<&'a str> => "masterAddress",
    }

    /// Replication addresses (Apache `ExchangeHAInfoResponseHeader`).
    pub struct ExchangeHAInfoResponseHeader<'a> {
        /// The master's replication address.
        pub master_ha_address: Option<&'a str> => "masterHaAddress",
        /// The master's flushed commit log offset.
        pub master_flush_offset: Option<i64> => "masterFlushOffset",
        /// The master's address.
        pub master_address: Option<&'a str> => "masterAddress",
    }

    /// Sets the master's flushed offset (Apache `ResetMasterFlushOffsetHeader`).
    pub struct ResetMasterFlushOffsetHeader {
        /// The master's flushed commit log offset.
        pub master_flush_offset: i64 => "masterFlushOffset",
    }

    /// Starts a broker in a container (Apache `AddBrokerRequestHeader`).
    pub struct AddBrokerRequestHeader<'a> {
        /// Path of a configuration file.
        pub config_path: Option<&'a str> => "configPath",
    }

    /// Stops a broker in a container (Apache `RemoveBrokerRequestHeader`).
    pub struct RemoveBrokerRequestHeader<'a> {
        /// Broker name.
        pub broker_name: &'a str => "brokerName",
        /// Cluster name.
        pub broker_cluster_name: &'a str => "brokerClusterName",
        /// Broker id; 0 is the master.
        pub broker_id: i64 => "brokerId",
    }
}
