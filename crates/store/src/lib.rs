//! The message log on disk in the formats of Apache RocketMQ.
//!
//! No async, no runtime: plain calls and a few threads of its own. `docs/store.md` has the formats and what is promised.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod access;
mod alarm;
mod append;
mod background;
mod brakes;
mod burst;
mod checkpoint;
mod commit;
mod commit_log;
pub mod config_file;
mod consume_queue;
mod damage;
mod delay;
mod deleted;
mod descriptors;
pub mod error;
mod extended;
mod failure;
mod flush_turn;
mod foreign;
mod format;
pub mod fs;
mod group_commit;
mod index_chain;
mod index_file;
mod inner;
mod key_index;
pub mod live;
mod log_reader;
pub mod message;
mod nul_records;
pub mod options;
mod pop;
pub mod query;
mod queue_ends;
mod queue_files;
mod queue_table;
mod queues;
mod read;
mod recover;
mod retain;
mod scratch;
mod spot_check;
mod stall;
pub mod stats;
pub mod store;
mod sync;
pub mod timer;
mod waiting_keys;
mod walk;
mod watch;

pub use background::Chore;
pub use brakes::Brake;
pub use commit::Told;
pub use delay::{DEFAULT_LEVELS, parse_levels};
pub use error::StoreError;
pub use fs::{Fs, RealFs};
pub use live::Live;
pub use message::{Arrival, Batch, BatchItem, Message, Stored};
pub use options::{FlushDiskType, Options};
pub use pop::POPPED;
pub use pyrmq_remoting::message::Durability;
pub use query::{Boundary, Found, Get, GetStatus, Got, KeyKind, KeyQuery, TagFilter};
pub use stats::{Busy, Health, Stats};
pub use store::{OnArrival, OnDurable, OnHeldUp, OnStored, Store};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use sync::schedule_by;
pub use timer::{TIMER_QUEUE, TimerOptions, TimerProgress, TimerStore, TimerUnit};
