//! Brokers and clusters of a name server (answers to requests 106 and 901).

use crate::body::BrokerData;
use crate::body::codec::value::body;
use std::collections::{BTreeMap, BTreeSet};

body! {
    /// All brokers (Apache `ClusterInfo`).
    pub struct ClusterInfo {
        /// Brokers by name.
        pub broker_addr_table: BTreeMap<String, BrokerData> => "brokerAddrTable",
        /// Broker names by cluster.
        pub cluster_addr_table: BTreeMap<String, BTreeSet<String>> => "clusterAddrTable",
    }

    /// The brokers of one name (Apache `BrokerMemberGroup`).
    pub struct BrokerMemberGroup {
        /// Addresses by broker id; 0 is the master.
        pub broker_addrs: BTreeMap<i64, String> => "brokerAddrs",
        /// Broker name.
        pub broker_name: Option<String> => "brokerName",
        /// Cluster name.
        pub cluster: Option<String> => "cluster",
    }

    /// Answer to 901 (Apache `GetBrokerMemberGroupResponseBody`).
    pub struct GetBrokerMemberGroupResponseBody {
        /// The brokers of one name.
        pub broker_member_group: Option<BrokerMemberGroup> => "brokerMemberGroup",
    }
}
