//! Single flipped bits in every kind of file, after a clean stop and after a kill: the store opens or reports the
//! damage, never panics, and never returns a message with a wrong body.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{message, props, small, try_get};
use pyrmq_remoting::message::record::records;
use pyrmq_store::fs::{File, Fs};
use pyrmq_store::{GetStatus, KeyKind, KeyQuery, MaintenanceTask, Options, Store, StoreError};
use pyrmq_testkit::sim::Loss;
use pyrmq_testkit::{Random, SimDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MESSAGES: usize = 200;

fn body(number: usize) -> String {
    format!("{number:0width$}", width = 20 + number % 100)
}

fn options() -> Options {
    let mut options = small(Path::new("/store"));
    options.segment_bytes = 16 << 10;
    options.queue_file_bytes = 1000;
    options
}

/// Builds a disk with messages in several segments, queue and index files.
fn filled(clean: bool) -> SimDisk {
    let disk = SimDisk::default();
    disk.set_now(1_800_000_000_000);
    let session = disk.session();
    let store = Store::open_without_threads(options(), Arc::new(session.clone())).unwrap();
    for number in 0..MESSAGES {
        let properties = props(&[("UNIQ_KEY", &format!("U{number}"))]);
        store
            .put(&message(
                "T",
                i32::try_from(number % 3).unwrap(),
                body(number).as_bytes(),
                &properties,
            ))
            .unwrap();
        disk.set_now(disk.now() + 100);
        if number == MESSAGES / 2 {
            // Up to here log and queues are durable, after it only the log.
            store.run(MaintenanceTask::Flush).unwrap();
            store.run(MaintenanceTask::SyncQueues).unwrap();
        }
    }
    for task in [
        MaintenanceTask::Flush,
        MaintenanceTask::Index,
        MaintenanceTask::WriteIndex,
        MaintenanceTask::WriteQueues,
        MaintenanceTask::SaveCheckpoint,
    ] {
        store.run(task).unwrap();
    }
    if clean {
        store.close().unwrap();
    }
    session.kill();
    disk
}

fn files(fs: &dyn Fs, directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs.list(directory).unwrap() {
        let path = directory.join(&entry.name);
        if entry.is_directory {
            files(fs, &path, found);
        } else if entry.length > 0 {
            found.push(path);
        }
    }
}

/// Flips one bit among the first bytes that are not all zero.
fn flip(file: &dyn File, random: &mut Random) -> u64 {
    let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(1, |last| last + 1);
    let at = random.below(used);
    bytes[at] ^= 1 << random.below(8);
    file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    at as u64
}

/// Reads everything that can be read, and returns the number of messages.
fn read_all(store: &Store) -> Result<usize, StoreError> {
    let mut count = 0;
    for queue in 0..3 {
        let mut offset = store.min_offset("T", queue);
        loop {
            let got = try_get(store, "T", queue, offset)?;
            if got.status != GetStatus::Found {
                let is_end = matches!(
                    got.status,
                    GetStatus::OffsetOverflowOne | GetStatus::NoMatchedLogicQueue
                );
                assert!(is_end, "{:?} at {offset} of queue {queue}", got.status);
                break;
            }
            for record in records(&got.body) {
                let record = record.expect("a sound record");
                let text = std::str::from_utf8(record.body).expect("text");
                let number: usize = text.parse().expect("a number");
                assert_eq!(text, body(number), "a body that was not put");
                count += 1;
            }
            offset = got.next_offset;
        }
    }
    Ok(count)
}

#[test]
fn one_flipped_bit_is_never_read_as_a_message() {
    for clean in [true, false] {
        let whole = filled(clean);
        let (mut opened, mut refused, mut unread) = (0, 0, 0);
        for seed in 0..400 {
            let mut random = Random::of(&[seed, u64::from(clean)]);
            let disk = whole.crash(whole.steps(), Loss::Nothing, 0);
            let session = disk.session();
            let mut all = Vec::new();
            files(&session, Path::new("/store"), &mut all);
            let path = random.choose(&all).unwrap().clone();
            let at = flip(session.open(&path).unwrap().as_ref(), &mut random);
            let place = format!("seed {seed}, clean {clean}: byte {at} of {}", path.display());
            let is_log = path.starts_with("/store/commitlog");
            let store = match Store::open_without_threads(options(), Arc::new(session.clone())) {
                Ok(store) => store,
                Err(error) => {
                    assert!(
                        is_log && matches!(error, StoreError::Damaged { .. } | StoreError::Newer { .. }),
                        "{place}: {error}"
                    );
                    refused += 1;
                    continue;
                }
            };
            opened += 1;
            // A body flipped before the beginning of the replay has a checksum, which its reader checks.
            if !is_log {
                match read_all(&store) {
                    Ok(count) => assert_eq!(count, MESSAGES, "{place}"),
                    Err(StoreError::QueueMismatch { .. }) => {
                        assert!(path.starts_with("/store/consumequeue"), "{place}");
                        unread += 1;
                        drop(store);
                        let again =
                            Store::open_without_threads(options(), Arc::new(session.clone())).unwrap();
                        assert_eq!(
                            read_all(&again).unwrap(),
                            MESSAGES,
                            "{place}: the next start heals"
                        );
                    }
                    Err(error) => panic!("{place}: {error}"),
                }
            }
            if path.starts_with("/store/index") {
                // Wrong entries find nothing; they never find another message.
                let store = Store::open_without_threads(options(), Arc::new(disk.session()));
                for number in (0..MESSAGES).step_by(17) {
                    let Ok(store) = &store else { break };
                    let found = store.query(&KeyQuery {
                        topic: "T",
                        key: &format!("U{number}"),
                        kind: KeyKind::Unique,
                        max_count: 4,
                        begin_ms: 0,
                        end_ms: i64::MAX,
                    });
                    for record in records(&found.unwrap().body) {
                        assert_eq!(record.unwrap().body, body(number).as_bytes(), "{place}");
                    }
                }
            }
            session.kill();
        }
        // After a clean stop the replay begins at the log's end; after a kill, after what was durable in log and
        // queues.
        assert!(
            opened > 100 && (if clean { unread } else { refused }) > 0,
            "{opened} opened, {refused} refused, {unread} unread"
        );
    }
}
