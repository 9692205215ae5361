//! Bodies in exactly the text that Apache writes, and in texts that deviate from it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use pyrmq_remoting::WireError;
use pyrmq_remoting::body::{
    Body, BrokerData, ClusterInfo, ConsumeFromWhere, ConsumeStats, ConsumeType, ConsumerConnection,
    ConsumerOffsetSerializeWrapper, DataVersion, HeartbeatData, Json, Key, MessageModel, MessageQueue,
    QueueData, RegisterBrokerBody, ResetOffsetBody, Style, SubscriptionGroupWrapper, TopicConfig,
    TopicConfigSerializeWrapper, TopicFilterType, TopicRouteData, route_style,
};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn route() -> TopicRouteData {
    TopicRouteData {
        broker_datas: vec![BrokerData {
            broker_addrs: [(0, "10.0.0.1:10911".into()), (1, "10.0.0.2:10911".into())].into(),
            broker_name: "br\u{f6}ker".into(),
            cluster: "C".into(),
            enable_acting_master: false,
            zone_name: None,
        }],
        queue_datas: vec![QueueData {
            broker_name: "br\u{f6}ker".into(),
            perm: 6,
            read_queue_nums: 8,
            topic_sys_flag: 0,
            write_queue_nums: 8,
        }],
        ..TopicRouteData::default()
    }
}

#[test]
fn a_route_has_bare_quoted_and_escaped_forms() {
    let rest = r#""filterServerTable":{},"queueDatas":[{"brokerName":"brNAMEker","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#;
    let form = |addresses: &str, name: &str| {
        format!(r#"{{"brokerDatas":[{{"brokerAddrs":{{{addresses}}},"brokerName":"brNAMEker","cluster":"C","enableActingMaster":false}}],{rest}"#)
            .replace("NAME", name)
    };
    let bare = r#"0:"10.0.0.1:10911",1:"10.0.0.2:10911""#;
    let quoted = r#""0":"10.0.0.1:10911","1":"10.0.0.2:10911""#;
    assert_eq!(text(&route().encode_as(Style::PLAIN)), form(bare, "\u{f6}"));
    assert_eq!(text(&route().encode_as(Style::STANDARD)), form(quoted, "\u{f6}"));
    assert_eq!(text(&route().encode_as(Style::BROWSER)), form(quoted, "\\u00F6"));
}

#[test]
fn the_peer_decides_the_form_of_its_route() {
    assert_eq!(route_style(399, None), Style::PLAIN);
    assert_eq!(route_style(399, Some(false)), Style::PLAIN);
    assert_eq!(route_style(0, Some(true)), Style::STANDARD);
    assert_eq!(route_style(401, None), Style::STANDARD);
}

#[test]
fn routes_of_old_versions_are_read() {
    let old = br#"{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"C"}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":7,"readQueueNums":8,"topicSynFlag":2,"writeQueueNums":4}]}"#;
    let route = TopicRouteData::decode(old).unwrap();
    assert_eq!(route.queue_datas[0].topic_sys_flag, 2);
    assert_eq!(route.broker_datas[0].broker_addrs[&0], "a:1");
}

#[test]
fn member_names_that_are_objects_are_read_and_written() {
    let body = br#"{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}"#;
    let reset = ResetOffsetBody::decode(body).unwrap();
    assert_eq!(reset.offset_table[&MessageQueue::new("T", "b", 1)], 7);
    assert_eq!(text(&reset.encode()), text(body));
    let quoted = br#"{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}":7}}"#;
    assert_eq!(ResetOffsetBody::decode(quoted).unwrap(), reset);
}

#[test]
fn statistics_keep_javas_form_of_numbers() {
    for (number, form) in [
        (0.0, "0.0"),
        (1e10, "1.0E10"),
        (1e-5, "1.0E-5"),
        (12_345_678.9, "1.23456789E7"),
        (0.5, "0.5"),
        (-250.0, "-250.0"),
    ] {
        let stats = ConsumeStats {
            consume_tps: number,
            ..ConsumeStats::default()
        };
        let bytes = stats.encode();
        assert_eq!(
            text(&bytes),
            format!(r#"{{"consumeTps":{form},"offsetTable":{{}}}}"#)
        );
        assert_eq!(ConsumeStats::decode(&bytes).unwrap(), stats);
    }
}

#[test]
fn references_of_fastjson_are_followed() {
    let body = br#"{"clientID":"c","consumerDataSet":[
        {"groupName":"a","subscriptionDataSet":[{"subString":"x","topic":"T"}]},
        {"groupName":"b","subscriptionDataSet":[{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]}]}"#;
    let heartbeat = HeartbeatData::decode(body).unwrap();
    assert_eq!(
        heartbeat.consumer_data_set[1].subscription_data_set,
        heartbeat.consumer_data_set[0].subscription_data_set
    );
    let astray = br#"{"consumerDataSet":[{"$ref":"$.nowhere"},{"$ref":"@"},{"$ref":".."}]}"#;
    assert_eq!(HeartbeatData::decode(astray).unwrap().consumer_data_set.len(), 3);
}

#[test]
fn a_heartbeat_of_strange_form_is_read() {
    let body = br#" {"producerDataSet" : [ {"groupName":"P"}, ], 'consumerDataSet':null, "unknown":{"a":[1]}, "heartbeatFingerprint":"12","withoutSub":"true"} "#;
    let heartbeat = HeartbeatData::decode(body).unwrap();
    assert_eq!(heartbeat.producer_data_set[0].group_name, "P");
    assert_eq!(heartbeat.heartbeat_fingerprint, 12);
    assert!(heartbeat.without_sub && heartbeat.consumer_data_set.is_empty());
}

#[test]
fn unknown_names_of_enums_read_as_the_default() {
    let body = br#"{"consumeFromWhere":"CONSUME_FROM_TIMESTAMP","consumeType":"CONSUME_BY_MAGIC","messageModel":"BROADCASTING"}"#;
    let connection = ConsumerConnection::decode(body).unwrap();
    assert_eq!(connection.consume_from_where, ConsumeFromWhere::Timestamp);
    assert_eq!(connection.consume_type, ConsumeType::Passively);
    assert_eq!(connection.message_model, MessageModel::Broadcasting);
}

#[test]
fn files_of_4_9_lack_what_came_later() {
    let topics = br#"{"dataVersion":{"counter":2,"timestamp":17},"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}}}"#;
    let wrapper = TopicConfigSerializeWrapper::decode(topics).unwrap();
    assert_eq!(
        wrapper.data_version,
        DataVersion {
            counter: 2,
            state_version: 0,
            timestamp: 17
        }
    );
    assert_eq!(wrapper.topic_config_table["T"], TopicConfig::new("T", 8, 6));
    let groups = br#"{"dataVersion":{},"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":3}}}"#;
    let wrapper = SubscriptionGroupWrapper::decode(groups).unwrap();
    let group = &wrapper.subscription_group_table["G"];
    assert_eq!(
        (
            group.retry_max_times,
            group.retry_queue_nums,
            group.consume_enable
        ),
        (3, 1, true)
    );
    assert_eq!(group.consume_timeout_minute, 15);
    let offsets = br#"{"groupTopicMap":{"G":["T"]},"offsetTable":{"T@G":{0:12,"1":9}}}"#;
    let wrapper = ConsumerOffsetSerializeWrapper::decode(offsets).unwrap();
    assert_eq!(wrapper.offset_table.rows["T@G"], [(0, 12), (1, 9)].into());
    assert_eq!(wrapper.data_version, None);
}

#[test]
fn members_that_only_a_newer_version_knows_are_written_again() {
    // Sorted among the known ones, at every level, a null and a value of an unknown kind too.
    let topics = r#"{"aNewTable":{"x":[1,2.5,null]},"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"topicConfigTable":{"T":{"attributes":{},"futureMode":{"a":[1]},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"NO_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8,"zoneTag":null}}}"#;
    let wrapper = TopicConfigSerializeWrapper::decode(topics.as_bytes()).unwrap();
    assert_eq!(text(&wrapper.encode()), topics);
    let offsets = r#"{"offsetTable":{"T@G":{0:1},"not-a-row":{"x":1}},"quotas":9}"#;
    let wrapper = ConsumerOffsetSerializeWrapper::decode(offsets.as_bytes()).unwrap();
    assert_eq!(wrapper.offset_table.rows["T@G"], [(0, 1)].into());
    assert_eq!(text(&wrapper.encode()), offsets);
    // Where nothing is kept, unknown members are ignored.
    let heartbeat = HeartbeatData::decode(br#"{"clientID":"c","future":1}"#).unwrap();
    assert!(!text(&heartbeat.encode()).contains("future"));
}

#[test]
fn a_change_keeps_members_that_its_author_does_not_know() {
    let known = TopicConfig::decode(br#"{"topicName":"T","zoneTag":"z"}"#).unwrap();
    let mut changed = TopicConfig::new("T", 4, 6);
    changed.unknown_members.keep(&known.unknown_members);
    assert!(text(&changed.encode()).contains(r#""zoneTag":"z""#));
    let mut newer = TopicConfig::decode(br#"{"topicName":"T","zoneTag":"y"}"#).unwrap();
    newer.unknown_members.keep(&known.unknown_members);
    assert!(text(&newer.encode()).contains(r#""zoneTag":"y""#));
}

#[test]
fn a_file_is_indented_by_tabs() {
    let mut wrapper = ConsumerOffsetSerializeWrapper::default();
    wrapper
        .offset_table
        .rows
        .insert("T@G".into(), [(0, 12), (1, 9)].into());
    wrapper
        .offset_table
        .rows
        .insert("U@G".into(), std::collections::BTreeMap::default());
    let expected =
        "{\n\t\"offsetTable\":{\n\t\t\"T@G\":{\n\t\t\t0:12,\n\t\t\t1:9\n\t\t},\n\t\t\"U@G\":{}\n\t}\n}";
    assert_eq!(text(&wrapper.encode_as(Style::PRETTY)), expected);
}

#[test]
fn cluster_info_is_written_as_the_name_server_writes_it() {
    let mut info = ClusterInfo::default();
    info.broker_addr_table
        .insert("b".into(), route().broker_datas.remove(0));
    info.cluster_addr_table
        .insert("C".into(), ["b".to_owned()].into());
    let bytes = info.encode();
    assert!(
        text(&bytes).ends_with(r#""clusterAddrTable":{"C":["b"]}}"#),
        "{}",
        text(&bytes)
    );
    assert_eq!(ClusterInfo::decode(&bytes).unwrap(), info);
}

#[test]
fn the_line_of_a_topic_holds_its_attributes() {
    let mut topic = TopicConfig::new("T", 8, 6);
    topic.topic_filter_type = TopicFilterType::MultiTag;
    topic
        .attributes
        .insert("+message.type".into(), "FIFO and more".into());
    let line = r#"T 8 8 6 MULTI_TAG {"+message.type":"FIFO and more"}"#;
    assert_eq!(topic.to_line(), line);
    assert_eq!(TopicConfig::from_line(line).unwrap(), topic);
    assert_eq!(
        TopicConfig::from_line("T 8 8 6 SINGLE_TAG").unwrap(),
        TopicConfig::new("T", 8, 6)
    );
    assert_eq!(
        TopicConfig::from_line("T 8 8 6 SINGLE_TAG {bad").unwrap(),
        TopicConfig::new("T", 8, 6)
    );
    assert_eq!(
        TopicConfig::from_line("T 8 8"),
        Err(WireError::MissingField("perm"))
    );
    assert!(matches!(
        TopicConfig::from_line("T x 8 6 SINGLE_TAG"),
        Err(WireError::BadField {
            field: "readQueueNums",
            ..
        })
    ));
}

#[test]
fn a_cut_or_lying_compressed_registration_is_an_error() {
    use pyrmq_remoting::message::compress::{Codec, compress};
    let mut body = RegisterBrokerBody::default();
    body.topic_config_serialize_wrapper
        .topic_config_table
        .insert("T".into(), TopicConfig::new("T", 8, 6));
    let whole = body.encode_compressed().unwrap();
    for cut in 0..whole.len() {
        assert!(
            RegisterBrokerBody::decode_form(&whole[..cut], true, 513).is_err(),
            "cut at {cut}"
        );
    }
    for lie in [
        &b"\x7f\xff\xff\xff"[..],
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02{}\x7f\xff\xff\xff",
        b"\0\0\0\x02{}\xff\xff\xff\xff",
    ] {
        let bytes = compress(Codec::Zlib, 1, lie).unwrap();
        assert!(
            RegisterBrokerBody::decode_form(&bytes, true, 513).is_err(),
            "{lie:?}"
        );
    }
}

#[test]
fn invalid_json_is_an_error() {
    for bad in [
        "",
        "{",
        "[",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":}",
        "nul",
        "inf",
        "NaN",
        "tru",
        "\"",
        "{} {}",
        "{true:1}",
        "[1 2 }",
        "{\"a\":1]",
        "01x",
    ] {
        assert!(
            matches!(Json::parse(bad.as_bytes()), Err(WireError::Json { .. })),
            "{bad}: {:?}",
            Json::parse(bad.as_bytes())
        );
    }
    assert!(matches!(Json::parse(b"\"\xff\""), Err(WireError::Utf8 { .. })));
    assert!(Json::parse("[".repeat(65).as_bytes()).is_err());
    let deep = format!("{}{}", "[".repeat(64), "]".repeat(64));
    assert!(Json::parse(deep.as_bytes()).is_ok());
}

#[test]
fn a_member_of_the_wrong_kind_is_named() {
    for (body, field) in [
        (&br#"{"consumerDataSet":{}}"#[..], "consumerDataSet"),
        (br#"{"clientID":[]}"#, "clientID"),
        (br#"{"heartbeatFingerprint":"x"}"#, "heartbeatFingerprint"),
        (br#"{"heartbeatFingerprint":99999999999}"#, "heartbeatFingerprint"),
        (br#"{"withoutSub":"maybe"}"#, "withoutSub"),
        (b"[]", "body"),
    ] {
        match HeartbeatData::decode(body) {
            Err(WireError::BadField { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn numbers_beyond_64_bits_become_fractions() {
    assert_eq!(Json::parse(b"99999999999999999999").unwrap(), Json::Float(1e20));
    assert_eq!(Json::parse(b"-9223372036854775808").unwrap(), Json::Int(i64::MIN));
    assert_eq!(
        Json::parse(b"{-1:1}").unwrap(),
        Json::Object(vec![(Key::Int(-1), Json::Int(1))])
    );
}

#[test]
fn versions_are_ordered_by_state_then_counter_then_time() {
    let version = |state_version, counter, timestamp| DataVersion {
        counter,
        state_version,
        timestamp,
    };
    assert!(version(1, 0, 0) > version(0, 9, 9));
    assert!(version(0, 2, 0) > version(0, 1, 9));
    assert!(version(0, 1, 2) > version(0, 1, 1));
    assert_eq!(version(0, 1, 2).next(5, 3), version(3, 2, 5));
}
