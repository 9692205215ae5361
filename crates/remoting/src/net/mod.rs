//! The transport: a tokio server and client over [`frame`](crate::frame), with one table of processors.
//!
//! ```text
//! socket -> connection task: read, decode every whole frame in the buffer
//!             response -> the waiting request by opaque
//!             request  -> Table row: native   -> Processor::process on this task
//!                                    python   -> Requests queue (full: SYSTEM_BUSY), answered from a Python thread
//!                                    refused  -> REQUEST_CODE_NOT_SUPPORTED with the row's remark
//!           then write everything that is ready in one vectored write
//! ```

mod asking;
mod call;
mod client;
mod connection;
mod descriptors;
mod dispatch;
mod error;
mod faulty_link;
mod halves;
mod large;
mod link;
mod meter;
mod options;
mod outgoing;
mod peer;
mod pending;
mod queue;
mod relay;
mod requests;
mod resolve;
mod server;
mod share;
pub mod shutdown;
mod stats;
pub mod table;

pub use call::Call;
pub use client::Client;
pub use descriptors::{descriptor_limit, raise_descriptor_limit};
pub use error::{CloseReason, NetError, Retry};
pub use faulty_link::{Direction, FaultyLink, Passage, Way};
pub use halves::UnfinishedFrames;
pub use meter::{Latency, Meter};
pub use options::{ClientOptions, ConnectionOptions, LargeFrames, ServerOptions};
pub use peer::{Outbox, Peer, Reply};
pub use pending::{Ask, Asker, Callback};
pub use requests::{PythonRequest, Requests};
pub use resolve::{Found, Resolve, SystemResolver};
pub use server::{Drained, Events, Server};
pub use shutdown::{Shutdown, Tracker};
pub use stats::{Snapshot, Stats};
pub use table::{Processor, Row, Table};
