//! Writes and fsyncs that fail.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, message, open, small};
use pyrmq_store::{FlushDiskType, Store, StoreError};
use pyrmq_testkit::TempDir;
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use std::io::ErrorKind;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn durable(store: &Store, position: i64) -> Result<(), StoreError> {
    let (done, answer) = mpsc::channel();
    store.when_durable(position, Box::new(move |result| done.send(result).unwrap()));
    answer
        .recv_timeout(PATIENCE)
        .expect("everyone who waits is answered")
}

#[test]
fn a_failed_write_turns_the_log_read_only() {
    for fault in [Fault::Error(ErrorKind::StorageFull), Fault::Torn(40)] {
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
        store.when_durable(
            stored.end_position,
            Box::new(move |result| answers.lock().unwrap().push(result)),
        );
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
fn async_flush_comes_by_itself() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.flush_interval_ms = 10;
    let store = open(options);
    let stored = store.put(&message("T", 0, b"x", "")).unwrap();
    let start = std::time::Instant::now();
    while store.health().flushed_offset < stored.end_position {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

#[test]
fn a_roll_that_fails_is_an_error_and_loses_nothing() {
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
    assert_eq!(stored, 6);
    assert_eq!(bodies(&store, "T", 0).len(), 6);
    disk.heal();
    drop(store);
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "T", 0).len(), 6);
    store.put(&message).unwrap();
    assert_eq!(bodies(&store, "T", 0).len(), 7);
}

#[test]
fn a_queue_that_cannot_be_written_stops_the_writes() {
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
        assert!(start.elapsed() < PATIENCE);
    }
    disk.heal();
    assert_eq!(bodies(&store, "T", 0).len(), stored);
    drop(store);
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "T", 0).len(), stored);
}
