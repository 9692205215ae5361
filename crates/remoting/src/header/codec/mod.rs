//! How a frame's head is read and written in both of Apache's forms, JSON and binary, and how fields are that hold more
//! than a plain value.

pub(super) mod address_sets;
pub mod binary;
pub(super) mod head;
pub mod json;
mod pairs;
pub(crate) mod prefix;
pub(super) mod value;
