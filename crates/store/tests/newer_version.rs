//! Data of a newer version in a directory: it is kept, or the start reports it and changes nothing.
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

use common::{bodies, content, eventually, message, open, props, put, real, small};
use pyrmq_remoting::message::record::{MAGIC_BLANK, MAGIC_V1, PHYSICAL_OFFSET_AT};
use pyrmq_store::{KeyKind, KeyQuery, Store, StoreError};
use pyrmq_testkit::TempDir;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Less than half a segment: beyond that the next one is prepared, which a start after a crash removes.
const COUNT: usize = 150;
const SEGMENT: &str = "commitlog/00000000000000000000";

/// A closed store with some messages, and the end of its log.
fn closed() -> (TempDir, usize) {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for number in 0..COUNT {
        let keys = props(&[("KEYS", &format!("k{number}"))]);
        store
            .put(&message("T", 0, format!("{number:050}").as_bytes(), &keys))
            .unwrap();
    }
    store.close().unwrap();
    let end = usize::try_from(store.health().max_physical_offset).unwrap();
    (dir, end)
}

fn write(path: &Path, at: usize, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
}

/// The log's first record with another magic number, as it would be at a position.
fn record_at(dir: &Path, position: usize, magic: u32) -> Vec<u8> {
    let log = fs::read(dir.join(SEGMENT)).unwrap();
    let size = u32::from_be_bytes(log[..4].try_into().unwrap()) as usize;
    let mut record = log[..size].to_vec();
    record[4..8].copy_from_slice(&magic.to_be_bytes());
    record[PHYSICAL_OFFSET_AT..][..8].copy_from_slice(&(position as u64).to_be_bytes());
    record
}

/// Leaves the directory as a kill does.
fn crash(dir: &Path) {
    fs::write(dir.join("abort"), "1").unwrap();
}

/// Returns the error of a start that changes nothing.
fn refused(dir: &Path) -> StoreError {
    let before = content(dir);
    let error = Store::open(small(dir), real()).unwrap_err();
    let mut after = content(dir);
    // It only says that a store was open; there is none after a clean stop.
    if let Some(text) = before.get(&dir.join("abort")) {
        after.insert(dir.join("abort"), text.clone());
    }
    assert!(after == before, "something was changed before: {error}");
    error
}

#[test]
fn records_of_an_unknown_kind_behind_the_known_ones_are_not_cut() {
    for crashed in [false, true] {
        for magic in [MAGIC_V1 + 8, MAGIC_V1 + 1, MAGIC_BLANK + 8] {
            let (dir, end) = closed();
            assert!(end < 32_000);
            write(&dir.path().join(SEGMENT), end, &record_at(dir.path(), end, magic));
            if crashed {
                crash(dir.path());
            }
            // The next start must see the same.
            for _ in 0..2 {
                let error = refused(dir.path());
                assert!(matches!(error, StoreError::Newer { .. }), "{error}");
                let text = error.to_string();
                for part in [
                    SEGMENT,
                    &end.to_string(),
                    &format!("{magic:08X}"),
                    "a newer version wrote it",
                ] {
                    assert!(text.contains(part), "{text}");
                }
            }
        }
    }
}

#[test]
fn records_of_an_unknown_kind_in_front_of_known_ones_are_named() {
    for crashed in [false, true] {
        let (dir, _) = closed();
        write(&dir.path().join(SEGMENT), 4, &(MAGIC_V1 + 8).to_be_bytes());
        fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
        if crashed {
            crash(dir.path());
        }
        let error = refused(dir.path());
        assert!(
            matches!(error, StoreError::Damaged { position: 0, .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("a record of an unknown kind (magic DAA320AF): a newer version wrote it"),
            "{text}"
        );
    }
}

#[test]
fn a_store_of_nothing_but_unknown_records_is_refused() {
    for crashed in [false, true] {
        let (dir, end) = closed();
        let record = record_at(dir.path(), 0, MAGIC_V1 + 8);
        let mut log = fs::read(dir.path().join(SEGMENT)).unwrap();
        log[..end].fill(0);
        log[..record.len()].copy_from_slice(&record);
        fs::write(dir.path().join(SEGMENT), log).unwrap();
        fs::remove_file(dir.path().join("queueEnds")).unwrap();
        if crashed {
            crash(dir.path());
        }
        let error = refused(dir.path());
        assert!(
            matches!(&error, StoreError::Newer { what, .. } if what.contains("at position 0 ")),
            "{error}"
        );
    }
}

#[test]
fn a_head_that_was_cut_off_by_a_power_loss_is_not_taken_for_one() {
    let (dir, end) = closed();
    let record = record_at(dir.path(), end, MAGIC_V1);
    write(&dir.path().join(SEGMENT), end, &record[..7]);
    crash(dir.path());
    let store = open(small(dir.path()));
    assert_eq!(bodies(&store, "T", 0).len(), COUNT);
    assert_eq!(
        put(&store, "T", 0, b"next").physical_offset,
        i64::try_from(end).unwrap()
    );
}

#[test]
fn the_notes_of_a_newer_version_of_ours_are_refused() {
    for crashed in [false, true] {
        let (dir, _) = closed();
        // A later format differs after the number; a single wrong byte is damage.
        write(&dir.path().join("checkpoint"), 71, b"5");
        let damaged = TempDir::copy_of(dir.path()).unwrap();
        assert_eq!(bodies(&open(small(damaged.path())), "T", 0).len(), COUNT);
        write(&dir.path().join("checkpoint"), 64, b"PYRMQ-C2\x00\x07");
        if crashed {
            crash(dir.path());
        }
        let error = refused(dir.path());
        assert!(
            matches!(&error, StoreError::Newer { path, what } if path.ends_with("checkpoint") && what.contains("format 2")),
            "{error}"
        );
    }
}

#[test]
fn additions_of_a_newer_broker_to_the_checkpoint_are_kept() {
    for crashed in [false, true] {
        let (dir, _) = closed();
        let path = dir.path().join("checkpoint");
        write(&path, 40, &[0x5A; 24]);
        write(&path, 200, &[0x5B; 8]);
        if crashed {
            crash(dir.path());
        }
        let store = open(small(dir.path()));
        put(&store, "T", 0, b"next");
        store.close().unwrap();
        drop(store);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(
            (&bytes[40..64], &bytes[200..208]),
            (&[0x5A; 24][..], &[0x5B; 8][..])
        );
        assert_eq!(bodies(&open(small(dir.path())), "T", 0).len(), COUNT + 1);
    }
}

#[test]
fn an_index_with_another_header_is_made_again() {
    let (dir, _) = closed();
    let index = fs::read_dir(dir.path().join("index"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    write(&index, 0, b"INDEX-V2\x00\x00\x00\x02\x00\x00\x00\x28");
    write(&index, 36, &i32::MAX.to_be_bytes());
    let store = open(small(dir.path()));
    eventually(|| store.health().dispatch_behind_bytes == 0);
    for number in [0, COUNT / 2, COUNT - 1] {
        let found = store.query(&KeyQuery {
            topic: "T",
            key: &format!("k{number}"),
            kind: KeyKind::Key,
            max_count: 10,
            begin_ms: 0,
            end_ms: i64::MAX,
        });
        assert_eq!(found.unwrap().count, 1, "k{number}");
    }
}

#[test]
fn directories_and_files_of_other_names_are_left_as_they_are() {
    let (dir, _) = closed();
    let files = [
        "vectorindex/T/0/00000000000000000000",
        "config/newTable.json",
        "config/topicQueueMapping.json",
        "commitlog/00000000000000000000.meta",
        "consumequeue/T/0/summary",
        "consumequeue/T/new/00000000000000000000",
        "index/manifest",
        "checkpoint2",
    ];
    for file in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    for crashed in [false, true] {
        if crashed {
            crash(dir.path());
        }
        let store = open(small(dir.path()));
        assert!(bodies(&store, "T", 0).len() >= COUNT);
        put(&store, "T", 0, b"next");
        store.close().unwrap();
    }
    for file in files {
        assert_eq!(fs::read(dir.path().join(file)).unwrap(), file.as_bytes());
    }
}
