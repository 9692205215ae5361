//! Chunks: the records of one pull answer, located without decoding them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use pyrmq_client::Subscription;
use pyrmq_client::consumer::process_queue::{Chunk, QueueKey};
use pyrmq_remoting::message::NewRecord;
use pyrmq_testkit::new_record;
use std::sync::Arc;

fn key() -> Arc<QueueKey> {
    Arc::new(QueueKey {
        topic: "orders".into(),
        broker: "b".into(),
        queue_id: 3,
    })
}

fn subscription(expression: &str) -> Subscription {
    Subscription::tags_of(expression, 0)
}

fn records(tags: &[&str]) -> Bytes {
    let mut bytes = Vec::new();
    for (offset, tag) in (10..).zip(tags) {
        NewRecord {
            physical_offset: 0,
            body: tag.as_bytes(),
            properties: format!("TAGS\u{1}{tag}\u{2}").as_bytes(),
            ..new_record("orders", 3, offset)
        }
        .encode(&mut bytes)
        .unwrap();
    }
    Bytes::from(bytes)
}

#[test]
fn records_are_found_with_their_offsets() {
    let chunk = Chunk::new(key(), records(&["a", "b", "c"]), 13, &subscription("*")).unwrap();
    let offsets: Vec<_> = (0..chunk.len()).map(|at| chunk.offset(at).unwrap()).collect();
    assert_eq!(offsets, [10, 11, 12]);
    assert_eq!(chunk.record(1).unwrap().unwrap().body, b"b");
    assert!(chunk.record(3).is_none());
    assert_eq!(chunk.next_offset, 13);
}

#[test]
fn other_tags_with_the_same_hash_are_skipped() {
    // Java gives "Aa" and "BB" the same hash, so the broker lets both pass.
    let chunk = Chunk::new(
        key(),
        records(&["Aa", "BB", "new"]),
        13,
        &subscription("BB || new"),
    )
    .unwrap();
    let offsets: Vec<_> = (0..chunk.len()).map(|at| chunk.offset(at).unwrap()).collect();
    assert_eq!(offsets, [11, 12]);
}

#[test]
fn an_answer_that_is_cut_off_is_an_error_at_every_byte() {
    let whole = records(&["a", "b"]);
    let first = records(&["a"]).len();
    for length in 0..whole.len() {
        let chunk = Chunk::new(key(), whole.slice(..length), 12, &subscription("*"));
        assert_eq!(chunk.is_ok(), length == 0 || length == first, "{length} bytes");
    }
}

#[test]
fn an_empty_answer_moves_on() {
    let chunk = Chunk::new(key(), Bytes::new(), 99, &subscription("*")).unwrap();
    assert!(chunk.is_empty());
    assert_eq!(chunk.next_offset, 99);
}
