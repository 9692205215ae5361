//! Counters and state that the store reports.

use pyrmq_remoting::message::Durability;

/// Counters since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages stored.
    pub messages_put: u64,
    /// Bytes of the records of stored messages.
    pub bytes_put: u64,
    /// Writes to the commit log; a batch is one.
    pub writes: u64,
    /// Fsyncs of the commit log.
    pub flushes: u64,
    /// Messages handed to readers.
    pub messages_got: u64,
    /// Bytes of the records handed to readers.
    pub bytes_got: u64,
    /// Keys put into the key index.
    pub keys_indexed: u64,
    /// Segments and queue files deleted by retention.
    pub files_deleted: u64,
}

/// Puts that were answered "busy", and what waits now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Busy {
    /// Refused because a write or an fsync had taken longer than `osPageCacheBusyTimeOutMills`.
    pub held: u64,
    /// Refused because they had waited longer than `waitTimeMillsInSendQueue` themselves.
    pub waited: u64,
    /// Refused because `sendThreadPoolQueueCapacity` senders waited for the disk, or too many consume queue bytes.
    pub overload: u64,
    /// The longest wait among them, ms.
    pub longest_ms: u64,
    /// Time that the put that is writing now has taken, ms.
    pub held_now_ms: u64,
    /// Puts that wait for another one to write.
    pub waiting_for_lock: usize,
    /// Senders that wait for an fsync.
    pub waiting_for_disk: usize,
    /// Time that the first of these senders has waited, ms.
    pub oldest_ms: u64,
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// Position of the oldest record.
    pub min_physical_offset: i64,
    /// Position after the newest record.
    pub max_physical_offset: i64,
    /// Position up to which an fsync has confirmed everything.
    pub flushed_offset: i64,
    /// Bytes that are stored but not yet readable or indexed.
    pub dispatch_behind_bytes: i64,
    /// Used share of the file system, 0 to 1.
    pub disk_ratio: f64,
    /// Free bytes of the file system.
    pub disk_free_bytes: u64,
    /// Why nothing more can be stored; `None` if the store is writable.
    pub read_only: Option<String>,
    /// True if that is a failed write or fsync, which only a restart ends; a full disk ends by itself.
    pub has_failed: bool,
    /// What is wrong with the first damaged part of the log that is known: the beginning of each segment is checked
    /// once after the start, and readers find damaged records. Messages there are lost to readers. `None` again once
    /// retention has deleted the segment.
    pub damage: Option<String>,
    /// The level that an answered put has reached: `memory` or `local`.
    pub durability: Durability,
    /// Number of consume queues.
    pub queues: usize,
    /// Puts that were answered "busy".
    pub busy: Busy,
    /// Whether the last stop was unclean.
    pub recovered_from_crash: bool,
}
