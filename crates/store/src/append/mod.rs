//! Storing messages: one appender at a time, under a lock.
//!
//! The cost of a put: the calling thread lays the record out in a pooled buffer (`buffer.rs`, `staged.rs`) and hashes
//! the keys. Under the lock, three fields are patched, one positional write brings the record (or the whole batch, or
//! all puts of an append batch) into the page cache, and 20 bytes go to the queue's memory. There is no other system
//! call, and no other thread is woken.

mod appended;
pub(crate) mod appender;
pub(crate) mod batch;
pub(crate) mod buffer;
mod encode;
pub(crate) mod flow_control;
mod staged;
mod write;
