//! Disks after a power loss that an earlier version misjudged; the crash point tests found each of them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on says so, and looks at files behind the store's back"
)]

mod common;

use common::{bodies, content, get, message, open, props, put, real, small};
use pyrmq_store::{Fs, MaintenanceTask, Options, Store, StoreError};
use pyrmq_testkit::sim::{Loss, Session};
use pyrmq_testkit::{SimDisk, TempDir};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROOT: &str = "/data/store";
const NOW_MS: i64 = 1_800_000_000_000;

fn simulated() -> Options {
    let mut options = small(Path::new(ROOT));
    options.segment_bytes = 8192;
    options.file_reserved_hours = 0;
    options
}

fn open_on(disk: &SimDisk) -> (Session, Arc<Store>) {
    let session = disk.session();
    let store = Store::open_without_threads(simulated(), Arc::new(session.clone()));
    (session, store.expect("the store opens"))
}

/// Returns the store time up to which the log is durable, from the checkpoint.
fn durable_ms(session: &Session) -> i64 {
    let bytes = session.read(&Path::new(ROOT).join("checkpoint")).unwrap();
    i64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// A disk whose log has lost its first segment to retention, with the record that the checkpoint names: a put that
/// found no space was at the beginning of the second one.
fn rolled(disk: &SimDisk) -> (Session, Arc<Store>) {
    disk.set_now(NOW_MS);
    let (session, store) = open_on(disk);
    while store.health().max_physical_offset < 7900 {
        put(&store, "T", 0, &[b'a'; 100]);
    }
    store.run(MaintenanceTask::PrepareSegment).unwrap();
    // Space for the blank record.
    disk.set_room(Some(8));
    store.put(&message("T", 0, &[b'b'; 400], "")).unwrap_err();
    disk.set_room(None);
    store.run(MaintenanceTask::Flush).unwrap();
    (session, store)
}

/// Puts messages whose properties cross a sector's border, and returns the records.
fn put_long(store: &Store) -> Vec<(i64, Vec<u8>)> {
    let record = |number: usize| {
        let properties = props(&[("user", &"v".repeat(300 + 90 * number))]);
        let stored = store.put(&message("T", 0, b"body", &properties)).unwrap();
        let bytes = store.record_at(stored.physical_offset).unwrap().unwrap();
        (stored.queue_offset, bytes.to_vec())
    };
    (0..6).map(record).collect()
}

/// Checks a power loss at this moment: each of these records exists with all its bytes, or not at all.
fn is_whole_after_any_loss(disk: &SimDisk, records: &[(i64, Vec<u8>)]) {
    let mut lost = 0;
    for loss in [Loss::Sectors, Loss::States, Loss::Writes] {
        for seed in 0..60 {
            let (session, store) = open_on(&disk.crash(disk.steps(), loss, seed));
            let end = store.max_offset("T", 0);
            lost += records.iter().filter(|(index, _)| *index >= end).count();
            for (index, bytes) in records.iter().filter(|(index, _)| *index < end) {
                let got = get(&store, "T", 0, *index);
                assert!(
                    got.body.starts_with(bytes),
                    "{loss:?} {seed}: the record at index {index}"
                );
            }
            session.kill();
        }
    }
    assert!(lost > 0, "a power loss takes something");
}

#[test]
fn a_torn_record_is_not_taken_where_retention_has_the_one_that_the_checkpoint_names() {
    for step_ms in [0, 1, -2000] {
        let disk = SimDisk::default();
        let (_session, store) = rolled(&disk);
        assert_eq!(store.delete_expired().unwrap(), 1);
        // Too little to count as a clock regression.
        disk.set_now(NOW_MS + step_ms);
        let records = put_long(&store);
        is_whole_after_any_loss(&disk, &records);
    }
}

#[test]
fn a_clock_that_fell_before_a_write_that_failed_makes_nothing_look_durable() {
    let disk = SimDisk::default();
    disk.set_now(NOW_MS);
    let (session, store) = open_on(&disk);
    put(&store, "T", 0, b"not fsynced");
    let fallen_ms = NOW_MS - 3_600_000;
    disk.set_now(fallen_ms);
    // There is space for the checkpoint that notes the regression, but not for the record.
    disk.set_room(Some(300));
    store.put(&message("T", 0, &[b'b'; 400], "")).unwrap_err();
    disk.set_room(None);
    store.run(MaintenanceTask::Flush).unwrap();
    store.run(MaintenanceTask::SaveCheckpoint).unwrap();
    assert_eq!(durable_ms(&session), fallen_ms);
    // Notices that there is space again.
    store.delete_expired().unwrap();
    let records = put_long(&store);
    is_whole_after_any_loss(&disk, &records);
}

/// A killed store of one queue with two files, created with this length of queue files.
fn killed(queue_file_bytes: u64) -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = Store::open_without_threads(with_queue_files(dir.path(), queue_file_bytes), real()).unwrap();
    let per_file = usize::try_from(queue_file_bytes / 20).unwrap();
    for _ in 0..=per_file {
        put(&store, "T", 0, b"body");
    }
    for task in [MaintenanceTask::Flush, MaintenanceTask::WriteQueues] {
        store.run(task).unwrap();
    }
    TempDir::copy_of(dir.path()).unwrap()
}

fn with_queue_files(dir: &Path, bytes: u64) -> Options {
    let mut options = small(dir);
    options.queue_file_bytes = bytes;
    options
}

fn queue_file(dir: &Path, offset: u64) -> PathBuf {
    dir.join(format!("consumequeue/T/0/{offset:020}"))
}

fn set_length(path: &Path, length: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(length).unwrap();
}

#[test]
fn queue_files_that_a_power_loss_left_short_are_made_again() {
    let is_whole = |dir: &Path| {
        let store = open(small(dir));
        assert_eq!(bodies(&store, "T", 0).len(), 101);
        store.close().unwrap();
        drop(store);
        assert_eq!(fs::metadata(queue_file(dir, 0)).unwrap().len(), 2000);
    };
    for second in [20, 0, 700] {
        let dir = killed(2000);
        set_length(&queue_file(dir.path(), 0), 20);
        set_length(&queue_file(dir.path(), 2000), second);
        is_whole(dir.path());
        // Another broker's crash: only the names show it.
        let dir = killed(2000);
        set_length(&queue_file(dir.path(), 0), 20);
        set_length(&queue_file(dir.path(), 2000), second);
        fs::write(dir.path().join("abort"), "1").unwrap();
        is_whole(dir.path());
    }
    let dir = killed(2000);
    set_length(&queue_file(dir.path(), 0), 1000);
    fs::remove_file(queue_file(dir.path(), 2000)).unwrap();
    is_whole(dir.path());
}

#[test]
fn queue_files_of_another_setting_are_refused_after_a_crash_too() {
    let is_refused = |dir: &Path, bytes: u64| {
        let before = content(dir);
        let error = Store::open(with_queue_files(dir, bytes), real()).unwrap_err();
        assert!(
            matches!(&error, StoreError::FileLength { key: "mappedFileSizeConsumeQueue", expected, .. } if *expected == bytes),
            "{error}"
        );
        assert!(content(dir) == before, "nothing was changed");
    };
    for bytes in [500, 1000, 4000] {
        let dir = killed(2000);
        is_refused(dir.path(), bytes);
        // Also for shorter ones if the store was ours: it records the length with which it created them.
        if bytes > 2000 {
            set_length(&queue_file(dir.path(), 0), 1000);
            is_refused(dir.path(), bytes);
        }
        let dir = killed(2000);
        fs::write(dir.path().join("abort"), "1").unwrap();
        is_refused(dir.path(), bytes);
        // And after a clean stop.
        fs::remove_file(dir.path().join("abort")).unwrap();
        is_refused(dir.path(), bytes);
    }
    let dir = killed(2000);
    set_length(&queue_file(dir.path(), 0), 20);
    set_length(&queue_file(dir.path(), 2000), 20);
    fs::remove_file(dir.path().join("abort")).unwrap();
    is_refused(dir.path(), 2000);
}

/// Returns the bytes that a start without a checkpoint writes after a kill, if the log's segments were filled this many
/// ms apart.
fn written_without_a_mark(apart_ms: i64) -> usize {
    let disk = SimDisk::default();
    disk.set_now(NOW_MS);
    let options = || Options {
        index: false,
        file_reserved_hours: 72,
        ..simulated()
    };
    let open = || {
        let session = disk.session();
        let store = Store::open_without_threads(options(), Arc::new(session.clone()));
        (session, store.expect("the store opens"))
    };
    let (session, store) = open();
    for segment in 1..=10 {
        while store.health().max_physical_offset < segment * 8192 - 1200 {
            put(&store, "T", 0, &[b'a'; 1000]);
        }
        for task in [
            MaintenanceTask::Flush,
            MaintenanceTask::SyncQueues,
            MaintenanceTask::SaveCheckpoint,
            MaintenanceTask::PrepareSegment,
        ] {
            store.run(task).unwrap();
        }
        disk.set_now(disk.now() + apart_ms);
    }
    let count = bodies(&store, "T", 0).len();
    session.kill();
    drop(store);
    let session = disk.session();
    session.remove(&Path::new(ROOT).join("checkpoint")).unwrap();
    session.kill();
    let before = disk.steps();
    let (_session, store) = open();
    let done = (before + 1..=disk.steps()).map(|step| disk.describe(step));
    let written = done.filter_map(|step| {
        let rest = step.strip_prefix("write of ")?;
        rest.split(' ').next()?.parse::<usize>().ok()
    });
    let written = written.sum();
    assert_eq!(bodies(&store, "T", 0).len(), count);
    written
}

#[test]
fn a_start_without_a_mark_writes_only_that_again_which_was_written_last() {
    let recent = written_without_a_mark(1000);
    assert!(
        recent > 9 * 8192,
        "all of it may be not durable, {recent} bytes were written"
    );
    let old = written_without_a_mark(3_600_000);
    assert!(old < 4 * 8192, "{old} bytes were written again");
}
