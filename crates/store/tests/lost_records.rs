//! Queues whose log lost records in the middle: fillers are in the queue where those were, and no search takes them
//! for messages or stops at them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{decoded, get, put, small};
use pyrmq_remoting::message::record::MAGIC_BLANK;
use pyrmq_store::{Boundary, Fs, GetStatus, Options, Store};
use pyrmq_testkit::SimDisk;
use pyrmq_testkit::sim::Session;
use std::path::Path;
use std::sync::Arc;

const ROOT: &str = "/data/store";
const NOW_MS: i64 = 1_800_000_000_000;
const SEGMENT: i64 = 64 * 1024;
const MESSAGES: i64 = 1100;
/// The first lost message; it is in the second segment.
const LOST: i64 = 350;

fn options() -> Options {
    small(Path::new(ROOT))
}

fn open(session: &Session) -> Arc<Store> {
    Store::open_without_threads(options(), Arc::new(session.clone())).expect("the store opens")
}

fn segment(base: i64) -> String {
    format!("{ROOT}/commitlog/{base:020}")
}

/// A closed store that `pyrmq log repair --choice skip` mended: the second segment ends at message `LOST`.
struct Repaired {
    disk: SimDisk,
    /// Positions of all messages, lost ones too.
    positions: Vec<i64>,
    /// Indexes of the first message of the second segment, and of the third.
    second: i64,
    third: i64,
}

impl Repaired {
    fn new() -> Self {
        let disk = SimDisk::default();
        disk.set_now(NOW_MS);
        let session = disk.session();
        let store = open(&session);
        let put_next = |number: i64| {
            disk.set_now(NOW_MS + number * 1000);
            put(&store, "T", 0, format!("{number:0100}").as_bytes()).physical_offset
        };
        let positions: Vec<i64> = (0..MESSAGES).map(put_next).collect();
        store.close().unwrap();
        drop(store);
        let first_from = |start: i64| {
            let before = positions.iter().filter(|position| **position < start).count();
            i64::try_from(before).unwrap()
        };
        let (second, third) = (first_from(SEGMENT), first_from(2 * SEGMENT));
        assert!(second < LOST && LOST < third && third < MESSAGES);
        let lost_at = positions[usize::try_from(LOST).unwrap()];
        let left = usize::try_from(2 * SEGMENT - lost_at).unwrap();
        let mut blank = vec![0; left];
        blank[..4].copy_from_slice(&i32::try_from(left).unwrap().to_be_bytes());
        blank[4..8].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
        let log = session.open(Path::new(&segment(SEGMENT))).unwrap();
        log.write_all_at(&blank, u64::try_from(lost_at - SEGMENT).unwrap())
            .unwrap();
        for name in ["checkpoint", "queueEnds"] {
            session.remove(&Path::new(ROOT).join(name)).unwrap();
        }
        session.create(&Path::new(ROOT).join("abort")).unwrap();
        session.kill();
        Self {
            disk,
            positions,
            second,
            third,
        }
    }

    fn position(&self, index: i64) -> i64 {
        self.positions[usize::try_from(index).unwrap()]
    }

    /// Lets a start build the queues, and stops it cleanly.
    fn rebuild(&self) {
        let session = self.disk.session();
        open(&session).close().unwrap();
        session.kill();
    }

    fn remove_first_segment(&self) {
        let session = self.disk.session();
        session.remove(Path::new(&segment(0))).unwrap();
        session.kill();
    }
}

/// The index and the body of the first message that a pull from an index finds.
fn first_of(store: &Store, index: i64) -> (i64, Vec<u8>) {
    let got = get(store, "T", 0, index);
    assert_eq!(got.status, GetStatus::Found, "{index}");
    let first = decoded(&got.body).next().unwrap().unwrap();
    (first.queue_offset, first.body.to_vec())
}

#[test]
fn searches_by_position_and_by_time_pass_over_lost_records() {
    let repaired = Repaired::new();
    let store = open(&repaired.disk.session());
    assert_eq!(store.max_offset("T", 0), MESSAGES);
    assert!(
        LOST < MESSAGES / 2 && MESSAGES / 2 < repaired.third,
        "the search begins among the lost"
    );
    let at = |position| store.offset_by_position("T", 0, position).unwrap();
    let since = |index| {
        let time = NOW_MS + index * 1000;
        store.offset_by_time("T", 0, time, Boundary::Lower).unwrap()
    };
    for index in [
        0,
        1,
        5,
        170,
        repaired.second,
        LOST - 1,
        repaired.third,
        MESSAGES - 1,
    ] {
        assert_eq!(at(repaired.position(index)), index);
        assert_eq!(since(index), index);
    }
    for lost in [LOST, LOST + 1, MESSAGES / 2, repaired.third - 1] {
        assert_eq!(at(repaired.position(lost)), repaired.third, "{lost}");
        assert_eq!(since(lost), repaired.third, "{lost}");
    }
    assert_eq!(at(repaired.position(5) + 1), 6);
    assert_eq!((at(i64::MAX), since(MESSAGES)), (MESSAGES, MESSAGES));
}

#[test]
fn messages_before_lost_records_stay_when_older_segments_go() {
    let repaired = Repaired::new();
    repaired.rebuild();
    repaired.remove_first_segment();
    let session = repaired.disk.session();
    let store = open(&session);
    assert_eq!(store.min_offset("T", 0), repaired.second);
    let body = format!("{:0100}", repaired.second).into_bytes();
    assert_eq!(first_of(&store, repaired.second), (repaired.second, body));
}

#[test]
fn a_queue_that_begins_inside_a_file_keeps_its_first_message_after_a_clean_stop() {
    let repaired = Repaired::new();
    repaired.remove_first_segment();
    let session = repaired.disk.session();
    let queue = Path::new(ROOT).join("consumequeue/T/0");
    for file in session.list(&queue).unwrap() {
        session.remove(&queue.join(file.name)).unwrap();
    }
    session.kill();
    repaired.rebuild();
    let session = repaired.disk.session();
    let store = open(&session);
    assert_ne!(repaired.second % 100, 0, "the first file begins with fillers");
    assert_eq!(store.min_offset("T", 0), repaired.second);
    assert_eq!(first_of(&store, repaired.second).0, repaired.second);
    assert_eq!(first_of(&store, LOST - 1).0, LOST - 1);
}
