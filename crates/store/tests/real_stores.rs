//! Directories that real brokers of 4.6.1, 4.9.7 and 5.5.0 wrote (`tests/golden/stores`), stopped cleanly and killed.
//!
//! Beside each is what a Java client read from it. Every message must be found by queue, by position, by key and by
//! unique id; the configuration files must stay unchanged; and the store must continue from there.
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

use common::{decoded, get, message, open, small};
use pyrmq_remoting::body::{Json, Key};
use pyrmq_remoting::message::{Record, sys_flag};
use pyrmq_store::{GetStatus, KeyKind, KeyQuery, Store};
use pyrmq_testkit::TempDir;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stores")
}

fn unpack(name: &str) -> (TempDir, Json) {
    let dir = TempDir::new().unwrap();
    let archive = samples().join(format!("{name}.tar.xz"));
    let done = Command::new("tar")
        .arg("-xJf")
        .arg(&archive)
        .arg("-C")
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(done.success(), "cannot unpack {}", archive.display());
    let text = Command::new("xz")
        .arg("-dc")
        .arg(samples().join(format!("{name}.json.xz")))
        .output()
        .unwrap();
    assert!(text.status.success());
    (dir, Json::parse(&text.stdout).unwrap())
}

fn text<'j>(json: &'j Json, name: &str) -> &'j str {
    json.get(name).and_then(Json::as_str).unwrap()
}

fn number(json: &Json, name: &str) -> i64 {
    json.get(name)
        .and_then(Json::as_i64)
        .unwrap_or_else(|| panic!("{name} in {json:?}"))
}

fn compare(expected: &Json, record: &Record<'_>) {
    let bits = |name| i32::try_from(number(expected, name)).unwrap();
    assert_eq!(record.topic, text(expected, "topic"));
    assert_eq!(record.queue_id, bits("queueId"));
    assert_eq!(record.queue_offset, number(expected, "queueOffset"));
    assert_eq!(record.physical_offset, number(expected, "commitLogOffset"));
    assert_eq!(record.flag, bits("flag"));
    // The client of 5.x clears the compression bit after it has decompressed the body.
    assert_eq!(
        record.sys_flag & !sys_flag::COMPRESSED,
        bits("sysFlag") & !sys_flag::COMPRESSED
    );
    assert_eq!(i64::from(record.body_crc), number(expected, "bodyCrc"));
    assert_eq!(
        record.size,
        usize::try_from(number(expected, "storeSize")).unwrap()
    );
    assert_eq!(record.born_timestamp_ms, number(expected, "bornTimestamp"));
    assert_eq!(record.store_timestamp_ms, number(expected, "storeTimestamp"));
    assert_eq!(format!("/{}", record.born_host), text(expected, "bornHost"));
    assert_eq!(format!("/{}", record.store_host), text(expected, "storeHost"));
    assert_eq!(record.reconsume_times, bits("reconsumeTimes"));
    record.check_body().unwrap();
    // The client adds these three to the stored properties.
    let added = ["MIN_OFFSET", "MAX_OFFSET", "CLUSTER"];
    let stored: BTreeMap<&str, &str> = record
        .properties
        .iter()
        .filter(|(name, _)| !added.contains(name))
        .collect();
    let expected = expected.get("properties").and_then(Json::as_object).unwrap();
    let expected: BTreeMap<&str, &str> = expected
        .iter()
        .filter_map(|(name, value)| match name {
            Key::Str(name) if !added.contains(&name.as_str()) => {
                Some((name.as_str(), value.as_str().unwrap()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(stored, expected);
}

fn found(store: &Store, topic: &str, key: &str, kind: KeyKind) -> Vec<i64> {
    let query = KeyQuery {
        topic,
        key,
        kind,
        max_count: 64,
        begin_ms: 0,
        end_ms: i64::MAX,
    };
    let answer = store.query(&query).unwrap();
    decoded(&answer.body)
        .map(|record| record.unwrap().physical_offset)
        .collect()
}

fn check_messages(store: &Store, expected: &Json) {
    let messages = expected.get("messages").and_then(Json::as_array).unwrap();
    assert!(messages.len() > 500);
    let start = Instant::now();
    while store.health().dispatch_behind_bytes > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the index never caught up"
        );
        std::thread::yield_now();
    }
    for expected in messages {
        let topic = text(expected, "topic");
        let queue = i32::try_from(number(expected, "queueId")).unwrap();
        let position = number(expected, "commitLogOffset");
        let got = get(store, topic, queue, number(expected, "queueOffset"));
        assert_eq!(got.status, GetStatus::Found);
        compare(expected, &decoded(&got.body).next().unwrap().unwrap());
        let record = store.record_at(position).unwrap().unwrap();
        compare(expected, &Record::decode(&record).unwrap());
        if let Some(key) = expected.get("msgId").and_then(Json::as_str) {
            assert!(
                found(store, topic, key, KeyKind::Unique).contains(&position),
                "{key}"
            );
        }
    }
    // Keys that are rare enough to fit the limit of an answer.
    let mut keys: BTreeMap<(&str, &str), Vec<i64>> = BTreeMap::new();
    for expected in messages {
        for key in expected
            .get("keys")
            .and_then(Json::as_str)
            .unwrap_or_default()
            .split(' ')
        {
            if !key.is_empty() {
                keys.entry((text(expected, "topic"), key))
                    .or_default()
                    .push(number(expected, "commitLogOffset"));
            }
        }
    }
    for ((topic, key), positions) in keys.iter().filter(|(_, positions)| positions.len() < 10) {
        let found = found(store, topic, key, KeyKind::Key);
        assert!(
            positions.iter().all(|position| found.contains(position)),
            "{topic} {key}: {found:?} {positions:?}"
        );
    }
}

fn config_files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fs::read_dir(root.join("config"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn check_sample(name: &str, killed: bool) {
    let (dir, expected) = unpack(name);
    let config = config_files(dir.path());
    let store = open(small(dir.path()));
    assert_eq!(store.health().recovered_from_crash, killed);
    check_messages(&store, &expected);
    let queues = expected.get("topics").and_then(Json::as_object).unwrap();
    let mut before = Vec::new();
    for (topic, count) in queues {
        let Key::Str(topic) = topic else {
            panic!("{topic:?}")
        };
        for queue in 0..i32::try_from(count.as_i64().unwrap()).unwrap() {
            let end = store.max_offset(topic, queue);
            let stored = store
                .put(&message(topic, queue, b"from us", "KEYS\u{1}ours\u{2}"))
                .unwrap();
            assert_eq!(stored.queue_offset, end);
            assert_eq!(store.max_offset(topic, queue), end + 1);
            before.push((topic.clone(), queue, end + 1));
        }
    }
    // Once after a kill of ours, once after a clean stop.
    let copy = TempDir::copy_of(dir.path()).unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(
        config_files(dir.path()),
        config,
        "configuration files are not the store's"
    );
    for root in [dir.path(), copy.path()] {
        let store = open(small(root));
        check_messages(&store, &expected);
        for (topic, queue, end) in &before {
            assert_eq!(store.max_offset(topic, *queue), *end, "{topic} {queue}");
            let got = get(&store, topic, *queue, end - 1);
            let record = decoded(&got.body).next().unwrap().unwrap();
            assert_eq!(record.body, b"from us");
            assert!(found(&store, topic, "ours", KeyKind::Key).contains(&record.physical_offset));
        }
    }
}

#[test]
fn stopped_4_6_1() {
    check_sample("4.6.1-clean", false);
}

#[test]
fn killed_4_6_1() {
    check_sample("4.6.1-kill", true);
}

#[test]
fn stopped_4_9_7() {
    check_sample("4.9.7-clean", false);
}

#[test]
fn killed_4_9_7() {
    check_sample("4.9.7-kill", true);
}

#[test]
fn stopped_5_5_0() {
    check_sample("5.5.0-clean", false);
}

#[test]
fn killed_5_5_0() {
    check_sample("5.5.0-kill", true);
}
