//! Groups that pop the messages of a queue in order, also after a kill, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "the test reads and writes the broker's files itself"
)]

mod common;

use common::pops::{
    Popped, ack, bodies, hide, make_again, pop, popped, reset, restart_as_killed, short_intervals, site, with,
};
use common::{LIMIT, Site, TempDir, eventually, number, options};
use pyrmq_broker::Options;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use std::time::Duration;

/// Longer than a test takes.
const LONG_MS: i64 = 60_000;
/// Soon over.
const SHORT_MS: i64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_group_gets_a_queue_again_when_all_of_it_is_done() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 6).await;
    let ordered = |attempt: &str, invisible_ms: i64, wait_ms: i64| {
        pop("O", "T", -1, 3, invisible_ms, wait_ms)
            .with_field("order", "true")
            .with_field("attemptId", attempt)
    };
    let first = site.ask_ok(ordered("a", LONG_MS, 0)).await;
    assert_eq!(number(&first, "reviveQid"), 999);
    assert_eq!(first.fields.get("orderCountInfo"), Some("0 0 0"));
    let messages = popped(&first);
    assert_eq!(bodies(&messages), ["m00", "m01", "m02"]);
    assert_eq!(
        popped(&site.ask(ordered("b", LONG_MS, 0)).await),
        [],
        "the queue is closed"
    );
    // The answer was lost, so the client asks again with its attempt id.
    let messages = popped(&site.ask_ok(ordered("a", LONG_MS, 0)).await);
    assert_eq!(bodies(&messages), ["m00", "m01", "m02"]);
    for message in messages.iter().rev().take(2) {
        site.ask_ok(ack("O", message)).await;
    }
    assert_eq!(
        popped(&site.ask(ordered("b", LONG_MS, 0)).await),
        [],
        "one is not done"
    );
    let waiting = site.asking(ordered("b", SHORT_MS, 30_000));
    site.ask_ok(ack("O", &messages[0])).await;
    let answer = tokio::time::timeout(LIMIT, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(bodies(&popped(&answer)), ["m03", "m04", "m05"]);
    // Not acknowledged: they are delivered again in the same queue and order, by themselves.
    let again = site.asking(ordered("c", LONG_MS, 30_000));
    let answer = tokio::time::timeout(LIMIT, again)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(bodies(&popped(&answer)), ["m03", "m04", "m05"]);
    assert_eq!(
        answer.fields.get("orderCountInfo"),
        Some("0 qo0%3 1;0 qo0%4 1;0 qo0%5 1;0 0 1")
    );
    let stale = site.ask(ack("O", &messages[0])).await;
    assert_eq!(stale.code, response::SUCCESS, "done long ago");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_of_an_ordered_group_comes_when_its_queue_opens() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 2).await;
    let ordered = |invisible_ms: i64| {
        pop("O", "T", 0, 1, invisible_ms, 0)
            .with_field("order", "true")
            .with_field("attemptId", "a")
    };
    let notice = |wait: &str, fields: &[(&str, &str)]| {
        let common = [
            ("consumerGroup", "O"),
            ("topic", "T"),
            ("queueId", "-1"),
            ("pollTime", wait),
            ("bornTime", "0"),
        ];
        with(request::NOTIFICATION, &[&common, fields].concat())
    };
    let has_messages = |answer: &Command| {
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        answer.fields.get("hasMsg") == Some("true")
    };
    let in_order = [("order", "true")];
    assert!(has_messages(&site.ask(notice("0", &in_order)).await));
    popped(&site.ask_ok(ordered(SHORT_MS)).await);
    assert!(!has_messages(&site.ask(notice("0", &in_order)).await), "closed");
    assert!(
        has_messages(&site.ask(notice("0", &[])).await),
        "without an order"
    );
    let attempt = [("order", "true"), ("attemptId", "a")];
    assert!(
        has_messages(&site.ask(notice("0", &attempt)).await),
        "its own attempt"
    );
    // By itself.
    let answer = tokio::time::timeout(LIMIT, site.asking(notice("30000", &in_order))).await;
    assert!(has_messages(&answer.unwrap().unwrap().unwrap()));
    // By an acknowledgement.
    let messages = popped(&site.ask_ok(ordered(LONG_MS)).await);
    let waiting = site.asking(notice("30000", &in_order));
    assert!(
        !has_messages(&site.ask(notice("300", &in_order)).await),
        "closed again"
    );
    site.ask_ok(ack("O", &messages[0])).await;
    let answer = tokio::time::timeout(LIMIT, waiting).await;
    assert!(has_messages(&answer.unwrap().unwrap().unwrap()));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_message_is_hidden_for_longer_and_given_back() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 2).await;
    let ordered = |invisible_ms: i64, wait_ms: i64| {
        pop("O", "T", 0, 1, invisible_ms, wait_ms).with_field("order", "true")
    };
    let messages = popped(&site.ask_ok(ordered(SHORT_MS, 0)).await);
    let longer = site.ask_ok(hide("O", &messages[0], LONG_MS)).await;
    assert!(number(&longer, "invisibleTime") >= LONG_MS);
    let waiting = site.asking(ordered(LONG_MS, 30_000));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let info = with(
        request::POLLING_INFO,
        &[("consumerGroup", "O"), ("topic", "T"), ("queueId", "0")],
    );
    assert_eq!(
        number(&site.ask_ok(info).await, "pollingNum"),
        1,
        "it was not hidden for longer"
    );
    site.ask_ok(hide("O", &messages[0], 0)).await;
    let answer = tokio::time::timeout(LIMIT, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(bodies(&popped(&answer)), ["m00"]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_message_that_another_has_is_not_hidden_for_longer() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 2).await;
    let ordered = |invisible_ms: i64| pop("O", "T", 0, 1, invisible_ms, 30_000).with_field("order", "true");
    let late = popped(&site.ask_ok(ordered(SHORT_MS)).await);
    // Its time is over, and another member has it now.
    let again = popped(&site.ask_ok(ordered(LONG_MS)).await);
    assert_eq!(bodies(&again), bodies(&late));
    let times = |answer: &Command| (number(answer, "popTime"), number(answer, "invisibleTime"));
    let refused = site.ask_ok(hide("O", &late[0], LONG_MS)).await;
    assert_eq!(times(&refused), (0, 0), "two members have the message");
    site.ask_ok(ack("O", &late[0])).await;
    let info = site.ask_ok(hide("O", &again[0], LONG_MS)).await;
    assert!(
        times(&info).0 > 0,
        "the late acknowledgement counted for the other member's message"
    );
    site.ask_ok(ack("O", &again[0])).await;
    let next = popped(&site.ask_ok(ordered(LONG_MS)).await);
    assert_eq!(bodies(&next), ["m01"]);
    let done = site.ask_ok(hide("O", &again[0], LONG_MS)).await;
    assert_eq!(times(&done), (0, 0), "the message is done");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_after_a_kill_passes_over_no_ordered_message() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 6).await;
    let ordered = || pop("O", "T", 0, 3, LONG_MS, 0).with_field("order", "true");
    let held = second_batch(&site, &ordered()).await;
    site.stop().await;
    // As a kill leaves them: what was handed out and committed since the files were written is lost.
    let config = dir.path().join("store/config");
    for name in ["consumerOrderInfo.json", "consumerOffset.json"] {
        std::fs::remove_file(config.join(name)).unwrap();
        drop(std::fs::remove_file(config.join(format!("{name}.bak"))));
    }
    let site = Site::start(short_intervals(options(&dir)));
    // A forged handle of a pop that began behind its message.
    let words: Vec<&str> = held[1].handle.split(' ').collect();
    let forged = Popped {
        handle: ["100", &words[1..].join(" ")].join(" "),
        ..held[1].clone()
    };
    site.ask_ok(ack("O", &forged)).await;
    // The second of three: the first may never be acknowledged.
    site.ask_ok(ack("O", &held[1])).await;
    let again = popped(&site.ask_ok(ordered()).await);
    assert_eq!(bodies(&again), ["m03", "m04", "m05"]);
    site.stop().await;
}

/// Acknowledges the first of two batches; returns the second, which stays with the group.
async fn second_batch(site: &Site, ordered: &Command) -> Vec<Popped> {
    for message in popped(&site.ask_ok(ordered.clone()).await) {
        site.ask_ok(ack("O", &message)).await;
    }
    let held = popped(&site.ask_ok(ordered.clone()).await);
    assert_eq!(bodies(&held), ["m03", "m04", "m05"]);
    held
}

/// Options under which offsets are written at a stop only.
fn without_offsets(dir: &TempDir) -> Options {
    let mut options = short_intervals(options(dir));
    options.flush_consumer_offset_interval = 3_600_000;
    options.flush_delay_offset_interval = 3_600_000;
    options
}

/// Stops the broker, and leaves its files of consumers as a kill would have left them once the state of ordered groups
/// was written as `is_written` expects it.
async fn stop_as_killed(site: Site, dir: &TempDir, is_written: impl Fn(&str) -> bool) {
    let names = ["consumerOrderInfo.json", "consumerOffset.json"];
    let files = names.map(|name| dir.path().join("store/config").join(name));
    eventually("the state of ordered groups is written", async || {
        std::fs::read_to_string(&files[0]).is_ok_and(|text| is_written(&text))
    })
    .await;
    let before = files.each_ref().map(|file| {
        let text = std::fs::read(file).unwrap();
        (text, std::fs::metadata(file).unwrap().modified().unwrap())
    });
    site.stop().await;
    for (file, (text, modified)) in files.iter().zip(before) {
        std::fs::write(file, text).unwrap();
        let handle = std::fs::File::options().write(true).open(file).unwrap();
        handle.set_modified(modified).unwrap();
    }
    std::fs::write(dir.path().join("store/abort"), "").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_group_goes_on_after_a_kill_where_it_was_a_moment_before() {
    let dir = TempDir::new();
    let before = site(&dir, 1, 6).await;
    let ordered = |most| pop("O", "T", 0, most, LONG_MS, 0).with_field("order", "true");
    for message in popped(&before.ask_ok(ordered(1)).await) {
        before.ask_ok(ack("O", &message)).await;
    }
    before.stop().await;
    let site = Site::start(without_offsets(&dir));
    for message in popped(&site.ask_ok(ordered(2)).await) {
        site.ask_ok(ack("O", &message)).await;
    }
    let held = popped(&site.ask_ok(ordered(2)).await);
    site.ask_ok(ack("O", &held[0])).await;
    let pop_time = held[0].handle.split(' ').nth(1).unwrap();
    let is_written = |done: &str| {
        let done = format!("\"cm\":{done}");
        move |text: &str| text.contains(pop_time) && text.contains(&done)
    };
    stop_as_killed(site, &dir, is_written("1")).await;

    let site = Site::start(without_offsets(&dir));
    let none = popped(&site.ask(ordered(32)).await);
    assert_eq!(none, [], "the last message of the pop is still hidden");
    site.ask_ok(ack("O", &held[1])).await;
    stop_as_killed(site, &dir, is_written("3")).await;

    let site = Site::start(without_offsets(&dir));
    let next = popped(&site.ask_ok(ordered(32)).await);
    assert_eq!(bodies(&next), ["m05"]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ordered_groups_had_undoes_no_reset_and_no_deletion_after_a_kill() {
    let dir = TempDir::new();
    let before = site(&dir, 1, 3).await;
    let ordered = || pop("O", "T", 0, 32, LONG_MS, 0).with_field("order", "true");
    let take = async |site: &Site| {
        let messages = popped(&site.ask_ok(ordered()).await);
        for message in &messages {
            site.ask_ok(ack("O", message)).await;
        }
        messages
    };
    before.stop().await;
    let all = ["m00", "m01", "m02"];
    let mut site = Site::start(without_offsets(&dir));
    assert_eq!(bodies(&take(&site).await), all);
    tokio::time::sleep(Duration::from_millis(400)).await;
    site.ask_ok(reset("O", "T")).await;
    stop_as_killed(site, &dir, |_| true).await;
    site = Site::start(without_offsets(&dir));
    assert_eq!(bodies(&take(&site).await), all, "a reset was undone");
    let delete = [("groupName", "O"), ("cleanOffset", "true")];
    site.ask_ok(with(request::DELETE_SUBSCRIPTIONGROUP, &delete))
        .await;
    stop_as_killed(site, &dir, |_| true).await;
    site = Site::start(without_offsets(&dir));
    assert_eq!(bodies(&take(&site).await), all, "a group came back");
    make_again(&site, 3..6).await;
    stop_as_killed(site, &dir, |_| true).await;
    site = Site::start(without_offsets(&dir));
    let new = take(&site).await;
    assert_eq!(bodies(&new), ["m03", "m04", "m05"], "a topic's offset came back");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_acknowledgements_of_an_ordered_group_move_nothing_that_is_new() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 6).await;
    let ordered = || pop("O", "T", 0, 3, LONG_MS, 0).with_field("order", "true");
    let held = second_batch(&site, &ordered()).await;
    site.ask_ok(reset("O", "T")).await;
    site.stop().await;
    let site = restart_as_killed(&dir);
    for message in &held {
        site.ask_ok(ack("O", message)).await;
    }
    let again = popped(&site.ask_ok(ordered()).await);
    assert_eq!(bodies(&again), ["m00", "m01", "m02"], "the reset was undone");
    make_again(&site, 6..12).await;
    for message in &again {
        site.ask_ok(ack("O", message)).await;
    }
    let new = popped(&site.ask_ok(ordered()).await);
    assert_eq!(bodies(&new), ["m06", "m07", "m08"]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_order_does_what_it_can() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 6).await;
    let ordered = || pop("O", "T", 0, 2, LONG_MS, 0).with_field("order", "true");
    let answer = site.ask_ok(ordered()).await;
    assert_eq!(bodies(&popped(&answer)), ["m00", "m01"]);
    let batch = |bits: &str| {
        let time = number(&answer, "popTime");
        let body = format!(
            r#"{{"acks":[{{"b":"{bits}","c":"O","it":{LONG_MS},"pt":{time},"q":0,"r":"0","rq":999,"so":0,"t":"T"}}],"brokerName":"broker-a"}}"#
        );
        Command::request(request::BATCH_ACK_MESSAGE).with_body(body)
    };
    // Offset 2 was not handed out.
    let refused = site.ask(batch("BA==")).await;
    assert_eq!(refused.code, response::MESSAGE_ILLEGAL, "{:?}", refused.remark);
    // Offsets 0 to 2: the others are done, though the answer is the same.
    let refused = site.ask(batch("Bw==")).await;
    assert_eq!(refused.code, response::MESSAGE_ILLEGAL, "{:?}", refused.remark);
    assert_eq!(bodies(&popped(&site.ask_ok(ordered()).await)), ["m02", "m03"]);
    site.stop().await;
}
