//! The message log on disk in the formats of Apache RocketMQ.
//!
//! No async, no runtime: plain calls and a few threads of its own. `docs/store.md` has the formats and what is
//! promised.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod append;
mod checkpoint;
pub mod config_file;
mod delay;
mod descriptors;
mod engine;
pub mod error;
mod failure;
mod flush;
mod format;
pub mod fs;
mod index;
pub mod live;
mod log;
mod maintenance;
pub mod message;
pub mod options;
pub mod query;
mod queue;
mod read;
mod read_buffers;
mod recovery;
mod retention;
pub mod stats;
pub mod store;
mod sync;
pub mod timer;

pub use append::flow_control::BusyReason;
pub use delay::{DEFAULT_LEVELS, parse_levels};
pub use error::StoreError;
pub use flush::waiters::DurableCallback;
pub use fs::{Fs, RealFs};
pub use live::Live;
pub use maintenance::MaintenanceTask;
pub use message::{Arrival, Batch, BatchItem, Message, Stored};
pub use options::{FlushDiskType, Options};
pub use pyrmq_remoting::message::Durability;
pub use query::{Boundary, Found, Get, GetStatus, Got, KeyKind, KeyQuery, TagFilter};
pub use recovery::pop::POPPED;
pub use stats::{Busy, Health, Stats};
pub use store::{OnArrival, OnDurable, OnSlowFlush, OnStored, Store};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use sync::schedule_by;
pub use timer::{TIMER_QUEUE, TimerOptions, TimerProgress, TimerStore, TimerUnit};
