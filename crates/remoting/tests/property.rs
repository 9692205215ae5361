//! Whatever is written can be read back, for any text and any numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use bytes::{Bytes, BytesMut};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use pyrmq_remoting::body::{
    Body, BrokerData, DataVersion, Json, Key, MessageQueue, QueueData, RegisterBrokerBody, Style,
    TopicConfig, TopicRouteData, TopicStatsTable,
};
use pyrmq_remoting::frame::{self, Limits};
use pyrmq_remoting::header::{
    EncodeHeader, Head, HeadWriter, PullMessageRequestHeader, SendMessageRequestHeader,
};
use pyrmq_remoting::{Command, Fields, Language, SerializeType};

/// Generates text with many characters to escape, at every distance from a multiple of eight.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-zA-Z0-9_%|-]{0,24}",
        2 => "[\u{0}-\u{20}\"\\\\'/a-z\u{7f}-\u{a0}\u{2028}]{0,40}",
        1 => any::<String>(),
    ]
}

fn language() -> impl Strategy<Value = Language> {
    (0..14_u8).prop_map(Language::from_number)
}

prop_compose! {
    fn command(serialize_type: SerializeType)(
        code in any::<i16>(),
        language in language(),
        version in any::<i16>(),
        opaque in any::<i32>(),
        flag in any::<i32>(),
        remark in proptest::option::of(text()),
        pairs in vec((text(), text()), 0..20),
        body in vec(any::<u8>(), 0..64),
    ) -> Command {
        let mut fields = Fields::new();
        let binary = serialize_type == SerializeType::RocketMq;
        for (key, value) in &pairs {
            // The binary form cannot represent these.
            if !(binary && key.is_empty()) {
                fields.push(key, value);
            }
        }
        Command {
            code: code.into(),
            language,
            version: version.into(),
            opaque,
            flag,
            remark: remark.filter(|remark| !(binary && remark.is_empty())),
            fields,
            serialize_type,
            body: (!body.is_empty()).then(|| Bytes::from(body)),
        }
    }
}

fn survives(command: &Command) {
    let bytes = frame::encode(command).unwrap();
    let mut input = BytesMut::from(&bytes[..]);
    let read = frame::decode(&mut input, &Limits::default()).unwrap().unwrap();
    assert!(input.is_empty());
    assert_eq!(&read, command);
    let pairs = |command: &Command| {
        let fields = command.fields.iter();
        fields
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(pairs(&read), pairs(command));
    assert_eq!(frame::encode(&read).unwrap(), bytes);
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(Json::Int),
        (-1e300..1e300_f64).prop_map(Json::Float),
        text().prop_map(Json::Str),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        let object = vec((text().prop_map(Key::Str), inner.clone()), 0..6);
        let key = prop_oneof![
            4 => text().prop_map(Key::Str),
            2 => any::<i64>().prop_map(Key::Int),
            1 => object.prop_map(Key::Object),
        ];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Json::Array),
            vec((key, inner), 0..6).prop_map(Json::Object),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_%-]{1,20}"
}

prop_compose! {
    fn topic()(
        topic_name in name(),
        queues in any::<(i32, i32)>(),
        perm in any::<i32>(),
        // Attributes follow the last space of a compressed line, so their own text may hold anything.
        attributes in btree_map(text(), text(), 0..3),
    ) -> TopicConfig {
        TopicConfig {
            read_queue_nums: queues.0,
            write_queue_nums: queues.1,
            attributes,
            ..TopicConfig::new(topic_name, 0, perm)
        }
    }
}

fn send_header(
    texts: &[String],
    numbers: [i32; 6],
    born_timestamp: i64,
    [unit_mode, batch]: [bool; 2],
) -> SendMessageRequestHeader<'_> {
    SendMessageRequestHeader {
        producer_group: &texts[0],
        topic: &texts[1],
        default_topic: &texts[2],
        default_topic_queue_nums: numbers[0],
        queue_id: numbers[1],
        sys_flag: numbers[2],
        born_timestamp,
        flag: numbers[3],
        properties: Some(&texts[3]),
        reconsume_times: Some(numbers[4]),
        unit_mode,
        max_reconsume_times: Some(numbers[5]),
        batch,
        broker_name: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_json_frame_survives(command in command(SerializeType::Json)) {
        survives(&command);
    }

    #[test]
    fn a_binary_frame_survives(command in command(SerializeType::RocketMq)) {
        survives(&command);
    }

    #[test]
    fn a_send_header_survives(texts in vec(text(), 4), numbers in any::<[i32; 6]>(), born in any::<i64>(), batch in any::<bool>()) {
        let header = send_header(&texts, numbers, born, [!batch, batch]);
        let (mut v1, mut v2) = (Fields::new(), Fields::new());
        header.encode_v1(&mut v1);
        header.encode(&mut v2);
        prop_assert_eq!(SendMessageRequestHeader::decode_v1(&v1).unwrap(), header);
        prop_assert_eq!(SendMessageRequestHeader::decode_v2(&v2).unwrap(), header);
    }

    #[test]
    fn a_head_that_is_written_at_once_is_the_commands(
        texts in vec(text(), 6),
        numbers in any::<[i32; 6]>(),
        born in any::<i64>(),
        truths in any::<[bool; 5]>(),
        body in 0..70_000_usize,
    ) {
        let [unit_mode, batch, with_options, with_properties, with_more] = truths;
        let header = SendMessageRequestHeader {
            properties: with_properties.then_some(&*texts[3]),
            reconsume_times: with_options.then_some(numbers[4]),
            max_reconsume_times: with_options.then_some(numbers[4]),
            broker_name: with_options.then_some(&*texts[4]),
            ..send_header(&texts, numbers, born, [unit_mode, batch])
        };
        for serialize_type in [SerializeType::Json, SerializeType::RocketMq] {
            for code in [310, 40_000] {
                let mut command = Command::request(code).with_header(&header);
                command.serialize_type = serialize_type;
                (command.flag, command.opaque) = (numbers[4], numbers[5]);
                let mut once = b"before".to_vec();
                let remark = with_more.then_some(&*texts[4]);
                command.remark = remark.map(str::to_owned);
                let start = Head { serialize_type, code, flag: numbers[4], opaque: numbers[5], remark };
                let mut head = HeadWriter::new(&mut once, start);
                header.write_to(&mut head);
                if with_more {
                    command.fields.push("more", &texts[5]);
                    head.text("more", &texts[5]);
                }
                let written = head.finish(body);
                let mut parts = Vec::new();
                let mut head = HeadWriter::new(&mut parts, start);
                header.write_shared(&mut head);
                let shared = head.into_fields();
                prop_assert!(parts.is_empty());
                if let Ok(shared) = shared {
                    let mut head = HeadWriter::new(&mut parts, start);
                    head.fields(&shared);
                    header.write_own(&mut head);
                    if with_more {
                        head.text("more", &texts[5]);
                    }
                    prop_assert_eq!(head.finish(body).is_ok(), written.is_ok());
                    prop_assert_eq!(&parts[..], &once[6..]);
                } else {
                    prop_assert!(written.is_err());
                }
                command.body = Some(Bytes::from(vec![0; body]));
                let mut expected = b"before".to_vec();
                prop_assert_eq!(written.is_ok(), frame::encode_head(&command, &mut expected).is_ok());
                prop_assert_eq!(once, expected);
            }
        }
    }

    #[test]
    fn a_pull_header_survives(group in text(), topic in text(), numbers in any::<[i64; 4]>(), queue_id in any::<i32>()) {
        let header = PullMessageRequestHeader {
            consumer_group: &group,
            topic: &topic,
            queue_id,
            queue_offset: numbers[0],
            commit_offset: numbers[1],
            suspend_timeout_millis: numbers[2],
            sub_version: numbers[3],
            subscription: Some("*"),
            ..PullMessageRequestHeader::default()
        };
        let mut fields = Fields::new();
        header.encode(&mut fields);
        prop_assert_eq!(PullMessageRequestHeader::decode(&fields).unwrap(), header);
    }

    #[test]
    fn a_tree_survives_in_every_style(json in json()) {
        for style in [Style::PLAIN, Style::PRETTY] {
            prop_assert_eq!(&Json::parse(&json.to_bytes(style)).unwrap(), &json);
        }
        // Quoted numbers come back as text, so compare what is written.
        for style in [Style::STANDARD, Style::BROWSER] {
            let once = json.to_bytes(style);
            prop_assert!(style != Style::BROWSER || once.is_ascii());
            prop_assert_eq!(Json::parse(&once).unwrap().to_bytes(style), once);
        }
    }

    #[test]
    fn a_registration_survives_plain_and_compressed(topics in vec(topic(), 0..20), counter in any::<i64>(), servers in vec(text(), 0..3)) {
        let mut body = RegisterBrokerBody { filter_server_list: servers, ..RegisterBrokerBody::default() };
        let wrapper = &mut body.topic_config_serialize_wrapper;
        wrapper.data_version = DataVersion { counter, state_version: 1, timestamp: 2 };
        wrapper.topic_config_table = topics.into_iter().map(|topic| (topic.topic_name.clone(), topic)).collect();
        prop_assert_eq!(&RegisterBrokerBody::decode_form(&body.encode(), false, 513).unwrap(), &body);
        let compressed = body.encode_compressed().unwrap();
        for version in [0, 407, 413, 513] {
            prop_assert_eq!(&RegisterBrokerBody::decode_form(&compressed, true, version).unwrap(), &body);
        }
    }

    #[test]
    fn a_route_survives_both_encodings(addresses in btree_map(any::<i64>(), text(), 0..4), broker_name in text(), perm in any::<i32>(), zone_name in proptest::option::of(text())) {
        let route = TopicRouteData {
            broker_datas: vec![BrokerData { broker_addrs: addresses, broker_name: broker_name.clone(), zone_name, ..BrokerData::default() }],
            queue_datas: vec![QueueData { broker_name, perm, ..QueueData::default() }],
            ..TopicRouteData::default()
        };
        for style in [Style::PLAIN, Style::STANDARD, Style::BROWSER, Style::PRETTY] {
            prop_assert_eq!(&TopicRouteData::decode(&route.encode_as(style)).unwrap(), &route);
        }
    }

    #[test]
    fn queues_survive_as_member_names(queues in btree_map((text(), text(), any::<i32>()), any::<i64>(), 0..6)) {
        let mut table = TopicStatsTable::default();
        for ((topic, broker, id), offset) in queues {
            table.offset_table.entry(MessageQueue::new(topic, broker, id)).or_default().max_offset = offset;
        }
        prop_assert_eq!(TopicStatsTable::decode(&table.encode()).unwrap(), table);
    }
}
