//! Writes and fsyncs that fail.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, eventually, message, open, put, real, small};
use pyrmq_store::fs::Space;
use pyrmq_store::{Durability, FlushDiskType, MaintenanceTask, Store, StoreError};
use pyrmq_testkit::TempDir;
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use std::io::ErrorKind;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

fn durable(store: &Store, position: i64) -> Result<(), StoreError> {
    let (done, answer) = mpsc::channel();
    store.when_durable(position, move |result| done.send(result).unwrap());
    answer
        .recv_timeout(TIMEOUT)
        .expect("everyone who waits is answered")
}

#[test]
fn a_failed_write_turns_the_log_read_only() {
    for fault in [Fault::Error(ErrorKind::Other), Fault::Torn(40, ErrorKind::Other)] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
        let message = message("T", 0, b"before", "");
        store.put(&message).unwrap();
        disk.fail(Operation::Write, "commitlog", 0, fault);
        let error = store.put(&message).unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Io {
                    operation: "write",
                    ..
                }
            ),
            "{error}"
        );
        disk.heal();
        let error = store.put(&message).unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
        assert!(store.health().read_only.unwrap().contains("cannot write"));
        assert_eq!(bodies(&store, "T", 0), [b"before"], "reading goes on");
        store.close().unwrap_err();
        drop(store);
        assert!(dir.path().join("abort").exists(), "the next start looks closely");
        let store = open(small(dir.path()));
        assert_eq!(bodies(&store, "T", 0), [b"before"]);
        store.put(&message).unwrap();
        assert_eq!(bodies(&store, "T", 0).len(), 2);
    }
}

#[test]
fn a_failed_fsync_answers_everyone_with_the_error_and_is_not_tried_again() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    let store = Store::open(options, Arc::new(disk.clone())).unwrap();
    let message = message("T", 0, b"x", "");
    let stored = store.put(&message).unwrap();
    durable(&store, stored.end_position).unwrap();
    disk.fail(Operation::Sync, "commitlog", 0, Fault::Error(ErrorKind::Other));
    let answers = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..5 {
        let Ok(stored) = store.put(&message) else { break };
        let answers = Arc::clone(&answers);
        store.when_durable(stored.end_position, move |result| {
            answers.lock().unwrap().push(result);
        });
    }
    let error = durable(&store, i64::MAX).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Io {
                operation: "flush",
                ..
            } | StoreError::ReadOnly { .. }
        ),
        "{error}"
    );
    disk.heal();
    assert!(
        answers.lock().unwrap().iter().all(Result::is_err),
        "no OK behind a failed fsync"
    );
    assert!(matches!(
        durable(&store, stored.end_position + 1),
        Err(StoreError::ReadOnly { .. })
    ));
    assert!(matches!(store.put(&message), Err(StoreError::ReadOnly { .. })));
    assert_eq!(
        bodies(&store, "T", 0).len(),
        1,
        "what is not durable is not shown"
    );
    store.close().unwrap_err();
}

#[test]
fn many_waiters_share_one_fsync() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    let store = open(options);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let stored = store.put(&message("T", 0, b"x", "")).unwrap();
                    durable(&store, stored.end_position).unwrap();
                    assert!(
                        store.max_offset("T", 0) > stored.queue_offset,
                        "durable is readable"
                    );
                    assert!(store.health().flushed_offset >= stored.end_position);
                }
            });
        }
    });
    assert_eq!(bodies(&store, "T", 0).len(), 400);
    assert!(store.stats().flushes <= 400);
}

#[test]
fn nothing_is_confirmed_durable_before_it_is_readable() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    let store = Store::open_without_threads(options, real()).unwrap();
    put(&store, "T", 0, b"first");
    let end = put(&store, "T", 0, b"second").end_position;
    let readable = Arc::new(Mutex::new(Vec::new()));
    let (one, seen) = (Arc::downgrade(&store), Arc::clone(&readable));
    // Check in the middle of the round: the fsync is done, the first message is readable, the second is not.
    store.on_arrival(Arc::new(move |_| {
        let store = one.upgrade().unwrap();
        let (one, seen) = (Arc::downgrade(&store), Arc::clone(&seen));
        let done = move |result: Result<(), StoreError>| {
            result.unwrap();
            let end = one.upgrade().unwrap().max_offset("T", 0);
            seen.lock().unwrap().push(end);
        };
        store.when_durable(end, done);
    }));
    store.run(MaintenanceTask::Flush).unwrap();
    assert_eq!(*readable.lock().unwrap(), [2, 2]);
}

#[test]
fn async_flush_comes_by_itself() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.flush_interval_ms = 10;
    let store = open(options);
    let stored = store.put(&message("T", 0, b"x", "")).unwrap();
    let start = std::time::Instant::now();
    while store.health().flushed_offset < stored.end_position {
        assert!(start.elapsed() < TIMEOUT);
        std::thread::yield_now();
    }
}

#[test]
fn a_full_disk_refuses_and_writing_goes_on_when_there_is_space() {
    for fault in [
        Fault::Error(ErrorKind::StorageFull),
        Fault::Torn(40, ErrorKind::StorageFull),
    ] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
        let long = [b'x'; 300];
        store.put(&message("T", 0, b"before", "")).unwrap();
        disk.fail(Operation::Write, "commitlog", 0, fault);
        let error = store.put(&message("T", 0, &long, "")).unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Io {
                    kind: ErrorKind::StorageFull,
                    ..
                }
            ),
            "{error}"
        );
        let refused = || {
            let error = store.put(&message("T", 0, b"refused", "")).unwrap_err();
            matches!(error, StoreError::DiskFull { .. } | StoreError::Io { .. })
        };
        assert!(refused());
        assert!(!store.health().has_failed && store.health().read_only.is_some());
        assert_eq!(bodies(&store, "T", 0), [b"before"], "reading goes on");
        disk.heal();
        eventually(|| store.put(&message("T", 0, b"after", "")).is_ok());
        // The remains of the torn write after the shorter record must not matter after a kill.
        let copy = TempDir::copy_of(dir.path()).unwrap();
        let again = open(small(copy.path()));
        assert_eq!(bodies(&again, "T", 0), [&b"before"[..], b"after"]);
        store.close().unwrap();
    }
}

#[test]
fn a_full_disk_that_cannot_be_cleared_is_a_failure() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    store.put(&message("T", 0, b"before", "")).unwrap();
    disk.fail(
        Operation::Write,
        "commitlog",
        0,
        Fault::Torn(40, ErrorKind::StorageFull),
    );
    disk.fail(Operation::Clear, "commitlog", 0, Fault::Error(ErrorKind::Other));
    store.put(&message("T", 0, b"x", "")).unwrap_err();
    disk.heal();
    assert!(store.health().has_failed);
    assert!(matches!(
        store.put(&message("T", 0, b"x", "")),
        Err(StoreError::ReadOnly { .. })
    ));
}

#[test]
fn little_free_space_is_refused_with_the_key_that_sets_the_limit() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    let message = message("T", 0, b"x", "");
    let refusal = |space: Option<Space>| {
        disk.set_space(space);
        store.delete_expired().unwrap();
        store.put(&message).err().map(|error| error.to_string())
    };
    let gib = 1 << 30;
    let space = |total: u64, free: u64| {
        Some(Space {
            total: total * gib,
            free: free * gib,
        })
    };
    assert_eq!(refusal(space(1000, 20)), None, "98 % used, but 20 GiB are enough");
    let text = refusal(space(100, 9)).unwrap();
    assert!(text.contains("diskSpaceWarningLevelRatio=90"), "{text}");
    assert!(
        text.contains(&(9_u64 * gib).to_string()) && text.contains("commitlog"),
        "{text}"
    );
    assert_eq!(refusal(space(100, 11)), None);
    let text = refusal(Some(Space {
        total: gib,
        free: 200 << 20,
    }))
    .unwrap();
    assert!(text.contains("diskSpaceMinFreeBytes=268435456"), "{text}");
    disk.set_space(None);
    eventually(|| store.put(&message).is_ok());
}

#[test]
fn a_roll_that_finds_no_space_is_tried_again() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    let body = vec![1; 10_000];
    let message = message("T", 0, &body, "");
    disk.fail(
        Operation::Open,
        "commitlog/00000000000000065536",
        0,
        Fault::Error(ErrorKind::StorageFull),
    );
    let mut stored = 0;
    while store.put(&message).is_ok() {
        stored += 1;
    }
    assert!(stored <= 6, "the segment holds six");
    assert_eq!(bodies(&store, "T", 0).len(), stored);
    disk.heal();
    eventually(|| store.put(&message).is_ok());
    assert_eq!(bodies(&store, "T", 0).len(), stored + 1);
    let copy = TempDir::copy_of(dir.path()).unwrap();
    assert_eq!(bodies(&open(small(copy.path())), "T", 0).len(), stored + 1);
    store.close().unwrap();
}

#[test]
fn a_segment_whose_fsync_fails_turns_the_log_read_only() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    disk.fail(
        Operation::SyncDirectory,
        "commitlog",
        0,
        Fault::Error(ErrorKind::Other),
    );
    let body = vec![1; 10_000];
    let message = message("T", 0, &body, "");
    let mut stored = 0;
    let error = loop {
        match store.put(&message) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 10);
    };
    assert!(
        matches!(error, StoreError::Io { .. } | StoreError::ReadOnly { .. }),
        "{error}"
    );
    assert!(store.health().has_failed);
    assert_eq!(bodies(&store, "T", 0).len(), stored);
}

#[test]
fn the_next_segment_is_there_before_the_roll() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let body = vec![1; 10_000];
    for _ in 0..4 {
        store.put(&message("T", 0, &body, "")).unwrap();
    }
    let next = dir.path().join("commitlog/00000000000000065536");
    eventually(|| std::fs::metadata(&next).is_ok_and(|data| data.len() == 65536));
    let segments = || std::fs::read_dir(dir.path().join("commitlog")).unwrap().count();
    store.close().unwrap();
    drop(store);
    for _ in 0..3 {
        let store = Store::open_without_threads(small(dir.path()), Arc::new(FaultyDisk::default())).unwrap();
        store.run(MaintenanceTask::PrepareSegment).unwrap();
        store.close().unwrap();
    }
    assert_eq!(segments(), 2, "one that waits is enough");
    let store = open(small(dir.path()));
    for _ in 0..10 {
        store.put(&message("T", 0, &body, "")).unwrap();
    }
    let copy = TempDir::copy_of(dir.path()).unwrap();
    assert_eq!(bodies(&open(small(copy.path())), "T", 0).len(), 14);
}

#[test]
fn a_queue_that_finds_no_space_stops_the_writes_until_there_is_some() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    disk.fail(
        Operation::Write,
        "consumequeue",
        0,
        Fault::Error(ErrorKind::StorageFull),
    );
    let message = message("T", 0, b"x", "");
    let mut stored = 0;
    let start = std::time::Instant::now();
    while store.put(&message).is_ok() {
        stored += 1;
        assert!(start.elapsed() < TIMEOUT);
    }
    disk.heal();
    assert_eq!(bodies(&store, "T", 0).len(), stored);
    eventually(|| store.put(&message).is_ok());
    store.close().unwrap();
    drop(store);
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "T", 0).len(), stored + 1);
}

#[test]
fn pages_of_a_failed_fsync_are_written_again_by_the_next_start() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    let first = store.put(&message("T", 0, b"durable", "")).unwrap();
    durable(&store, first.end_position).unwrap();
    disk.fail(Operation::Sync, "commitlog", 0, Fault::Error(ErrorKind::Other));
    let second = store.put(&message("T", 0, b"doubtful", "")).unwrap();
    durable(&store, second.end_position).unwrap_err();
    disk.heal();
    drop(store);
    let text = std::fs::read_to_string(dir.path().join("abort")).unwrap();
    assert!(
        text.contains(&format!("unsure from {}", first.end_position)),
        "{text}"
    );
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    assert!(disk.counts().1 > 0);
    assert_eq!(bodies(&store, "T", 0), [&b"durable"[..], b"doubtful"]);
    durable(&store, second.end_position).unwrap();
    store.close().unwrap();
    assert!(!dir.path().join("abort").exists());
}

#[test]
fn levels_are_named_and_reached() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.flush_interval_ms = 60_000;
    let disk = FaultyDisk::default();
    disk.fail(Operation::Sync, "commitlog", 1, Fault::Error(ErrorKind::Other));
    let store = Store::open(options, Arc::new(disk)).unwrap();
    let stored = store.put(&message("T", 0, b"x", "")).unwrap();
    let (done, answer) = mpsc::channel();
    store.when_reached(stored.end_position, Durability::Memory, move |result| {
        done.send(result).unwrap();
    });
    answer.try_recv().expect("memory is reached by the put").unwrap();
    assert_eq!(store.health().durability.name(), "memory");
    assert_eq!(store.durability(0), Durability::Local);
}

#[test]
fn a_disk_that_hangs_is_answered_with_a_timeout_and_the_message_comes_later() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    options.sync_flush_timeout_ms = 100;
    let store = Store::open(options, Arc::new(disk.clone())).unwrap();
    let message = message("T", 0, b"x", "");
    let stored = store.put(&message).unwrap();
    durable(&store, stored.end_position).unwrap();
    disk.hang(true);
    let stored = store.put(&message).unwrap();
    let answer = durable(&store, stored.end_position);
    disk.hang(false);
    assert!(
        matches!(answer, Err(StoreError::FlushTimeout { waited_ms: 100.. })),
        "{answer:?}"
    );
    eventually(|| store.max_offset("T", 0) == 2);
    assert_eq!(bodies(&store, "T", 0).len(), 2);
    assert_eq!(store.durability(stored.end_position), Durability::Local);
    store.close().unwrap();
}
