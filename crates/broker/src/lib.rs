//! The broker: send, pull, offsets, clients, topics, over the store.

pub mod admission;
pub mod broker;
mod delay;
mod delivered;
mod draft;
pub mod error;
pub mod hold;
mod json;
pub mod live;
pub mod options;
mod ports;
mod processor;
pub mod register;
mod scan;
pub mod state;
pub mod stats;
pub mod timer;

pub use broker::{Broker, Descriptors, Health};
pub use error::BrokerError;
pub use options::{Options, Setting};
pub use processor::{Kind, RowInfo, rows};
