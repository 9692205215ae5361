//! Receiving from Python.

pub(crate) mod batch;
pub(crate) mod class;
pub(crate) mod columns;
pub(crate) mod control;
pub(crate) mod listener;
pub(crate) mod popped;
pub(crate) mod rebalance;
pub(crate) mod settings;
pub(crate) mod simple;
