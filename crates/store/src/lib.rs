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
mod dispatch;
mod engine;
pub mod error;
mod failure;
mod flush;
mod format;
pub mod fs;
mod group_commit;
mod index;
pub mod live;
mod log;
mod maintenance;
pub mod message;
pub mod options;
mod queue;
mod read;
mod recovery;
mod retention;
pub mod scan;
mod state;
pub mod stats;
pub mod store;
pub mod timer;

use pyrmq_remoting::sync;

pub use append::batch::AppendBatch;
pub use delay::parse_levels;
pub use error::{BusyReason, StoreError};
pub use fs::{Fs, RealFs};
pub use index::query::{KeyKind, KeyQuery};
pub use live::Live;
pub use log::nul_records::looks_torn;
pub use maintenance::MaintenanceTask;
pub use message::{
    Arrival, BatchMessage, BlockInPlace, MessageBatch, NewMessage, OnArrival, OnDurable, OnSlowFlush,
    OnStored, Stage, Stored,
};
pub use options::timer::TimerOptions;
pub use options::{FlushDiskType, Options};
pub use pyrmq_remoting::message::Durability;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use pyrmq_remoting::sync::schedule_by;
pub use read::query::{
    Boundary, GetMessage, GetMessageResult, GetStatus, KeyMatches, QueueEntry, RecordFilter, TagFilter,
};
pub use stats::{Busy, Health, Stats};
pub use store::Store;
pub use timer::{TIMER_QUEUE, TimerProgress, TimerStore, TimerUnit};
