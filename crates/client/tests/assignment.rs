//! Which queues a polled consumer has, with which subscription, and where it goes on, against scripted brokers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::consumers::{TOPIC, World, poll, polled, until};
use pyrmq_client::consumer::process_queue::QueueKey;
use pyrmq_client::consumer::puller::Puller;
use pyrmq_remoting::codes::request;
use std::time::Duration;

/// Comes after `TOPIC` when the shares of all topics are looked at.
const LATER_TOPIC: &str = "zebras";

fn queue() -> QueueKey {
    QueueKey {
        topic: TOPIC.into(),
        broker: "b0".into(),
        queue_id: 0,
    }
}

fn subscribe(world: &World, puller: &Puller, topic: &str, tags: &str) {
    let subscribed = world.runtime.block_on(puller.subscribe(topic, tags, false));
    subscribed.unwrap();
}

fn tagged(tags: &[&str]) -> Vec<(Vec<u8>, String)> {
    let tags = tags.iter();
    tags.map(|tag| (b"x".to_vec(), format!("TAGS\u{1}{tag}\u{2}")))
        .collect()
}

#[test]
fn queues_of_a_topic_that_is_left_during_a_rebalance_do_not_come_back() {
    let world = World::new(2);
    let puller = polled(&world, |_| ());
    for topic in [TOPIC, LATER_TOPIC] {
        subscribe(&world, &puller, topic, "*");
    }
    let has = |topic: &str| puller.positions().iter().any(|(key, _)| &*key.topic == topic);
    assert!(has(TOPIC) && has(LATER_TOPIC));
    world.hold(request::GET_CONSUMER_LIST_BY_GROUP);
    world.regroup(&[]);
    until("the rebalance asks for the members", || world.held() > 0);
    assert!(world.runtime.block_on(puller.unsubscribe(TOPIC, false)).unwrap());
    assert!(!has(TOPIC));
    let lists = || {
        let brokers = world.consumed.iter();
        brokers
            .map(|broker| broker.asked(request::GET_CONSUMER_LIST_BY_GROUP).len())
            .sum::<usize>()
    };
    let before = lists();
    world.release();
    // The rebalance goes on with the later topic when it is done with the one that was left.
    until("the later topic is looked at", || lists() > before);
    assert!(!has(TOPIC), "{:?}", puller.positions());
    assert!(has(LATER_TOPIC));
}

#[test]
fn a_topic_that_is_subscribed_to_again_is_read_with_its_new_tags() {
    let world = World::new(2);
    world.consumed[0].store(tagged(&["a", "b"]));
    let puller = polled(&world, |_| ());
    subscribe(&world, &puller, TOPIC, "a");
    assert_eq!(poll(&puller), [0]);
    world.consumed[0].store(tagged(&["a", "b"]));
    // What was fetched ahead with the old tags is forgotten.
    until("the next messages are there", || {
        puller.wait(Duration::from_millis(5))
    });
    puller.pause(&[queue()], true).unwrap();
    subscribe(&world, &puller, TOPIC, "b");
    assert_eq!(puller.paused().len(), 1, "a pause outlasts a new subscription");
    puller.pause(&[queue()], false).unwrap();
    assert_eq!(poll(&puller), [3]);
    subscribe(&world, &puller, TOPIC, "b");
    world.consumed[0].store(tagged(&["a", "b"]));
    assert_eq!(poll(&puller), [5], "nothing comes twice with the same tags");
}

#[test]
fn a_new_subscription_does_not_confirm_what_was_handed_out() {
    let world = World::new(2);
    world.consumed[0].store(tagged(&["a", "a"]));
    let puller = polled(&world, |options| {
        options.commit_interval = Some(Duration::from_millis(20));
    });
    subscribe(&world, &puller, TOPIC, "a");
    assert_eq!(poll(&puller), [0, 1]);
    subscribe(&world, &puller, TOPIC, "b");
    world.runtime.block_on(puller.shut(false)).unwrap();
    assert!(world.consumed[0].position().is_none_or(|offset| offset == 0));
}

#[test]
fn a_broadcasting_member_keeps_the_offset_that_it_commits() {
    let world = World::new(2);
    world.consumed[0].store(tagged(&["a"; 20]));
    let puller = polled(&world, |options| options.is_broadcasting = true);
    subscribe(&world, &puller, TOPIC, "*");
    let mut next = 0;
    while next < 20 {
        next = poll(&puller).last().unwrap() + 1;
    }
    world
        .runtime
        .block_on(puller.commit_offsets(vec![(queue(), 7)]))
        .unwrap();
    assert_eq!(puller.local_offsets().get(&queue()), Some(&7));
    world.runtime.block_on(puller.shut(false)).unwrap();
    assert_eq!(puller.local_offsets().get(&queue()), Some(&7));
}
