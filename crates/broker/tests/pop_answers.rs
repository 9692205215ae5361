//! What a pop is answered with: where its group begins, retries or the topic first, too many that wait; and what a
//! message looks like that comes back. Over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::pops::{ack, bodies, fill, pop, pop_until, popped, short_intervals, site, with};
use common::{LIMIT, Site, TempDir, eventually, number, options, properties, records, send};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::{Command, names};

/// Longer than a test takes.
const LONG_MS: i64 = 60_000;
/// Soon over.
const SHORT_MS: i64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_begins_at_the_newest_message_misses_none_that_arrives_later() {
    let dir = TempDir::new();
    let mut settings = short_intervals(options(&dir));
    settings.store.segment_bytes = 1 << 16;
    settings.store.set("fileReservedTime", "0").unwrap();
    let site = Site::start(settings);
    site.create("T", 2).await;
    for number in 0..120 {
        let answer = site.ask(send("T", number % 2, &[b'x'; 4000], "")).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    }
    // Where a queue still has its first message, a new group begins there.
    let min = |queue| site.broker.context().store.min_offset("T", queue);
    eventually("old messages go", async || {
        site.ask_ok(Command::request(request::DELETE_EXPIRED_COMMITLOG))
            .await;
        min(0) > 0 && min(1) > 0
    })
    .await;
    let newest = |most| {
        let mut ask = pop("G", "T", -1, most, LONG_MS, 0);
        ask.fields.set("initMode", "1");
        ask
    };
    // The answer is full before the pop comes to the other queue.
    let first = popped(&site.ask_ok(newest(1)).await);
    assert_eq!((first.len(), first[0].offset), (1, 59));
    let other = 1 - first[0].queue_id;
    for body in ["a", "b"] {
        let answer = site.ask(send("T", other, body.as_bytes(), "")).await;
        assert_eq!(answer.code, response::SUCCESS);
    }
    let rest = popped(&site.ask_ok(newest(32)).await);
    let places: Vec<(i32, i64)> = rest
        .iter()
        .map(|message| (message.queue_id, message.offset))
        .collect();
    assert_eq!(places, [(other, 59), (other, 60), (other, 61)]);
    let oldest = popped(&site.ask_ok(pop("H", "T", 0, 1, LONG_MS, 0)).await);
    assert_eq!(oldest[0].offset, min(0));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_come_before_the_topic_or_behind_it_as_often_as_configured() {
    for (percent, first) in [(0, "m01"), (100, "m00")] {
        let dir = TempDir::new();
        let mut settings = short_intervals(options(&dir));
        settings.pop_from_retry_probability = percent;
        let site = Site::start(settings);
        site.create("T", 1).await;
        fill(&site, 1, 0..1).await;
        assert_eq!(pop_until(&site, "G", "T", 1, SHORT_MS).await.len(), 1);
        let retry = names::pop_retry_topic("T", "G");
        eventually("it waits in the retry topic", async || {
            site.broker.context().store.max_offset(&retry, 0) == 1
        })
        .await;
        fill(&site, 1, 1..2).await;
        let found = popped(&site.ask_ok(pop("G", "T", -1, 1, LONG_MS, 0)).await);
        assert_eq!(bodies(&found), [first], "{percent} percent");
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_a_retry_topic_of_version_1_comes_after_version_2_was_switched_on() {
    for is_read in [true, false] {
        let dir = TempDir::new();
        let before = site(&dir, 1, 2).await;
        assert_eq!(pop_until(&before, "G", "T", 2, SHORT_MS).await.len(), 2);
        let retry = names::pop_retry_topic("T", "G");
        eventually("they wait in the retry topic", async || {
            before.broker.context().store.max_offset(&retry, 0) == 2
        })
        .await;
        before.stop().await;
        let mut settings = short_intervals(options(&dir));
        settings.enable_retry_topic_v2 = true;
        settings.retrieve_message_from_pop_retry_topic_v1 = is_read;
        let site = Site::start(settings);
        let answer = site.ask(pop("G", "T", -1, 32, LONG_MS, 500)).await;
        let expected: &[&str] = if is_read { &["m00", "m01"] } else { &[] };
        assert_eq!(bodies(&popped(&answer)), expected, "read: {is_read}");
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pop_beyond_the_limits_of_those_that_wait_is_answered_at_once() {
    let dir = TempDir::new();
    let mut settings = short_intervals(options(&dir));
    settings.pop_polling_size = 1;
    settings.max_pop_polling_size = 3;
    let site = Site::start(settings);
    site.create("T", 2).await;
    let wait = |group: &str, queue| pop(group, "T", queue, 32, LONG_MS, 30_000);
    let waiting = async |queue: &str| {
        let fields = [("consumerGroup", "G"), ("topic", "T"), ("queueId", queue)];
        let info = site.ask_ok(with(request::POLLING_INFO, &fields)).await;
        number(&info, "pollingNum")
    };
    let held = site.asking(wait("G", -1));
    eventually("the first waits", async || waiting("-1").await == 1).await;
    let full = site.ask(wait("G", -1)).await;
    assert_eq!(full.code, response::POLLING_FULL, "popPollingSize");
    let notice = [
        ("consumerGroup", "G"),
        ("topic", "T"),
        ("queueId", "-1"),
        ("pollTime", "30000"),
        ("bornTime", "0"),
    ];
    // Notifications have a line of their own.
    let notified = site.asking(with(request::NOTIFICATION, &notice));
    let second = notice.map(|(name, text)| (name, if name == "pollTime" { "50" } else { text }));
    eventually("the notification waits", async || {
        let answer = site.ask_ok(with(request::NOTIFICATION, &second)).await;
        assert_eq!(answer.fields.get("hasMsg"), Some("false"));
        answer.fields.get("pollingFull") == Some("true")
    })
    .await;
    assert_eq!(waiting("-1").await, 1, "only pops are counted");
    // A queue has a line of its own.
    let of_queue = site.asking(wait("G", 0));
    eventually("the second waits", async || waiting("0").await == 1).await;
    let full = site.ask(wait("H", -1)).await;
    assert_eq!(full.code, response::POLLING_FULL, "maxPopPollingSize");
    // Those that waited still get what arrives.
    for (held, number, body) in [(held, 1, "m01"), (of_queue, 0, "m00")] {
        fill(&site, 2, number..number + 1).await;
        let answer = tokio::time::timeout(LIMIT, held).await.unwrap().unwrap().unwrap();
        assert_eq!(bodies(&popped(&answer)), [body]);
    }
    drop(notified);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_back_names_its_group() {
    let dir = TempDir::new();
    let site = Site::start(short_intervals(options(&dir)));
    site.create("T", 1).await;
    // Of another group, as a message that was forwarded has it.
    site.send_ok("T", b"m", &properties(&[("ORIGIN_GROUP", "H"), ("a", "b")]))
        .await;
    for _ in 0..2 {
        assert_eq!(pop_until(&site, "G", "T", 1, SHORT_MS).await.len(), 1);
    }
    let ask = pop("G", "T", -1, 1, LONG_MS, 10_000);
    let again = site.ask_ok(ask).await;
    let (_, _, text) = records(&again).remove(0);
    let pairs: Vec<(&str, &str)> = text
        .split_terminator('\u{2}')
        .filter_map(|pair| pair.split_once('\u{1}'))
        .collect();
    let groups: Vec<&(&str, &str)> = pairs.iter().filter(|(name, _)| *name == "ORIGIN_GROUP").collect();
    assert_eq!(groups, [&("ORIGIN_GROUP", "G")], "{text:?}");
    assert!(pairs.contains(&("a", "b")), "{text:?}");
    site.ask_ok(ack("G", &popped(&again)[0])).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_back_even_if_its_properties_have_no_room_for_more() {
    let dir = TempDir::new();
    let site = Site::start(short_intervals(options(&dir)));
    site.create("T", 1).await;
    let mut size = 32_767;
    // The broker adds some of its own to each message.
    while site
        .send("T", b"m", &properties(&[("a", &"x".repeat(size))]))
        .await
        .code
        != response::SUCCESS
    {
        size -= 1;
        assert!(size > 32_000, "none was stored");
    }
    assert_eq!(pop_until(&site, "G", "T", 1, SHORT_MS).await.len(), 1);
    let retry = names::pop_retry_topic("T", "G");
    eventually("it is in the retry topic", async || {
        site.broker.context().store.max_offset(&retry, 0) == 1
    })
    .await;
    site.stop().await;
}
