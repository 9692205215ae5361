//! Parts of a store on other file systems.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot go on says so, and moves files behind the store's back"
)]

mod common;

use common::{again, bodies, message, props, put, real, small};
use pyrmq_store::{KeyKind, KeyQuery, MaintenanceTask, Store};
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use pyrmq_testkit::{SimDisk, TempDir};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A directory on another file system than the temporary one, if there is one.
struct Elsewhere(std::path::PathBuf);

impl Elsewhere {
    fn new(than: &Path, name: &str) -> Option<Self> {
        let memory = Path::new("/dev/shm");
        let device = |path: &Path| std::fs::metadata(path).map(|data| data.dev()).ok();
        if device(memory).is_none() || device(memory) == device(than) {
            common::skip("/dev/shm is no file system of its own here");
            return None;
        }
        let path = memory.join(format!("pyrmq-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Some(Self(path))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Moves the queues of a topic to another file system while the store is closed, and requires that they are read there
/// and that a failed fsync of them is noticed.
fn are_found_and_fsynced(root: &Path, move_away: impl FnOnce(&Path)) {
    let disk = FaultyDisk::new(real());
    let open = || Store::open_without_threads(small(root), Arc::new(disk.clone())).unwrap();
    let store = open();
    for number in 0..300 {
        put(&store, "Moved", 0, number.to_string().as_bytes());
    }
    store.close().unwrap();
    drop(store);
    let topic = root.join("consumequeue/Moved");
    move_away(&topic);
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    assert_ne!(device(&topic), device(root), "they are on another file system");
    let store = open();
    assert_eq!(bodies(&store, "Moved", 0).len(), 300);
    // Enough queues for one fsync of the whole file system, which is not theirs.
    for queue in 0..100 {
        put(&store, "Here", queue, b"x");
    }
    put(&store, "Moved", 0, b"300");
    disk.fail(
        Operation::Sync,
        "consumequeue/Moved",
        0,
        Fault::Error(ErrorKind::Other),
    );
    store.run(MaintenanceTask::SyncQueues).unwrap_err();
    assert!(store.has_failed(), "its fsync failed, and nobody asked for it");
    disk.heal();
    drop(store);
    assert_eq!(bodies(&open(), "Moved", 0).len(), 301);
}

fn run(program: &str, arguments: &[&OsStr]) {
    assert!(Command::new(program).args(arguments).status().unwrap().success());
}

#[test]
fn a_topic_s_queues_behind_a_link_are_found_and_fsynced() {
    let dir = TempDir::new().unwrap();
    let Some(other) = Elsewhere::new(dir.path(), "link") else {
        return;
    };
    are_found_and_fsynced(dir.path(), |topic| {
        run("mv", &[topic.as_ref(), other.0.as_ref()]);
        symlink(other.0.join("Moved"), topic).unwrap();
    });
}

/// Where the inner run finds the store.
const PLACE: &str = "PYRMQ_MOUNT";

#[test]
fn a_topic_s_queues_on_a_mount_are_found_and_fsynced() {
    let test = "a_topic_s_queues_on_a_mount_are_found_and_fsynced";
    let Some(place) = std::env::var_os(PLACE) else {
        let dir = TempDir::new().unwrap();
        let script = r#"mount -t tmpfs tmpfs "$PYRMQ_MOUNT" || exit 77; exec "$0" --exact "$1" --nocapture"#;
        return again("unshare", &["-rm", "sh", "-c", script], test, (PLACE, dir.path()));
    };
    let root = Path::new(&place).join("store");
    are_found_and_fsynced(&root, |topic| {
        let copy = root.with_extension("copy");
        run("cp", &["-a".as_ref(), topic.as_ref(), copy.as_ref()]);
        run(
            "mount",
            &["-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), topic.as_ref()],
        );
        run("cp", &["-a".as_ref(), copy.join(".").as_ref(), topic.as_ref()]);
    });
}

/// A new descriptor does not report writes that failed before it was opened, so the store holds one.
#[cfg(target_os = "linux")]
#[test]
fn the_queues_file_system_is_fsynced_through_one_descriptor_that_stays_open() {
    let dir = TempDir::new().unwrap();
    let queues = dir.path().join("consumequeue");
    let held = || -> Vec<_> {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let is_it = |file: &Path| std::fs::read_link(file).is_ok_and(|target| target == queues);
        all.map(|entry| entry.path()).filter(|file| is_it(file)).collect()
    };
    let open = || Store::open_without_threads(small(dir.path()), real()).unwrap();
    // From its next start on: the first one has no queues, and holds its root.
    put(&open(), "T", 0, b"x");
    let store = open();
    let at_first = held();
    assert_eq!(at_first.len(), 1);
    for _ in 0..2 {
        for queue in 0..100 {
            put(&store, "T", queue, b"x");
        }
        store.run(MaintenanceTask::SyncQueues).unwrap();
        assert_eq!(held(), at_first);
    }
    drop(store);
    assert!(held().is_empty());
}

#[test]
fn an_index_without_space_catches_up_from_the_log() {
    for operation in [Operation::Open, Operation::Write] {
        let disk = FaultyDisk::new(Arc::new(SimDisk::default().session()));
        let mut options = small(Path::new("/store"));
        options.index_entries = 50;
        let store = Store::open_without_threads(options, Arc::new(disk.clone())).unwrap();
        let mut sent = 0;
        let mut send = |count: usize| {
            for _ in 0..count {
                let text = props(&[("UNIQ_KEY", &format!("U{sent}"))]);
                store.put(&message("T", 0, b"x", &text)).unwrap();
                sent += 1;
            }
        };
        send(10);
        disk.fail(operation, "/store/index", 0, Fault::Error(ErrorKind::StorageFull));
        for _ in 0..20 {
            send(20);
            drop(store.run(MaintenanceTask::Index));
            drop(store.run(MaintenanceTask::WriteIndex));
            // As the broker's thread does every second: the log's file system has space.
            store.run(MaintenanceTask::ReleaseIdle).unwrap();
            store.delete_expired().unwrap();
        }
        assert!(!store.has_failed());
        disk.heal();
        send(10);
        store.run(MaintenanceTask::Index).unwrap();
        for number in 0..sent {
            let found = store.query(&KeyQuery {
                topic: "T",
                key: &format!("U{number}"),
                kind: KeyKind::Unique,
                max_count: 10,
                begin_ms: 0,
                end_ms: i64::MAX,
            });
            let found = found.unwrap();
            let count = common::decoded(&found.body).count();
            assert_eq!(count, 1, "{operation:?}: U{number} of {sent}");
        }
        store.close().unwrap();
    }
}
