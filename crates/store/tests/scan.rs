//! Log files read without a store, whole and damaged at every place.
#![allow(
    clippy::disallowed_methods,
    reason = "the test writes files behind the store's back"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_remoting::message::NewRecord;
use pyrmq_store::RealFs;
use pyrmq_store::scan::{LogFile, LogScan, PlanLimits, Stop, log_files, plan};
use pyrmq_testkit::TempDir;
use std::fs;
use std::ops::ControlFlow;

const BASE: i64 = 8192;
const LENGTH: usize = 4096;

/// A file of records, a blank one behind them, and where each record begins.
fn file(dir: &TempDir, bodies: &[&[u8]]) -> (LogFile, Vec<i64>) {
    let mut bytes = Vec::new();
    let mut positions = Vec::new();
    for (offset, body) in (0..).zip(bodies) {
        let position = BASE + i64::try_from(bytes.len()).unwrap();
        positions.push(position);
        NewRecord {
            topic: if offset % 2 == 0 { "even" } else { "odd" },
            queue_id: 0,
            flag: 0,
            queue_offset: offset,
            physical_offset: position,
            sys_flag: 0,
            born_timestamp_ms: 1,
            born_host: "10.0.0.9:5555".parse().unwrap(),
            store_timestamp_ms: 1000 + offset,
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties: b"",
        }
        .encode(&mut bytes)
        .unwrap();
    }
    let left = u32::try_from(LENGTH - bytes.len()).unwrap();
    bytes.extend(left.to_be_bytes());
    bytes.extend(0xCBD4_3194_u32.to_be_bytes());
    bytes.resize(LENGTH, 0);
    fs::write(dir.path().join(format!("{BASE:020}")), bytes).unwrap();
    fs::write(dir.path().join("not a log file"), b"x").unwrap();
    let files = log_files(&RealFs, dir.path()).unwrap();
    assert_eq!(files.len(), 1);
    (files.into_iter().next().unwrap(), positions)
}

/// The positions that a scan visits, past damage if it may, and why it ended.
fn visited(file: &LogFile, from: i64, until: i64, skip: bool) -> (Vec<i64>, Stop) {
    let mut scan = LogScan::open(&RealFs, file, from, until)
        .unwrap()
        .checking_bodies();
    let mut positions = Vec::new();
    loop {
        let stop = scan
            .visit(|record, bytes| {
                assert_eq!(bytes.len(), record.size);
                positions.push(record.physical_offset);
                ControlFlow::Continue(())
            })
            .unwrap();
        let is_damaged = matches!(stop, Stop::Damaged(_) | Stop::Unused);
        if !skip || !is_damaged || !scan.skip_damage().unwrap() {
            return (positions, stop);
        }
    }
}

#[test]
fn records_come_in_order_and_borders_hold() {
    let dir = TempDir::new().unwrap();
    let (file, positions) = file(&dir, &[b"a", &[7; 900], b"", b"d"]);
    assert_eq!((file.base, file.end()), (BASE, BASE + 4096));
    assert_eq!(visited(&file, 0, i64::MAX, false), (positions.clone(), Stop::End));
    let (middle, stop) = visited(&file, positions[1], positions[3], false);
    assert_eq!((middle.as_slice(), stop), (&positions[1..3], Stop::End));
    let mut scan = LogScan::open(&RealFs, &file, 0, i64::MAX).unwrap();
    let stop = scan.visit(|_, _| ControlFlow::Break(())).unwrap();
    assert_eq!((stop, scan.position()), (Stop::Paused, positions[1]));
}

#[test]
fn pieces_meet_and_hold_every_record_once() {
    let dir = TempDir::new().unwrap();
    let bodies: Vec<&[u8]> = vec![b"some body"; 20];
    let (file, positions) = file(&dir, &bodies);
    for piece_bytes in [1, 300, 1000, 1 << 20] {
        let limits = PlanLimits {
            piece_bytes,
            records: u64::MAX,
            with_topics: true,
        };
        let mut scan = LogScan::open(&RealFs, &file, 0, i64::MAX).unwrap();
        let (pieces, stop) = plan(&mut scan, limits).unwrap();
        assert_eq!(stop, Stop::End);
        assert!(pieces.windows(2).all(|pair| pair[0].until == pair[1].from));
        assert_eq!(pieces.iter().map(|piece| piece.records).sum::<u64>(), 20);
        assert_eq!((pieces[0].first_ms, pieces.last().unwrap().last_ms), (1000, 1019));
        assert_eq!(pieces.last().unwrap().last, positions[19]);
        assert!(
            pieces
                .iter()
                .flat_map(|piece| &piece.topics)
                .any(|topic| topic == "odd")
        );
        let read: Vec<i64> = pieces
            .iter()
            .flat_map(|piece| visited(&file, piece.from, piece.until, false).0)
            .collect();
        assert_eq!(read, positions);
    }
    let limits = PlanLimits {
        piece_bytes: 300,
        records: 7,
        with_topics: false,
    };
    let mut scan = LogScan::open(&RealFs, &file, 0, i64::MAX).unwrap();
    let (pieces, stop) = plan(&mut scan, limits).unwrap();
    assert_eq!((stop, scan.position()), (Stop::Paused, positions[7]));
    assert!(pieces.iter().all(|piece| piece.topics.is_empty()));
}

#[test]
fn damage_at_any_byte_costs_no_other_record() {
    let dir = TempDir::new().unwrap();
    let (file, positions) = file(&dir, &[b"first", b"second", b"third", b"fourth"]);
    let sound = fs::read(&file.path).unwrap();
    let (hurt, next) = (positions[1], positions[2]);
    for at in hurt..next {
        let mut bytes = sound.clone();
        bytes[usize::try_from(at - BASE).unwrap()] ^= 0x5A;
        fs::write(&file.path, &bytes).unwrap();
        let (left, _) = visited(&file, 0, i64::MAX, true);
        assert!(
            left.iter().all(|position| positions.contains(position)),
            "byte {at}"
        );
        for position in [positions[0], positions[2], positions[3]] {
            assert_eq!(
                left.iter().filter(|one| **one == position).count(),
                1,
                "byte {at}"
            );
        }
        // Planning hops: what it leaves between pieces must not hide a record either.
        let limits = PlanLimits {
            piece_bytes: 1,
            records: u64::MAX,
            with_topics: false,
        };
        let mut scan = LogScan::open(&RealFs, &file, 0, i64::MAX).unwrap();
        let mut read = Vec::new();
        loop {
            let (pieces, stop) = plan(&mut scan, limits).unwrap();
            for piece in pieces {
                read.extend(visited(&file, piece.from, piece.until, true).0);
            }
            if stop == Stop::End || !scan.skip_damage().unwrap() {
                break;
            }
        }
        read.sort_unstable();
        read.retain(|position| *position != hurt);
        assert_eq!(read, [positions[0], positions[2], positions[3]], "byte {at}");
    }
}

#[test]
fn zeros_and_foreign_bytes_are_told_apart() {
    let dir = TempDir::new().unwrap();
    let (file, _) = file(&dir, &[]);
    fs::write(&file.path, [0; LENGTH]).unwrap();
    assert_eq!(visited(&file, 0, i64::MAX, true), (vec![], Stop::Unused));
    fs::write(&file.path, [b'x'; LENGTH]).unwrap();
    let (none, stop) = visited(&file, 0, i64::MAX, true);
    assert!(none.is_empty() && matches!(stop, Stop::Damaged(_)), "{stop:?}");
}
