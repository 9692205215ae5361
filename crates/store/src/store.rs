//! The store as its users see it.

use crate::append::Append;
use crate::append::batch;
use crate::append::flow_control::FlowControl;
use crate::append::stall::Stall;
use crate::checkpoint::{Checkpoint, LastStop, Mark, Times, mark_closed, mark_open, mark_recovered};
use crate::descriptors::Shares;
use crate::engine::{Counts, Engine};
use crate::error::StoreError;
use crate::failure::Failure;
use crate::flush::waiters::{BoxedCallback, GroupCommit};
use crate::flush::wakeup::Wakeup;
use crate::flush::watchdog::FlushWatchdog;
use crate::format::LOCK;
use crate::fs::{Context, Fs, Guarded, LockGuard, make_directories, parent};
use crate::index::KeyIndex;
use crate::live::Live;
use crate::log::commit_log::CommitLog;
use crate::log::nul_records::NulRecords;
use crate::maintenance::{self, MaintenanceTask};
use crate::message::{Arrival, Batch, Message, Stored};
use crate::options::{FlushDiskType, Options};
use crate::query::{Boundary, Found, Get, Got, KeyQuery};
use crate::queue::deleted_topics::DeletedTopics;
use crate::queue::ext::ConsumeQueueExt;
use crate::queue::manifest::{Compared, QueueManifest};
use crate::queue::registry::{DiscoveredQueues, Queues};
use crate::recovery::pop;
use crate::recovery::unsupported_formats;
use crate::recovery::{Recovered, Recovery, find_lost};
use crate::retention::Disk;
use crate::stats::{Health, Stats};
use crate::sync::lock;
use bytes::Bytes;
use pyrmq_remoting::message::Durability;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

/// Called when messages became readable.
pub type OnArrival = dyn Fn(&Arrival<'_>) + Send + Sync;
/// Called with the outcome of a put of an append batch: a closure, or what has a memory of its own already.
pub trait OnStored {
    /// Where the message went, or why not. Whoever then waits until everything in front of a position is durable hands
    /// back what to call: as [`Store::when_durable`], when the batch is committed, or later.
    fn stored(self: Box<Self>, stored: Result<Stored, StoreError>) -> Option<(i64, OnDurable)>;
}

impl<F: FnOnce(Result<Stored, StoreError>) -> Option<(i64, OnDurable)>> OnStored for F {
    fn stored(self: Box<Self>, stored: Result<Stored, StoreError>) -> Option<(i64, OnDurable)> {
        self(stored)
    }
}

/// Called while an inline fsync is slow.
pub type OnSlowFlush = dyn Fn() + Send + Sync;
/// Called once when messages are durable, or are known not to be.
pub type OnDurable = BoxedCallback<StoreError>;

/// A message log in a directory. All methods may be called from any thread.
///
/// Dropping it closes it; [`Store::close`] also tells whether that went well.
#[derive(Debug)]
pub struct Store {
    engine: Arc<Engine>,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    threads: Vec<JoinHandle<()>>,
    lock: Option<Box<dyn LockGuard>>,
}

impl Store {
    /// Loads, recovers, and starts the store's threads.
    pub fn open(options: Options, fs: Arc<dyn Fs>) -> Result<Arc<Self>, StoreError> {
        let store = Self::open_without_threads(options, fs)?;
        lock(&store.running).threads = maintenance::start(&store.engine)?;
        Ok(store)
    }

    /// As [`Store::open`], without threads: nothing happens by itself, the caller says with [`Store::run`] what is to
    /// be done and when. For tests that replay a run exactly.
    pub fn open_without_threads(options: Options, fs: Arc<dyn Fs>) -> Result<Arc<Self>, StoreError> {
        options.validate()?;
        let failure = Arc::new(Failure::default());
        let fs: Arc<dyn Fs> = Arc::new(Guarded::new(fs, Arc::clone(&failure)));
        let root = options.root.clone();
        unsupported_formats::refuse(fs.as_ref(), &root, &options.timer)?;
        pop::refuse(fs.as_ref(), &root)?;
        let guard = take_lock(fs.as_ref(), &root)?;
        let log_directory = options.commit_log_dir();
        make_directories(fs.as_ref(), &log_directory)
            .map_err(|error| not_writable(&log_directory, &error))?;
        let last_stop = LastStop::look(fs.as_ref(), &root)?;
        let log = CommitLog::load(&fs, &options, failure)?;
        let (queues, discovered) = Queues::look(&fs, root.clone(), options.queue_file_bytes, last_stop)?;
        let engine = Self::recover(options, fs, (log, queues, discovered), last_stop)?;
        let running = Running {
            threads: Vec::new(),
            lock: Some(guard),
        };
        Ok(Arc::new(Self {
            engine,
            running: Mutex::new(running),
        }))
    }

    fn recover(
        options: Options,
        fs: Arc<dyn Fs>,
        (log, queues, mut discovered): (CommitLog, Queues, DiscoveredQueues),
        mut last_stop: LastStop,
    ) -> Result<Arc<Engine>, StoreError> {
        let root = options.root.clone();
        let crashed = last_stop.is_crash();
        let checkpoint = Checkpoint::open(fs.as_ref(), &root, crashed)?;
        let times = checkpoint.times();
        // The lengths of all files are right: from here on something may change.
        mark_open(fs.as_ref(), &root, last_stop, options.queue_file_bytes)?;
        let nul_records = NulRecords::open(fs.as_ref(), &root, crashed)?;
        let mut manifest = QueueManifest::open(fs.as_ref(), &root)?;
        let mut deleted = DeletedTopics::open(fs.as_ref(), &root, checkpoint.is_trusted(crashed), crashed)?;
        let is_ours = checkpoint.is_ours();
        if !is_ours && times != Times::default() {
            // Another broker or an older version of ours wrote last. It made no notes, but may have left our abort
            // file.
            last_stop = last_stop.without_notes();
        }
        let found = (&log, &queues, &mut discovered);
        let recovered = Self::recover_files(
            &options,
            fs.as_ref(),
            found,
            (&checkpoint, &nul_records),
            (&deleted, &manifest),
            last_stop,
        );
        if recovered.is_err() && !crashed {
            // The stop before was a clean one, and this start changed nothing: the next one must see the same.
            mark_closed(fs.as_ref(), &root)?;
        }
        let (recovered, is_wrong) = recovered?;
        // Where another broker stopped, a replay changed queues, or nothing says what there is, it is written anew.
        let says_all = !crashed && is_ours && recovered.replayed == 0 && !recovered.rebuilt;
        manifest.settle(fs.as_ref(), says_all, is_wrong)?;
        manifest.is_undurable = crashed && queues.count() > 0;
        sync_names(fs.as_ref(), &root, log.directory())?;
        deleted.settle(fs.as_ref(), log.start(), log.appended())?;
        if !crashed {
            // A clean stop left everything durable, whatever the other broker wrote here.
            checkpoint.update(|times| {
                times.physic_ms = times.physic_ms.max(recovered.last_store_ms);
                times.log = recovered.last;
                times.queues = Mark::default();
                if recovered.replayed == 0 && !recovered.rebuilt {
                    times.logics_ms = times.logics_ms.max(times.physic_ms);
                    times.queues = recovered.last;
                }
            });
        }
        Self::say_recovered(&options, fs.as_ref(), (&log, &nul_records), last_stop)?;
        let (index, index_from) = if options.index {
            let index = KeyIndex::load(&fs, &options, crashed, times.index_ms, log.appended())?;
            let from = index.resume_at(&log)?;
            (Some(index), from)
        } else {
            (None, 0)
        };
        let newest_ms = times.physic_ms.max(times.logics_ms);
        let readable = AtomicI64::new(log.flushed());
        let engine = Arc::new(Engine {
            deleted: Mutex::new(deleted),
            cleaning: Mutex::new(log.start()),
            manifest: Mutex::new(manifest),
            append: Mutex::new(Append::new(&log, &recovered, newest_ms, index.is_none())),
            live: Live::new(&options),
            options,
            fs,
            log,
            queues,
            extended: ConsumeQueueExt::new(&root),
            index,
            checkpoint,
            nul_records,
            group_commit: GroupCommit::default(),
            readable,
            indexing: Mutex::default(),
            index_from: AtomicI64::new(index_from),
            index_wakeup: Wakeup::default(),
            maintenance_wakeup: Wakeup::default(),
            segment_wakeup: Wakeup::default(),
            timeout_wakeup: Wakeup::default(),
            requested_segment: AtomicI64::new(-1),
            disk: Disk::default(),
            stall: Stall::default(),
            noted_unsure: AtomicBool::new(false),
            flow_control: FlowControl::default(),
            behind: AtomicI64::new(0),
            buffers: Arc::default(),
            listener: OnceLock::new(),
            watchdog: FlushWatchdog::default(),
            on_slow_flush: OnceLock::new(),
            closed: AtomicBool::new(false),
            crashed,
            queues_damaged: AtomicBool::new(false),
            counts: Counts::default(),
            flushes: AtomicU64::new(0),
            got_messages: AtomicU64::new(0),
            got_bytes: AtomicU64::new(0),
            deleted_files: AtomicU64::new(0),
        });
        engine.look_at_disk()?;
        engine.catch_up_if_near()?;
        Ok(engine)
    }

    /// Says in the abort file that the log is recovered.
    fn say_recovered(
        options: &Options,
        fs: &dyn Fs,
        (log, nul_records): (&CommitLog, &NulRecords),
        last_stop: LastStop,
    ) -> Result<(), StoreError> {
        nul_records.forget_found();
        let end = log.appended();
        let said = last_stop.abort();
        let is_read_durable = last_stop.is_crash() && options.flush == FlushDiskType::Sync;
        if is_read_durable || said.unsure_from.is_some() {
            // What was written again is durable first, and with SYNC_FLUSH what is readable.
            nul_records.sync(fs)?;
            log.sync_to(end)?;
        }
        let notes_from = said.notes_from.map_or(end, |from| from.min(end));
        mark_recovered(fs, &options.root, options.queue_file_bytes, notes_from)
    }

    /// Recovers log and queues. Says also whether `queueEnds` is wrong then.
    fn recover_files(
        options: &Options,
        fs: &dyn Fs,
        (log, queues, discovered): (&CommitLog, &Queues, &mut DiscoveredQueues),
        (checkpoint, nul_records): (&Checkpoint, &NulRecords),
        notes: (&DeletedTopics, &QueueManifest),
        last_stop: LastStop,
    ) -> Result<(Recovered, bool), StoreError> {
        let (deleted, manifest) = (&notes.0.positions, notes.1);
        queues.finish_deletions(discovered, deleted)?;
        let lost = |discovered: &DiscoveredQueues| {
            let is_crash = last_stop.is_crash();
            match is_crash.then(|| find_lost(fs, &options.root, (queues, discovered), deleted, manifest)) {
                Some(Compared::Short(topic, queue)) => Some((topic, queue)),
                _ => None,
            }
        };
        let lost_before = lost(discovered).filter(|_| checkpoint.is_ours());
        if let Some((topic, queue)) = &lost_before {
            tracing::warn!(
                topic,
                queue,
                "a file is missing since the crash: queues are built again"
            );
            // Mended, they would look whole to the next start if this one is interrupted.
            discovered.distrust_short();
        }
        let found = (log, queues, &*discovered, lost_before.is_some());
        let marks = (checkpoint, nul_records);
        let recovered = Self::recover_log(options, fs, found, marks, notes, last_stop)?;
        Ok((recovered, recovered.rebuilt || lost(discovered).is_some()))
    }

    fn recover_log(
        options: &Options,
        fs: &dyn Fs,
        (log, queues, discovered, is_lost): (&CommitLog, &Queues, &DiscoveredQueues, bool),
        (checkpoint, nul_records): (&Checkpoint, &NulRecords),
        (deleted, manifest): (&DeletedTopics, &QueueManifest),
        last_stop: LastStop,
    ) -> Result<Recovered, StoreError> {
        let is_crash = last_stop.is_crash();
        let mut recovery = Recovery {
            fs,
            options,
            log,
            queues,
            checkpoint,
            times: checkpoint.times(),
            last_stop,
            must_rebuild: queues.load(discovered, is_crash)? || is_lost,
            discovered,
            nul_records,
            deleted: &deleted.positions,
            knows_deletions: checkpoint.is_trusted(is_crash),
        };
        if is_crash && log.start() == 0 && queues.any_begins_late() {
            // Nothing went by age yet. After a clean stop `queueEnds` knows.
            tracing::warn!("the oldest file of a queue is missing: queues are built again");
            recovery.must_rebuild = true;
        }
        if !is_crash && !recovery.must_rebuild {
            let short = match manifest.find_short(log.start(), queues) {
                Compared::Whole => None,
                Compared::Short(topic, queue) => Some((topic, queue)),
                Compared::Unknown => recovery.spot_check(i64::MAX).run()?,
            };
            if let Some((topic, queue)) = short {
                tracing::warn!(
                    topic,
                    queue,
                    "units are missing since the last stop: queues are built again"
                );
                recovery.must_rebuild = true;
            }
        }
        let recovered = recovery.run()?;
        log.mend()?;
        Ok(recovered)
    }

    /// Does one piece of the work that the store's threads do; for a store without threads.
    pub fn run(&self, task: MaintenanceTask) -> Result<(), StoreError> {
        self.engine.run(task)
    }

    /// Sets who is told of readable messages; once, before the first message. Later calls do nothing. The listener runs
    /// on the putting thread (or on the flushing one with `SYNC_FLUSH`) and must be quick.
    pub fn on_arrival(&self, listener: Arc<OnArrival>) {
        if self.engine.listener.set(listener).is_err() {
            tracing::warn!("a second arrival listener was ignored");
        }
    }

    /// Sets who is told, every 10 ms, while [`Store::commit_batch`] holds its thread up because the disk hangs: whoever
    /// waits behind that thread can be helped then. Once; later calls do nothing.
    pub fn on_slow_flush(&self, callback: Arc<OnSlowFlush>) {
        if self.engine.on_slow_flush.set(callback).is_err() {
            tracing::warn!("a second listener for a disk that hangs was ignored");
        }
    }

    /// Stores one message: it is in the page cache when this returns.
    pub fn put(&self, message: &Message<'_>) -> Result<Stored, StoreError> {
        self.engine.put(message)
    }

    /// As [`Store::put`], for a message that this store has taken before and puts into another queue: the size was
    /// allowed then, so today's `maxMessageSize` does not count.
    pub fn put_accepted(&self, message: &Message<'_>) -> Result<Stored, StoreError> {
        self.engine.put_accepted(message)
    }

    /// Stores a batch as consecutive records of one file.
    pub fn put_batch(&self, batch: &Batch<'_>) -> Result<Stored, StoreError> {
        self.engine.put_batch(batch)
    }

    /// As [`Store::put`], as a part of an append batch: several calls of one thread that end with
    /// [`Store::commit_batch`] on it. All of them go into the log in one write there, or before once they are many
    /// bytes, and are told of in their order.
    pub fn stage(&self, message: &Message<'_>, done: Box<dyn OnStored>) {
        batch::stage(&self.engine, done, |append_buffer| {
            self.engine.encode(append_buffer, message)
        });
    }

    /// As [`Store::put_batch`], as a part of an append batch.
    pub fn stage_batch(&self, batch: &Batch<'_>, done: Box<dyn OnStored>) {
        batch::stage(&self.engine, done, |append_buffer| {
            self.engine.encode_batch(append_buffer, batch)
        });
    }

    /// Commits the append batch: writes what its puts brought. Where somebody waits for the disk, no fsync is under way
    /// and fsyncs are quick, this thread does the fsync for all who wait, and answers them before it returns; otherwise
    /// it is left to who does that now or to the thread of the store, as it is when nobody waits.
    pub fn commit_batch(&self) {
        batch::commit_staged(&self.engine);
        self.engine.commit_batch();
    }

    /// Calls back when everything in front of `position` is durable, with the error of the fsync or a timeout else. The
    /// call comes from another thread, or from this one when nothing is left to do.
    pub fn when_durable(&self, position: i64, done: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        self.engine.when_durable(position, Box::new(done));
    }

    /// Calls back when everything in front of `position` has reached a level: at once for [`Durability::Memory`], as
    /// [`Store::when_durable`] for [`Durability::Local`].
    pub fn when_reached(
        &self,
        position: i64,
        level: Durability,
        done: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) {
        match level {
            Durability::Memory => done(Ok(())),
            Durability::Local => self.when_durable(position, done),
        }
    }

    /// Makes everything durable that was stored before the call, and returns when it is. What is written elsewhere and
    /// says how far messages were handled comes after this: a power loss must not keep it and take the messages.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.engine.check_open()?;
        self.engine.log.failure.check()?;
        self.engine.flush_round()
    }

    /// What everything in front of a position has reached.
    pub fn durability(&self, position: i64) -> Durability {
        if position <= self.engine.log.flushed() {
            Durability::Local
        } else {
            Durability::Memory
        }
    }

    /// Reads messages of a queue.
    pub fn get(&self, request: &Get<'_>) -> Result<Got, StoreError> {
        self.engine.get(request)
    }

    /// As [`Store::get`], but only from memory: `None` where the disk is needed. Where [`Store::knows_cached`] is false
    /// it may wait all the same.
    pub fn get_cached(&self, request: &Get<'_>) -> Result<Option<Got>, StoreError> {
        self.engine.get_cached(request)
    }

    /// Whether the file system can say what of a file is in memory.
    pub fn knows_cached(&self) -> bool {
        self.engine.fs.knows_cached()
    }

    /// The record that begins at a position, if one does.
    pub fn record_at(&self, physical_offset: i64) -> Result<Option<Bytes>, StoreError> {
        self.engine.record_at(physical_offset)
    }

    /// As [`Store::record_at`], but only what readers may see: with `SYNC_FLUSH` nothing that is not durable.
    pub fn readable_at(&self, physical_offset: i64) -> Result<Option<Bytes>, StoreError> {
        self.engine.readable_at(physical_offset)
    }

    /// The records at these positions, in this order, with their sizes as they are; `None` when one of them is not
    /// there.
    pub fn records_at(&self, places: &[(i64, i32)]) -> Result<Option<Bytes>, StoreError> {
        self.engine.records_at(places)
    }

    /// Index of the oldest message of a queue; 0 when there is no such queue.
    pub fn min_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.engine
            .queues
            .get(topic, queue_id)
            .map_or(0, |queue| queue.min())
    }

    /// Index behind the newest readable message of a queue; 0 when there is no such queue.
    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.engine
            .queues
            .get(topic, queue_id)
            .map_or(0, |queue| queue.end())
    }

    /// The index of the message at a time; behind the newest message for a time after it.
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<i64, StoreError> {
        self.engine
            .offset_by_time(topic, queue_id, timestamp_ms, boundary)
    }

    /// When the message at an index was stored, ms.
    pub fn store_time(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        self.engine.store_time(topic, queue_id, queue_offset)
    }

    /// When the oldest message of a queue was stored, ms.
    pub fn earliest_time(&self, topic: &str, queue_id: i32) -> Result<Option<i64>, StoreError> {
        self.engine
            .store_time(topic, queue_id, self.min_offset(topic, queue_id))
    }

    /// Searches by key.
    pub fn query(&self, query: &KeyQuery<'_>) -> Result<Found, StoreError> {
        self.engine.query(query)
    }

    /// Forgets a topic's queues and deletes their files, durably. Its records stay until their segments go, without a
    /// queue.
    pub fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.engine.delete_topic(topic)
    }

    /// All topics that have queues, with the queues' ids, sorted.
    pub fn topics(&self) -> Vec<(String, Vec<i32>)> {
        self.engine.queues.topics()
    }

    /// Deletes segments that are old enough now, whatever the hour. Says how many files went.
    pub fn delete_expired(&self) -> Result<u64, StoreError> {
        self.engine.check_open()?;
        self.engine.clean(true)
    }

    /// The settings at the start; [`Store::live`] has the values of those that may have changed since.
    pub fn options(&self) -> &Options {
        &self.engine.options
    }

    /// The values in force of the settings that may change.
    pub fn live(&self) -> &Live {
        &self.engine.live
    }

    /// Applies those of these settings that are in [`Live`]; all others stay as they are. With a change from
    /// `ASYNC_FLUSH` to `SYNC_FLUSH` everything that was stored before is durable when this returns.
    pub fn reconfigure(&self, options: &Options) -> Result<(), StoreError> {
        options.validate()?;
        let _one_at_a_time = lock(&self.running);
        self.engine.check_open()?;
        // What failed to become durable must not become readable because the flush type changes.
        self.engine.log.failure.check()?;
        let is_change = options.flush != self.engine.live.flush();
        self.engine.reconfigure(options);
        if is_change {
            self.engine.flush_round()?;
        }
        self.engine.look_at_disk()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let engine = &self.engine;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            messages_put: count(&engine.counts.messages),
            bytes_put: count(&engine.counts.bytes),
            writes: count(&engine.counts.writes),
            flushes: engine.flushes.load(Ordering::Relaxed),
            messages_got: engine.got_messages.load(Ordering::Relaxed),
            bytes_got: engine.got_bytes.load(Ordering::Relaxed),
            keys_indexed: engine.index.as_ref().map_or(0, KeyIndex::added),
            files_deleted: engine.deleted_files.load(Ordering::Relaxed),
        }
    }

    /// Descriptors that the store must find free, whoever else opens files and connections in this process: for what it
    /// keeps open but has not opened yet, and for what it opens for a moment.
    pub fn reserved_descriptors(&self) -> usize {
        let kept = self.engine.queues.spare_handles() + self.engine.log.spare_handles();
        Shares::of_process().others + kept
    }

    /// True when a write or an fsync has failed: nothing more is taken until a restart.
    pub fn has_failed(&self) -> bool {
        self.engine.log.failure.is_set()
    }

    /// The state of the store.
    pub fn health(&self) -> Health {
        let engine = &self.engine;
        let dispatch_behind_bytes = engine.behind();
        let refused = engine
            .disk
            .check(&engine.live, engine.log.directory())
            .and_then(|()| engine.stall.check());
        let refused = refused.err().map(|error| error.to_string());
        Health {
            min_physical_offset: engine.log.start(),
            max_physical_offset: engine.log.appended(),
            flushed_offset: engine.log.flushed(),
            dispatch_behind_bytes,
            disk_ratio: engine.disk.ratio(),
            disk_free_bytes: engine.disk.free(),
            read_only: engine.log.failure.reason().or(refused),
            has_failed: engine.log.failure.reason().is_some(),
            durability: engine.live.flush().durability(),
            queues: engine.queues.count(),
            busy: engine.busy_counts(),
            recovered_from_crash: engine.crashed,
        }
    }

    /// Flushes everything and marks the stop as clean. May be called again. After a failed write the stop is not clean,
    /// so that the next start looks closely.
    pub fn close(&self) -> Result<(), StoreError> {
        let mut running = lock(&self.running);
        let Some(guard) = running.lock.take() else {
            return Ok(());
        };
        let engine = &self.engine;
        {
            let _no_put_is_under_way = lock(&engine.append);
            engine.closed.store(true, Ordering::Release);
        }
        let alarms = [
            &engine.group_commit.wakeup,
            &engine.index_wakeup,
            &engine.maintenance_wakeup,
            &engine.segment_wakeup,
            &engine.timeout_wakeup,
        ];
        for wakeup in alarms {
            wakeup.stop();
        }
        for thread in running.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
        let result = self.finish();
        engine.group_commit.waiters.fail(&StoreError::Closed);
        drop(guard);
        result
    }

    fn finish(&self) -> Result<(), StoreError> {
        let engine = &self.engine;
        engine.flush_round()?;
        engine.log.failure.check()?;
        engine.catch_up_at_close()?;
        engine.index_round()?;
        if let Some(index) = &engine.index
            && let Some(durable_ms) = index.sync()?
        {
            engine.checkpoint.update(|times| times.index_ms = durable_ms);
        }
        engine.sync_queues(true)?;
        if engine.queues_damaged.load(Ordering::Acquire) {
            // Not a clean stop: the next start is told that no queue is durable.
            engine.checkpoint.update(Times::distrust_queues);
            return engine.checkpoint.save();
        }
        mark_closed(engine.fs.as_ref(), &engine.options.root)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the store could not be closed in order");
        }
    }
}

fn take_lock(fs: &dyn Fs, root: &Path) -> Result<Box<dyn LockGuard>, StoreError> {
    make_directories(fs, root).map_err(|error| not_writable(root, &error))?;
    let path = root.join(LOCK);
    fs.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked { path },
        _ => not_writable(&path, &error),
    })
}

/// Names that a killed process made may not be durable, and what follows trusts them: the segments in the log's
/// directory, that directory, the root.
fn sync_names(fs: &dyn Fs, root: &Path, log: &Path) -> Result<(), StoreError> {
    for directory in [log, parent(log), parent(root)] {
        match fs.sync_directory(directory) {
            // A directory above ours that we may not read was not made by us.
            Err(error) if directory != log && error.kind() == io::ErrorKind::PermissionDenied => {}
            done => done.at("flush", directory)?,
        }
    }
    Ok(())
}

fn not_writable(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory => StoreError::NotWritable {
            path: path.to_owned(),
            reason: error.to_string(),
        },
        _ => StoreError::io("create", path, error),
    }
}
