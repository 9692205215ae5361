//! Invalid directories and messages: each gets a clear error, and nothing is changed before a refusal.
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

use common::{bodies, content, eventually, get, message, open, props, put, real, small, try_get};
use pyrmq_remoting::message::properties;
use pyrmq_store::{GetMessage, GetStatus, MaintenanceTask, Options, Store, StoreError, TagFilter};
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use pyrmq_testkit::{SimDisk, TempDir};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

fn closed(messages: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for number in 0..messages {
        put(
            &store,
            "T",
            i32::try_from(number % 3).unwrap(),
            format!("{number:0100}").as_bytes(),
        );
    }
    store.close().unwrap();
    dir
}

fn edit(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Opens the store and expects an error, and that no byte of any file changes.
fn refused(options: Options) -> StoreError {
    let before = content(&options.root);
    let root = options.root.clone();
    let error = Store::open(options, real()).unwrap_err();
    assert!(content(&root) == before, "something was changed before: {error}");
    error
}

#[test]
fn damage_in_the_middle_of_a_segment_is_named_and_nothing_is_cut() {
    for clean in [true, false] {
        // The body of the third record, its size, its magic number; all in the only segment.
        for at in [2 * 192 + 100, 2 * 192 + 3, 2 * 192 + 5] {
            let dir = closed(50);
            edit(&dir.path().join("commitlog/00000000000000000000"), at, b"\xEE");
            // The replay must not begin at the queues.
            fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
            if !clean {
                fs::write(dir.path().join("abort"), "1").unwrap();
                // The checkpoint calls the log durable to its end.
                let mut times = fs::read(dir.path().join("checkpoint")).unwrap();
                let far = i64::MAX.to_be_bytes();
                times[..8].copy_from_slice(&far);
                fs::write(dir.path().join("checkpoint"), times).unwrap();
            }
            let log = dir.path().join("commitlog/00000000000000000000");
            let before = fs::read(&log).unwrap();
            let error = Store::open(small(dir.path()), real()).unwrap_err();
            let StoreError::Damaged {
                path, position, good, ..
            } = &error
            else {
                panic!("clean {clean}, byte {at}: {error}");
            };
            assert_eq!((path, *position, *good), (&log, 2 * 192, 3 * 192), "{error}");
            assert!(fs::read(&log).unwrap() == before);
            assert!(error.to_string().contains("nothing was cut"));
        }
    }
}

#[test]
fn other_segment_sizes_change_nothing() {
    for crash in [false, true] {
        let dir = closed(1000);
        if crash {
            fs::write(dir.path().join("abort"), "1").unwrap();
        }
        let mut options = small(dir.path());
        options.segment_bytes = 32 * 1024;
        let text = refused(options).to_string();
        assert!(
            text.contains("has 65536 bytes, but mappedFileSizeCommitLog is 32768"),
            "{text}"
        );
        let mut options = small(dir.path());
        options.queue_file_bytes = 1000;
        let text = refused(options).to_string();
        assert!(
            text.contains("has 2000 bytes, but mappedFileSizeConsumeQueue is 1000"),
            "{text}"
        );
    }
}

#[test]
fn files_of_a_wrong_length_in_the_log_are_named() {
    for length in [1, 65_535, 65_537] {
        let dir = closed(1000);
        let path = dir.path().join("commitlog/00000000000000000000");
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(length)
            .unwrap();
        let error = refused(small(dir.path()));
        assert!(
            matches!(error, StoreError::FileLength { .. }),
            "{length}: {error}"
        );
    }
    let dir = closed(1000);
    fs::write(dir.path().join("commitlog/notes.txt"), "not ours").unwrap();
    fs::write(dir.path().join("consumequeue/notes.txt"), "not ours").unwrap();
    fs::create_dir_all(dir.path().join("consumequeue/T/not-a-number")).unwrap();
    assert_eq!(bodies(&open(small(dir.path())), "T", 0).len(), 334);
    assert!(dir.path().join("commitlog/notes.txt").exists());
}

#[test]
fn one_damaged_queue_is_noticed_and_built_again_after_a_clean_stop() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("directory gone", |queue| fs::remove_dir_all(queue).unwrap()),
        ("newest file gone", |queue| {
            fs::remove_file(queue.join("00000000000000006000")).unwrap();
        }),
        ("oldest file gone", |queue| {
            fs::remove_file(queue.join("00000000000000000000")).unwrap();
        }),
        ("gap", |queue| {
            fs::remove_file(queue.join("00000000000000002000")).unwrap();
        }),
        ("cut off", |queue| {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(queue.join("00000000000000006000"));
            file.unwrap().set_len(100).unwrap();
        }),
        ("emptied", |queue| {
            edit(&queue.join("00000000000000006000"), 0, &[0; 2000]);
        }),
    ];
    for (name, damage) in damages {
        let dir = closed(1000);
        damage(&dir.path().join("consumequeue/T/1"));
        let store = open(small(dir.path()));
        for queue in 0..3 {
            let expected = if queue == 0 { 334 } else { 333 };
            assert_eq!(
                bodies(&store, "T", queue).len(),
                expected,
                "{name}: queue {queue}"
            );
        }
        assert_eq!(put(&store, "T", 1, b"next").queue_offset, 333, "{name}");
    }
}

#[test]
fn foreign_and_broken_small_files_do_not_stop_a_start() {
    for (name, bytes) in [
        ("checkpoint", &b""[..]),
        ("checkpoint", b"\xFF\xFF\xFF"),
        ("queueEnds", b"garbage"),
        ("queueEnds", b""),
        ("abort", b""),
        ("index/20260101000000000", b"short"),
        ("index/readme", b"not ours"),
    ] {
        let dir = closed(500);
        fs::create_dir_all(dir.path().join("index")).unwrap();
        fs::write(dir.path().join(name), bytes).unwrap();
        let store = open(small(dir.path()));
        assert_eq!(bodies(&store, "T", 0).len(), 167, "{name}");
    }
}

type Harm = (&'static str, fn(&Path));

/// Damage to a file.
const HARM: [Harm; 8] = [
    ("gone", |path| fs::remove_file(path).unwrap()),
    ("empty", |path| fs::write(path, b"").unwrap()),
    ("cut in half", |path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }),
    ("twice as long", |path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, bytes.repeat(2)).unwrap();
    }),
    ("another file", |path| {
        let length = fs::read(path).unwrap().len();
        let mut bytes = b"PK\x03\x04 not ours ".repeat(length / 10 + 1);
        bytes.truncate(length);
        fs::write(path, bytes).unwrap();
    }),
    ("zeros", |path| {
        let length = fs::read(path).unwrap().len();
        fs::write(path, vec![0; length]).unwrap();
    }),
    ("a directory", |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    (PIPE, |path| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }),
];

/// Only tried in the place of segments, as zeros are: to open a pipe waits for its other end.
const PIPE: &str = "a pipe";

const OLDEST_SEGMENT: &str = "commitlog/00000000000000000000";
const SECOND_SEGMENT: &str = "commitlog/00000000000000065536";
const NEWEST_SEGMENT: &str = "commitlog/00000000000000262144";
const OLDEST_ENTRIES: &str = "consumequeue/T/0/00000000000000000000";

/// What a start makes of a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Every message can be read.
    Keeps,
    /// No message of that file can be read, and every other one can.
    LosesTheFile,
    Refused,
}

/// What the first start makes of it, and the one after it. Only the log cannot be rebuilt. A segment that is gone is
/// taken for one that was deleted for its age, or never written; so is one of zero bytes at the end. A start after a
/// clean stop reads only the end of the log, so other damage is found by reads.
fn outcomes(file: &str, harm: &str) -> (Outcome, Outcome) {
    use Outcome::{Keeps, LosesTheFile, Refused};
    let is_index = file.starts_with("index/");
    match (file, harm) {
        (OLDEST_SEGMENT | NEWEST_SEGMENT, "gone") | (NEWEST_SEGMENT, "empty" | "another file" | "zeros") => {
            (LosesTheFile, LosesTheFile)
        }
        (OLDEST_SEGMENT | NEWEST_SEGMENT, _) => (Refused, Refused),
        (OLDEST_ENTRIES, "another file") => (LosesTheFile, Keeps),
        (_, "a directory") if !is_index => (Refused, Refused),
        _ => (Keeps, Keeps),
    }
}

#[test]
fn an_overwritten_segment_in_the_middle_is_named_soon_after_a_clean_start() {
    let whole = closed(1500);
    let segment = "commitlog/00000000000000131072";
    for (harm, make) in HARM {
        if !matches!(harm, "another file" | "zeros") {
            continue;
        }
        let dir = TempDir::copy_of(whole.path()).unwrap();
        make(&dir.path().join(segment));
        let store = open(small(dir.path()));
        let begun = Instant::now();
        eventually(|| store.health().damage.is_some());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let damage = store.health().damage.unwrap();
        assert!(damage.contains(segment) && damage.contains("196608"), "{damage}");
        assert!(store.health().read_only.is_none());
        put(&store, "T", 0, b"next");
        store.close().unwrap();
    }
    let store = open(small(whole.path()));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(store.health().damage, None);
}

/// A message of topic T.
struct Sent {
    queue: i32,
    offset: i64,
    body: Vec<u8>,
    /// The files that have its record and its entry.
    files: [String; 2],
}

/// The body and the position of each message that can be read, by queue and offset.
fn readable(store: &Store) -> BTreeMap<(i32, i64), (Vec<u8>, i64)> {
    let mut all = BTreeMap::new();
    let mut read = |queue_id, offset, max_count| {
        let got = store.get(&GetMessage {
            topic: "T",
            queue_id,
            offset,
            max_count,
            max_bytes: 1 << 20,
            tags: TagFilter::All,
        });
        let body = got.map(|got| got.body).unwrap_or_default();
        let mut count = 0;
        for record in common::decoded(&body).map_while(Result::ok) {
            record.check_body().unwrap();
            let place = (queue_id, record.queue_offset);
            all.insert(place, (record.body.to_vec(), record.physical_offset));
            count += 1;
        }
        count
    };
    for queue in 0..3 {
        for first in (0..500).step_by(25) {
            if read(queue, first, 25) < 25 {
                for offset in first..first + 25 {
                    read(queue, offset, 1);
                }
            }
        }
    }
    all
}

fn sent(root: &Path) -> Vec<Sent> {
    let copy = TempDir::copy_of(root).unwrap();
    let all = readable(&open(small(copy.path())));
    assert_eq!(all.len(), 1500);
    all.into_iter()
        .map(|((queue, offset), (body, position))| Sent {
            queue,
            offset,
            body,
            files: [
                format!("commitlog/{:020}", position / 65536 * 65536),
                format!("consumequeue/T/{queue}/{:020}", offset / 100 * 2000),
            ],
        })
        .collect()
}

/// What a started store has of the messages. Those of other files than the damaged one must be there.
fn left(store: &Store, all: &[Sent], damaged: &String) -> Outcome {
    let readable = readable(store);
    let is_there = |sent: &&&Sent| {
        let found = readable.get(&(sent.queue, sent.offset));
        found.is_some_and(|(body, _)| *body == sent.body)
    };
    let (of_file, others): (Vec<_>, Vec<_>) = all.iter().partition(|sent| sent.files.contains(damaged));
    let count = others.iter().filter(is_there).count();
    assert_eq!(
        count,
        others.len(),
        "messages of other files than {damaged} are gone"
    );
    match of_file.iter().filter(is_there).count() {
        count if count == of_file.len() => Outcome::Keeps,
        0 => Outcome::LosesTheFile,
        count => panic!("{count} messages of {damaged} are left"),
    }
}

#[test]
fn a_start_serves_the_log_behind_a_damaged_first_record_and_names_it() {
    let whole = closed(1500);
    // The record's length, magic number, position and topic length.
    for at in [0, 4, 28, 188] {
        let dir = TempDir::copy_of(whole.path()).unwrap();
        edit(&dir.path().join(OLDEST_SEGMENT), at, b"\xEE\xEE\xEE\xEE");
        for reads in [false, true] {
            let store = Store::open_without_threads(small(dir.path()), real()).unwrap();
            let health = store.health();
            let damage = health.damage.expect("it is reported");
            assert!(damage.contains(OLDEST_SEGMENT), "byte {at}: {damage}");
            assert!(damage.contains("follows at 192,"), "byte {at}: {damage}");
            assert_eq!(health.read_only, None, "byte {at}");
            if reads {
                let mut found = readable(&store);
                found.remove(&(0, 0));
                assert_eq!(found.len(), 1499, "byte {at}");
            }
            store.close().unwrap();
        }
    }
}

#[test]
fn a_segment_with_a_damaged_first_record_may_become_the_oldest() {
    let dir = closed(1500);
    edit(&dir.path().join(SECOND_SEGMENT), 4, b"\xEE");
    let store = open(small(dir.path()));
    eventually(|| store.health().damage.is_some());
    store.close().unwrap();
    drop(store);
    fs::remove_file(dir.path().join(OLDEST_SEGMENT)).unwrap();
    let store = open(small(dir.path()));
    let damage = store.health().damage.expect("it is reported");
    assert!(damage.contains(SECOND_SEGMENT), "{damage}");
    let found = readable(&store);
    let positions: Vec<_> = found.values().map(|(_, position)| *position).collect();
    assert_eq!(positions.iter().min(), Some(&(65536 + 192)));
    // 341 records fit a segment.
    assert_eq!(positions.len(), 1500 - 341 - 1);
}

/// Position of a record in the middle of the second segment; each has 192 bytes.
const DAMAGED: u64 = 65536 + 100 * 192;

#[test]
fn a_damaged_record_that_a_reader_meets_is_named_and_the_next_start_goes_on() {
    let whole = closed(1500);
    let harms: [(&str, u64, Vec<u8>, usize); 5] = [
        ("its length", 0, vec![0xEE; 4], 1),
        ("its magic number", 4, vec![0xEE; 4], 1),
        ("its head, with zeros", 0, vec![0; 64], 1),
        ("ten records, with zeros", 0, vec![0; 10 * 192], 10),
        ("ten records and a half", 96, vec![0xEE; 10 * 192], 11),
    ];
    for (harm, at, bytes, lost) in harms {
        let dir = TempDir::copy_of(whole.path()).unwrap();
        edit(&dir.path().join(SECOND_SEGMENT), DAMAGED - 65536 + at, &bytes);
        for is_first in [true, false] {
            let store = open(small(dir.path()));
            assert!(!store.health().recovered_from_crash, "{harm}");
            assert_eq!(store.health().damage, None, "{harm}: no start reads it");
            let found = readable(&store).len();
            assert!((1500 - lost..1500).contains(&found), "{harm}: {found}");
            eventually(|| store.health().damage.is_some());
            let damage = store.health().damage.unwrap();
            assert!(damage.contains(SECOND_SEGMENT), "{harm}: {damage}");
            if is_first {
                assert!(store.health().read_only.is_none(), "{harm}");
                put(&store, "Other", 0, b"next");
            }
            assert_eq!(bodies(&store, "Other", 0), [b"next"], "{harm}");
            store.close().unwrap();
        }
    }
}

#[test]
fn the_log_behind_its_last_good_record_is_searched_once() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open_without_threads(small(dir.path()), Arc::new(disk.clone())).unwrap();
    let (good, bad) = (40, 60);
    let from = (0..good).map(|_| put(&store, "T", 0, b"good").end_position).max();
    let from = u64::try_from(from.unwrap()).unwrap();
    for _ in 0..bad {
        put(&store, "T", 0, b"bad");
    }
    let end = u64::try_from(store.end_position()).unwrap();
    let damage = vec![0xEE; usize::try_from(end - from).unwrap()];
    edit(&dir.path().join(OLDEST_SEGMENT), from, &damage);
    for offset in good..good + bad {
        assert!(try_get(&store, "T", 0, offset).map_or(true, |got| got.count == 0));
    }
    let (before, _, _) = disk.counts();
    store.close().unwrap();
    let reads = disk.counts().0 - before;
    assert!(reads < 100, "{reads} reads");
    assert!(store.health().damage.is_some());
}

#[test]
fn a_damaged_unit_is_distinguished_from_a_damaged_record() {
    let whole = closed(1500);
    let unit = 50 * 20;
    let harms: [(&str, u64, Vec<u8>); 4] = [
        (
            "into the middle of a record",
            unit,
            (150 * 192 + 7_i64).to_be_bytes().to_vec(),
        ),
        ("behind the log's end", unit, (1_i64 << 40).to_be_bytes().to_vec()),
        (
            "into the unused rest of a segment",
            unit,
            65_520_i64.to_be_bytes().to_vec(),
        ),
        (
            "to a record of another size",
            unit + 8,
            100_i32.to_be_bytes().to_vec(),
        ),
    ];
    for (harm, at, bytes) in harms {
        let dir = TempDir::copy_of(whole.path()).unwrap();
        edit(&dir.path().join(OLDEST_ENTRIES), at, &bytes);
        let store = Store::open_without_threads(small(dir.path()), real()).unwrap();
        assert_eq!(readable(&store).len(), 1499, "{harm}");
        store.close().unwrap();
        assert_eq!(store.health().damage, None, "{harm}");
        drop(store);
        let store = open(small(dir.path()));
        assert!(
            store.health().recovered_from_crash,
            "{harm}: the queues are built again"
        );
        assert_eq!(readable(&store).len(), 1500, "{harm}");
    }
}

#[test]
fn a_damaged_unit_beside_a_damaged_record_does_not_stop_the_next_start() {
    let dir = closed(1500);
    edit(&dir.path().join(SECOND_SEGMENT), DAMAGED - 65536, &[0xEE; 4]);
    edit(
        &dir.path().join(OLDEST_ENTRIES),
        50 * 20,
        &(1_i64 << 40).to_be_bytes(),
    );
    for _ in 0..2 {
        let store = Store::open_without_threads(small(dir.path()), real()).unwrap();
        assert_eq!(readable(&store).len(), 1498);
        store.close().unwrap();
        let damage = store.health().damage.expect("it is reported");
        assert!(damage.contains(&DAMAGED.to_string()), "{damage}");
    }
}

#[test]
fn a_start_serves_the_log_behind_an_oldest_segment_that_the_disk_cannot_read() {
    let dir = closed(1500);
    let disk = FaultyDisk::default();
    let fault = Fault::Error(ErrorKind::Other);
    disk.fail(Operation::Read, OLDEST_SEGMENT, 0, fault);
    let mut options = small(dir.path());
    // Without keys there is no index, and each start would read all of the log for it.
    options.index = false;
    let store = Store::open_without_threads(options, Arc::new(disk.clone())).unwrap();
    let damage = store.health().damage.expect("it is reported");
    assert!(
        damage.contains("cannot read") && damage.contains(OLDEST_SEGMENT),
        "{damage}"
    );
    assert_eq!(readable(&store).len(), 1500 - 341);
    store.close().unwrap();
}

#[test]
fn damage_is_no_longer_reported_once_retention_has_deleted_it() {
    let dir = closed(1500);
    for segment in [SECOND_SEGMENT, "commitlog/00000000000000131072"] {
        edit(&dir.path().join(segment), 0, &vec![0; 65536]);
    }
    let mut options = small(dir.path());
    options.file_reserved_hours = 0;
    let store = open(options);
    eventually(|| store.health().damage.is_some());
    let damage = store.health().damage.unwrap();
    assert!(
        damage.contains(SECOND_SEGMENT) && damage.contains("follows at 196608,"),
        "{damage}"
    );
    store.delete_expired().unwrap();
    assert!(store.health().min_physical_offset >= 196_608);
    assert_eq!(store.health().damage, None);
}

#[test]
fn every_kind_of_file_in_every_wrong_state_is_named_or_mended() {
    let whole = closed(1500);
    let store = open(small(whole.path()));
    let keyed = props(&[("KEYS", "key")]);
    store.put(&message("Gone", 0, b"deleted later", &keyed)).unwrap();
    store.delete_topic("Gone").unwrap();
    store.close().unwrap();
    drop(store);
    fs::write(whole.path().join("abort"), "1").unwrap();
    let index = fs::read_dir(whole.path().join("index")).unwrap().next();
    let index = index.unwrap().unwrap().file_name().into_string().unwrap();
    let all = sent(whole.path());
    let kinds = [
        OLDEST_SEGMENT.to_owned(),
        NEWEST_SEGMENT.to_owned(),
        OLDEST_ENTRIES.to_owned(),
        "consumequeue/T/0/00000000000000008000".to_owned(),
        format!("index/{index}"),
        "checkpoint".to_owned(),
        "abort".to_owned(),
        "queueEnds".to_owned(),
        "deletedTopics".to_owned(),
        "lock".to_owned(),
    ];
    for file in &kinds {
        for (harm, make) in HARM {
            if matches!(harm, "zeros" | PIPE) && !file.starts_with("commitlog/") {
                continue;
            }
            for crashed in [false, true] {
                let dir = TempDir::copy_of(whole.path()).unwrap();
                if !crashed && file != "abort" {
                    fs::remove_file(dir.path().join("abort")).unwrap();
                }
                assert!(dir.path().join(file).is_file(), "{file}");
                make(&dir.path().join(file));
                let what = format!("{file} is {harm}, crashed {crashed}");
                let name = file.rsplit('/').next().unwrap();
                let start = || match Store::open(small(dir.path()), real()) {
                    Ok(store) => {
                        let outcome = left(&store, &all, file);
                        let put = store.put(&message("T", 0, b"next", ""));
                        if let Err(error) = put.map(drop).and_then(|()| store.close()) {
                            assert_eq!(harm, "a directory", "{what}: {error}");
                            assert!(error.to_string().contains(name), "{what}: {error}");
                        }
                        outcome
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains(name), "{what}: {text}");
                        Outcome::Refused
                    }
                };
                assert_eq!((start(), start()), outcomes(file, harm), "{what}");
            }
        }
    }
}

#[test]
fn keys_at_their_limits_are_found() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.segment_bytes = 1 << 20;
    options.index_entries = 10_000;
    let store = open(options.clone());
    let many: Vec<String> = (0..4000).map(|number| format!("k{number}")).collect();
    let long = "l".repeat(properties::MAX_BYTES - 6);
    for keys in [many.join(" ").as_str(), &long, " ", "", " edge  twice twice "] {
        store
            .put(&message("T", 0, b"x", &props(&[("KEYS", keys)])))
            .unwrap();
    }
    let find = |store: &Store, key: &str| {
        let query = pyrmq_store::KeyQuery {
            topic: "T",
            key,
            kind: pyrmq_store::KeyKind::Key,
            max_count: 10,
            begin_ms: 0,
            end_ms: i64::MAX,
        };
        store.query(&query).unwrap().count
    };
    let check = |store: &Store| {
        for key in ["k0", "k1999", "k3999", &long, "edge", "twice"] {
            assert_eq!(find(store, key), 1, "{}", &key[..key.len().min(10)]);
        }
        for key in ["k4000", "l", "edge ", "nothing"] {
            assert_eq!(find(store, key), 0, "{key}");
        }
    };
    check(&store);
    store.close().unwrap();
    drop(store);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let store = open(options);
    eventually(|| store.health().dispatch_behind_bytes == 0);
    check(&store);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let dir = closed(10);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let is_refused = fs::write(dir.path().join("probe"), "").is_err();
    let opened = Store::open(small(dir.path()), real());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if is_refused {
        let error = opened.unwrap_err();
        assert!(
            error.to_string().contains(&dir.path().display().to_string()),
            "{error}"
        );
    } else {
        // The superuser can write everywhere.
        opened.unwrap();
    }
}

#[test]
fn large_bodies_at_the_end_of_a_segment_go_to_the_next_one() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.segment_bytes = 10 << 20;
    let store = open(options.clone());
    let body = vec![b'x'; 4 << 20];
    for number in 0..5 {
        let stored = put(&store, "T", 0, &body);
        assert_eq!(stored.physical_offset / (10 << 20), number / 2);
    }
    let error = store
        .put(&message("T", 0, &vec![0; (4 << 20) + 1], ""))
        .unwrap_err();
    assert!(
        matches!(error, StoreError::MessageTooLarge { limit: 4_194_304, .. }),
        "{error}"
    );
    let copy = TempDir::copy_of(dir.path()).unwrap();
    options.root = copy.path().to_owned();
    let store = open(options);
    let mut count = 0;
    while get(&store, "T", 0, count).status == GetStatus::Found {
        count += 1;
    }
    assert_eq!(count, 5);
}

#[test]
fn properties_at_their_limit_are_kept_and_beyond_it_refused() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let most = "v".repeat(properties::MAX_BYTES - 4);
    let text = props(&[("kk", &most)]);
    assert_eq!(text.len(), properties::MAX_BYTES);
    store.put(&message("T", 0, b"x", &text)).unwrap();
    let error = store
        .put(&message("T", 0, b"x", &format!("{text}y")))
        .unwrap_err();
    assert!(
        matches!(error, StoreError::PropertiesTooLarge { limit: 32767, .. }),
        "{error}"
    );
    for topic in ["", ".", "..", "a/b", "nul\0"] {
        let error = store.put(&message(topic, 0, b"x", "")).unwrap_err();
        assert!(
            matches!(error, StoreError::IllegalQueue { .. }),
            "{topic}: {error}"
        );
    }
    store.put(&message(&"t".repeat(255), 0, b"x", "")).unwrap();
    assert_eq!(bodies(&store, "T", 0).len(), 1);
}

#[test]
fn a_topic_that_is_made_again_begins_at_zero() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for _ in 0..250 {
        put(&store, "T", 0, b"old");
    }
    store.delete_topic("T").unwrap();
    assert_eq!((store.min_offset("T", 0), store.max_offset("T", 0)), (0, 0));
    assert_eq!(get(&store, "T", 0, 0).status, GetStatus::NoMatchedLogicQueue);
    assert_eq!(put(&store, "T", 0, b"new").queue_offset, 0);
    let crash = TempDir::copy_of(dir.path()).unwrap();
    store.close().unwrap();
    drop(store);
    for root in [dir.path(), crash.path()] {
        let store = open(small(root));
        assert_eq!(bodies(&store, "T", 0), [b"new"]);
        assert_eq!((store.min_offset("T", 0), store.max_offset("T", 0)), (0, 1));
    }
}

#[test]
fn a_hundred_thousand_queues_of_one_message_each() {
    let (topics, queues) = (200, 500);
    let disk = SimDisk::default();
    let session = disk.session();
    let mut options = small(Path::new("/store"));
    options.segment_bytes = 16 << 20;
    options.index = false;
    let opened = || Store::open_without_threads(options.clone(), Arc::new(disk.session()));
    let store = Store::open_without_threads(options.clone(), Arc::new(session.clone())).unwrap();
    for queue in 0..queues {
        for topic in 0..topics {
            put(
                &store,
                &format!("topic-{topic:03}"),
                queue,
                format!("{topic} {queue}").as_bytes(),
            );
        }
    }
    store.run(MaintenanceTask::Flush).unwrap();
    store.run(MaintenanceTask::SyncQueues).unwrap();
    session.kill();
    let check = |store: &Store| {
        assert_eq!(store.health().queues, 100_000);
        for (topic, queue) in [(0, 0), (17, 499), (199, 0), (199, 499)] {
            let found = bodies(store, &format!("topic-{topic:03}"), queue);
            assert_eq!(found, [format!("{topic} {queue}").as_bytes()]);
        }
    };
    let store = opened().unwrap();
    check(&store);
    store.close().unwrap();
    drop(store);
    check(&opened().unwrap());
}

/// Returns the number of open descriptors of this process.
fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[test]
fn many_queues_need_few_open_files() {
    let dir = TempDir::new().unwrap();
    let queues = 10_000;
    let before = open_files();
    let store = open(small(dir.path()));
    for queue in 0..queues {
        let topic = format!("topic-{}", queue % 50);
        put(&store, &topic, queue / 50, b"x");
    }
    eventually(|| {
        let last = format!("consumequeue/topic-{}/{}", (queues - 1) % 50, (queues - 1) / 50);
        dir.path().join(last).exists()
    });
    assert!(open_files() < before + 4200, "{} files are open", open_files());
    store.close().unwrap();
    drop(store);
    let store = open(small(dir.path()));
    assert_eq!(store.health().queues, 10_000);
    for queue in [0, 1, 4_999, queues - 1] {
        let topic = format!("topic-{}", queue % 50);
        assert_eq!(bodies(&store, &topic, queue / 50), [b"x"]);
    }
}

#[test]
fn a_segment_that_the_disk_cannot_read_is_still_named_when_the_damaged_one_before_it_is_deleted() {
    let dir = closed(1500);
    let oldest = dir.path().join(OLDEST_SEGMENT);
    edit(&oldest, 4, b"\xEE");
    let hours_ago = SystemTime::now() - Duration::from_hours(2);
    let file = fs::OpenOptions::new().write(true).open(&oldest).unwrap();
    file.set_modified(hours_ago).unwrap();
    let disk = FaultyDisk::default();
    let fault = Fault::Error(ErrorKind::Other);
    disk.fail(Operation::Read, SECOND_SEGMENT, 0, fault);
    let mut options = small(dir.path());
    (options.index, options.file_reserved_hours) = (false, 1);
    let store = Store::open_without_threads(options, Arc::new(disk.clone())).unwrap();
    let damage = || store.health().damage.expect("it is reported");
    assert!(
        damage().contains("cannot read") && damage().contains(SECOND_SEGMENT),
        "{}",
        damage()
    );
    store.delete_expired().unwrap();
    assert_eq!(store.health().min_physical_offset, 65536);
    assert!(damage().contains(SECOND_SEGMENT), "{}", damage());
    store.close().unwrap();
}

#[test]
fn a_segment_in_the_middle_that_the_disk_cannot_read_is_named_soon_after_a_clean_start() {
    let dir = closed(1500);
    let segment = "commitlog/00000000000000131072";
    let disk = FaultyDisk::default();
    let fault = Fault::Error(ErrorKind::Other);
    disk.fail(Operation::Read, segment, 0, fault);
    let mut options = small(dir.path());
    options.index = false;
    let store = Store::open(options, Arc::new(disk.clone())).unwrap();
    eventually(|| store.health().damage.is_some());
    let damage = store.health().damage.unwrap();
    assert!(
        damage.contains("cannot read") && damage.contains(segment),
        "{damage}"
    );
    assert!(store.health().read_only.is_none());
    store.close().unwrap();
}
