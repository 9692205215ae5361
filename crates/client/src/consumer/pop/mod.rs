//! Consumption by POP: brokers hand messages out for a limited time, and deliver them again if they are not
//! acknowledged by then.
//!
//! ```text
//! receive -> state (targets, messages, callers) -> pop at each broker of each topic -> answer -> message, receipt
//!                                                  ack, change of the invisible time <- settle <- receipt
//! ```
//! Consumers with listeners pop, too, where brokers say so: `listening`, `listener_demand`.
//!
//! No member owns a queue: any member of a group may get any message (but see `SimpleOptions::is_ordered`).

pub mod answer;
pub(crate) mod batch;
mod closing;
pub(crate) mod in_hand;
pub(crate) mod listener_demand;
pub(crate) mod listening;
pub mod options;
pub mod receipt;
pub(crate) mod receive;
pub mod receiving;
pub mod renew;
pub(crate) mod settle;
pub mod simple;
pub(crate) mod state;
pub mod stats;
