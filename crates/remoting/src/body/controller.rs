//! Replicas, epochs, users and rules.

use crate::body::BrokerMemberGroup;
use crate::body::value::body;
use std::collections::{BTreeMap, BTreeSet};

body! {
    /// Replicas in sync (Apache `SyncStateSet`).
    pub struct SyncStateSet {
        /// Broker ids in sync.
        pub sync_state_set: BTreeSet<i64> => "syncStateSet",
        /// Epoch of the set.
        pub sync_state_set_epoch: i32 => "syncStateSetEpoch",
    }

    /// Who was elected (answer to 1002) (Apache `ElectMasterResponseBody`).
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
        /// Broker to consume from.
        pub broker_id: i64 => "brokerId",
        /// Broker name.
        pub broker_name: String => "brokerName",
        /// Cluster name.
        pub cluster_name: String => "clusterName",
        /// Epochs.
        pub epoch_list: Vec<EpochEntry> => "epochList",
        /// Largest offset of the queue.
        pub max_offset: i64 => "maxOffset",
    }

    /// One replica (Apache `ReplicaIdentity`).
    pub struct ReplicaIdentity {
        /// It lives.
        pub alive: Option<bool> => "alive",
        /// Broker address, `ip:port`.
        pub broker_address: String => "brokerAddress",
        /// Broker to consume from.
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

    /// One slave (Apache `HAConnectionRuntimeInfo`).
    pub struct HAConnectionRuntimeInfo {
        /// Address.
        pub addr: Option<String> => "addr",
        /// Bytes behind.
        pub diff: i64 => "diff",
        /// In sync.
        pub in_sync: bool => "inSync",
        /// What the slave has.
        pub slave_ack_offset: i64 => "slaveAckOffset",
        /// Where the transfer began.
        pub transfer_from_where: i64 => "transferFromWhere",
        /// Bytes per second.
        pub transferred_byte_in_second: i64 => "transferredByteInSecond",
    }

    /// The side of a slave (Apache `HAClientRuntimeInfo`).
    pub struct HAClientRuntimeInfo {
        /// Running.
        pub activated: bool => "activated",
        /// When it read last, ms.
        pub last_read_timestamp: i64 => "lastReadTimestamp",
        /// When it wrote last, ms.
        pub last_write_timestamp: i64 => "lastWriteTimestamp",
        /// The master's address.
        pub master_addr: Option<String> => "masterAddr",
        /// The master's flushed commit log offset.
        pub master_flush_offset: i64 => "masterFlushOffset",
        /// Largest offset of the queue.
        pub max_offset: i64 => "maxOffset",
        /// Bytes per second.
        pub transferred_byte_in_second: i64 => "transferredByteInSecond",
    }

    /// State of the replication (answer to 907) (Apache `HARuntimeInfo`).
    pub struct HARuntimeInfo {
        /// Our side, when a slave.
        pub ha_client_runtime_info: HAClientRuntimeInfo => "haClientRuntimeInfo",
        /// Slaves.
        pub ha_connection_info: Vec<HAConnectionRuntimeInfo> => "haConnectionInfo",
        /// Slaves in sync.
        pub in_sync_slave_nums: i32 => "inSyncSlaveNums",
        /// A master.
        pub master: bool => "master",
        /// End of the master's log.
        pub master_commit_log_max_offset: i64 => "masterCommitLogMaxOffset",
    }

    /// A user (Apache `UserInfo`).
    pub struct UserInfo {
        /// Password.
        pub password: Option<String> => "password",
        /// `enable` or `disable`.
        pub user_status: Option<String> => "userStatus",
        /// `Super` or `Normal`.
        pub user_type: Option<String> => "userType",
        /// User name.
        pub username: Option<String> => "username",
    }

    /// One rule (Apache `PolicyEntryInfo`).
    pub struct PolicyEntryInfo {
        /// Actions.
        pub actions: Option<Vec<String>> => "actions",
        /// `Allow` or `Deny`.
        pub decision: Option<String> => "decision",
        /// Resource.
        pub resource: Option<String> => "resource",
        /// Addresses.
        pub source_ips: Option<Vec<String>> => "sourceIps",
    }

    /// Rules of one kind (Apache `PolicyInfo`).
    pub struct PolicyInfo {
        /// Entries.
        pub entries: Option<Vec<PolicyEntryInfo>> => "entries",
        /// Policy type.
        pub policy_type: Option<String> => "policyType",
    }

    /// Rules of one subject (Apache `AclInfo`).
    pub struct AclInfo {
        /// Policies.
        pub policies: Option<Vec<PolicyInfo>> => "policies",
        /// Subject, `User:name`.
        pub subject: Option<String> => "subject",
    }
}
