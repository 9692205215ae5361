//! The store's threads: one fsyncs the log, one makes segments ahead of time, one fills the key index, one does
//! maintenance, one answers waiters whose time is over.

use crate::engine::Engine;
use crate::error::StoreError;
use crate::flush::watchdog::Observed;
use crate::index::pending::{PendingKeys, RecordKeys};
use crate::index::{KeyIndex, MessageKeys, TopicKeys};
use crate::log::damage::record_behind;
use crate::log::reader::{LogReader, Step};
use crate::queue::manifest::QueueRange;
use crate::recovery::replay::end_of;
use crate::sync::lock;
use pyrmq_remoting::message::properties::names;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often waiting senders are looked after: a quarter of `syncFlushTimeout` within these.
const MIN_TIMEOUT_CHECK: Duration = Duration::from_millis(10);
const MAX_TIMEOUT_CHECK: Duration = Duration::from_secs(1);
/// How often queues are written.
const MAINTENANCE_TICK: Duration = Duration::from_millis(100);
/// How often the keys of new messages go to the index.
const INDEX_TICK: Duration = Duration::from_millis(100);
/// How often index files are written.
const INDEX_WRITE: Duration = Duration::from_secs(1);
/// How often quiet queues give back memory and files.
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);
/// Queues are fsynced this often, or when this many bytes of log would have to be read after a crash.
const QUEUE_SYNC: Duration = Duration::from_mins(1);
const QUEUE_SYNC_BYTES: i64 = 256 << 20;
/// After a round that failed, the next try comes after this time, and no sooner.
const SYNC_RETRY: Duration = Duration::from_secs(1);
/// Distance from the log's end at which the index thread lets puts hand over their keys and reads the rest.
const CATCH_UP_LAST: i64 = 64 << 10;
const CATCH_UP_BATCH: usize = 4096;
/// How long closing may go on filling the index.
const CATCH_UP_AT_CLOSE: Duration = Duration::from_secs(5);

/// How often the times of what is durable are written, if they have changed.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// How often the free space is looked at.
const DISK_CHECK: Duration = Duration::from_secs(1);

/// A piece of the work that the store's threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceTask {
    /// Fsync the log for all who wait.
    Flush,
    /// Make the next segment, if it is time.
    PrepareSegment,
    /// Bring units that are only in memory to the queues' files.
    WriteQueues,
    /// Fsync the queues and write the checkpoint.
    SyncQueues,
    /// Write the checkpoint.
    SaveCheckpoint,
    /// Bring keys to the index, from the log too.
    Index,
    /// Bring the index to its file.
    WriteIndex,
    /// Look at the free space and delete what is old.
    Clean,
    /// Give memory and files of quiet queues back.
    ReleaseIdle,
}

/// Starts the threads.
pub(crate) fn start(engine: &Arc<Engine>) -> Result<Vec<JoinHandle<()>>, StoreError> {
    let mut threads = Vec::new();
    let mut spawn = |name: &str, run: fn(&Engine)| {
        let engine = Arc::clone(engine);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&engine));
        match thread {
            Ok(thread) => {
                threads.push(thread);
                Ok(())
            }
            Err(error) => Err(StoreError::io("start a thread for", &no_path(), &error)),
        }
    };
    spawn("store-flush", flush)?;
    spawn("store-segment", prepare)?;
    spawn("store-timeouts", expire_waiters)?;
    spawn("store-upkeep", maintain)?;
    if engine.index.is_some() {
        spawn("store-index", index)?;
    }
    Ok(threads)
}

fn no_path() -> std::path::PathBuf {
    std::path::PathBuf::from("the store")
}

fn flush(engine: &Engine) {
    let interval = || Duration::from_millis(engine.live.flush_interval_ms());
    while engine.group_commit.wakeup.sleep(interval()) {
        if let Err(error) = engine.flush_round()
            && engine.log.failure.is_set()
        {
            // The failure is kept in the log and answers every put from now on.
            return engine.fail(&error);
        }
    }
}

fn prepare(engine: &Engine) {
    while engine.segment_wakeup.sleep(QUEUE_SYNC) {
        if let Err(error) = engine.prepare_segment() {
            tracing::error!(%error, "cannot make the next segment");
        }
    }
}

/// Answers waiters whose time is over, and reports a slow inline fsync. A thread of its own: when the disk hangs, all
/// others do.
fn expire_waiters(engine: &Engine) {
    let longest = || Duration::from_millis(engine.live.sync_flush_timeout_ms());
    let check_interval = || (longest() / 4).clamp(MIN_TIMEOUT_CHECK, MAX_TIMEOUT_CHECK);
    let mut observed = Observed::default();
    while engine
        .timeout_wakeup
        .sleep(engine.watchdog.tick(check_interval()))
    {
        engine.expire_waiters(longest());
        if engine.watchdog.check(&mut observed)
            && let Some(callback) = engine.on_slow_flush.get()
        {
            callback();
        }
    }
}

fn maintain(engine: &Engine) {
    let queue_tick = || Duration::from_millis(engine.live.flush_queue_interval_ms());
    let clean_tick = || Duration::from_millis(engine.live.clean_interval_ms());
    let start = Instant::now();
    let (mut written, mut released, mut synced, mut cleaned) = (start, start, start, start);
    let (mut saved, mut checked) = (start, start);
    let mut synced_at = engine.log.appended();
    while engine
        .maintenance_wakeup
        .sleep(MAINTENANCE_TICK.min(queue_tick()).min(clean_tick()))
    {
        if let Err(error) = engine.log.failure.check() {
            // Usually the thread that met the failure has answered the waiters already.
            engine.fail(&error);
            continue;
        }
        if written.elapsed() >= queue_tick().min(Duration::from_millis(200)) {
            drop(engine.write_queues());
            written = Instant::now();
        }
        if checked.elapsed() >= DISK_CHECK {
            if let Err(error) = engine.look_at_disk() {
                tracing::error!(%error, "cannot see how much space is free");
            }
            checked = Instant::now();
        }
        if saved.elapsed() >= CHECKPOINT {
            engine.note_failure("cannot write the checkpoint", engine.checkpoint.save_changed());
            saved = Instant::now();
        }
        if released.elapsed() >= RELEASE_INTERVAL {
            engine.queues.release_idle();
            released = Instant::now();
        }
        let since = synced.elapsed();
        let many = engine.log.flushed() - synced_at >= QUEUE_SYNC_BYTES && since >= SYNC_RETRY;
        if (since >= QUEUE_SYNC || many) && engine.log.flushed() > synced_at {
            let target = engine.log.flushed();
            let done = engine.sync_queues(false);
            synced = Instant::now();
            if done.is_ok() {
                synced_at = target;
            } else {
                // The clock may not reach back so far just after the machine's start.
                synced = synced
                    .checked_sub(QUEUE_SYNC.saturating_sub(SYNC_RETRY))
                    .unwrap_or(synced);
            }
        }
        if cleaned.elapsed() >= clean_tick() {
            if let Err(error) = engine.clean(false) {
                tracing::error!(%error, "cannot delete old files");
            }
            cleaned = Instant::now();
        }
    }
}

impl Engine {
    /// Notes a failure outside of the append path: what cannot be written to queues or index would be missed by
    /// readers.
    pub(crate) fn note_failure(&self, what: &str, result: Result<(), StoreError>) {
        let Err(error) = result else { return };
        if error.is_passing() && !self.log.failure.is_set() {
            // Nothing is lost: what could not be written is still in memory or in the log.
            tracing::warn!(%error, "{what}, will try again");
            return self.note_full(&error);
        }
        tracing::error!(%error, "{what}");
        self.fail(&error);
    }

    /// Notes that a consume queue could not be written: no put is let in until all of them can be.
    pub(crate) fn note_unwritten(&self, error: StoreError) {
        if error.is_passing() && !self.log.failure.is_set() {
            return self.stall.begin(&error);
        }
        self.note_failure("cannot write consume queues", Err(error));
    }

    /// Writes the units that are only in memory.
    pub(crate) fn write_queues(&self) -> Result<(), StoreError> {
        let done = self.queues.write_out();
        match &done {
            Ok(()) => self.stall.end(),
            Err(error) => self.note_unwritten(error.clone()),
        }
        done
    }

    /// Does one piece of work.
    pub(crate) fn run(&self, task: MaintenanceTask) -> Result<(), StoreError> {
        self.check_open()?;
        self.log.failure.check()?;
        let done = match task {
            MaintenanceTask::Flush => return self.flush_round(),
            MaintenanceTask::PrepareSegment => return self.prepare_segment(),
            MaintenanceTask::WriteQueues => return self.write_queues(),
            MaintenanceTask::SyncQueues => return self.sync_queues(false),
            MaintenanceTask::SaveCheckpoint => self.checkpoint.save_changed(),
            MaintenanceTask::Index => self.catch_up().and_then(|_| self.index_round()),
            MaintenanceTask::WriteIndex => self.index.as_ref().map_or(Ok(()), KeyIndex::write_out),
            MaintenanceTask::Clean => return self.clean(false).map(drop),
            MaintenanceTask::ReleaseIdle => {
                self.queues.release_idle();
                Ok(())
            }
        };
        self.note_failure("maintenance failed", done.clone());
        done
    }

    /// Fsyncs the queues and says so in the checkpoint. At the end exactly how far each queue reaches is noted. A
    /// failure is noted.
    pub(crate) fn sync_queues(&self, is_end: bool) -> Result<(), StoreError> {
        let done = self.try_sync_queues(is_end);
        self.note_failure("cannot flush consume queues", done.clone());
        done
    }

    fn try_sync_queues(&self, is_end: bool) -> Result<(), StoreError> {
        // Everything that old is in the queues' memory at least.
        let before = self.checkpoint.times();
        self.sync_queue_files(is_end)?;
        self.checkpoint.update(|times| {
            // A time from before the clock went back says nothing about what came after.
            if times.clock_regressions == before.clock_regressions {
                times.logics_ms = times.logics_ms.max(before.physic_ms);
            }
            times.queues = before.log;
        });
        self.checkpoint.save()
    }

    /// Fsyncs the queues and notes which files there are now.
    fn sync_queue_files(&self, is_end: bool) -> Result<(), StoreError> {
        // To the end: who notes something later has seen more.
        let mut manifest = lock(&self.manifest);
        let log = (self.log.start(), self.log.appended());
        let says_all = manifest.says_all();
        let made = self.queues.sync().inspect_err(|_| manifest.distrust())?;
        if says_all && !is_end {
            return if made.is_empty() {
                Ok(())
            } else {
                manifest.add(log, &made)
            };
        }
        if manifest.is_undurable {
            if !self.queues.sync_file_system()? && !is_end {
                // Nothing is noted before the next clean stop.
                return Ok(());
            }
            manifest.is_undurable = false;
        }
        manifest.write(self.fs.as_ref(), log, &self.queues.range())
    }

    /// Makes the units of all records in front of a position durable, so that the records may go: the queues' files are
    /// then what tells where a queue goes on. Most of the time they are. Where the disk is full, what came behind the
    /// position and the notes about it may stay unwritten: what is to be deleted makes the space for them.
    pub(crate) fn make_queues_durable(&self, end: i64) -> Result<(), StoreError> {
        if self.checkpoint.times().queues.end >= end {
            return Ok(());
        }
        match self.sync_queues(false) {
            Err(error) if error.is_passing() && !self.log.failure.is_set() => {}
            done => return done,
        }
        let mut manifest = lock(&self.manifest);
        if manifest.is_undurable {
            if !self.queues.sync_file_system()? {
                return Err(StoreError::io(
                    "flush",
                    &self.options.root,
                    &ErrorKind::Unsupported.into(),
                ));
            }
            manifest.is_undurable = false;
        }
        manifest.distrust();
        self.queues.sync_in_front_of(end)
    }

    /// Notes that files of queues are about to be deleted.
    pub(crate) fn note_ranges(&self, left: &[QueueRange]) -> Result<(), StoreError> {
        lock(&self.manifest).add((self.log.start(), self.log.appended()), left)
    }

    /// Reads the log from where the index ends. True when the index thread may go on with what puts hand over.
    fn catch_up(&self) -> Result<bool, StoreError> {
        while !self.closed.load(Ordering::Acquire) {
            if lock(&self.append).index_direct {
                return Ok(true);
            }
            let from = self.index_from.load(Ordering::Relaxed).max(self.log.start());
            let target = self.log.appended();
            if target - from <= CATCH_UP_LAST {
                return self.catch_up_last(from);
            }
            self.index_range(from, target, || self.closed.load(Ordering::Acquire))?;
        }
        Ok(false)
    }

    /// Reads what is left, and lets puts hand over the keys of what comes behind it. True when that went well.
    fn catch_up_last(&self, from: i64) -> Result<bool, StoreError> {
        // To the end: the keys that are handed over from now on come behind these.
        let _indexing = lock(&self.indexing);
        let target = {
            let mut append = lock(&self.append);
            append.index_direct = true;
            self.log.appended()
        };
        let read = self.index_range(from, target, || self.closed.load(Ordering::Acquire));
        if !matches!(&read, Ok(done) if *done >= target) {
            let mut append = lock(&self.append);
            append.index_direct = false;
            append.index.clear();
        }
        Ok(read? >= target)
    }

    /// Reads what little the index lacks when the store opens, so that keys are found at once.
    pub(crate) fn catch_up_if_near(&self) -> Result<(), StoreError> {
        let lacks = self.log.appended() - self.index_from.load(Ordering::Relaxed).max(self.log.start());
        if lacks > CATCH_UP_LAST {
            return Ok(());
        }
        match self.catch_up() {
            Err(error) if !error.is_passing() => Err(error),
            _ => self.log.failure.check(),
        }
    }

    /// Brings the index to the log's end when the store closes before its thread was there, so that a Java broker finds
    /// every key. What takes longer than `CATCH_UP_AT_CLOSE` is left to the next opening.
    pub(crate) fn catch_up_at_close(&self) -> Result<(), StoreError> {
        if lock(&self.append).index_direct {
            return Ok(());
        }
        let begin = Instant::now();
        let from = self.index_from.load(Ordering::Relaxed).max(self.log.start());
        self.index_range(from, self.log.appended(), || begin.elapsed() >= CATCH_UP_AT_CLOSE)
            .map(drop)
    }

    /// Reads a range of the log for the index. Says up to where that went.
    fn index_range(&self, from: i64, target: i64, stop: impl Fn() -> bool) -> Result<i64, StoreError> {
        let Some(index) = &self.index else {
            return Ok(target);
        };
        let mut reader = LogReader::new(&self.log, from, false);
        let (mut waiting, mut hashes) = (PendingKeys::default(), Vec::new());
        let mut done = from;
        while done < target && !stop() {
            match reader.step()? {
                Step::Record(record) => {
                    let [unique_key, keys, tag] =
                        record
                            .properties
                            .get_many([names::UNIQ_KEY, names::KEYS, names::TAGS]);
                    let keys = MessageKeys {
                        unique_key,
                        keys,
                        tag,
                    };
                    hashes.clear();
                    TopicKeys::new(record.topic, record.sys_flag).hashes(&keys, |hash| hashes.push(hash));
                    let of_record = RecordKeys::new(0, hashes.len());
                    waiting.add(
                        record.physical_offset,
                        record.store_timestamp_ms,
                        &[of_record],
                        &hashes,
                    );
                    done = end_of(&record);
                }
                Step::End(_) => {
                    done = self.index_goes_on(reader.position(), target)?;
                    reader = LogReader::new(&self.log, done, false);
                }
            }
            if waiting.len() >= CATCH_UP_BATCH || done >= target {
                if let Some(full_ms) = index.add(&waiting)? {
                    self.checkpoint.update(|times| times.index_ms = full_ms);
                    self.checkpoint.save()?;
                }
                waiting.clear();
                self.index_from.store(done, Ordering::Relaxed);
            }
        }
        Ok(done)
    }

    /// Where the records go on that the index lacks, where none is to be read at a position.
    fn index_goes_on(&self, position: i64, target: i64) -> Result<i64, StoreError> {
        let start = self.log.start();
        if position >= target || position < start {
            // The end, behind a blank record; or retention was faster.
            return Ok(start.max(position).min(target));
        }
        let next = record_behind(&self.log, position, |_, _| true)?.map_or(target, |next| next.min(target));
        tracing::warn!(
            position,
            next,
            "the commit log is damaged: what lies there is not in the key index"
        );
        Ok(next)
    }
}

fn index(engine: &Engine) {
    let mut written = Instant::now();
    loop {
        // At the beginning, and again after a round that failed.
        match engine.catch_up() {
            Ok(true) => engine.note_failure("cannot fill the key index", engine.index_round()),
            Ok(false) => return,
            Err(error) => engine.note_failure("cannot read the log for the key index", Err(error)),
        }
        if engine.log.failure.is_set() {
            return;
        }
        if written.elapsed() >= INDEX_WRITE
            && let Some(index) = &engine.index
        {
            engine.note_failure("cannot write the key index", index.write_out());
            written = Instant::now();
        }
        if !engine.index_wakeup.sleep(INDEX_TICK) {
            return;
        }
    }
}
