//! The tables that the broker keeps, most of them in configuration files: topics, groups, offsets, clients and locks.

pub(crate) mod attributes;
pub mod clients;
pub mod config_file;
pub mod conflicts;
pub mod groups;
pub mod locks;
pub mod offsets;
pub mod subscription;
pub(crate) mod topic_creators;
pub mod topics;
