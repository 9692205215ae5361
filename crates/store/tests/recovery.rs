//! The store's content after a clean stop, after a crash, and after files were lost or damaged.
//!
//! A crash is a copy of the directory while the store runs: it has what was in the page cache, not what was only in
//! memory.
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

use common::{bodies, decoded, get, message, open, props, put, real, small};
use pyrmq_store::{GetStatus, KeyKind, KeyQuery, MaintenanceTask, Options, Store, StoreError};
use pyrmq_testkit::TempDir;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const QUEUES: i32 = 3;

fn fill(store: &Store, from: u32, to: u32) {
    for number in from..to {
        let body = format!("{number:0width$}", width = 10 + number as usize % 200);
        let queue = i32::try_from(number).unwrap() % QUEUES;
        let key = format!("k{number}");
        let properties = props(&[("KEYS", &key), ("TAGS", "t")]);
        store
            .put(&message("T", queue, body.as_bytes(), &properties))
            .unwrap();
    }
}

/// Checks that every message exists once, in order, up to `count`.
fn check(store: &Store, count: u32) {
    for queue in 0..QUEUES {
        let numbers: Vec<u32> = bodies(store, "T", queue)
            .into_iter()
            .map(|body| String::from_utf8(body).unwrap().parse().unwrap())
            .collect();
        let expected: Vec<u32> = (0..count)
            .filter(|number| i32::try_from(*number).unwrap() % QUEUES == queue)
            .collect();
        assert_eq!(numbers, expected, "queue {queue}");
    }
}

fn find(store: &Store, key: &str) -> usize {
    let query = KeyQuery {
        topic: "T",
        key,
        kind: KeyKind::Key,
        max_count: 10,
        begin_ms: 0,
        end_ms: i64::MAX,
    };
    let found = store.query(&query).unwrap();
    assert_eq!(decoded(&found.body).count(), found.count);
    found.count
}

fn check_keys(store: &Store, count: u32) {
    let start = Instant::now();
    while store.health().dispatch_behind_bytes > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the index never caught up"
        );
        std::thread::yield_now();
    }
    for number in (0..count).step_by(37).chain([count - 1]) {
        assert_eq!(find(store, &format!("k{number}")), 1, "k{number}");
    }
    assert_eq!(find(store, &format!("k{count}")), 0);
}

/// Returns a store with `count` messages as a kill at this moment would leave it.
fn crashed(count: u32) -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    fill(&store, 0, count);
    TempDir::copy_of(dir.path()).unwrap()
}

/// Returns a store with `count` messages as a kill would leave it once the queues' units have reached the files.
fn crashed_later(count: u32) -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    fill(&store, 0, count);
    let start = Instant::now();
    for queue in 0..QUEUES {
        let last = store.max_offset("T", queue) - 1;
        let name = format!("consumequeue/T/{queue}/{:020}", last / 100 * 2000);
        let at = usize::try_from(last % 100 * 20 + 8).unwrap();
        let is_there = || {
            fs::read(dir.path().join(&name))
                .is_ok_and(|bytes| bytes.get(at..at + 4).is_some_and(|size| size != [0; 4]))
        };
        while !is_there() {
            assert!(start.elapsed() < Duration::from_secs(20), "{name} never came");
            std::thread::yield_now();
        }
    }
    TempDir::copy_of(dir.path()).unwrap()
}

/// Returns a store with `count` messages as a kill would leave it once everything is durable and the checkpoint says
/// so: a start reads only what follows.
fn crashed_when_durable(count: u32) -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    fill(&store, 0, count);
    for task in [
        MaintenanceTask::Flush,
        MaintenanceTask::SyncQueues,
        MaintenanceTask::SaveCheckpoint,
    ] {
        store.run(task).unwrap();
    }
    let copy = TempDir::copy_of(dir.path()).unwrap();
    assert!(copy.path().join("abort").exists());
    copy
}

fn closed(count: u32) -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    fill(&store, 0, count);
    store.close().unwrap();
    assert!(!dir.path().join("abort").exists());
    dir
}

/// Opens the store, checks it, continues, and opens it again.
fn check_all(dir: &Path, count: u32) {
    let store = open(small(dir));
    check(&store, count);
    check_keys(&store, count);
    fill(&store, count, count + 500);
    check(&store, count + 500);
    store.close().unwrap();
    drop(store);
    let store = open(small(dir));
    check(&store, count + 500);
    check_keys(&store, count + 500);
}

fn queue_file(dir: &Path, queue: i32, first: u32) -> PathBuf {
    dir.join(format!("consumequeue/T/{queue}/{first:020}"))
}

fn writable(path: &Path) -> File {
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_clean_stop_loses_nothing() {
    let dir = closed(2000);
    check_all(dir.path(), 2000);
}

#[test]
fn a_kill_loses_nothing() {
    let dir = crashed(2000);
    let store = open(small(dir.path()));
    assert!(store.health().recovered_from_crash);
    drop(store);
    let dir = crashed(2000);
    check_all(dir.path(), 2000);
}

#[test]
fn an_empty_store_opens_after_a_kill() {
    let dir = crashed(0);
    let store = open(small(dir.path()));
    fill(&store, 0, 10);
    check(&store, 10);
}

#[test]
fn a_torn_last_record_is_cut() {
    let dir = crashed(1000);
    let end = {
        let copy = TempDir::copy_of(dir.path()).unwrap();
        let store = open(small(copy.path()));
        store.health().max_physical_offset
    };
    // The last record loses its end, and remains of an older run follow it.
    let segment = dir.path().join(format!("commitlog/{:020}", end / 65536 * 65536));
    let file = writable(&segment);
    let at = u64::try_from(end % 65536).unwrap();
    file.write_all_at(&[0xAA; 300], at - 40).unwrap();
    let store = open(small(dir.path()));
    check(&store, 999);
    let stored = put(&store, "T", 999 % QUEUES, format!("{:0300}", 999).as_bytes());
    assert_eq!(stored.queue_offset, 333);
    drop(store);
    let dir2 = TempDir::copy_of(dir.path()).unwrap();
    let store = open(small(dir2.path()));
    check(&store, 1000);
}

#[test]
fn bytes_after_the_cut_never_come_back() {
    // Three records of equal size; the middle one is damaged. A new record in its place must not bring the third one
    // back.
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let first = put(&store, "T", 0, b"aaaa");
    let second = put(&store, "T", 0, b"bbbb");
    put(&store, "T", 0, b"cccc");
    let copy = TempDir::copy_of(dir.path()).unwrap();
    let body_at = u64::try_from(first.end_position).unwrap() + 88;
    writable(&copy.path().join("commitlog/00000000000000000000"))
        .write_all_at(b"X", body_at)
        .unwrap();
    let store = open(small(copy.path()));
    assert_eq!(bodies(&store, "T", 0), [b"aaaa"]);
    assert_eq!(
        put(&store, "T", 0, b"dddd").physical_offset,
        second.physical_offset
    );
    let again = TempDir::copy_of(copy.path()).unwrap();
    let store = open(small(again.path()));
    assert_eq!(bodies(&store, "T", 0), [b"aaaa", b"dddd"]);
}

#[test]
fn missing_queues_are_built_again() {
    for dir in [closed(1500), crashed_later(1500)] {
        fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
        check_all(dir.path(), 1500);
    }
}

#[test]
fn queues_behind_the_log_are_built_again() {
    let dir = crashed_later(1500);
    // One queue loses its newest units, as if they had never reached the disk.
    let file = writable(&queue_file(dir.path(), 1, 8000));
    file.set_len(400).unwrap();
    file.set_len(2000).unwrap();
    check_all(dir.path(), 1500);
}

#[test]
fn one_missing_queue_is_seen_by_its_gap() {
    let dir = crashed_later(1500);
    fs::remove_dir_all(dir.path().join("consumequeue/T/2")).unwrap();
    check_all(dir.path(), 1500);
}

#[test]
fn queues_that_lost_files_after_a_crash_are_built_again() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 9] = [
        ("nothing", |_| {}),
        ("newest file gone", |root| {
            fs::remove_file(queue_file(root, 1, 8000)).unwrap();
        }),
        ("newest files gone", |root| {
            for first in [6000, 8000] {
                fs::remove_file(queue_file(root, 1, first)).unwrap();
            }
        }),
        ("oldest file gone", |root| {
            fs::remove_file(queue_file(root, 1, 0)).unwrap();
        }),
        ("newest file shortened", |root| {
            writable(&queue_file(root, 1, 8000)).set_len(400).unwrap();
        }),
        ("newest file emptied", |root| {
            writable(&queue_file(root, 1, 8000)).set_len(0).unwrap();
        }),
        ("queue gone", |root| {
            fs::remove_dir_all(root.join("consumequeue/T/2")).unwrap();
        }),
        ("topic gone", |root| {
            fs::remove_dir_all(root.join("consumequeue/T")).unwrap();
        }),
        ("all queues gone", |root| {
            fs::remove_dir_all(root.join("consumequeue")).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let dir = crashed_when_durable(1500);
        damage(dir.path());
        let store = open(small(dir.path()));
        let recovered = store.health().recovered_from_crash;
        assert!(recovered, "{name}");
        check(&store, 1500);
        drop(store);
        check_all(dir.path(), 1500);
    }
}

/// Leaves the directory as a Java broker does after a clean stop.
fn stopped_by_java(dir: &Path, topics: &str) {
    fs::remove_file(dir.join("queueEnds")).unwrap();
    let file = writable(&dir.join("checkpoint"));
    file.write_all_at(&[0; 64], 64).unwrap();
    fs::create_dir_all(dir.join("config")).unwrap();
    let table = format!("{{\"topicConfigTable\":{{{topics}}}}}");
    fs::write(dir.join("config/topics.json"), table).unwrap();
}

#[test]
fn queues_that_are_missing_since_another_brokers_stop_are_built_again() {
    let known = "\"T\":{}";
    for (topics, lost, is_back) in [
        (known, "consumequeue/T/1", true),
        ("", "consumequeue/T/1", true),
        (known, "consumequeue/T", true),
        (known, "consumequeue", true),
        // The topic was deleted there.
        ("\"Other\":{}", "consumequeue/T", false),
    ] {
        let dir = closed(1000);
        let store = open(small(dir.path()));
        common::put(&store, "Other", 0, b"the newest record");
        store.close().unwrap();
        drop(store);
        stopped_by_java(dir.path(), topics);
        fs::remove_dir_all(dir.path().join(lost)).unwrap();
        if is_back {
            check_all(dir.path(), 1000);
        } else {
            let store = open(small(dir.path()));
            assert_eq!(store.topics(), [("Other".to_owned(), vec![0])]);
        }
    }
    let dir = closed(1000);
    stopped_by_java(dir.path(), known);
    let file = queue_file(dir.path(), 1, 6000);
    writable(&file).write_all_at(&[0; 2000], 0).unwrap();
    check_all(dir.path(), 1000);
    let dir = closed(1000);
    stopped_by_java(dir.path(), known);
    fs::remove_file(queue_file(dir.path(), 1, 0)).unwrap();
    check_all(dir.path(), 1000);
}

#[test]
fn a_topic_that_another_broker_made_again_is_not_taken_for_a_damaged_one() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for _ in 0..10 {
        common::put(&store, "T", 0, b"old");
        common::put(&store, "T", 1, b"old");
    }
    store.delete_topic("T").unwrap();
    common::put(&store, "T", 0, b"new");
    store.close().unwrap();
    drop(store);
    fs::remove_file(dir.path().join("deletedTopics")).unwrap();
    stopped_by_java(dir.path(), "\"T\":{}");
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "T", 0), [b"new"]);
    assert_eq!(store.max_offset("T", 1), 0);
}

#[test]
fn queues_ahead_of_the_log_are_cut() {
    for dir in [closed(1000), crashed_later(1000)] {
        // A unit for a record that the log does not have.
        let name = queue_file(dir.path(), 0, 6000);
        let store_end = 1 << 40;
        let mut unit = Vec::new();
        unit.extend_from_slice(&i64::to_be_bytes(store_end));
        unit.extend_from_slice(&i32::to_be_bytes(100));
        unit.extend_from_slice(&i64::to_be_bytes(0));
        let file = writable(&name);
        file.write_all_at(&unit, 34 * 20).unwrap();
        check_all(dir.path(), 1000);
    }
}

#[test]
fn a_missing_or_foreign_index_is_made_again() {
    for dir in [closed(1500), crashed_later(1500)] {
        drop(fs::remove_dir_all(dir.path().join("index")));
        check_all(dir.path(), 1500);
    }
    let dir = closed(1500);
    let mut options = small(dir.path());
    options.index_entries = 300;
    let store = open(options);
    check_keys(&store, 1500);
}

#[test]
fn a_missing_checkpoint_only_costs_time() {
    for dir in [closed(1500), crashed(1500)] {
        fs::remove_file(dir.path().join("checkpoint")).unwrap();
        check_all(dir.path(), 1500);
    }
}

#[test]
fn damage_in_front_of_good_durable_records_stops_the_start() {
    let dir = closed(2000);
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let first = dir.path().join("commitlog/00000000000000000000");
    writable(&first).write_all_at(b"XXXX", 90).unwrap();
    let before = fs::read(&first).unwrap();
    // The second start must not mistake the first one for a crash.
    for _ in 0..2 {
        match Store::open(small(dir.path()), real()) {
            Err(StoreError::Damaged { path, position, .. }) => {
                assert_eq!((path, position), (first.clone(), 0));
            }
            other => panic!("{other:?}"),
        }
        assert!(!dir.path().join("abort").exists());
    }
    assert!(fs::read(&first).unwrap() == before, "nothing was cut");
}

#[test]
fn damage_in_front_of_durable_records_of_a_java_broker_that_crashed_stops_the_start() {
    let dir = crashed_when_durable(2000);
    fs::remove_file(dir.path().join("queueEnds")).unwrap();
    let checkpoint = dir.path().join("checkpoint");
    let bytes = fs::read(&checkpoint).unwrap();
    let physic_ms = i64::from_be_bytes(bytes[..8].try_into().unwrap());
    // Everything was stored within the slack; the first record is older in any case.
    let file = writable(&checkpoint);
    file.write_all_at(&(physic_ms + 1).to_be_bytes(), 0).unwrap();
    file.write_all_at(&[0; 64], 64).unwrap();
    let first = dir.path().join("commitlog/00000000000000000000");
    writable(&first).write_all_at(b"XXXX", 90).unwrap();
    let error = Store::open(small(dir.path()), real()).unwrap_err();
    let StoreError::Damaged { path, position, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!((path, position), (first, 0));
}

#[test]
fn wrong_lengths_and_gaps_are_named() {
    let dir = closed(2000);
    let mut options = small(dir.path());
    options.segment_bytes = 32 * 1024;
    let error = Store::open(options, real()).unwrap_err();
    assert!(matches!(
        error,
        StoreError::FileLength {
            length: 65536,
            expected: 32768,
            key: "mappedFileSizeCommitLog",
            ..
        }
    ));
    let mut options = small(dir.path());
    options.queue_file_bytes = 4000;
    let error = Store::open(options, real()).unwrap_err();
    assert!(matches!(
        error,
        StoreError::FileLength {
            length: 2000,
            key: "mappedFileSizeConsumeQueue",
            ..
        }
    ));
    fs::remove_file(dir.path().join("commitlog/00000000000000065536")).unwrap();
    let error = Store::open(small(dir.path()), real()).unwrap_err();
    assert!(
        matches!(error, StoreError::Gap { expected: 65536, .. }),
        "{error}"
    );
}

#[test]
fn an_empty_last_segment_is_removed() {
    let dir = closed(2000);
    let end = open(small(dir.path())).health().max_physical_offset;
    let next = dir
        .path()
        .join(format!("commitlog/{:020}", end / 65536 * 65536 + 65536));
    File::create(&next).unwrap();
    check_all(dir.path(), 2000);
}

#[test]
fn a_second_store_is_refused_while_the_first_one_runs() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let error = Store::open(small(dir.path()), real()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use by another broker"));
    put(&store, "T", 0, b"undisturbed");
    store.close().unwrap();
    let again = open(small(dir.path()));
    assert_eq!(bodies(&again, "T", 0), [b"undisturbed"]);
}

#[test]
fn foreign_stores_are_refused_untouched() {
    let cases = [
        (
            "batchconsumequeue/T/0/00000000000000000000",
            "batch consume queues",
        ),
        ("consumequeue/CURRENT", "RocksDB"),
        ("consumequeue/%LMQ%light/0/00000000000000000000", "multi-dispatch"),
        ("config/topics/CURRENT", "RocksDB configuration"),
        ("tiered_index_file/0", "tiered storage"),
        ("config/tieredStoreMetadata.json", "tiered storage"),
        ("dledger-n0/data/00000000000000000000", "DLedger"),
        ("rocksdbstore/000123.sst", "RocksDB"),
        ("compaction/compactionLog/T/0/00000000000000000000", "compacted"),
    ];
    for (file, name) in cases {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(&path).unwrap();
        let error = Store::open(small(dir.path()), real()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{file}: {error}");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was made");
    }
    let dir = closed(10);
    for kept in ["timerwheel", "timercheck"] {
        File::create(dir.path().join(kept)).unwrap();
    }
    fs::create_dir_all(dir.path().join("batchconsumequeue")).unwrap();
    check(&open(small(dir.path())), 10);
}

/// Every file below a directory.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn topics_of_batches_are_refused_by_name_until_they_are_none() {
    let of_batches = r#"{"topicConfigTable":{
        "A":{"topicName":"A","attributes":{"queue.type":"BatchCQ"}},
        "B":{"topicName":"B","attributes":{"queue.type":"SimpleCQ"}},
        "C":{"attributes":{"message.type":"FIFO","queue.type":"BatchCQ"}},
        "D":{}
    }}"#;
    let plain = of_batches.replace("BatchCQ", "SimpleCQ");
    let half = &of_batches[..of_batches.len() / 2];
    // What the file and its backup have, and which of them is refused.
    for (main, backup, refused) in [
        (of_batches, &*plain, Some("topics.json")),
        (half, of_batches, Some("topics.json.bak")),
        (&*plain, of_batches, None),
        (half, half, None),
    ] {
        let dir = closed(10);
        fs::create_dir_all(dir.path().join("config")).unwrap();
        fs::write(dir.path().join("config/topics.json"), main).unwrap();
        fs::write(dir.path().join("config/topics.json.bak"), backup).unwrap();
        let before = contents(dir.path());
        let Some(name) = refused else {
            check(&open(small(dir.path())), 10);
            continue;
        };
        let error = Store::open(small(dir.path()), real()).unwrap_err();
        let StoreError::TopicsOfBatches { path, topics } = &error else {
            panic!("{error}");
        };
        assert_eq!(
            (path.as_path(), topics.as_str()),
            (&*dir.path().join("config").join(name), "A, C")
        );
        assert!(error.to_string().contains("mqadmin deleteTopic"), "{error}");
        assert_eq!(contents(dir.path()), before, "nothing was changed");
        fs::write(dir.path().join("config/topics.json"), &plain).unwrap();
        check(&open(small(dir.path())), 10);
    }
}

#[test]
fn a_root_that_is_a_file_is_named() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("file");
    File::create(&root).unwrap();
    let error = Store::open(Options::new(&root), real()).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn old_segments_are_deleted_and_readers_are_informed() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.file_reserved_hours = 0;
    let store = open(options.clone());
    fill(&store, 0, 3000);
    let end = store.health().max_physical_offset;
    let (flushed, answer) = std::sync::mpsc::channel();
    store.when_durable(end, move |result| flushed.send(result).unwrap());
    answer.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    assert!(store.delete_expired().unwrap() > 0);
    let start = store.health().min_physical_offset;
    assert!(start > 0 && start < end);
    let min = store.min_offset("T", 0);
    assert!(min > 0);
    let got = get(&store, "T", 0, 0);
    assert_eq!((got.status, got.next_offset), (GetStatus::OffsetTooSmall, min));
    let got = get(&store, "T", 0, min);
    assert_eq!(got.status, GetStatus::Found);
    let record = decoded(&got.body).next().unwrap().unwrap();
    assert!(record.physical_offset >= start);
    assert_eq!(find(&store, "k0"), 0);
    assert_eq!(find(&store, "k2999"), 1);
    let left: usize = (0..QUEUES).map(|queue| bodies(&store, "T", queue).len()).sum();
    let crash = TempDir::copy_of(dir.path()).unwrap();
    store.close().unwrap();
    drop(store);
    for root in [dir.path(), crash.path()] {
        options.root = root.to_owned();
        let store = open(options.clone());
        assert_eq!(store.min_offset("T", 0), min);
        let again: usize = (0..QUEUES).map(|queue| bodies(&store, "T", queue).len()).sum();
        assert_eq!(again, left);
        let stored = put(&store, "T", 0, b"on");
        assert_eq!(stored.queue_offset, 1000);
        store.close().unwrap();
    }
    // The queues can be rebuilt although their beginning is gone: their first files are filled.
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    options.root = dir.path().to_owned();
    let store = open(options);
    assert_eq!((store.min_offset("T", 0), store.max_offset("T", 0)), (min, 1001));
    let again: usize = (0..QUEUES).map(|queue| bodies(&store, "T", queue).len()).sum();
    assert_eq!(again, left + 1);
}
