//! SQL92 filters: pulls, held pulls, heartbeats, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{LIMIT, Site, TempDir, eventually, number, options, properties, pull, records};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use std::time::Duration;

fn sql(offset: i64, expression: &str, wait: Option<Duration>) -> Command {
    let mut command = pull("G", "T", offset, expression, wait);
    command.fields.set("expressionType", "SQL92");
    command
}

async fn site(dir: &TempDir) -> Site {
    let mut settings = options(dir);
    settings.enable_property_filter = true;
    let site = Site::start(settings);
    site.create("T", 1).await;
    site
}

async fn send(site: &Site, amount: i32) {
    let amount = amount.to_string();
    let text = properties(&[("amount", &amount)]);
    site.send_ok("T", amount.as_bytes(), &text).await;
}

fn bodies(answer: &Command) -> Vec<String> {
    let texts = records(answer).into_iter();
    texts
        .map(|(_, body, _)| String::from_utf8(body).unwrap())
        .collect()
}

fn heartbeat(expression: &str, version: i64) -> Command {
    let body = format!(
        r#"{{"clientID":"c","consumerDataSet":[{{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionDataSet":[{{"topic":"T","subString":"{expression}","expressionType":"SQL92","subVersion":{version}}}]}}],"producerDataSet":[]}}"#
    );
    Command::request(request::HEART_BEAT).with_body(body)
}

fn check(kind: &str, expression: &str) -> Command {
    let body = format!(
        r#"{{"clientId":"c","group":"G","subscriptionData":{{"topic":"T","subString":"{expression}","expressionType":"{kind}","subVersion":1}}}}"#
    );
    Command::request(request::CHECK_CLIENT_CONFIG).with_body(body)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_gets_the_messages_that_meet_its_condition() {
    let dir = TempDir::new();
    let site = site(&dir).await;
    for amount in 0..200 {
        send(&site, amount).await;
    }
    site.send_ok("T", b"nothing", "").await;
    let answer = site.ask_ok(sql(0, "amount BETWEEN 60 AND 62", None)).await;
    assert_eq!(bodies(&answer), ["60", "61", "62"]);
    assert_eq!(number(&answer, "nextBeginOffset"), 201);
    // More match than a client wants: the next pull goes on behind the last that it got.
    let first = site.ask_ok(sql(0, "amount >= 100", None)).await;
    assert_eq!(bodies(&first).len(), 32);
    assert_eq!(number(&first, "nextBeginOffset"), 132);
    let second = site.ask_ok(sql(132, "amount >= 100", None)).await;
    assert_eq!(bodies(&second)[0], "132");
    let none = site.ask(sql(0, "amount > 1000 OR city = 'Rome'", None)).await;
    assert_eq!(none.code, response::PULL_RETRY_IMMEDIATELY);
    assert_eq!(number(&none, "nextBeginOffset"), 201);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_fits_too_much_for_one_answer_leaves_the_rest_for_the_next() {
    let dir = TempDir::new();
    let site = site(&dir).await;
    let text = properties(&[("a", "1")]);
    for _ in 0..8 {
        site.send_ok("T", &vec![7; 100_000], &text).await;
    }
    let mut offset = 0;
    let mut got = 0;
    while offset < 8 {
        let answer = site.ask_ok(sql(offset, "a = 1", None)).await;
        let count = records(&answer).len();
        assert!(
            (1..8).contains(&count),
            "{count} messages of 100 kB in one answer"
        );
        assert_eq!(
            number(&answer, "nextBeginOffset"),
            offset + i64::try_from(count).unwrap()
        );
        offset = number(&answer, "nextBeginOffset");
        got += count;
    }
    assert_eq!(got, 8);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_is_not_woken_by_messages_that_do_not_match() {
    let dir = TempDir::new();
    let site = site(&dir).await;
    send(&site, 1).await;
    let mut waiting = site.asking(sql(1, "amount > 10", Some(LIMIT)));
    let held = || site.broker.health().waiting_pulls;
    eventually("the pull is held", async || held() == 1).await;
    for amount in 0..10 {
        send(&site, amount).await;
    }
    // Its reads are over once it waits behind what was sent.
    eventually("the pull is held again", async || held() == 1).await;
    assert!(waiting.try_recv().is_err(), "it was answered");
    send(&site, 99).await;
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(bodies(&answer), ["99"]);
    assert_eq!(number(&answer, "nextBeginOffset"), 12);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_without_a_match_is_answered_at_its_deadline_with_the_new_offset() {
    let dir = TempDir::new();
    let site = site(&dir).await;
    send(&site, 1).await;
    let waiting = site.asking(sql(1, "amount > 10", Some(Duration::from_millis(500))));
    eventually("the pull is held", async || {
        site.broker.health().waiting_pulls == 1
    })
    .await;
    send(&site, 2).await;
    send(&site, 3).await;
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.code, response::PULL_NOT_FOUND);
    assert_eq!(number(&answer, "nextBeginOffset"), 3);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_broker_answers_pulls_with_a_condition() {
    let dir = TempDir::new();
    let site = site(&dir).await;
    send(&site, 1).await;
    let waiting = site.asking(sql(1, "amount > 10", Some(LIMIT)));
    eventually("the pull is held", async || {
        site.broker.health().waiting_pulls == 1
    })
    .await;
    let client = site.client.clone();
    site.broker.stop(LIMIT).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().code, response::PULL_NOT_FOUND);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_without_a_subscription_uses_the_condition_of_the_heartbeats() {
    let dir = TempDir::new();
    let site = site(&dir).await;
    for amount in [5, 50] {
        send(&site, amount).await;
    }
    site.ask_ok(heartbeat("amount > 10", 1)).await;
    let mut bare = sql(0, "", None);
    bare.fields.set("sysFlag", "0");
    assert_eq!(bodies(&site.ask_ok(bare.clone()).await), ["50"]);
    site.ask_ok(heartbeat("amount >", 2)).await;
    let wrong = site.ask(bare).await;
    assert_eq!(wrong.code, response::FILTER_DATA_NOT_EXIST);
    let remark = wrong.remark.unwrap();
    assert!(
        remark.starts_with("The broker's consumer filter data is not exist!Your expression may be wrong!"),
        "{remark}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_are_checked_and_refused_while_the_option_is_off() {
    let dir = TempDir::new();
    let site = site(&dir).await;
    site.ask_ok(check("SQL92", "a > 1")).await;
    let wrong = site.ask(check("SQL92", "a >")).await;
    assert_eq!(wrong.code, response::SUBSCRIPTION_PARSE_FAILED);
    let unknown = site.ask(check("CLASS", "a")).await;
    assert_eq!(unknown.code, response::SUBSCRIPTION_PARSE_FAILED);
    let wrong = site.ask(sql(0, "a >", None)).await;
    assert_eq!(wrong.code, response::SUBSCRIPTION_PARSE_FAILED);
    let remark = wrong.remark.unwrap();
    assert!(
        remark.starts_with("parse the consumer's subscription failed"),
        "{remark}"
    );
    let mut off = site.broker.options().clone();
    off.enable_property_filter = false;
    site.broker.reconfigure(&off).unwrap();
    for refused in [check("SQL92", "a > 1"), sql(0, "a > 1", None)] {
        let answer = site.ask(refused).await;
        assert_eq!(answer.code, response::SYSTEM_ERROR);
        let remark = answer.remark.unwrap();
        let words = "The broker does not support consumer to filter message by SQL92";
        assert!(
            remark.starts_with(words) && remark.contains("enablePropertyFilter"),
            "{remark}"
        );
    }
    site.ask_ok(check("TAG", "a || b")).await;
    site.stop().await;
}
