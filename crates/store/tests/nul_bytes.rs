//! Zero bytes in messages: they look like sectors that never reached the disk, and must not be mistaken for them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on says so, and looks at files behind the store's back"
)]

mod common;

use common::{get, host, message, open, props, put, small};
use pyrmq_store::{
    BatchMessage, FlushDiskType, Fs, MaintenanceTask, MessageBatch, Options, Store, StoreError, Stored,
};
use pyrmq_testkit::disk::{Fault, Operation};
use pyrmq_testkit::sim::{Loss, Session};
use pyrmq_testkit::{FaultyDisk, Random, SimDisk, TempDir};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const ROOT: &str = "/data/store";

fn simulated() -> Options {
    let mut options = small(Path::new(ROOT));
    options.segment_bytes = 16_384;
    options.flush = FlushDiskType::Sync;
    options
}

fn open_on(disk: &SimDisk) -> (Session, Arc<Store>) {
    let session = disk.session();
    let store = Store::open_without_threads(simulated(), Arc::new(session.clone()));
    (session, store.expect("the store opens"))
}

/// Properties of the kinds that look torn, and some that do not.
fn properties(random: &mut Random) -> String {
    let zeros = "\0".repeat(random.below(3));
    let many = "\0".repeat(500 + random.below(700));
    match random.below(5) {
        0 => format!("k\u{1}v{zeros}\0"),
        1 => format!("k\u{1}{many}"),
        2 => format!("k\u{1}{many}\u{2}"),
        3 => format!("{zeros}\u{1}\0\u{2}\0"),
        _ => props(&[("k", &"v".repeat(random.below(900)))]),
    }
}

/// Returns the records of queue 0, in order.
fn records(store: &Store) -> Vec<Vec<u8>> {
    let end = store.max_offset("T", 0);
    let record = |index| {
        let got = get(store, "T", 0, index);
        let size = i32::from_be_bytes(got.body[..4].try_into().unwrap());
        got.body[..usize::try_from(size).unwrap()].to_vec()
    };
    (0..end).map(record).collect()
}

/// Puts one message, or several as a batch.
fn put_all(store: &Store, body: &[u8], texts: &[String]) -> Stored {
    if let [only] = texts {
        return store.put(&message("T", 0, body, only)).unwrap();
    }
    let item = |properties| BatchMessage {
        flag: 0,
        body,
        properties,
        tags_code: 0,
        unique_key: None,
        keys: None,
        tag: None,
    };
    let items: Vec<_> = texts.iter().map(|text| item(text.as_str())).collect();
    let batch = MessageBatch {
        topic: "T",
        queue_id: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host("127.0.0.1:1"),
        store_host: host("127.0.0.1:2"),
        reconsume_times: 0,
        items: &items,
    };
    store.put_batch(&batch).unwrap()
}

/// A run over a disk: the puts, and how many of them were acknowledged as durable.
struct Run {
    disk: SimDisk,
    put: Vec<Vec<u8>>,
    durable: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::default();
        disk.set_now(1_800_000_000_000);
        let mut random = Random::of(&[seed]);
        let (session, mut store) = open_on(&disk);
        let mut run = Self {
            disk: disk.clone(),
            put: Vec::new(),
            durable: 0,
        };
        let mut before = session;
        for _ in 0..40 {
            match random.below(8) {
                0 => {
                    store.run(MaintenanceTask::Flush).unwrap();
                    run.durable = run.put.len();
                }
                1 => store.run(MaintenanceTask::SaveCheckpoint).unwrap(),
                2 => {
                    // Queues and the mark of the log.
                    store.run(MaintenanceTask::Flush).unwrap();
                    run.durable = run.put.len();
                    store.run(MaintenanceTask::SyncQueues).unwrap();
                }
                3 if random.one_in(4) => {
                    before.kill();
                    (before, store) = open_on(&disk);
                }
                _ => {
                    let texts: Vec<_> = (0..=random.below(2)).map(|_| properties(&mut random)).collect();
                    let body = vec![0; random.below(300)];
                    let stored = put_all(&store, &body, &texts);
                    for position in stored.physical_offsets() {
                        let record = store.record_at(*position).unwrap().unwrap();
                        run.put.push(record.to_vec());
                    }
                }
            }
        }
        before.kill();
        run
    }
}

#[test]
fn a_record_that_looks_torn_survives_a_power_loss_whole_or_not_at_all() {
    let mut lost = 0;
    for seed in 0..40 {
        let run = Run::new(seed);
        for (number, loss) in Loss::ALL.into_iter().cycle().take(12).enumerate() {
            let disk = run.disk.crash(run.disk.steps(), loss, seed * 100 + number as u64);
            let (session, store) = open_on(&disk);
            store.run(MaintenanceTask::Flush).unwrap();
            let found = records(&store);
            let what = format!("seed {seed}, {loss:?}");
            assert!(
                run.put.starts_with(&found),
                "{what}: nothing is changed or invented"
            );
            assert!(found.len() >= run.durable, "{what}: what was durable is there");
            if loss == Loss::Nothing {
                assert_eq!(found.len(), run.put.len(), "{what}: a kill takes nothing");
            }
            lost += run.put.len() - found.len();
            session.kill();
        }
    }
    assert!(lost > 0, "a power loss takes something");
}

/// Flips a bit in the middle of the record at a position.
fn damage(session: &Session, position: u64) {
    let file = session
        .open(&Path::new(ROOT).join("commitlog/00000000000000000000"))
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position + 90).unwrap();
    byte[0] ^= 1;
    file.write_all_at(&byte, position + 90).unwrap();
}

#[test]
fn good_records_behind_a_damaged_one_are_not_cut_after_a_kill_however_new_they_are() {
    let disk = SimDisk::default();
    let (session, store) = open_on(&disk);
    let stored: Vec<_> = (0..3).map(|_| put(&store, "T", 0, b"a body")).collect();
    session.kill();
    damage(&disk.session(), u64::try_from(stored[1].physical_offset).unwrap());
    let open = |disk: &SimDisk| Store::open_without_threads(simulated(), Arc::new(disk.session()));
    for _ in 0..2 {
        let error = open(&disk).expect_err("nothing is cut");
        let is_told = matches!(&error, StoreError::Damaged { position, good, .. }
            if *position == stored[1].physical_offset && *good == stored[2].physical_offset);
        assert!(is_told, "{error}");
    }
    // A power loss explains it: nothing of it was fsynced.
    let store = open(&disk.crash(disk.steps(), Loss::Newest, 7)).unwrap();
    assert!(store.max_offset("T", 0) <= 3);
    // A write that was cut off is the newest record, and not damage.
    let disk = SimDisk::default();
    let (session, store) = open_on(&disk);
    let stored: Vec<_> = (0..3).map(|_| put(&store, "T", 0, b"a body")).collect();
    session.kill();
    damage(&disk.session(), u64::try_from(stored[2].physical_offset).unwrap());
    let store = open(&disk).expect("the log ends in front of it");
    assert_eq!(records(&store).len(), 2);
}

#[test]
fn a_cut_after_a_power_loss_that_is_killed_itself_is_ended_by_the_next_start() {
    let mut cut = 0;
    for seed in 0..30 {
        let run = Run::new(seed);
        let lost = run.disk.crash(run.disk.steps(), Loss::Writes, seed);
        let (session, store) = open_on(&lost);
        session.kill();
        drop(store);
        let steps = lost.steps();
        for step in 0..steps {
            // Killed after each step of the start.
            let killed = lost.crash(step, Loss::Nothing, seed);
            let (session, store) = open_on(&killed);
            store.run(MaintenanceTask::Flush).unwrap();
            let found = records(&store);
            assert!(
                run.put.starts_with(&found) && found.len() >= run.durable,
                "seed {seed}, step {step}"
            );
            cut += run.put.len() - found.len();
            session.kill();
        }
    }
    assert!(cut > 0);
}

#[test]
fn a_body_full_of_fake_heads_does_not_slow_the_search_for_valid_records() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.segment_bytes = 32 << 20;
    let store = open(options.clone());
    let first = put(&store, "T", 0, b"first");
    let from = first.end_position;
    // Each has its right position, and claims the rest of the file.
    let mut body = Vec::new();
    while body.len() < 1 << 20 {
        let at = from + 88 + i64::try_from(body.len()).unwrap();
        let left = (32 << 20) - i32::try_from(at).unwrap() - 100;
        let mut head = [0; 92];
        head[..4].copy_from_slice(&left.to_be_bytes());
        head[4..8].copy_from_slice(&0xDAA3_20A7_u32.to_be_bytes());
        head[28..36].copy_from_slice(&at.to_be_bytes());
        head[84..88].copy_from_slice(&(left - 91).to_be_bytes());
        body.extend_from_slice(&head);
    }
    put(&store, "T", 0, &body);
    let last = put(&store, "T", 0, b"last");
    store.close().unwrap();
    drop(store);
    let path = dir.path().join("commitlog/00000000000000000000");
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    // Its head is lost, so nothing shows where it ends. The queues are lost too, so the whole log is read.
    file.write_all_at(&[0; 88], u64::try_from(from).unwrap()).unwrap();
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    // Each fake head that is believed is read as a record of nearly the whole file.
    let disk = FaultyDisk::default();
    disk.fail(
        Operation::LongRead,
        "commitlog",
        10,
        Fault::Error(ErrorKind::Other),
    );
    let error = Store::open(options, Arc::new(disk)).expect_err("a damaged log");
    let is_told = matches!(&error, StoreError::Damaged { position, good, .. }
        if *position == from && *good == last.physical_offset);
    assert!(is_told, "{error}");
}

#[test]
fn a_failed_fsync_is_made_up_for_by_the_next_start_and_not_by_those_behind_it() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    put(&store, "T", 0, b"body");
    let dir = TempDir::copy_of(dir.path()).unwrap();
    let abort = dir.path().join("abort");
    let text = fs::read_to_string(&abort).unwrap();
    fs::write(&abort, format!("{text}unsure from 0\n")).unwrap();
    let store = open(small(dir.path()));
    assert_eq!(store.health().flushed_offset, store.health().max_physical_offset);
    assert!(!fs::read_to_string(&abort).unwrap().contains("unsure"));
    drop(store);
}
