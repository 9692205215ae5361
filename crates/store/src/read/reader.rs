//! The basis of all reads; `pull.rs`, `records.rs`, `times.rs` and `search.rs` implement them.

use crate::dispatch::indexing::Indexing;
use crate::dispatch::queue_maintenance::QueueMaintenance;
use crate::fs::Fs;
use crate::live::Live;
use crate::log::commit_log::CommitLog;
use crate::queue::ext::ConsumeQueueExt;
use crate::queue::registry::Queues;
use crate::read::buffers::ReadBuffers;
use crate::state::StoreState;
use crate::state::shared::Shared;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Reads stored messages.
pub(crate) struct Reader {
    pub(crate) state: Arc<StoreState>,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) live: Arc<Live>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) extended: Arc<ConsumeQueueExt>,
    pub(crate) queue_maintenance: Arc<QueueMaintenance>,
    pub(crate) indexing: Arc<Indexing>,
    /// The memory for answers to pulls.
    pub(crate) buffers: Arc<ReadBuffers>,
    pub(crate) got_messages: AtomicU64,
    pub(crate) got_bytes: AtomicU64,
}

impl Reader {
    pub(crate) fn new(
        shared: &Shared,
        queue_maintenance: &Arc<QueueMaintenance>,
        indexing: &Arc<Indexing>,
    ) -> Self {
        Self {
            state: Arc::clone(&shared.state),
            fs: Arc::clone(&shared.fs),
            live: Arc::clone(&shared.live),
            log: Arc::clone(&shared.log),
            queues: Arc::clone(&shared.queues),
            extended: Arc::clone(&shared.extended),
            queue_maintenance: Arc::clone(queue_maintenance),
            indexing: Arc::clone(indexing),
            buffers: Arc::default(),
            got_messages: AtomicU64::new(0),
            got_bytes: AtomicU64::new(0),
        }
    }
}
