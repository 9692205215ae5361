//! The ends of queues right after their log was cut, their oldest messages were deleted, or their topic was deleted and
//! created again; and the answers to pulls around the ends.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, get, put, small};
use pyrmq_store::{GetStatus, MaintenanceTask, Options, Store};
use pyrmq_testkit::SimDisk;
use pyrmq_testkit::sim::{Loss, Session};
use std::path::Path;
use std::sync::Arc;

fn options() -> Options {
    let mut options = small(Path::new("/store"));
    options.file_reserved_hours = 0;
    options
}

fn start(disk: &SimDisk) -> (Session, Arc<Store>) {
    let session = disk.session();
    let store = Store::open_without_threads(options(), Arc::new(session.clone())).unwrap();
    (session, store)
}

fn make_durable(store: &Store) {
    for task in [
        MaintenanceTask::Flush,
        MaintenanceTask::SyncQueues,
        MaintenanceTask::SaveCheckpoint,
    ] {
        store.run(task).unwrap();
    }
}

/// Returns the ends, and checks that pulls around them agree.
fn ends(store: &Store, topic: &str) -> (i64, i64) {
    let (min, max) = (store.min_offset(topic, 0), store.max_offset(topic, 0));
    let status = |offset| get(store, topic, 0, offset).status;
    if max > 0 {
        assert_eq!(status(max), GetStatus::OffsetOverflowOne);
        assert_eq!(status(max + 1), GetStatus::OffsetOverflowBadly);
        if min > 0 {
            assert_eq!(status(min - 1), GetStatus::OffsetTooSmall);
            assert_eq!(get(store, topic, 0, 0).next_offset, min);
        }
        if min < max {
            assert_eq!(status(min), GetStatus::Found);
            assert_eq!(status(max - 1), GetStatus::Found);
        }
    }
    assert_eq!(i64::try_from(bodies(store, topic, 0).len()).unwrap(), max - min);
    (min, max)
}

/// Checks that the queue's ends are as expected, also after a kill and after a clean stop.
fn stays(disk: &SimDisk, (session, store): (Session, Arc<Store>), topic: &str, expected: (i64, i64)) {
    assert_eq!(ends(&store, topic), expected);
    session.kill();
    drop(store);
    let (_, store) = start(disk);
    assert_eq!(ends(&store, topic), expected, "after a kill");
    store.close().unwrap();
    drop(store);
    let (_, store) = start(disk);
    assert_eq!(ends(&store, topic), expected, "after a clean stop");
    assert_eq!(put(&store, topic, 0, b"next").queue_offset, expected.1);
    assert_eq!(ends(&store, topic), (expected.0, expected.1 + 1));
}

#[test]
fn after_the_log_was_cut() {
    for topic in ["Half", "None"] {
        let disk = SimDisk::default();
        let (session, store) = start(&disk);
        for _ in 0..3 {
            put(&store, "Half", 0, b"durable");
        }
        make_durable(&store);
        for _ in 0..2 {
            put(&store, "Half", 0, b"lost");
            put(&store, "None", 0, b"lost");
        }
        // The queues are ahead of the remaining log.
        store.run(MaintenanceTask::WriteQueues).unwrap();
        session.kill();
        let after = disk.crash(disk.steps(), Loss::All, 1);
        let started = start(&after);
        let expected = if topic == "Half" { (0, 3) } else { (0, 0) };
        stays(&after, started, topic, expected);
    }
}

#[test]
fn after_old_segments_went_and_the_log_was_cut() {
    let disk = SimDisk::default();
    let (session, store) = start(&disk);
    for _ in 0..200 {
        put(&store, "T", 0, &[b'x'; 1000]);
    }
    make_durable(&store);
    put(&store, "T", 0, b"lost");
    store.run(MaintenanceTask::WriteQueues).unwrap();
    assert!(store.delete_expired().unwrap() > 0);
    let (min, max) = ends(&store, "T");
    assert!(min > 100 && max == 201, "{min}..{max}");
    session.kill();
    let after = disk.crash(disk.steps(), Loss::All, 1);
    let started = start(&after);
    // Retention fsyncs the queues first: after a power loss, deleted messages may be back, but none is missing.
    let begin = started.1.min_offset("T", 0);
    assert!(begin <= min);
    stays(&after, started, "T", (begin, 200));
}

#[test]
fn after_a_trimmed_topic_was_deleted_and_made_again() {
    let disk = SimDisk::default();
    let (session, store) = start(&disk);
    for _ in 0..200 {
        put(&store, "T", 0, &[b'x'; 1000]);
    }
    make_durable(&store);
    assert!(store.delete_expired().unwrap() > 0);
    store.delete_topic("T").unwrap();
    assert_eq!(ends(&store, "T"), (0, 0));
    for _ in 0..4 {
        put(&store, "T", 0, b"new");
    }
    stays(&disk, (session, store), "T", (0, 4));
}
