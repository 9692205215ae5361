//! What the parts of a store share.

use crate::checkpoint::Checkpoint;
use crate::error::StoreError;
use crate::fs::Fs;
use crate::group_commit::GroupCommit;
use crate::live::Live;
use crate::log::commit_log::CommitLog;
use crate::log::nul_records::NulRecords;
use crate::options::Options;
use crate::queue::ext::ConsumeQueueExt;
use crate::queue::registry::Queues;
use crate::state::StoreState;
use crate::state::append_state::AppendState;
use crate::state::listeners::Listeners;
use std::sync::{Arc, Mutex};

/// References to the parts below the engine. Each part above has a copy, so that a use costs no second step.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The settings at the start; those that may change are in `live`.
    pub(crate) options: Arc<Options>,
    pub(crate) live: Arc<Live>,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) extended: Arc<ConsumeQueueExt>,
    pub(crate) checkpoint: Arc<Checkpoint>,
    /// Whole records that look torn.
    pub(crate) nul_records: Arc<NulRecords>,
    /// The end of the log, under the append lock.
    pub(crate) append: Arc<Mutex<AppendState>>,
    /// Which thread fsyncs the log, and which senders wait for that.
    pub(crate) group_commit: Arc<GroupCommit<StoreError>>,
    pub(crate) state: Arc<StoreState>,
    pub(crate) listeners: Arc<Listeners>,
}
