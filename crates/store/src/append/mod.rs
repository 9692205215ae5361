//! Storing messages: one appender at a time, under a lock.
//!
//! What a put costs: the calling thread encodes the record in a pooled buffer (`buffer.rs`, `staged.rs`) and hashes the
//! keys. Under the lock it patches three fields, brings the record (or the whole batch, or all puts of an append batch)
//! into the page cache with one positional write, and adds 20 bytes to the queue's memory. There is no other system
//! call, and no other thread is woken.

mod appended;
pub(crate) mod appender;
pub(crate) mod batch;
pub(crate) mod buffer;
mod encode;
pub(crate) mod flow_control;
mod staged;
mod write;
