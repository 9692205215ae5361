//! Replication between brokers (907).

use crate::body::codec::value::body;

body! {
    /// State of the replication (answer to 907) (Apache `HARuntimeInfo`).
    pub struct HARuntimeInfo {
        /// The slave's side; empty on a master.
        pub ha_client_runtime_info: HAClientRuntimeInfo => "haClientRuntimeInfo",
        /// Slaves.
        pub ha_connection_info: Vec<HAConnectionRuntimeInfo> => "haConnectionInfo",
        /// Slaves in sync.
        pub in_sync_slave_nums: i32 => "inSyncSlaveNums",
        /// Whether this broker is a master.
        pub master: bool => "master",
        /// End of the master's log.
        pub master_commit_log_max_offset: i64 => "masterCommitLogMaxOffset",
    }

    /// One slave (Apache `HAConnectionRuntimeInfo`).
    pub struct HAConnectionRuntimeInfo {
        /// Address.
        pub addr: Option<String> => "addr",
        /// Bytes behind.
        pub diff: i64 => "diff",
        /// Whether it is in sync.
        pub in_sync: bool => "inSync",
        /// Position up to which the slave has the log.
        pub slave_ack_offset: i64 => "slaveAckOffset",
        /// Where the transfer began.
        pub transfer_from_where: i64 => "transferFromWhere",
        /// Bytes per second.
        pub transferred_byte_in_second: i64 => "transferredByteInSecond",
    }

    /// The side of a slave (Apache `HAClientRuntimeInfo`).
    pub struct HAClientRuntimeInfo {
        /// Whether the slave's replication runs.
        pub activated: bool => "activated",
        /// When it read last, ms.
        pub last_read_timestamp: i64 => "lastReadTimestamp",
        /// When it wrote last, ms.
        pub last_write_timestamp: i64 => "lastWriteTimestamp",
        /// The master's address.
        pub master_addr: Option<String> => "masterAddr",
        /// The master's flushed commit log offset.
        pub master_flush_offset: i64 => "masterFlushOffset",
        /// End of the slave's commit log.
        pub max_offset: i64 => "maxOffset",
        /// Bytes per second.
        pub transferred_byte_in_second: i64 => "transferredByteInSecond",
    }
}
