//! Puts that would wait too long are answered "busy", with the measured wait; each limit has its counter.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{eventually, message, small};
use pyrmq_store::{BusyReason, Durability, FlushDiskType, MaintenanceTask, Options, Store, StoreError};
use pyrmq_testkit::{FaultyDisk, TempDir};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

fn open(disk: &FaultyDisk, options: Options) -> Arc<Store> {
    Store::open(options, Arc::new(disk.clone())).unwrap()
}

fn put(store: &Store) -> Result<(), StoreError> {
    store.put(&message("T", 0, b"x", "")).map(drop)
}

/// The outcome of a put while writes hang. If it waits for them, they are released after 10 s.
fn put_before_release(store: &Arc<Store>, disk: &FaultyDisk) -> Result<(), StoreError> {
    let (sender, outcome) = channel();
    let putting = Arc::clone(store);
    std::thread::spawn(move || drop(sender.send(put(&putting))));
    outcome.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| {
        disk.hang_writes(false);
        panic!("it waited for a write that hangs")
    })
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
        // It gives up although the write goes on.
        let (which, waited_ms, _) = busy_reason(&put_before_release(&store, &disk));
        assert_eq!(which, BusyReason::QueueTimeout);
        assert!(waited_ms > 50);
        eventually(|| store.health().busy.held_now_ms > 2000);
        let refused = put_before_release(&store, &disk);
        let text = refused.as_ref().unwrap_err().to_string();
        let (which, waited_ms, waiting) = busy_reason(&refused);
        assert_eq!((which, waiting), (BusyReason::PageCacheBusy, 0));
        assert!(waited_ms > 2000, "{text}");
        assert!(
            text.starts_with("[PC_SYNCHRONIZED]broker busy, start flow control for a while")
                && text.contains(&format!("period in queue: {waited_ms}ms, size of queue: 0"))
                && text.contains("osPageCacheBusyTimeOutMills=2000"),
            "{text}"
        );
        disk.hang_writes(false);
        writer.join().unwrap().unwrap();
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

#[test]
fn a_put_that_waits_is_refused_once_the_write_before_it_takes_too_long() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    (options.busy_ms, options.send_wait_ms) = (500, 600_000);
    let store = open(&disk, options);
    put(&store).unwrap();
    disk.hang_writes(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&store));
        eventually(|| store.health().busy.held_now_ms > 0);
        let (which, held_ms, waiting) = busy_reason(&put_before_release(&store, &disk));
        assert_eq!((which, waiting), (BusyReason::PageCacheBusy, 1));
        assert!(held_ms > 500);
        disk.hang_writes(false);
        writer.join().unwrap().unwrap();
    });
    put(&store).unwrap();
    assert_eq!(store.max_offset("T", 0), 3);
    store.close().unwrap();
}

#[test]
fn a_put_that_is_not_allowed_to_wait_is_refused_with_that_reason() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    (options.busy_ms, options.send_wait_ms) = (600_000, 600_000);
    let store = open(&disk, options);
    store.set_block_in_place(Arc::new(|_| {}));
    put(&store).unwrap();
    disk.hang_writes(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&store));
        eventually(|| store.health().busy.held_now_ms > 0);
        let refused = put_before_release(&store, &disk);
        disk.hang_writes(false);
        writer.join().unwrap().unwrap();
        let text = refused.as_ref().unwrap_err().to_string();
        assert_eq!(busy_reason(&refused).0, BusyReason::QueueFull);
        assert!(text.ends_with("(too many threads wait for the disk)"), "{text}");
    });
    assert_eq!(store.health().busy.overload, 1);
    store.close().unwrap();
}

#[test]
fn a_put_whose_wait_ends_right_before_the_write_does_is_refused_because_of_the_write() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    (options.busy_ms, options.send_wait_ms) = (150, 600_000);
    let store = open(&disk, options);
    let (waiting, released) = (Arc::downgrade(&store), disk.clone());
    store.set_block_in_place(Arc::new(move |wait| {
        wait();
        released.hang_writes(false);
        eventually(|| waiting.upgrade().unwrap().health().busy.held_now_ms == 0);
    }));
    put(&store).unwrap();
    disk.hang_writes(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&store));
        eventually(|| store.health().busy.held_now_ms > 0);
        let (which, held_ms, _) = busy_reason(&put_before_release(&store, &disk));
        assert_eq!(which, BusyReason::PageCacheBusy);
        assert!(held_ms > 150, "{held_ms}");
        writer.join().unwrap().unwrap();
    });
    assert_eq!(store.health().busy.held, 1);
    store.close().unwrap();
}

/// The index may be on a disk that hangs.
#[test]
fn a_put_that_helps_to_index_many_keys_lets_other_work_of_its_thread_go_on() {
    const WAITING_KEYS: usize = 1 << 20;
    const KEYS: usize = 16_000;
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    (options.segment_bytes, options.index_entries) = (16 << 20, 2 << 20);
    let store = Store::open_without_threads(options, Arc::new(FaultyDisk::default())).unwrap();
    let blocked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&blocked);
    store.set_block_in_place(Arc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let keys = format!("KEYS\u{1}{}\u{2}", vec!["k"; KEYS].join(" "));
    let mut puts = 0;
    while puts * KEYS < WAITING_KEYS {
        store.put(&message("T", 0, b"x", &keys)).unwrap();
        puts += 1;
    }
    assert_eq!(blocked.load(Ordering::Relaxed), 1);
    store.put(&message("T", 0, b"x", &keys)).unwrap();
    assert_eq!(blocked.load(Ordering::Relaxed), 2);
}

#[test]
fn a_batch_that_would_fsync_leaves_that_to_the_flush_thread_while_a_write_hangs() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    options.flush_inline_below_us = u64::MAX;
    let store = Store::open_without_threads(options, Arc::new(disk.clone())).unwrap();
    let stored = store.put(&message("T", 0, b"x", "")).unwrap();
    let (sender, durable) = channel();
    store.when_durable(stored.end_position, move |result| drop(sender.send(result)));
    disk.hang_writes(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&store));
        eventually(|| store.health().busy.held_now_ms > 0);
        let (sender, committed) = channel();
        let mut batch = store.append_batch();
        std::thread::spawn(move || {
            batch.commit();
            sender.send(()).unwrap_or_default();
        });
        let committed = committed.recv_timeout(Duration::from_secs(10));
        disk.hang_writes(false);
        committed.expect("it waited for a write that hangs");
        writer.join().unwrap().unwrap();
    });
    store.run(MaintenanceTask::Flush).unwrap();
    durable.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
    store.close().unwrap();
}

/// Options of a store in which 128 KiB of the consume queues may wait to be written.
fn few_unwritten(dir: &TempDir) -> Options {
    let mut options = small(dir.path());
    options.segment_bytes = 4 << 20;
    options.queue_file_bytes = 2_000_000;
    options.max_unwritten_bytes = 128 << 10;
    options
}

#[test]
fn puts_are_refused_while_too_much_of_the_consume_queues_waits_to_be_written() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = open(&disk, few_unwritten(&dir));
    put(&store).unwrap();
    store.run(MaintenanceTask::WriteQueues).unwrap();
    disk.hang_writes_to("/consumequeue/", true);
    let mut count = 0;
    let refused = loop {
        match put(&store) {
            Ok(()) => count += 1,
            refused => break refused,
        }
    };
    let bytes: usize = 128 << 10;
    assert_eq!(count, bytes.div_ceil(20), "units of 20 bytes");
    let (which, ..) = busy_reason(&refused);
    assert_eq!(which, BusyReason::QueueFull);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.starts_with("[OVERLOAD]") && text.contains("128 KiB of consume queues wait to be written"),
        "{text}"
    );
    disk.hang_writes_to("/consumequeue/", false);
    eventually(|| put(&store).is_ok());
    assert_eq!(store.max_offset("T", 0), i64::try_from(count).unwrap() + 2);
    assert!(store.health().busy.overload > 0);
    store.close().unwrap();
}

/// They do not wait for the disk, unlike those that are counted as waiting.
#[test]
fn puts_are_refused_while_too_many_messages_wait_for_an_fsync() {
    let dir = TempDir::new().unwrap();
    let mut options = few_unwritten(&dir);
    options.flush = FlushDiskType::Sync;
    let store = Store::open_without_threads(options, Arc::new(FaultyDisk::default())).unwrap();
    let mut count = 0;
    let refused = loop {
        match put(&store) {
            Ok(()) => count += 1,
            refused => break refused,
        }
    };
    assert!((1000..10_000).contains(&count), "{count}");
    assert_eq!(busy_reason(&refused).0, BusyReason::QueueFull);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.starts_with("[OVERLOAD]") && text.contains(&format!("{count} messages wait for an fsync")),
        "{text}"
    );
    store.run(MaintenanceTask::Flush).unwrap();
    put(&store).unwrap();
    store.run(MaintenanceTask::Flush).unwrap();
    assert_eq!(store.max_offset("T", 0), count + 1);
    store.close().unwrap();
}

/// The index may be on another disk than the log.
#[test]
#[ignore = "nightly: 17 million keys take ten seconds in a debug build"]
fn puts_are_answered_while_the_key_index_hangs() {
    const KEYS: usize = 16_000;
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    (options.segment_bytes, options.send_wait_ms) = (64 << 20, 10);
    options.index_entries = 2 << 20;
    let store = open(&disk, options);
    let keys = format!("KEYS\u{1}{}\u{2}", vec!["k"; KEYS].join(" "));
    let hang = FsyncHang::of(&disk, ["/index/"]);
    let putting = Arc::clone(&store);
    let (sender, refused) = channel();
    std::thread::spawn(move || {
        let mut count = 0;
        let refused = loop {
            match putting.put(&message("T", 0, b"x", &keys)) {
                Ok(_) => count += 1,
                Err(refused) => break refused,
            }
        };
        drop(sender.send((count, refused)));
    });
    let refused = refused.recv_timeout(Duration::from_mins(2));
    let waiting = disk.waiting_syncs();
    drop(hang);
    let (count, refused) = refused.expect("a put waited for the index");
    assert_eq!(waiting, 1, "an index file still waits for its fsync");
    let text = refused.to_string();
    assert!(
        text.starts_with("[OVERLOAD]") && text.contains("keys wait for the key index"),
        "{text}"
    );
    eventually(|| put(&store).is_ok());
    assert_eq!(store.max_offset("T", 0), count + 1);
    store.close().unwrap();
}

/// Fsyncs of some files hang as long as this value lives.
struct FsyncHang<'d, const N: usize>(&'d FaultyDisk, [&'static str; N]);

impl<'d, const N: usize> FsyncHang<'d, N> {
    fn of(disk: &'d FaultyDisk, path_parts: [&'static str; N]) -> Self {
        for path_part in path_parts {
            disk.hang_syncs_of(path_part, true);
        }
        Self(disk, path_parts)
    }
}

impl<const N: usize> Drop for FsyncHang<'_, N> {
    fn drop(&mut self) {
        for path_part in self.1 {
            self.0.hang_syncs_of(path_part, false);
        }
    }
}

/// The store's own thread fsyncs the checkpoint once a second, and the queues once in a while.
#[test]
fn puts_go_on_while_fsyncs_of_the_consume_queues_and_of_the_checkpoint_hang() {
    const PUTS: i64 = 20_000;
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = open(&disk, few_unwritten(&dir));
    let hanging = ["/consumequeue/", "/checkpoint"];
    put(&store).unwrap();
    std::thread::scope(|scope| {
        let hang = FsyncHang::of(&disk, hanging);
        let syncing = scope.spawn(|| store.run(MaintenanceTask::SyncQueues));
        eventually(|| disk.waiting_syncs() == hanging.len());
        for _ in 1..PUTS {
            // The thread that writes may need a moment. Nothing else may hold it up.
            eventually(|| put(&store).is_ok());
        }
        assert_eq!(disk.waiting_syncs(), hanging.len(), "they still hang");
        drop(hang);
        syncing.join().unwrap().unwrap();
    });
    assert_eq!(store.max_offset("T", 0), PUTS);
    store.close().unwrap();
}

/// A queue's newest file is fsynced before its old ones are deleted.
#[test]
fn puts_go_on_while_retention_waits_for_the_fsync_of_a_consume_queue() {
    const PUTS: i64 = 10_000;
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = few_unwritten(&dir);
    (options.segment_bytes, options.queue_file_bytes) = (1 << 20, 2000);
    (options.file_reserved_hours, options.delete_when) = (0, Vec::new());
    let store = open(&disk, options);
    for _ in 0..1100 {
        store.put(&message("T", 0, &[b'x'; 1000], "")).unwrap();
    }
    for task in [MaintenanceTask::Flush, MaintenanceTask::SyncQueues] {
        store.run(task).unwrap();
    }
    // Its unit makes the newest file one to be fsynced again.
    put(&store).unwrap();
    store.run(MaintenanceTask::WriteQueues).unwrap();
    std::thread::scope(|scope| {
        let hang = FsyncHang::of(&disk, ["/consumequeue/"]);
        let deleting = scope.spawn(|| store.delete_expired());
        eventually(|| disk.waiting_syncs() == 1);
        assert!(
            store.health().min_physical_offset > 0,
            "the segment is deleted already"
        );
        let end = store.max_offset("T", 0);
        for _ in 0..PUTS {
            eventually(|| put(&store).is_ok());
        }
        assert_eq!(store.max_offset("T", 0), end + PUTS);
        assert_eq!(disk.waiting_syncs(), 1, "it still hangs");
        drop(hang);
        assert!(deleting.join().unwrap().unwrap() > 1);
    });
    assert!(store.min_offset("T", 0) > 0);
    store.close().unwrap();
}

/// The removal of a directory hangs as long as this value lives.
struct RemovalHang<'d>(&'d FaultyDisk, &'static str);

impl Drop for RemovalHang<'_> {
    fn drop(&mut self) {
        self.0.hang_removal_of(self.1, false);
    }
}

#[test]
fn consume_queues_are_written_while_the_removal_of_one_with_unwritten_units_hangs() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_without_threads(few_unwritten(&dir), Arc::new(disk.clone())).unwrap();
    put(&store).unwrap();
    store.run(MaintenanceTask::WriteQueues).unwrap();
    put(&store).unwrap();
    let removed = "consumequeue/T/0";
    std::thread::scope(|scope| {
        disk.hang_removal_of(removed, true);
        let hang = RemovalHang(&disk, removed);
        let deleting = scope.spawn(|| store.delete_topic("T"));
        eventually(|| disk.waiting_removals() == 1);
        store.put(&message("U", 0, b"x", "")).unwrap();
        let (sender, written) = channel();
        let writing = Arc::clone(&store);
        std::thread::spawn(move || drop(sender.send(writing.run(MaintenanceTask::WriteQueues))));
        let written = written.recv_timeout(Duration::from_secs(10));
        assert_eq!(disk.waiting_removals(), 1, "it still hangs");
        drop(hang);
        deleting.join().unwrap().unwrap();
        written.expect("it waited for the deletion").unwrap();
    });
    assert_eq!(store.max_offset("U", 0), 1);
    store.close().unwrap();
}

/// Writes hang for as long as the fsync of a slow disk takes, again and again, and once for longer. Segments are filled
/// meanwhile.
#[test]
fn many_puts_that_wait_for_short_hangs_are_all_stored() {
    const THREADS: usize = 64;
    const PUTS: usize = 10;
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    // Whoever waits for that long has starved on a loaded machine.
    (options.busy_ms, options.send_wait_ms) = (5000, 5000);
    let store = open(&disk, options);
    let body = vec![b'x'; 2000];
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for hang_ms in [50, 50, 400].into_iter().chain(std::iter::repeat(50)) {
                disk.hang_writes(true);
                std::thread::sleep(Duration::from_millis(hang_ms));
                disk.hang_writes(false);
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let putting: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let outcomes = (0..PUTS).map(|_| store.put(&message("T", 0, &body, "")).map(drop));
                    outcomes.collect::<Result<Vec<()>, StoreError>>()
                })
            })
            .collect();
        let outcomes: Vec<_> = putting.into_iter().map(|thread| thread.join().unwrap()).collect();
        is_done.store(true, Ordering::Relaxed);
        for outcome in outcomes {
            outcome.unwrap();
        }
    });
    assert_eq!(store.max_offset("T", 0), i64::try_from(THREADS * PUTS).unwrap());
    let busy = store.health().busy;
    assert_eq!((busy.held, busy.waited, busy.overload), (0, 0, 0));
    store.close().unwrap();
}

#[test]
fn of_messages_that_are_put_together_none_is_stored_after_one_that_waits_for_a_deletion() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    options.send_wait_ms = 100;
    let store = Store::open_without_threads(options, Arc::new(disk.clone())).unwrap();
    put(&store).unwrap();
    store.run(MaintenanceTask::WriteQueues).unwrap();
    let removed = "consumequeue/T/0";
    std::thread::scope(|scope| {
        disk.hang_removal_of(removed, true);
        let hang = RemovalHang(&disk, removed);
        let deleting = scope.spawn(|| store.delete_topic("T"));
        eventually(|| disk.waiting_removals() == 1);
        let outcomes = store.put_accepted_all(|stage| {
            for topic in ["U", "T", "T", "U"] {
                stage(&message(topic, 0, b"x", "")).unwrap();
            }
        });
        let stored: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
        assert_eq!(stored, [true, false, false, false], "{outcomes:?}");
        let first = message("U", 0, b"x", "");
        let error = store.put_all(&[message("T", 0, b"x", ""), first]).unwrap_err();
        assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        drop(hang);
        deleting.join().unwrap().unwrap();
    });
    assert_eq!(store.max_offset("U", 0), 1);
    store.close().unwrap();
}
