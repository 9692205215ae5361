//! Reading of a master and its slave, against scripted brokers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::consumers::{TOPIC, World, poll, polled, until};
use pyrmq_client::ClientError;
use pyrmq_client::consumer::process_queue::QueueKey;
use pyrmq_remoting::codes::{request, response};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MASTER: usize = 0;
const SLAVE: usize = 1;
const BOTH: [(i64, usize); 2] = [(0, MASTER), (1, SLAVE)];
/// Where a slave begins that has got the newest segment only.
const SLAVE_FIRST: i64 = 1900;

fn queue() -> QueueKey {
    QueueKey {
        topic: TOPIC.into(),
        broker: "b0".into(),
        queue_id: 0,
    }
}

/// A master and its slave, which have the same messages.
fn pair(messages: usize) -> World {
    let world = World::new(2);
    world.replicate(&BOTH);
    store(&world, messages);
    world
}

fn store(world: &World, messages: usize) {
    for broker in &world.consumed {
        broker.store((0..messages).map(|_| (b"x".to_vec(), String::new())));
    }
}

fn has_pulled(world: &World, replica: usize, pulls: usize) -> bool {
    world.consumed[replica].pulls.load(Ordering::Relaxed) >= pulls
}

/// The offsets that were committed in queue 0 at a replica.
fn commits(world: &World, replica: usize) -> BTreeSet<i64> {
    let commits = world.consumed[replica].asked(request::UPDATE_CONSUMER_OFFSET);
    let of_queue = commits
        .iter()
        .filter(|one| one.fields.get("queueId") == Some("0"));
    of_queue
        .map(|one| one.fields.get("commitOffset").unwrap().parse().unwrap())
        .collect()
}

#[test]
fn a_consumer_reads_where_brokers_suggest() {
    let world = pair(40);
    for broker in &world.consumed {
        broker.suggested.store(1, Ordering::Relaxed);
    }
    let puller = polled(&world, |options| options.batch = 8);
    world
        .runtime
        .block_on(puller.subscribe(TOPIC, "*", false))
        .unwrap();
    let mut seen = Vec::new();
    while seen.len() < 40 {
        seen.extend(poll(&puller));
    }
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
    until("the slave is asked for more", || has_pulled(&world, SLAVE, 8));
    // The first pull of each queue.
    assert_eq!(world.consumed[MASTER].pulls.load(Ordering::Relaxed), 2);
}

#[test]
fn a_slave_that_knows_less_than_its_master_moves_no_position() {
    for code in [response::TOPIC_NOT_EXIST, response::PULL_OFFSET_MOVED] {
        let world = pair(20);
        let slave = &world.consumed[SLAVE];
        slave.first.store(SLAVE_FIRST, Ordering::Relaxed);
        *slave.pull_code.lock().unwrap() = Some(code);
        let puller = polled(&world, |options| {
            options.commit_interval = Some(Duration::from_millis(20));
            options.client.route_interval = Duration::from_millis(20);
        });
        world
            .runtime
            .block_on(puller.subscribe(TOPIC, "*", false))
            .unwrap();
        assert_eq!(poll(&puller).last(), Some(&19));
        assert!(puller.take(10).unwrap().is_empty());
        until("the position is committed", || {
            world.consumed[MASTER].position() == Some(20)
        });
        world.replicate(&[(1, SLAVE)]);
        until("the slave is asked repeatedly", || {
            assert!(puller.take(10).unwrap().is_empty());
            has_pulled(&world, SLAVE, 6)
        });
        let positions = puller.positions();
        assert!(
            positions.iter().any(|(key, at)| **key == queue() && *at == 20),
            "{positions:?}"
        );
        world.replicate(&BOTH);
        store(&world, 5);
        assert_eq!(poll(&puller), [20, 21, 22, 23, 24]);
        world.runtime.block_on(puller.shut(true)).unwrap();
        for replica in [MASTER, SLAVE] {
            let commits = commits(&world, replica);
            assert!(commits.iter().all(|offset| *offset <= 25), "{commits:?}");
        }
    }
}

#[test]
fn that_a_group_has_not_begun_is_believed_of_a_master_only() {
    let world = pair(20);
    world.consumed[SLAVE].first.store(SLAVE_FIRST, Ordering::Relaxed);
    let place = (TOPIC.to_owned(), "0".to_owned());
    world.consumed[MASTER].committed.lock().unwrap().insert(place, 12);
    world.replicate(&[(1, SLAVE)]);
    let puller = polled(&world, |options| {
        options.client.route_interval = Duration::from_millis(20);
    });
    let assigned = puller.assign(vec![(queue(), None)], "*");
    let refused = world.runtime.block_on(assigned).unwrap_err();
    assert!(matches!(refused, ClientError::NoMaster { .. }), "{refused}");
    world
        .runtime
        .block_on(puller.subscribe(TOPIC, "*", false))
        .unwrap();
    assert!(puller.positions().is_empty(), "{:?}", puller.positions());
    world.replicate(&BOTH);
    assert_eq!(poll(&puller), (12..20).collect::<Vec<_>>());
}

#[test]
fn where_a_seek_goes_is_believed_of_a_master_only() {
    let world = pair(20);
    world.consumed[SLAVE].first.store(SLAVE_FIRST, Ordering::Relaxed);
    world.replicate(&[(1, SLAVE)]);
    let puller = polled(&world, |_| ());
    let offset_of = |which, only_masters| {
        let asked = puller.offsets_of(vec![queue()], which, 0, only_masters);
        world.runtime.block_on(asked).map(|offsets| offsets[0])
    };
    for which in ["first", "last", "timestamp"] {
        let refused = offset_of(which, true).unwrap_err();
        assert!(matches!(refused, ClientError::NoMaster { .. }), "{refused}");
    }
    // For figures the slave is asked.
    assert_eq!(offset_of("first", false).unwrap(), SLAVE_FIRST);
    world.replicate(&BOTH);
    assert_eq!(offset_of("first", true).unwrap(), 0);
}

#[test]
fn topics_that_wait_for_a_master_are_looked_at_without_the_others() {
    const WAITING: &str = "zebras";
    let world = pair(20);
    for queue in ["0", "1"] {
        let place = (TOPIC.to_owned(), queue.to_owned());
        world.consumed[SLAVE].committed.lock().unwrap().insert(place, 12);
    }
    world.replicate(&[(1, SLAVE)]);
    let puller = polled(&world, |_| ());
    for topic in [TOPIC, WAITING] {
        let subscribed = puller.subscribe(topic, "*", false);
        world.runtime.block_on(subscribed).unwrap();
    }
    let slave = &world.consumed[SLAVE];
    // Each look at this topic asks for both of its queues.
    let looks = || {
        let asked = slave.asked(request::QUERY_CONSUMER_OFFSET);
        let of_topic = asked
            .iter()
            .filter(|one| one.fields.get("topic") == Some(WAITING));
        of_topic.count() / 2
    };
    until("the topic is looked at repeatedly", || looks() >= 4);
    // One for each topic at first and one when the second has failed, then for that one alone.
    let all = slave.asked(request::GET_CONSUMER_LIST_BY_GROUP).len();
    assert!(all < 8, "{all} looks");
}

#[test]
fn a_queue_begins_where_its_slave_says_that_the_group_was() {
    let world = pair(20);
    let place = (TOPIC.to_owned(), "0".to_owned());
    world.consumed[SLAVE].committed.lock().unwrap().insert(place, 12);
    world.replicate(&[(1, SLAVE)]);
    let puller = polled(&world, |_| ());
    world
        .runtime
        .block_on(puller.subscribe(TOPIC, "*", false))
        .unwrap();
    assert_eq!(poll(&puller), (12..20).collect::<Vec<_>>());
}
