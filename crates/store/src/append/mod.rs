//! The way in: one appender under a lock.
//!
//! What a put costs: the record is laid out in a buffer of the calling thread (`buffer.rs`), the keys are hashed there
//! too; under the lock three fields are patched, one positional write brings the record (or the whole batch, or all
//! puts of an append batch) into the page cache, and 20 bytes go to the queue's memory. No other system call, no other
//! thread is woken.

pub(crate) mod appender;
pub(crate) mod batch;
pub(crate) mod buffer;
mod encode;
pub(crate) mod flow_control;
mod write;
