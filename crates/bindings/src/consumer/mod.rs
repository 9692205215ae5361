//! Receiving from Python.

pub(crate) mod class;
pub(crate) mod columns;
pub(crate) mod received;
