//! Reading: pulls, single records, times, searches by key.

pub(crate) mod buffers;
mod filtered;
mod pull;
pub(crate) mod query;
pub(crate) mod reader;
mod records;
mod search;
mod times;
