//! The transport: a tokio server and client over [`frame`](crate::frame), with one table of processors.
//!
//! ```text
//! socket -> connection task: read, decode every whole frame in the buffer
//!             response -> the waiting request by opaque
//!             request  -> Table row: native   -> Processor::process on this task
//!                                    batched  -> the connection's RequestBatch, which ends behind the last request
//!                                    python   -> Requests queue (full: SYSTEM_BUSY), answered from a Python thread
//!                                    refused  -> REQUEST_CODE_NOT_SUPPORTED with the row's remark
//!           then write all ready frames in one vectored write
//! ```

mod address_map;
mod audit;
mod call;
mod client;
mod code_set;
mod connection;
mod descriptors;
mod dispatch;
mod error;
mod failed_logins;
mod faulty_link;
mod hooks;
mod large_frames;
mod limits;
mod link;
mod links;
mod members;
mod memory_budget;
mod network;
mod opening;
mod options;
mod outbound_request;
mod outgoing;
mod partial_frames;
mod peer;
mod pending;
mod proxy_protocol;
mod refusal_log;
mod relay;
mod requests;
mod resolve;
mod send_queue;
mod server;
pub mod shutdown;
mod stats;
mod stream;
pub mod table;
#[cfg(feature = "tls")]
mod tls;

pub use audit::{AuditLog, RequestAudit};
pub use call::Call;
pub use client::{Client, WeakClient};
pub use code_set::CodeSet;
pub use descriptors::{descriptor_limit, raise_descriptor_limit};
pub use error::{CloseReason, NetError, Retry};
pub use faulty_link::{Direction, FaultyLink, Passage, Way};
pub use hooks::{AdminPort, Refused, RequestCheck, RequestSigner, Security};
pub use limits::{ClientLimits, Limits, RateLimits};
pub use network::Network;
pub use options::{ClientOptions, ConnectionOptions, LargeFrames, ServerOptions};
pub use partial_frames::UnfinishedFrames;
pub use peer::{Events, Outbox, Peer, Reply};
pub use pending::{Callback, OutboundRequest};
pub use proxy_protocol::ProxySources;
pub use requests::{PythonRequest, Requests};
pub use resolve::{Found, Resolve, SystemResolver};
pub use server::{Drained, Server};
pub use shutdown::{Shutdown, Tracker};
pub use stats::{Snapshot, Stats};
pub use table::{BatchProcessor, Processor, RequestBatch, Row, Table};
#[cfg(feature = "tls")]
pub use tls::{
    ClientAuth, ClientTls, ClientTlsSettings, Identity, Pem, ServerTls, ServerTlsSettings, TlsError,
};
