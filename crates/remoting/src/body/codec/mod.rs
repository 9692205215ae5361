//! JSON as fastjson reads and writes it, and how typed bodies are made of it.

pub mod json;
pub(crate) mod unknown;
pub(crate) mod value;
pub mod write;
