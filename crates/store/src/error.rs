//! The errors of the store. The caller's fault, the directory's state and the machine's fault are different variants.
//!
//! Errors are `Clone`, because one failed fsync answers all waiters.

use pyrmq_remoting::WireError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a put was answered "busy". The text begins with Apache's mark for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BusyReason {
    /// A write or an fsync has taken longer than `osPageCacheBusyTimeOutMills`; puts do not wait for it.
    PageCacheBusy,
    /// This put itself has waited longer than `waitTimeMillsInSendQueue`.
    QueueTimeout,
    /// `sendThreadPoolQueueCapacity` senders are waiting for the disk, or more threads than may for a write that is
    /// stuck, or too much of the consume queues.
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
        /// The operation, such as "write".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's kind of error.
        kind: io::ErrorKind,
        /// The system's text.
        reason: String,
    },
    /// The process or the machine lacks descriptors or memory for a file operation. Nothing is broken, and the
    /// operation may be retried.
    #[error("cannot {operation} {}: {reason}; {fix}; it is tried again by itself", path.display())]
    Exhausted {
        /// The operation, such as "open".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's text.
        reason: String,
        /// What fixes the lack.
        fix: &'static str,
    },
    /// Consume queues cannot be written for now. Nothing is stored until they can be, because their entries would fill
    /// the memory.
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
        /// The name of that kind.
        what: &'static str,
    },
    /// The broker's table has topics of batches, whose queues this store does not write.
    #[error("{} has topics of batches (queue.type=BatchCQ), which this store does not write: {topics}; nothing was changed. Have the broker that made the store delete them (mqadmin deleteTopic), or, where the directory batchconsumequeue has none of that name, remove this attribute from the file", path.display())]
    TopicsOfBatches {
        /// The file of the table.
        path: PathBuf,
        /// Their names.
        topics: String,
    },
    /// Something of an unknown kind, which a newer version may have written.
    #[error("{} holds {what}: a newer version wrote it, or it is damaged; nothing was changed", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The unknown thing, and its position.
        what: String,
    },
    /// The timer wheel is invalid, or was created with other settings.
    #[error("the timer wheel {} cannot be used: {reason}", path.display())]
    TimerWheel {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An option has an invalid value.
    #[error("{key}={value} is not valid: {range}")]
    BadOption {
        /// Apache's name of the option.
        key: &'static str,
        /// The given value.
        value: String,
        /// What is valid.
        range: String,
    },
    /// A file's length is not the configured one.
    #[error("{} has {length} bytes, but {key} is {expected}: set {key} to the length the store was made with", path.display())]
    FileLength {
        /// The file.
        path: PathBuf,
        /// The file's length, bytes.
        length: u64,
        /// The configured length.
        expected: u64,
        /// The option that sets it.
        key: &'static str,
    },
    /// Something else has the name of a file of the log. Were it skipped, its messages would seem deleted.
    #[error("{} is {what}, where a file of the log should be: move it away; if the file is elsewhere, put it back", path.display())]
    NotAFile {
        /// Path of the thing.
        path: PathBuf,
        /// Kind of the thing.
        what: &'static str,
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
        /// What is wrong at the position.
        reason: String,
        /// Position of a valid record after it.
        good: i64,
    },
    /// A consume queue points to something that is not a record.
    #[error("a consume queue points to position {position} with {size} bytes, where no such record is")]
    QueueMismatch {
        /// Position in the commit log.
        position: i64,
        /// Number of bytes that the record should have.
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
        /// Bytes of the properties.
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
        /// Why the topic or queue cannot be stored.
        reason: &'static str,
    },
    /// A batch without items.
    #[error("the batch is empty")]
    EmptyBatch,
    /// A message that cannot be encoded as a record, or a record that cannot be decoded.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A write or fsync failed earlier; the log accepts nothing more.
    #[error("the store is read-only: {reason}")]
    ReadOnly {
        /// What failed.
        reason: String,
    },
    /// The file system is nearly full.
    #[error("no space for messages: {limit}; at the last check {free_bytes} bytes were free on the file system of {} ({used_percent} % used), and writing goes on by itself when the check of every second finds space", path.display())]
    DiskFull {
        /// A path on the file system.
        path: PathBuf,
        /// Used part of the file system, percent.
        used_percent: u8,
        /// Bytes left.
        free_bytes: u64,
        /// The option that forbids writing, with its value, or that the system itself refused a write.
        limit: String,
    },
    /// The put would wait for a slow write or fsync, or for too many other waiters. Nothing was stored.
    #[error(
        "{busy_reason}broker busy, start flow control for a while, period in queue: {waited_ms}ms, size of queue: {waiting} ({limit})"
    )]
    Busy {
        /// Which limit was reached.
        busy_reason: BusyReason,
        /// Time that this put has waited, or that the write or fsync before it has taken, ms.
        waited_ms: u64,
        /// Number of waiters.
        waiting: usize,
        /// The option that sets the limit, with its value, or a limit that none sets.
        limit: String,
    },
    /// An fsync did not finish in time. The message is stored nevertheless.
    #[error("the flush took longer than {waited_ms} ms (syncFlushTimeout)")]
    FlushTimeout {
        /// Time that the sender waited, ms.
        waited_ms: u64,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Wraps a system error with the operation and the file.
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

    /// Whether a file operation failed for lack of space.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { kind, .. } if is_full(*kind))
    }

    /// Whether the error is temporary: no space, descriptors or memory for now.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_full() || matches!(self, Self::Exhausted { .. })
    }

    /// Whether an fsync failed.
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

/// How to fix a lack of descriptors or memory. An fsync that reports no memory may have lost its data, so it counts as
/// a failure.
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

/// Whether a file operation failed for lack of descriptors or memory.
pub(crate) fn is_exhausted(operation: &str, error: &io::Error) -> bool {
    exhausted(operation, error).is_some()
}

/// Whether an error means that no space is left: nothing is broken, and space may be freed.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
