//! Locks, offsets and subscriptions, without a broker.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_broker::tables::clients::{Client, Clients};
use pyrmq_broker::tables::locks::Locks;
use pyrmq_broker::tables::offsets::Offsets;
use pyrmq_broker::tables::subscription::{MessageFilter, Subscription};
use pyrmq_remoting::body::MessageQueue;
use pyrmq_remoting::net::{Outbox, Peer};
use pyrmq_remoting::{Command, Language};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn queue(id: i32) -> MessageQueue {
    MessageQueue::new("T", "b", id)
}

#[test]
fn a_queue_lock_has_one_owner_until_it_expires() {
    let locks = Locks::new(60_000);
    assert_eq!(
        locks.lock("G", "one", vec![queue(0), queue(1)], 0, |_| true),
        [queue(0), queue(1)]
    );
    assert_eq!(
        locks.lock("G", "two", vec![queue(1), queue(2)], 1, |_| true),
        [queue(2)]
    );
    assert_eq!(
        locks.lock("other", "two", vec![queue(1)], 1, |_| true),
        [queue(1)]
    );
    // A renewed lock stays; one that is not renewed is released after its time.
    locks.lock("G", "one", vec![queue(0)], 50_000, |_| true);
    assert_eq!(
        locks.lock("G", "two", vec![queue(0), queue(1)], 60_001, |_| true),
        [queue(1)]
    );
    assert!(locks.is_held("G", 110_000));
    locks.unlock("G", "two", &[queue(0)]);
    assert_eq!(locks.lock("G", "three", vec![queue(0)], 100_000, |_| true), []);
    locks.unlock("G", "one", &[queue(0)]);
    assert_eq!(
        locks.lock("G", "three", vec![queue(0)], 100_000, |_| true),
        [queue(0)]
    );
    assert!(!locks.is_held("nobody", 0));
    assert_eq!(locks.groups(), 2);
    locks.sweep(130_000);
    assert_eq!(locks.groups(), 1, "only the lock renewed at 100 s lives");
}

#[test]
fn a_lock_of_a_lost_client_ends_when_no_client_trusts_it_any_more() {
    let locks = Locks::new(60_000);
    locks.lock("G", "lost", vec![queue(0)], 0, |_| true);
    let take = |now_ms| locks.lock("G", "next", vec![queue(0)], now_ms, |client| client == "next");
    assert_eq!(take(30_000), []);
    assert_eq!(take(30_001), [queue(0)]);
}

#[test]
fn offsets_keep_group_topic_and_queue_apart() {
    let offsets = Offsets::default();
    offsets.commit("G", "T", 0, 12);
    offsets.commit("G", "T", 1, 9);
    offsets.commit("H", "T", 0, 3);
    offsets.commit("G", "U", 0, 4);
    assert_eq!(offsets.get("G", "T", 1), Some(9));
    assert_eq!(offsets.get("H", "T", 1), None);
    assert_eq!(offsets.topics_of("G"), ["T", "U"]);
    assert_eq!(offsets.groups_of("T").into_iter().collect::<Vec<_>>(), ["G", "H"]);
    let rows = offsets.rows();
    assert_eq!(
        rows["T@G"].iter().map(|(q, o)| (*q, *o)).collect::<Vec<_>>(),
        [(0, 12), (1, 9)]
    );
    let again = Offsets::default();
    again.load(rows.clone());
    assert_eq!(again.rows(), rows);
    offsets.remove_topic("T");
    assert_eq!(offsets.rows().into_keys().collect::<Vec<_>>(), ["U@G"]);
}

#[test]
fn a_reset_is_taken_once() {
    let offsets = Offsets::default();
    offsets.commit("G", "T", 0, 12);
    offsets.reset("G", "T", 0, 5);
    assert!(offsets.has_reset("G", "T", 0));
    assert_eq!(offsets.get("G", "T", 0), Some(5));
    assert_eq!(offsets.take_reset("G", "T", 1), None);
    assert_eq!(offsets.take_reset("G", "T", 0), Some(5));
    assert_eq!(offsets.take_reset("G", "T", 0), None);
}

#[test]
fn a_tag_expression_becomes_java_hashes() {
    let parse = |expression| Subscription::parse("T", Some(expression), Some("TAG"), 0);
    assert_eq!(parse("*").unwrap().filter, MessageFilter::All);
    assert_eq!(parse("").unwrap().filter, MessageFilter::All);
    let two = parse("TagA || TagB").unwrap();
    assert_eq!(two.tags, ["TagA", "TagB"]);
    assert_eq!(two.codes(), [2_598_919, 2_598_920]);
    assert!(two.filter.may_match(2_598_920));
    assert!(!two.filter.may_match(0));
    assert_eq!(parse("||"), None);
    assert!(
        !Subscription::parse("T", Some("a > 5"), Some("SQL92"), 0)
            .unwrap()
            .is_tag()
    );
}

#[test]
fn resets_of_a_deleted_topic_or_group_go_with_it() {
    let offsets = Offsets::default();
    for (group, topic) in [("G", "T"), ("G", "U"), ("H", "T"), ("H", "U")] {
        offsets.reset(group, topic, 0, 1);
    }
    offsets.remove_topic("T");
    assert!(!offsets.has_reset("G", "T", 0) && !offsets.has_reset("H", "T", 0));
    offsets.remove_group("G");
    assert_eq!(offsets.take_reset("G", "U", 0), None);
    assert_eq!(offsets.take_reset("H", "U", 0), Some(1));
}

/// A connection that its server does not read, or reads again.
#[derive(Default)]
struct Line {
    pauses: AtomicUsize,
}

impl Outbox for Line {
    fn push(&self, _command: Command) {}
    fn pause(&self) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
    }
    fn read_on(&self) {
        self.pauses.fetch_sub(1, Ordering::Relaxed);
    }
    fn is_paused(&self) -> bool {
        self.pauses.load(Ordering::Relaxed) > 0
    }
    fn is_closed(&self) -> bool {
        false
    }
    fn close(&self) {}
}

#[test]
fn members_of_a_connection_that_is_not_read_are_not_silent() {
    let clients = Clients::default();
    let address = ([127, 0, 0, 1], 1).into();
    let peers = [1, 2].map(|id| Peer::new(id, address, address, Arc::new(Line::default())));
    for peer in &peers {
        let client = Client {
            id: format!("client-{}", peer.id()),
            peer: peer.clone(),
            user: None,
            language: Language::default(),
            version: 0,
            seen_ms: 0,
        };
        clients.register_producer("G", &client).unwrap();
    }
    let members = || clients.producers("G").len();
    let pause = peers[0].pause();
    clients.sweep_silent(0, 120_000);
    assert_eq!(members(), 2);
    clients.sweep_silent(1, 120_001);
    assert_eq!(members(), 1);
    assert_eq!(clients.producers("G")[0].peer, peers[0]);
    drop(pause);
    clients.sweep_silent(120_001, 240_001);
    assert_eq!(members(), 1);
    clients.sweep_silent(120_002, 240_002);
    assert_eq!(members(), 0);
}
