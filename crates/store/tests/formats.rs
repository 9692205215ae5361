//! The files byte for byte, read only by their definitions.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
#![allow(
    clippy::disallowed_methods,
    reason = "the test reads files behind the store's back"
)]

mod common;

use common::{message, open, props, put, small};
use pyrmq_remoting::message::record::{MAGIC_BLANK, MAGIC_V1};
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_testkit::TempDir;
use std::fs;
use std::os::unix::fs::MetadataExt;

fn int(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn log_queue_index_and_checkpoint() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let properties = props(&[("KEYS", "k1 k2"), ("TAGS", "TagA"), ("UNIQ_KEY", "U")]);
    let stored = store.put(&message("T", 2, b"body", &properties)).unwrap();
    let abort = dir.path().join("abort");
    let data = fs::metadata(&abort).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = boot.trim().replace('-', "");
    assert_eq!(
        fs::read_to_string(&abort).unwrap(),
        format!(
            "{}\nqueue files of 2000\nnul records from 0\nsystem {boot} {} {}\n",
            std::process::id(),
            data.dev(),
            data.ino()
        )
    );
    assert_eq!(fs::read_to_string(dir.path().join("lock")).unwrap(), "lock");
    store.close().unwrap();

    let log = fs::read(dir.path().join("commitlog/00000000000000000000")).unwrap();
    let size = usize::try_from(stored.end_position).unwrap();
    assert_eq!(log.len(), 65536);
    assert_eq!(
        (int(&log, 0), int(&log, 4).cast_unsigned()),
        (i32::try_from(size).unwrap(), MAGIC_V1)
    );
    assert_eq!(Record::decode(&log[..size]).unwrap().body, b"body");
    assert!(log[size..].iter().all(|byte| *byte == 0));

    let queue = fs::read(dir.path().join("consumequeue/T/2/00000000000000000000")).unwrap();
    assert_eq!(queue.len(), 2000);
    assert_eq!(
        (long(&queue, 0), int(&queue, 8)),
        (0, i32::try_from(size).unwrap())
    );
    assert_eq!(long(&queue, 12), i64::from(java_hash::hash("TagA")));
    assert!(queue[20..].iter().all(|byte| *byte == 0));

    let name = fs::read_dir(dir.path().join("index"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(name.file_name().unwrap().len(), 17);
    let index = fs::read(name).unwrap();
    assert_eq!(index.len(), 40 + 200 * 4 + 1000 * 20);
    let time = stored.store_timestamp_ms;
    let header = [
        long(&index, 0),
        long(&index, 8),
        long(&index, 16),
        long(&index, 24),
    ];
    assert_eq!(header, [time, time, 0, 0]);
    assert_eq!(int(&index, 36), 5, "four keys, counted from one");
    for (entry, key) in (1..).zip(["T#U", "T#k1", "T#k2", "T#T#TagA"]) {
        let at = 40 + 800 + entry * 20;
        let hash = java_hash::hash(key).checked_abs().unwrap_or(0);
        assert_eq!(int(&index, at), hash, "{key}");
        assert_eq!((long(&index, at + 4), int(&index, at + 12)), (0, 0));
        let mut number = int(&index, 40 + usize::try_from(hash % 200).unwrap() * 4);
        while number != i32::try_from(entry).unwrap() {
            assert!(number > 0, "{key} is in the chain of its slot");
            number = int(&index, 40 + 800 + usize::try_from(number).unwrap() * 20 + 16);
        }
    }

    let checkpoint = fs::read(dir.path().join("checkpoint")).unwrap();
    assert_eq!(checkpoint.len(), 4096);
    assert_eq!(
        [long(&checkpoint, 0), long(&checkpoint, 8), long(&checkpoint, 16)],
        [time; 3]
    );
    // Ours, in bytes that Apache does not use: the newest record and its end, of the log and of the queues.
    assert!(checkpoint[24..64].iter().all(|byte| *byte == 0));
    assert_eq!(&checkpoint[64..72], b"PYRMQ-C1");
    let (record, end) = (long(&checkpoint, 72), long(&checkpoint, 80));
    assert_eq!(
        (long(&checkpoint, 88), long(&checkpoint, 96)),
        (record, end),
        "log and queues are durable to the same record"
    );
    let size = int(&log, usize::try_from(record).unwrap());
    assert_eq!(record + i64::from(size), end);
    assert!(checkpoint[108..].iter().all(|byte| *byte == 0));
    assert!(!dir.path().join("abort").exists());
}

#[test]
fn a_segment_ends_with_a_blank_record() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    let body = vec![1; 20_000];
    let ends: Vec<i64> = (0..4).map(|_| put(&store, "T", 0, &body).end_position).collect();
    let first = fs::read(dir.path().join("commitlog/00000000000000000000")).unwrap();
    let at = usize::try_from(ends[2]).unwrap();
    assert_eq!(int(&first, at), i32::try_from(65536 - at).unwrap());
    assert_eq!(int(&first, at + 4).cast_unsigned(), MAGIC_BLANK);
    assert!(first[at + 8..].iter().all(|byte| *byte == 0));
    assert_eq!(ends[3] - 65536, ends[0]);
}
