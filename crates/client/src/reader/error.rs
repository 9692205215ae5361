//! What is read, and why it could not be.

use pyrmq_columns::ColumnError;
use pyrmq_remoting::WireError;
use pyrmq_remoting::net::NetError;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Offsets of one queue, from `start` up to, not including, `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The broker's `host:port`.
    pub address: String,
    /// The broker's name.
    pub broker: String,
    /// Topic.
    pub topic: String,
    /// Queue number.
    pub queue_id: i32,
    /// First offset.
    pub start: i64,
    /// Offset after the last.
    pub end: i64,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "topic {}, broker {} ({}), queue {}",
            self.topic, self.broker, self.address, self.queue_id
        )
    }
}

/// Why a range could not be read.
#[derive(Debug, Clone, Error)]
pub enum RangeError {
    /// The broker did not answer.
    #[error("{range}: no answer for {waited_ms} ms: {cause}")]
    Unreachable {
        /// What was read.
        range: Arc<Range>,
        /// How long it was tried.
        waited_ms: u128,
        /// The last failure.
        cause: NetError,
    },
    /// The broker answered with an error.
    #[error("{range}: the broker refused to give offset {offset}, code {code}: {remark}")]
    Refused {
        /// What was read.
        range: Arc<Range>,
        /// What was requested.
        offset: i64,
        /// Response code.
        code: i32,
        /// The broker's words.
        remark: String,
    },
    /// Messages have expired before they were read.
    #[error(
        "{range}: offsets {from} to {} were wanted, it holds {lowest} to {highest}", .range.end
    )]
    Expired {
        /// What was read.
        range: Arc<Range>,
        /// First offset that is missing.
        from: i64,
        /// The queue's first offset now.
        lowest: i64,
        /// The queue's end now.
        highest: i64,
    },
    /// A message cannot be read.
    #[error("{range}: the message at offset {offset} or a later one cannot be read: {cause}")]
    Message {
        /// What was read.
        range: Arc<Range>,
        /// First offset not read.
        offset: i64,
        /// Why.
        cause: ColumnError,
    },
    /// The answer lacks what a pull's answer has.
    #[error("{range}: the broker's answer cannot be read: {cause}")]
    Answer {
        /// What was read.
        range: Arc<Range>,
        /// Why.
        cause: WireError,
    },
}

/// Messages that were left out because they are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Where.
    pub range: Arc<Range>,
    /// First offset.
    pub from: i64,
    /// Offset after the last.
    pub to: i64,
}

/// A message that could not be read and was left out, or whose body was made null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The range that the message is in.
    pub range: Arc<Range>,
    /// Offset of the message.
    pub offset: i64,
    /// Why the message could not be read.
    pub cause: ColumnError,
}
