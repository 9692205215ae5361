//! The name server: registration, routes, liveness.

pub mod error;
pub mod options;
pub mod rows;
pub mod server;

mod context;
mod notify;
mod processor;
mod registration_queue;
mod registration_thread;

pub use context::LostBroker;
pub use error::NameServerError;
pub use options::{Options, Setting};
pub use pyrmq_remoting::meter::Latency;
pub use pyrmq_remoting::net::table::{Kind, RowInfo};
pub use rows::rows;
pub use server::{Health, NameServer};
