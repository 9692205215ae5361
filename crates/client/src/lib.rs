//! Producer and puller over the wire; pulled records as column buffers.
//!
//! Nothing here knows Python. Calls return at once and report through a callback or a slot that a thread waits on;
//! periodic work (routes, heartbeats, offsets) runs as tracked tasks of the runtime that the caller gives.

pub mod accumulator;
pub mod address_server;
pub mod back_pressure;
pub mod batch;
pub mod columns;
pub mod error;
pub mod inner_batch;
pub mod name_servers;
pub mod offsets;
pub mod options;
pub mod outgoing;
pub mod process_queue;
pub mod producer;
pub mod puller;
pub mod range;
pub mod routes;
pub mod signal;
pub mod trace;
pub mod transaction;
pub mod waiter;

mod heartbeat;
mod identity;
mod pending_send;
mod prober;
mod rebalance;
mod window;

pub use error::ClientError;
pub use heartbeat::Subscription;
pub use identity::{random, unique_ids};
pub use options::{ClientOptions, Compression, ProducerOptions, PullerOptions};
