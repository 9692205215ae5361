//! Requests to the store, and its answers.

use bytes::Bytes;
use std::fmt::Debug;

/// Decides from its record whether a reader wants a message.
pub trait RecordFilter: Debug {
    /// Whether the message of this record is wanted.
    fn matches(&self, record: &[u8]) -> bool;
}

/// Which messages of a queue a reader wants.
#[derive(Debug, Clone, Copy, Default)]
pub enum TagFilter<'a> {
    /// All messages.
    #[default]
    All,
    /// Messages whose tag has one of these Java hashes. Hashes collide: the reader compares the tag itself.
    Codes(&'a [i32]),
    /// Messages whose record this filter accepts. The records of the others are read too, but not returned.
    Records(&'a dyn RecordFilter),
}

impl TagFilter<'_> {
    /// Whether a message with this code in its consume queue entry may be wanted.
    pub fn matches(&self, tags_code: i64) -> bool {
        match self {
            Self::All | Self::Records(_) => true,
            Self::Codes(codes) => codes.iter().any(|code| i64::from(*code) == tags_code),
        }
    }
}

/// A pull.
#[derive(Debug, Clone, Copy)]
pub struct GetMessage<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue inside the topic.
    pub queue_id: i32,
    /// Index of the first message wanted.
    pub offset: i64,
    /// Maximum number of messages in the answer.
    pub max_count: usize,
    /// Maximum bytes of the answer; the first message is included whatever its size.
    pub max_bytes: usize,
    /// Which messages are wanted.
    pub tags: TagFilter<'a>,
}

/// The result of a pull (Apache `GetMessageStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetStatus {
    /// There are messages.
    Found,
    /// There are messages, but none matches the filter; `next_offset` is the one after them.
    NoMatchedMessage,
    /// The messages at this offset were deleted from the log a moment ago.
    MessageWasRemoving,
    /// The consume queue has no entry there although it should.
    OffsetFoundNull,
    /// The offset is the one after the newest message.
    OffsetOverflowOne,
    /// The offset is further past it.
    OffsetOverflowBadly,
    /// The offset is before the oldest message.
    OffsetTooSmall,
    /// There is no such queue.
    NoMatchedLogicQueue,
    /// The queue never had a message.
    NoMessageInQueue,
}

/// The answer to a pull.
#[derive(Debug, Clone)]
pub struct GetMessageResult {
    /// Outcome of the pull.
    pub status: GetStatus,
    /// Offset at which to continue.
    pub next_offset: i64,
    /// Index of the oldest message.
    pub min_offset: i64,
    /// Index after the newest readable message.
    pub max_offset: i64,
    /// Records without gaps, as stored: the body of the answer.
    pub body: Bytes,
    /// Number of records in `body`.
    pub count: usize,
    /// Distance of the last record read from the end of the log, in bytes.
    pub behind_bytes: i64,
}

impl GetMessageResult {
    pub(crate) fn without_body(
        status: GetStatus,
        next_offset: i64,
        (min_offset, max_offset): (i64, i64),
    ) -> Self {
        Self {
            status,
            next_offset,
            min_offset,
            max_offset,
            body: Bytes::new(),
            count: 0,
            behind_bytes: 0,
        }
    }
}

/// One entry of a consume queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueEntry {
    /// Position of the record in the commit log.
    pub position: i64,
    /// Bytes of the record.
    pub size: i32,
    /// Java hash of the tag, or the delivery time in a queue of delayed messages.
    pub tags_code: i64,
}

/// The meaning of a time between two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The first message at or after the time.
    #[default]
    Lower,
    /// The last message at or before the time.
    Upper,
}

/// The answer to a search by key, newest message first.
#[derive(Debug, Clone, Default)]
pub struct KeyMatches {
    /// Records without gaps.
    pub body: Bytes,
    /// Number of records in `body`.
    pub count: usize,
    /// Store time of the newest message in the index, ms.
    pub index_last_update_ms: i64,
    /// Position of the newest message in the index.
    pub index_last_update_offset: i64,
    /// False if messages may be missing: the index is off or still being built, or the key has more entries than were
    /// requested or are read.
    pub is_complete: bool,
}
