//! Records, properties, batches, ids and compression: exact bytes in both directions, and every kind of invalid input.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

use proptest::prelude::*;
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::compress::{Codec, compress, decompress};
use pyrmq_remoting::message::id::{OffsetId, UniqueId, UniqueIds};
use pyrmq_remoting::message::record::{self, Hop, MAGIC_BLANK, Patch, hop, records};
use pyrmq_remoting::message::{
    BatchItem, NewRecord, Properties, Record, batch, java_hash, properties, sys_flag,
};
use pyrmq_remoting::names::{DELAY_LEVELS, DELAY_LEVELS_S};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

fn host(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn delay_levels_are_the_same_as_text_and_in_seconds() {
    let seconds = |level: &str| {
        let (number, unit) = level.split_at(level.len() - 1);
        let unit_s = match unit {
            "s" => 1,
            "m" => 60,
            _ => 3600,
        };
        number.parse::<u64>().unwrap() * unit_s
    };
    let levels: Vec<u64> = DELAY_LEVELS.split(' ').map(seconds).collect();
    assert_eq!(levels, DELAY_LEVELS_S);
}

fn simple<'a>(topic: &'a str, body: &'a [u8], properties: &'a str) -> NewRecord<'a> {
    NewRecord {
        topic,
        queue_id: 3,
        flag: 5,
        queue_offset: 7,
        physical_offset: 0x0102_0304_0506,
        sys_flag: 0,
        born_timestamp_ms: 0x11,
        born_host: host("1.2.3.4:258"),
        store_timestamp_ms: 0x22,
        store_host: host("5.6.7.8:10911"),
        reconsume_times: 2,
        prepared_transaction_offset: 9,
        body,
        properties: properties.as_bytes(),
    }
}

fn encoded(record: &NewRecord<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes).unwrap();
    assert_eq!(bytes.len(), record.encoded_size());
    bytes
}

#[test]
fn a_v1_record_byte_for_byte() {
    let bytes = encoded(&simple("T", b"ab", "k\u{1}v\u{2}"));
    let mut expected: Vec<u8> = Vec::new();
    for part in [
        &98u32.to_be_bytes()[..],
        &0xDAA3_20A7u32.to_be_bytes(),
        &(crc32fast::hash(b"ab") & 0x7FFF_FFFF).to_be_bytes(),
        &3u32.to_be_bytes(),
        &5u32.to_be_bytes(),
        &7u64.to_be_bytes(),
        &0x0102_0304_0506u64.to_be_bytes(),
        &0u32.to_be_bytes(),
        &0x11u64.to_be_bytes(),
        &[1, 2, 3, 4, 0, 0, 1, 2],
        &0x22u64.to_be_bytes(),
        &[5, 6, 7, 8, 0, 0, 0x2A, 0x9F],
        &2u32.to_be_bytes(),
        &9u64.to_be_bytes(),
        &2u32.to_be_bytes(),
        b"ab",
        &[1],
        b"T",
        &4u16.to_be_bytes(),
        b"k\x01v\x02",
    ] {
        expected.extend_from_slice(part);
    }
    assert_eq!(expected.len(), 98);
    assert_eq!(bytes, expected);
    assert_eq!(hop(&bytes), Hop::Record(98));
}

#[test]
fn a_long_topic_makes_v2_and_ipv6_hosts_shift() {
    let topic = "t".repeat(128);
    let mut new = simple(&topic, b"b", "");
    new.born_host = host("[2001:db8::1]:80");
    let bytes = encoded(&new);
    assert_eq!(bytes[4..8], 0xDAA3_20ABu32.to_be_bytes());
    assert_eq!(record::store_timestamp_at(record::flags_of(&bytes).unwrap()), 68);
    assert_eq!(record::store_timestamp_of(&bytes), Some(0x22));
    let record = Record::decode(&bytes).unwrap();
    assert_eq!(record.sys_flag, sys_flag::BORN_HOST_V6);
    assert_eq!(
        (record.topic, record.born_host, record.store_host),
        (topic.as_str(), new.born_host, new.store_host)
    );
    let mut wrong = new;
    wrong.sys_flag = sys_flag::STORE_HOST_V6 | sys_flag::COMPRESSED;
    assert_eq!(
        Record::decode(&encoded(&wrong)).unwrap().sys_flag,
        sys_flag::BORN_HOST_V6 | sys_flag::COMPRESSED
    );
}

#[test]
fn a_patch_changes_three_fields_only() {
    for born in ["1.2.3.4:5", "[::1]:5"] {
        let mut new = simple("T", b"body", "k\u{1}v\u{2}");
        new.born_host = host(born);
        let mut bytes = encoded(&new);
        let patch = Patch {
            queue_offset: -1,
            physical_offset: i64::MAX,
            store_timestamp_ms: 1234,
        };
        patch.apply(&mut bytes).unwrap();
        (new.queue_offset, new.physical_offset, new.store_timestamp_ms) = (-1, i64::MAX, 1234);
        assert_eq!(bytes, encoded(&new));
        Record::decode(&bytes).unwrap().check_body().unwrap();
    }
    assert!(
        Patch {
            queue_offset: 0,
            physical_offset: 0,
            store_timestamp_ms: 0
        }
        .apply(&mut [0; 50])
        .is_err()
    );
}

#[test]
fn a_write_that_does_not_fit_is_refused_completely() {
    let long = "p".repeat(32768);
    let mut out = vec![1];
    let error = simple("T", b"", &long).encode(&mut out).unwrap_err();
    assert_eq!(
        error,
        WireError::TooLarge {
            what: "properties",
            length: 32768,
            limit: 32767
        }
    );
    let error = simple(&long, b"", "").encode(&mut out).unwrap_err();
    assert!(matches!(error, WireError::TooLarge { what: "topic", .. }));
    let item = BatchItem {
        flag: 0,
        body: b"",
        properties: long.as_bytes(),
    };
    assert!(batch::encode(&item, &mut out).is_err());
    assert_eq!(out, [1]);
}

#[test]
fn hops_distinguish_records_blanks_and_ends() {
    let mut blank = 100i32.to_be_bytes().to_vec();
    blank.extend_from_slice(&MAGIC_BLANK.to_be_bytes());
    assert_eq!(hop(&blank), Hop::Blank(100));
    assert_eq!(hop(&[0; 8]), Hop::End);
    assert_eq!(hop(&blank[..7]), Hop::End);
    for size in [-1, 0, 7, 88] {
        let mut head = i32::to_be_bytes(size).to_vec();
        head.extend_from_slice(&record::MAGIC_V1.to_be_bytes());
        assert_eq!(hop(&head), Hop::End, "{size}");
    }
}

#[test]
fn damage_is_named() {
    let good = encoded(&simple("T", b"body", "k\u{1}v\u{2}"));
    let mut bad = good.clone();
    bad[4] = 0;
    assert!(matches!(Record::decode(&bad), Err(WireError::Magic { .. })));
    let mut bad = good.clone();
    bad[88] ^= 1;
    assert!(matches!(
        Record::decode(&bad).unwrap().check_body(),
        Err(WireError::Checksum { .. })
    ));
    for cut in 0..good.len() {
        assert!(Record::decode(&good[..cut]).is_err(), "cut at {cut}");
    }
    let two = [good.clone(), good.clone()].concat();
    assert_eq!(records(&two).flatten().count(), 2);
    let torn = [&good[..], &good[..50]].concat();
    let steps: Vec<bool> = records(&torn).map(|record| record.is_ok()).collect();
    assert_eq!(steps, [true, false]);
}

#[test]
fn properties_are_read_leniently() {
    let view = Properties::new("a\u{1}1\u{2}b\u{1}\u{2}\u{2}x\u{2}\u{1}v\u{2}c\u{1}3\u{1}4\u{2}a\u{1}2");
    assert_eq!(
        view.iter().collect::<Vec<_>>(),
        [("a", "1"), ("c", "3\u{1}4"), ("a", "2")]
    );
    assert_eq!(
        (view.get("a"), view.get("b"), view.get("x"), view.get("")),
        (Some("2"), None, None, None)
    );
    assert_eq!(
        view.get_many(["c", "a", "no"]),
        [Some("3\u{1}4"), Some("2"), None]
    );
    let view = Properties::from_bytes(b"a\x01\xFF\x02b\x012\x02");
    assert_eq!(view.iter().collect::<Vec<_>>(), [("b", "2")]);
    assert!(view.as_str().is_err());
}

#[test]
fn properties_are_changed_on_the_wire_form() {
    let mut text = String::from("a\u{1}1");
    properties::append(&mut text, "b", "2");
    properties::append(&mut text, "none", "");
    assert_eq!(text, "a\u{1}1\u{2}b\u{1}2\u{2}");
    properties::set(&mut text, "a", "3");
    assert_eq!(text, "b\u{1}2\u{2}a\u{1}3\u{2}");
    assert!(matches!(
        properties::remove(&text, "c"),
        std::borrow::Cow::Borrowed(_)
    ));
    assert_eq!(properties::remove_all(&text, &["a", "b"]), "");
    assert!(properties::is_reserved("UNIQ_KEY") && !properties::is_reserved("colour"));
}

#[test]
fn hashes_are_javas() {
    for (text, hash) in [
        ("", 0),
        ("a", 97),
        ("TagA", 2_598_919),
        ("polygenelubricants", i32::MIN),
        ("ä€😀", 53_619_571),
    ] {
        let expected = if text == "ä€😀" {
            text.encode_utf16().fold(0i32, |hash, unit| {
                hash.wrapping_mul(31).wrapping_add(i32::from(unit))
            })
        } else {
            hash
        };
        assert_eq!(java_hash::hash(text), expected, "{text}");
    }
    // Every length around the eight characters that are processed at once, also after another part.
    let text = "topic#7F0000011AE24E0E2F2A6AE802B40001~z\u{7f}";
    for length in 0..=text.len() {
        let (text, rest) = text.split_at(length);
        let one_by_one = |text: &str, from: i32| {
            text.bytes().fold(from, |hash, byte| {
                hash.wrapping_mul(31).wrapping_add(i32::from(byte))
            })
        };
        let hash = java_hash::JavaHash::new().then(text);
        assert_eq!(hash.value(), one_by_one(text, 0), "{text}");
        assert_eq!(hash.then(rest).value(), one_by_one(rest, hash.value()), "{rest}");
    }
    // After eight ASCII characters, and among the last ones.
    for text in ["topic#T#ä", "topic#äT", "abcdefghijk€", "ÿÿÿÿÿÿÿÿÿ"] {
        let expected = text.encode_utf16().fold(0_i32, |hash, unit| {
            hash.wrapping_mul(31).wrapping_add(i32::from(unit))
        });
        assert_eq!(java_hash::hash(text), expected, "{text}");
    }
    assert_eq!(java_hash::tags_code(None), 0);
    assert_eq!(
        java_hash::tags_code(Some("polygenelubricants")),
        i64::from(i32::MIN)
    );
}

#[test]
fn ids_have_javas_layout() {
    let id = OffsetId {
        host: host("127.0.0.1:10911"),
        offset: 0x1234,
    };
    assert_eq!(id.to_string(), "7F00000100002A9F0000000000001234");
    assert_eq!(
        "7f00000100002a9f0000000000001234".parse::<OffsetId>().unwrap(),
        id
    );
    let id = OffsetId {
        host: host("[::1]:10911"),
        offset: -1,
    };
    assert_eq!(id.to_string().len(), 56);
    assert_eq!(id.to_string().parse::<OffsetId>().unwrap(), id);
    let id: UniqueId = "7F0000011AE24E0E2F2A6AE802B40001".parse().unwrap();
    assert_eq!(
        (id.ip, id.pid, id.counter),
        (IpAddr::V4(Ipv4Addr::LOCALHOST), 0x1AE2, 1)
    );
    assert_eq!(id.month_ms, 0x6AE8_02B4);
    assert_eq!(id.to_string(), "7F0000011AE24E0E2F2A6AE802B40001");
    for bad in [
        "",
        "7F",
        "7F0000011AE24E0E2F2A6AE802B4000G",
        &"0".repeat(33),
        &"é".repeat(16),
    ] {
        assert!(bad.parse::<UniqueId>().is_err(), "{bad}");
        assert!(bad.parse::<OffsetId>().is_err(), "{bad}");
    }
}

#[test]
fn unique_ids_count_on_and_follow_the_month() {
    let ids = UniqueIds::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0x0012_3456, 77);
    let november = 1_793_491_200_000; // 2026-11-01
    let first = ids.next(november + 5);
    let second = ids.next(november + 6);
    assert_eq!((first.pid, first.month_ms, first.counter), (0x3456, 5, 0));
    assert_eq!((second.month_ms, second.counter), (6, 1));
    assert_eq!(ids.next(november + 30 * 86_400_000 + 1).month_ms, 1);
    assert_eq!(
        ids.next(november).month_ms,
        0,
        "a clock that jumps back gives no negative time"
    );
    let mut seen = std::collections::HashSet::new();
    let mut text = String::new();
    for _ in 0..65_000 {
        text.clear();
        ids.write_next(november, &mut text);
        assert!(seen.insert(text.clone()));
    }
    let v6 = UniqueIds::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 1, 1).next(november);
    assert_eq!(v6.to_string().parse::<UniqueId>().unwrap(), v6);
}

#[test]
fn compression_comes_back_and_is_bounded() {
    let body: Vec<u8> = (0..100_000u32)
        .flat_map(|number| (number % 97).to_le_bytes())
        .collect();
    for codec in [Codec::Zlib, Codec::Lz4, Codec::Zstd] {
        let small = compress(codec, 5, &body).unwrap();
        assert!(small.len() < body.len());
        assert_eq!(decompress(codec, &small, body.len()).unwrap(), body);
        assert!(matches!(
            decompress(codec, &small, body.len() - 1),
            Err(WireError::Compression { .. })
        ));
        assert!(decompress(codec, &small[..small.len() / 2], body.len()).is_err());
        assert!(decompress(codec, b"this is not compressed", 100).is_err());
        assert_eq!(Codec::of(codec.flags()).unwrap(), Some(codec));
    }
    assert_eq!(Codec::of(0).unwrap(), None);
    assert_eq!(
        Codec::of(sys_flag::COMPRESSED).unwrap(),
        Some(Codec::Zlib),
        "old clients leave the type out"
    );
    assert!(Codec::of(sys_flag::COMPRESSED | 0x400).is_err());
}

fn any_host() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

proptest! {
    #[test]
    fn any_record_comes_back(
        topic in "[%|a-zA-Z0-9_-]{1,200}",
        numbers in any::<[i32; 4]>(),
        longs in any::<[i64; 5]>(),
        born_host in any_host(),
        store_host in any_host(),
        body in proptest::collection::vec(any::<u8>(), 0..300),
        properties in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let [queue_id, flag, flags, reconsume_times] = numbers;
        let [queue_offset, physical_offset, born_timestamp_ms, store_timestamp_ms, prepared_transaction_offset] = longs;
        let new = NewRecord {
            topic: &topic, queue_id, flag, queue_offset, physical_offset, sys_flag: flags, born_timestamp_ms, born_host,
            store_timestamp_ms, store_host, reconsume_times, prepared_transaction_offset, body: &body, properties: &properties,
        };
        let bytes = encoded(&new);
        let record = Record::decode(&bytes).unwrap();
        record.check_body().unwrap();
        prop_assert_eq!(record.size, bytes.len());
        prop_assert_eq!((record.born_host, record.store_host), (born_host, store_host));
        prop_assert_eq!((record.topic, record.body, record.properties.as_bytes()), (topic.as_str(), &body[..], &properties[..]));
        prop_assert_eq!(encoded(&record.to_new()), bytes);
    }

    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in any::<prop::sample::Index>(), with in any::<u8>()) {
        drop(Record::decode(&bytes));
        let _ = hop(&bytes);
        let _ = record::store_timestamp_of(&bytes);
        let _ = Properties::from_bytes(&bytes).iter().count();
        let _ = batch::items(&bytes).count();
        for codec in [Codec::Zlib, Codec::Lz4, Codec::Zstd] {
            drop(decompress(codec, &bytes, 1000));
        }
        let mut near = encoded(&simple("topic", &bytes, "k\u{1}v\u{2}"));
        let place = at.index(near.len());
        near[place] = with;
        drop(Record::decode(&near));
    }

    #[test]
    fn batches_come_back(items in proptest::collection::vec(
        (any::<i32>(), proptest::collection::vec(any::<u8>(), 0..60), "[a-z]{0,9}"), 1..9)
    ) {
        let mut bytes = Vec::new();
        for (flag, body, properties) in &items {
            let item = BatchItem { flag: *flag, body, properties: properties.as_bytes() };
            let before = bytes.len();
            batch::encode(&item, &mut bytes).unwrap();
            prop_assert_eq!(bytes.len() - before, item.encoded_size());
            let (front, back) = item.properties.split_at(item.properties.len() / 2);
            let mut in_parts = Vec::new();
            batch::encode_parts(*flag, body, [front, &[], back], &mut in_parts).unwrap();
            prop_assert_eq!(&bytes[before..], &in_parts[..]);
        }
        let back: Vec<_> = batch::items(&bytes)
            .map(|item| item.unwrap())
            .map(|item| (item.flag, item.body.to_vec(), String::from_utf8(item.properties.to_vec()).unwrap()))
            .collect();
        prop_assert_eq!(&back, &items);
        for cut in 1..bytes.len() {
            let parts: Vec<_> = batch::items(&bytes[..cut]).collect();
            prop_assert!(parts.len() <= items.len());
            let good = parts.iter().filter(|part| part.is_ok()).count();
            prop_assert!(good == parts.len() || good + 1 == parts.len());
        }
    }

    #[test]
    fn wire_properties_agree_with_a_map(pairs in proptest::collection::vec(("[a-d]{1,2}", "[x-z]{0,3}"), 0..12), gone in "[a-d]{1,2}") {
        let mut text = String::new();
        let mut map = std::collections::BTreeMap::new();
        for (name, value) in &pairs {
            properties::append(&mut text, name, value);
            if !value.is_empty() {
                map.insert(name.as_str(), value.as_str());
            }
        }
        for name in map.keys() {
            prop_assert_eq!(Properties::new(&text).get(name), map.get(name).copied());
        }
        map.remove(gone.as_str());
        let left = properties::remove(&text, &gone);
        let back: std::collections::BTreeMap<_, _> = Properties::new(&left).iter().collect();
        prop_assert_eq!(back, map);
    }
}
