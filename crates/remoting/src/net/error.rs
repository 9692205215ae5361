//! What can go wrong between two peers, and whether asking again is safe.

use crate::error::WireError;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why a connection ended.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The other side closed it.
    #[error("the peer closed it")]
    ByPeer,
    /// This side closed it on purpose.
    #[error("it was closed here")]
    Here,
    /// Nothing came or went for the idle time.
    #[error("it was idle")]
    Idle,
    /// The peer did not take what was written to it.
    #[error("the peer does not read")]
    Stalled,
    /// More waited for the peer than may wait for one connection.
    #[error("too much waits for the peer to read: {queued} bytes, limit {limit}")]
    Overflow {
        /// Bytes that waited.
        queued: usize,
        /// The cap.
        limit: usize,
    },
    /// The peer began a frame and did not go on.
    #[error("the peer sent a part of a frame and no more")]
    HalfFrame,
    /// The peer's bytes are not the protocol's.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer speaks TLS, which this port does not.
    #[error("the peer began a TLS handshake; this port speaks plain TCP")]
    Tls,
    /// The peer sent a PROXY protocol header, which this port does not read.
    #[error("the peer sent a PROXY protocol header; this port does not read it")]
    ProxyProtocol,
    /// The server stops, and the peer had nothing under way.
    #[error("the server stops")]
    Drained,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(Arc<io::Error>),
}

impl From<io::Error> for CloseReason {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
                Self::ByPeer
            }
            _ => Self::Io(Arc::new(error)),
        }
    }
}

/// What asking again means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The request was not served: it may be sent again, here or elsewhere.
    Temporary,
    /// It would fail again.
    Permanent,
    /// The request may have been served: repeating it may do it twice.
    UnknownOutcome,
}

/// A request that got no answer, or a server that could not start.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum NetError {
    /// The port could not be opened.
    #[error("cannot listen on {address}: {source}; {fix}")]
    Bind {
        /// Where.
        address: String,
        /// What the system said.
        source: Arc<io::Error>,
        /// What to do.
        fix: &'static str,
    },
    /// No connection came about.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where.
        address: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The connection ended before the request left.
    #[error("request to {address} was not sent: {reason}")]
    NotSent {
        /// Where.
        address: String,
        /// Why the connection ended.
        reason: CloseReason,
    },
    /// The connection ended after the request left (or may have left).
    #[error("connection to {address} was lost before the answer came: {reason}")]
    ConnectionLost {
        /// Where.
        address: String,
        /// Why the connection ended.
        reason: CloseReason,
    },
    /// No answer in time.
    #[error("no answer from {address} within {} ms{}", .timeout.as_millis(),
            if *.sent { "" } else { " (the request had not left)" })]
    Timeout {
        /// Where.
        address: String,
        /// How long was waited.
        timeout: Duration,
        /// Whether the request may have reached the peer.
        sent: bool,
    },
    /// Too much waits for this connection already.
    #[error("too much waits for {address}: {waiting} {unit}, limit {limit}")]
    Busy {
        /// Where.
        address: String,
        /// How much.
        waiting: usize,
        /// Of what: bytes or requests.
        unit: &'static str,
        /// The cap.
        limit: usize,
    },
    /// The server is shutting down and asks to go elsewhere.
    #[error("{address} is shutting down")]
    GoAway {
        /// Who said so.
        address: String,
    },
    /// The client or the connection was closed here.
    #[error("the client is closed")]
    Closed,
    /// An option out of its range.
    #[error("option `{option}` is {value}, it must be {range}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// As given.
        value: String,
        /// What it may be.
        range: &'static str,
    },
    /// The command cannot be written as a frame.
    #[error("cannot write the command as a frame: {0}")]
    Frame(#[from] WireError),
}

impl NetError {
    /// Whether asking again is safe, useless, or may do the thing twice.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Connect { .. } | Self::NotSent { .. } | Self::Busy { .. } | Self::GoAway { .. } => {
                Retry::Temporary
            }
            Self::Timeout { sent: false, .. } => Retry::Temporary,
            Self::Timeout { .. } | Self::ConnectionLost { .. } => Retry::UnknownOutcome,
            Self::Bind { .. } | Self::Closed | Self::Option { .. } | Self::Frame(_) => Retry::Permanent,
        }
    }
}
