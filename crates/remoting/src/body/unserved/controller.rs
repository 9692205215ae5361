//! The controller: replicas in sync and epochs (1002 to 1007).

use crate::body::BrokerMemberGroup;
use crate::body::codec::value::body;
use std::collections::{BTreeMap, BTreeSet};

body! {
    /// Replicas in sync (Apache `SyncStateSet`).
    pub struct SyncStateSet {
        /// Broker ids in sync.
        pub sync_state_set: BTreeSet<i64> => "syncStateSet",
        /// Epoch of the set.
        pub sync_state_set_epoch: i32 => "syncStateSetEpoch",
    }

    /// The elected master (answer to 1002) (Apache `ElectMasterResponseBody`).
    pub struct ElectMasterResponseBody {
        /// The brokers of one name.
        pub broker_member_group: Option<BrokerMemberGroup> => "brokerMemberGroup",
        /// Broker ids in sync.
        pub sync_state_set: BTreeSet<i64> => "syncStateSet",
    }

    /// One epoch (Apache `EpochEntry`).
    pub struct EpochEntry {
        /// End of the commit log offsets.
        pub end_offset: i64 => "endOffset",
        /// Epoch.
        pub epoch: i32 => "epoch",
        /// First commit log offset.
        pub start_offset: i64 => "startOffset",
    }

    /// Epochs of a broker (answer to 1007) (Apache `EpochEntryCache`).
    pub struct EpochEntryCache {
        /// Broker id.
        pub broker_id: i64 => "brokerId",
        /// Broker name.
        pub broker_name: String => "brokerName",
        /// Cluster name.
        pub cluster_name: String => "clusterName",
        /// Epochs.
        pub epoch_list: Vec<EpochEntry> => "epochList",
        /// End of the broker's commit log.
        pub max_offset: i64 => "maxOffset",
    }

    /// One replica (Apache `ReplicaIdentity`).
    pub struct ReplicaIdentity {
        /// Whether the replica is alive.
        pub alive: Option<bool> => "alive",
        /// Broker address, `ip:port`.
        pub broker_address: String => "brokerAddress",
        /// Broker id.
        pub broker_id: i64 => "brokerId",
        /// Broker name.
        pub broker_name: String => "brokerName",
    }

    /// Replicas of a broker (Apache `ReplicasInfo`).
    pub struct ReplicasInfo {
        /// Replicas in sync.
        pub in_sync_replicas: Vec<ReplicaIdentity> => "inSyncReplicas",
        /// The master's address.
        pub master_address: Option<String> => "masterAddress",
        /// The master's broker id.
        pub master_broker_id: Option<i64> => "masterBrokerId",
        /// The master's epoch.
        pub master_epoch: Option<i32> => "masterEpoch",
        /// Replicas that lag.
        pub not_in_sync_replicas: Vec<ReplicaIdentity> => "notInSyncReplicas",
        /// Epoch of the set.
        pub sync_state_set_epoch: Option<i32> => "syncStateSetEpoch",
    }

    /// Replicas by broker (answer to 1006) (Apache `BrokerReplicasInfo`).
    pub struct BrokerReplicasInfo {
        /// Replicas by broker name.
        pub replicas_info_table: BTreeMap<String, ReplicasInfo> => "replicasInfoTable",
    }
}
