//! What the store's threads and its users share.

use crate::append::Append;
use crate::append::flow_control::FlowControl;
use crate::append::stall::Stall;
use crate::checkpoint::{Checkpoint, mark_unsure};
use crate::error::StoreError;
use crate::flush::waiters::GroupCommit;
use crate::flush::wakeup::Wakeup;
use crate::flush::watchdog::FlushWatchdog;
use crate::fs::Fs;
use crate::index::KeyIndex;
use crate::index::pending::PendingKeys;
use crate::live::Live;
use crate::log::commit_log::CommitLog;
use crate::log::nul_records::NulRecords;
use crate::options::Options;
use crate::queue::deleted_topics::DeletedTopics;
use crate::queue::ext::ConsumeQueueExt;
use crate::queue::manifest::QueueManifest;
use crate::queue::registry::Queues;
use crate::read_buffers::ReadBuffers;
use crate::retention::Disk;
use crate::store::{OnArrival, OnSlowFlush};
use crate::sync::{MutexGuard, lock, try_lock};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The parts of a store. Lock order: `deleted`, `cleaning`, `manifest`, the flush leadership, `indexing`, `append`,
/// then the locks inside of queues and index.
pub(crate) struct Engine {
    /// As they were at the start; what may change is in `live`.
    pub(crate) options: Options,
    pub(crate) live: Live,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) log: CommitLog,
    pub(crate) queues: Queues,
    pub(crate) extended: ConsumeQueueExt,
    pub(crate) index: Option<KeyIndex>,
    pub(crate) checkpoint: Checkpoint,
    /// Whole records that look torn.
    pub(crate) nul_records: NulRecords,
    /// Held while a topic is deleted.
    pub(crate) deleted: Mutex<DeletedTopics>,
    /// Held by the thread that deletes what is old; up to where of the log queues and index have followed.
    pub(crate) cleaning: Mutex<i64>,
    /// Held while queues are fsynced.
    pub(crate) manifest: Mutex<QueueManifest>,
    pub(crate) append: Mutex<Append>,
    /// Which thread fsyncs the log, and which senders wait for that.
    pub(crate) group_commit: GroupCommit<StoreError>,
    /// Up to where everything is durable and readable: behind `log.flushed()` while a round makes units readable.
    pub(crate) readable: AtomicI64,
    /// Held by the thread that moves keys to the index; the empty list that it leaves in exchange for the full one.
    pub(crate) indexing: Mutex<PendingKeys>,
    /// Where reading the log for the index goes on.
    pub(crate) index_from: AtomicI64,
    pub(crate) index_wakeup: Wakeup,
    pub(crate) maintenance_wakeup: Wakeup,
    pub(crate) segment_wakeup: Wakeup,
    pub(crate) timeout_wakeup: Wakeup,
    /// Where the segment begins that the thread of the segments was told to make.
    pub(crate) requested_segment: AtomicI64,
    pub(crate) disk: Disk,
    pub(crate) stall: Stall,
    /// The next start was told that an fsync failed.
    pub(crate) noted_unsure: AtomicBool,
    pub(crate) flow_control: FlowControl,
    /// Bytes that were not readable or indexed when it was last asked.
    pub(crate) behind: AtomicI64,
    /// What answers of pulls lie in.
    pub(crate) buffers: Arc<ReadBuffers>,
    pub(crate) listener: OnceLock<Arc<OnArrival>>,
    /// Inline fsyncs, and what is called when one is slow.
    pub(crate) watchdog: FlushWatchdog,
    pub(crate) on_slow_flush: OnceLock<Arc<OnSlowFlush>>,
    pub(crate) closed: AtomicBool,
    pub(crate) crashed: bool,
    /// A reader met a unit that points to no record.
    pub(crate) queues_damaged: AtomicBool,
    pub(crate) counts: Counts,
    pub(crate) flushes: AtomicU64,
    pub(crate) got_messages: AtomicU64,
    pub(crate) got_bytes: AtomicU64,
    pub(crate) deleted_files: AtomicU64,
}

/// What puts count. Written under the append lock, read by anybody: whoever asks does not wait for a disk that hangs in
/// a write.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
}

impl Counts {
    /// Adds; only under the append lock, so that it takes no locked instruction.
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Inner")
            .field("root", &self.options.root)
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        Ok(())
    }

    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        self.check_open()?;
        self.log.failure.check()?;
        self.disk.check(&self.live, self.log.directory())?;
        self.stall.check()
    }

    /// Bytes that are stored but not yet readable or indexed. Whoever asks does not wait for a disk that hangs: while a
    /// put writes, the answer is that of the last time.
    pub(crate) fn behind(&self) -> i64 {
        let Some(append) = try_lock(&self.append) else {
            return self.behind.load(Ordering::Relaxed);
        };
        let unread = append
            .deferred
            .front()
            .map_or(0, |next| append.tail.position - next.unit.position);
        let unindexed = if append.index_direct {
            append
                .index
                .first_position()
                .map_or(0, |next| append.tail.position - next)
        } else {
            append.tail.position - self.index_from.load(Ordering::Relaxed)
        };
        let behind = unread.max(unindexed).max(0);
        self.behind.store(behind, Ordering::Relaxed);
        behind
    }

    /// A unit points to something that is no record: the next start builds the queues from the log.
    pub(crate) fn distrust_queues(&self, topic: &str, queue: i32, error: &StoreError) {
        if !self.queues_damaged.swap(true, Ordering::AcqRel) {
            tracing::error!(topic, queue, %error, "a consume queue is damaged: the next start builds the queues again");
        }
    }

    /// Forgets a topic's queues and deletes their files. Puts to them wait meanwhile and then make new ones.
    pub(crate) fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.try_delete_topic(topic)
            .inspect_err(|error| self.fail_if_read_only(error))
    }

    fn try_delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.check_open()?;
        self.log.failure.check()?;
        let mut deleted = lock(&self.deleted);
        let (queues, position) = {
            let append = lock(&self.append);
            let queues = self.queues.of(topic);
            for queue in &queues {
                queue.set_closing(true);
            }
            (queues, append.tail.position)
        };
        if queues.is_empty() {
            return Ok(());
        }
        let noted = self.checkpoint.make_ours().map_err(|error| (error, false));
        let noted = noted.and_then(|()| deleted.add(self.fs.as_ref(), topic, position));
        if let Err((error, is_undone)) = noted {
            if !is_undone {
                // Nobody knows whether the next start finds it: nothing may be stored that it would take.
                self.fail(&error);
            }
            let _append = lock(&self.append);
            for queue in &queues {
                queue.set_closing(false);
            }
            return Err(error);
        }
        self.queues.delete(topic, &queues)?;
        self.extended.delete(self.fs.as_ref(), topic)
    }

    /// Turns the store read-only, answers everyone who waits, and tells the next start.
    pub(crate) fn fail(&self, error: &StoreError) {
        self.log.failure.set(error);
        self.note_unsure();
        self.group_commit.waiters.fail(error);
    }

    /// Answers everyone who waits where the error has turned the store read-only.
    pub(crate) fn fail_if_read_only(&self, error: &StoreError) {
        if self.log.failure.is_set() {
            self.fail(error);
        }
    }

    /// Tells the next start that something failed to become durable: what the system still holds of it must be written
    /// again.
    pub(crate) fn note_unsure(&self) {
        if !self.noted_unsure.swap(true, Ordering::AcqRel) {
            let options = &self.options;
            mark_unsure(
                self.fs.as_ref(),
                &options.root,
                options.queue_file_bytes,
                self.log.flushed(),
            );
        }
    }

    /// Remembers that the system has no space for a write.
    pub(crate) fn note_full(&self, error: &StoreError) {
        if error.is_full() {
            tracing::error!(%error, "no space: writes are refused until there is some");
            self.disk.refuse();
        }
    }

    /// Has the next segment made, once for each.
    pub(crate) fn prepare_soon(&self) {
        let next = self.log.next_segment(self.log.appended());
        if self.requested_segment.swap(next, Ordering::Relaxed) != next {
            self.segment_wakeup.notify();
        }
    }

    /// Makes the next segment if it is time.
    pub(crate) fn prepare_segment(&self) -> Result<(), StoreError> {
        let is_time = lock(&self.append).tail.is_past_half(&self.log);
        if !is_time || self.check_writable().is_err() {
            return Ok(());
        }
        // What fails here is tried again by the put that needs the segment.
        self.log
            .prepare_segment()
            .inspect_err(|error| self.note_full(error))
    }

    /// Moves waiting keys into the index. Any thread may do it. After a failure the index takes them from the log.
    pub(crate) fn index_round(&self) -> Result<(), StoreError> {
        let Some(index) = &self.index else {
            return Ok(());
        };
        self.index_with(index, lock(&self.indexing))
    }

    /// Helps to move waiting keys, where nobody does it: whoever does may wait for an fsync of a whole index file.
    pub(crate) fn help_index(&self) -> Result<(), StoreError> {
        match (&self.index, try_lock(&self.indexing)) {
            (Some(index), Some(spare)) => self.index_with(index, spare),
            _ => Ok(()),
        }
    }

    fn index_with(&self, index: &KeyIndex, mut spare: MutexGuard<'_, PendingKeys>) -> Result<(), StoreError> {
        std::mem::swap(&mut *spare, &mut lock(&self.append).index);
        let full = index.add(&spare);
        spare.clear();
        if full.is_err() {
            let mut append = lock(&self.append);
            append.index_direct = false;
            append.index.clear();
            self.index_from
                .store(index.newest_position().max(self.log.start()), Ordering::Relaxed);
        }
        if let Some(full_ms) = full? {
            self.checkpoint.update(|times| times.index_ms = full_ms);
            self.checkpoint.save()?;
        }
        Ok(())
    }
}
