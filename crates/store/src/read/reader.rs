//! The basis of all reads; `pull.rs`, `records.rs`, `times.rs` and `search.rs` implement them.

use crate::dispatch::indexing::Indexing;
use crate::dispatch::queue_maintenance::QueueMaintenance;
use crate::read::buffers::ReadBuffers;
use crate::state::shared::Shared;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Reads stored messages.
pub(crate) struct Reader {
    pub(crate) queue_maintenance: Arc<QueueMaintenance>,
    pub(crate) indexing: Arc<Indexing>,
    /// The memory for answers to pulls.
    pub(crate) buffers: Arc<ReadBuffers>,
    pub(crate) got_messages: AtomicU64,
    pub(crate) got_bytes: AtomicU64,
    /// What all parts of the store share.
    pub(crate) shared: Shared,
}

impl Reader {
    pub(crate) fn new(
        shared: &Shared,
        queue_maintenance: &Arc<QueueMaintenance>,
        indexing: &Arc<Indexing>,
    ) -> Self {
        Self {
            queue_maintenance: Arc::clone(queue_maintenance),
            indexing: Arc::clone(indexing),
            buffers: Arc::default(),
            got_messages: AtomicU64::new(0),
            got_bytes: AtomicU64::new(0),
            shared: shared.clone(),
        }
    }
}
