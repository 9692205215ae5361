//! Parts of a store on other file systems.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot go on says so, and moves files behind the store's back"
)]

mod common;

use common::{bodies, message, props, put, real, small};
use pyrmq_store::{KeyKind, KeyQuery, MaintenanceTask, Store};
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use pyrmq_testkit::{SimDisk, TempDir};
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

#[test]
fn a_topic_s_queues_behind_a_link_are_found_and_fsynced() {
    let dir = TempDir::new().unwrap();
    let Some(other) = Elsewhere::new(dir.path(), "link") else {
        return;
    };
    let disk = FaultyDisk::new(real());
    let open = || Store::open_without_threads(small(dir.path()), Arc::new(disk.clone())).unwrap();
    let store = open();
    for number in 0..300 {
        put(&store, "Moved", 0, number.to_string().as_bytes());
    }
    store.close().unwrap();
    drop(store);
    let topic = dir.path().join("consumequeue/Moved");
    let moved = Command::new("mv").arg(&topic).arg(&other.0).status().unwrap();
    assert!(moved.success());
    symlink(other.0.join("Moved"), &topic).unwrap();
    let store = open();
    assert_eq!(bodies(&store, "Moved", 0).len(), 300);
    // Enough queues for one fsync of the whole file system, which is not that of the link.
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
