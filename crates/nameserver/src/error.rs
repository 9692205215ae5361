//! Errors of the name server itself, and of one request.

use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::NetError;
use pyrmq_remoting::{Command, WireError};
use std::sync::Arc;
use thiserror::Error;

/// Why a name server does not start, or refuses a change.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum NameServerError {
    /// An invalid value: the caller's error.
    #[error("wrong value of {key}: `{value}`, allowed is {range}")]
    Option {
        /// Apache's key.
        key: &'static str,
        /// The given value.
        value: String,
        /// The allowed values.
        range: String,
    },
    /// A key that takes effect only at start and cannot be changed while the server runs.
    #[error("{key} cannot be changed while the name server runs: set it and start again")]
    NotLive {
        /// Apache's key.
        key: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread that changes the tables: {cause}")]
    Thread {
        /// The system's error.
        cause: Arc<std::io::Error>,
    },
    /// The port could not be opened.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// A refused request, with the code and the remark of the answer.
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

/// An unreadable header or body is the peer's error; Apache answers SYSTEM_ERROR with an exception's text.
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
