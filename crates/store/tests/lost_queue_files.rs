//! Queue files that somebody deleted or shortened after a crash are noticed, however little of the log is compared with
//! them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on says so, and looks at files behind the store's back"
)]

mod common;

use common::{bodies, put, real, small};
use pyrmq_store::{Fs, MaintenanceTask, Options, Store};
use pyrmq_testkit::sim::Loss;
use pyrmq_testkit::{SimDisk, TempDir};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Only the note shows it, as with a log that is too large to compare.
fn large(root: &Path) -> Options {
    let mut options = small(root);
    options.compare_bytes = 0;
    options.file_reserved_hours = 0;
    options
}

fn open(root: &Path) -> Arc<Store> {
    Store::open_without_threads(large(root), real()).expect("the store opens")
}

fn sync(store: &Store) {
    for task in [
        MaintenanceTask::Flush,
        MaintenanceTask::SyncQueues,
        MaintenanceTask::Flush,
    ] {
        store.run(task).unwrap();
    }
}

fn fill(store: &Store, topic: &str, queue: i32, count: usize) {
    for _ in 0..count {
        put(store, topic, queue, b"body");
    }
}

/// Copies the directory as a kill leaves it.
fn killed(store: &Store) -> TempDir {
    TempDir::copy_of(&store.options().root).unwrap()
}

fn file(dir: &Path, topic: &str, offset: u64) -> PathBuf {
    dir.join(format!("consumequeue/{topic}/0/{offset:020}"))
}

fn shorten(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(1000).unwrap();
}

/// Damage to the 250 units of a queue, 100 in a file.
const HARMS: [fn(&Path, &str); 4] = [
    |dir, topic| fs::remove_file(file(dir, topic, 4000)).unwrap(),
    |dir, topic| shorten(&file(dir, topic, 4000)),
    |dir, topic| fs::remove_file(file(dir, topic, 0)).unwrap(),
    |dir, topic| fs::remove_dir_all(dir.join("consumequeue").join(topic)).unwrap(),
];

/// Opens the store, finds this many messages in the queue, and continues there.
fn is_whole(dir: &Path, topic: &str, count: usize) {
    let store = open(dir);
    assert_eq!(bodies(&store, topic, 0).len(), count, "{topic}");
    assert_eq!(
        put(&store, topic, 0, b"next").queue_offset,
        i64::try_from(count).unwrap()
    );
    store.close().unwrap();
}

/// A store with a queue without changes since its files were noted.
fn with_quiet_queue(dir: &Path) -> Arc<Store> {
    let store = open(dir);
    fill(&store, "Quiet", 0, 250);
    sync(&store);
    fill(&store, "Busy", 0, 50);
    sync(&store);
    store
}

#[test]
fn a_queue_without_newer_records_is_built_again() {
    for harm in HARMS {
        let dir = TempDir::new().unwrap();
        let store = with_quiet_queue(dir.path());
        let copy = killed(&store);
        harm(copy.path(), "Quiet");
        is_whole(copy.path(), "Quiet", 250);
    }
}

#[test]
fn a_shortened_file_is_noticed_again_after_a_start_that_was_interrupted() {
    let disk = SimDisk::default();
    let root = Path::new("/data/store");
    let options = large(root);
    let open_on = |disk: &SimDisk| {
        let session = disk.session();
        let store = Store::open_without_threads(options.clone(), Arc::new(session.clone()));
        (session, store.expect("the store opens"))
    };
    let (session, store) = open_on(&disk);
    fill(&store, "Quiet", 0, 250);
    sync(&store);
    fill(&store, "Busy", 0, 50);
    sync(&store);
    let newest = session.open(&file(root, "Quiet", 4000)).unwrap();
    newest.set_length(136).unwrap();
    newest.sync().unwrap();
    session.kill();
    drop(store);
    let before = disk.steps();
    let (session, store) = open_on(&disk);
    assert_eq!(bodies(&store, "Quiet", 0).len(), 250);
    session.kill();
    for steps in before..=disk.steps() {
        for (seed, loss) in (0..1).flat_map(|seed| Loss::ALL.map(|loss| (seed, loss))) {
            let (session, store) = open_on(&disk.crash(steps, loss, seed));
            let found = bodies(&store, "Quiet", 0).len();
            assert_eq!(found, 250, "behind step {steps} of {before}.., {loss:?} {seed}");
            session.kill();
        }
    }
}

#[test]
fn only_the_note_shows_it() {
    let dir = TempDir::new().unwrap();
    let store = with_quiet_queue(dir.path());
    let copy = killed(&store);
    fs::remove_file(copy.path().join("queueEnds")).unwrap();
    HARMS[0](copy.path(), "Quiet");
    is_whole(copy.path(), "Quiet", 200);
}

#[test]
fn files_of_before_a_stop_of_any_kind_are_known() {
    for is_clean in [true, false] {
        for harm in HARMS {
            let dir = TempDir::new().unwrap();
            let store = with_quiet_queue(dir.path());
            let copy = if is_clean {
                store.close().unwrap();
                TempDir::copy_of(dir.path()).unwrap()
            } else {
                killed(&store)
            };
            let store = open(copy.path());
            fill(&store, "Busy", 0, 50);
            sync(&store);
            let copy = killed(&store);
            harm(copy.path(), "Quiet");
            is_whole(copy.path(), "Quiet", 250);
        }
    }
}

#[test]
fn files_deleted_by_retention_and_deletions_are_not_missed() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    fill(&store, "Gone", 0, 150);
    fill(&store, "Again", 0, 150);
    sync(&store);
    store.delete_topic("Gone").unwrap();
    store.delete_topic("Again").unwrap();
    fill(&store, "Again", 0, 30);
    // Two segments, of which the first is deleted, and with it the first two files of the queue.
    fill(&store, "Busy", 0, 900);
    sync(&store);
    assert!(store.delete_expired().unwrap() > 2);
    fill(&store, "Busy", 0, 10);
    sync(&store);
    let start = store.health().min_physical_offset;
    let (min, end) = (store.min_offset("Busy", 0), store.max_offset("Busy", 0));
    assert!(start > 0 && min > 100 && end == 910, "{start} {min} {end}");
    let copy = killed(&store);
    let first = fs::read_dir(copy.path().join("consumequeue/Busy/0"))
        .unwrap()
        .count();
    let again = open(copy.path());
    assert_eq!(
        (again.min_offset("Busy", 0), again.max_offset("Busy", 0)),
        (min, end)
    );
    assert_eq!(
        (again.max_offset("Gone", 0), again.max_offset("Again", 0)),
        (0, 30)
    );
    let files = fs::read_dir(copy.path().join("consumequeue/Busy/0"))
        .unwrap()
        .count();
    assert_eq!(files, first, "nothing was built again");
    // Its oldest remaining file is missing.
    let copy = killed(&store);
    let oldest = u64::try_from(min / 100 * 2000).unwrap();
    fs::remove_file(file(copy.path(), "Busy", oldest)).unwrap();
    let again = open(copy.path());
    assert_eq!(
        (again.min_offset("Busy", 0), again.max_offset("Busy", 0)),
        (min, end)
    );
}

#[test]
fn a_note_that_is_damaged_or_of_another_brokers_time_is_not_believed() {
    let dir = TempDir::new().unwrap();
    let store = with_quiet_queue(dir.path());
    for byte in [0, 9, 30, 60] {
        let copy = killed(&store);
        let path = copy.path().join("queueEnds");
        let mut bytes = fs::read(&path).unwrap();
        bytes[byte] ^= 1;
        fs::write(&path, bytes).unwrap();
        is_whole(copy.path(), "Quiet", 250);
    }
    // Another broker wrote the checkpoint, after its own deletion.
    let copy = killed(&store);
    fs::remove_dir_all(copy.path().join("consumequeue/Quiet")).unwrap();
    let path = copy.path().join("checkpoint");
    let mut bytes = fs::read(&path).unwrap();
    for at in [7, 15] {
        bytes[at] = bytes[at].wrapping_add(1);
    }
    fs::write(&path, bytes).unwrap();
    let again = open(copy.path());
    assert_eq!(bodies(&again, "Busy", 0).len(), 50);
}
