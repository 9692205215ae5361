//! Messages that are popped, acknowledged, hidden for longer and brought back, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "the test reads and writes the broker's file itself"
)]

mod common;

use common::pops::{
    OldFiles, Popped, ack, bodies, fill, hide, make_again, pop, pop_until, popped, reset, restart_as_killed,
    short_intervals, site, with,
};
use common::{LIMIT, Site, TempDir, eventually, number, options, properties, send, text};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::names;

/// Longer than a test takes.
const LONG_MS: i64 = 60_000;
/// Soon over.
const SHORT_MS: i64 = 600;

/// Pops for the group `G` and acknowledges all of it.
async fn take_all(site: &Site, ask: Command) -> Vec<Popped> {
    let messages = popped(&site.ask_ok(ask).await);
    for message in &messages {
        site.ask_ok(ack("G", message)).await;
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_is_gone_and_the_rest_comes_back() {
    let dir = TempDir::new();
    let site = site(&dir, 2, 6).await;
    let first = popped(&site.ask_ok(pop("G", "T", -1, 32, SHORT_MS, 0)).await);
    assert_eq!(bodies(&first), ["m00", "m01", "m02", "m03", "m04", "m05"]);
    let none = site.ask(pop("G", "T", -1, 32, SHORT_MS, 0)).await;
    assert_eq!(
        none.code,
        response::POLLING_TIMEOUT,
        "hidden messages were popped"
    );
    let (done, left): (Vec<_>, Vec<_>) = first
        .into_iter()
        .partition(|message| message.body.as_str() < "m02");
    for message in &done {
        site.ask_ok(ack("G", message)).await;
    }
    let again = pop_until(&site, "G", "T", left.len(), LONG_MS).await;
    assert_eq!(bodies(&again), bodies(&left));
    for message in &again {
        assert_eq!((message.topic.as_str(), message.reconsume_times), ("T", 1));
        assert!(message.handle.contains(" 1 broker-a 0 "), "{}", message.handle);
        site.ask_ok(ack("G", message)).await;
    }
    // Another group has all of them.
    let other = pop_until(&site, "H", "T", 6, LONG_MS).await;
    assert_eq!(other.len(), 6);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_back_until_it_is_acknowledged() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 1).await;
    for tries in 0..3 {
        let messages = pop_until(&site, "G", "T", 1, SHORT_MS).await;
        assert_eq!(messages.len(), 1, "try {tries}");
        assert_eq!(messages[0].reconsume_times, tries);
    }
    let last = pop_until(&site, "G", "T", 1, SHORT_MS).await;
    site.ask_ok(ack("G", &last[0])).await;
    // Used twice, and after its time: answered, without effect.
    site.ask_ok(ack("G", &last[0])).await;
    let none = site.ask(pop("G", "T", -1, 32, SHORT_MS, SHORT_MS * 3)).await;
    assert_eq!(popped(&none), []);
    site.ask_ok(ack("G", &last[0])).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_whose_time_is_over_says_nothing_of_the_next_delivery() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 2).await;
    let first = popped(&site.ask_ok(pop("G", "T", 0, 2, SHORT_MS, 0)).await);
    let second = pop_until(&site, "G", "T", 2, 2 * SHORT_MS).await;
    assert_eq!(bodies(&second), bodies(&first));
    for message in &first {
        site.ask_ok(ack("G", message)).await;
    }
    let third = pop_until(&site, "G", "T", 2, LONG_MS).await;
    assert_eq!(bodies(&third), bodies(&first), "a late acknowledgement counted");
    // A change by such a handle hands the message out once more, for it has a time of its own now.
    site.ask_ok(hide("G", &first[0], 0)).await;
    let again = pop_until(&site, "G", "T", 1, LONG_MS).await;
    assert_eq!(bodies(&again), [first[0].body.as_str()]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_hidden_for_no_time_come_again_at_once() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 2).await;
    let first = popped(&site.ask_ok(pop("G", "T", 0, 2, 0, 0)).await);
    assert_eq!(first.len(), 2);
    let again = pop_until(&site, "G", "T", 2, LONG_MS).await;
    assert_eq!(bodies(&again), bodies(&first));
    assert!(again.iter().all(|message| message.reconsume_times == 1));
    let ordered = || pop("O", "T", 0, 2, 0, 0).with_field("order", "true");
    for _ in 0..2 {
        assert_eq!(bodies(&popped(&site.ask_ok(ordered()).await)), ["m00", "m01"]);
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_pulls_and_pops_in_turn_misses_nothing() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 6).await;
    let commit = |offset: &str| {
        with(
            request::UPDATE_CONSUMER_OFFSET,
            &[
                ("consumerGroup", "G"),
                ("topic", "T"),
                ("queueId", "0"),
                ("commitOffset", offset),
            ],
        )
    };
    // It pulls the first two, pops the next two, and acknowledges one of them.
    site.ask_ok(common::pull("G", "T", 0, "*", None)).await;
    site.ask_ok(commit("2")).await;
    let popped_by_it = popped(&site.ask_ok(pop("G", "T", 0, 2, SHORT_MS, 0)).await);
    assert_eq!(bodies(&popped_by_it), ["m02", "m03"]);
    site.ask_ok(ack("G", &popped_by_it[1])).await;
    // It pulls again: from behind what it popped. Then it pops, and gets what it did not acknowledge.
    let query = [("consumerGroup", "G"), ("topic", "T"), ("queueId", "0")];
    let offset = site.ask_ok(with(request::QUERY_CONSUMER_OFFSET, &query)).await;
    assert_eq!(number(&offset, "offset"), 4);
    site.ask_ok(common::pull("G", "T", 4, "*", None)).await;
    site.ask_ok(commit("5")).await;
    let rest = pop_until(&site, "G", "T", 2, LONG_MS).await;
    assert_eq!(bodies(&rest), ["m02", "m05"]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_acknowledgements_counts_for_each_message() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 10).await;
    let answer = site.ask_ok(pop("G", "T", 0, 10, SHORT_MS, 0)).await;
    let body = |retry: &str, bits: &str, broker: &str| {
        format!(
            r#"{{"acks":[{{"b":"{bits}","c":"G","it":{SHORT_MS},"pt":{},"q":0,"r":"{retry}","rq":{},"so":0,"t":"T"}}],"brokerName":"{broker}"}}"#,
            number(&answer, "popTime"),
            number(&answer, "reviveQid"),
        )
    };
    let batch = |body: String| Command::request(request::BATCH_ACK_MESSAGE).with_body(body);
    let other = site.ask(batch(body("0", "BQ==", "broker-b"))).await;
    assert_eq!(other.code, response::MESSAGE_ILLEGAL);
    let empty = site
        .ask(batch(r#"{"acks":[],"brokerName":"broker-a"}"#.to_owned()))
        .await;
    assert_eq!(empty.code, response::NO_MESSAGE);
    let wrong_bits = site.ask(batch(body("0", "?", "broker-a"))).await;
    assert_eq!(wrong_bits.code, response::MESSAGE_ILLEGAL);
    let wrong_source = site.ask(batch(body("7", "BQ==", "broker-a"))).await;
    assert_eq!(wrong_source.code, response::INVALID_PARAMETER);
    // Offsets 0 and 2, 8 and 9. Beside them an entry with wrong bits, which is passed over.
    let (wrong, right) = (body("0", "?", "broker-a"), body("0", "BQM=", "broker-a"));
    let both = wrong.replacen(
        r#"{"acks":["#,
        &right.replace(r#"],"brokerName":"broker-a"}"#, ","),
        1,
    );
    site.ask_ok(batch(both)).await;
    let again = pop_until(&site, "G", "T", 6, LONG_MS).await;
    assert_eq!(bodies(&again), ["m01", "m03", "m04", "m05", "m06", "m07"]);
    let none = site.ask(pop("G", "T", -1, 32, LONG_MS, 500)).await;
    assert_eq!(popped(&none), []);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_for_a_deleted_topic_are_refused_alone_and_in_a_batch() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 2).await;
    site.create("U", 1).await;
    let answer = site.ask(send("U", 0, b"kept", "")).await;
    assert_eq!(answer.code, response::SUCCESS);
    let gone = popped(&site.ask_ok(pop("G", "T", 0, 2, LONG_MS, 0)).await);
    let kept = popped(&site.ask_ok(pop("G", "U", 0, 1, SHORT_MS, 0)).await);
    site.ask_ok(with(request::DELETE_TOPIC_IN_BROKER, &[("topic", "T")]))
        .await;
    let entry = |message: &Popped, invisible_ms: i64| {
        let words: Vec<&str> = message.handle.split(' ').collect();
        format!(
            r#"{{"b":"AQ==","c":"G","it":{invisible_ms},"pt":{},"q":0,"r":"0","rq":{},"so":0,"t":"{}"}}"#,
            words[1], words[3], message.topic
        )
    };
    let batch = |entries: &[String]| {
        let body = format!(r#"{{"acks":[{}],"brokerName":"broker-a"}}"#, entries.join(","));
        Command::request(request::BATCH_ACK_MESSAGE).with_body(body)
    };
    let (of_gone, of_kept) = (entry(&gone[0], LONG_MS), entry(&kept[0], SHORT_MS));
    for refused in [
        ack("G", &gone[0]),
        hide("G", &gone[0], LONG_MS),
        batch(std::slice::from_ref(&of_gone)),
    ] {
        let answer = site.ask(refused).await;
        assert_eq!(answer.code, response::TOPIC_NOT_EXIST, "{:?}", answer.remark);
    }
    // The others of a batch are done all the same.
    site.ask_ok(batch(&[of_gone, of_kept])).await;
    let none = site.ask(pop("G", "U", -1, 32, LONG_MS, SHORT_MS * 3)).await;
    assert_eq!(popped(&none), []);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_invisible_time_counts_from_now() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 2).await;
    let messages = popped(&site.ask_ok(pop("G", "T", 0, 2, SHORT_MS, 0)).await);
    let later = site.ask_ok(hide("G", &messages[0], LONG_MS)).await;
    assert_eq!(number(&later, "invisibleTime"), LONG_MS);
    // Only the other one comes back at the first time.
    let again = pop_until(&site, "G", "T", 1, LONG_MS).await;
    assert_eq!(bodies(&again), ["m01"]);
    let none = site.ask(pop("G", "T", -1, 32, LONG_MS, 500)).await;
    assert_eq!(popped(&none), []);
    // Given back at once, with the new handle.
    let renewed = Popped {
        handle: format!(
            "0 {} {LONG_MS} {} 0 broker-a 0 0",
            number(&later, "popTime"),
            number(&later, "reviveQid")
        ),
        ..messages[0].clone()
    };
    site.ask_ok(hide("G", &renewed, 0)).await;
    let again = pop_until(&site, "G", "T", 1, LONG_MS).await;
    assert_eq!(bodies(&again), ["m00"]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pop_gets_what_arrives_and_what_comes_back() {
    let dir = TempDir::new();
    let site = site(&dir, 4, 0).await;
    let waiting = site.asking(pop("G", "T", -1, 32, SHORT_MS, 30_000));
    eventually("the pop waits", async || {
        let info = site.ask_ok(polling_info(-1)).await;
        number(&info, "pollingNum") == 1
    })
    .await;
    fill(&site, 4, 3..4).await;
    let answer = tokio::time::timeout(LIMIT, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(bodies(&popped(&answer)), ["m03"]);
    let back = site.asking(pop("G", "T", -1, 32, LONG_MS, 30_000));
    let answer = tokio::time::timeout(LIMIT, back).await.unwrap().unwrap().unwrap();
    assert_eq!(bodies(&popped(&answer)), ["m03"]);
    // Nobody waits any more, and one that waits in vain is answered at its time.
    assert_eq!(number(&site.ask_ok(polling_info(-1)).await, "pollingNum"), 0);
    let none = site.ask(pop("G", "T", 2, 32, LONG_MS, 100)).await;
    assert_eq!(none.code, response::POLLING_TIMEOUT);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pop_waits_for_the_tags_that_it_wants() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 0).await;
    let wanted = pop("G", "T", -1, 32, LONG_MS, 30_000)
        .with_field("exp", "b")
        .with_field("expType", "TAG");
    let waiting = site.asking(wanted);
    for (tag, body) in [("a", "no"), ("b", "yes")] {
        site.send_ok("T", body.as_bytes(), &properties(&[("TAGS", tag)]))
            .await;
    }
    let answer = tokio::time::timeout(LIMIT, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(bodies(&popped(&answer)), ["yes"]);
    site.stop().await;
}

fn polling_info(queue: i32) -> Command {
    with(
        request::POLLING_INFO,
        &[
            ("consumerGroup", "G"),
            ("topic", "T"),
            ("queueId", &queue.to_string()),
        ],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_says_that_there_are_messages() {
    let dir = TempDir::new();
    let site = site(&dir, 2, 0).await;
    let ask = |wait: &str| {
        with(
            request::NOTIFICATION,
            &[
                ("consumerGroup", "G"),
                ("topic", "T"),
                ("queueId", "-1"),
                ("pollTime", wait),
                ("bornTime", "0"),
            ],
        )
    };
    let none = site.ask_ok(ask("0")).await;
    assert_eq!(none.fields.get("hasMsg"), Some("false"));
    let waiting = site.asking(ask("30000"));
    fill(&site, 2, 0..1).await;
    let answer = tokio::time::timeout(LIMIT, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(answer.fields.get("hasMsg"), Some("true"));
    // It took nothing, nor does a look.
    let look = with(
        request::PEEK_MESSAGE,
        &[
            ("consumerGroup", "G"),
            ("topic", "T"),
            ("queueId", "-1"),
            ("maxMsgNums", "8"),
        ],
    );
    let seen = site.ask_ok(look.clone()).await;
    assert_eq!(common::records(&seen).len(), 1);
    assert_eq!(
        popped(&site.ask_ok(pop("G", "T", -1, 8, LONG_MS, 0)).await).len(),
        1
    );
    assert_eq!(site.ask(look).await.code, response::PULL_NOT_FOUND);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_and_takes_nothing() {
    let dir = TempDir::new();
    let site = site(&dir, 2, 2).await;
    for (command, code, word) in [
        (
            pop("G", "none", -1, 1, LONG_MS, 0),
            response::TOPIC_NOT_EXIST,
            "none",
        ),
        (
            pop("G", "T", 2, 1, LONG_MS, 0),
            response::INVALID_PARAMETER,
            "queueId[2]",
        ),
        (
            pop("G", "T", -2, 1, LONG_MS, 0),
            response::INVALID_PARAMETER,
            "queueId[-2]",
        ),
        (
            pop("G", "T", -1, 33, LONG_MS, 0),
            response::INVALID_PARAMETER,
            "greater than 32",
        ),
        (
            pop("G", "T", -1, 0, LONG_MS, 0),
            response::INVALID_PARAMETER,
            "less than 1",
        ),
        (
            pop("G", "T", -1, 1, -1, 0),
            response::INVALID_PARAMETER,
            "invisibleTime",
        ),
        (
            pop("G", "T", -1, 1, 400 * 86_400_000, 0),
            response::INVALID_PARAMETER,
            "timerMaxDelaySec",
        ),
        (
            pop("G", "T", -1, 1, i64::MAX, 0),
            response::INVALID_PARAMETER,
            "timerMaxDelaySec",
        ),
        (
            pop("a b", "T", -1, 1, LONG_MS, 0),
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            "a b",
        ),
        (
            pop("G", "T", -1, 1, LONG_MS, 0).with_field("exp", "||"),
            response::SUBSCRIPTION_PARSE_FAILED,
            "tag",
        ),
        (
            pop("G", "T", -1, 1, LONG_MS, 0)
                .with_field("exp", "a > 1")
                .with_field("expType", "SQL92"),
            response::SYSTEM_ERROR,
            "enablePropertyFilter",
        ),
    ] {
        let answer = site.ask(command).await;
        assert_eq!(answer.code, code, "{word}: {:?}", answer.remark);
        assert!(
            answer.remark.as_deref().unwrap_or_default().contains(word),
            "{word}: {:?}",
            answer.remark
        );
    }
    for code in [request::POP_MESSAGE, request::CHANGE_MESSAGE_INVISIBLETIME] {
        let answer = site.ask(with(code, &[])).await;
        assert_eq!(answer.code, response::INVALID_PARAMETER, "{:?}", answer.remark);
    }
    let messages = popped(&site.ask_ok(pop("G", "T", -1, 32, LONG_MS, 0)).await);
    assert_eq!(messages.len(), 2, "a refused pop took a message");
    refuses_bad_handles(&site, &messages[0]).await;
    site.stop().await;
}

async fn refuses_bad_handles(site: &Site, good: &Popped) {
    let elsewhere = format!("{} 7 8", good.handle);
    let words: Vec<&str> = good.handle.split(' ').collect();
    let other = |at: usize, word: &str| {
        let mut words = words.clone();
        words[at] = word;
        words.join(" ")
    };
    for (handle, code, word) in [
        (String::new(), response::INVALID_PARAMETER, "receipt handle"),
        ("0 1 2".to_owned(), response::INVALID_PARAMETER, "receipt handle"),
        (elsewhere, response::INVALID_PARAMETER, "receipt handle"),
        (other(3, "8"), response::MESSAGE_ILLEGAL, "revive queue 8"),
        (other(3, "-1"), response::MESSAGE_ILLEGAL, "revive queue -1"),
        (other(5, "broker-b"), response::MESSAGE_ILLEGAL, "broker-b"),
        (other(6, "7"), response::MESSAGE_ILLEGAL, "queue 7"),
        (
            other(1, "9223372036854775807"),
            response::MESSAGE_ILLEGAL,
            "max delay",
        ),
    ] {
        let message = Popped {
            handle,
            ..good.clone()
        };
        let fields = [
            ("consumerGroup", "G"),
            ("topic", "T"),
            ("queueId", &good.queue_id.to_string()),
            ("extraInfo", &message.handle),
            ("offset", &good.offset.to_string()),
        ];
        let answer = site.ask(with(request::ACK_MESSAGE, &fields)).await;
        assert_eq!(answer.code, code, "{word}: {:?}", answer.remark);
        assert!(
            answer.remark.as_deref().unwrap_or_default().contains(word),
            "{word}: {:?}",
            answer.remark
        );
    }
    for (offset, invisible, code) in [
        (9, LONG_MS, response::NO_MESSAGE),
        (-1, LONG_MS, response::NO_MESSAGE),
        (0, -1, response::INVALID_PARAMETER),
        (0, i64::MAX, response::INVALID_PARAMETER),
    ] {
        let message = Popped {
            offset,
            ..good.clone()
        };
        let answer = site.ask(hide("G", &message, invisible)).await;
        assert_eq!(answer.code, code, "{offset} {invisible}: {:?}", answer.remark);
    }
    let stranger = site.ask(ack("stranger", good)).await;
    assert_eq!(stranger.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_of_another_group_or_topic_and_forged_ones_have_no_effect() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 3).await;
    site.create("U", 1).await;
    for body in ["u0", "u1", "u2"] {
        let answer = site.ask(send("U", 0, body.as_bytes(), "")).await;
        assert_eq!(answer.code, response::SUCCESS);
    }
    for message in pop_until(&site, "H", "T", 3, LONG_MS).await {
        site.ask_ok(ack("H", &message)).await;
    }
    let of_u = popped(&site.ask_ok(pop("G", "U", 0, 3, 2 * SHORT_MS, 0)).await);
    let of_t = popped(&site.ask_ok(pop("G", "T", 0, 3, 2 * SHORT_MS, 0)).await);
    // Apache answers so, too: pop check points are in the log, not at hand.
    site.ask_ok(ack("H", &of_t[0])).await;
    let of_other_topic = Popped {
        topic: "U".to_owned(),
        ..of_t[1].clone()
    };
    site.ask_ok(ack("G", &of_other_topic)).await;
    let words: Vec<&str> = of_t[2].handle.split(' ').collect();
    let at = |place: usize, word: &str| {
        let mut words = words.clone();
        words[place] = word;
        Popped {
            handle: words.join(" "),
            ..of_t[2].clone()
        }
    };
    // Another start of the pop, another time of it.
    for forged in [at(0, "1"), at(1, "1700000000000")] {
        site.ask_ok(ack("G", &forged)).await;
    }
    let again = pop_until(&site, "G", "T", 3, LONG_MS).await;
    assert_eq!(bodies(&again), bodies(&of_t));
    let again = pop_until(&site, "G", "U", 3, LONG_MS).await;
    assert_eq!(bodies(&again), bodies(&of_u));
    let none = site.ask(pop("H", "T", -1, 32, LONG_MS, 300)).await;
    assert_eq!(popped(&none), [], "a group got what it had acknowledged");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_a_retry_topic_of_version_2_comes_after_the_option_was_switched_off() {
    let dir = TempDir::new();
    let with_v2 = |is_on| {
        let mut options = short_intervals(options(&dir));
        options.enable_retry_topic_v2 = is_on;
        options
    };
    let mut site = site(&dir, 1, 3).await;
    let all = ["m00", "m01", "m02"];
    site.stop().await;
    site = Site::start(with_v2(true));
    pop_until(&site, "G", "T", 3, SHORT_MS).await;
    let second = names::pop_retry_topic_v2("T", "G");
    eventually("they wait in the retry topic", async || {
        site.broker.context().store.max_offset(&second, 0) == 3
    })
    .await;
    site.stop().await;
    site = Site::start(with_v2(false));
    let source = |message: &Popped| message.handle.split(' ').nth(4).unwrap().to_owned();
    let look = [
        ("consumerGroup", "G"),
        ("topic", "T"),
        ("queueId", "-1"),
        ("pollTime", "0"),
        ("bornTime", "0"),
    ];
    let waiting = site.ask_ok(with(request::NOTIFICATION, &look)).await;
    assert_eq!(waiting.fields.get("hasMsg"), Some("true"));
    let messages = pop_until(&site, "G", "T", 3, SHORT_MS).await;
    assert_eq!(bodies(&messages), all);
    assert_eq!(source(&messages[0]), "2");
    // They come back to the topic that they came from, and wake pops that wait.
    let again = popped(&site.ask_ok(pop("G", "T", -1, 32, LONG_MS, 5_000)).await);
    assert_eq!(source(&again[0]), "2");
    let rest = pop_until(&site, "G", "T", 3 - again.len(), LONG_MS).await;
    for message in again.iter().chain(&rest) {
        site.ask_ok(ack("G", message)).await;
    }
    let none = site.ask(pop("G", "T", -1, 32, LONG_MS, 300)).await;
    assert_eq!(popped(&none), []);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_flight_outlive_a_restart() {
    let dir = TempDir::new();
    let before = site(&dir, 2, 6).await;
    let messages = popped(&before.ask_ok(pop("G", "T", -1, 4, 1500, 0)).await);
    before.ask_ok(ack("G", &messages[0])).await;
    let ordered = pop("O", "T", 0, 2, LONG_MS, 0).with_field("order", "true");
    popped(&before.ask_ok(ordered.clone()).await);
    before.stop().await;
    let site = Site::start(short_intervals(options(&dir)));
    site.ask_ok(ack("G", &messages[1])).await;
    assert_eq!(popped(&site.ask(ordered).await), [], "the queue is still closed");
    let rest = pop_until(&site, "G", "T", 4, LONG_MS).await;
    let mut expected: Vec<String> = (0..6).map(|number| format!("m{number:02}")).collect();
    expected.retain(|body| messages[..2].iter().all(|message| message.body != *body));
    assert_eq!(bodies(&rest), expected);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_before_a_kill_is_gone_although_offsets_are_older() {
    let dir = TempDir::new();
    let before = site(&dir, 1, 10).await;
    for message in popped(&before.ask_ok(pop("G", "T", 0, 2, LONG_MS, 0)).await) {
        before.ask_ok(ack("G", &message)).await;
    }
    before.stop().await;
    let old = OldFiles::read(&dir, &["config/consumerOffset.json"]);
    let site = Site::start(short_intervals(options(&dir)));
    let messages = popped(&site.ask_ok(pop("G", "T", 0, 6, SHORT_MS, 0)).await);
    for message in &messages[1..] {
        site.ask_ok(ack("G", message)).await;
    }
    site.stop().await;
    // As a kill leaves it: written before the last pop.
    old.put_back();
    let site = restart_as_killed(&dir);
    let rest = pop_until(&site, "G", "T", 3, LONG_MS).await;
    assert_eq!(bodies(&rest), ["m02", "m08", "m09"]);
    let none = site.ask(pop("G", "T", -1, 32, LONG_MS, 500)).await;
    assert_eq!(popped(&none), []);
    site.stop().await;
}

/// Has messages come back, kills the broker so that these of its files are older, and checks that nothing comes twice.
async fn comes_back_once(files: &[&str]) {
    let dir = TempDir::new();
    let before = site(&dir, 1, 3).await;
    let hidden = popped(&before.ask_ok(pop("G", "T", 0, 3, 4 * SHORT_MS, 0)).await);
    assert_eq!(hidden.len(), 3);
    eventually("the files are written", async || {
        OldFiles::are_there(&dir, &files[1..])
    })
    .await;
    before.stop().await;
    let old = OldFiles::read(&dir, files);
    let site = Site::start(short_intervals(options(&dir)));
    let back = pop_until(&site, "G", "T", 3, LONG_MS).await;
    assert!(back.iter().all(|message| message.reconsume_times == 1));
    for message in &back[1..] {
        site.ask_ok(ack("G", message)).await;
    }
    site.stop().await;
    old.put_back();
    let site = restart_as_killed(&dir);
    let none = site.ask(pop("G", "T", -1, 32, LONG_MS, 2 * SHORT_MS)).await;
    assert_eq!(popped(&none), []);
    site.ask_ok(hide("G", &back[0], 0)).await;
    let again = pop_until(&site, "G", "T", 1, LONG_MS).await;
    assert_eq!((again.len(), again[0].reconsume_times), (1, 2));
    // After a reset the messages are popped once more, and come back once more.
    site.ask_ok(reset("G", "T")).await;
    let first = popped(&site.ask_ok(pop("G", "T", 0, 3, SHORT_MS, 0)).await);
    assert_eq!(bodies(&first), bodies(&hidden));
    let back = pop_until(&site, "G", "T", 3, LONG_MS).await;
    assert_eq!(bodies(&back), bodies(&hidden));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_back_before_a_kill_does_not_come_back_once_more() {
    comes_back_once(&["config/consumerOffset.json"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_back_does_not_come_back_once_more_if_the_timer_delivers_twice() {
    comes_back_once(&["config/consumerOffset.json", "config/timercheck"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_back_does_not_come_back_once_more_after_a_clean_stop() {
    let dir = TempDir::new();
    let before = site(&dir, 1, 3).await;
    pop_until(&before, "G", "T", 3, SHORT_MS).await;
    let back = pop_until(&before, "G", "T", 3, LONG_MS).await;
    assert_eq!(bodies(&back), ["m00", "m01", "m02"]);
    for message in &back[1..] {
        before.ask_ok(ack("G", message)).await;
    }
    before.stop().await;
    // As if a pop check point before theirs were not done.
    let file = dir.path().join("store/config/consumerOffset.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let others = text.replace(names::REVIVE_GROUP, "other");
    assert_ne!(others, text);
    std::fs::write(&file, others).unwrap();
    let site = Site::start(short_intervals(options(&dir)));
    let none = site.ask(pop("G", "T", -1, 32, LONG_MS, 2 * SHORT_MS)).await;
    assert_eq!(popped(&none), []);
    site.ask_ok(hide("G", &back[0], 0)).await;
    let again = pop_until(&site, "G", "T", 1, LONG_MS).await;
    assert_eq!((again.len(), again[0].reconsume_times), (1, 2));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_did_to_offsets_is_not_undone_after_a_kill() {
    let all = ["m00", "m01", "m02"];
    let pop_all = || pop("G", "T", 0, 32, LONG_MS, 0);
    for is_killed in [false, true] {
        let dir = TempDir::new();
        let mut site = site(&dir, 1, 3).await;
        let start = || {
            if is_killed {
                restart_as_killed(&dir)
            } else {
                Site::start(short_intervals(options(&dir)))
            }
        };
        // Each time, the pop check points are younger than a second.
        assert_eq!(bodies(&take_all(&site, pop_all()).await), all);
        site.ask_ok(reset("G", "T")).await;
        site.stop().await;
        site = start();
        assert_eq!(
            bodies(&take_all(&site, pop_all()).await),
            all,
            "a reset was undone"
        );
        let delete = [("groupName", "G"), ("cleanOffset", "true")];
        site.ask_ok(with(request::DELETE_SUBSCRIPTIONGROUP, &delete))
            .await;
        site.stop().await;
        site = start();
        assert_eq!(
            bodies(&take_all(&site, pop_all()).await),
            all,
            "a group came back"
        );
        make_again(&site, 3..6).await;
        site.stop().await;
        site = start();
        let new = take_all(&site, pop_all()).await;
        assert_eq!(bodies(&new), ["m03", "m04", "m05"], "a topic's offset came back");
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_written_before_it_is_answered() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 3).await;
    take_all(&site, pop("G", "T", 0, 32, LONG_MS, 0)).await;
    site.ask_ok(reset("G", "T")).await;
    let file = std::fs::read_to_string(dir.path().join("store/config/consumerOffset.json")).unwrap();
    assert!(file.contains("\"T@G\":{\n\t\t\t0:0"), "{file}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_made_again_gets_nothing_of_the_old_one() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 3).await;
    let old = popped(&site.ask_ok(pop("G", "T", 0, 32, SHORT_MS, 0)).await);
    assert_eq!(old.len(), 3);
    make_again(&site, 3..6).await;
    let new = take_all(&site, pop("G", "T", 0, 32, LONG_MS, 0)).await;
    assert_eq!(bodies(&new), ["m03", "m04", "m05"]);
    let none = site.ask(pop("G", "T", -1, 32, LONG_MS, SHORT_MS * 3)).await;
    assert_eq!(popped(&none), [], "acknowledged messages came again");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_reaches_pops_and_a_deleted_topic_gives_nothing_back() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 3).await;
    assert_eq!(
        popped(&site.ask_ok(pop("G", "T", -1, 32, LONG_MS, 0)).await).len(),
        3
    );
    site.ask_ok(reset("G", "T")).await;
    assert_eq!(
        popped(&site.ask_ok(pop("G", "T", -1, 32, SHORT_MS, 0)).await).len(),
        3
    );
    site.ask_ok(with(request::DELETE_TOPIC_IN_BROKER, &[("topic", "T")]))
        .await;
    site.create("T", 1).await;
    let none = site.ask(pop("G", "T", -1, 32, LONG_MS, SHORT_MS * 3)).await;
    assert_eq!(popped(&none), []);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_are_kept_and_queues_are_assigned() {
    let dir = TempDir::new();
    let site = site(&dir, 4, 0).await;
    let mode = |topic: &str, mode: &str| {
        let body =
            format!(r#"{{"consumerGroup":"G","mode":"{mode}","popShareQueueNum":-1,"topic":"{topic}"}}"#);
        Command::request(request::SET_MESSAGE_REQUEST_MODE).with_body(body)
    };
    for (command, code) in [
        (mode("%RETRY%G", "POP"), response::NO_PERMISSION),
        (mode("none", "POP"), response::TOPIC_NOT_EXIST),
        (mode("T", "PUSH"), response::INVALID_PARAMETER),
        (mode("T", "POP"), response::SUCCESS),
    ] {
        assert_eq!(site.ask(command).await.code, code);
    }
    let heartbeat = r#"{"clientID":"c1","consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[]}],"producerDataSet":[]}"#;
    site.ask_ok(Command::request(request::HEART_BEAT).with_body(heartbeat))
        .await;
    let assign = |topic: &str, strategy: &str| {
        let body = format!(
            r#"{{"clientId":"c1","consumerGroup":"G","messageModel":"CLUSTERING","strategyName":"{strategy}","topic":"{topic}"}}"#
        );
        Command::request(request::QUERY_ASSIGNMENT).with_body(body)
    };
    let answer = text(&site.ask_ok(assign("T", "AVG")).await);
    assert_eq!(
        answer,
        r#"{"messageQueueAssignments":[{"messageQueue":{"brokerName":"broker-a","queueId":-1,"topic":"T"},"mode":"POP"}]}"#
    );
    site.create("U", 2).await;
    let answer = text(&site.ask_ok(assign("U", "AVG_BY_CIRCLE")).await);
    assert_eq!(answer.matches(r#""mode":"PULL""#).count(), 2, "{answer}");
    for unknown in [assign("none", "AVG"), assign("U", "none")] {
        assert_eq!(text(&site.ask_ok(unknown).await), "{}");
    }
    let all = text(
        &site
            .ask_ok(Command::request(request::GET_ALL_MESSAGE_REQUEST_MODE))
            .await,
    );
    let expected = r#"{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","popShareQueueNum":-1,"topic":"T"}}}}"#;
    assert_eq!(all, expected);
    site.stop().await;
    let site = Site::start(short_intervals(options(&dir)));
    let all = text(
        &site
            .ask_ok(Command::request(request::GET_ALL_MESSAGE_REQUEST_MODE))
            .await,
    );
    assert_eq!(all, expected);
    site.ask_ok(Command::request(request::POP_ROLLBACK)).await;
    site.stop().await;
}
