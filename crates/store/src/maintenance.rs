//! The store's threads: one fsyncs the log, one creates segments ahead of time, one fills the key index, one writes the
//! consume queues, one does other maintenance, one answers waiters that have timed out.

use crate::append::appender::Appender;
use crate::dispatch::indexing::Indexing;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::flush::Flusher;
use crate::flush::watchdog::Observed;
use crate::log::head_check::HeadCheck;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bounds of the interval between checks of waiting senders, which is a quarter of `syncFlushTimeout`.
const MIN_TIMEOUT_CHECK: Duration = Duration::from_millis(10);
const MAX_TIMEOUT_CHECK: Duration = Duration::from_secs(1);
/// A write that has held the append lock for this long is reported.
const STUCK_WRITE_MS: u64 = 10;
/// How often that is checked while there are writes, and number of checks without a write after which that ends.
const WRITE_CHECK: Duration = Duration::from_millis(10);
const QUIET_WRITE_CHECKS: u32 = 100;
/// How often the thread checks for due tasks.
const MAINTENANCE_TICK: Duration = Duration::from_millis(100);
/// Queues are written as often as `flushIntervalConsumeQueue` says, and at least this often.
const MAX_QUEUE_TICK: Duration = Duration::from_millis(200);
/// How often the keys of new messages go to the index.
const INDEX_TICK: Duration = Duration::from_millis(100);
/// How often index files are written.
const INDEX_WRITE: Duration = Duration::from_secs(1);
/// How often idle queues release memory and files.
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);
/// Queues are fsynced this often, or when this many bytes of log would have to be read after a crash.
const QUEUE_SYNC: Duration = Duration::from_mins(1);
const QUEUE_SYNC_BYTES: i64 = 256 << 20;
/// Minimum time between a failed round and the next attempt.
const SYNC_RETRY: Duration = Duration::from_secs(1);
/// How often the checkpoint is written if its times have changed.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// How often the hot window moves.
const DROP_INTERVAL: Duration = Duration::from_millis(150);
/// How often the free space is checked.
const DISK_CHECK: Duration = Duration::from_secs(1);

/// A task of the store's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceTask {
    /// Fsync the log for all waiters.
    Flush,
    /// Make the next segment, if it is time.
    PrepareSegment,
    /// Write units that are only in memory to the queues' files.
    WriteQueues,
    /// Fsync the queues and write the checkpoint.
    SyncQueues,
    /// Write the checkpoint.
    SaveCheckpoint,
    /// Add keys to the index, including those read from the log.
    Index,
    /// Write the index to its files.
    WriteIndex,
    /// Check the free space and delete old files.
    Clean,
    /// Release memory and files of idle queues.
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
    spawn("store-flush", |engine| flush(&engine.flusher))?;
    spawn("store-segment", |engine| prepare(&engine.appender))?;
    spawn("store-timeouts", expire_waiters)?;
    spawn("store-queues", write_queues)?;
    spawn("store-upkeep", maintain)?;
    if engine.indexing.index.is_some() {
        spawn("store-index", |engine| index(&engine.indexing))?;
    }
    Ok(threads)
}

fn no_path() -> std::path::PathBuf {
    std::path::PathBuf::from("the store")
}

fn flush(flusher: &Flusher) {
    let interval = || Duration::from_millis(flusher.shared.live.flush_interval_ms());
    while flusher.shared.group_commit.wakeup.sleep(interval()) {
        if let Err(error) = flusher.flush_round()
            && flusher.shared.log.failure.is_set()
        {
            // The failure is recorded and answers every put from now on.
            return flusher.shared.state.fail(&error);
        }
    }
}

fn prepare(appender: &Appender) {
    while appender.segment_wakeup.sleep(QUEUE_SYNC) {
        if let Err(error) = appender.prepare_segment() {
            tracing::error!(%error, "cannot create the next segment");
        }
    }
}

/// Answers waiters that have timed out, and reports a slow inline fsync or a write that hangs. It has its own thread,
/// because all others block when the disk hangs.
fn expire_waiters(engine: &Engine) {
    let (flusher, flow_control) = (&engine.flusher, &engine.appender.flow_control);
    let longest = || Duration::from_millis(flusher.shared.live.sync_flush_timeout_ms());
    let check_interval = || (longest() / 4).clamp(MIN_TIMEOUT_CHECK, MAX_TIMEOUT_CHECK);
    let mut observed = Observed::default();
    let (mut writes, mut quiet_checks) = (0, 0);
    let mut tick = || {
        let now = engine.appender.counts.writes.load(Ordering::Relaxed);
        let is_quiet = now == writes && flow_control.held_ms() == 0;
        quiet_checks = if is_quiet { quiet_checks + 1 } else { 0 };
        writes = now;
        let tick = flusher.watchdog.tick(check_interval());
        if quiet_checks < QUIET_WRITE_CHECKS {
            tick.min(WRITE_CHECK)
        } else {
            tick
        }
    };
    while flusher.timeout_wakeup.sleep(tick()) {
        flusher.expire_waiters(longest());
        let is_write_stuck = flow_control.held_ms() >= STUCK_WRITE_MS;
        if (flusher.watchdog.check(&mut observed) || is_write_stuck)
            && let Some(callback) = flusher.shared.listeners.slow_flush()
        {
            callback();
        }
    }
}

/// Runs one task.
pub(crate) fn run(engine: &Engine, task: MaintenanceTask) -> Result<(), StoreError> {
    engine.shared.state.check_sound()?;
    let done = match task {
        MaintenanceTask::Flush => return engine.flusher.flush_round(),
        MaintenanceTask::PrepareSegment => return engine.appender.prepare_segment(),
        MaintenanceTask::WriteQueues => return engine.queue_maintenance.write_queues(),
        MaintenanceTask::SyncQueues => return engine.queue_maintenance.sync_queues(false),
        MaintenanceTask::SaveCheckpoint => engine.shared.checkpoint.save_changed(),
        MaintenanceTask::Index => {
            let whole = engine.indexing.catch_up().and_then(|_| engine.indexing.round());
            whole.and_then(|()| engine.indexing.read_gaps())
        }
        MaintenanceTask::WriteIndex => engine.indexing.write_out(),
        MaintenanceTask::Clean => return engine.retention.clean(false).map(drop),
        MaintenanceTask::ReleaseIdle => {
            engine.shared.queues.release_idle();
            Ok(())
        }
    };
    engine
        .shared
        .state
        .handle_failure("maintenance failed", done.clone());
    done
}

/// A task that is repeated.
struct Periodic {
    done: Instant,
}

impl Periodic {
    /// Whether the interval is over, which begins the next one.
    fn is_due(&mut self, interval: Duration) -> bool {
        let is_due = self.done.elapsed() >= interval;
        if is_due {
            self.done = Instant::now();
        }
        is_due
    }
}

/// Fsyncs the queues: once in a while, and sooner after much log.
struct QueueSync {
    tried: Instant,
    /// The end of the log at the last successful fsync.
    position: i64,
}

impl QueueSync {
    fn sync_if_due(&mut self, engine: &Engine) {
        let (since, target) = (self.tried.elapsed(), engine.shared.log.flushed());
        let is_far_behind = target - self.position >= QUEUE_SYNC_BYTES && since >= SYNC_RETRY;
        if target <= self.position || !(since >= QUEUE_SYNC || is_far_behind) {
            return;
        }
        let done = engine.queue_maintenance.sync_queues(false);
        self.tried = Instant::now();
        if done.is_ok() {
            self.position = target;
        } else {
            // Just after the machine's start the clock cannot go back that far.
            let sooner = self.tried.checked_sub(QUEUE_SYNC.saturating_sub(SYNC_RETRY));
            self.tried = sooner.unwrap_or(self.tried);
        }
    }
}

fn check_heads(heads: &mut HeadCheck, engine: &Engine) {
    match heads.go_on(&engine.shared.log) {
        Ok(None) => {}
        Ok(Some(damage)) => engine.shared.state.report_damage(damage),
        Err(error) => tracing::warn!(%error, "cannot check the beginning of a segment"),
    }
}

fn drop_cold(engine: &Engine) {
    if let Err(error) = engine.shared.log.drop_cold(engine.shared.live.hot_log_bytes()) {
        tracing::warn!(%error, "cannot drop old parts of the log from memory");
    }
}

fn check_disk_space(engine: &Engine) {
    if let Err(error) = engine.shared.state.check_disk_space() {
        tracing::error!(%error, "cannot see how much space is free");
    }
}

fn clean(engine: &Engine) {
    if let Err(error) = engine.retention.clean(false) {
        tracing::error!(%error, "cannot delete old files");
    }
}

/// Writes the units that puts leave in memory. This thread does nothing else: puts are refused once too many units wait
/// for it, and fsyncs and deletions may take long on a disk that is only slow.
fn write_queues(engine: &Engine) {
    let interval = || Duration::from_millis(engine.shared.live.flush_queue_interval_ms()).min(MAX_QUEUE_TICK);
    let mut writes = Periodic { done: Instant::now() };
    let backlog = &engine.shared.queues.backlog;
    while backlog.wakeup.sleep(interval()) {
        if engine.shared.log.failure.is_set() {
            continue;
        }
        if writes.is_due(interval()) {
            drop(engine.queue_maintenance.write_queues());
        } else if backlog.bytes() > 0 {
            engine.queue_maintenance.write_backlog();
        }
    }
}

fn maintain(engine: &Engine) {
    let clean_tick = || Duration::from_millis(engine.shared.live.clean_interval_ms());
    let tick = || MAINTENANCE_TICK.min(clean_tick());
    let done = Instant::now();
    let [
        mut drops,
        mut disk_checks,
        mut checkpoints,
        mut releases,
        mut cleanings,
    ] = [(); 5].map(|()| Periodic { done });
    let mut queue_sync = QueueSync {
        tried: done,
        position: engine.shared.log.appended(),
    };
    let mut heads = HeadCheck::new(&engine.shared.log);
    while engine.upkeep_wakeup.sleep(tick()) {
        if let Err(error) = engine.shared.log.failure.check() {
            // Usually the thread with the failure has answered the waiters already.
            engine.shared.state.fail(&error);
            continue;
        }
        if drops.is_due(DROP_INTERVAL) {
            drop_cold(engine);
        }
        if disk_checks.is_due(DISK_CHECK) {
            check_disk_space(engine);
        }
        if checkpoints.is_due(CHECKPOINT) {
            let saved = engine.shared.checkpoint.save_changed();
            engine
                .shared
                .state
                .handle_failure("cannot write the checkpoint", saved);
        }
        if releases.is_due(RELEASE_INTERVAL) {
            engine.shared.queues.release_idle();
        }
        queue_sync.sync_if_due(engine);
        check_heads(&mut heads, engine);
        engine.queue_maintenance.mismatches.check();
        if cleanings.is_due(clean_tick()) {
            clean(engine);
        }
    }
}

fn index(indexing: &Indexing) {
    let mut written = Instant::now();
    loop {
        // At the start, and again after a failed round.
        match indexing.catch_up() {
            Ok(true) => {
                indexing
                    .shared
                    .state
                    .handle_failure("cannot fill the key index", indexing.round());
                indexing
                    .shared
                    .state
                    .handle_failure("cannot read the log for the key index", indexing.read_gaps());
            }
            Ok(false) => return,
            Err(error) => indexing
                .shared
                .state
                .handle_failure("cannot read the log for the key index", Err(error)),
        }
        if indexing.shared.log.failure.is_set() {
            return;
        }
        if written.elapsed() >= INDEX_WRITE {
            indexing
                .shared
                .state
                .handle_failure("cannot write the key index", indexing.write_out());
            written = Instant::now();
        }
        if !indexing.wakeup.sleep(INDEX_TICK) {
            return;
        }
    }
}
