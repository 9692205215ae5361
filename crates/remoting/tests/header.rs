//! Header structures: reading, writing and errors.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::{
    EncodeHeader, GetConsumerListByGroupRequestHeader, GetMaxOffsetRequestHeader, PullMessageRequestHeader,
    PullMessageResponseHeader, RegisterBrokerRequestHeader, SendMessageRequestHeader,
    SendMessageResponseHeader,
};
use pyrmq_remoting::{Command, Fields, WireError};

const SEND: SendMessageRequestHeader<'_> = SendMessageRequestHeader {
    producer_group: "P",
    topic: "T",
    default_topic: "TBW102",
    default_topic_queue_nums: 4,
    queue_id: -1,
    sys_flag: 0,
    born_timestamp: 1_700_000_000_000,
    flag: 3,
    properties: Some("KEYS\u{1}k\u{2}"),
    reconsume_times: Some(0),
    unit_mode: false,
    max_reconsume_times: None,
    batch: true,
    broker_name: None,
};

#[test]
fn a_send_header_reads_back_from_both_forms() {
    let (mut v1, mut v2) = (Fields::new(), Fields::new());
    SEND.encode_v1(&mut v1);
    SEND.encode_v2(&mut v2);
    assert_eq!(v1.get("bornTimestamp"), Some("1700000000000"));
    assert_eq!(v2.get("g"), Some("1700000000000"));
    assert_eq!(v2.get("m"), Some("true"));
    assert_eq!(v2.get("l"), None);
    assert_eq!(
        SendMessageRequestHeader::decode(request::SEND_MESSAGE, &v1).unwrap(),
        SEND
    );
    assert_eq!(
        SendMessageRequestHeader::decode(request::SEND_MESSAGE_V2, &v2).unwrap(),
        SEND
    );
    assert_eq!(
        SendMessageRequestHeader::decode(request::SEND_BATCH_MESSAGE, &v2).unwrap(),
        SEND
    );
}

#[test]
fn every_missing_required_letter_is_named() {
    let mut whole = Fields::new();
    SEND.encode_v2(&mut whole);
    // The fields without which the real broker stores nothing.
    for letter in ["b", "e", "f", "g", "h"] {
        let mut fields = whole.clone();
        fields.remove(letter);
        assert_eq!(
            SendMessageRequestHeader::decode_v2(&fields),
            Err(WireError::MissingField(letter))
        );
    }
    for letter in ["a", "c", "d", "i", "j", "k", "l", "m", "n"] {
        let mut fields = whole.clone();
        fields.remove(letter);
        SendMessageRequestHeader::decode_v2(&fields).unwrap();
    }
}

#[test]
fn unknown_keys_are_ignored_and_the_last_of_equal_keys_holds() {
    let fields = Fields::from_iter([
        ("topic", "old"),
        ("queueId", "1"),
        ("extra", "x"),
        ("topic", "new"),
        ("ns", "n"),
    ]);
    let header = GetMaxOffsetRequestHeader::decode(&fields).unwrap();
    assert_eq!(
        (header.topic, header.queue_id, header.committed),
        ("new", 1, None)
    );
}

#[test]
fn a_number_that_is_none_names_field_and_value() {
    for value in ["x", "", "99999999999", "1.5", " 1"] {
        let fields = Fields::from_iter([("topic", "T"), ("queueId", value)]);
        assert_eq!(
            GetMaxOffsetRequestHeader::decode(&fields),
            Err(WireError::BadField {
                field: "queueId",
                expected: "a 32 bit number",
                value: value.into()
            })
        );
    }
}

#[test]
fn booleans_read_as_java_reads_them() {
    for (text, expected) in [("true", true), ("TRUE", true), ("yes", false), ("", false)] {
        let fields = Fields::from_iter([
            ("brokerName", "b"),
            ("brokerAddr", "a"),
            ("clusterName", "c"),
            ("haServerAddr", "h"),
            ("brokerId", "0"),
            ("compressed", text),
            ("enableActingMaster", text),
        ]);
        let header = RegisterBrokerRequestHeader::decode(&fields).unwrap();
        assert_eq!(header.compressed, expected);
        assert_eq!(header.enable_acting_master, Some(expected));
    }
}

#[test]
fn extreme_numbers_survive() {
    for value in [i64::MIN, -1, 0, 1, i64::MAX] {
        let header = PullMessageResponseHeader {
            suggest_which_broker_id: value,
            next_begin_offset: value,
            min_offset: 0,
            max_offset: 7,
            offset_delta: Some(value),
            topic_sys_flag: Some(i32::MIN),
            group_sys_flag: None,
            forbidden_type: Some(i32::MAX),
        };
        let mut fields = Fields::new();
        header.encode(&mut fields);
        assert_eq!(fields.get("minOffset"), Some("0"));
        assert_eq!(fields.get("nextBeginOffset"), Some(&*value.to_string()));
        assert_eq!(PullMessageResponseHeader::decode(&fields).unwrap(), header);
    }
}

#[test]
fn a_pull_header_is_written_in_apaches_names() {
    let header = PullMessageRequestHeader {
        consumer_group: "G",
        topic: "T",
        queue_offset: 5,
        max_msg_nums: 32,
        proxy_froward_client_id: Some("c"),
        ..PullMessageRequestHeader::default()
    };
    let mut fields = Fields::new();
    header.encode(&mut fields);
    let keys: Vec<_> = fields.iter().map(|(key, _)| key).collect();
    assert_eq!(
        keys,
        [
            "consumerGroup",
            "topic",
            "queueId",
            "queueOffset",
            "maxMsgNums",
            "sysFlag",
            "commitOffset",
            "suspendTimeoutMillis",
            "subVersion",
            "proxyFrowardClientId"
        ]
    );
    assert_eq!(PullMessageRequestHeader::decode(&fields).unwrap(), header);
}

#[test]
fn a_header_without_values_leaves_an_empty_object() {
    let command =
        Command::request(38).with_header(&GetConsumerListByGroupRequestHeader { consumer_group: "G" });
    assert_eq!(command.fields.get("consumerGroup"), Some("G"));
    assert!(Command::request(34).fields.is_empty());
    assert!(!Command::request(34).fields.is_present());
    let mut fields = Fields::new();
    pyrmq_remoting::header::RegisterBrokerResponseHeader::default().encode(&mut fields);
    assert!(fields.is_empty() && fields.is_present());
}

#[test]
fn a_send_response_without_optional_fields_is_read() {
    let fields = Fields::from_iter([
        ("msgId", "0A"),
        ("queueId", "3"),
        ("queueOffset", "12"),
        ("TRACE_ON", "true"),
    ]);
    let header = SendMessageResponseHeader::decode(&fields).unwrap();
    assert_eq!(
        (header.msg_id, header.queue_id, header.queue_offset),
        ("0A", 3, 12)
    );
}

#[test]
fn codes_are_ascending_and_named() {
    for table in [request::REQUEST_CODES, response::RESPONSE_CODES] {
        assert!(table.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }
    assert_eq!(request::name(310), Some("SEND_MESSAGE_V2"));
    assert_eq!(request::name(200_151), Some("BATCH_ACK_MESSAGE"));
    assert_eq!(request::name(9999), None);
    assert_eq!(response::name(0), Some("SUCCESS"));
    assert_eq!(response::name(17), Some("TOPIC_NOT_EXIST"));
}
