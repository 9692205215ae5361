//! A deleted topic does not come back, however the store stops, and messages put into it later stay.
#![allow(
    clippy::disallowed_methods,
    reason = "the test changes files behind the store's back"
)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, eventually, get, message, open, put, real, small};
use pyrmq_store::{GetStatus, MaintenanceTask, Options, Store};
use pyrmq_testkit::sim::Loss;
use pyrmq_testkit::{SimDisk, TempDir};
use std::fs;
use std::sync::Arc;

const NAME: &str = "deletedTopics";

/// Copies a directory while its store is running, and after a clean stop.
fn ends(dir: &TempDir, store: Arc<Store>) -> [TempDir; 2] {
    let crash = TempDir::copy_of(dir.path()).unwrap();
    store.close().unwrap();
    drop(store);
    [crash, TempDir::copy_of(dir.path()).unwrap()]
}

fn forget_queues(dir: &TempDir) {
    let path = dir.path().join("consumequeue");
    if path.exists() {
        fs::remove_dir_all(path).unwrap();
    }
}

fn is_gone(store: &Store, topic: &str) {
    assert!(store.topics().iter().all(|(name, _)| name != topic));
    assert_eq!((store.min_offset(topic, 0), store.max_offset(topic, 0)), (0, 0));
    assert_eq!(get(store, topic, 0, 0).status, GetStatus::NoMatchedLogicQueue);
}

#[test]
fn a_deleted_topic_stays_away_after_a_kill_and_after_a_clean_stop() {
    for without_queues in [false, true] {
        let dir = TempDir::new().unwrap();
        let store = open(small(dir.path()));
        for number in 0..300 {
            put(
                &store,
                if number % 3 == 0 { "Kept" } else { "Gone" },
                number % 2,
                b"x",
            );
        }
        store.delete_topic("Gone").unwrap();
        is_gone(&store, "Gone");
        for end in ends(&dir, store) {
            if without_queues {
                forget_queues(&end);
            }
            for _ in 0..2 {
                let store = open(small(end.path()));
                is_gone(&store, "Gone");
                assert_eq!(bodies(&store, "Kept", 0).len(), 50);
                store.close().unwrap();
            }
        }
    }
}

#[test]
fn a_topic_that_is_made_again_keeps_what_is_new() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for _ in 0..3 {
        for _ in 0..150 {
            put(&store, "T", 0, b"old");
        }
        store.delete_topic("T").unwrap();
    }
    for number in 0..120 {
        assert_eq!(put(&store, "T", 0, b"new").queue_offset, number);
    }
    for end in ends(&dir, store) {
        for lost in ["", "consumequeue", "consumequeue/T/0/00000000000000000000"] {
            let copy = TempDir::copy_of(end.path()).unwrap();
            let path = copy.path().join(lost);
            if path.is_file() {
                fs::remove_file(path).unwrap();
            } else if !lost.is_empty() && path.exists() {
                fs::remove_dir_all(path).unwrap();
            }
            let store = open(small(copy.path()));
            assert_eq!(bodies(&store, "T", 0), vec![b"new"; 120], "without {lost:?}");
            assert_eq!(put(&store, "T", 0, b"next").queue_offset, 120);
        }
    }
}

#[test]
fn an_interrupted_deletion_is_brought_to_its_end() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for _ in 0..250 {
        put(&store, "T", 0, b"old");
        put(&store, "T", 1, b"old");
    }
    store.close().unwrap();
    drop(store);
    let before = TempDir::copy_of(dir.path()).unwrap();
    let store = open(small(dir.path()));
    store.delete_topic("T").unwrap();
    store.close().unwrap();
    // The note exists, and so do the files: all of them, or those that a crash in the middle left.
    for file in ["", "0/00000000000000000000", "0"] {
        let copy = TempDir::copy_of(before.path()).unwrap();
        for name in [NAME, "checkpoint"] {
            fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        }
        fs::write(copy.path().join("abort"), "1").unwrap();
        let path = copy.path().join("consumequeue/T").join(file);
        if path.is_file() {
            fs::remove_file(path).unwrap();
        } else if !file.is_empty() {
            fs::remove_dir_all(path).unwrap();
        }
        let store = open(small(copy.path()));
        is_gone(&store, "T");
        assert!(!copy.path().join("consumequeue/T").exists());
        assert_eq!(put(&store, "T", 0, b"new").queue_offset, 0);
    }
}

#[test]
fn records_behind_a_log_that_lost_its_end_are_new() {
    let disk = SimDisk::default();
    let mut options = Options::new("/store");
    options.segment_bytes = 65_536;
    options.queue_file_bytes = 2000;
    options.index = false;
    let opened = |disk: &SimDisk| {
        let session = disk.session();
        let store = Store::open_without_threads(options.clone(), Arc::new(session.clone())).unwrap();
        (session, store)
    };
    let (session, store) = opened(&disk);
    put(&store, "T", 0, b"durable");
    store.run(MaintenanceTask::Flush).unwrap();
    store.run(MaintenanceTask::SyncQueues).unwrap();
    for _ in 0..40 {
        put(&store, "T", 0, b"in memory only");
    }
    store.delete_topic("T").unwrap();
    session.kill();
    // Everything that was not fsynced is lost: the deletion was fsynced, the records before it were not.
    let after = disk.crash(disk.steps(), Loss::All, 0);
    let (session, store) = opened(&after);
    assert!(store.health().max_physical_offset < 1000);
    is_gone(&store, "T");
    for number in 0..5 {
        assert_eq!(put(&store, "T", 0, b"new").queue_offset, number);
    }
    store.run(MaintenanceTask::Flush).unwrap();
    session.kill();
    let (_, store) = opened(&after);
    assert_eq!(bodies(&store, "T", 0), vec![b"new"; 5]);
}

#[test]
fn the_note_goes_with_the_segments() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.file_reserved_hours = 0;
    let store = open(options.clone());
    put(&store, "T", 0, b"old");
    store.delete_topic("T").unwrap();
    assert!(dir.path().join(NAME).exists());
    for _ in 0..2000 {
        put(&store, "U", 0, &[b'x'; 100]);
    }
    store.close().unwrap();
    drop(store);
    let store = open(options.clone());
    assert!(dir.path().join(NAME).exists());
    assert!(store.delete_expired().unwrap() > 0);
    store.close().unwrap();
    drop(store);
    drop(open(options));
    assert!(!dir.path().join(NAME).exists());
}

#[test]
fn messages_of_another_broker_count_more_than_the_note() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for _ in 0..10 {
        put(&store, "T", 0, b"old");
    }
    store.delete_topic("T").unwrap();
    store.close().unwrap();
    drop(store);
    // The state after a Java broker that has rebuilt the queues and written its times.
    let mut times = fs::read(dir.path().join("checkpoint")).unwrap();
    // Both of the log and of the queues: one flipped bit would be damage.
    for at in [7, 15] {
        times[at] ^= 1;
    }
    fs::write(dir.path().join("checkpoint"), times).unwrap();
    forget_queues(&dir);
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "T", 0).len(), 10);
    assert!(!dir.path().join(NAME).exists());
}

#[test]
fn a_repaired_log_does_not_bring_it_back() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    put(&store, "T", 0, b"old");
    put(&store, "U", 0, b"kept");
    store.delete_topic("T").unwrap();
    store.close().unwrap();
    // The state after `pyrmq log repair`.
    fs::remove_file(dir.path().join("checkpoint")).unwrap();
    fs::remove_file(dir.path().join("queueEnds")).unwrap();
    fs::write(dir.path().join("abort"), "1").unwrap();
    let store = open(small(dir.path()));
    is_gone(&store, "T");
    assert_eq!(bodies(&store, "U", 0), [b"kept"]);
}

#[test]
fn a_torn_or_foreign_note_stops_nothing() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for topic in ["A", "B", "C"] {
        put(&store, topic, 0, b"x");
    }
    store.delete_topic("A").unwrap();
    let whole = fs::read(dir.path().join(NAME)).unwrap();
    store.delete_topic("B").unwrap();
    store.close().unwrap();
    drop(store);
    let both = fs::read(dir.path().join(NAME)).unwrap();
    assert!(both.starts_with(&whole));
    for bytes in [&both[..both.len() - 1], b"garbage", b"", &[0; 4096]] {
        let copy = TempDir::copy_of(dir.path()).unwrap();
        fs::write(copy.path().join(NAME), bytes).unwrap();
        forget_queues(&copy);
        let store = open(small(copy.path()));
        assert_eq!(bodies(&store, "C", 0).len(), 1);
        let is_noted = bytes.starts_with(&whole);
        assert_eq!(store.max_offset("A", 0), i64::from(!is_noted));
        store.delete_topic("C").unwrap();
        store.close().unwrap();
        drop(store);
        is_gone(&open(small(copy.path())), "C");
    }
}

#[test]
fn puts_during_a_deletion_are_in_the_old_queue_or_in_the_new_one() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|queue| {
                let store = &store;
                scope.spawn(move || {
                    let mut last = 0;
                    while last < 500 || store.stats().messages_put < 2000 {
                        store.put(&message("T", queue, b"x", "")).unwrap();
                        last += 1;
                    }
                })
            })
            .collect();
        for round in 1..=30 {
            // Each deletion has messages to delete.
            eventually(|| store.stats().messages_put >= round * 20);
            store.delete_topic("T").unwrap();
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
    let counts: Vec<_> = (0..2).map(|queue| bodies(&store, "T", queue).len()).collect();
    for end in ends(&dir, store) {
        let store = Store::open(small(end.path()), real()).unwrap();
        let found: Vec<_> = (0..2).map(|queue| bodies(&store, "T", queue).len()).collect();
        assert_eq!(found, counts);
    }
    assert!(dir.path().join(NAME).exists());
}
