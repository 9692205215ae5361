//! What the store says about itself.

use crate::options::Durability;

/// Counters since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages stored.
    pub messages_put: u64,
    /// Bytes of their records.
    pub bytes_put: u64,
    /// Writes to the commit log; a batch is one.
    pub writes: u64,
    /// Fsyncs of the commit log.
    pub flushes: u64,
    /// Messages handed to readers.
    pub messages_got: u64,
    /// Bytes of their records.
    pub bytes_got: u64,
    /// Keys put into the key index.
    pub keys_indexed: u64,
    /// Segments and queue files deleted by retention.
    pub files_deleted: u64,
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// Position of the oldest record.
    pub min_physical_offset: i64,
    /// Position behind the newest record.
    pub max_physical_offset: i64,
    /// Position up to which an fsync has confirmed everything.
    pub flushed_offset: i64,
    /// Bytes that are stored but not yet readable or indexed.
    pub dispatch_behind_bytes: i64,
    /// Used share of the file system, 0 to 1.
    pub disk_ratio: f64,
    /// Free bytes of the file system.
    pub disk_free_bytes: u64,
    /// Why nothing more can be stored, if so.
    pub read_only: Option<String>,
    /// True when that is a failed write or fsync, which only a restart ends; a full disk ends by itself.
    pub has_failed: bool,
    /// The level that an answered put has reached: `memory` or `local`.
    pub durability: Durability,
    /// Number of consume queues.
    pub queues: usize,
    /// True when the last stop was not a clean one.
    pub recovered_from_crash: bool,
}
