//! Sending from Python.

pub(crate) mod accumulator;
pub(crate) mod args;
pub(crate) mod base;
pub(crate) mod batch;
mod batch_target;
mod checks;
pub(crate) mod class;
pub(crate) mod options;
pub(crate) mod request_reply;
mod submit;
pub(crate) mod table;
