//! Timer messages over a real socket: held, delivered, recalled, rolled, refused; across restarts and kills.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{LIMIT, Site, TempDir, eventually, number, options, properties, pull, records, send, text};
use pyrmq_broker::Options;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::record;
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_remoting::{Command, clock};
use pyrmq_store::{GetMessage, TagFilter};
use std::collections::BTreeMap;

const TOPIC: &str = "Timed";

/// Steps of a tenth of a second, small files.
fn short_intervals(dir: &TempDir) -> Options {
    let mut options = options(dir);
    options.recall_message_enable = true;
    options.store.timer.precision_ms = 100;
    options.store.timer.flush_interval_ms = 20;
    options.store.timer.log_file_bytes = 4096;
    options
}

async fn start(options: Options) -> Site {
    let site = Site::start(options);
    let answer = site.create(TOPIC, 1).await;
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    site
}

fn delayed(key: &str, ms: i64) -> String {
    properties(&[("UNIQ_KEY", key), ("TIMER_DELAY_MS", &ms.to_string())])
}

/// Returns the body and properties of delivered messages, in the order of their queue.
fn delivered(site: &Site) -> Vec<(String, BTreeMap<String, String>)> {
    let store = &site.broker.context().store;
    let mut all = Vec::new();
    let mut offset = 0;
    while offset < store.max_offset(TOPIC, 0) {
        let got = store
            .get(&GetMessage {
                topic: TOPIC,
                queue_id: 0,
                offset,
                max_count: 32,
                max_bytes: 1 << 20,
                tags: TagFilter::All,
            })
            .unwrap();
        for record in record::records(&got.body) {
            let record = record.unwrap();
            let body = String::from_utf8(record.body.to_vec()).unwrap();
            let pairs = record.properties.iter();
            let pairs = pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            all.push((body, pairs));
        }
        offset = got.next_offset;
    }
    all
}

fn bodies(site: &Site) -> Vec<String> {
    delivered(site).into_iter().map(|(body, _)| body).collect()
}

async fn await_bodies(site: &Site, wanted: &[&str]) {
    eventually("deliveries", async || bodies(site).len() >= wanted.len()).await;
    assert_eq!(bodies(site), wanted);
}

fn recall(topic: &str, handle: &str) -> Command {
    Command::request(request::RECALL_MESSAGE)
        .with_field("producerGroup", "producers")
        .with_field("topic", topic)
        .with_field("recallHandle", handle)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_delivered_when_its_step_is_over() {
    let dir = TempDir::new();
    let site = start(short_intervals(&dir)).await;
    let before = clock::now_ms();
    let answer = site.send_ok(TOPIC, b"later", &delayed("K1", 700)).await;
    assert_eq!(number(&answer, "queueId"), 0);
    site.send_ok(TOPIC, b"now", "").await;
    await_bodies(&site, &["now", "later"]).await;
    let (_, pairs) = &delivered(&site)[1];
    let out_ms: i64 = pairs["TIMER_OUT_MS"].parse().unwrap();
    assert_eq!(out_ms % 100, 0);
    assert!(
        (before + 600..=clock::now_ms()).contains(&out_ms),
        "{out_ms} {before}"
    );
    let dequeued: i64 = pairs["TIMER_DEQUEUE_MS"].parse().unwrap();
    assert!(dequeued >= before + 700, "{dequeued} {before}");
    assert!(pairs["TIMER_ENQUEUE_MS"].parse::<i64>().unwrap() <= out_ms + 100);
    assert_eq!(pairs["TIMER_DELAY_MS"], "700");
    assert!(
        pairs["REAL_TOPIC"] == TOPIC && pairs["REAL_QID"] == "0",
        "{pairs:?}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_in_the_past_mean_now_and_impossible_ones_are_refused() {
    let dir = TempDir::new();
    let mut settings = short_intervals(&dir);
    settings.store.timer.max_delay_sec = 10;
    let site = start(settings).await;
    for (at, (name, value)) in [
        ("TIMER_DELAY_SEC", "0"),
        ("TIMER_DELAY_MS", "-5"),
        ("TIMER_DELIVER_MS", "1000"),
        ("TIMER_DELAY_SEC", &i64::MAX.to_string()),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = site.send_ok(TOPIC, b"x", &properties(&[(name, value)])).await;
        assert_eq!(
            number(&answer, "queueOffset"),
            i64::try_from(at).unwrap(),
            "{name}"
        );
        assert_eq!(answer.fields.get("recallHandle"), None);
    }
    let far = (clock::now_ms() + 20_000).to_string();
    for pairs in [
        &[("TIMER_DELAY_SEC", "11")][..],
        &[("TIMER_DELAY_MS", "soon")],
        &[("TIMER_DELIVER_MS", &far)],
        // Only the first of the three counts.
        &[("TIMER_DELIVER_MS", "1000"), ("TIMER_DELAY_SEC", "11")],
        &[("TIMER_DELAY_SEC", "0"), ("TIMER_DEL_UNIQKEY", "Timed+K")],
    ] {
        let answer = site.send(TOPIC, b"x", &properties(pairs)).await;
        assert_eq!(answer.code, response::MESSAGE_ILLEGAL, "{pairs:?}");
        assert!(answer.remark.unwrap().contains("max delay 10000ms"), "{pairs:?}");
    }
    // A delay level overrides and removes them.
    let level = properties(&[
        ("DELAY", "1"),
        ("TIMER_DELAY_MS", "soon"),
        ("TIMER_DELAY_SEC", "99"),
    ]);
    site.send_ok(TOPIC, b"by level", &level).await;
    eventually("the level", async || bodies(&site).len() == 5).await;
    let (body, pairs) = delivered(&site).pop().unwrap();
    assert_eq!(body, "by level");
    assert!(!pairs.keys().any(|name| name.starts_with("TIMER_")), "{pairs:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_wheel_timers_are_refused_and_waiting_ones_keep_the_store_shut() {
    let dir = TempDir::new();
    let site = start(short_intervals(&dir)).await;
    site.send_ok(TOPIC, b"waits", &delayed("K1", 60_000)).await;
    eventually("the files", async || dir.path().join("store/timerwheel").exists()).await;
    site.stop().await;
    let mut settings = short_intervals(&dir);
    settings.store.timer.enable = false;
    let refused =
        pyrmq_broker::Broker::start(settings.clone(), &tokio::runtime::Handle::current(), None, &[]);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("timerWheelEnable"), "{refused}");
    let other = TempDir::new();
    settings.store.root = other.path().join("store");
    let site = start(settings).await;
    let answer = site.send(TOPIC, b"x", &delayed("K1", 1000)).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    assert!(answer.remark.unwrap().contains("timerWheelEnable is false"));
    let answer = site.ask(Command::request(request::GET_TIMER_CHECK_POINT)).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_survive_a_stop_and_are_delivered_once() {
    let dir = TempDir::new();
    let site = start(short_intervals(&dir)).await;
    let mut wanted: Vec<String> = Vec::new();
    for at in 0..300 {
        let body = format!("m-{at:03}");
        site.send_ok(TOPIC, body.as_bytes(), &delayed(&body, 1500 + at))
            .await;
        wanted.push(body);
    }
    eventually("they are taken in", async || {
        stat(&site, "timerCongestNum") == "300"
    })
    .await;
    site.stop().await;
    for _ in 0..3 {
        let site = start(short_intervals(&dir)).await;
        let enough = 100.min(bodies(&site).len() + 100);
        eventually("some", async || bodies(&site).len() >= enough).await;
        site.stop().await;
    }
    let site = start(short_intervals(&dir)).await;
    eventually("all", async || bodies(&site).len() >= 300).await;
    site.stop().await;
    let site = start(short_intervals(&dir)).await;
    site.send_ok(TOPIC, b"last", &delayed("last", 150)).await;
    wanted.push("last".to_owned());
    eventually("the last", async || bodies(&site).len() >= 301).await;
    let mut found = bodies(&site);
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recalled_messages_are_not_delivered() {
    let dir = TempDir::new();
    let site = start(short_intervals(&dir)).await;
    let taken = site.send_ok(TOPIC, b"taken back", &delayed("K1", 1500)).await;
    site.send_ok(TOPIC, b"kept", &delayed("K2", 1500)).await;
    let handle = taken.fields.get("recallHandle").unwrap().to_owned();
    let answer = site.ask_ok(recall(TOPIC, &handle)).await;
    assert_eq!(answer.fields.get("msgId"), Some("K1"));
    assert_eq!(answer.fields.get("MSG_REGION"), Some("DefaultRegion"));
    // The form of brokers after 5.5.0, with the topic in front; any client may send it.
    let at = (clock::now_ms() + 1500).to_string();
    let moment = ("TIMER_DELIVER_MS", at.as_str());
    site.send_ok(TOPIC, b"too", &properties(&[moment, ("UNIQ_KEY", "K4")]))
        .await;
    let delete = properties(&[moment, ("TIMER_DEL_UNIQKEY", "Timed+K4")]);
    site.send_ok(TOPIC, b"0", &delete).await;
    await_bodies(&site, &["kept"]).await;
    site.send_ok(TOPIC, b"after", &delayed("K3", 2000)).await;
    await_bodies(&site, &["kept", "after"]).await;
    let late = site.ask(recall(TOPIC, &handle)).await;
    assert_eq!(late.code, response::ILLEGAL_OPERATION);
    assert_eq!(late.remark.as_deref(), Some("recall failed, timestamp invalid"));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_with_its_topic_spares_another_topics_message_of_one_key() {
    let dir = TempDir::new();
    let mut options = short_intervals(&dir);
    options.append_topic_for_timer_delete_key = true;
    let site = start(options).await;
    assert_eq!(site.create("Other", 1).await.code, response::SUCCESS);
    site.send_ok(TOPIC, b"kept", &delayed("K1", 1500)).await;
    let sent = site.send_ok("Other", b"taken back", &delayed("K1", 1500)).await;
    let handle = sent.fields.get("recallHandle").unwrap().to_owned();
    let answer = site.ask_ok(recall("Other", &handle)).await;
    assert_eq!(answer.fields.get("msgId"), Some("K1"));
    site.send_ok("Other", b"later", &delayed("K2", 2000)).await;
    let store = &site.broker.context().store;
    eventually("a delivery", async || store.max_offset("Other", 0) > 0).await;
    assert_eq!(store.max_offset("Other", 0), 1);
    assert_eq!(bodies(&site), ["kept"]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_cannot_be_is_refused_as_by_apache() {
    let dir = TempDir::new();
    let site = start(short_intervals(&dir)).await;
    site.create("Other", 1).await;
    let sent = site.send_ok(TOPIC, b"x", &delayed("K1", 60_000)).await;
    let handle = sent.fields.get("recallHandle").unwrap().to_owned();
    let illegal = response::ILLEGAL_OPERATION;
    // v1 Timed broker-b 1893456000001 K1
    let elsewhere = "djEgVGltZWQgYnJva2VyLWIgMTg5MzQ1NjAwMDAwMSBLMQ==";
    for (topic, handle, code, remark) in [
        (TOPIC, "nonsense", illegal, "recall handle is invalid"),
        (
            TOPIC,
            elsewhere,
            illegal,
            "recall failed, broker service not available",
        ),
        ("Other", &handle, illegal, "recall failed, topic not match"),
        (
            "Missing",
            &handle,
            response::TOPIC_NOT_EXIST,
            "recall failed, the topic[Missing] not exist",
        ),
    ] {
        let answer = site.ask(recall(topic, handle)).await;
        assert_eq!((answer.code, answer.remark.as_deref()), (code, Some(remark)));
    }
    site.stop().await;
    let dir = TempDir::new();
    let mut settings = short_intervals(&dir);
    settings.recall_message_enable = false;
    let site = start(settings).await;
    let answer = site.ask(recall(TOPIC, &handle)).await;
    assert_eq!(answer.code, response::NO_PERMISSION);
    assert_eq!(
        answer.remark.as_deref(),
        Some("recall failed, operation is forbidden")
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_delay_rolls_and_can_be_taken_back_all_the_same() {
    let dir = TempDir::new();
    let mut settings = short_intervals(&dir);
    settings.store.timer.roll_window_slots = 3;
    let site = start(settings).await;
    let before = clock::now_ms();
    site.send_ok(TOPIC, b"rolled", &delayed("K1", 1500)).await;
    let taken = site.send_ok(TOPIC, b"taken back", &delayed("K2", 1500)).await;
    let handle = taken.fields.get("recallHandle").unwrap().to_owned();
    site.ask_ok(recall(TOPIC, &handle)).await;
    await_bodies(&site, &["rolled"]).await;
    let (_, pairs) = &delivered(&site)[0];
    assert!(
        pairs["TIMER_ROLL_TIMES"].parse::<i32>().unwrap() >= 2,
        "{pairs:?}"
    );
    assert!(pairs["TIMER_DEQUEUE_MS"].parse::<i64>().unwrap() >= before + 1500);
    site.send_ok(TOPIC, b"after", &delayed("K3", 100)).await;
    await_bodies(&site, &["rolled", "after"]).await;
    let queued = site.broker.context().store.max_offset(TIMER_TOPIC, 0);
    assert!(queued >= 8, "{queued}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_slot_refuses() {
    let dir = TempDir::new();
    let mut settings = short_intervals(&dir);
    settings.store.timer.congest_num_each_slot = 2;
    let site = start(settings).await;
    let at = (clock::now_ms() / 1000 * 1000 + 60_000).to_string();
    let at = properties(&[("TIMER_DELIVER_MS", &at)]);
    let mut refused = None;
    eventually("a refusal", async || {
        let answer = site.send(TOPIC, b"x", &at).await;
        refused = (answer.code != response::SUCCESS).then_some(answer);
        refused.is_some()
    })
    .await;
    let refused = refused.unwrap();
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    let remark = refused.remark.unwrap();
    assert!(
        remark.contains("flow control") && remark.contains("limit is 4"),
        "{remark}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_message_blocks_nothing() {
    let dir = TempDir::new();
    let site = start(short_intervals(&dir)).await;
    // No client may write there: only another broker's store may hold such messages.
    let foreign = |body: &[u8], properties: &str| {
        let host = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let message = pyrmq_store::NewMessage {
            born_timestamp_ms: 0,
            body,
            properties: properties.into(),
            ..pyrmq_store::NewMessage::new(TIMER_TOPIC, 0, host)
        };
        site.broker.context().store.put(&message).unwrap();
    };
    foreign(b"no moment", "");
    foreign(b"no topic", &properties(&[("TIMER_OUT_MS", "5")]));
    let wrong = properties(&[("TIMER_OUT_MS", "5"), ("REAL_TOPIC", "a/b"), ("REAL_QID", "0")]);
    foreign(b"no such topic", &wrong);
    site.send_ok(TOPIC, b"good", &delayed("K1", 200)).await;
    await_bodies(&site, &["good"]).await;
    let checkpoint = site
        .ask_ok(Command::request(request::GET_TIMER_CHECK_POINT))
        .await;
    assert_eq!(checkpoint.body.unwrap().len(), 56);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_pull_is_answered_when_the_time_comes() {
    let dir = TempDir::new();
    let mut settings = short_intervals(&dir);
    settings.store.flush = pyrmq_store::FlushDiskType::Sync;
    let site = start(settings).await;
    let waiting = site.asking(pull("readers", TOPIC, 0, "*", Some(LIMIT)));
    let sent = site.ask_ok(send(TOPIC, 0, b"later", &delayed("K1", 300))).await;
    let handle = sent.fields.get("recallHandle").unwrap();
    assert!(handle.len() > 20, "{}", text(&sent));
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    assert_eq!(records(&answer)[0].1, b"later");
    site.stop().await;
}

fn stat(site: &Site, key: &str) -> String {
    let stats = site.broker.stats();
    stats.into_iter().find(|(name, _)| name == key).unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_waits_from_its_commit_on() {
    let dir = TempDir::new();
    let site = start(short_intervals(&dir)).await;
    let half = |key: &str, ms: i64| {
        let text = properties(&[
            ("TRAN_MSG", "true"),
            ("PGROUP", "producers"),
            ("UNIQ_KEY", key),
            ("TIMER_DELAY_MS", &ms.to_string()),
        ]);
        let mut command = send(TOPIC, 0, key.as_bytes(), &text);
        command.fields.set("f", "4");
        command
    };
    for (key, ms) in [("K1", 600), ("K2", 0)] {
        let sent = site.ask_ok(half(key, ms)).await;
        assert_eq!(sent.fields.get("recallHandle"), None);
        let id: OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
        let (place, position) = (number(&sent, "queueOffset").to_string(), id.offset.to_string());
        let end = [
            ("producerGroup", "producers"),
            ("tranStateTableOffset", &place),
            ("commitLogOffset", &position),
            ("commitOrRollback", "8"),
            ("fromTransactionCheck", "false"),
            ("msgId", key),
            ("transactionId", key),
        ];
        let end = end.into_iter().fold(
            Command::request(request::END_TRANSACTION),
            |command, (name, value)| command.with_field(name, value),
        );
        site.ask_ok(end).await;
    }
    await_bodies(&site, &["K2", "K1"]).await;
    site.stop().await;
}
