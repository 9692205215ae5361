//! Queues with extended entries, as a Java broker writes them (`enableConsumeQueueExt`).
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

use common::{bodies, decoded, message, open, props, small};
use pyrmq_remoting::message::java_hash::tags_code;
use pyrmq_store::{GetMessage, Store, TagFilter};
use pyrmq_testkit::TempDir;
use std::fs;
use std::path::Path;

const QUEUE: &str = "consumequeue/T/0";
const EXTENDED: &str = "consumequeue_ext/T/0";
/// Bytes of an extended file; a unit that does not fit with four bytes to spare begins the next.
const FILE: usize = 1000;
const MESSAGES: usize = 250;

fn put(store: &Store, number: usize) {
    let tag = if number.is_multiple_of(5) { "a" } else { "b" };
    let properties = props(&[("TAGS", tag)]);
    let body = number.to_string();
    store.put(&message("T", 0, body.as_bytes(), &properties)).unwrap();
}

/// Moves every code of the queue to extended files, with bit maps of various lengths.
fn extend(root: &Path) {
    let mut codes = Vec::new();
    for file in fs::read_dir(root.join(QUEUE)).unwrap() {
        let path = file.unwrap().path();
        codes.push((path.clone(), fs::read(path).unwrap()));
    }
    codes.sort();
    let (mut extended, mut number) = (Vec::new(), 0_i16);
    for (path, mut bytes) in codes {
        for unit in bytes.as_chunks_mut::<20>().0 {
            if unit[8..12] == [0; 4] {
                break;
            }
            let map = vec![0xAB; usize::try_from(number % 40).unwrap()];
            let size = 20 + map.len();
            if extended.len() % FILE + size + 4 > FILE {
                extended.extend_from_slice(&(-1_i16).to_be_bytes());
                extended.resize(extended.len().next_multiple_of(FILE), 0);
            }
            let address = i64::MIN + i64::try_from(extended.len()).unwrap();
            extended.extend_from_slice(&i16::try_from(size).unwrap().to_be_bytes());
            extended.extend_from_slice(&unit[12..]);
            extended.extend_from_slice(&1_700_000_000_000_i64.to_be_bytes());
            extended.extend_from_slice(&i16::try_from(map.len()).unwrap().to_be_bytes());
            extended.extend_from_slice(&map);
            unit[12..].copy_from_slice(&address.to_be_bytes());
            number += 1;
        }
        fs::write(path, bytes).unwrap();
    }
    extended.resize(extended.len().next_multiple_of(FILE), 0);
    fs::create_dir_all(root.join(EXTENDED)).unwrap();
    for (number, bytes) in extended.chunks(FILE).enumerate() {
        let name = format!("{:020}", number * FILE);
        fs::write(root.join(EXTENDED).join(name), bytes).unwrap();
    }
}

fn store_with_extended() -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for number in 0..MESSAGES {
        put(&store, number);
    }
    store.close().unwrap();
    drop(store);
    extend(dir.path());
    assert!(fs::read_dir(dir.path().join(EXTENDED)).unwrap().count() > 3);
    dir
}

fn with_tag(store: &Store, tag: &str) -> Vec<usize> {
    let code = i32::try_from(tags_code(Some(tag))).unwrap();
    let (mut found, mut offset) = (Vec::new(), 0);
    while offset < store.max_offset("T", 0) {
        let got = store.get(&GetMessage {
            topic: "T",
            queue_id: 0,
            offset,
            max_count: 32,
            max_bytes: 1 << 20,
            tags: TagFilter::Codes(&[code]),
        });
        let got = got.unwrap();
        for record in decoded(&got.body) {
            let text = String::from_utf8(record.unwrap().body.to_vec()).unwrap();
            found.push(text.parse().unwrap());
        }
        offset = got.next_offset;
    }
    found
}

fn expected(count: usize) -> Vec<usize> {
    (0..count).filter(|number| number.is_multiple_of(5)).collect()
}

#[test]
fn filters_see_the_codes_and_new_entries_are_plain() {
    for crashed in [false, true] {
        let dir = store_with_extended();
        if crashed {
            fs::write(dir.path().join("abort"), "1").unwrap();
        }
        let before = fs::read(dir.path().join(QUEUE).join(format!("{:020}", 0))).unwrap();
        for count in [MESSAGES, MESSAGES + 10] {
            let store = open(small(dir.path()));
            assert_eq!(bodies(&store, "T", 0).len(), count);
            assert_eq!(with_tag(&store, "a"), expected(count), "crashed {crashed}");
            assert_eq!(with_tag(&store, "b").len(), count - expected(count).len());
            assert_eq!(with_tag(&store, "c"), []);
            if count == MESSAGES {
                (count..count + 10).for_each(|number| put(&store, number));
            }
            store.close().unwrap();
        }
        let after = fs::read(dir.path().join(QUEUE).join(format!("{:020}", 0))).unwrap();
        assert!(before == after, "addresses stay, crashed {crashed}");
    }
}

#[test]
fn an_address_that_leads_nowhere_matches_every_filter() {
    let dir = store_with_extended();
    let names: Vec<_> = fs::read_dir(dir.path().join(EXTENDED))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    for path in &names {
        fs::write(path, b"").unwrap();
    }
    let store = open(small(dir.path()));
    assert_eq!(with_tag(&store, "c").len(), MESSAGES);
    for path in &names {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(with_tag(&store, "c").len(), MESSAGES);
}

#[test]
fn queues_that_are_built_again_are_plain() {
    let dir = store_with_extended();
    fs::remove_dir_all(dir.path().join(QUEUE)).unwrap();
    let store = open(small(dir.path()));
    assert_eq!(with_tag(&store, "a"), expected(MESSAGES));
    store.delete_topic("T").unwrap();
    assert_eq!(fs::read_dir(dir.path().join(EXTENDED)).unwrap().count(), 0);
    (0..20).for_each(|number| put(&store, number));
    assert_eq!(with_tag(&store, "a"), expected(20));
}
