//! Puts that would wait too long are answered "busy", with the measured wait; each limit has its counter.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{eventually, message, small};
use pyrmq_store::{BusyReason, Durability, FlushDiskType, Options, Store, StoreError};
use pyrmq_testkit::{FaultyDisk, TempDir};
use std::sync::Arc;

fn open(disk: &FaultyDisk, options: Options) -> Arc<Store> {
    Store::open(options, Arc::new(disk.clone())).unwrap()
}

fn put(store: &Store) -> Result<(), StoreError> {
    store.put(&message("T", 0, b"x", "")).map(drop)
}

fn busy_reason(result: &Result<(), StoreError>) -> (BusyReason, u64, usize) {
    match result {
        Err(StoreError::Busy {
            busy_reason,
            waited_ms,
            waiting,
            ..
        }) => (*busy_reason, *waited_ms, *waiting),
        other => panic!("not busy: {other:?}"),
    }
}

#[test]
fn a_write_that_takes_too_long_is_not_queued_behind() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    (options.busy_ms, options.send_wait_ms) = (2000, 50);
    let store = open(&disk, options);
    put(&store).unwrap();
    disk.hang_writes(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&store));
        eventually(|| store.health().busy.held_now_ms > 0);
        let queued = scope.spawn(|| put(&store));
        eventually(|| store.health().busy.waiting_for_lock == 1);
        eventually(|| store.health().busy.held_now_ms > 2000);
        let refused = put(&store);
        let text = refused.as_ref().unwrap_err().to_string();
        let (which, waited_ms, waiting) = busy_reason(&refused);
        assert_eq!((which, waiting), (BusyReason::PageCacheBusy, 1));
        assert!(waited_ms > 2000, "{text}");
        assert!(
            text.starts_with("[PC_SYNCHRONIZED]broker busy, start flow control for a while")
                && text.contains(&format!("period in queue: {waited_ms}ms, size of queue: 1"))
                && text.contains("osPageCacheBusyTimeOutMills=2000"),
            "{text}"
        );
        disk.hang_writes(false);
        writer.join().unwrap().unwrap();
        let (which, waited_ms, _) = busy_reason(&queued.join().unwrap());
        assert_eq!(which, BusyReason::QueueTimeout);
        assert!(waited_ms > 50);
    });
    // No refused message was stored, and the store continues.
    put(&store).unwrap();
    assert_eq!(store.max_offset("T", 0), 3);
    let busy = store.health().busy;
    assert_eq!((busy.held, busy.waited, busy.overload), (1, 1, 0));
    assert!(busy.longest_ms > 2000 && busy.held_now_ms == 0 && busy.waiting_for_lock == 0);
    store.close().unwrap();
}

#[test]
fn too_many_senders_that_wait_for_the_disk() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    (options.send_capacity, options.busy_ms) = (2, 600_000);
    options.sync_flush_timeout_ms = 600_000;
    let store = open(&disk, options);
    // The first segment is made by this one.
    put(&store).unwrap();
    disk.hang(true);
    for _ in 0..2 {
        let stored = store.put(&message("T", 0, b"x", "")).unwrap();
        store.when_durable(stored.end_position, |result| result.unwrap());
    }
    let (which, _, waiting) = busy_reason(&put(&store));
    assert_eq!((which, waiting), (BusyReason::QueueFull, 2));
    assert_eq!(store.health().busy.waiting_for_disk, 2);
    disk.hang(false);
    eventually(|| store.health().busy.waiting_for_disk == 0);
    put(&store).unwrap();
    assert_eq!(store.health().busy.overload, 1);
    store.close().unwrap();
}

#[test]
fn an_fsync_that_takes_too_long_is_not_queued_behind() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    options.busy_ms = 100;
    options.sync_flush_timeout_ms = 600_000;
    let store = open(&disk, options);
    // The first segment is made by this one.
    put(&store).unwrap();
    disk.hang(true);
    let stored = store.put(&message("T", 0, b"x", "")).unwrap();
    store.when_durable(stored.end_position, |result| result.unwrap());
    eventually(|| store.health().busy.oldest_ms > 100);
    let (which, waited_ms, waiting) = busy_reason(&put(&store));
    assert_eq!((which, waiting), (BusyReason::PageCacheBusy, 1));
    assert!(waited_ms > 100);
    disk.hang(false);
    eventually(|| store.health().busy.waiting_for_disk == 0);
    put(&store).unwrap();
    store.close().unwrap();
}

#[test]
fn with_async_flush_the_senders_that_wait_for_the_disk_are_bounded_too() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    (options.send_capacity, options.busy_ms) = (2, 600_000);
    options.sync_flush_timeout_ms = 600_000;
    let store = open(&disk, options.clone());
    // The first segment is made by this one.
    put(&store).unwrap();
    store.check_waiter(Durability::Local).unwrap();
    disk.hang(true);
    for _ in 0..2 {
        let stored = store.put(&message("T", 0, b"x", "")).unwrap();
        store.when_reached(stored.end_position, Durability::Local, Result::unwrap);
    }
    let (which, _, waiting) = busy_reason(&store.check_waiter(Durability::Local));
    assert_eq!((which, waiting), (BusyReason::QueueFull, 2));
    assert_eq!(store.health().busy.overload, 1);
    options.busy_ms = 100;
    store.reconfigure(&options).unwrap();
    eventually(|| store.health().busy.oldest_ms > 100);
    let (which, waited_ms, _) = busy_reason(&store.check_waiter(Durability::Local));
    assert_eq!(which, BusyReason::PageCacheBusy);
    assert!(waited_ms > 100);
    // Nobody else waits for the disk.
    store.check_waiter(Durability::Memory).unwrap();
    put(&store).unwrap();
    assert_eq!(store.max_offset("T", 0), 4);
    disk.hang(false);
    eventually(|| store.health().busy.waiting_for_disk == 0);
    store.check_waiter(Durability::Local).unwrap();
    store.close().unwrap();
}
