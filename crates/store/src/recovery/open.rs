//! Opens a store: inspects its directory, repairs it, and puts the parts together.

use crate::append::appender::Appender;
use crate::checkpoint::Mark;
use crate::checkpoint::abort::{mark_closed, mark_recovered};
use crate::dispatch::indexing::Indexing;
use crate::dispatch::queue_maintenance::QueueMaintenance;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::failure::Failure;
use crate::flush::Flusher;
use crate::format::LOCK;
use crate::fs::{Context, Fs, Guarded, LockGuard, make_directories, parent};
use crate::index::KeyIndex;
use crate::live::Live;
use crate::options::{FlushDiskType, Options};
use crate::queue::ext::ConsumeQueueExt;
use crate::read::reader::Reader;
use crate::recovery::inspected::Inspected;
use crate::recovery::recover::recover;
use crate::recovery::replay::Recovered;
use crate::recovery::{popped_in_rocksdb, unsupported_formats};
use crate::retention::Retention;
use crate::state::StoreState;
use crate::state::append_state::AppendState;
use crate::state::shared::Shared;
use crate::sync::wakeup::Wakeup;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};

/// Opens the store in a directory and locks the directory. No thread runs yet.
pub(crate) fn open(
    options: Options,
    fs: Arc<dyn Fs>,
) -> Result<(Arc<Engine>, Box<dyn LockGuard>), StoreError> {
    options.validate()?;
    let failure = Arc::new(Failure::default());
    let fs: Arc<dyn Fs> = Arc::new(Guarded::new(fs, Arc::clone(&failure)));
    let root = &options.root;
    unsupported_formats::refuse(fs.as_ref(), root, &options.timer)?;
    popped_in_rocksdb::refuse(fs.as_ref(), root)?;
    let guard = acquire_lock(fs.as_ref(), root)?;
    let log_directory = options.commit_log_dir();
    make_directories(fs.as_ref(), &log_directory).map_err(|error| not_writable(&log_directory, &error))?;
    let mut inspected = Inspected::read(options, fs, failure)?;
    let recovered = recover(&mut inspected);
    if recovered.is_err() && !inspected.is_crash() {
        // The previous stop was clean and this start changed nothing: the next start must find the same.
        mark_closed(inspected.fs.as_ref(), &inspected.options.root)?;
    }
    let (recovered, is_wrong) = recovered?;
    update_manifest_and_checkpoint(&mut inspected, &recovered, is_wrong)?;
    mark_log_recovered(&inspected)?;
    let engine = assemble(inspected, &recovered)?;
    engine.shared.state.check_disk_space()?;
    engine.indexing.catch_up_if_near()?;
    Ok((Arc::new(engine), guard))
}

/// Adapts the queue manifest, the deletions and the checkpoint of earlier stores to what recovery found.
fn update_manifest_and_checkpoint(
    inspected: &mut Inspected,
    recovered: &Recovered,
    is_wrong: bool,
) -> Result<(), StoreError> {
    let crashed = inspected.is_crash();
    let fs = inspected.fs.as_ref();
    // It is rewritten if another broker stopped last, a replay changed queues, or the file is missing.
    let is_complete = !crashed && inspected.was_ours && recovered.replayed == 0 && !recovered.rebuilt;
    inspected.manifest.end_recovery(fs, is_complete, is_wrong)?;
    inspected.manifest.is_undurable = crashed && inspected.queues.count() > 0;
    sync_names(fs, &inspected.options.root, inspected.log.directory())?;
    inspected
        .deleted
        .fit_to_log(fs, inspected.log.start(), inspected.log.appended())?;
    if !crashed {
        // A clean stop left everything durable, whatever other broker wrote here.
        inspected.checkpoint.update(|times| {
            times.physic_ms = times.physic_ms.max(recovered.last_store_ms);
            times.log = recovered.last;
            times.queues = Mark::default();
            if recovered.replayed == 0 && !recovered.rebuilt {
                times.logics_ms = times.logics_ms.max(times.physic_ms);
                times.queues = recovered.last;
            }
        });
    }
    Ok(())
}

/// Records in the abort file that the log is recovered.
fn mark_log_recovered(inspected: &Inspected) -> Result<(), StoreError> {
    let (options, fs, log) = (&inspected.options, inspected.fs.as_ref(), &inspected.log);
    inspected.nul_records.forget_found();
    let end = log.appended();
    let noted = inspected.last_stop.abort();
    let is_read_durable = inspected.is_crash() && options.flush == FlushDiskType::Sync;
    if is_read_durable || noted.unsure_from.is_some() {
        // First, rewritten data must be durable and, with SYNC_FLUSH, everything readable.
        inspected.nul_records.sync(fs)?;
        log.sync_to(end)?;
    }
    let notes_from = noted.notes_from.map_or(end, |from| from.min(end));
    mark_recovered(fs, &options.root, options.queue_file_bytes, notes_from)
}

/// Puts the parts together.
fn assemble(inspected: Inspected, recovered: &Recovered) -> Result<Engine, StoreError> {
    let recovered_from_crash = inspected.is_crash();
    let Inspected {
        options,
        fs,
        times,
        manifest,
        deleted,
        damage,
        ..
    } = inspected;
    let (index, index_from) = if options.index {
        let log = &inspected.log;
        let index = KeyIndex::load(&fs, &options, recovered_from_crash, times.index_ms, log)?;
        let from = index.resume_at(log)?;
        (Some(index), from)
    } else {
        (None, 0)
    };
    let newest_ms = times.physic_ms.max(times.logics_ms);
    let last = (recovered.last, recovered.last_store_ms);
    let append = AppendState::new(&inspected.log, last, newest_ms, index.is_none());
    let live = Arc::new(Live::new(&options));
    let log = Arc::new(inspected.log);
    let group_commit = Arc::default();
    let shared = Shared {
        state: Arc::new(StoreState::new(&options, &live, &fs, &log, &group_commit)),
        extended: Arc::new(ConsumeQueueExt::new(&options.root)),
        queues: Arc::new(inspected.queues),
        checkpoint: Arc::new(inspected.checkpoint),
        nul_records: Arc::new(inspected.nul_records),
        append: Arc::new(Mutex::new(append)),
        listeners: Arc::default(),
        options,
        live,
        fs,
        log,
        group_commit,
    };
    if let Some(damage) = damage {
        shared.state.report_damage(damage);
    }
    let queue_maintenance = Arc::new(QueueMaintenance::new(&shared, manifest, deleted));
    let indexing = Arc::new(Indexing::new(&shared, index, index_from));
    let flusher = Arc::new(Flusher::new(&shared));
    Ok(Engine {
        appender: Arc::new(Appender::new(&shared, &queue_maintenance, &indexing, &flusher)),
        flusher,
        reader: Reader::new(&shared, &queue_maintenance, &indexing),
        retention: Retention::new(&shared, &queue_maintenance, &indexing),
        queue_maintenance,
        indexing,
        shared,
        upkeep_wakeup: Wakeup::default(),
        recovered_from_crash,
        stays_unclean: AtomicBool::new(false),
        behind: AtomicI64::new(0),
    })
}

fn acquire_lock(fs: &dyn Fs, root: &Path) -> Result<Box<dyn LockGuard>, StoreError> {
    make_directories(fs, root).map_err(|error| not_writable(root, &error))?;
    let path = root.join(LOCK);
    fs.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked { path },
        _ => not_writable(&path, &error),
    })
}

/// Names that a killed process created may not be durable, and later steps rely on them: the segments in the log's
/// directory, that directory, the root.
fn sync_names(fs: &dyn Fs, root: &Path, log: &Path) -> Result<(), StoreError> {
    for directory in [log, parent(log), parent(root)] {
        match fs.sync_directory(directory) {
            // A parent directory that we may not read was not created by us.
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
