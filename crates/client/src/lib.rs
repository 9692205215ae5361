//! Producer and puller over the wire; pulled records as column buffers.

pub mod columns;
pub mod range;
