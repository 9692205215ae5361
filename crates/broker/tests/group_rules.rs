//! Rules for consumer groups: which queues they may lock and commit, and what they may pull.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{LIMIT, Site, TempDir, client, options, pull, text};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};

fn heartbeat(group: &str, kind: &str) -> Command {
    let body = format!(
        r#"{{"clientID":"me","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"{kind}","groupName":"{group}","messageModel":"CLUSTERING","subscriptionDataSet":[{{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":0,"tagsSet":[],"topic":"T"}}],"unitMode":false}}],"producerDataSet":[]}}"#
    );
    Command::request(request::HEART_BEAT).with_body(body)
}

fn lock(group: &str, queues: &[(&str, &str, i32)]) -> Command {
    let queues: Vec<String> = queues
        .iter()
        .map(|(broker, topic, id)| format!(r#"{{"brokerName":"{broker}","queueId":{id},"topic":"{topic}"}}"#))
        .collect();
    let queues = queues.join(",");
    let body = format!(r#"{{"clientId":"me","consumerGroup":"{group}","mqSet":[{queues}]}}"#);
    Command::request(request::LOCK_BATCH_MQ).with_body(body)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_queues_that_exist_can_be_locked() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 2).await;
    let asked = [
        ("broker-a", "T", 1),
        ("broker-a", "T", 2),
        ("broker-a", "T", -1),
        ("broker-a", "nowhere", 0),
        ("broker-b", "T", 0),
    ];
    let answer = site.ask_ok(lock("G", &asked)).await;
    assert_eq!(
        text(&answer),
        r#"{"lockOKMQSet":[{"brokerName":"broker-a","queueId":1,"topic":"T"}]}"#
    );
    let nothing = site.ask_ok(lock("H", &asked[1..])).await;
    assert_eq!(text(&nothing), r#"{"lockOKMQSet":[]}"#);
    assert_eq!(site.broker.context().locks.groups(), 1);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_may_not_be_made_locks_and_commits_nothing() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.auto_create_subscription_group = false;
    let site = Site::start(settings);
    site.create("T", 2).await;
    let refused = site.ask(lock("G", &[("broker-a", "T", 0)])).await;
    assert_eq!(refused.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
    let commit = Command::request(request::UPDATE_CONSUMER_OFFSET)
        .with_field("consumerGroup", "G")
        .with_field("topic", "T")
        .with_field("queueId", "0")
        .with_field("commitOffset", "5");
    assert_eq!(
        site.ask(commit.clone()).await.code,
        response::SUBSCRIPTION_GROUP_NOT_EXIST
    );
    let context = site.broker.context();
    assert_eq!(
        (context.locks.groups(), context.offsets.get("G", "T", 0)),
        (0, None)
    );
    let mut elsewhere = commit;
    elsewhere.fields.set("consumerGroup", "TOOLS_CONSUMER");
    for (field, value, code) in [
        ("topic", "nowhere", response::TOPIC_NOT_EXIST),
        ("queueId", "2", response::INVALID_PARAMETER),
    ] {
        let mut command = elsewhere.clone();
        command.fields.set(field, value);
        assert_eq!(site.ask(command).await.code, code, "{field}");
    }
    site.ask_ok(elsewhere).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_consumers_are_rejected_if_the_operator_wants_that() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.reject_pull_consumer_enable = true;
    let site = Site::start(settings);
    site.send_ok("T", b"x", "").await;
    let rejected = site.ask(pull("G", "T", 0, "*", None)).await;
    assert_eq!(rejected.code, response::SUBSCRIPTION_NOT_EXIST);
    assert!(rejected.remark.unwrap().contains("rejectPullConsumerEnable"));
    // Its heartbeat does not help, because it says that the group pulls.
    site.ask_ok(heartbeat("G", "CONSUME_ACTIVELY")).await;
    let rejected = site.ask(pull("G", "T", 0, "*", None)).await;
    assert_eq!(rejected.code, response::SUBSCRIPTION_NOT_EXIST);
    // Groups that are pushed to, and RocketMQ's own tools, may pull.
    site.ask_ok(heartbeat("pushed", "CONSUME_PASSIVELY")).await;
    for group in ["pushed", "TOOLS_CONSUMER"] {
        site.ask_ok(pull(group, "T", 0, "*", Some(LIMIT))).await;
    }
    site.stop().await;
}

/// A pull without a subscription, which the heartbeat provides, as Java's push consumers send it.
fn plain_pull(group: &str) -> Command {
    let mut command = pull(group, "T", 0, "*", None);
    command.fields.set("sysFlag", "0");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_does_not_read_a_topic_that_is_forbidden_to_it() {
    let dir = TempDir::new();
    let config = dir.path().join("store/config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::copy(
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/forbidden/subscriptionGroup.json"
        ),
        config.join("subscriptionGroup.json"),
    )
    .unwrap();
    let site = Site::start(options(&dir));
    site.send_ok("T", b"x", "").await;
    for group in ["G", "H"] {
        site.ask_ok(heartbeat(group, "CONSUME_PASSIVELY")).await;
    }
    site.ask_ok(pull("H", "T", 0, "*", Some(LIMIT))).await;
    let refused = site.ask(plain_pull("G")).await;
    assert_eq!(refused.code, response::NO_PERMISSION);
    assert_eq!(refused.fields.get("forbiddenType"), Some("5"));
    site.ask_ok(plain_pull("H")).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_353_forbids_and_allows_a_topic_and_the_file_keeps_it() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.send_ok("T", b"x", "").await;
    let ask = |group: &str, readable: Option<&str>| {
        let command = Command::request(request::UPDATE_AND_GET_GROUP_FORBIDDEN)
            .with_field("group", group)
            .with_field("topic", "T");
        readable.map_or(command.clone(), |readable| {
            command.with_field("readable", readable)
        })
    };
    for group in ["G", "H"] {
        site.ask_ok(heartbeat(group, "CONSUME_PASSIVELY")).await;
        let answer = site.ask_ok(ask(group, None)).await;
        assert_eq!(
            text(&answer),
            format!(r#"{{"group":"{group}","readable":true,"topic":"T"}}"#)
        );
        site.ask_ok(ask(group, Some("false"))).await;
        assert_eq!(site.ask(plain_pull(group)).await.code, response::NO_PERMISSION);
    }
    site.ask_ok(ask("H", Some("true"))).await;
    site.stop().await;
    let site = Site::start(options(&dir));
    let other = client();
    for group in ["G", "H"] {
        let beat = heartbeat(group, "CONSUME_PASSIVELY");
        other.request(&site.address, beat, LIMIT).await.unwrap();
    }
    assert_eq!(site.ask(plain_pull("G")).await.code, response::NO_PERMISSION);
    assert_ne!(site.ask(plain_pull("H")).await.code, response::NO_PERMISSION);
    let nobody = site.ask(ask("nobody", Some("false"))).await;
    assert_eq!(nobody.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
    other.close().await;
    site.stop().await;
}
