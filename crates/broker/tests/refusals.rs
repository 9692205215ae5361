//! Invalid input: each request gets a clear code and remark, and the broker continues to serve.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Site, TempDir, create, options, properties, pull, pull_queue, send};
use pyrmq_broker::{Broker, BrokerError};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use tokio::runtime::Handle;

async fn refused(site: &Site, command: Command, code: i32, words: &[&str]) {
    let answer = site.ask(command).await;
    let remark = answer.remark.unwrap_or_default();
    assert_eq!(answer.code, code, "{remark}");
    for word in words {
        assert!(remark.contains(word), "{remark} lacks {word}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_sends_are_refused_one_by_one() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.store.max_message_bytes = 1000;
    let site = Site::start(settings);
    let illegal = response::MESSAGE_ILLEGAL;
    let invalid = response::INVALID_PARAMETER;
    site.create("T", 4).await;
    refused(&site, send("a b", 0, b"x", ""), invalid, &["characters", "a b"]).await;
    refused(
        &site,
        send(&"t".repeat(128), 0, b"x", ""),
        invalid,
        &["128", "127"],
    )
    .await;
    refused(&site, send("", 0, b"x", ""), invalid, &["empty"]).await;
    refused(
        &site,
        send("T", 0, &[0; 1001], ""),
        illegal,
        &["1001", "maxMessageSize"],
    )
    .await;
    refused(&site, send("T", 0, b"", ""), illegal, &["no body"]).await;
    let long = properties(&[("a", &"v".repeat(40_000))]);
    refused(
        &site,
        send("T", 0, b"x", &long),
        illegal,
        &["properties", "32767"],
    )
    .await;
    refused(&site, send("T", 4, b"x", ""), invalid, &["queueId[4]", "T has 4"]).await;
    refused(
        &site,
        send("SCHEDULE_TOPIC_XXXX", 0, b"x", ""),
        response::NO_PERMISSION,
        &["SCHEDULE"],
    )
    .await;
    let timed = properties(&[("TIMER_DELAY_SEC", "999999")]);
    refused(&site, send("T", 0, b"x", &timed), illegal, &["timer"]).await;
    let mut missing = send("T", 0, b"x", "");
    missing.fields.remove("b");
    refused(&site, missing, invalid, &["missing field: b"]).await;
    let mut bad = send("T", 0, b"x", "");
    bad.fields.set("e", "many");
    refused(&site, bad, invalid, &["`e`", "many"]).await;
    site.send_ok("T", b"still here", "").await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_batches_are_refused_and_nothing_of_them_is_stored() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let batch = |body: &[u8], topic: &str, properties: &str| {
        let mut command = send(topic, 0, body, properties);
        command.code = request::SEND_BATCH_MESSAGE;
        command.fields.set("m", "true");
        command
    };
    let mut item = Vec::new();
    pyrmq_remoting::message::batch::encode(
        &pyrmq_remoting::message::BatchItem {
            flag: 0,
            body: b"good",
            properties: b"",
        },
        &mut item,
    )
    .unwrap();
    let illegal = response::MESSAGE_ILLEGAL;
    let mut too_long = item.clone();
    too_long[..4].copy_from_slice(&1000_i32.to_be_bytes());
    let mut negative = item.clone();
    negative[..4].copy_from_slice(&(-1_i32).to_be_bytes());
    let mut bad_body = item.clone();
    bad_body[16..20].copy_from_slice(&i32::MAX.to_be_bytes());
    for second in [
        &too_long[..],
        &negative,
        &bad_body,
        &item[..item.len() - 1],
        &[0; 3],
    ] {
        let body = [&item[..], second].concat();
        refused(&site, batch(&body, "T", ""), illegal, &["message 1 of the batch"]).await;
    }
    refused(
        &site,
        batch(&item, "T", &properties(&[("DELAY", "3")])),
        illegal,
        &["delayed"],
    )
    .await;
    refused(&site, batch(&item, "%RETRY%G", ""), illegal, &["retry"]).await;
    assert_eq!(site.broker.health().store.max_physical_offset, 0);
    // No broker reads an item's magic, not even Apache's: clients have always written 0 there.
    let mut other_magic = item.clone();
    other_magic[4..8].copy_from_slice(&0x1234_5678_i32.to_be_bytes());
    let answer = site.ask(batch(&other_magic, "T", "")).await;
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_topic_without_auto_create_answers_17() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.auto_create_topic_enable = false;
    settings.auto_create_subscription_group = false;
    let site = Site::start(settings);
    refused(
        &site,
        send("T", 0, b"x", ""),
        response::TOPIC_NOT_EXIST,
        &["T", "autoCreateTopicEnable"],
    )
    .await;
    refused(
        &site,
        pull("G", "T", 0, "*", None),
        response::SUBSCRIPTION_GROUP_NOT_EXIST,
        &["G"],
    )
    .await;
    site.ask_ok(create("T", 1)).await;
    site.send_ok("T", b"x", "").await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_pulls_are_refused_in_apaches_order() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 2).await;
    refused(
        &site,
        pull("G", "nowhere", 0, "*", None),
        response::TOPIC_NOT_EXIST,
        &["nowhere"],
    )
    .await;
    refused(
        &site,
        pull_queue("G", "T", 2, 0, "*", None),
        response::INVALID_PARAMETER,
        &["queueId[2] is illegal", "readQueueNums:[2]"],
    )
    .await;
    refused(
        &site,
        pull_queue("G", "T", -1, 0, "*", None),
        response::INVALID_PARAMETER,
        &["queueId[-1] is illegal"],
    )
    .await;
    refused(
        &site,
        pull("G", "T", 0, "||", None),
        response::SUBSCRIPTION_PARSE_FAILED,
        &["tag"],
    )
    .await;
    let mut sql = pull("G", "T", 0, "a > 5", None);
    sql.fields.set("expressionType", "SQL92");
    refused(&site, sql, response::SYSTEM_ERROR, &["SQL92"]).await;
    let mut bare = pull("G", "T", 0, "*", None);
    bare.fields.set("sysFlag", "0");
    refused(&site, bare, response::SUBSCRIPTION_NOT_EXIST, &["G"]).await;
    let mut wrong = pull("G", "T", 0, "*", None);
    wrong.fields.set("queueOffset", "first");
    refused(
        &site,
        wrong,
        response::INVALID_PARAMETER,
        &["queueOffset", "first"],
    )
    .await;
    let mut closed = create("closed", 1);
    closed.fields.set("perm", "2");
    site.ask_ok(closed).await;
    refused(
        &site,
        pull("G", "closed", 0, "*", None),
        response::NO_PERMISSION,
        &["closed"],
    )
    .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_without_a_row_say_so() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let unsupported = response::REQUEST_CODE_NOT_SUPPORTED;
    refused(
        &site,
        Command::request(request::POP_LITE_MESSAGE),
        unsupported,
        &["lite"],
    )
    .await;
    refused(
        &site,
        Command::request(request::GET_TIMER_METRICS),
        unsupported,
        &["timer"],
    )
    .await;
    refused(&site, Command::request(31_999), unsupported, &[]).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fast_port_serves_sends_but_no_pulls() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let fast = site.broker.fast().unwrap();
    assert_eq!(fast.port() + 2, site.broker.listening().port());
    let ask = |command| site.client.request(&site.address, command, common::LIMIT);
    assert_eq!(ask(send("T", 0, b"x", "")).await.unwrap().code, 0);
    let on_fast = |command| {
        let (client, address) = (site.client.clone(), fast.to_string());
        async move { client.request(&address, command, common::LIMIT).await.unwrap() }
    };
    assert_eq!(on_fast(send("T", 0, b"x", "")).await.code, response::SUCCESS);
    let refused = on_fast(pull("G", "T", 0, "*", None)).await;
    assert_eq!(refused.code, response::REQUEST_CODE_NOT_SUPPORTED);
    assert!(refused.remark.unwrap().contains("main port"));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_named_and_the_store_is_free_again() {
    let dir = TempDir::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut settings = options(&dir);
    settings.listen_port = i32::from(port);
    let error = Broker::start(settings, &Handle::current(), None, &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&port.to_string()) && error.contains("another port"),
        "{error}"
    );
    Site::start(options(&dir)).stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_use_is_refused() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let error = Broker::start(options(&dir), &Handle::current(), None, &[]).unwrap_err();
    assert!(
        matches!(error, BrokerError::Store(pyrmq_store::StoreError::Locked { .. })),
        "{error}"
    );
    site.send_ok("T", b"unharmed", "").await;
    site.stop().await;
}
