//! The store's threads: one fsyncs the log, one makes segments ahead of time, one fills the key index, one does
//! maintenance, one answers waiters whose time is over.

use crate::append::appender::Appender;
use crate::dispatch::indexing::Indexing;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::flush::Flusher;
use crate::flush::watchdog::Observed;
use std::sync::Arc;
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
/// How often the times of what is durable are written, if they have changed.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// How often the hot window moves on.
const DROP_INTERVAL: Duration = Duration::from_millis(150);
/// How often the free space is looked at.
const DISK_CHECK: Duration = Duration::from_secs(1);

/// A piece of the work that the store's threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceTask {
    /// Fsync the log for all waiters.
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
    spawn("store-flush", |engine| flush(&engine.flusher))?;
    spawn("store-segment", |engine| prepare(&engine.appender))?;
    spawn("store-timeouts", |engine| expire_waiters(&engine.flusher))?;
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
    let interval = || Duration::from_millis(flusher.live.flush_interval_ms());
    while flusher.group_commit.wakeup.sleep(interval()) {
        if let Err(error) = flusher.flush_round()
            && flusher.log.failure.is_set()
        {
            // The failure is kept in the log and answers every put from now on.
            return flusher.state.fail(&error);
        }
    }
}

fn prepare(appender: &Appender) {
    while appender.segment_wakeup.sleep(QUEUE_SYNC) {
        if let Err(error) = appender.prepare_segment() {
            tracing::error!(%error, "cannot make the next segment");
        }
    }
}

/// Answers waiters whose time is over, and reports a slow inline fsync. A thread of its own: when the disk hangs, all
/// others do.
fn expire_waiters(flusher: &Flusher) {
    let longest = || Duration::from_millis(flusher.live.sync_flush_timeout_ms());
    let check_interval = || (longest() / 4).clamp(MIN_TIMEOUT_CHECK, MAX_TIMEOUT_CHECK);
    let mut observed = Observed::default();
    while flusher
        .timeout_wakeup
        .sleep(flusher.watchdog.tick(check_interval()))
    {
        flusher.expire_waiters(longest());
        if flusher.watchdog.check(&mut observed)
            && let Some(callback) = flusher.listeners.slow_flush()
        {
            callback();
        }
    }
}

/// Does one piece of work.
pub(crate) fn run(engine: &Engine, task: MaintenanceTask) -> Result<(), StoreError> {
    engine.shared.state.check_sound()?;
    let done = match task {
        MaintenanceTask::Flush => return engine.flusher.flush_round(),
        MaintenanceTask::PrepareSegment => return engine.appender.prepare_segment(),
        MaintenanceTask::WriteQueues => return engine.queue_maintenance.write_queues(),
        MaintenanceTask::SyncQueues => return engine.queue_maintenance.sync_queues(false),
        MaintenanceTask::SaveCheckpoint => engine.shared.checkpoint.save_changed(),
        MaintenanceTask::Index => engine.indexing.catch_up().and_then(|_| engine.indexing.round()),
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
        .note_failure("maintenance failed", done.clone());
    done
}

fn maintain(engine: &Engine) {
    let queue_tick = || Duration::from_millis(engine.shared.live.flush_queue_interval_ms());
    let clean_tick = || Duration::from_millis(engine.shared.live.clean_interval_ms());
    let start = Instant::now();
    let (mut written, mut released, mut synced, mut cleaned) = (start, start, start, start);
    let (mut saved, mut checked, mut dropped) = (start, start, start);
    let mut synced_at = engine.shared.log.appended();
    while engine
        .maintenance_wakeup
        .sleep(MAINTENANCE_TICK.min(queue_tick()).min(clean_tick()))
    {
        if let Err(error) = engine.shared.log.failure.check() {
            // Usually the thread that met the failure has answered the waiters already.
            engine.shared.state.fail(&error);
            continue;
        }
        if written.elapsed() >= queue_tick().min(Duration::from_millis(200)) {
            drop(engine.queue_maintenance.write_queues());
            written = Instant::now();
        }
        if dropped.elapsed() >= DROP_INTERVAL {
            let hot_bytes = engine.shared.live.hot_log_bytes();
            if let Err(error) = engine.shared.log.drop_cold(hot_bytes) {
                tracing::warn!(%error, "cannot drop old parts of the log from memory");
            }
            dropped = Instant::now();
        }
        if checked.elapsed() >= DISK_CHECK {
            if let Err(error) = engine.shared.state.look_at_disk() {
                tracing::error!(%error, "cannot see how much space is free");
            }
            checked = Instant::now();
        }
        if saved.elapsed() >= CHECKPOINT {
            engine.shared.state.note_failure(
                "cannot write the checkpoint",
                engine.shared.checkpoint.save_changed(),
            );
            saved = Instant::now();
        }
        if released.elapsed() >= RELEASE_INTERVAL {
            engine.shared.queues.release_idle();
            released = Instant::now();
        }
        let since = synced.elapsed();
        let many = engine.shared.log.flushed() - synced_at >= QUEUE_SYNC_BYTES && since >= SYNC_RETRY;
        if (since >= QUEUE_SYNC || many) && engine.shared.log.flushed() > synced_at {
            let target = engine.shared.log.flushed();
            let done = engine.queue_maintenance.sync_queues(false);
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
            if let Err(error) = engine.retention.clean(false) {
                tracing::error!(%error, "cannot delete old files");
            }
            cleaned = Instant::now();
        }
    }
}

fn index(indexing: &Indexing) {
    let mut written = Instant::now();
    loop {
        // At the beginning, and again after a round that failed.
        match indexing.catch_up() {
            Ok(true) => indexing
                .state
                .note_failure("cannot fill the key index", indexing.round()),
            Ok(false) => return,
            Err(error) => indexing
                .state
                .note_failure("cannot read the log for the key index", Err(error)),
        }
        if indexing.log.failure.is_set() {
            return;
        }
        if written.elapsed() >= INDEX_WRITE {
            indexing
                .state
                .note_failure("cannot write the key index", indexing.write_out());
            written = Instant::now();
        }
        if !indexing.wakeup.sleep(INDEX_TICK) {
            return;
        }
    }
}
