//! Pulling: which queues a member owns, what it has fetched, and the offsets that it commits.

pub mod inner_batch;
pub mod offsets;
pub mod process_queue;
pub mod puller;
pub(crate) mod rebalance;
