//! Pulling: which queues a member owns, what it has fetched, and the offsets that it commits.

pub(crate) mod allocation;
pub mod callbacks;
pub(crate) mod commits;
pub(crate) mod failure_counts;
pub(crate) mod in_flight;
pub(crate) mod key_order;
pub mod listener;
pub(crate) mod listener_state;
pub mod offsets;
pub mod options;
pub(crate) mod orderly;
pub mod pop;
pub mod process_queue;
pub mod puller;
pub(crate) mod pulling;
pub(crate) mod questions;
pub(crate) mod queue_lock;
pub(crate) mod rebalance;
pub(crate) mod running_info;
pub(crate) mod send_back;
pub(crate) mod shared;
pub(crate) mod subscription_check;
pub(crate) mod unhandled;
