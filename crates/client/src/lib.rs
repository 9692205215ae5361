//! Producer and puller over the wire; pulled records as column buffers.
//!
//! Nothing here knows Python. Calls return at once and report through a callback or a slot that a thread waits on;
//! periodic work (routes, heartbeats, offsets) runs as tracked tasks of the runtime that the caller gives.

pub mod accumulate;
pub mod address_server;
pub mod batch;
pub mod columns;
pub mod control;
pub mod draft;
pub mod error;
pub mod gate;
pub mod inner;
pub mod names;
pub mod offsets;
pub mod options;
pub mod producer;
pub mod puller;
pub mod queue;
pub mod range;
pub mod routes;
pub mod signal;
pub mod trace;
pub mod turn;

mod assign;
mod detect;
mod flight;
mod heartbeat;
mod identity;
mod window;

pub use error::ClientError;
pub use heartbeat::Subscription;
pub use identity::{random, unique_ids};
pub use options::{ClientOptions, Compression, ProducerOptions, PullerOptions};
