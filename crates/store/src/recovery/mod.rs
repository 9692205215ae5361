//! What a start does, in this order: `open.rs` inspects the directory (`inspected.rs`), `recover.rs` repairs it with what
//! is known of it (`known.rs`) and a replay of the log (`replay.rs`), and `open.rs` puts the parts together.

mod inspected;
mod known;
pub(crate) mod open;
pub(crate) mod pop;
mod recover;
mod replay;
mod spot_check;
mod unsupported_formats;
