//! Routing decisions without I/O: name server tables, queue selection, latency fault tolerance, allocation, filters.
//!
//! Nothing here reads a clock, a socket or a random number: time and randomness are arguments.

pub mod allocate;
pub mod fault;
pub mod filter;
pub mod route;
pub mod select;
pub mod table;
