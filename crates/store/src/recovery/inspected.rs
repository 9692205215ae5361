//! A store's directory as a start finds it.

use crate::checkpoint::abort::{LastStop, mark_open};
use crate::checkpoint::{Checkpoint, Times};
use crate::error::StoreError;
use crate::failure::Failure;
use crate::fs::Fs;
use crate::log::commit_log::CommitLog;
use crate::log::damage::Damage;
use crate::log::nul_records::NulRecords;
use crate::options::Options;
use crate::queue::deleted_topics::DeletedTopics;
use crate::queue::discovered::DiscoveredQueues;
use crate::queue::manifest::QueueManifest;
use crate::queue::registry::Queues;
use std::sync::Arc;

/// Log and queues as a start found them, and what earlier stores recorded about them.
pub(crate) struct Inspected {
    pub(crate) options: Arc<Options>,
    pub(crate) fs: Arc<dyn Fs>,
    /// How the previous store stopped; without its notes if another broker wrote since.
    pub(crate) last_stop: LastStop,
    pub(crate) log: CommitLog,
    pub(crate) queues: Queues,
    /// The queues' files.
    pub(crate) discovered: DiscoveredQueues,
    pub(crate) checkpoint: Checkpoint,
    /// The content of the checkpoint.
    pub(crate) times: Times,
    /// Whether no other broker wrote last.
    pub(crate) was_ours: bool,
    /// Whether `deleted` has all deletions, because no other broker worked here.
    pub(crate) knows_deletions: bool,
    /// Whole records that look torn.
    pub(crate) nul_records: NulRecords,
    pub(crate) manifest: QueueManifest,
    pub(crate) deleted: DeletedTopics,
    /// What is wrong with the beginning of the log, if the store can continue.
    pub(crate) damage: Option<Damage>,
}

impl Inspected {
    /// Inspects everything. If that succeeds, the directory is marked as in use.
    pub(crate) fn read(options: Options, fs: Arc<dyn Fs>, failure: Arc<Failure>) -> Result<Self, StoreError> {
        let root = &options.root;
        let mut last_stop = LastStop::read(fs.as_ref(), root)?;
        let crashed = last_stop.is_crash();
        let log = CommitLog::load(&fs, &options, failure)?;
        let (queues, discovered) = Queues::discover(&fs, root.clone(), options.queue_file_bytes, last_stop)?;
        let checkpoint = Checkpoint::open(fs.as_ref(), root, crashed)?;
        let times = checkpoint.times();
        // All files have the right lengths, so from here on something may change.
        mark_open(fs.as_ref(), root, last_stop, options.queue_file_bytes)?;
        let nul_records = NulRecords::open(fs.as_ref(), root, crashed)?;
        let manifest = QueueManifest::open(fs.as_ref(), root)?;
        let (was_ours, knows_deletions) = (checkpoint.is_ours(), checkpoint.is_trusted(crashed));
        let deleted = DeletedTopics::open(fs.as_ref(), root, knows_deletions, crashed)?;
        if !was_ours && times != Times::default() {
            // Another broker or an older pyrmq wrote last. It made no notes, but may have left our abort file.
            last_stop = last_stop.without_notes();
        }
        Ok(Self {
            options: Arc::new(options),
            fs,
            last_stop,
            log,
            queues,
            discovered,
            checkpoint,
            times,
            was_ours,
            knows_deletions,
            nul_records,
            manifest,
            deleted,
            damage: None,
        })
    }

    pub(crate) fn is_crash(&self) -> bool {
        self.last_stop.is_crash()
    }
}
