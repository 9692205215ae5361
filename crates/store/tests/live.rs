//! Settings that change while the store is open.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, eventually, get, message, open, put, small};
use pyrmq_store::{Arrival, Durability, FlushDiskType, Options, Store, StoreError};
use pyrmq_testkit::TempDir;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn changed(store: &Store, change: impl FnOnce(&mut Options)) {
    let mut options = store.options().clone();
    change(&mut options);
    store.reconfigure(&options).unwrap();
}

#[test]
fn a_change_of_the_flush_type_keeps_the_order_of_every_queue_and_answers_every_message() {
    const WRITERS: i32 = 3;
    let dir = TempDir::new().unwrap();
    // A change waits for the disk, and puts wait for the change: on a busy machine for longer than a second.
    let store = open(Options {
        send_wait_ms: 60_000,
        ..small(dir.path())
    });
    let calls = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&calls);
    store.on_arrival(Arc::new(move |arrival: &Arrival<'_>| {
        count.fetch_add(arrival.count, Ordering::Relaxed);
    }));
    let ended = AtomicBool::new(false);
    let sent: Vec<u32> = std::thread::scope(|scope| {
        let write = |writer: i32| {
            let mut number = 0;
            while !ended.load(Ordering::Relaxed) {
                put(&store, "T", writer, format!("{number}").as_bytes());
                put(&store, "T", WRITERS, format!("{writer}:{number}").as_bytes());
                number += 1;
            }
            number
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        for _ in 0..40 {
            let end = store.health().max_physical_offset;
            changed(&store, |options| options.flush = FlushDiskType::Sync);
            let health = store.health();
            assert_eq!(health.durability, Durability::Local);
            assert!(health.flushed_offset >= end, "what was stored before is durable");
            let before = store.stats().messages_put;
            eventually(|| store.stats().messages_put > before + 20);
            changed(&store, |options| options.flush = FlushDiskType::Async);
            assert_eq!(store.health().durability, Durability::Memory);
            let before = store.stats().messages_put;
            eventually(|| store.stats().messages_put > before + 20);
        }
        ended.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    // `bodies` compares each message's number with its index in the queue.
    for (writer, sent) in sent.iter().enumerate() {
        let expected: Vec<Vec<u8>> = (0..*sent).map(|number| number.to_string().into_bytes()).collect();
        assert_eq!(bodies(&store, "T", i32::try_from(writer).unwrap()), expected);
    }
    let all: u32 = sent.iter().sum();
    assert_eq!(bodies(&store, "T", WRITERS).len(), all as usize);
    eventually(|| calls.load(Ordering::Relaxed) == 2 * all);
    store.close().unwrap();
    drop(store);
    assert_eq!(bodies(&open(small(dir.path())), "T", WRITERS).len(), all as usize);
}

#[test]
fn senders_waiting_for_the_disk_are_answered_although_waiting_is_no_longer_needed() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    let store = Store::open_without_threads(options, common::real()).unwrap();
    let stored = put(&store, "T", 0, b"x");
    assert_eq!(store.max_offset("T", 0), 0, "no fsync yet");
    let answered = Arc::new(AtomicBool::new(false));
    let answer = Arc::clone(&answered);
    store.when_durable(
        stored.end_position,
        Box::new(move |result: Result<(), StoreError>| answer.store(result.is_ok(), Ordering::Relaxed)),
    );
    changed(&store, |options| options.flush = FlushDiskType::Async);
    assert!(answered.load(Ordering::Relaxed));
    assert_eq!(bodies(&store, "T", 0), [b"x"]);
}

#[test]
fn intervals_hold_for_threads_that_sleep_by_the_old_ones() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.flush_interval_ms = 60_000;
    let store = open(options);
    put(&store, "T", 0, b"x");
    assert!(store.health().flushed_offset < store.health().max_physical_offset);
    changed(&store, |options| options.flush_interval_ms = 5);
    put(&store, "T", 0, b"y");
    eventually(|| store.health().flushed_offset == store.health().max_physical_offset);
}

#[test]
fn sizes_and_limits_on_the_disk_hold_at_once() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let large = [1; 2000];
    for _ in 0..10 {
        put(&store, "T", 0, &large);
    }
    changed(&store, |options| {
        options.max_message_bytes = 1000;
        options.max_transfer_count = 3;
    });
    let refused = store.put(&message("T", 0, &large, ""));
    assert!(matches!(
        refused,
        Err(StoreError::MessageTooLarge { limit: 1000, .. })
    ));
    assert_eq!(get(&store, "T", 0, 0).count, 3);
    changed(&store, |options| options.max_transfer_bytes = 5000);
    assert_eq!(get(&store, "T", 0, 0).count, 2);

    changed(&store, |options| {
        options.disk_min_free_bytes = i64::MAX.unsigned_abs();
    });
    let refused = store.put(&message("T", 0, b"x", "")).unwrap_err().to_string();
    assert!(
        refused.contains("diskSpaceMinFreeBytes=9223372036854775807 forbids to write"),
        "{refused}"
    );
    changed(&store, |options| options.disk_min_free_bytes = 0);
    put(&store, "T", 0, b"x");
}

#[test]
fn a_wrong_value_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let mut options = store.options().clone();
    (options.max_message_bytes, options.max_transfer_count) = (10, 0);
    assert!(matches!(
        store.reconfigure(&options),
        Err(StoreError::BadOption { .. })
    ));
    put(&store, "T", 0, &[1; 2000]);
    store.close().unwrap();
    let options = store.options().clone();
    assert!(matches!(store.reconfigure(&options), Err(StoreError::Closed)));
}
