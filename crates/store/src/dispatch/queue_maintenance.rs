//! Maintenance of all consume queues: writing, fsyncing, recording them in the manifest, and deleting them with their
//! topic.

use crate::dispatch::mismatches::Mismatches;
use crate::error::StoreError;
use crate::queue::deleted_topics::DeletedTopics;
use crate::queue::manifest::{QueueManifest, QueueRange};
use crate::state::shared::Shared;
use crate::sync::lock;
use pyrmq_remoting::meter::Meter;
use std::sync::Mutex;
use std::time::Instant;

/// Maintains the queues' files and the notes about them.
pub(crate) struct QueueMaintenance {
    /// Held while queues are fsynced.
    pub(crate) manifest: Mutex<QueueManifest>,
    /// Held while a topic is deleted.
    pub(crate) deleted: Mutex<DeletedTopics>,
    /// Units to which readers found no record.
    pub(crate) mismatches: Mismatches,
    /// Number and duration of the fsyncs of all queues.
    pub(crate) sync_times: Meter,
    /// What all parts of the store share.
    pub(crate) shared: Shared,
}

impl QueueMaintenance {
    pub(crate) fn new(shared: &Shared, manifest: QueueManifest, deleted: DeletedTopics) -> Self {
        Self {
            manifest: Mutex::new(manifest),
            deleted: Mutex::new(deleted),
            mismatches: Mismatches::new(shared),
            sync_times: Meter::default(),
            shared: shared.clone(),
        }
    }

    /// Handles that a consume queue could not be written: no put is accepted until all of them can be.
    fn handle_write_failure(&self, error: StoreError) {
        if error.is_passing() && !self.shared.log.failure.is_set() {
            return self.shared.state.stall.begin(&error);
        }
        self.shared
            .state
            .handle_failure("cannot write consume queues", Err(error));
    }

    /// Writes the units that are only in memory.
    pub(crate) fn write_queues(&self) -> Result<(), StoreError> {
        let done = self.shared.queues.write_out();
        match &done {
            Ok(()) => self.shared.state.stall.end(),
            Err(error) => self.handle_write_failure(error.clone()),
        }
        done
    }

    /// Writes the units of queues that have many. They are also in the list for [`QueueMaintenance::write_queues`].
    pub(crate) fn write_backlog(&self) {
        if let Err(error) = self.shared.queues.write_backlog() {
            self.handle_write_failure(error);
        }
    }

    /// Fsyncs the queues and records that in the checkpoint. With `is_end`, it records exactly how far each queue
    /// reaches. A failure turns the store read-only or is retried.
    pub(crate) fn sync_queues(&self, is_end: bool) -> Result<(), StoreError> {
        let begin = Instant::now();
        let done = self.try_sync_queues(is_end);
        self.sync_times.add(begin.elapsed());
        self.shared
            .state
            .handle_failure("cannot flush consume queues", done.clone());
        done
    }

    fn try_sync_queues(&self, is_end: bool) -> Result<(), StoreError> {
        // Everything of that age is at least in the queues' memory.
        let before = self.shared.checkpoint.times();
        self.sync_queue_files(is_end)?;
        self.shared.checkpoint.update(|times| {
            // A time from before the clock went back says nothing about later messages.
            if times.clock_regressions == before.clock_regressions {
                times.logics_ms = times.logics_ms.max(before.physic_ms);
            }
            times.queues = before.log;
        });
        self.shared.checkpoint.save()
    }

    /// Fsyncs the queues and records which files exist.
    fn sync_queue_files(&self, is_end: bool) -> Result<(), StoreError> {
        // Held to the end: a later note must have seen at least as much.
        let mut manifest = lock(&self.manifest);
        let log = (self.shared.log.start(), self.shared.log.appended());
        let is_rewrite = is_end || !manifest.is_complete();
        let ranges = self
            .shared
            .queues
            .sync(is_rewrite)
            .inspect_err(|_| manifest.require_rewrite())?;
        if !is_rewrite {
            return if ranges.is_empty() {
                Ok(())
            } else {
                manifest.add(log, &ranges)
            };
        }
        if manifest.is_undurable {
            if !self.shared.queues.sync_file_system()? && !is_end {
                // Nothing is recorded before the next clean stop.
                return Ok(());
            }
            manifest.is_undurable = false;
        }
        manifest.write(self.shared.fs.as_ref(), log, &ranges)
    }

    /// Makes the units of all records before a position durable, so that the records may be deleted: afterwards only
    /// the queues' files show where a queue continues. Usually the units are durable already. On a full disk, units
    /// after the position and the notes about them may stay unwritten, because the deletion frees the space for them.
    pub(crate) fn make_queues_durable(&self, end: i64) -> Result<(), StoreError> {
        if self.shared.checkpoint.times().queues.end >= end {
            return Ok(());
        }
        match self.sync_queues(false) {
            Err(error) if error.is_passing() && !self.shared.log.failure.is_set() => {}
            done => return done,
        }
        let mut manifest = lock(&self.manifest);
        if manifest.is_undurable && !self.shared.queues.sync_file_system()? {
            // One fsync does not reach them all, so each file gets its own: unsynced queues must not keep the disk
            // full.
            self.shared.queues.list_all_unsynced();
        }
        manifest.require_rewrite();
        self.shared.queues.sync_before(end)?;
        manifest.is_undurable = false;
        Ok(())
    }

    /// Records how far queues reach whose files are about to be deleted. `ranges` is called while nothing else is
    /// recorded: a range that was seen earlier could override a later one, and hide that a file is missing.
    pub(crate) fn record_ranges(&self, ranges: impl FnOnce() -> Vec<QueueRange>) -> Result<(), StoreError> {
        let mut manifest = lock(&self.manifest);
        let log = (self.shared.log.start(), self.shared.log.appended());
        manifest.add(log, &ranges())
    }

    /// Removes a topic's queues and deletes their files. Puts to them wait meanwhile, for at most
    /// `waitTimeMillsInSendQueue`, and then create new queues.
    pub(crate) fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.try_delete_topic(topic)
            .inspect_err(|error| self.shared.state.fail_if_read_only(error))
    }

    fn try_delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.shared.state.check_sound()?;
        let mut deleted = lock(&self.deleted);
        let (queues, position) = {
            let append = lock(&self.shared.append);
            let queues = self.shared.queues.of(topic);
            for queue in &queues {
                queue.set_closing(true);
            }
            (queues, append.tail.position)
        };
        if queues.is_empty() {
            return Ok(());
        }
        let noted = self.shared.checkpoint.make_ours().map_err(|error| (error, false));
        let noted = noted.and_then(|()| deleted.add(self.shared.fs.as_ref(), topic, position));
        if let Err((error, is_undone)) = noted {
            if !is_undone {
                // It is unknown whether the next start finds the deletion: nothing may be stored that it would delete.
                self.shared.state.fail(&error);
            }
            let _append = lock(&self.shared.append);
            for queue in &queues {
                queue.set_closing(false);
            }
            return Err(error);
        }
        self.shared.queues.delete(topic, &queues)?;
        self.shared.extended.delete(self.shared.fs.as_ref(), topic)
    }
}
