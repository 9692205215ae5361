//! Consume queues: for each queue of a topic, an index of positions in the commit log.

pub(crate) mod backlog;
pub(crate) mod consume_queue;
pub(crate) mod deleted_topics;
pub(crate) mod discovered;
pub(crate) mod ext;
pub(crate) mod files;
pub(crate) mod manifest;
pub(crate) mod registry;
pub(crate) mod table;
mod wait_list;
