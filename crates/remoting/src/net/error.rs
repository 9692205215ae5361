//! Errors between two peers, and whether a retry is safe.

use crate::error::WireError;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why a connection ended.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The other side closed the connection.
    #[error("the peer closed it")]
    ByPeer,
    /// This side closed the connection on purpose.
    #[error("it was closed here")]
    Here,
    /// No byte moved in either direction for the idle time.
    #[error("it was idle")]
    Idle,
    /// The peer did not read the bytes written to it.
    #[error("the peer does not read")]
    Stalled,
    /// More bytes waited for the peer than one connection may hold.
    #[error("too much waits for the peer to read: {queued} bytes, limit {limit}")]
    Overflow {
        /// Bytes that waited.
        queued: usize,
        /// The limit.
        limit: usize,
    },
    /// The peer began a frame and did not continue.
    #[error("the peer sent part of a frame and stopped")]
    PartialFrame,
    /// The peer sent invalid bytes.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer speaks TLS, which this port does not.
    #[error("the peer began a TLS handshake; this port speaks plain TCP")]
    Tls,
    /// The peer speaks plain TCP, and this port takes only TLS.
    #[error("the peer speaks plain TCP; this port takes only TLS")]
    PlainRefused,
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Handshake(Arc<str>),
    /// The peer sent a PROXY protocol header, which nobody at its address may send.
    #[error(
        "the peer sent a PROXY protocol header, and its address is not in `proxyProtocolSources`: add it there if it is \
         your load balancer, or turn the header off in the balancer"
    )]
    ProxyProtocol,
    /// The peer may send a PROXY protocol header, and sent one that is wrong or not whole.
    #[error("the PROXY protocol header is wrong: {0}")]
    ProxyHeader(&'static str),
    /// The client's address has as many connections as it may.
    #[error("its address has as many connections as `maxConnectionsPerAddress` allows")]
    TooManyConnections,
    /// The server is stopping, and the connection was idle.
    #[error("the server is stopping")]
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

/// What a retry means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The request was not served: it may be retried, here or elsewhere.
    Temporary,
    /// A retry would fail again.
    Permanent,
    /// The request may have been served: a retry may repeat its effect.
    UnknownOutcome,
}

/// A request that got no answer, or a server that could not start.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum NetError {
    /// The port could not be opened.
    #[error("cannot listen on {address}: {source}; {fix}")]
    Bind {
        /// The address.
        address: String,
        /// The error of the system.
        source: Arc<io::Error>,
        /// How to fix it.
        fix: &'static str,
    },
    /// The connection could not be opened.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: String,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// The connection ended before the request was sent.
    #[error("request to {address} was not sent: {reason}")]
    NotSent {
        /// The address.
        address: String,
        /// Why the connection ended.
        reason: CloseReason,
    },
    /// The connection ended after the request was, or may have been, sent.
    #[error("connection to {address} was lost before the answer came: {reason}")]
    ConnectionLost {
        /// The address.
        address: String,
        /// Why the connection ended.
        reason: CloseReason,
    },
    /// No answer in time.
    #[error("no answer from {address} within {} ms{}", .timeout.as_millis(),
            if *.sent { "" } else { " (the request was not sent)" })]
    Timeout {
        /// The address.
        address: String,
        /// The time waited.
        timeout: Duration,
        /// Whether the request may have reached the peer.
        sent: bool,
    },
    /// Too much already waits for this connection.
    #[error("too much waits for {address}: {waiting} {unit}, limit {limit}")]
    Busy {
        /// The address.
        address: String,
        /// How much.
        waiting: usize,
        /// The unit: bytes or requests.
        unit: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The server is shutting down and asks clients to go elsewhere.
    #[error("{address} is shutting down")]
    GoAway {
        /// The server's address.
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
        /// The given value.
        value: String,
        /// The allowed values.
        range: &'static str,
    },
    /// The command cannot be written as a frame.
    #[error("cannot write the command as a frame: {0}")]
    Frame(#[from] WireError),
}

impl NetError {
    /// Returns whether a retry is safe, useless, or may repeat the effect.
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
