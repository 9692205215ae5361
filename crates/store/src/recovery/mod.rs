//! What a start does, from top to bottom: `open.rs` looks at the directory (`found.rs`), `recover.rs` makes it whole,
//! with what is known of it (`known.rs`) and a replay of the log (`replay.rs`), and `open.rs` puts the parts together.

mod found;
mod known;
pub(crate) mod open;
pub(crate) mod pop;
mod recover;
mod replay;
mod spot_check;
mod unsupported_formats;
