//! Unknown members of the tables below `config/`, from a newer broker: they survive when ours writes the tables.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays the newer broker"
)]

mod common;

use common::{Site, TempDir, eventually, options, properties};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::Json;
use pyrmq_remoting::codes::request;
use std::fs;

const TOPICS: &str = r#"{"dataVersion":{"counter":7,"stateVersion":3,"timestamp":5},"aNewTable":{"x":[1,2.5,null]},"topicConfigTable":{
    "T":{"attributes":{"+new.attribute":"1"},"futureMode":{"a":[1]},"order":false,"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG",
    "topicName":"T","topicSysFlag":0,"writeQueueNums":2,"zoneTag":"z"},
    "U":{"perm":6,"readQueueNums":1,"topicName":"U","writeQueueNums":1,"zoneTag":"u"}}}"#;
const GROUPS: &str = r#"{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"forbiddenTable":{"G":{"T":4}},"quotas":{"G":9},
    "subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":3,"futureMode":true},"H":{"groupName":"H","futureMode":false}}}"#;
const OFFSETS: &str = r#"{"dataVersion":{"counter":41,"stateVersion":0,"timestamp":5},"groupTopicMap":{},"liteOffsets":{"a":{0:1}},
    "offsetTable":{"T@G":{0:0},"not-a-row":{"x":1}},"pullOffsetTable":{"T@G":{0:9}}}"#;
const DELAYS: &str =
    r#"{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"marks":[1],"offsetTable":{}}"#;

fn at<'j>(tree: &'j Json, path: &[&str]) -> Option<&'j Json> {
    path.iter().try_fold(tree, |tree, name| tree.get(name))
}

fn parse(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_only_a_newer_broker_knows_are_written_again() {
    let dir = TempDir::new();
    let config = dir.path().join("store/config");
    fs::create_dir_all(&config).unwrap();
    let tables = [
        ("topics.json", TOPICS),
        ("subscriptionGroup.json", GROUPS),
        ("consumerOffset.json", OFFSETS),
        ("delayOffset.json", DELAYS),
    ];
    for (name, text) in tables {
        fs::write(config.join(name), text).unwrap();
    }
    let site = Site::start(options(&dir));
    // Each table is changed: the known entry itself, and another one.
    site.ask_ok(common::create("T", 3)).await;
    site.ask_ok(common::create("V", 1)).await;
    for group in [r#"{"groupName":"G","retryMaxTimes":5}"#, r#"{"groupName":"I"}"#] {
        site.ask_ok(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group))
            .await;
    }
    site.send_ok("T", b"later", &properties(&[("DELAY", "1")])).await;
    eventually("it is delivered", async || {
        site.broker.context().store.max_offset("T", 0) == 1
    })
    .await;
    let commit = [
        ("consumerGroup", "G"),
        ("topic", "T"),
        ("queueId", "0"),
        ("commitOffset", "1"),
    ];
    site.ask_ok(commit.into_iter().fold(
        Command::request(request::UPDATE_CONSUMER_OFFSET),
        |command, (name, value)| command.with_field(name, value),
    ))
    .await;
    site.stop().await;

    let read = |name: &str| Json::parse(&fs::read(config.join(name)).unwrap()).unwrap();
    let kept: [(&str, &[&str], &str); 13] = [
        ("topics.json", &["aNewTable"], r#"{"x":[1,2.5,null]}"#),
        (
            "topics.json",
            &["topicConfigTable", "T", "futureMode"],
            r#"{"a":[1]}"#,
        ),
        ("topics.json", &["topicConfigTable", "T", "zoneTag"], r#""z""#),
        ("topics.json", &["topicConfigTable", "T", "readQueueNums"], "3"),
        (
            "topics.json",
            &["topicConfigTable", "T", "attributes", "+new.attribute"],
            r#""1""#,
        ),
        ("topics.json", &["topicConfigTable", "U", "zoneTag"], r#""u""#),
        ("topics.json", &["dataVersion", "stateVersion"], "3"),
        ("subscriptionGroup.json", &["quotas"], r#"{"G":9}"#),
        (
            "subscriptionGroup.json",
            &["subscriptionGroupTable", "G", "futureMode"],
            "true",
        ),
        (
            "subscriptionGroup.json",
            &["subscriptionGroupTable", "G", "retryMaxTimes"],
            "5",
        ),
        (
            "subscriptionGroup.json",
            &["subscriptionGroupTable", "H", "futureMode"],
            "false",
        ),
        ("consumerOffset.json", &["liteOffsets"], r#"{"a":{0:1}}"#),
        ("delayOffset.json", &["marks"], "[1]"),
    ];
    for (file, path, value) in kept {
        assert_eq!(at(&read(file), path), Some(&parse(value)), "{file} {path:?}");
    }
    assert_eq!(
        at(&read("subscriptionGroup.json"), &["forbiddenTable"]),
        Some(&parse(r#"{"G":{"T":4}}"#))
    );
    let offsets = read("consumerOffset.json");
    assert_eq!(
        at(&offsets, &["offsetTable"]),
        Some(&parse(r#"{"T@G":{0:1},"not-a-row":{"x":1}}"#))
    );
    assert!(at(&offsets, &["dataVersion", "counter"]).unwrap().as_i64() > Some(41));
    assert!(offsets.get("pullOffsetTable").is_none());
    assert_eq!(
        at(&read("delayOffset.json"), &["offsetTable"]),
        Some(&parse("{1:1}"))
    );
    // Sorted, as fastjson writes a bean.
    let text = fs::read_to_string(config.join("topics.json")).unwrap();
    let places = ["aNewTable", "dataVersion", "topicConfigTable"].map(|name| text.find(name).unwrap());
    assert!(places.is_sorted(), "{text}");
    // It is read again.
    let site = Site::start(options(&dir));
    assert_eq!(site.broker.context().topics.get("T").unwrap().read_queue_nums, 3);
    site.stop().await;
}
