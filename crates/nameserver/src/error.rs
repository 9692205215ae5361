//! What can go wrong with the name server itself, and with one request.

use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::NetError;
use pyrmq_remoting::{Command, WireError};
use std::sync::Arc;
use thiserror::Error;

/// A reason why a name server does not start or change as asked.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum NameServerError {
    /// A value that cannot be: the caller's fault.
    #[error("wrong value of {key}: `{value}`, allowed is {range}")]
    Option {
        /// Apache's key.
        key: &'static str,
        /// The value as given.
        value: String,
        /// What is allowed.
        range: String,
    },
    /// A key that holds from the start on and cannot be changed while the server runs.
    #[error("{key} cannot be changed while the name server runs: set it and start again")]
    NotLive {
        /// Apache's key.
        key: String,
    },
    /// The machine gives no thread.
    #[error("cannot start the thread that changes the tables: {cause}")]
    Thread {
        /// What the system says.
        cause: Arc<std::io::Error>,
    },
    /// The port cannot be listened on.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// A request that is refused, with the code and the remark of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) remark: String,
}

impl Refusal {
    pub(crate) fn new(code: i32, remark: impl Into<String>) -> Self {
        Self {
            code,
            remark: remark.into(),
        }
    }
}

/// A header or body that cannot be read is the peer's fault; Apache answers SYSTEM_ERROR with an exception's text.
impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Self::new(response::SYSTEM_ERROR, error.to_string())
    }
}

impl From<Refusal> for Command {
    fn from(refusal: Refusal) -> Self {
        Self::error(refusal.code, refusal.remark)
    }
}
