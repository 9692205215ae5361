//! The message log on disk in the formats of Apache RocketMQ.
//!
//! No async, no runtime: plain calls and a few threads of its own. `docs/store.md` has the formats and what is promised.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod config_file;
pub mod error;
pub mod fs;
pub mod message;
pub mod options;
pub mod query;
pub mod stats;
pub mod store;

pub use error::StoreError;
pub use fs::{Fs, RealFs};
pub use message::{Arrival, Batch, BatchItem, Message, Stored};
pub use options::{FlushDiskType, Options};
pub use query::{Boundary, Found, Get, GetStatus, Got, KeyKind, KeyQuery, TagFilter};
pub use stats::{Health, Stats};
pub use store::{OnArrival, OnDurable, Store};
