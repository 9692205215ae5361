//! The transport: a tokio server and client over [`frame`](crate::frame), with one table of processors.
//!
//! ```text
//! socket -> connection task: read, decode every whole frame in the buffer
//!             response -> the waiting request by opaque
//!             request  -> table row: native   -> Processor::process on this task
//!                                    batched  -> the connection's RequestBatch, which ends after the last request
//!                                    python   -> Requests queue (full: SYSTEM_BUSY), answered from a Python thread
//!                                    refused  -> REQUEST_CODE_NOT_SUPPORTED with the row's remark
//!           then write all ready frames in one vectored write
//! ```
//!
//! The folders, lowest first; each imports only from those above it in this list:
//!
//! - `limits/`: how much one client, and all of them together, may use: connections, rates, failed logins, memory,
//!   large and partial frames, descriptors
//! - `socket/`: a connection before its first frame: networks, host names, PROXY header, TLS, the stream of bytes
//! - `link/`: what a connection's task shares with other threads: the peer, the reply, queued frames, requests that
//!   wait for an answer
//! - `hooks.rs`: what happens around each request: a client's hook and signature, a server's check
//! - `table/`: what answers each request code, the queue for Python
//! - `connection/`: the task of one connection
//! - `server/`, `client/`: accepting connections; opening them and sending requests
//! - `faulty_link/`: a relay that fails on command, for tests

mod audit;
mod client;
mod code_set;
mod connection;
mod error;
mod faulty_link;
mod hooks;
mod limits;
mod link;
mod options;
mod request_log;
mod server;
pub mod shutdown;
mod socket;
mod stats;
pub mod table;

pub use audit::{AuditLog, RequestAudit};
pub use client::call::Call;
pub use client::{Client, WeakClient};
pub use code_set::CodeSet;
pub use error::{CloseReason, NetError, Retry};
pub use faulty_link::{Direction, DirectionFaults, FaultyLink, Passage};
pub use hooks::{
    AdminPort, Refused, RequestCheck, RequestFields, RequestHook, RequestSigner, Security, call_after,
};
pub use limits::descriptors::{descriptor_limit, raise_descriptor_limit};
pub use limits::partial_frames::UnfinishedFrames;
pub use limits::{ClientLimits, Limits, RateLimits};
pub use link::peer::{Events, Outbox, Pause, Peer, Reply};
pub use link::pending::{Callback, OutboundRequest};
pub use options::{ClientOptions, ConnectionOptions, LargeFrames, ServerOptions};
pub use request_log::{RequestLog, RequestNames};
pub use server::{Drained, Server};
pub use shutdown::{Shutdown, Tracker};
pub use socket::network::Network;
pub use socket::proxy_protocol::ProxySources;
pub use socket::resolve::{Resolve, ResolveFuture, SystemResolver};
#[cfg(feature = "tls")]
pub use socket::tls::{
    ClientAuth, ClientCheck, ClientTls, ClientTlsSettings, Identity, Pem, ServerTls, ServerTlsSettings,
    TlsError,
};
pub use stats::{Snapshot, Stats};
pub use table::requests::{PythonRequest, Requests};
pub use table::{BatchProcessor, Processor, ProcessorTable, RequestBatch, Row};
