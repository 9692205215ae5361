//! Records as column buffers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_columns::{Buffer, Column, ColumnError, Columns};
use pyrmq_remoting::message::{NewRecord, Record};

fn message<'a>(queue_offset: i64, body: &'a [u8], properties: &'a str) -> NewRecord<'a> {
    NewRecord {
        topic: "orders",
        queue_id: 3,
        flag: 7,
        queue_offset,
        physical_offset: 4096,
        sys_flag: 0,
        born_timestamp_ms: 1_700_000_000_123,
        born_host: "10.0.0.9:5555".parse().unwrap(),
        store_timestamp_ms: 1_700_000_000_456,
        store_host: "10.0.0.1:10911".parse().unwrap(),
        reconsume_times: 2,
        prepared_transaction_offset: 0,
        body,
        properties: properties.as_bytes(),
    }
}

fn push(columns: &mut Columns, message: &NewRecord<'_>) -> Result<(), ColumnError> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    columns
        .push(Some("broker-a"), &Record::decode(&bytes).unwrap())
        .map(drop)
}

fn name_servers(wanted: &[&str]) -> Columns {
    Columns::new(
        wanted
            .iter()
            .map(|name| Column::from_name(name).unwrap())
            .collect(),
    )
}

fn bytes(data: &[u8]) -> Buffer {
    Buffer::Bytes(data.to_vec())
}

#[test]
fn numbers_and_times_are_plain_values_in_microseconds() {
    let mut columns = name_servers(&[
        "queueOffset",
        "queueId",
        "storeTimestamp",
        "flag",
        "reconsumeTimes",
        "commitLogOffset",
    ]);
    push(&mut columns, &message(40, b"x", "")).unwrap();
    push(&mut columns, &message(41, b"y", "")).unwrap();
    let block = columns.finish();
    assert_eq!(block.rows, 2);
    let values: Vec<_> = block
        .columns
        .iter()
        .map(|column| column.buffers[1].clone().unwrap())
        .collect();
    assert_eq!(
        values,
        [
            Buffer::Int64(vec![40, 41]),
            Buffer::Int32(vec![3, 3]),
            Buffer::Int64(vec![1_700_000_000_456_000; 2]),
            Buffer::Int32(vec![7, 7]),
            Buffer::Int32(vec![2, 2]),
            Buffer::Int64(vec![4096, 4096]),
        ]
    );
    assert!(
        block
            .columns
            .iter()
            .all(|column| column.nulls == 0 && column.buffers[0].is_none())
    );
}

#[test]
fn text_lies_back_to_back_between_offsets() {
    let mut columns = name_servers(&["body", "topic", "brokerName", "bornHost"]);
    for body in [&b"one"[..], b"", b"three"] {
        push(&mut columns, &message(0, body, "")).unwrap();
    }
    let block = columns.finish();
    assert_eq!(block.columns[0].buffers[1], Some(Buffer::Int32(vec![0, 3, 3, 8])));
    assert_eq!(block.columns[0].buffers[2], Some(bytes(b"onethree")));
    assert_eq!(block.columns[1].buffers[2], Some(bytes(b"ordersordersorders")));
    assert_eq!(
        block.columns[2].buffers[2],
        Some(bytes(b"broker-abroker-abroker-a"))
    );
    assert_eq!(
        block.columns[3].buffers[2],
        Some(bytes(&b"10.0.0.9:5555".repeat(3)))
    );
}

#[test]
fn a_missing_key_is_null_wherever_the_first_one_stands() {
    for first_null in 0..20_usize {
        let mut columns = name_servers(&["keys"]);
        for row in 0..20 {
            let properties = if row == first_null || row == 19 {
                ""
            } else {
                "KEYS\u{1}k\u{2}"
            };
            push(&mut columns, &message(0, b"", properties)).unwrap();
        }
        let block = columns.finish();
        let Some(Buffer::Bytes(bits)) = &block.columns[0].buffers[0] else {
            panic!("no validity");
        };
        let valid: Vec<bool> = (0..20).map(|row| bits[row / 8] >> (row % 8) & 1 == 1).collect();
        let expected: Vec<bool> = (0..20).map(|row| row != first_null && row != 19).collect();
        assert_eq!(valid, expected, "first null at {first_null}");
        assert_eq!(
            block.columns[0].nulls,
            expected.iter().filter(|valid| !**valid).count()
        );
    }
}

#[test]
fn of_two_properties_with_one_name_the_later_holds() {
    let mut columns = name_servers(&["properties"]);
    push(
        &mut columns,
        &message(0, b"", "a\u{1}1\u{2}b\u{1}2\u{2}a\u{1}3\u{2}"),
    )
    .unwrap();
    push(&mut columns, &message(0, b"", "")).unwrap();
    let block = columns.finish();
    assert_eq!(
        block.columns[0].buffers,
        [
            None,
            Some(Buffer::Int32(vec![0, 2, 2])),
            Some(Buffer::Int32(vec![0, 1, 2])),
            Some(bytes(b"ba")),
            Some(Buffer::Int32(vec![0, 1, 2])),
            Some(bytes(b"23")),
        ]
    );
}

#[test]
fn of_many_properties_with_one_name_the_last_holds() {
    let pairs: Vec<String> = (0..3000)
        .map(|number| format!("{}\u{1}{number}\u{2}", number % 1000))
        .collect();
    let text = pairs.concat();
    let mut columns = name_servers(&["properties"]);
    push(&mut columns, &message(0, b"", &text)).unwrap();
    let block = columns.finish();
    let expected: Vec<u8> = (2000..3000)
        .flat_map(|number: i32| number.to_string().into_bytes())
        .collect();
    assert_eq!(block.columns[0].buffers[1], Some(Buffer::Int32(vec![0, 1000])));
    assert_eq!(block.columns[0].buffers[5], Some(bytes(&expected)));
}

#[test]
fn a_body_that_does_not_decompress_is_null_on_request() {
    let bad = NewRecord {
        sys_flag: 1,
        ..message(1, b"not zlib", "")
    };
    let mut columns = name_servers(&["queueOffset", "body"]);
    assert!(push(&mut columns, &bad).is_err());
    assert_eq!(columns.rows(), 0);
    let mut columns = columns.with_null_bodies();
    push(&mut columns, &bad).unwrap();
    push(&mut columns, &message(2, b"good", "")).unwrap();
    let block = columns.finish();
    assert_eq!(block.rows, 2);
    assert_eq!(block.columns[0].buffers[1], Some(Buffer::Int64(vec![1, 2])));
    assert_eq!(block.columns[1].nulls, 1);
    assert_eq!(block.columns[1].buffers[2], Some(bytes(b"good")));
}

#[test]
fn the_message_id_is_the_producers_or_the_offset_id() {
    let mut columns = name_servers(&["msgId"]);
    push(&mut columns, &message(0, b"", "UNIQ_KEY\u{1}7F0000010001\u{2}")).unwrap();
    push(&mut columns, &message(0, b"", "")).unwrap();
    let block = columns.finish();
    assert_eq!(
        block.columns[0].buffers[2],
        Some(bytes(b"7F00000100010A00000100002A9F0000000000001000"))
    );
}

#[test]
fn a_compressed_body_comes_out_unfolded() {
    use pyrmq_remoting::message::compress::{Codec, compress};
    let body = b"flights ".repeat(1000);
    for codec in [Codec::Zlib, Codec::Lz4, Codec::Zstd] {
        let encoded = compress(codec, 5, &body).unwrap();
        let mut columns = name_servers(&["body"]);
        let record = NewRecord {
            sys_flag: codec.flags(),
            ..message(0, &encoded, "")
        };
        push(&mut columns, &record).unwrap();
        assert_eq!(columns.finish().columns[0].buffers[2], Some(bytes(&body)));
    }
}

#[test]
fn a_block_starts_anew_after_it_was_handed_over() {
    let mut columns = name_servers(&["body", "properties", "queueOffset", "tags"]);
    push(&mut columns, &message(1, b"abc", "x\u{1}1\u{2}")).unwrap();
    assert!(columns.bytes() >= 3);
    columns.finish();
    assert_eq!((columns.rows(), columns.bytes()), (0, 0));
    push(&mut columns, &message(2, b"de", "TAGS\u{1}t\u{2}")).unwrap();
    let block = columns.finish();
    assert_eq!(block.rows, 1);
    assert_eq!(block.columns[0].buffers[2], Some(bytes(b"de")));
    assert_eq!(block.columns[1].buffers[3], Some(bytes(b"TAGS")));
    assert_eq!(block.columns[2].buffers[1], Some(Buffer::Int64(vec![2])));
    assert_eq!(block.columns[3].nulls, 0);
}
