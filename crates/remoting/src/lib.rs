//! The RocketMQ wire: frames, headers, bodies and message records.
//!
//! This half has no I/O, no async and no runtime: bytes in, values out. The transport lives in `net`, behind the
//! feature of the same name.

pub mod body;
mod chunk;
pub mod clock;
pub mod codes;
pub mod command;
pub mod error;
pub mod fields;
pub mod frame;
pub mod hash;
pub mod header;
pub mod message;
pub mod meter;
pub mod names;
#[cfg(feature = "net")]
pub mod net;
mod scan;
pub mod setting;
pub mod sync;
pub mod text;

pub use command::{Command, Language, SerializeType};
pub use error::WireError;
pub use fields::Fields;
