//! The broker: send, pull, offsets, clients, topics, over the store.

pub mod admission;
pub mod broker;
mod delay;
mod delivered;
pub mod error;
mod json;
pub mod live_options;
pub mod long_polling;
pub mod options;
mod pending_message;
mod ports;
mod processor;
pub mod registration;
mod scan;
pub mod state;
pub mod stats;
pub mod timer;

pub use broker::{Broker, Descriptors, Health};
pub use error::BrokerError;
pub use options::{Options, Setting};
pub use processor::{Kind, RowInfo, rows};
