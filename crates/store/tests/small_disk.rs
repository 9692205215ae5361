//! Fills a real file system of 64 MB through the store: accepted messages exist, others are refused with the reason,
//! and the store recovers on its own. The file system is a tmpfs in a new mount namespace, in which this test starts
//! itself again.
#![expect(
    clippy::disallowed_methods,
    reason = "the test changes files behind the store's back"
)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{again, eventually, message, open, small};
use pyrmq_store::fs::{Fs, RealFs};
use pyrmq_store::{Options, Store, StoreError};
use pyrmq_testkit::TempDir;
use std::path::Path;

/// Where the inner run finds the file system.
const PLACE: &str = "PYRMQ_SMALL_DISK";
const BODY: [u8; 16 << 10] = [7; 16 << 10];
const BALLAST: u64 = 24 << 20;

#[test]
fn a_disk_of_64_megabytes_is_filled_up() {
    if let Some(place) = std::env::var_os(PLACE) {
        refused_before_it_is_full(&Path::new(&place).join("limit"));
        refused_when_it_is_full(&Path::new(&place).join("none"));
        return;
    }
    let dir = TempDir::new().unwrap();
    let script = r#"mount -t tmpfs -o size=64m tmpfs "$PYRMQ_SMALL_DISK" || exit 77; exec "$0" --exact "$1" --nocapture"#;
    let test = "a_disk_of_64_megabytes_is_filled_up";
    again(
        "unshare",
        &["-rm", "--", "sh", "-c", script],
        test,
        (PLACE, dir.path()),
    );
}

fn options(root: &Path) -> Options {
    let mut options = small(root);
    options.segment_bytes = 1 << 20;
    options.file_reserved_hours = 1000;
    (options.disk_warning_percent, options.disk_clean_forcibly_percent) = (100, 99);
    options
}

/// Puts until the store refuses. Returns the number of accepted messages and the error.
fn fill(store: &Store) -> (usize, StoreError) {
    for number in 0..10_000 {
        if let Err(error) = store.put(&message("T", 0, &BODY, "")) {
            return (number, error);
        }
    }
    panic!("a disk of 64 MB took 160 MB");
}

/// Checks that every accepted message exists, now and after a start.
fn check(store: &Store, taken: i64) {
    assert_eq!(store.max_offset("T", 0), taken);
    for offset in [0, taken / 2, taken - 1] {
        let got = common::get(store, "T", 0, offset);
        let record = common::decoded(&got.body).next().unwrap().unwrap();
        record.check_body().unwrap();
        assert_eq!(record.queue_offset, offset);
    }
}

fn with_ballast(root: &Path) -> std::path::PathBuf {
    let path = root.with_extension("ballast");
    std::fs::write(&path, vec![1; usize::try_from(BALLAST).unwrap()]).unwrap();
    path
}

fn refused_before_it_is_full(root: &Path) {
    let ballast = with_ballast(root);
    let mut options = options(root);
    options.disk_min_free_bytes = 8 << 20;
    let store = open(options.clone());
    let (mut taken, error) = fill(&store);
    let StoreError::DiskFull {
        free_bytes, limit, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(
        *free_bytes < 8 << 20 && limit.contains("diskSpaceMinFreeBytes=8388608"),
        "{error}"
    );
    let left = RealFs.space(root).unwrap().free;
    assert!(
        left > 4 << 20,
        "{left} bytes are left: the file system is not full"
    );
    assert!(store.health().read_only.is_some() && !store.has_failed());
    check(&store, i64::try_from(taken).unwrap());
    std::fs::remove_file(ballast).unwrap();
    // The space is checked every second.
    eventually(|| store.put(&message("T", 0, &BODY, "")).is_ok());
    taken += 1;
    assert_eq!(store.health().read_only, None);
    taken += fill(&store).0;
    store.close().unwrap();
    drop(store);
    let store = open(options);
    check(&store, i64::try_from(taken).unwrap());
    store.close().unwrap();
    drop(store);
    std::fs::remove_dir_all(root).unwrap();
}

fn refused_when_it_is_full(root: &Path) {
    let ballast = with_ballast(root);
    let mut options = options(root);
    options.disk_min_free_bytes = 0;
    let store = open(options.clone());
    let (mut taken, error) = fill(&store);
    let is_named = matches!(&error, StoreError::DiskFull { .. })
        || matches!(&error, StoreError::Io { kind, .. } if *kind == std::io::ErrorKind::StorageFull);
    assert!(is_named, "{error}");
    assert!(!store.has_failed(), "a full disk is no failed one");
    check(&store, i64::try_from(taken).unwrap());
    std::fs::remove_file(ballast).unwrap();
    eventually(|| store.put(&message("T", 0, &BODY, "")).is_ok());
    taken += 1;
    check(&store, i64::try_from(taken).unwrap());
    store.close().unwrap();
    drop(store);
    let store = open(options);
    check(&store, i64::try_from(taken).unwrap());
    store.close().unwrap();
    drop(store);
    std::fs::remove_dir_all(root).unwrap();
}
