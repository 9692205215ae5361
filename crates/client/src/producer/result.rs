//! The outcome of a send.

use crate::error::{Attempt, ClientError};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::Durability;
use pyrmq_remoting::sync::Completion;
use std::sync::Arc;

/// How a message was stored (Apache `SendStatus`). Each of the four is stored on the broker that answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// To the level that was asked for.
    Ok,
    /// The disk was not flushed in time.
    FlushDiskTimeout,
    /// The replica did not confirm in time.
    FlushSlaveTimeout,
    /// There is no replica to confirm.
    SlaveNotAvailable,
}

impl SendStatus {
    /// From the response code; `None` when the message was refused.
    pub fn from_code(code: i32) -> Option<Self> {
        match code {
            response::SUCCESS => Some(Self::Ok),
            response::FLUSH_DISK_TIMEOUT => Some(Self::FlushDiskTimeout),
            response::FLUSH_SLAVE_TIMEOUT => Some(Self::FlushSlaveTimeout),
            response::SLAVE_NOT_AVAILABLE => Some(Self::SlaveNotAvailable),
            _ => None,
        }
    }

    /// From Apache's name.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Ok,
            Self::FlushDiskTimeout,
            Self::FlushSlaveTimeout,
            Self::SlaveNotAvailable,
        ]
        .into_iter()
        .find(|status| status.name() == name)
    }

    /// Apache's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "SEND_OK",
            Self::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
            Self::FlushSlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
            Self::SlaveNotAvailable => "SLAVE_NOT_AVAILABLE",
        }
    }
}

/// Where a message is stored (Apache `SendResult`). For a batch: the offset of the first item, and the ids of all items
/// with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendResult {
    /// How the message was stored.
    pub status: SendStatus,
    /// Topic of the message.
    pub topic: Arc<str>,
    /// The broker's name.
    pub broker: Arc<str>,
    /// The queue.
    pub queue_id: i32,
    /// The offset in the queue.
    pub queue_offset: i64,
    /// Unique id, made by the producer.
    pub message_id: String,
    /// Offset id, made by the broker.
    pub offset_message_id: String,
    /// Transaction id, of half messages.
    pub transaction_id: Option<String>,
    /// Handle for taking a timer message back.
    pub recall_handle: Option<String>,
    /// Attempts that were made.
    pub attempts: u32,
    /// The durability that was reached, if the sender requested one and the broker reports it.
    pub durability: Option<Durability>,
    /// True when an earlier attempt went unanswered: the message may be stored twice, with the same unique id.
    pub may_be_duplicate: bool,
    /// The attempts that failed before.
    pub failed_attempts: Vec<Attempt>,
}

/// The outcome of a send.
pub type SendOutcome = Result<SendResult, ClientError>;

/// Gets the outcome of a send, exactly once; it must not block.
pub type SendCallback = Box<dyn Completion<SendOutcome>>;
