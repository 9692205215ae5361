//! Pulling: which queues a member owns, what it has fetched, and the offsets that it commits.
//!
//! The parts, lowest first; each imports only from those above it in this list:
//!
//! - `options`, `callbacks`, `failure_counts`, `rates`: settings; work for the caller's language; messages that
//!   listeners did not handle; rates
//! - `process_queue/`: one queue: what was fetched, what listeners have of it, how far it is done
//! - `requests/`: requests to brokers: offsets, locks, messages handed back, checks of filters
//! - `pop/`: messages that are handed out for a time
//! - `shared`: what the parts below share
//! - `commits/`, `pulling`, `rebalance/`: positions and their commits; the pull of each queue; which queues a member
//!   has
//! - `broker_requests/`: requests of brokers to a consumer
//! - `puller/`, `listener/`: the consumer as its caller sees it: by polls, by listeners

pub(crate) mod broker_requests;
pub mod callbacks;
pub(crate) mod commits;
pub(crate) mod failure_counts;
pub mod listener;
pub mod options;
pub mod pop;
pub mod process_queue;
pub mod puller;
pub(crate) mod pulling;
pub mod rates;
pub(crate) mod rebalance;
pub(crate) mod requests;
pub(crate) mod shared;

pub use rebalance::events as rebalance_events;
pub use requests::offsets;
