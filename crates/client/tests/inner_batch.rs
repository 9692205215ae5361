//! Records that hold a batch.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use pyrmq_client::Subscription;
use pyrmq_client::consumer::process_queue::{Chunk, QueueKey};
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::compress::{self, Codec};
use pyrmq_remoting::message::inner_batch::unwrapped;
use pyrmq_remoting::message::record::records;
use pyrmq_remoting::message::{BatchItem, NewRecord, batch, sys_flag};
use std::sync::Arc;

const WRAPPED: i32 = sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP;

fn record(queue_offset: i64, sys_flag: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    NewRecord {
        topic: "batches",
        queue_id: 3,
        flag: 9,
        queue_offset,
        physical_offset: 4096,
        sys_flag,
        born_timestamp_ms: 1,
        born_host: "127.0.0.1:1".parse().unwrap(),
        store_timestamp_ms: 2,
        store_host: "[::1]:2".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: b"INNER_NUM\x012\x02UNIQ_KEY\x01BATCH\x02",
    }
    .encode(&mut bytes)
    .unwrap();
    bytes
}

fn items(bodies: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (flag, body) in (0..).zip(bodies) {
        let properties = format!("UNIQ_KEY\u{1}ID-{body}\u{2}TAGS\u{1}t-{body}\u{2}");
        let item = BatchItem {
            flag,
            body: body.as_bytes(),
            properties: properties.as_bytes(),
        };
        batch::encode(&item, &mut bytes).unwrap();
    }
    bytes
}

/// Offset, flag, body and unique id of each record.
fn rows(body: &[u8]) -> Vec<(i64, i32, String, String)> {
    records(body)
        .map(|record| {
            let record = record.unwrap();
            let id = record.properties.get("UNIQ_KEY").unwrap().to_owned();
            let text = String::from_utf8(record.body.to_vec()).unwrap();
            (record.queue_offset, record.flag, text, id)
        })
        .collect()
}

#[test]
fn each_message_of_a_batch_becomes_a_record_with_an_offset_of_its_own() {
    let bytes = record(10, WRAPPED, &items(&["a", "b", "c"]));
    let out = unwrapped(bytes.into(), 0).unwrap();
    let found = rows(&out);
    let expected = [(10, 0, "a"), (11, 1, "b"), (12, 2, "c")];
    for (row, (offset, flag, body)) in found.iter().zip(expected) {
        assert_eq!(*row, (offset, flag, body.to_owned(), format!("ID-{body}")));
    }
    assert_eq!(found.len(), 3);
    for one in records(&out) {
        let one = one.unwrap();
        assert_eq!(one.sys_flag & WRAPPED, 0, "no batch any more");
        assert_eq!(
            (one.topic, one.queue_id, one.physical_offset),
            ("batches", 3, 4096)
        );
        assert_eq!((one.born_timestamp_ms, one.store_timestamp_ms), (1, 2));
        assert_eq!(one.store_host, "[::1]:2".parse().unwrap());
        assert_eq!(
            one.properties.get("INNER_NUM"),
            None,
            "the batch's own properties stay with it"
        );
        one.check_body().unwrap();
    }
}

#[test]
fn an_answer_without_batches_is_not_copied() {
    let mut bytes = record(1, 0, b"plain");
    // A reader splits a record with both marks.
    bytes.extend(record(2, sys_flag::INNER_BATCH, b"no need"));
    let body = Bytes::from(bytes);
    let out = unwrapped(body.clone(), 0).unwrap();
    assert_eq!(out.as_ptr(), body.as_ptr());
    assert_eq!(unwrapped(Bytes::new(), 0).unwrap(), Bytes::new());
}

#[test]
fn batches_and_plain_records_keep_their_order() {
    let mut bytes = record(4, 0, b"before");
    bytes.extend(record(5, WRAPPED, &items(&["a", "b"])));
    bytes.extend(record(7, 0, b"between"));
    bytes.extend(record(8, WRAPPED, &items(&["c"])));
    let offsets = |from| -> Vec<i64> {
        let out = unwrapped(Bytes::from(bytes.clone()), from).unwrap();
        rows(&out).iter().map(|row| row.0).collect()
    };
    assert_eq!(offsets(0), [4, 5, 6, 7, 8]);
    assert_eq!(offsets(6), [4, 6, 7, 8], "of a batch only what was asked for");
}

#[test]
fn a_compressed_batch_is_unpacked_first() {
    for (codec, mark) in [
        (Codec::Zlib, 0),
        (Codec::Lz4, sys_flag::COMPRESSION_LZ4),
        (Codec::Zstd, sys_flag::COMPRESSION_ZSTD),
    ] {
        let encoded = compress::compress(codec, 5, &items(&["a", "b"])).unwrap();
        let flags = WRAPPED | sys_flag::COMPRESSED | mark;
        let out = unwrapped(record(0, flags, &encoded).into(), 0).unwrap();
        let found: Vec<String> = rows(&out).into_iter().map(|row| row.2).collect();
        assert_eq!(found, ["a", "b"]);
        assert!(records(&out).all(|one| Codec::of(one.unwrap().sys_flag).unwrap().is_none()));
    }
}

#[test]
fn tags_are_those_of_the_messages() {
    let out = unwrapped(record(0, WRAPPED, &items(&["a", "b", "c"])).into(), 0).unwrap();
    let queue = Arc::new(QueueKey {
        topic: "batches".into(),
        broker: "b".into(),
        queue_id: 3,
    });
    let wanted = Subscription::tags_of("t-b || t-c".to_owned(), 0);
    let chunk = Chunk::new(queue, out, 3, &wanted).unwrap();
    let offsets: Vec<_> = (0..chunk.len()).map(|at| chunk.offset(at).unwrap()).collect();
    assert_eq!(offsets, [1, 2]);
}

#[test]
fn a_batch_that_is_cut_off_is_an_error_at_every_byte() {
    let whole = items(&["a", "b"]);
    let first = items(&["a"]).len();
    for length in 0..whole.len() {
        let cut = record(0, WRAPPED, &whole[..length]);
        let found = unwrapped(cut.into(), 0);
        assert_eq!(found.is_ok(), length == 0 || length == first, "{length} bytes");
    }
}

#[test]
fn a_small_batch_that_would_fill_the_memory_is_refused() {
    let mut bytes = Vec::new();
    let topic = "t".repeat(30_000);
    let many = items(&vec!["a"; 10_000]);
    NewRecord {
        topic: &topic,
        queue_id: 0,
        flag: 0,
        queue_offset: 0,
        physical_offset: 0,
        sys_flag: WRAPPED,
        born_timestamp_ms: 0,
        born_host: "127.0.0.1:1".parse().unwrap(),
        store_timestamp_ms: 0,
        store_host: "127.0.0.1:1".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &many,
        properties: b"",
    }
    .encode(&mut bytes)
    .unwrap();
    assert!(matches!(
        unwrapped(bytes.into(), 0),
        Err(WireError::TooLarge { .. })
    ));
}
