//! The message log on disk in the formats of Apache RocketMQ.
//!
//! No async, no runtime: plain calls and a few threads of its own. `docs/store.md` has the formats and what is
//! promised.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod append;
mod append_batch;
mod append_buffer;
mod checkpoint;
mod commit_log;
pub mod config_file;
mod consume_queue;
mod consume_queue_ext;
mod damage;
mod delay;
mod deleted_topics;
mod descriptors;
mod engine;
pub mod error;
mod failure;
mod flow_control;
mod flush_leader;
mod flush_watchdog;
mod format;
pub mod fs;
mod group_commit;
mod index_chain;
mod index_file;
mod key_index;
pub mod live;
mod log_reader;
mod maintenance;
pub mod message;
mod nul_records;
pub mod options;
mod pending_keys;
mod pop;
pub mod query;
mod queue_files;
mod queue_manifest;
mod queue_table;
mod queues;
mod read;
mod read_buffers;
mod recovery;
mod replay;
mod retention;
mod spot_check;
mod stall;
pub mod stats;
pub mod store;
mod sync;
pub mod timer;
mod unsupported_formats;
mod waiters;
mod wakeup;

pub use delay::{DEFAULT_LEVELS, parse_levels};
pub use error::StoreError;
pub use flow_control::BusyReason;
pub use fs::{Fs, RealFs};
pub use live::Live;
pub use maintenance::MaintenanceTask;
pub use message::{Arrival, Batch, BatchItem, Message, Stored};
pub use options::{FlushDiskType, Options};
pub use pop::POPPED;
pub use pyrmq_remoting::message::Durability;
pub use query::{Boundary, Found, Get, GetStatus, Got, KeyKind, KeyQuery, TagFilter};
pub use stats::{Busy, Health, Stats};
pub use store::{OnArrival, OnDurable, OnSlowFlush, OnStored, Store};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use sync::schedule_by;
pub use timer::{TIMER_QUEUE, TimerOptions, TimerProgress, TimerStore, TimerUnit};
pub use waiters::DurableCallback;
