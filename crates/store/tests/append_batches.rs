//! Append batches: puts of one thread that share one fsync, by that thread or by the flush leader.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, eventually, host, message, open, put, small};
use pyrmq_store::{
    AppendBatch, BatchMessage, Durability, FlushDiskType, MaintenanceTask, MessageBatch, OnDurable, OnStored,
    Options, Store, StoreError, Stored,
};
use pyrmq_testkit::TempDir;
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);
/// Longer than a test waits: no thread flushes on its own.
const NEVER_MS: u64 = 60_000;

type Stories = Arc<Mutex<Vec<Result<Stored, StoreError>>>>;
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

/// A put in an append batch that waits for the disk.
fn put_durable(puts: &mut AppendBatch, done: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
    let on_stored = Box::new(move |stored: Result<Stored, StoreError>| {
        Some((stored.unwrap().end_position, Box::new(done) as OnDurable))
    });
    puts.stage(&message("T", 0, b"x", ""), on_stored);
}

fn put_one(puts: &mut AppendBatch, answers: &Answers) {
    let answers = Arc::clone(answers);
    put_durable(puts, move |result| answers.lock().unwrap().push(result));
}

fn waiting(puts: &mut AppendBatch) -> Receiver<Result<(), StoreError>> {
    let (done, answer) = mpsc::channel();
    put_durable(puts, move |result| done.send(result).unwrap());
    answer
}

/// Records the outcome of a put.
fn note(stories: &Stories) -> Box<OnStored> {
    let stories = Arc::clone(stories);
    Box::new(move |stored| {
        stories.lock().unwrap().push(stored);
        None
    })
}

fn offsets(stories: &Stories) -> Vec<i64> {
    let stories = stories.lock().unwrap();
    stories
        .iter()
        .map(|stored| stored.as_ref().unwrap().queue_offset)
        .collect()
}

fn item(body: &[u8]) -> BatchMessage<'_> {
    BatchMessage {
        flag: 0,
        body,
        properties: "",
        tags_code: 0,
        unique_key: None,
        keys: None,
        tag: None,
    }
}

fn batch<'a>(items: &'a [BatchMessage<'a>]) -> MessageBatch<'a> {
    MessageBatch {
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
fn a_thread_that_commits_an_append_batch_fsyncs_once_and_answers_before_it_returns() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_without_threads(options(&dir, u64::MAX), Arc::new(disk.clone())).unwrap();
    let mut puts = store.append_batch();
    let answers = Answers::default();
    for _ in 0..10 {
        put_one(&mut puts, &answers);
    }
    assert!(
        answers.lock().unwrap().is_empty(),
        "nobody is answered in a burst"
    );
    assert_eq!(store.max_offset("T", 0), 0, "nor is anything readable");
    let before = store.stats().flushes;
    puts.commit();
    assert_eq!(*answers.lock().unwrap(), vec![Ok(()); 10]);
    assert_eq!(store.stats().flushes - before, 1);
    assert_eq!(bodies(&store, "T", 0).len(), 10);
    let (_, _, syncs) = disk.counts();
    puts.commit();
    assert_eq!(disk.counts().2, syncs, "nothing is left to do");
}

#[test]
fn an_append_batch_serves_earlier_waiters_and_never_waits_without_need() {
    let dir = TempDir::new().unwrap();
    let store = Store::open_without_threads(options(&dir, u64::MAX), common::real()).unwrap();
    let mut puts = store.append_batch();
    let items = [item(b"a"), item(b"b")];
    let stories = Stories::default();
    puts.stage_batch(&batch(&items), note(&stories));
    puts.commit();
    let stored = stories.lock().unwrap().pop().unwrap().unwrap();
    assert_eq!(
        store.durability(stored.end_position),
        Durability::Memory,
        "nobody waits: it is left to the thread"
    );
    let early = waiting(&mut puts);
    let late = waiting(&mut puts);
    puts.commit();
    assert_eq!(early.try_recv(), Ok(Ok(())));
    assert_eq!(late.try_recv(), Ok(Ok(())));
    assert_eq!(store.durability(stored.end_position), Durability::Local);
}

#[test]
fn a_slow_disk_is_left_to_the_thread() {
    let dir = TempDir::new().unwrap();
    let store = Store::open_without_threads(options(&dir, 0), common::real()).unwrap();
    let mut puts = store.append_batch();
    let answer = waiting(&mut puts);
    puts.commit();
    assert!(answer.try_recv().is_err(), "no fsync on this thread");
    store.run(MaintenanceTask::Flush).unwrap();
    assert_eq!(answer.try_recv(), Ok(Ok(())));
    drop((puts, store));
    let dir = TempDir::new().unwrap();
    let store = open(options(&dir, 0));
    let mut puts = store.append_batch();
    let answer = waiting(&mut puts);
    puts.commit();
    assert_eq!(answer.recv_timeout(TIMEOUT), Ok(Ok(())), "the thread was told");
}

#[test]
fn a_failed_fsync_of_an_append_batch_answers_everyone_and_is_not_tried_again() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_without_threads(options(&dir, u64::MAX), Arc::new(disk.clone())).unwrap();
    let mut puts = store.append_batch();
    let first = waiting(&mut puts);
    puts.commit();
    assert_eq!(first.try_recv(), Ok(Ok(())));
    disk.fail(Operation::Sync, "commitlog", 0, Fault::Error(ErrorKind::Other));
    let answers = Answers::default();
    for _ in 0..3 {
        put_one(&mut puts, &answers);
    }
    puts.commit();
    {
        let answers = answers.lock().unwrap();
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
    }
    disk.heal();
    let (_, _, syncs) = disk.counts();
    let (done, late) = mpsc::channel();
    let waits = Box::new(move |result| done.send(result).unwrap());
    let on_stored = Box::new(move |_| Some((i64::MAX, waits as OnDurable)));
    puts.stage(&message("T", 0, b"x", ""), on_stored);
    puts.commit();
    assert!(matches!(late.try_recv(), Ok(Err(StoreError::ReadOnly { .. }))));
    assert_eq!(disk.counts().2, syncs, "never tried again");
    let stories = Stories::default();
    puts.stage(&message("T", 0, b"x", ""), note(&stories));
    assert!(matches!(
        stories.lock().unwrap()[..],
        [Err(StoreError::ReadOnly { .. })]
    ));
    assert_eq!(
        bodies(&store, "T", 0).len(),
        1,
        "what is not durable is not shown"
    );
    store.close().unwrap_err();
}

/// While one fsync hangs, an append batch that ends is not blocked; the next round covers it.
#[test]
fn an_append_batch_during_an_fsync_is_served_by_the_next_round() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(options(&dir, u64::MAX), Arc::new(disk.clone())).unwrap();
    put(&store, "T", 0, b"so that there is a segment");
    disk.hang(true);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| {
            let mut puts = store.append_batch();
            let answer = waiting(&mut puts);
            puts.commit();
            answer
        });
        // Most likely its fsync is in progress; in either order, no put is forgotten.
        eventually(|| store.health().busy.waiting_for_disk == 1);
        let followers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut puts = store.append_batch();
                    let answer = waiting(&mut puts);
                    puts.commit();
                    answer
                })
            })
            .collect();
        eventually(|| store.health().busy.waiting_for_disk == 4);
        disk.hang(false);
        let answer = leader.join().unwrap();
        assert_eq!(answer.recv_timeout(TIMEOUT), Ok(Ok(())));
        for follower in followers {
            assert_eq!(follower.join().unwrap().recv_timeout(TIMEOUT), Ok(Ok(())));
        }
    });
}

#[test]
fn an_append_batch_with_a_slow_fsync_is_reported() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(options(&dir, u64::MAX), Arc::new(disk.clone())).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    store.on_slow_flush(Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    put(&store, "T", 0, b"so that there is a segment");
    eventually(|| store.max_offset("T", 0) == 1);
    disk.hang(true);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let mut puts = store.append_batch();
            let answer = waiting(&mut puts);
            puts.commit();
            answer
        });
        eventually(|| calls.load(Ordering::Relaxed) > 1);
        disk.hang(false);
        assert_eq!(held.join().unwrap().recv_timeout(TIMEOUT), Ok(Ok(())));
    });
}

#[test]
fn nobody_is_forgotten_when_many_end_append_batches_at_once() {
    let dir = TempDir::new().unwrap();
    let store = open(options(&dir, u64::MAX));
    let (answered, asked) = (Arc::new(AtomicUsize::new(0)), 8 * 150 * 3);
    let (last, all) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut puts = store.append_batch();
                for _ in 0..150 {
                    for _ in 0..3 {
                        let (answered, last) = (Arc::clone(&answered), last.clone());
                        put_durable(&mut puts, move |result| {
                            result.unwrap();
                            if answered.fetch_add(1, Ordering::AcqRel) + 1 == asked {
                                last.send(()).unwrap();
                            }
                        });
                    }
                    puts.commit();
                }
            });
        }
    });
    all.recv_timeout(TIMEOUT).expect("everyone who waits is answered");
    assert_eq!(store.stats().messages_put, asked as u64);
    let health = store.health();
    assert_eq!(health.flushed_offset, health.max_physical_offset);
}

#[test]
fn an_append_batch_needs_no_sync_flush() {
    let dir = TempDir::new().unwrap();
    let mut options = options(&dir, u64::MAX);
    options.flush = FlushDiskType::Async;
    let store = Store::open_without_threads(options, common::real()).unwrap();
    let mut puts = store.append_batch();
    let items = [item(b"a")];
    puts.stage_batch(&batch(&items), note(&Stories::default()));
    let before = store.stats().flushes;
    puts.commit();
    assert_eq!(store.stats().flushes, before, "nobody waits for the disk");
    assert_eq!(store.max_offset("T", 0), 1);
    let answer = waiting(&mut puts);
    puts.commit();
    assert_eq!(
        answer.try_recv(),
        Ok(Ok(())),
        "a sender that waits all the same is served"
    );
}

fn without_threads(dir: &TempDir, disk: &FaultyDisk) -> Arc<Store> {
    let options = Options {
        flush: FlushDiskType::Async,
        ..small(dir.path())
    };
    Store::open_without_threads(options, Arc::new(disk.clone())).unwrap()
}

#[test]
fn an_append_batch_is_one_write_in_the_order_of_its_puts() {
    let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
    let store = without_threads(&dir, &disk);
    let mut puts = store.append_batch();
    let stories = Stories::default();
    put(&store, "T", 0, b"so that there is a segment");
    let writes = store.stats().writes;
    puts.stage(&message("T", 0, b"one", ""), note(&stories));
    puts.stage(&message("U", 0, b"two", ""), note(&stories));
    let items = [item(b"three"), item(b"four")];
    puts.stage_batch(&batch(&items), note(&stories));
    puts.stage(&message("T", 0, b"five", ""), note(&stories));
    assert!(stories.lock().unwrap().is_empty(), "none has a place yet");
    assert_eq!(store.max_offset("T", 0), 1);
    puts.commit();
    assert_eq!(store.stats().writes, writes + 1);
    assert_eq!(offsets(&stories), [1, 0, 2, 4]);
    let ends: Vec<_> = {
        let stories = stories.lock().unwrap();
        let stored = stories.iter().map(|stored| stored.clone().unwrap());
        stored
            .map(|one| (one.physical_offset, one.end_position))
            .collect()
    };
    assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ends:?}");
    assert_eq!(
        bodies(&store, "T", 0)[1..],
        [
            b"one".to_vec(),
            b"three".to_vec(),
            b"four".to_vec(),
            b"five".to_vec()
        ]
    );
    assert_eq!(bodies(&store, "U", 0), [b"two".to_vec()]);
}

#[test]
fn an_append_batch_goes_on_in_the_next_segment() {
    let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
    let store = without_threads(&dir, &disk);
    let mut puts = store.append_batch();
    let segment = usize::try_from(small(dir.path()).segment_bytes).unwrap();
    let body = vec![b'x'; segment / 5];
    let stories = Stories::default();
    for _ in 0..14 {
        puts.stage(&message("T", 0, &body, ""), note(&stories));
    }
    puts.commit();
    assert_eq!(offsets(&stories), (0..14).collect::<Vec<_>>());
    assert_eq!(bodies(&store, "T", 0), vec![body.clone(); 14]);
    let positions: Vec<_> = {
        let stories = stories.lock().unwrap();
        let stored = stories.iter().map(|stored| stored.clone().unwrap());
        stored
            .map(|one| usize::try_from(one.physical_offset).unwrap())
            .collect()
    };
    assert!(
        positions.iter().all(|at| at % segment + body.len() < segment),
        "{positions:?}"
    );
    assert_eq!(positions[4] % segment, 0, "four fit into a segment");
}

#[test]
fn a_message_that_cannot_be_stored_is_reported_and_harms_no_neighbour() {
    let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
    let store = without_threads(&dir, &disk);
    let mut puts = store.append_batch();
    let (stories, refused) = (Stories::default(), Stories::default());
    let long = "x".repeat(40_000);
    let items = [
        item(b"fits"),
        BatchMessage {
            properties: &long,
            ..item(b"does not")
        },
    ];
    puts.stage(&message("T", 0, b"one", ""), note(&stories));
    puts.stage_batch(&batch(&items), note(&refused));
    puts.stage(&message("..", 0, b"x", ""), note(&refused));
    puts.stage(&message("T", 0, b"two", ""), note(&stories));
    assert!(matches!(
        refused.lock().unwrap()[..],
        [
            Err(StoreError::PropertiesTooLarge { .. }),
            Err(StoreError::IllegalQueue { .. })
        ]
    ));
    puts.commit();
    assert_eq!(offsets(&stories), [0, 1]);
    assert_eq!(bodies(&store, "T", 0), [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_full_disk_fails_the_whole_append_batch_and_releases_its_indexes() {
    let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
    let store = without_threads(&dir, &disk);
    let mut puts = store.append_batch();
    put(&store, "T", 0, b"zero");
    let stories = Stories::default();
    disk.fail(
        Operation::Write,
        "commitlog",
        0,
        Fault::Error(ErrorKind::StorageFull),
    );
    for _ in 0..3 {
        puts.stage(&message("T", 0, b"lost", ""), note(&stories));
    }
    puts.commit();
    let outcomes = std::mem::take(&mut *stories.lock().unwrap());
    assert_eq!(outcomes.len(), 3);
    assert!(
        outcomes.iter().all(|one| matches!(
            one,
            Err(StoreError::Io {
                kind: ErrorKind::StorageFull,
                ..
            })
        )),
        "{outcomes:?}"
    );
    disk.heal();
    store.run(MaintenanceTask::Clean).unwrap();
    puts.stage(&message("T", 0, b"one", ""), note(&stories));
    puts.commit();
    assert_eq!(offsets(&stories), [1]);
    assert_eq!(bodies(&store, "T", 0), [b"zero".to_vec(), b"one".to_vec()]);
}

#[test]
fn a_topic_deleted_in_the_middle_of_an_append_batch_begins_anew() {
    let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
    let store = without_threads(&dir, &disk);
    let mut puts = store.append_batch();
    put(&store, "T", 0, b"old");
    let stories = Stories::default();
    puts.stage(&message("U", 0, b"one", ""), note(&stories));
    puts.stage(&message("T", 0, b"new", ""), note(&stories));
    puts.stage(&message("U", 0, b"two", ""), note(&stories));
    store.delete_topic("T").unwrap();
    puts.commit();
    assert_eq!(offsets(&stories), [0, 0, 1]);
    assert_eq!(bodies(&store, "T", 0), [b"new".to_vec()]);
    assert_eq!(bodies(&store, "U", 0), [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn each_batch_has_a_store_and_a_callback_may_have_its_own() {
    let (dir, other_dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let disk = FaultyDisk::default();
    let (store, other) = (without_threads(&dir, &disk), without_threads(&other_dir, &disk));
    let (mut puts, mut other_puts) = (store.append_batch(), other.append_batch());
    let stories = Stories::default();
    let (mut again, on_stored) = (store.append_batch(), note(&stories));
    puts.stage(
        &message("T", 0, b"one", ""),
        Box::new(move |_| {
            again.stage(&message("T", 0, b"two", ""), on_stored);
            again.commit();
            None
        }),
    );
    other_puts.stage(&message("T", 0, b"three", ""), note(&stories));
    puts.commit();
    assert_eq!(offsets(&stories), [1], "the other store's batch is still open");
    assert_eq!(store.max_offset("T", 0), 2);
    assert_eq!(other.max_offset("T", 0), 0);
    other_puts.commit();
    assert_eq!(other.max_offset("T", 0), 1);
}

#[test]
fn a_callback_that_panics_leaves_nothing_to_be_written_again() {
    let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
    let store = without_threads(&dir, &disk);
    let mut puts = store.append_batch();
    let panics =
        Box::new(|_: Result<Stored, StoreError>| -> Option<(i64, OnDurable)> { panic!("on purpose") });
    puts.stage(&message("T", 0, b"one", ""), panics);
    let commit = std::panic::AssertUnwindSafe(|| puts.commit());
    assert!(std::panic::catch_unwind(commit).is_err());
    let stories = Stories::default();
    puts.stage(&message("T", 0, b"two", ""), note(&stories));
    puts.commit();
    assert_eq!(offsets(&stories), [1]);
    assert_eq!(bodies(&store, "T", 0), [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_batch_that_is_dropped_stores_nothing() {
    let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
    let store = without_threads(&dir, &disk);
    let stories = Stories::default();
    let mut puts = store.append_batch();
    puts.stage(&message("T", 0, b"one", ""), note(&stories));
    drop(puts);
    assert_eq!(Arc::strong_count(&stories), 1, "its callback is dropped");
    store.append_batch().commit();
    assert_eq!(store.max_offset("T", 0), 0);
}

#[test]
fn a_long_append_batch_does_not_wait_for_its_end() {
    let (dir, disk) = (TempDir::new().unwrap(), FaultyDisk::default());
    let mut options = small(dir.path());
    options.segment_bytes = 4 << 20;
    let store = Store::open_without_threads(options, Arc::new(disk)).unwrap();
    let mut puts = store.append_batch();
    let stories = Stories::default();
    let body = vec![b'x'; 10 << 10];
    for _ in 0..20 {
        puts.stage(&message("T", 0, &body, ""), note(&stories));
    }
    let early = stories.lock().unwrap().len();
    assert!((10..20).contains(&early), "{early}");
    puts.commit();
    assert_eq!(offsets(&stories), (0..20).collect::<Vec<_>>());
}
