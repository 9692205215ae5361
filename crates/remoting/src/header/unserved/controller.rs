//! The controller: requests 1001 to 1013 that carry a head.

crate::header! {
    /// Changes the set of replicas in sync (Apache `AlterSyncStateSetRequestHeader`).
    pub struct AlterSyncStateSetRequestHeader<'a> {
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
        /// The master's broker id.
        pub master_broker_id: Option<i64> => "masterBrokerId",
        /// The master's epoch.
        pub master_epoch: Option<i32> => "masterEpoch",
        /// When the caller asked, ms since the epoch.
        pub invoke_time: Option<i64> => "invokeTime",
    }

    /// Epoch of the changed set (Apache `AlterSyncStateSetResponseHeader`).
    pub struct AlterSyncStateSetResponseHeader {
        /// Epoch of the new set.
        pub new_sync_state_set_epoch: Option<i32> => "newSyncStateSetEpoch",
    }

    /// Asks for an election (Apache `ElectMasterRequestHeader`).
    pub struct ElectMasterRequestHeader<'a> {
        /// Cluster name.
        pub cluster_name: &'a str => "clusterName",
        /// Broker name.
        pub broker_name: &'a str => "brokerName",
        /// Broker id; 0 is the master.
        pub broker_id: i64 => "brokerId",
        /// Whether only this broker may be elected.
        pub designate_elect: bool => "designateElect",
        /// When the caller asked, ms since the epoch.
        pub invoke_time: Option<i64> => "invokeTime",
    }

    /// The elected master (Apache `ElectMasterResponseHeader`).
    pub struct ElectMasterResponseHeader<'a> {
        /// The master's broker id.
        pub master_broker_id: Option<i64> => "masterBrokerId",
        /// The master's address.
        pub master_address: Option<&'a str> => "masterAddress",
        /// The master's epoch.
        pub master_epoch: Option<i32> => "masterEpoch",
        /// Epoch of the in-sync set.
        pub sync_state_set_epoch: Option<i32> => "syncStateSetEpoch",
    }

    /// Announces a broker (Apache `RegisterBrokerToControllerRequestHeader`).
    pub struct RegisterBrokerToControllerRequestHeader<'a> {
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
        /// Broker id; 0 is the master.
        pub broker_id: Option<i64> => "brokerId",
        /// Broker address, `ip:port`.
        pub broker_address: Option<&'a str> => "brokerAddress",
        /// When the caller asked, ms since the epoch.
        pub invoke_time: Option<i64> => "invokeTime",
    }

    /// The current master (Apache `RegisterBrokerToControllerResponseHeader`).
    pub struct RegisterBrokerToControllerResponseHeader<'a> {
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
        /// The master's broker id.
        pub master_broker_id: Option<i64> => "masterBrokerId",
        /// The master's address.
        pub master_address: Option<&'a str> => "masterAddress",
        /// The master's epoch.
        pub master_epoch: Option<i32> => "masterEpoch",
        /// Epoch of the in-sync set.
        pub sync_state_set_epoch: Option<i32> => "syncStateSetEpoch",
    }

    /// Asks for the replicas of a broker (Apache `GetReplicaInfoRequestHeader`).
    pub struct GetReplicaInfoRequestHeader<'a> {
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
    }

    /// The current master (Apache `GetReplicaInfoResponseHeader`).
    pub struct GetReplicaInfoResponseHeader<'a> {
        /// The master's broker id.
        pub master_broker_id: Option<i64> => "masterBrokerId",
        /// The master's address.
        pub master_address: Option<&'a str> => "masterAddress",
        /// The master's epoch.
        pub master_epoch: Option<i32> => "masterEpoch",
    }

    /// The leader of the controllers (Apache `GetMetaDataResponseHeader`).
    pub struct GetMetaDataResponseHeader<'a> {
        /// Name of the controllers' group.
        pub group: Option<&'a str> => "group",
        /// The leader's id.
        pub controller_leader_id: Option<&'a str> => "controllerLeaderId",
        /// The leader's address.
        pub controller_leader_address: Option<&'a str> => "controllerLeaderAddress",
        /// Whether the responding controller leads.
        pub is_leader: bool => "isLeader",
        /// All controllers.
        pub peers: Option<&'a str> => "peers",
    }

    /// Notifies a broker of its role (Apache `NotifyBrokerRoleChangedRequestHeader`).
    pub struct NotifyBrokerRoleChangedRequestHeader<'a> {
        /// The master's address.
        pub master_address: Option<&'a str> => "masterAddress",
        /// The master's epoch.
        pub master_epoch: Option<i32> => "masterEpoch",
        /// Epoch of the in-sync set.
        pub sync_state_set_epoch: Option<i32> => "syncStateSetEpoch",
        /// The master's broker id.
        pub master_broker_id: Option<i64> => "masterBrokerId",
    }

    /// Deletes a broker's data (Apache `CleanControllerBrokerDataRequestHeader`).
    pub struct CleanControllerBrokerDataRequestHeader<'a> {
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
        /// Broker name.
        pub broker_name: &'a str => "brokerName",
        /// Broker ids, joined by semicolons.
        pub broker_controller_ids_to_clean: Option<&'a str> => "brokerControllerIdsToClean",
        /// Whether to delete it even if the broker is alive.
        pub is_clean_living_broker: bool => "isCleanLivingBroker",
        /// When the caller asked, ms since the epoch.
        pub invoke_time: Option<i64> => "invokeTime",
    }

    /// Asks for a free broker id (Apache `GetNextBrokerIdRequestHeader`).
    pub struct GetNextBrokerIdRequestHeader<'a> {
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
    }

    /// A free broker id (Apache `GetNextBrokerIdResponseHeader`).
    pub struct GetNextBrokerIdResponseHeader<'a> {
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
        /// Next free broker id.
        pub next_broker_id: Option<i64> => "nextBrokerId",
    }

    /// Takes a broker id (Apache `ApplyBrokerIdRequestHeader`).
    pub struct ApplyBrokerIdRequestHeader<'a> {
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
        /// The requested id.
        pub applied_broker_id: Option<i64> => "appliedBrokerId",
        /// Proof, `address;ms`.
        pub register_check_code: Option<&'a str> => "registerCheckCode",
    }

    /// The id is taken (Apache `ApplyBrokerIdResponseHeader`).
    pub struct ApplyBrokerIdResponseHeader<'a> {
        /// Cluster name.
        pub cluster_name: Option<&'a str> => "clusterName",
        /// Broker name.
        pub broker_name: Option<&'a str> => "brokerName",
    }
}
