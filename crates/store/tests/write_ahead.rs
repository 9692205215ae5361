//! With `SYNC_FLUSH`, zeros are written ahead of the records.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod common;

use common::{bodies, message, open, put, real, small};
use pyrmq_store::{FlushDiskType, Options, Store};
use pyrmq_testkit::TempDir;
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const SEGMENT: u64 = 8 << 20;
const AHEAD: u64 = 1 << 20;

fn options(root: &Path, flush: FlushDiskType) -> Options {
    let mut options = small(root);
    options.segment_bytes = SEGMENT;
    options.flush = flush;
    options.flush_ahead_bytes = AHEAD;
    options
}

/// Returns the bytes on disk of the log's only file.
fn on_disk(root: &Path) -> u64 {
    let file = root.join("commitlog").join("0".repeat(20));
    real().open(&file).unwrap().sync().unwrap();
    std::fs::metadata(file).unwrap().blocks() * 512
}

#[test]
fn only_with_sync_flush_and_a_piece_at_a_time() {
    for (flush, least, most) in [
        (FlushDiskType::Async, 1, AHEAD / 2),
        (FlushDiskType::Sync, AHEAD, AHEAD * 2),
    ] {
        let dir = TempDir::new().unwrap();
        let store = open(options(dir.path(), flush));
        put(&store, "T", 0, b"first");
        let disk = on_disk(dir.path());
        assert!((least..most).contains(&disk), "{flush:?}: {disk}");
        // Across the border of the first piece.
        let body = vec![7; 100_000];
        for _ in 0..12 {
            put(&store, "T", 0, &body);
        }
        let disk = on_disk(dir.path());
        assert!((least..most * 2 + AHEAD).contains(&disk), "{flush:?}: {disk}");
        store.close().unwrap();
        drop(store);
        let store = open(options(dir.path(), flush));
        assert_eq!(bodies(&store, "T", 0).len(), 13);
    }
}

#[test]
fn a_failure_there_is_harmless() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let options = options(dir.path(), FlushDiskType::Sync);
        let store = Store::open(options.clone(), Arc::new(disk.clone())).unwrap();
        let first = message("T", 0, b"first", "");
        // The file is extended and the record written, but not the zeros.
        disk.fail(Operation::Write, "commitlog", 2, Fault::Torn(5000, kind));
        store.put(&first).unwrap();
        disk.heal();
        assert!(on_disk(dir.path()) < AHEAD / 2);
        store.put(&message("T", 0, b"second", "")).unwrap();
        assert_eq!(store.health().read_only, None);
        store.close().unwrap();
        drop(store);
        let store = Store::open(options, real()).unwrap();
        assert_eq!(bodies(&store, "T", 0), [b"first".to_vec(), b"second".to_vec()]);
    }
}
