//! A message between a request and the store.

pub(crate) mod base64;
pub(crate) mod delay_levels;
pub(crate) mod pending;
pub(crate) mod properties;
