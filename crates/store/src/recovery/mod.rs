//! What a start does, in this order: `open.rs` inspects the directory (`inspected.rs`), `recover.rs` repairs it with
//! what is known of it (`known.rs`) and a replay of the log (`replay.rs`), and `open.rs` puts the parts together.
//!
//! `spot_check.rs` finds queues that lost files. `unsupported_formats.rs` and `popped_in_rocksdb.rs` refuse stores that
//! pyrmq cannot read.

mod inspected;
mod known;
pub(crate) mod open;
pub(crate) mod popped_in_rocksdb;
mod recover;
mod replay;
mod spot_check;
mod unsupported_formats;
