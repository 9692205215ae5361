//! What says how far messages were handled is on the disk only after the messages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Site, TempDir, eventually, number, options, properties};
use pyrmq_broker::Options;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_store::Durability;

/// The log is not fsynced by itself; progress is written at once.
fn lazy(dir: &TempDir) -> Options {
    let mut options = Options {
        flush_consumer_offset_interval: 100,
        flush_delay_offset_interval: 100,
        message_delay_level: "1s 2s".to_owned(),
        ..options(dir)
    };
    options.store.flush_interval_ms = 60_000;
    options
}

fn config(dir: &TempDir, name: &str) -> String {
    std::fs::read_to_string(dir.path().join("store/config").join(name)).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_s_progress_is_written_after_the_messages_that_it_calls_delivered() {
    let dir = TempDir::new();
    let site = Site::start(lazy(&dir));
    site.send_ok("T", b"later", &properties(&[("DELAY", "1")])).await;
    let state = site.broker.state();
    eventually("it is delivered and noted", async || {
        config(&dir, "delayOffset.json").contains("1:1")
    })
    .await;
    assert_eq!(state.store.max_offset("T", 0), 1);
    let end = state.store.health().max_physical_offset;
    assert_eq!(state.store.durability(end), Durability::Local);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_s_progress_is_written_after_the_messages_that_it_passed() {
    let dir = TempDir::new();
    let site = Site::start(lazy(&dir));
    let sent = site.send_ok("T", b"read", "").await;
    assert_eq!(number(&sent, "queueOffset"), 0);
    let commit = Command::request(request::UPDATE_CONSUMER_OFFSET)
        .with_field("consumerGroup", "G")
        .with_field("topic", "T")
        .with_field("queueId", "0")
        .with_field("commitOffset", "1");
    site.ask_ok(commit).await;
    let state = site.broker.state();
    eventually("it is noted", async || {
        config(&dir, "consumerOffset.json").contains("T@G")
    })
    .await;
    let end = state.store.health().max_physical_offset;
    assert_eq!(state.store.durability(end), Durability::Local);
    site.stop().await;
}
