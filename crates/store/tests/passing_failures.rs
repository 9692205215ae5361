//! Transient failures that are no disk failures: no descriptors, no memory, no space. Operations are refused with the
//! reason, and the store recovers on its own.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{again, bodies, content, eventually, message, open, props, put, real, small};
use pyrmq_store::{KeyKind, KeyQuery, MaintenanceTask, Options, Store, StoreError};
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
#[cfg(debug_assertions)]
use pyrmq_testkit::schedule;
use pyrmq_testkit::sim::Loss;
use pyrmq_testkit::{SimDisk, TempDir};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const FULL: Fault = Fault::Error(ErrorKind::StorageFull);

fn without_threads(disk: &FaultyDisk, options: Options) -> Arc<Store> {
    Store::open_without_threads(options, Arc::new(disk.clone())).unwrap()
}

fn fill(store: &Store, count: usize) {
    let body = vec![7; 10_000];
    for _ in 0..count {
        store.put(&message("T", 0, &body, "")).unwrap();
    }
}

fn short_lived(root: &Path) -> Options {
    let mut options = small(root);
    options.file_reserved_hours = 0;
    options
}

#[test]
fn a_lack_of_descriptors_or_memory_is_no_failed_disk() {
    for number in [EMFILE, ENFILE, ENOMEM] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let store = without_threads(&disk, small(dir.path()));
        put(&store, "T", 0, b"before");
        for (operation, path) in [
            (Operation::Open, "consumequeue"),
            (Operation::Open, "/index/"),
            (Operation::Open, "queueEnds"),
        ] {
            disk.fail(operation, path, 0, Fault::System(number));
        }
        if number != ENOMEM {
            disk.fail(Operation::SyncDirectory, "/store", 0, Fault::System(number));
        }
        let error = store.run(MaintenanceTask::WriteQueues).unwrap_err();
        assert!(matches!(error, StoreError::Exhausted { .. }), "{error}");
        let error = store.put(&message("T", 0, b"refused", "")).unwrap_err();
        assert!(matches!(error, StoreError::Stalled { .. }), "{error}");
        assert!(error.to_string().contains("cannot create"), "{error}");
        assert_eq!(store.health().read_only, Some(error.to_string()));
        for task in [MaintenanceTask::SyncQueues, MaintenanceTask::Index] {
            drop(store.run(task));
        }
        assert!(!store.has_failed());
        assert_eq!(bodies(&store, "T", 0), [b"before"], "reading goes on");
        disk.heal();
        store.run(MaintenanceTask::WriteQueues).unwrap();
        put(&store, "T", 0, b"after");
        assert_eq!(store.health().read_only, None);
        store.run(MaintenanceTask::Index).unwrap();
        store.close().unwrap();
        drop(store);
        assert!(!dir.path().join("abort").exists());
        let store = open(small(dir.path()));
        assert_eq!(bodies(&store, "T", 0), [&b"before"[..], b"after"]);
    }
}

#[test]
fn queues_whose_fsync_could_not_begin_are_fsynced_later() {
    for (operation, queues) in [(Operation::SyncDirectory, 3), (Operation::SyncAll, 100)] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let store = without_threads(&disk, small(dir.path()));
        for queue in 0..queues {
            put(&store, "T", queue, b"x");
        }
        disk.fail(operation, "consumequeue", 0, Fault::System(EMFILE));
        store.run(MaintenanceTask::SyncQueues).unwrap_err();
        assert!(!store.has_failed());
        disk.heal();
        // Nothing was forgotten: the next round has the same work, and fails in the same way.
        disk.fail(operation, "consumequeue", 0, Fault::Error(ErrorKind::Other));
        store.run(MaintenanceTask::SyncQueues).unwrap_err();
        assert!(store.has_failed());
    }
}

#[test]
fn a_roll_that_finds_no_descriptor_refuses_the_one_send() {
    for (operation, path) in [
        (Operation::Open, "commitlog/00000000000000065536"),
        (Operation::SyncDirectory, "commitlog"),
    ] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let store = without_threads(&disk, small(dir.path()));
        fill(&store, 6);
        disk.fail(operation, path, 0, Fault::System(EMFILE));
        let error = store.put(&message("T", 0, &[1; 10_000], "")).unwrap_err();
        assert!(matches!(error, StoreError::Exhausted { .. }), "{error}");
        assert!(!store.has_failed());
        disk.heal();
        fill(&store, 6);
        assert_eq!(bodies(&store, "T", 0).len(), 12);
        store.close().unwrap();
    }
}

#[test]
fn queues_on_a_full_file_system_of_their_own_keep_sends_out_until_they_can_be_written() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = without_threads(&disk, small(dir.path()));
    put(&store, "T", 0, b"before");
    disk.fail(Operation::Write, "consumequeue", 0, FULL);
    store.run(MaintenanceTask::WriteQueues).unwrap_err();
    for _ in 0..3 {
        // The log's file system has space at every check.
        store.run(MaintenanceTask::Clean).unwrap();
        let error = store.put(&message("T", 0, b"refused", "")).unwrap_err();
        assert!(matches!(error, StoreError::Stalled { .. }), "{error}");
    }
    disk.heal();
    store.run(MaintenanceTask::WriteQueues).unwrap();
    put(&store, "T", 0, b"after");
    store.close().unwrap();
}

#[test]
fn retention_makes_space_on_a_full_disk() {
    for is_noted in [true, false] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let mut store = without_threads(&disk, short_lived(dir.path()));
        fill(&store, 20);
        store.run(MaintenanceTask::WriteQueues).unwrap();
        if is_noted {
            store.run(MaintenanceTask::Flush).unwrap();
            store.run(MaintenanceTask::SyncQueues).unwrap();
        }
        let copy = TempDir::copy_of(dir.path()).unwrap();
        put(&store, "new", 0, b"its queue has no file");
        store.run(MaintenanceTask::Flush).unwrap();
        for round in 0..2 {
            if round == 1 {
                // Also after a crash.
                disk.heal();
                store = without_threads(&disk, short_lived(copy.path()));
                put(&store, "new", 0, b"its queue has no file");
                store.run(MaintenanceTask::Flush).unwrap();
            }
            disk.fail(Operation::Open, "consumequeue/new", 0, FULL);
            disk.fail(Operation::Open, "queueEnds", 0, FULL);
            assert!(store.delete_expired().unwrap() >= 3, "segments have gone");
            assert!(store.health().min_physical_offset >= 3 * 65536);
            assert!(!store.has_failed());
        }
        disk.heal();
        store.run(MaintenanceTask::WriteQueues).unwrap();
        let left = bodies(&store, "T", 0).len();
        assert_eq!(bodies(&store, "new", 0).len(), 1);
        store.close().unwrap();
        drop(store);
        let store = open(small(copy.path()));
        assert_eq!(bodies(&store, "T", 0).len(), left);
        assert_eq!(store.max_offset("T", 0), 20);
        assert_eq!(bodies(&store, "new", 0).len(), 1);
    }
}

#[test]
fn retention_makes_space_after_a_crash_where_one_fsync_does_not_reach_all_queues() {
    let sim = SimDisk::default();
    sim.set_now(1_800_000_000_000);
    // As with a topic's directory that is a link to another file system.
    sim.set_syncs_all(false);
    let session = sim.session();
    let disk = FaultyDisk::new(Arc::new(session.clone()));
    let store = without_threads(&disk, short_lived(Path::new("/store")));
    fill(&store, 20);
    put(&store, "other", 0, b"x");
    store.run(MaintenanceTask::WriteQueues).unwrap();
    store.run(MaintenanceTask::Flush).unwrap();
    session.kill();
    drop(store);

    let session = sim.session();
    let disk = FaultyDisk::new(Arc::new(session.clone()));
    let store = without_threads(&disk, short_lived(Path::new("/store")));
    put(&store, "new", 0, b"its queue has no file");
    store.run(MaintenanceTask::Flush).unwrap();
    disk.fail(Operation::Open, "consumequeue/new", 0, FULL);
    disk.fail(Operation::Open, "queueEnds", 0, FULL);
    assert!(store.delete_expired().unwrap() >= 3, "segments have gone");
    assert!(!store.has_failed());
    disk.heal();
    store.run(MaintenanceTask::WriteQueues).unwrap();
    let left = bodies(&store, "T", 0).len();
    session.kill();
    drop(store);

    // What the segments took with them was durable in the queues, so that they go on where they were.
    let lost = sim.crash(sim.steps(), Loss::All, 1);
    let store =
        Store::open_without_threads(short_lived(Path::new("/store")), Arc::new(lost.session())).unwrap();
    assert_eq!(store.max_offset("T", 0), 20);
    assert_eq!(bodies(&store, "T", 0).len(), left);
    assert_eq!(store.max_offset("other", 0), 1);
}

#[test]
fn a_segment_that_cannot_be_deleted_keeps_those_behind_it() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = without_threads(&disk, short_lived(dir.path()));
    fill(&store, 30);
    store.run(MaintenanceTask::Flush).unwrap();
    disk.fail(
        Operation::Remove,
        "commitlog/00000000000000000000",
        0,
        Fault::Error(ErrorKind::PermissionDenied),
    );
    for _ in 0..3 {
        store.delete_expired().unwrap_err();
        assert_eq!(bodies(&store, "T", 0).len(), 30, "nothing went");
    }
    let copy = TempDir::copy_of(dir.path()).unwrap();
    assert_eq!(bodies(&open(small(copy.path())), "T", 0).len(), 30);
    disk.heal();
    assert!(store.delete_expired().unwrap() > 0);
    store.close().unwrap();
    drop(store);
    open(small(dir.path()));
}

#[test]
fn a_full_disk_does_not_keep_a_store_from_opening() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = without_threads(&disk, short_lived(dir.path()));
    fill(&store, 20);
    store.close().unwrap();
    drop(store);
    disk.fail(Operation::Write, "abort", 0, FULL);
    let store = without_threads(&disk, short_lived(dir.path()));
    assert!(dir.path().join("abort").exists(), "a crash would be noticed");
    assert_eq!(bodies(&store, "T", 0).len(), 20);
    assert!(store.delete_expired().unwrap() > 0);
    store.close().unwrap();
    assert!(!dir.path().join("abort").exists());
}

#[test]
fn a_disk_too_full_for_an_empty_file_refuses_a_start_and_says_what_it_needs() {
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let store = without_threads(&disk, small(dir.path()));
        fill(&store, 20);
        store.close().unwrap();
        drop(store);
        let before = content(dir.path());
        disk.fail(Operation::Open, "abort", 0, Fault::Error(kind));
        for _ in 0..2 {
            let opened = Store::open_without_threads(small(dir.path()), Arc::new(disk.clone()));
            let text = opened.unwrap_err().to_string();
            let file = dir.path().join("abort").display().to_string();
            assert!(
                text.contains(&file) && text.contains("free space or inodes"),
                "{text}"
            );
            assert!(content(dir.path()) == before, "something was changed");
        }
        disk.heal();
        let store = without_threads(&disk, small(dir.path()));
        assert!(!store.health().recovered_from_crash, "the stop was clean");
        assert_eq!(bodies(&store, "T", 0).len(), 20);
        store.close().unwrap();
    }
}

#[test]
fn a_crash_that_cannot_be_looked_for_is_not_taken_for_a_clean_stop() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = without_threads(&disk, small(dir.path()));
    put(&store, "T", 0, b"x");
    let copy = TempDir::copy_of(dir.path()).unwrap();
    disk.fail(
        Operation::Exists,
        "abort",
        0,
        Fault::Error(ErrorKind::PermissionDenied),
    );
    let opened = Store::open_without_threads(small(copy.path()), Arc::new(disk.clone()));
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("abort"), "{error}");
}

#[test]
fn a_topic_that_is_made_again_while_it_is_deleted_finds_its_directory() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    // A deletion of many queues takes long on a loaded machine.
    options.send_wait_ms = 20_000;
    let store = open(options);
    std::thread::scope(|scope| {
        let putting = scope.spawn(|| {
            for queue in 0..2000 {
                put(&store, "T", queue % 400, b"x");
                if queue % 3 == 0 {
                    store.run(MaintenanceTask::WriteQueues).unwrap();
                }
            }
        });
        while !putting.is_finished() {
            store.delete_topic("T").unwrap();
        }
    });
    assert!(!store.has_failed());
    store.close().unwrap();
}

/// As before, but on a simulated disk, where a seed decides at each of its calls and at each lock of the store which
/// thread runs.
#[cfg(debug_assertions)]
#[test]
fn a_topic_that_is_made_again_while_it_is_deleted_finds_its_directory_whichever_thread_runs_when() {
    pyrmq_store::schedule_by(schedule::point);
    for seed in 0..300 {
        let sim = SimDisk::default();
        sim.set_now(1_800_000_000_000);
        let session = Arc::new(sim.session());
        let store = Store::open_without_threads(small(Path::new("/store")), session).unwrap();
        let putting = || {
            for queue in 0..6 {
                put(&store, "T", queue % 2, b"x");
                store.run(MaintenanceTask::WriteQueues).unwrap();
            }
        };
        let deleting = || {
            for _ in 0..4 {
                store.delete_topic("T").unwrap();
            }
        };
        schedule::run(seed, vec![Box::new(putting), Box::new(deleting)]);
        assert!(!store.has_failed(), "seed {seed}");
        store.close().unwrap();
    }
}

#[test]
fn counters_are_readable_while_the_disk_hangs() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = without_threads(&disk, small(dir.path()));
    put(&store, "T", 0, b"x");
    disk.hang_writes(true);
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| put(&store, "T", 0, b"y"));
        eventually(|| store.health().busy.held_now_ms > 0);
        let (sender, stats) = mpsc::channel();
        let asked = Arc::clone(&store);
        scope.spawn(move || sender.send(asked.stats()).unwrap());
        let stats = stats.recv_timeout(Duration::from_secs(20));
        disk.hang_writes(false);
        assert_eq!(stats.expect("stats do not wait for the disk").messages_put, 1);
        hanging.join().unwrap();
    });
    assert_eq!(store.stats().messages_put, 2);
}

#[test]
fn an_fsync_of_a_log_of_two_thousand_segments_is_one_call() {
    let disk = FaultyDisk::new(Arc::new(SimDisk::default().session()));
    let mut options = small(Path::new("/store"));
    options.segment_bytes = 8192;
    let mut store = without_threads(&disk, options.clone());
    for _ in 0..2000 {
        store.put(&message("T", 0, &[7; 6000], "")).unwrap();
    }
    store.run(MaintenanceTask::Flush).unwrap();
    for is_reopened in [false, true] {
        if is_reopened {
            store.close().unwrap();
            drop(store);
            store = without_threads(&disk, options.clone());
        }
        let before = disk.counts();
        put(&store, "T", 0, b"x");
        store.run(MaintenanceTask::Flush).unwrap();
        let after = disk.counts();
        assert_eq!(
            (after.0 - before.0, after.1 - before.1, after.2 - before.2),
            (0, 1, 1),
            "reads, writes and fsyncs"
        );
    }
}

/// Where the inner run finds the store.
const PLACE: &str = "PYRMQ_FEW_FILES";

#[test]
fn a_log_of_many_segments_is_read_and_written_with_few_descriptors() {
    let test = "a_log_of_many_segments_is_read_and_written_with_few_descriptors";
    let Some(place) = std::env::var_os(PLACE) else {
        let dir = TempDir::new().unwrap();
        let script = r#"ulimit -n 64 || exit 77; exec "$0" --exact "$1" --nocapture"#;
        return again("sh", &["-c", script], test, (PLACE, dir.path()));
    };
    let root = Path::new(&place);
    let body = vec![7; 60_000];
    let properties = props(&[("UNIQ_KEY", "U")]);
    let open_here = || Store::open_without_threads(small(root), real()).unwrap();
    let mut store = open_here();
    for number in 0..100 {
        store.put(&message("T", 0, &body, &properties)).unwrap();
        if number % 10 == 9 {
            store.run(MaintenanceTask::Flush).unwrap();
        }
    }
    for is_clean in [true, false] {
        let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert_eq!(bodies(&store, "T", 0).len(), 100);
        assert!(files() < 40, "{} files are open", files());
        if is_clean {
            store.close().unwrap();
        } else {
            store.run(MaintenanceTask::Flush).unwrap();
        }
        drop(store);
        store = open_here();
    }
}

#[test]
fn an_index_of_many_files_is_searched_and_written_with_few_descriptors() {
    let test = "an_index_of_many_files_is_searched_and_written_with_few_descriptors";
    let Some(place) = std::env::var_os(PLACE) else {
        let dir = TempDir::new().unwrap();
        let script = r#"ulimit -n 64 || exit 77; exec "$0" --exact "$1" --nocapture"#;
        return again("sh", &["-c", script], test, (PLACE, dir.path()));
    };
    let root = Path::new(&place);
    let mut options = small(root);
    options.index_entries = 10;
    options.max_query_count = 10_000;
    let open_here = || Store::open_without_threads(options.clone(), real()).unwrap();
    let mut store = open_here();
    let mut sent = 0;
    let mut send = |store: &Store| {
        for _ in 0..400 {
            let text = props(&[("UNIQ_KEY", &format!("U{sent}")), ("KEYS", "hot")]);
            store.put(&message("T", 0, b"x", &text)).unwrap();
            sent += 1;
        }
        store.run(MaintenanceTask::Index).unwrap();
        store.run(MaintenanceTask::WriteIndex).unwrap();
        sent
    };
    let find = |store: &Store, key: &str, kind| {
        let query = KeyQuery {
            topic: "T",
            key,
            kind,
            max_count: 10_000,
            begin_ms: 0,
            end_ms: i64::MAX,
        };
        let found = store.query(&query).unwrap();
        common::decoded(&found.body).count()
    };
    for _ in 0..2 {
        let sent = send(&store);
        let index = std::fs::read_dir(root.join("index")).unwrap().count();
        assert!(index >= sent * 2 / 10, "{index} files");
        for number in [0, 1, sent / 2, sent - 1] {
            assert_eq!(find(&store, &format!("U{number}"), KeyKind::Unique), 1);
        }
        assert_eq!(find(&store, "hot", KeyKind::Key), sent);
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(open < 30, "{open} files are open");
        drop(store);
        store = open_here();
    }
    assert_eq!(find(&store, "hot", KeyKind::Key), 800);
    store.close().unwrap();
}
