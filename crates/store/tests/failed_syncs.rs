//! Data that failed to become durable is never reported durable later, whatever the file and the cause of the fsync.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, message, props, put, real, small};
use pyrmq_store::{KeyKind, KeyQuery, MaintenanceTask, Options, Store, StoreError};
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use pyrmq_testkit::{SimDisk, TempDir};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

const KINDS: [ErrorKind; 3] = [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::QuotaExceeded];

fn open(disk: &FaultyDisk, options: Options) -> Arc<Store> {
    Store::open_without_threads(options, Arc::new(disk.clone())).unwrap()
}

/// Options under which everything old is deleted at once.
fn short_lived(root: &Path) -> Options {
    let mut options = small(root);
    options.file_reserved_hours = 0;
    options.delete_when = (0..24).collect();
    options
}

/// Puts messages with keys.
fn fill(store: &Store, topic: &str, count: usize, size: usize) {
    let body = vec![7; size];
    for number in 0..count {
        let properties = props(&[("UNIQ_KEY", &format!("U{number}"))]);
        store.put(&message(topic, 0, &body, &properties)).unwrap();
    }
}

/// Heals the disk; the store must still consider it failed.
fn check_given_up(store: &Store, disk: &FaultyDisk, root: &Path) {
    disk.heal();
    assert!(store.has_failed());
    let refused = |done: Result<(), StoreError>| matches!(done, Err(StoreError::ReadOnly { .. }));
    assert!(refused(store.put(&message("T", 0, b"later", "")).map(drop)));
    assert!(refused(store.run(MaintenanceTask::SyncQueues)));
    assert!(refused(store.run(MaintenanceTask::SaveCheckpoint)));
    assert!(refused(store.delete_expired().map(drop)));
    assert!(refused(store.delete_topic("T")));
    store.close().unwrap_err();
    let abort = std::fs::read_to_string(root.join("abort")).unwrap();
    assert!(abort.contains("unsure from"), "the next start is told: {abort}");
}

/// Fails one kind of fsync during one piece of work, for each kind of error.
fn given_up_when(
    (operation, path): (Operation, &str),
    prepare: impl Fn(&Store),
    work: impl Fn(&Store) -> Result<(), StoreError>,
) {
    for kind in KINDS {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let store = open(&disk, short_lived(dir.path()));
        prepare(&store);
        let stored = bodies(&store, "T", 0).len();
        disk.fail(operation, path, 0, Fault::Error(kind));
        work(&store).unwrap_err();
        check_given_up(&store, &disk, dir.path());
        drop(store);
        let store = open(&FaultyDisk::new(real()), small(dir.path()));
        assert_eq!(
            bodies(&store, "T", 0).len(),
            stored,
            "{operation:?} {path} {kind}"
        );
        store.close().unwrap();
    }
}

#[test]
fn a_failed_fsync_of_a_queue_file_turns_the_store_read_only() {
    let sync = |store: &Store| store.run(MaintenanceTask::SyncQueues);
    let put_one = |store: &Store| drop(put(store, "T", 0, b"x"));
    given_up_when((Operation::Sync, "consumequeue"), put_one, sync);
    given_up_when((Operation::SyncDirectory, "consumequeue"), put_one, sync);
}

#[test]
fn a_failed_fsync_of_a_note_of_the_queues_turns_the_store_read_only() {
    let sync = |store: &Store| store.run(MaintenanceTask::SyncQueues);
    let put_one = |store: &Store| drop(put(store, "T", 0, b"x"));
    given_up_when((Operation::Sync, "queueEnds"), put_one, sync);
    given_up_when((Operation::Sync, "checkpoint"), put_one, sync);
}

#[test]
fn a_failed_fsync_of_the_queues_file_system_turns_the_store_read_only() {
    let many = |store: &Store| {
        for queue in 0..100 {
            put(store, "T", queue, b"x");
        }
    };
    // It syncs the file system of `consumequeue`, wherever that is.
    given_up_when((Operation::SyncAll, "/consumequeue"), many, |store| {
        store.run(MaintenanceTask::SyncQueues)
    });
}

#[test]
fn a_failed_fsync_of_an_index_file_that_is_full_turns_the_store_read_only() {
    given_up_when(
        (Operation::Sync, "/index/"),
        |store| fill(store, "T", 1100, 10),
        |store| store.run(MaintenanceTask::Index),
    );
    // It also fails if a query must fill the index first.
    given_up_when(
        (Operation::Sync, "/index/"),
        |store| {
            store.run(MaintenanceTask::Index).unwrap();
            fill(store, "T", 1100, 10);
        },
        |store| {
            let query = KeyQuery {
                topic: "T",
                key: "U1",
                kind: KeyKind::Unique,
                max_count: 10,
                begin_ms: 0,
                end_ms: i64::MAX,
            };
            store.query(&query)?;
            store.put(&message("T", 0, b"x", "")).map(drop)
        },
    );
}

#[test]
fn a_failed_fsync_inside_retention_turns_the_store_read_only() {
    for (operation, path) in [
        (Operation::Sync, "consumequeue"),
        (Operation::SyncDirectory, "commitlog"),
    ] {
        for kind in KINDS {
            let dir = TempDir::new().unwrap();
            let disk = FaultyDisk::default();
            let store = open(&disk, short_lived(dir.path()));
            fill(&store, "T", 20, 10_000);
            store.run(MaintenanceTask::Flush).unwrap();
            disk.fail(operation, path, 0, Fault::Error(kind));
            store.delete_expired().unwrap_err();
            check_given_up(&store, &disk, dir.path());
            drop(store);
            Store::open_without_threads(small(dir.path()), real()).unwrap();
        }
    }
}

#[test]
fn a_failed_fsync_inside_a_deletion_of_a_topic_turns_the_store_read_only() {
    let delete = |store: &Store| store.delete_topic("other");
    let prepare = |store: &Store| {
        put(store, "T", 0, b"x");
        put(store, "other", 0, b"x");
        store.run(MaintenanceTask::SyncQueues).unwrap();
    };
    given_up_when((Operation::SyncDirectory, "consumequeue"), prepare, delete);
    given_up_when((Operation::Sync, "deletedTopics"), prepare, delete);
}

#[test]
fn a_failed_fsync_of_the_checkpoint_when_the_clock_goes_back_turns_the_store_read_only() {
    let sim = SimDisk::default();
    sim.set_now(1_800_000_000_000);
    let disk = FaultyDisk::new(Arc::new(sim.session()));
    let store = open(&disk, small(Path::new("/store")));
    put(&store, "T", 0, b"x");
    sim.set_now(1_799_999_990_000);
    disk.fail(Operation::Sync, "checkpoint", 0, Fault::Error(ErrorKind::Other));
    store.put(&message("T", 0, b"y", "")).unwrap_err();
    disk.heal();
    let error = store.put(&message("T", 0, b"y", "")).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
}

#[test]
fn an_entry_whose_fsync_failed_is_written_again_by_the_next_start() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = open(&disk, small(dir.path()));
    put(&store, "T", 0, b"durable");
    store.run(MaintenanceTask::Flush).unwrap();
    store.run(MaintenanceTask::SyncQueues).unwrap();
    put(&store, "T", 0, b"doubtful");
    store.run(MaintenanceTask::Flush).unwrap();
    disk.fail(Operation::Sync, "consumequeue", 0, Fault::Error(ErrorKind::Other));
    store.run(MaintenanceTask::SyncQueues).unwrap_err();
    drop(store);
    // The file's content is right, but the system may consider the page clean: it must be written again.
    disk.heal();
    disk.fail(
        Operation::Write,
        "consumequeue",
        0,
        Fault::Error(ErrorKind::Other),
    );
    let error = Store::open_without_threads(small(dir.path()), Arc::new(disk.clone())).unwrap_err();
    assert!(error.to_string().contains("consumequeue"), "{error}");
    disk.heal();
    let store = open(&disk, small(dir.path()));
    assert_eq!(bodies(&store, "T", 0), [&b"durable"[..], b"doubtful"]);
    store.run(MaintenanceTask::Flush).unwrap();
    store.close().unwrap();
}
