//! The parts of a store, put together.
//!
//! Each part is a struct with references to what it needs of the others. They use one another only downwards:
//!
//! ```text
//! Retention  Reader  Appender                     deletes old files; reads; stores messages
//!        Indexing  QueueMaintenance  Flusher      fills the key index; writes and fsyncs queues; fsyncs the log
//!                    StoreState                   whether messages are taken, and what failed
//!   CommitLog  Queues  Checkpoint  AppendState    files, and the end of the log under its lock
//! ```
//! Lock order: `QueueMaintenance::deleted`, `Retention::followed`, `QueueMaintenance::manifest`, the flush leadership,
//! `Indexing::spare`, `append`, then the locks inside of queues and index.

use crate::append::appender::Appender;
use crate::checkpoint::Times;
use crate::checkpoint::abort::mark_closed;
use crate::descriptors::Shares;
use crate::dispatch::indexing::Indexing;
use crate::dispatch::queue_maintenance::QueueMaintenance;
use crate::error::StoreError;
use crate::flush::Flusher;
use crate::index::KeyIndex;
use crate::options::Options;
use crate::read::reader::Reader;
use crate::retention::Retention;
use crate::state::shared::Shared;
use crate::stats::{Health, Stats};
use crate::sync::wakeup::Wakeup;
use crate::sync::{lock, try_lock};
use pyrmq_remoting::meter::Latency;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// A store's parts.
pub(crate) struct Engine {
    pub(crate) shared: Shared,
    pub(crate) appender: Arc<Appender>,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) indexing: Arc<Indexing>,
    pub(crate) queue_maintenance: Arc<QueueMaintenance>,
    pub(crate) retention: Retention,
    pub(crate) reader: Reader,
    /// Wakes the thread that does what no other thread does.
    pub(crate) upkeep_wakeup: Wakeup,
    pub(crate) recovered_from_crash: bool,
    /// Whether the next start must find a crash, however this store is closed.
    pub(crate) stays_unclean: AtomicBool,
    /// Bytes that were not yet readable or indexed when last read.
    pub(crate) behind: AtomicI64,
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Engine")
            .field("root", &self.shared.options.root)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Applies those of these settings that may change, and wakes the threads that sleep for an interval.
    pub(crate) fn reconfigure(&self, options: &Options) -> Result<(), StoreError> {
        // Data that failed to become durable must not become readable because the flush type changes.
        self.shared.state.check_sound()?;
        let is_change = options.flush != self.shared.live.flush();
        self.shared.live.set(options);
        if is_change {
            self.flusher.change_flush(options.flush);
        }
        for wakeup in [
            &self.shared.group_commit.wakeup,
            &self.shared.queues.backlog.wakeup,
            &self.upkeep_wakeup,
            &self.flusher.timeout_wakeup,
        ] {
            wakeup.notify();
        }
        if is_change {
            self.flusher.flush_round()?;
        }
        self.shared.state.check_disk_space()
    }

    /// Bytes that are stored but not yet readable or indexed. While a put writes, the previous value is returned, so
    /// that the caller does not wait for a disk that hangs.
    fn behind(&self) -> i64 {
        let Some(append) = try_lock(&self.shared.append) else {
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
            append.tail.position - self.indexing.from.load(Ordering::Relaxed)
        };
        let behind = unread.max(unindexed).max(0);
        self.behind.store(behind, Ordering::Relaxed);
        behind
    }

    pub(crate) fn stats(&self) -> Stats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            messages_put: count(&self.appender.counts.messages),
            bytes_put: count(&self.appender.counts.bytes),
            writes: count(&self.appender.counts.writes),
            flushes: self.flusher.sync_times.count(),
            messages_got: count(&self.reader.got_messages),
            bytes_got: count(&self.reader.got_bytes),
            keys_indexed: self.indexing.index.as_ref().map_or(0, KeyIndex::added),
            files_deleted: count(&self.retention.deleted_files),
        }
    }

    /// Durations of fsyncs: those of the log, and those of all consume queues.
    pub(crate) fn flush_times(&self) -> [Latency; 2] {
        [
            self.flusher.sync_times.read("commit log"),
            self.queue_maintenance.sync_times.read("consume queues"),
        ]
    }

    /// How long those that must know their messages durable waited for fsyncs of the log.
    pub(crate) fn flush_waits(&self) -> Latency {
        self.shared.group_commit.waiters.waits("waits for the commit log")
    }

    pub(crate) fn health(&self) -> Health {
        let failure = self.shared.log.failure.reason();
        let refused = self
            .shared
            .state
            .check_space()
            .err()
            .or_else(|| self.shared.log.roll_error())
            .map(|error| error.to_string());
        Health {
            min_physical_offset: self.shared.log.start(),
            max_physical_offset: self.shared.log.appended(),
            flushed_offset: self.shared.log.flushed(),
            dispatch_behind_bytes: self.behind(),
            disk_ratio: self.shared.state.disk.ratio(),
            disk_free_bytes: self.shared.state.disk.free(),
            has_failed: failure.is_some(),
            read_only: failure.or(refused),
            damage: self.shared.state.damage(),
            durability: self.shared.live.flush().durability(),
            queues: self.shared.queues.count(),
            busy: self.appender.flow_control.counts(),
            recovered_from_crash: self.recovered_from_crash,
        }
    }

    pub(crate) fn end_position(&self) -> i64 {
        self.shared.log.appended()
    }

    pub(crate) fn reserved_descriptors(&self) -> usize {
        let kept = self.shared.queues.spare_handles() + self.shared.log.spare_handles();
        let shares = Shares::of_process();
        // Those of the index are counted whether they are open or not: a new connection must not wait for its lock.
        shares.others + shares.index_files + kept
    }

    /// Refuses further puts and ends the threads.
    pub(crate) fn stop(&self) {
        {
            let _no_put_is_under_way = lock(&self.shared.append);
            self.shared.state.close();
        }
        let wakeups = [
            &self.shared.group_commit.wakeup,
            &self.indexing.wakeup,
            &self.shared.queues.backlog.wakeup,
            &self.upkeep_wakeup,
            &self.appender.segment_wakeup,
            &self.flusher.timeout_wakeup,
        ];
        for wakeup in wakeups {
            wakeup.stop();
        }
    }

    /// Makes everything durable and marks the stop as clean, then answers all waiters.
    pub(crate) fn finish(&self) -> Result<(), StoreError> {
        let result = self.try_finish();
        self.shared.group_commit.waiters.fail(&StoreError::Closed);
        result
    }

    fn try_finish(&self) -> Result<(), StoreError> {
        self.flusher.flush_round()?;
        self.shared.log.failure.check()?;
        self.indexing.finish()?;
        self.queue_maintenance.sync_queues(true)?;
        if self.queue_maintenance.mismatches.need_rebuild() {
            // An unclean stop: the checkpoint shows the next start that no queue is durable.
            self.shared.checkpoint.update(Times::mark_queues_undurable);
            return self.shared.checkpoint.save();
        }
        if self.stays_unclean.load(Ordering::Acquire) {
            return Ok(());
        }
        mark_closed(self.shared.fs.as_ref(), &self.shared.options.root)
    }
}
