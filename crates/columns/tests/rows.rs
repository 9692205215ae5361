//! Records of a log as rows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_columns::{BadBody, Buffer, Column, LogRows, RowFilter, Tags};
use pyrmq_remoting::message::{BatchItem, NewRecord, Record, batch, sys_flag};

struct Sent<'a> {
    topic: &'a str,
    queue_id: i32,
    offset: i64,
    sys_flag: i32,
    body: &'a [u8],
    properties: &'a str,
}

const SENT: Sent<'_> = Sent {
    topic: "orders",
    queue_id: 1,
    offset: 7,
    sys_flag: 0,
    body: b"tea",
    properties: "TAGS\u{1}hot\u{2}",
};

fn orders() -> RowFilter {
    RowFilter {
        topics: ["orders".to_owned()].into(),
        ..RowFilter::default()
    }
}

/// The offsets that a filter lets through, and what could not be read.
fn offsets(filter: RowFilter, on_bad: BadBody, sent: &[Sent<'_>]) -> (Vec<i64>, usize, bool) {
    let columns = vec![Column::QueueOffset, Column::Body, Column::BrokerName];
    let mut rows = LogRows::new(columns, filter, None, on_bad);
    let mut failed = false;
    for one in sent {
        let mut bytes = Vec::new();
        NewRecord {
            topic: one.topic,
            queue_id: one.queue_id,
            flag: 0,
            queue_offset: one.offset,
            physical_offset: 4096,
            sys_flag: one.sys_flag,
            born_timestamp_ms: 1,
            born_host: "10.0.0.9:5555".parse().unwrap(),
            store_timestamp_ms: 1000,
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: one.body,
            properties: one.properties.as_bytes(),
        }
        .encode(&mut bytes)
        .unwrap();
        failed |= rows.push(&Record::decode(&bytes).unwrap(), &bytes).is_err();
    }
    let bad = rows.take_bad().len();
    let block = rows.finish();
    assert_eq!(block.columns[2].nulls, block.rows, "the broker is not known");
    match block.columns[0].buffers[1].clone() {
        Some(Buffer::Int64(values)) => (values, bad, failed),
        other => panic!("{other:?}"),
    }
}

fn taken(filter: RowFilter, sent: &[Sent<'_>]) -> Vec<i64> {
    let (offsets, bad, failed) = offsets(filter, BadBody::Fail, sent);
    assert_eq!((bad, failed), (0, false));
    offsets
}

#[test]
fn other_topics_and_hidden_records_are_left_out() {
    let sent = [
        SENT,
        Sent {
            topic: "other",
            ..SENT
        },
        Sent {
            offset: 8,
            sys_flag: sys_flag::TRANSACTION_PREPARED,
            ..SENT
        },
        Sent {
            offset: 9,
            sys_flag: sys_flag::TRANSACTION_ROLLBACK,
            ..SENT
        },
        Sent {
            offset: 10,
            sys_flag: sys_flag::TRANSACTION_COMMIT,
            ..SENT
        },
    ];
    assert_eq!(taken(orders(), &sent), [7, 10]);
}

#[test]
fn tags_times_queues_and_deletions_filter() {
    let sent = [
        SENT,
        Sent {
            queue_id: 2,
            offset: 3,
            properties: "",
            ..SENT
        },
    ];
    assert_eq!(taken(orders(), &sent), [7, 3]);
    let tags = Tags::parse("cold || hot");
    assert_eq!(taken(RowFilter { tags, ..orders() }, &sent), [7]);
    for (stored_ms, expected) in [(1000..1001, 2), (0..1000, 0), (1001..2000, 0)] {
        let filter = RowFilter {
            stored_ms: Some(stored_ms),
            ..orders()
        };
        assert_eq!(taken(filter, &sent).len(), expected);
    }
    let queues = Some([("orders".to_owned(), [(2, 0..4)].into())].into());
    assert_eq!(taken(RowFilter { queues, ..orders() }, &sent), [3]);
    for (end, expected) in [(4096, 2), (4097, 0)] {
        let deleted = [("orders".to_owned(), end)].into();
        assert_eq!(taken(RowFilter { deleted, ..orders() }, &sent).len(), expected);
    }
}

#[test]
fn a_batch_gives_its_messages_each_with_its_offset_and_tags() {
    let mut body = Vec::new();
    for tag in ["hot", "cold", "hot"] {
        let properties = format!("TAGS\u{1}{tag}\u{2}");
        let item = BatchItem {
            flag: 0,
            body: b"x",
            properties: properties.as_bytes(),
        };
        batch::encode(&item, &mut body).unwrap();
    }
    let wrapped = sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP;
    let sent = [Sent {
        offset: 20,
        sys_flag: wrapped,
        body: &body,
        ..SENT
    }];
    assert_eq!(taken(orders(), &sent), [20, 21, 22]);
    let tags = Tags::parse("hot");
    assert_eq!(taken(RowFilter { tags, ..orders() }, &sent), [20, 22]);
    let queues = Some([("orders".to_owned(), [(1, 21..22)].into())].into());
    assert_eq!(taken(RowFilter { queues, ..orders() }, &sent), [21]);
    let cut = [
        Sent {
            offset: 20,
            sys_flag: wrapped,
            body: &body[..body.len() - 1],
            ..SENT
        },
        SENT,
    ];
    let (_, _, failed) = offsets(orders(), BadBody::Fail, &cut);
    assert!(failed);
}

#[test]
fn a_body_that_cannot_be_decompressed_fails_is_null_or_is_left_out() {
    let sent = [
        Sent {
            sys_flag: sys_flag::COMPRESSED,
            ..SENT
        },
        Sent { offset: 8, ..SENT },
    ];
    assert_eq!(offsets(orders(), BadBody::Fail, &sent), (vec![8], 0, true));
    assert_eq!(offsets(orders(), BadBody::Null, &sent), (vec![7, 8], 1, false));
    assert_eq!(offsets(orders(), BadBody::Skip, &sent), (vec![8], 1, false));
}
