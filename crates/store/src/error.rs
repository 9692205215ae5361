//! What can go wrong in the store: the caller's fault, the directory's state, the machine's fault, each by its own
//! variant.
//!
//! Errors are `Clone`, because one failed fsync answers everyone who waits for it.

use pyrmq_remoting::WireError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What made a put be answered "busy", by the mark that Apache's answer begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BusyReason {
    /// A write or an fsync has taken longer than `osPageCacheBusyTimeOutMills`: nothing was queued behind it.
    PageCacheBusy,
    /// This put itself has waited longer than `waitTimeMillsInSendQueue`.
    QueueTimeout,
    /// `sendThreadPoolQueueCapacity` senders wait for the disk.
    QueueFull,
}

impl fmt::Display for BusyReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::PageCacheBusy => "[PC_SYNCHRONIZED]",
            Self::QueueTimeout => "[TIMEOUT_CLEAN_QUEUE]",
            Self::QueueFull => "[OVERLOAD]",
        })
    }
}

/// An error of the store.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {operation} {}: {reason}", path.display())]
    Io {
        /// What was tried, such as "write".
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's kind of error.
        kind: io::ErrorKind,
        /// The system's text.
        reason: String,
    },
    /// The process or the machine lacks descriptors or memory for a file operation: nothing is broken, and it may be
    /// tried again.
    #[error("cannot {operation} {}: {reason}; {fix}; it is tried again by itself", path.display())]
    Exhausted {
        /// What was tried, such as "open".
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's text.
        reason: String,
        /// What can be done about it.
        fix: &'static str,
    },
    /// Consume queues cannot be written for now: nothing is stored until they can, because their entries would fill the
    /// memory.
    #[error(
        "no message is stored for now: {reason}; writing goes on by itself once consume queues can be written"
    )]
    Stalled {
        /// What failed.
        reason: String,
    },
    /// The directory belongs to a running store.
    #[error("the store is in use by another broker: {} is locked; stop that one, or set another storePathRootDir", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory cannot be written to.
    #[error("the store directory cannot be written: {}: {reason}", path.display())]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// The system's text.
        reason: String,
    },
    /// The directory holds data of a kind that this store does not write.
    #[error("{} holds {what}, which this store does not write: nothing was changed", path.display())]
    Foreign {
        /// The file or directory.
        path: PathBuf,
        /// What it is, by name.
        what: &'static str,
    },
    /// Something of a kind that this version does not know, and that a newer one may have written.
    #[error("{} holds {what}: a newer version wrote it, or it is damaged; nothing was changed", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// What and where.
        what: String,
    },
    /// The timer wheel is not one, or was made with other settings.
    #[error("the timer wheel {} cannot be used: {reason}", path.display())]
    TimerWheel {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An option has a value that cannot be.
    #[error("{key}={value} is not valid: {range}")]
    BadOption {
        /// Apache's name of the option.
        key: &'static str,
        /// As given.
        value: String,
        /// What is valid.
        range: String,
    },
    /// A file's length is not the configured one.
    #[error("{} has {length} bytes, but {key} is {expected}: set {key} to the length the store was made with", path.display())]
    FileLength {
        /// The file.
        path: PathBuf,
        /// Its length.
        length: u64,
        /// The configured length.
        expected: u64,
        /// The option that sets it.
        key: &'static str,
    },
    /// A file is missing between two others.
    #[error("the file before {} is missing: expected one that starts at {expected}", path.display())]
    Gap {
        /// The file after the gap.
        path: PathBuf,
        /// The start offset that should follow.
        expected: i64,
    },
    /// The log is damaged before data that was already durable.
    #[error("the commit log is damaged in {} at position {position}: {reason}; a good record follows at {good}, so nothing was cut; `pyrmq log repair` shows what can be done", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Position in the commit log.
        position: i64,
        /// What is wrong there.
        reason: String,
        /// Position of a sound record after it.
        good: i64,
    },
    /// A consume queue points to something that is no record.
    #[error("a consume queue points to position {position} with {size} bytes, where no such record is")]
    QueueMismatch {
        /// Position in the commit log.
        position: i64,
        /// Bytes that the record should have.
        size: i32,
    },
    /// A configuration file and its backup are both unreadable.
    #[error("{} cannot be read and neither can its backup: {reason}", path.display())]
    BadConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The message (or batch) is larger than allowed.
    #[error("the message has {size} bytes, the limit is {limit} (maxMessageSize)")]
    MessageTooLarge {
        /// Bytes of the message body or of the whole batch.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The properties do not fit a record.
    #[error("the properties have {size} bytes, the limit is {limit}")]
    PropertiesTooLarge {
        /// Their bytes.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A topic or queue that cannot be stored.
    #[error("illegal topic or queue: {topic:?} queue {queue_id}: {reason}")]
    IllegalQueue {
        /// The topic, cut to a readable length.
        topic: String,
        /// The queue.
        queue_id: i32,
        /// Why.
        reason: &'static str,
    },
    /// A batch without items.
    #[error("the batch is empty")]
    EmptyBatch,
    /// A message that cannot be laid out as a record, or a record that cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A write or fsync failed earlier; the log takes nothing more.
    #[error("the store is read-only: {reason}")]
    ReadOnly {
        /// What failed.
        reason: String,
    },
    /// The file system is nearly full.
    #[error("no space for messages: {limit}; at the last look {free_bytes} bytes were free on the file system of {} ({used_percent} % used), and writing goes on by itself when a look every second finds space", path.display())]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// How full it is.
        used_percent: u8,
        /// Bytes left.
        free_bytes: u64,
        /// Which option forbids writing, with its value, or that the system itself refused a write.
        limit: String,
    },
    /// Something that the put would wait for has taken too long, or too many wait: nothing was stored.
    #[error(
        "{busy_reason}broker busy, start flow control for a while, period in queue: {waited_ms}ms, size of queue: {waiting} ({limit})"
    )]
    Busy {
        /// Which limit was reached.
        busy_reason: BusyReason,
        /// How long this put, or what it would have waited for, has waited, ms.
        waited_ms: u64,
        /// How many wait.
        waiting: usize,
        /// The option that sets the limit, with its value.
        limit: String,
    },
    /// An fsync did not finish in time; the message is stored all the same.
    #[error("the flush took longer than {waited_ms} ms (syncFlushTimeout)")]
    FlushTimeout {
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Wraps a system error with what was tried on which file.
    pub fn io(operation: &'static str, path: &Path, error: &io::Error) -> Self {
        if let Some(fix) = exhausted(operation, error) {
            return Self::Exhausted {
                operation,
                path: path.to_owned(),
                reason: error.to_string(),
                fix,
            };
        }
        Self::Io {
            operation,
            path: path.to_owned(),
            kind: error.kind(),
            reason: error.to_string(),
        }
    }

    /// True when a file operation failed for want of space.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { kind, .. } if is_full(*kind))
    }

    /// True for what passes by itself: no space, descriptors or memory for now.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_full() || matches!(self, Self::Exhausted { .. })
    }

    /// True for an fsync that failed.
    pub(crate) fn is_flush(&self) -> bool {
        matches!(
            self,
            Self::Io {
                operation: "flush",
                ..
            }
        )
    }

    pub(crate) fn illegal_queue(topic: &str, queue_id: i32, reason: &'static str) -> Self {
        Self::IllegalQueue {
            topic: topic.chars().take(64).collect(),
            queue_id,
            reason,
        }
    }
}

/// What can be done where the process or the machine lacks descriptors or memory. An fsync that reports no memory may
/// have lost what it was for: that is a failure.
fn exhausted(operation: &str, error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            Some("this process has too many files and connections open: raise its limit (`ulimit -n`)")
        }
        Some(libc::ENFILE) => Some("this machine has too many files open: raise `fs.file-max`"),
        Some(libc::ENOMEM) if operation != "flush" => Some("this machine has no memory left"),
        _ => None,
    }
}

/// True where a file operation failed for want of descriptors or memory.
pub(crate) fn is_exhausted(operation: &str, error: &io::Error) -> bool {
    exhausted(operation, error).is_some()
}

/// True for an error that means that no space is left: nothing is broken, and space may come back.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
