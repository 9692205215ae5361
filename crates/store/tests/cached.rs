//! Pulls that may not wait for the disk.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{put, small};
use pyrmq_store::{GetMessage, GetStatus, Store, TagFilter};
use pyrmq_testkit::TempDir;
use pyrmq_testkit::disk::FaultyDisk;
use std::sync::Arc;

fn request(tags: TagFilter<'_>) -> GetMessage<'_> {
    GetMessage {
        topic: "T",
        queue_id: 0,
        offset: 0,
        max_count: 32,
        max_bytes: 1 << 20,
        tags,
    }
}

#[test]
fn data_that_is_not_in_memory_is_not_waited_for() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    for number in 0..100_u8 {
        put(&store, "T", 0, &[number; 500]);
    }
    let filters = [TagFilter::All, TagFilter::Codes(&[0])];
    for tags in filters {
        let got = store.get_cached(&request(tags)).unwrap().unwrap();
        assert_eq!((got.status, got.count), (GetStatus::Found, 32));
        assert_eq!(got.body, store.get(&request(tags)).unwrap().body);
    }
    disk.hang_reads(true);
    for tags in filters {
        assert!(store.get_cached(&request(tags)).unwrap().is_none());
    }
    let behind = GetMessage {
        offset: 100,
        ..request(TagFilter::All)
    };
    let got = store.get_cached(&behind).unwrap().unwrap();
    assert_eq!(
        got.status,
        GetStatus::OffsetOverflowOne,
        "nothing has to be read for that"
    );
    disk.hang_reads(false);
    assert_eq!(
        store.get_cached(&request(TagFilter::All)).unwrap().unwrap().count,
        32
    );
}

#[test]
fn units_that_are_only_in_their_file_are_not_waited_for_either() {
    let dir = TempDir::new().unwrap();
    let store = Store::open(small(dir.path()), common::real()).unwrap();
    for number in 0..100_u8 {
        put(&store, "T", 0, &[number; 50]);
    }
    store.close().unwrap();
    drop(store);
    let disk = FaultyDisk::default();
    let store = Store::open(small(dir.path()), Arc::new(disk.clone())).unwrap();
    disk.hang_reads(true);
    assert!(store.get_cached(&request(TagFilter::All)).unwrap().is_none());
    disk.hang_reads(false);
    assert_eq!(
        store.get_cached(&request(TagFilter::All)).unwrap().unwrap().count,
        32
    );
}
