//! What a broker counts of pops: messages in flight, pop check points, acknowledgements, and how far what brings
//! messages back is behind. Over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "the helpers write the broker's files themselves"
)]

mod common;

use common::pops::{ack, hide, pop, pop_until, popped, site, with};
use common::{Site, TempDir, eventually};
use pyrmq_broker::metrics;
use pyrmq_remoting::body::{Body, BrokerStatsData};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::names;

/// Longer than a test takes.
const LONG_MS: i64 = 60_000;
/// Soon over.
const SHORT_MS: i64 = 600;

fn in_flight(site: &Site, group: &str, topic: &str) -> i64 {
    let all = metrics::groups(site.broker.context());
    let found = all
        .iter()
        .find(|of| (of.group.as_str(), of.topic.as_str()) == (group, topic));
    found.map_or(0, |of| of.in_flight)
}

async fn counted(site: &Site, name: &str, key: &str) -> i64 {
    let fields = [("statsName", name), ("statsKey", key)];
    let answer = site.ask_ok(with(request::VIEW_BROKER_STATS_DATA, &fields)).await;
    let data = BrokerStatsData::decode(answer.body.as_deref().unwrap_or_default()).unwrap();
    data.stats_minute.sum
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_flight_are_those_popped_and_neither_acknowledged_nor_back() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 4).await;
    let retry = names::pop_retry_topic("T", "G");
    let soon = popped(&site.ask_ok(pop("G", "T", 0, 2, SHORT_MS, 0)).await);
    let later = popped(&site.ask_ok(pop("G", "T", 0, 2, LONG_MS, 0)).await);
    assert_eq!(in_flight(&site, "G", "T"), 4);
    assert_eq!(counted(&site, "GROUP_CK_NUMS", "T@G").await, 2);
    assert_eq!(counted(&site, "BROKER_CK_NUMS", "DefaultCluster").await, 2);
    site.ask_ok(ack("G", &later[0])).await;
    site.ask_ok(hide("G", &later[1], LONG_MS)).await;
    assert_eq!(
        in_flight(&site, "G", "T"),
        3,
        "one that is hidden for longer still is"
    );
    let back = pop_until(&site, "G", "T", 2, LONG_MS).await;
    eventually("they are counted as back", async || {
        in_flight(&site, "G", "T") == 1
    })
    .await;
    assert_eq!(in_flight(&site, "G", &retry), 2);
    site.ask_ok(ack("G", &soon[0])).await;
    assert_eq!(in_flight(&site, "G", "T"), 1, "it was counted when it came back");
    site.ask_ok(ack("G", &back[0])).await;
    assert_eq!(in_flight(&site, "G", &retry), 1);
    // A change of the invisible time acknowledges the pop that it is of.
    assert_eq!(counted(&site, "GROUP_ACK_NUMS", "T@G").await, 3);
    assert_eq!(counted(&site, "GROUP_ACK_NUMS", &format!("{retry}@G")).await, 1);
    assert_eq!(counted(&site, "BROKER_ACK_NUMS", "DefaultCluster").await, 4);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_an_ordered_group_are_in_flight_until_they_are_acknowledged() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 4).await;
    let ordered = pop("O", "T", 0, 3, LONG_MS, 0).with_field("order", "true");
    let messages = popped(&site.ask_ok(ordered).await);
    assert_eq!(in_flight(&site, "O", "T"), 3);
    site.ask_ok(ack("O", &messages[0])).await;
    assert_eq!(in_flight(&site, "O", "T"), 2);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_brings_messages_back_is_behind_until_they_are_back() {
    let dir = TempDir::new();
    let site = site(&dir, 1, 1).await;
    popped(&site.ask_ok(pop("G", "T", 0, 1, SHORT_MS, 0)).await);
    let behind = || {
        let queues = metrics::revive(site.broker.context());
        assert_eq!(queues.len(), 8);
        assert!(queues.iter().all(|queue| queue.late_ms < LONG_MS), "{queues:?}");
        queues.iter().map(|queue| queue.behind).sum::<i64>()
    };
    eventually("its pop check point is read", async || behind() == 1).await;
    eventually("it is back", async || behind() == 0).await;
    site.stop().await;
}
