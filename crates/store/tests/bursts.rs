//! Bursts: puts of one thread that end with one fsync of that thread, or with one of whoever leads.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, eventually, host, message, open, put, small};
use pyrmq_store::{Batch, BatchItem, Chore, Durability, FlushDiskType, Options, Store, StoreError};
use pyrmq_testkit::TempDir;
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than the patience of a test: no thread helps out by itself.
const NEVER_MS: u64 = 60_000;

type Answers = Arc<Mutex<Vec<Result<(), StoreError>>>>;

fn options(dir: &TempDir, inline_below_us: u64) -> Options {
    Options {
        flush: FlushDiskType::Sync,
        flush_interval_ms: NEVER_MS,
        sync_flush_timeout_ms: NEVER_MS,
        flush_inline_below_us: inline_below_us,
        ..small(dir.path())
    }
}

fn put_one(store: &Store, answers: &Answers) {
    let stored = store.put_in_burst(&message("T", 0, b"x", "")).unwrap();
    let answers = Arc::clone(answers);
    store.when_durable_in_burst(
        stored.end_position,
        Box::new(move |result| answers.lock().unwrap().push(result)),
    );
}

fn waiting(store: &Store) -> Receiver<Result<(), StoreError>> {
    let stored = store.put_in_burst(&message("T", 0, b"x", "")).unwrap();
    let (done, answer) = mpsc::channel();
    store.when_durable_in_burst(
        stored.end_position,
        Box::new(move |result| done.send(result).unwrap()),
    );
    answer
}

fn item(body: &[u8]) -> BatchItem<'_> {
    BatchItem {
        flag: 0,
        body,
        properties: "",
        tags_code: 0,
        unique_key: None,
        keys: None,
        tag: None,
    }
}

fn batch<'a>(items: &'a [BatchItem<'a>]) -> Batch<'a> {
    Batch {
        topic: "T",
        queue_id: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host("127.0.0.1:40000"),
        store_host: host("127.0.0.1:10911"),
        reconsume_times: 0,
        items,
    }
}

#[test]
fn who_ends_a_burst_fsyncs_once_and_answers_before_it_returns() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_without_threads(options(&dir, u64::MAX), Arc::new(disk.clone())).unwrap();
    let answers = Answers::default();
    for _ in 0..10 {
        put_one(&store, &answers);
    }
    assert!(
        answers.lock().unwrap().is_empty(),
        "nobody is answered in a burst"
    );
    assert_eq!(store.max_offset("T", 0), 0, "nor is anything readable");
    let before = store.stats().flushes;
    store.end_burst();
    assert_eq!(*answers.lock().unwrap(), vec![Ok(()); 10]);
    assert_eq!(store.stats().flushes - before, 1);
    assert_eq!(bodies(&store, "T", 0).len(), 10);
    let (_, _, syncs) = disk.counts();
    store.end_burst();
    assert_eq!(disk.counts().2, syncs, "nothing is left to do");
}

#[test]
fn a_burst_serves_who_waited_before_and_waits_for_nobody_without_need() {
    let dir = TempDir::new().unwrap();
    let store = Store::open_without_threads(options(&dir, u64::MAX), common::real()).unwrap();
    let items = [item(b"a"), item(b"b")];
    let stored = store.put_batch_in_burst(&batch(&items)).unwrap();
    store.end_burst();
    assert_eq!(
        store.durability(stored.end_position),
        Durability::Memory,
        "nobody waits: it is left to the thread"
    );
    let early = waiting(&store);
    let late = waiting(&store);
    store.end_burst();
    assert_eq!(early.try_recv(), Ok(Ok(())));
    assert_eq!(late.try_recv(), Ok(Ok(())));
    assert_eq!(store.durability(stored.end_position), Durability::Local);
}

#[test]
fn a_slow_disk_is_left_to_the_thread() {
    let dir = TempDir::new().unwrap();
    let store = Store::open_without_threads(options(&dir, 0), common::real()).unwrap();
    let answer = waiting(&store);
    store.end_burst();
    assert!(answer.try_recv().is_err(), "no fsync on this thread");
    store.run(Chore::Flush).unwrap();
    assert_eq!(answer.try_recv(), Ok(Ok(())));
    drop(store);
    let dir = TempDir::new().unwrap();
    let store = open(options(&dir, 0));
    let answer = waiting(&store);
    store.end_burst();
    assert_eq!(answer.recv_timeout(PATIENCE), Ok(Ok(())), "the thread was told");
}

#[test]
fn a_failed_fsync_of_a_burst_answers_everyone_and_is_not_tried_again() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_without_threads(options(&dir, u64::MAX), Arc::new(disk.clone())).unwrap();
    let first = waiting(&store);
    store.end_burst();
    assert_eq!(first.try_recv(), Ok(Ok(())));
    disk.fail(Operation::Sync, "commitlog", 0, Fault::Error(ErrorKind::Other));
    let answers = Answers::default();
    for _ in 0..3 {
        put_one(&store, &answers);
    }
    store.end_burst();
    {
        let answers = answers.lock().unwrap();
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
    }
    disk.heal();
    let (_, _, syncs) = disk.counts();
    let (done, late) = mpsc::channel();
    store.when_durable_in_burst(i64::MAX, Box::new(move |result| done.send(result).unwrap()));
    store.end_burst();
    assert!(matches!(late.try_recv(), Ok(Err(StoreError::ReadOnly { .. }))));
    assert_eq!(disk.counts().2, syncs, "never tried again");
    assert!(store.put_in_burst(&message("T", 0, b"x", "")).is_err());
    assert_eq!(
        bodies(&store, "T", 0).len(),
        1,
        "what is not durable is not shown"
    );
    store.close().unwrap_err();
}

/// While one fsync hangs, a burst that ends is not held up; it is served by the round that follows.
#[test]
fn a_burst_behind_an_fsync_under_way_is_served_by_the_next_round() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(options(&dir, u64::MAX), Arc::new(disk.clone())).unwrap();
    put(&store, "T", 0, b"so that there is a segment");
    disk.hang(true);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| {
            let answer = waiting(&store);
            store.end_burst();
            answer
        });
        // Most likely its fsync is under way; whichever comes first, nobody is forgotten.
        eventually(|| store.health().busy.waiting_for_disk == 1);
        let followers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let answer = waiting(&store);
                    store.end_burst();
                    answer
                })
            })
            .collect();
        eventually(|| store.health().busy.waiting_for_disk == 4);
        disk.hang(false);
        let answer = leader.join().unwrap();
        assert_eq!(answer.recv_timeout(PATIENCE), Ok(Ok(())));
        for follower in followers {
            assert_eq!(follower.join().unwrap().recv_timeout(PATIENCE), Ok(Ok(())));
        }
    });
}

#[test]
fn a_burst_that_the_disk_holds_up_is_told_of() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(options(&dir, u64::MAX), Arc::new(disk.clone())).unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    store.on_held_up(Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    put(&store, "T", 0, b"so that there is a segment");
    eventually(|| store.max_offset("T", 0) == 1);
    disk.hang(true);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let answer = waiting(&store);
            store.end_burst();
            answer
        });
        eventually(|| told.load(Ordering::Relaxed) > 1);
        disk.hang(false);
        assert_eq!(held.join().unwrap().recv_timeout(PATIENCE), Ok(Ok(())));
    });
}

#[test]
fn nobody_is_forgotten_when_many_end_bursts_at_once() {
    let dir = TempDir::new().unwrap();
    let store = open(options(&dir, u64::MAX));
    let (answered, asked) = (Arc::new(AtomicUsize::new(0)), 8 * 150 * 3);
    let (last, all) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..150 {
                    for _ in 0..3 {
                        let stored = store.put_in_burst(&message("T", 0, b"x", "")).unwrap();
                        let (answered, last) = (Arc::clone(&answered), last.clone());
                        store.when_durable_in_burst(
                            stored.end_position,
                            Box::new(move |result| {
                                result.unwrap();
                                if answered.fetch_add(1, Ordering::AcqRel) + 1 == asked {
                                    last.send(()).unwrap();
                                }
                            }),
                        );
                    }
                    store.end_burst();
                }
            });
        }
    });
    all.recv_timeout(PATIENCE)
        .expect("everyone who waits is answered");
    assert_eq!(store.stats().messages_put, asked as u64);
    let health = store.health();
    assert_eq!(health.flushed_offset, health.max_physical_offset);
}

#[test]
fn a_burst_needs_no_sync_flush() {
    let dir = TempDir::new().unwrap();
    let mut options = options(&dir, u64::MAX);
    options.flush = FlushDiskType::Async;
    let store = Store::open_without_threads(options, common::real()).unwrap();
    let items = [item(b"a")];
    store.put_batch_in_burst(&batch(&items)).unwrap();
    let before = store.stats().flushes;
    store.end_burst();
    assert_eq!(store.stats().flushes, before, "nobody waits for the disk");
    assert_eq!(store.max_offset("T", 0), 1);
    let answer = waiting(&store);
    store.end_burst();
    assert_eq!(answer.try_recv(), Ok(Ok(())), "who waits all the same is served");
}
