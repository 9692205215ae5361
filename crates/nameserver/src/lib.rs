//! The name server: registration, routes, liveness.

pub mod error;
pub mod options;
pub mod rows;
pub mod server;

mod processor;
mod state;

pub use error::NameServerError;
pub use options::{Options, Setting};
pub use rows::{Kind, RowInfo, rows};
pub use server::{Health, NameServer};
