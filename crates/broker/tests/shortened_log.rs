//! Progress after the log was shortened, as `pyrmq log repair` does: what takes the places of lost messages is not
//! passed over.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and changes real files"
)]

mod common;

use common::pops::{Popped, ack, bodies, pop, pop_until, popped, short_intervals};
use common::{Site, TempDir, create, eventually, options, properties, pull, records};
use pyrmq_broker::{Broker, Options};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use std::path::PathBuf;
use tokio::runtime::Handle;

const HALVES: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
const CHECKER: &str = "CID_RMQ_SYS_TRANS";
const REVIVE_TOPIC: &str = "rmq_sys_REVIVE_LOG_DefaultCluster";
const REVIVER: &str = "CID_RMQ_SYS_REVIVE_GROUP";
const REVIVE_QUEUES: i32 = 8;
/// A topic that nothing was sent to.
const UNUSED: &str = "unused";

fn small(dir: &TempDir) -> Options {
    Options {
        message_delay_level: "1s".to_owned(),
        ..short_intervals(options(dir))
    }
}

fn root(dir: &TempDir) -> PathBuf {
    dir.path().join("store")
}

/// Ends the log at a position, as `pyrmq log repair --choice cut` does.
fn cut(dir: &TempDir, position: i64) {
    let log = root(dir).join("commitlog/00000000000000000000");
    let file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(u64::try_from(position).unwrap()).unwrap();
    file.set_len(length).unwrap();
    leave_unclean(dir);
    for name in ["checkpoint", "queueEnds"] {
        drop(std::fs::remove_file(root(dir).join(name)));
    }
}

/// Makes the last stop look like a crash.
fn leave_unclean(dir: &TempDir) {
    std::fs::write(root(dir).join("abort"), "1").unwrap();
}

fn saved(dir: &TempDir, name: &str) -> String {
    std::fs::read_to_string(root(dir).join("config").join(name)).unwrap()
}

fn commit(group: &str, topic: &str, offset: i64) -> Command {
    Command::request(request::UPDATE_CONSUMER_OFFSET)
        .with_field("consumerGroup", group)
        .with_field("topic", topic)
        .with_field("queueId", "0")
        .with_field("commitOffset", &offset.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_ahead_of_a_cut_log_move_back_to_its_end() {
    let dir = TempDir::new();
    let site = Site::start(small(&dir));
    site.ask_ok(create(UNUSED, 1)).await;
    for at in 0..5 {
        site.send_ok("T", format!("kept {at}").as_bytes(), "").await;
    }
    let end = site.broker.context().store.health().max_physical_offset;
    for at in 5..10 {
        site.send_ok("T", format!("lost {at}").as_bytes(), "").await;
    }
    let half = properties(&[("TRAN_MSG", "true"), ("PGROUP", "P"), ("UNIQ_KEY", "half")]);
    site.send_ok("T", b"half", &half).await;
    for _ in 0..3 {
        site.send_ok("later", b"delayed", &properties(&[("DELAY", "1")]))
            .await;
    }
    let context = site.broker.context();
    eventually("the level is delivered", async || {
        context.delays.offsets().get(&1) == Some(&3)
    })
    .await;
    site.ask_ok(commit("G", "T", 10)).await;
    site.ask_ok(commit("H", "T", 4)).await;
    context.offsets.commit(CHECKER, HALVES, 0, 1);
    context.offsets.commit("G", UNUSED, 0, 7);
    site.stop().await;
    cut(&dir, end);

    let site = Site::start(small(&dir));
    // Durable before the first request.
    let (offsets, delays) = (
        saved(&dir, "consumerOffset.json"),
        saved(&dir, "delayOffset.json"),
    );
    let context = site.broker.context();
    assert_eq!(context.offsets.get("G", "T", 0), Some(5));
    assert_eq!(context.offsets.get("H", "T", 0), Some(4));
    assert_eq!(context.offsets.get(CHECKER, HALVES, 0), Some(0));
    assert_eq!(
        context.offsets.get("G", UNUSED, 0),
        Some(7),
        "nobody knows its end"
    );
    assert_eq!(context.delays.offsets().get(&1), Some(&0));
    assert!(offsets.contains("0:5"), "{offsets}");
    assert!(delays.contains("1:0"), "{delays}");
    for at in 5..12 {
        site.send_ok("T", format!("new {at}").as_bytes(), "").await;
    }
    for _ in 0..3 {
        site.send_ok("later", b"delayed again", &properties(&[("DELAY", "1")]))
            .await;
    }
    let offset = context.offsets.get("G", "T", 0).unwrap();
    let got = site.ask_ok(pull("G", "T", offset, "*", None)).await;
    assert_eq!(records(&got).len(), 7);
    eventually("the new messages of the level come", async || {
        context.store.max_offset("later", 0) == 3
    })
    .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_leaves_it_to_the_next_one() {
    let dir = TempDir::new();
    let site = Site::start(small(&dir));
    site.send_ok("T", b"kept", "").await;
    let end = site.broker.context().store.health().max_physical_offset;
    site.send_ok("T", b"lost", "").await;
    site.ask_ok(commit("G", "T", 2)).await;
    site.stop().await;
    cut(&dir, end);
    let config = root(&dir).join("config");
    for name in ["topics.json", "consumerOrderInfo.json"] {
        let whole = std::fs::read(config.join(name)).ok();
        let backup = config.join(format!("{name}.bak"));
        drop(std::fs::remove_file(backup));
        std::fs::write(config.join(name), "{").unwrap();
        let started = Broker::start(small(&dir), &Handle::current(), None, &[]);
        assert!(started.is_err(), "{name} is damaged");
        match whole {
            Some(bytes) => std::fs::write(config.join(name), bytes).unwrap(),
            None => std::fs::remove_file(config.join(name)).unwrap(),
        }
    }
    let site = Site::start(small(&dir));
    assert_eq!(site.broker.context().offsets.get("G", "T", 0), Some(1));
    site.stop().await;
    assert!(!root(&dir).join("abort").exists(), "it stopped cleanly");
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_stay_where_they_are_after_an_ordinary_crash_and_a_clean_stop() {
    let dir = TempDir::new();
    let site = Site::start(small(&dir));
    for _ in 0..5 {
        site.send_ok("T", b"x", "").await;
    }
    site.ask_ok(commit("G", "T", 5)).await;
    site.stop().await;
    leave_unclean(&dir);
    let site = Site::start(small(&dir));
    assert_eq!(site.broker.context().offsets.get("G", "T", 0), Some(5));
    // A client may commit what it likes.
    site.ask_ok(commit("G", "T", 9)).await;
    site.stop().await;
    let site = Site::start(small(&dir));
    assert_eq!(site.broker.context().offsets.get("G", "T", 0), Some(9));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_popped_after_a_cut_come_back() {
    let dir = TempDir::new();
    let site = Site::start(small(&dir));
    site.ask_ok(create("T", 1)).await;
    let group = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP);
    site.ask_ok(group.with_body(r#"{"groupName":"G"}"#)).await;
    site.send_ok("T", b"first", "").await;
    let end = site.broker.context().store.health().max_physical_offset;
    for at in 0..20 {
        site.send_ok("T", format!("{at}").as_bytes(), "").await;
        let taken = popped(&site.ask_ok(pop("G", "T", 0, 1, 1000, 0)).await);
        for message in &taken {
            site.ask_ok(common::pops::ack("G", message)).await;
        }
    }
    let context = site.broker.context();
    eventually("pop check points are done in every revive queue", async || {
        (0..REVIVE_QUEUES).all(|queue| context.offsets.get(REVIVER, REVIVE_TOPIC, queue).is_some())
    })
    .await;
    site.stop().await;
    cut(&dir, end);

    let site = Site::start(small(&dir));
    let context = site.broker.context();
    for queue in 0..REVIVE_QUEUES {
        // Even 0 would pass over the first pop check point.
        assert_eq!(context.offsets.get(REVIVER, REVIVE_TOPIC, queue), None);
    }
    assert_eq!(number_of(&site, "T"), 1);
    for at in 0..4 {
        site.send_ok("T", format!("new {at}").as_bytes(), "").await;
    }
    let taken = pop_until(&site, "G", "T", 4, 1000).await;
    assert_eq!(bodies(&taken), ["new 0", "new 1", "new 2", "new 3"]);
    let again = pop_until(&site, "G", "T", 4, 60_000).await;
    assert_eq!(bodies(&again), ["new 0", "new 1", "new 2", "new 3"]);
    site.stop().await;
}

fn number_of(site: &Site, topic: &str) -> i64 {
    site.broker.context().store.max_offset(topic, 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_of_lost_messages_acknowledge_no_new_ones_of_an_ordered_group() {
    const LONG_MS: i64 = 60_000;
    // How many of the four messages of the pop lie before the cut.
    for kept in [0_usize, 2] {
        let dir = TempDir::new();
        let site = Site::start(small(&dir));
        site.ask_ok(create("T", 1)).await;
        site.send_ok("T", b"first", "").await;
        let mut end = 0;
        for at in 0..4 {
            if at == kept {
                end = site.broker.context().store.health().max_physical_offset;
            }
            site.send_ok("T", format!("old {at}").as_bytes(), "").await;
        }
        let ordered = |most| pop("O", "T", 0, most, LONG_MS, 0).with_field("order", "true");
        for message in popped(&site.ask_ok(ordered(1)).await) {
            site.ask_ok(ack("O", &message)).await;
        }
        let old: Vec<Popped> = popped(&site.ask_ok(ordered(4)).await);
        assert_eq!(old.len(), 4);
        site.stop().await;
        cut(&dir, end);

        let site = Site::start(small(&dir));
        let file = saved(&dir, "consumerOrderInfo.json");
        assert!(!file.contains(",3]"), "durable before the first request: {file}");
        for at in 0..4 {
            site.send_ok("T", format!("new {at}").as_bytes(), "").await;
        }
        if kept > 0 {
            let none = popped(&site.ask(ordered(32)).await);
            assert_eq!(none, [], "the queue is closed for what is left of the pop");
        }
        for message in &old {
            let _effect_is_checked_below = site.ask(ack("O", message)).await;
        }
        let next = popped(&site.ask_ok(ordered(32)).await);
        assert_eq!(bodies(&next), ["new 0", "new 1", "new 2", "new 3"], "{kept} kept");
        site.stop().await;
    }
}
