//! Producer and puller over the wire.
//!
//! Nothing here knows Python. Calls return at once and report through a callback or a slot that a thread waits on;
//! periodic work (routes, heartbeats, offsets) runs as tracked tasks of the runtime that the caller gives.

pub mod error;
pub mod producer;

pub mod consumer;
pub mod reader;
pub mod session;

pub use consumer::options::PullerOptions;
pub use error::ClientError;
pub use producer::options::{Compression, ProducerOptions};
pub use session::identity::{random, unique_ids};
pub use session::membership::Subscription;
pub use session::options::ClientOptions;
