//! Storing and reading back, without failures.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, decoded, get, message, open, props, put, small};
use pyrmq_remoting::message::java_hash;
use pyrmq_store::{
    Arrival, BatchMessage, Boundary, GetMessage, GetStatus, KeyKind, KeyQuery, MessageBatch, RecordFilter,
    StoreError, TagFilter,
};
use pyrmq_testkit::TempDir;
use std::sync::{Arc, Mutex};

#[test]
fn a_message_comes_back_as_it_went() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let properties = props(&[("KEYS", "one two"), ("TAGS", "t"), ("UNIQ_KEY", "U1")]);
    let stored = store.put(&message("T", 3, b"hello", &properties)).unwrap();
    assert_eq!(
        (stored.physical_offset, stored.queue_offset, stored.count),
        (0, 0, 1)
    );
    assert_eq!(stored.physical_offsets(), [0]);
    let got = get(&store, "T", 3, 0);
    assert_eq!((got.status, got.count, got.next_offset), (GetStatus::Found, 1, 1));
    let record = decoded(&got.body).next().unwrap().unwrap();
    assert_eq!(
        (record.topic, record.queue_id, record.body),
        ("T", 3, b"hello".as_slice())
    );
    assert_eq!(
        (record.flag, record.physical_offset, record.queue_offset),
        (7, 0, 0)
    );
    assert_eq!(record.store_timestamp_ms, stored.store_timestamp_ms);
    assert_eq!(record.properties.as_str().unwrap(), properties);
    assert_eq!(stored.end_position, i64::try_from(got.body.len()).unwrap());
    assert_eq!(store.record_at(0).unwrap().unwrap(), got.body);
    assert_eq!(store.record_at(1).unwrap(), None);
    assert_eq!(store.topics(), [("T".to_owned(), vec![3])]);
}

#[test]
fn segments_roll_and_queues_go_on() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let mut expected = [Vec::new(), Vec::new()];
    for number in 0..2000u32 {
        let queue = number as usize % 2;
        let body = format!("{number:0width$}", width = 20 + number as usize % 300).into_bytes();
        let stored = put(&store, "T", i32::try_from(queue).unwrap(), &body);
        assert_eq!(stored.queue_offset, i64::try_from(expected[queue].len()).unwrap());
        expected[queue].push(body);
    }
    assert_eq!(bodies(&store, "T", 0), expected[0]);
    assert_eq!(bodies(&store, "T", 1), expected[1]);
    assert!(store.health().max_physical_offset > 4 * 64 * 1024);
    store.close().unwrap();
    drop(store);
    let store = open(small(dir.path()));
    assert!(!store.health().recovered_from_crash);
    assert_eq!(bodies(&store, "T", 0), expected[0]);
    let stored = put(&store, "T", 0, b"next");
    assert_eq!(stored.queue_offset, 1000);
    assert_eq!(bodies(&store, "T", 0).len(), 1001);
}

#[test]
fn messages_that_are_put_together_are_one_write_or_none() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    put(&store, "T", 0, b"first");
    let writes = store.stats().writes;
    let together = [message("T", 0, b"second", ""), message("U", 0, b"other", "")];
    let last = store.put_all(&together).unwrap();
    assert_eq!(store.stats().writes, writes + 1);
    assert_eq!((last.queue_offset, last.count), (0, 1));
    assert_eq!(last.end_position, store.end_position());
    assert_eq!(bodies(&store, "T", 0), [b"first".as_slice(), b"second"]);
    assert_eq!(bodies(&store, "U", 0), [b"other"]);
    let large = vec![0; 1 << 20];
    let refused = store.put_all(&[message("T", 0, b"third", ""), message("U", 0, &large, "")]);
    assert!(
        matches!(refused, Err(StoreError::MessageTooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!(store.end_position(), last.end_position);
}

#[test]
fn a_batch_is_one_run() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    put(&store, "T", 0, &vec![0; 30_000]);
    put(&store, "T", 0, &vec![0; 30_000]);
    let texts: Vec<String> = (0..50)
        .map(|number| format!("item {number} {}", "x".repeat(100)))
        .collect();
    let items: Vec<BatchMessage<'_>> = texts
        .iter()
        .map(|text| BatchMessage {
            flag: 1,
            body: text.as_bytes(),
            properties: "",
            tags_code: 0,
            unique_key: None,
            keys: None,
            tag: None,
        })
        .collect();
    let message = message("T", 0, b"", "");
    let batch = MessageBatch {
        topic: "T",
        queue_id: 0,
        sys_flag: 0,
        born_timestamp_ms: message.born_timestamp_ms,
        born_host: message.born_host,
        store_host: message.store_host,
        reconsume_times: 0,
        items: &items,
    };
    let writes = store.stats().writes;
    let stored = store.put_batch(&batch).unwrap();
    assert_eq!(store.stats().writes, writes + 1);
    assert_eq!((stored.count, stored.queue_offset), (50, 2));
    assert_eq!(
        stored.physical_offset,
        64 * 1024,
        "the whole run moved to the next file"
    );
    assert_eq!(stored.physical_offsets().len(), 50);
    let all = bodies(&store, "T", 0);
    assert_eq!(
        all[2..]
            .iter()
            .map(|body| String::from_utf8(body.clone()).unwrap())
            .collect::<Vec<_>>(),
        texts
    );
    for position in stored.physical_offsets() {
        assert!(store.record_at(*position).unwrap().is_some());
    }
    let empty = MessageBatch { items: &[], ..batch };
    assert_eq!(store.put_batch(&empty).unwrap_err(), StoreError::EmptyBatch);
}

#[test]
fn pulls_answer_as_apache_does() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    assert_eq!(get(&store, "none", 0, 0).status, GetStatus::NoMatchedLogicQueue);
    for number in 0..100 {
        let tag = if number % 10 == 0 { "rare" } else { "common" };
        let properties = props(&[("TAGS", tag)]);
        store.put(&message("T", 0, b"x", &properties)).unwrap();
    }
    let got = get(&store, "T", 0, 100);
    assert_eq!((got.status, got.next_offset), (GetStatus::OffsetOverflowOne, 100));
    let got = get(&store, "T", 0, 101);
    assert_eq!(
        (got.status, got.next_offset),
        (GetStatus::OffsetOverflowBadly, 100)
    );
    let got = get(&store, "T", 0, -1);
    assert_eq!((got.status, got.next_offset), (GetStatus::OffsetTooSmall, 0));
    let got = get(&store, "T", 0, 0);
    assert_eq!(
        (got.status, got.count, got.min_offset, got.max_offset),
        (GetStatus::Found, 32, 0, 100)
    );
    let rare = [java_hash::hash("rare")];
    let mut request = GetMessage {
        topic: "T",
        queue_id: 0,
        offset: 1,
        max_count: 32,
        max_bytes: 1 << 20,
        tags: TagFilter::Codes(&rare),
    };
    let got = store.get(&request).unwrap();
    assert_eq!(
        (got.status, got.count, got.next_offset),
        (GetStatus::Found, 9, 100)
    );
    let offsets: Vec<i64> = decoded(&got.body)
        .map(|record| record.unwrap().queue_offset)
        .collect();
    assert_eq!(offsets, [10, 20, 30, 40, 50, 60, 70, 80, 90]);
    let none = [java_hash::hash("none")];
    request.tags = TagFilter::Codes(&none);
    let got = store.get(&request).unwrap();
    assert_eq!((got.status, got.next_offset), (GetStatus::NoMatchedMessage, 100));
    request.tags = TagFilter::All;
    request.max_bytes = 1;
    let got = store.get(&request).unwrap();
    assert_eq!((got.status, got.count, got.next_offset), (GetStatus::Found, 1, 2));
}

/// Whether the record has the tag "rare".
#[derive(Debug)]
struct Rare;

impl RecordFilter for Rare {
    fn matches(&self, record: &[u8]) -> bool {
        record.windows(4).any(|part| part == b"rare")
    }
}

#[test]
fn matching_messages_of_an_answer_are_no_further_apart_than_the_reader_expects() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for number in 0..5000 {
        let tag = if number % 100 == 99 { "rare" } else { "common" };
        store
            .put(&message("T", 0, b"x", &props(&[("TAGS", tag)])))
            .unwrap();
    }
    let (rare, none) = ([java_hash::hash("rare")], [java_hash::hash("none")]);
    let pull = |tags, max_count, offset| {
        let request = GetMessage {
            topic: "T",
            queue_id: 0,
            offset,
            max_count,
            max_bytes: 1 << 20,
            tags,
        };
        let got = store.get(&request).unwrap();
        (got.status, got.count, got.next_offset)
    };
    for tags in [TagFilter::Codes(&rare), TagFilter::Records(&Rare)] {
        let (status, count, next) = pull(tags, 32, 0);
        assert_eq!(status, GetStatus::Found);
        assert!(
            (7..=8).contains(&count) && (800..900).contains(&next),
            "{count} {next}"
        );
        // One that requests many messages at once gets those of all that one pull looks at: of the parts of the queue,
        // in memory and in files, that begin within 3,200.
        let (status, count, next) = pull(tags, 1024, 0);
        assert_eq!(status, GetStatus::Found);
        assert!(
            next >= 3200 && i64::try_from(count) == Ok(next / 100),
            "{count} {next}"
        );
        let mut offset = 0;
        let mut seen = 0;
        while let (GetStatus::Found, count, next) = pull(tags, 32, offset) {
            (seen, offset) = (seen + count, next);
        }
        assert_eq!((seen, offset), (50, 5000));
    }
    let (status, count, next) = pull(TagFilter::Codes(&none), 32, 0);
    assert_eq!((status, count), (GetStatus::NoMatchedMessage, 0));
    assert!(next >= 3200, "{next}");
}

#[test]
fn arrivals_are_reported_in_order() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    store.on_arrival(Arc::new(move |arrival: &Arrival<'_>| {
        sink.lock()
            .unwrap()
            .push((arrival.topic.to_owned(), arrival.queue_id, arrival.next_offset));
    }));
    put(&store, "T", 0, b"a");
    put(&store, "T", 1, b"b");
    put(&store, "T", 0, b"c");
    let expected = [
        ("T".to_owned(), 0, 1),
        ("T".to_owned(), 1, 1),
        ("T".to_owned(), 0, 2),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn times_are_found() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let mut times = Vec::new();
    for number in 0..40 {
        times.push(put(&store, "T", 0, b"x").store_timestamp_ms);
        if number % 5 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
    }
    let lower = |time| i64::try_from(times.iter().filter(|stored| **stored < time).count()).unwrap();
    for time in times[0] - 2..times[39] + 3 {
        assert_eq!(
            store.offset_by_time("T", 0, time, Boundary::Lower).unwrap(),
            lower(time),
            "lower {time}"
        );
        let upper = (lower(time + 1) - 1).max(0);
        assert_eq!(
            store.offset_by_time("T", 0, time, Boundary::Upper).unwrap(),
            upper,
            "upper {time}"
        );
    }
    assert_eq!(store.store_time("T", 0, 39).unwrap(), Some(times[39]));
    assert_eq!(store.store_time("T", 0, 40).unwrap(), None);
    assert_eq!(store.earliest_time("T", 0).unwrap(), Some(times[0]));
}

#[test]
fn keys_are_found_across_index_files() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for number in 0..1500 {
        let properties = props(&[
            ("KEYS", &format!("k{number} shared-{}", number % 7)),
            ("UNIQ_KEY", &format!("U{number}")),
            ("TAGS", if number == 700 { "odd" } else { "even" }),
        ]);
        store
            .put(&message(
                "T",
                number % 4,
                format!("{number}").as_bytes(),
                &properties,
            ))
            .unwrap();
    }
    let find = |store: &pyrmq_store::Store, kind, key: &str| {
        let query = KeyQuery {
            topic: "T",
            key,
            kind,
            max_count: 64,
            begin_ms: 0,
            end_ms: i64::MAX,
        };
        let found = store.query(&query).unwrap();
        let bodies: Vec<String> = decoded(&found.body)
            .map(|record| String::from_utf8(record.unwrap().body.to_vec()).unwrap())
            .collect();
        assert_eq!(bodies.len(), found.count);
        bodies
    };
    let check = |store: &pyrmq_store::Store| {
        for number in [0, 1, 699, 1499] {
            assert_eq!(
                find(store, KeyKind::Key, &format!("k{number}")),
                [number.to_string()]
            );
            assert_eq!(
                find(store, KeyKind::Unique, &format!("U{number}")),
                [number.to_string()]
            );
        }
        assert_eq!(find(store, KeyKind::Tag, "odd"), ["700"]);
        assert_eq!(find(store, KeyKind::Key, "shared-3").len(), 64);
        assert!(find(store, KeyKind::Key, "nothing").is_empty());
    };
    check(&store);
    store.close().unwrap();
    drop(store);
    assert!(std::fs::read_dir(dir.path().join("index")).unwrap().count() > 4);
    let store = open(small(dir.path()));
    check(&store);
    store.close().unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
    let store = open(small(dir.path()));
    wait_until(|| store.health().dispatch_behind_bytes == 0);
    check(&store);
}

fn wait_until(condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed().as_secs() < 20, "the condition never came");
        std::thread::yield_now();
    }
}

#[test]
fn a_deleted_topic_is_gone_and_can_come_back() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for _ in 0..300 {
        put(&store, "old", 0, b"first life");
        put(&store, "other", 0, b"stays");
    }
    store.delete_topic("old").unwrap();
    assert_eq!(store.max_offset("old", 0), 0);
    assert!(!dir.path().join("consumequeue/old").exists());
    assert_eq!(put(&store, "old", 0, b"second life").queue_offset, 0);
    assert_eq!(bodies(&store, "old", 0), [b"second life"]);
    assert_eq!(bodies(&store, "other", 0).len(), 300);
    store.close().unwrap();
    drop(store);
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "old", 0), [b"second life"]);
}

#[test]
fn limits_are_held() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.max_message_bytes = 1000;
    let store = open(options);
    let error = store.put(&message("T", 0, &vec![0; 1001], "")).unwrap_err();
    assert_eq!(
        error,
        StoreError::MessageTooLarge {
            size: 1001,
            limit: 1000
        }
    );
    let long = "x".repeat(32768);
    let error = store.put(&message("T", 0, b"", &long)).unwrap_err();
    assert!(matches!(
        error,
        StoreError::PropertiesTooLarge { size: 32768, .. }
    ));
    for topic in ["", "a/b", "..", ".hidden"] {
        let error = store.put(&message(topic, 0, b"", "")).unwrap_err();
        assert!(
            matches!(error, StoreError::IllegalQueue { .. }),
            "{topic}: {error}"
        );
    }
    let error = store.put(&message("T", -1, b"", "")).unwrap_err();
    assert!(matches!(error, StoreError::IllegalQueue { queue_id: -1, .. }));
    assert_eq!(put(&store, "T", 0, b"fine").physical_offset, 0);
}
