//! The commit log: its segments, how they are read back, and what counts as damage.

pub(crate) mod commit_log;
pub(crate) mod cut;
pub(crate) mod damage;
pub(crate) mod head_check;
pub(crate) mod hot_window;
pub(crate) mod nul_records;
pub(crate) mod reader;
pub(crate) mod segment;
pub(crate) mod tail;
