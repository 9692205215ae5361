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

pub mod table;

pub use table::{Processor, Row, Table};

mod peer;
mod requests;

pub use peer::{Peer, Reply};
pub use requests::{PythonRequest, Requests};
