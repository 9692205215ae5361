//! The broker: send, pull, offsets, clients, topics, over the store.

pub mod admission;
pub mod announcements;
mod block_in_place;
pub mod broker;
pub mod context;
pub mod delivery;
pub mod error;
pub mod long_polling;
mod message;
pub mod metrics;
pub mod options;
pub mod pop;
mod ports;
mod processor;
pub mod registration;
mod retention;
pub mod stats;
pub mod tables;

pub use broker::{Broker, Descriptors, Health};
pub use error::BrokerError;
pub use options::{Options, Setting};
pub use processor::{Kind, RowInfo, rows};
