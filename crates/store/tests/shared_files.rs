//! A segment with a second name, such as a snapshot's, keeps its bytes there, whatever a start does to the log.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on says so, and looks at files behind the store's back"
)]

mod common;

use common::{bodies, open, put, real, small};
use pyrmq_store::fs::Space;
use pyrmq_store::{MaintenanceTask, Store};
use pyrmq_testkit::{FaultyDisk, TempDir};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn segments(directory: &Path) -> BTreeMap<String, PathBuf> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect()
}

/// A store of several segments, each of which has a second name outside, and the bytes of these.
fn shared(root: &Path, outside: &Path, count: usize) -> BTreeMap<String, Vec<u8>> {
    let store = open(small(root));
    for number in 0..count {
        put(&store, "T", 0, format!("{number:0600}").as_bytes());
    }
    store.close().unwrap();
    let mut kept = BTreeMap::new();
    for (name, path) in segments(&root.join("commitlog")) {
        fs::hard_link(&path, outside.join(&name)).unwrap();
        kept.insert(name, fs::read(&path).unwrap());
    }
    kept
}

fn assert_unchanged(outside: &Path, kept: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in kept {
        assert!(
            fs::read(outside.join(name)).unwrap() == *bytes,
            "{name} was written"
        );
    }
}

#[test]
fn the_next_records_go_into_a_copy_of_the_last_segment() {
    let (dir, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let kept = shared(dir.path(), outside.path(), 250);
    assert!(kept.len() > 2);
    let store = open(small(dir.path()));
    put(&store, "T", 0, b"one more");
    store.close().unwrap();
    assert_unchanged(outside.path(), &kept);
    let store = open(small(dir.path()));
    let all = bodies(&store, "T", 0);
    assert_eq!(
        (all.len(), all.last().unwrap().as_slice()),
        (251, b"one more".as_slice())
    );
}

#[test]
fn what_a_start_after_a_crash_writes_again_goes_into_copies() {
    let (dir, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let kept = shared(dir.path(), outside.path(), 250);
    // Without a checkpoint nothing is known to be durable: all segments are written again.
    fs::write(dir.path().join("abort"), "1").unwrap();
    fs::remove_file(dir.path().join("checkpoint")).unwrap();
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "T", 0).len(), 250);
    store.close().unwrap();
    assert_unchanged(outside.path(), &kept);
    for path in segments(&dir.path().join("commitlog")).values() {
        assert_eq!(fs::metadata(path).unwrap().nlink(), 1, "{}", path.display());
    }
}

#[test]
fn a_damaged_segment_is_cut_in_a_copy() {
    let (dir, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    shared(dir.path(), outside.path(), 250);
    let log = segments(&dir.path().join("commitlog"));
    let (_, second) = log.iter().nth(1).unwrap();
    let file = fs::OpenOptions::new().write(true).open(second).unwrap();
    file.write_all_at(b"damage", 20_000).unwrap();
    let kept = segments(outside.path())
        .into_iter()
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect();
    // As after a power loss: what no checkpoint covers may be cut.
    fs::write(dir.path().join("abort"), "1").unwrap();
    fs::remove_file(dir.path().join("checkpoint")).unwrap();
    let store = open(small(dir.path()));
    let left = bodies(&store, "T", 0).len();
    assert!((1..250).contains(&left), "{left} messages");
    put(&store, "T", 0, b"one more");
    store.close().unwrap();
    assert_unchanged(outside.path(), &kept);
}

#[test]
fn a_full_disk_takes_no_young_segment_that_frees_nothing() {
    const GIB: u64 = 1 << 30;
    let (dir, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let kept = shared(dir.path(), outside.path(), 250);
    let disk = Arc::new(FaultyDisk::new(real()));
    disk.set_space(Some(Space {
        total: 100 * GIB,
        free: 10 * GIB,
    }));
    let mut options = small(dir.path());
    options.delete_when = Vec::new();
    let start_after_a_round = |options: &pyrmq_store::Options| {
        let store = Store::open_without_threads(options.clone(), disk.clone()).unwrap();
        for task in [
            MaintenanceTask::Flush,
            MaintenanceTask::SyncQueues,
            MaintenanceTask::Clean,
        ] {
            store.run(task).unwrap();
        }
        let start = store.health().min_physical_offset;
        store.close().unwrap();
        start
    };
    assert_eq!(start_after_a_round(&options), 0);
    // The oldest has no other name any more; the next one has.
    let (oldest, _) = kept.first_key_value().unwrap();
    fs::remove_file(outside.path().join(oldest)).unwrap();
    assert_eq!(start_after_a_round(&options), 65536);
    // What is old goes, whoever shares it.
    options.file_reserved_hours = 0;
    assert!(start_after_a_round(&options) > 65536);
}

#[test]
fn copies_that_did_not_replace_their_segments_go_at_a_start() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    put(&store, "T", 0, b"one");
    store.close().unwrap();
    let log = dir.path().join("commitlog");
    let (name, _) = segments(&log).pop_first().unwrap();
    let unknown = [format!("{name}.kept"), "notes.own".to_owned()];
    for name in unknown.iter().chain([&format!("{name}.own")]) {
        fs::write(log.join(name), "x").unwrap();
    }
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "T", 0), [b"one"]);
    store.close().unwrap();
    assert!(!log.join(format!("{name}.own")).exists());
    for name in unknown {
        assert!(log.join(&name).exists(), "{name} is none of ours");
    }
}
