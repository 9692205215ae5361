//! Refusals begin with Apache's words, which people and tools search for. tests/e2e/test_headers.py compares those of
//! wrong fields with a real broker's.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Site, TempDir, create, options, properties, pull, pull_queue, send};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};

/// A request and how the remark of its refusal begins.
type Row = (Command, String);

fn row(command: Command, words: impl Into<String>) -> Row {
    (command, words.into())
}

fn asked(code: i32, fields: &[(&str, &str)]) -> Command {
    let request = Command::request(code);
    fields
        .iter()
        .fold(request, |request, (name, value)| request.with_field(name, value))
}

async fn check(site: &Site, rows: Vec<Row>) {
    for (command, words) in rows {
        let answer = site.ask(command).await;
        let remark = answer.remark.unwrap_or_default();
        assert_ne!(answer.code, response::SUCCESS, "{words}");
        assert!(
            remark.starts_with(&words),
            "`{remark}` does not begin with `{words}`"
        );
    }
}

fn names() -> Vec<Row> {
    let long = "t".repeat(128);
    let group = "g".repeat(121);
    let of_group = format!("%RETRY%{}", "g".repeat(300));
    let mut system = create("T", 4);
    system.fields.set("topic", "SCHEDULE_TOPIC_XXXX");
    let commit = [
        ("consumerGroup", &*group),
        ("topic", "T"),
        ("queueId", "0"),
        ("commitOffset", "0"),
    ];
    vec![
        row(
            send("a b", 0, b"x", ""),
            "The specified topic: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        row(
            send(&long, 0, b"x", ""),
            format!("The specified topic: {long}, is longer than topic max length: 127"),
        ),
        row(
            send(&of_group, 0, b"x", ""),
            "The specified topic is DLQ or Retry topic: %RETRY%ggg",
        ),
        row(send("", 0, b"x", ""), "The specified topic is blank."),
        row(
            send("SCHEDULE_TOPIC_XXXX", 0, b"x", ""),
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
        ),
        row(
            system,
            "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic.",
        ),
        row(
            asked(request::UPDATE_CONSUMER_OFFSET, &commit),
            format!("Group {group} not exist!"),
        ),
    ]
}

fn sends() -> Vec<Row> {
    let with = |name: &str, value: &str| send("T", 0, b"x", &properties(&[(name, value)]));
    let illegal = "the message is illegal, maybe msg body or properties length not matched. msg body length limit \
                   1000B, msg properties length limit 32KB.";
    let mut batch = send("%RETRY%G", 0, b"x", "");
    batch.code = request::SEND_BATCH_MESSAGE;
    batch.fields.set("m", "true");
    vec![
        row(send("T", 0, &[0; 1001], ""), illegal),
        row(send("T", 0, b"", ""), illegal),
        row(with("a", &"v".repeat(40_000)), illegal),
        row(send("T", 4, b"x", ""), "request queueId[4] is illegal, "),
        row(
            send("read", 0, b"x", ""),
            "the topic[read] sending message is forbidden",
        ),
        row(
            with("TIMER_DELAY_SEC", "999999"),
            "timer message illegal, the delay time should not be bigger than the max delay ",
        ),
        row(
            with("TRAN_MSG", "true"),
            "the broker[127.0.0.1] sending transaction message is forbidden",
        ),
        row(batch, "batch request does not support retry group %RETRY%G"),
    ]
}

fn pulls() -> Vec<Row> {
    let mut sql = pull("G", "T", 0, "a > 5", None);
    sql.fields.set("expressionType", "SQL92");
    let mut bare = pull("Other", "T", 0, "*", None);
    bare.fields.set("sysFlag", "0");
    vec![
        row(
            pull("G", "nowhere", 0, "*", None),
            "topic[nowhere] not exist, apply first please!",
        ),
        row(
            pull_queue("G", "T", 4, 0, "*", None),
            "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4]",
        ),
        row(
            pull("G", "written", 0, "*", None),
            "the topic[written] pulling message is forbidden",
        ),
        row(
            sql,
            "The broker does not support consumer to filter message by SQL92",
        ),
        row(
            pull("G", "T", 0, "||", None),
            "parse the consumer's subscription failed",
        ),
        row(bare, "the consumer's group info not exist"),
    ]
}

fn questions() -> Vec<Row> {
    let member = [
        ("consumerGroup", "G"),
        ("clientId", "me"),
        ("jstackEnable", "false"),
    ];
    let reset = |topic, more: &[(&str, &str)]| {
        let fields = [
            ("topic", topic),
            ("group", "G"),
            ("timestamp", "0"),
            ("isForce", "true"),
        ];
        asked(
            request::INVOKE_BROKER_TO_RESET_OFFSET,
            &[&fields[..], more].concat(),
        )
    };
    let back = [
        ("group", "G"),
        ("offset", "123"),
        ("delayLevel", "3"),
        ("originTopic", "T"),
    ];
    vec![
        row(
            asked(request::VIEW_MESSAGE_BY_ID, &[("offset", "123")]),
            "can not find message by the offset, 123",
        ),
        row(
            asked(request::CONSUMER_SEND_MSG_BACK, &back),
            "look message by offset failed, 123",
        ),
        row(
            asked(request::GET_CONSUMER_RUNNING_INFO, &member),
            "The Consumer <G> <me> not online",
        ),
        row(
            reset("T", &[("queueId", "0"), ("offset", "99")]),
            "Target offset 99 not in consume queue range [0-0]",
        ),
        row(reset("nowhere", &[]), "Topic nowhere does not exist"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_begin_with_apaches_words() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.store.max_message_bytes = 1000;
    settings.reject_transaction_message = true;
    let site = Site::start(settings);
    site.create("T", 4).await;
    for (topic, perm) in [("written", "2"), ("read", "4")] {
        let mut one = create(topic, 1);
        one.fields.set("perm", perm);
        site.ask_ok(one).await;
    }
    // Makes the group.
    site.ask(pull("G", "T", 0, "*", None)).await;
    for rows in [names(), sends(), pulls(), questions()] {
        check(&site, rows).await;
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_by_the_brokers_settings_begin_with_apaches_words() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.auto_create_subscription_group = false;
    settings.broker_permission = 4;
    let site = Site::start(settings);
    let rows = vec![
        row(
            send("T", 0, b"x", ""),
            "the broker[127.0.0.1] sending message is forbidden",
        ),
        row(
            pull("new", "T", 0, "*", None),
            "subscription group [new] does not exist, ",
        ),
    ];
    check(&site, rows).await;
    site.stop().await;
}
