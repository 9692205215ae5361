//! Messages that wait in the broker: delay levels, timers and transactions.

pub(crate) mod delivered;
pub(crate) mod half;
pub(crate) mod scan;
pub(crate) mod schedule;
pub mod timer;
pub(crate) mod transactions;
