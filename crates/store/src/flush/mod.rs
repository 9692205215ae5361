//! Fsync of the log, once for all waiters (Apache `GroupCommitService`, `FlushRealTimeService`).
//!
//! A round is one fsync and the answers to all waiters that it covers. The flush thread does rounds. So does a thread
//! that commits an append batch while the disk is fast: then a connection's batch is answered before its task writes,
//! and no thread is woken. `group_commit/` decides which thread leads a round, and which senders are answered.
//!
//! A failed fsync turns the log read-only and is never retried: the system may have dropped the pages that it could not
//! write.

pub(crate) mod watchdog;

use crate::error::StoreError;
use crate::flush::watchdog::FlushWatchdog;
use crate::format::CQ_UNIT_SIZE;
use crate::group_commit::Log;
use crate::message::{Arrival, OnDurable};
use crate::options::FlushDiskType;
use crate::state::append_hold::AppendHold;
use crate::state::append_state::{AppendState, Deferred};
use crate::state::shared::Shared;
use crate::sync::wakeup::Wakeup;
use crate::sync::{MutexGuard, lock};
use pyrmq_remoting::meter::Meter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a put holds the append lock until a thread that commits an append batch leaves the fsync to the flush
/// thread, in ms.
const SLOW_WRITE_MS: u64 = 5;

/// Fsyncs the log, and makes messages readable that waited for it.
pub(crate) struct Flusher {
    pub(crate) append_hold: Arc<AppendHold>,
    /// Watches the fsyncs of threads that committed an append batch.
    pub(crate) watchdog: FlushWatchdog,
    pub(crate) timeout_wakeup: Wakeup,
    /// Number and duration of fsyncs.
    pub(crate) sync_times: Meter,
    /// What all parts of the store share.
    pub(crate) shared: Shared,
}

impl Log for Flusher {
    type Error = StoreError;

    fn appended(&self) -> i64 {
        self.shared.log.appended()
    }

    fn readable(&self) -> i64 {
        self.shared.state.readable.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), StoreError> {
        self.shared.log.failure.check()
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.shared.state.check_open()
    }

    fn sync(&self) -> Result<Option<Duration>, StoreError> {
        self.sync_written(lock(&self.shared.append))
    }
}

impl Flusher {
    /// Fsyncs what was written before the append lock was taken.
    fn sync_written(&self, append: MutexGuard<'_, AppendState>) -> Result<Option<Duration>, StoreError> {
        let (target, last_ms, last, clock_regressions) = (
            append.tail.position,
            append.tail.last_store_ms,
            append.tail.last,
            self.shared.checkpoint.times().clock_regressions,
        );
        drop(append);
        self.append_hold.wake_next();
        if target <= self.shared.log.flushed() {
            return Ok(None);
        }
        let begin = Instant::now();
        let noted = self.shared.nul_records.sync(self.shared.fs.as_ref());
        let noted = noted.inspect_err(|error| {
            if !error.is_passing() {
                self.shared.log.failure.set(error);
            }
        });
        noted
            .and_then(|()| self.shared.log.sync_to(target))
            .inspect_err(|_| {
                if self.shared.log.failure.is_set() {
                    self.shared.state.record_unsure();
                }
            })?;
        let took = begin.elapsed();
        self.sync_times.add(took);
        self.publish_durable();
        self.shared.state.readable.store(target, Ordering::Release);
        self.shared.checkpoint.update(|times| {
            if times.clock_regressions == clock_regressions {
                times.physic_ms = times.physic_ms.max(last_ms);
            }
            // Every earlier unit is in its queue's memory by now, and its queue in the list of those to be written.
            if last.is_some() {
                times.log = last;
            }
        });
        Ok(Some(took))
    }
}

/// The log for an inline fsync, which the watchdog watches.
struct InBatch<'i>(&'i Flusher);

impl Log for InBatch<'_> {
    type Error = StoreError;

    fn appended(&self) -> i64 {
        self.0.appended()
    }

    fn readable(&self) -> i64 {
        self.0.readable()
    }

    fn check(&self) -> Result<(), StoreError> {
        self.0.check()
    }

    fn check_open(&self) -> Result<(), StoreError> {
        self.0.check_open()
    }

    fn sync(&self) -> Result<Option<Duration>, StoreError> {
        let hold = &self.0.append_hold;
        // If a write is slow, the flush thread waits for it instead of this one, and fsyncs, which may hang, too.
        let Some(append) = hold.wait_if_short(&self.0.shared.append, || hold.held_ms() < SLOW_WRITE_MS)
        else {
            self.0.shared.group_commit.wakeup.notify();
            return Ok(None);
        };
        if self.0.watchdog.begin() {
            self.0.timeout_wakeup.notify();
        }
        let done = self.0.sync_written(append);
        self.0.watchdog.end();
        done
    }
}

impl Flusher {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            append_hold: Arc::new(AppendHold::new(&shared.listeners)),
            watchdog: FlushWatchdog::default(),
            timeout_wakeup: Wakeup::default(),
            sync_times: Meter::default(),
            shared: shared.clone(),
        }
    }

    /// Calls back once everything before `position` is durable.
    pub(crate) fn when_durable(&self, position: i64, done: OnDurable) {
        self.shared.group_commit.when_durable(self, position, done);
    }

    /// Like [`Flusher::when_durable`], for waiters of an append batch, which their thread will commit.
    pub(crate) fn when_durable_in_batch(&self, waiting: impl Iterator<Item = (i64, OnDurable)>) {
        self.shared.group_commit.when_durable_in_batch(self, waiting);
    }

    /// Does a round once this thread is the leader.
    pub(crate) fn flush_round(&self) -> Result<(), StoreError> {
        self.shared.group_commit.flush_round(self)
    }

    /// Makes sure that all waiters will be served.
    pub(crate) fn commit_batch(&self) {
        let limit = Duration::from_micros(self.shared.options.flush_inline_below_us);
        let for_readers = self.shared.live.flush() == FlushDiskType::Sync;
        self.shared
            .group_commit
            .commit_batch(&InBatch(self), limit, for_readers);
    }

    /// Answers waiters that have waited too long.
    pub(crate) fn expire_waiters(&self, longest: Duration) {
        self.shared
            .group_commit
            .waiters
            .expire(longest, |waited| StoreError::FlushTimeout {
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            });
    }

    /// Makes messages readable that waited for the fsync. Rounds take turns, so the units of a queue stay in order
    /// although the append lock is held only to take all of them out.
    fn publish_durable(&self) {
        let flushed = self.shared.log.flushed();
        let ready: Vec<_> = {
            let _wakes = self.append_hold.wakes_next();
            let deferred = &mut self.append_hold.take(&self.shared.append).deferred;
            let count = deferred.partition_point(|next| next.unit.end() <= flushed);
            deferred.drain(..count).collect()
        };
        for next in ready {
            self.make_readable(&next);
            self.notify_arrival_of(&next);
        }
    }

    fn make_readable(&self, next: &Deferred) {
        let waiting = next.queue.push(next.unit);
        self.shared.queues.list_unwritten(&next.queue);
        self.shared.queues.backlog.add(&next.queue, waiting, CQ_UNIT_SIZE);
    }

    fn notify_arrival_of(&self, next: &Deferred) {
        if let Some(listener) = self.shared.listeners.arrival() {
            listener(&Arrival {
                topic: &next.queue.topic,
                queue_id: next.queue.id,
                next_offset: next.queue.end(),
                count: 1,
                tags_code: Some(next.unit.tags_code),
                store_timestamp_ms: next.store_ms,
            });
        }
    }

    /// Changes when messages are answered and readable. After a change to [`FlushDiskType::Async`], messages that wait
    /// for an fsync are readable at once, before any that is stored later.
    pub(crate) fn change_flush(&self, flush: FlushDiskType) {
        // While this thread leads, no round holds units that are not readable yet.
        let (readable, _) = self.shared.group_commit.leader.wait(|| {
            let mut append = lock(&self.shared.append);
            self.shared.live.set_flush(flush);
            if flush == FlushDiskType::Sync || self.shared.log.failure.is_set() {
                return Vec::new();
            }
            let readable: Vec<_> = append.deferred.drain(..).collect();
            for next in &readable {
                self.make_readable(next);
            }
            readable
        });
        for next in &readable {
            self.notify_arrival_of(next);
        }
    }
}
