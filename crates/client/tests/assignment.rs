//! Which queues a polled consumer has, with which subscription, and where it goes on, against scripted brokers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::consumers::{TOPIC, World, beats_for, listening, offsets, poll, polled, take, until};
use pyrmq_client::consumer::process_queue::{Messages, QueueKey};
use pyrmq_client::consumer::puller::{Puller, Start};
use pyrmq_client::consumer::rebalance_events::RebalanceEvent;
use pyrmq_client::session::connections::Connections;
use pyrmq_client::{ClientError, PullerOptions};
use pyrmq_remoting::codes::{request, response};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

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
fn a_topic_that_is_left_while_it_is_subscribed_to_is_not_joined() {
    let world = World::new(2);
    let puller = polled(&world, |options| {
        // Longer than this test waits for anything.
        options.client.request_timeout = Duration::from_mins(1);
    });
    for is_left in [true, false] {
        world.hold(request::CHECK_CLIENT_CONFIG);
        std::thread::scope(|scope| {
            let subscribed = scope.spawn(|| world.runtime.block_on(puller.subscribe(TOPIC, "a > 1", true)));
            until("the condition is asked for", || world.held() > 0);
            if is_left {
                let was_there = puller.unsubscribe(TOPIC, false);
                assert!(!world.runtime.block_on(was_there).unwrap());
            } else {
                puller.cancel_subscribe(TOPIC);
            }
            world.release();
            let refused = subscribed.join().unwrap().unwrap_err();
            assert!(matches!(refused, ClientError::Unsubscribed { .. }), "{refused}");
        });
        assert!(puller.positions().is_empty(), "{:?}", puller.positions());
    }
    subscribe(&world, &puller, TOPIC, "*");
    assert_eq!(puller.positions().len(), 4);
}

#[test]
fn a_topic_that_one_of_two_brokers_forbids_is_not_joined() {
    for has_topic in [true, false] {
        let world = World::new(2);
        let puller = polled(&world, |_| ());
        subscribe(&world, &puller, TOPIC, "*");
        if !has_topic {
            world.replicate(&[(0, 0)]);
        }
        let strict = &world.consumed[1];
        *strict.forbidden.lock().unwrap() = Some(LATER_TOPIC);
        for _ in 0..2 {
            let refused = world.runtime.block_on(puller.subscribe(LATER_TOPIC, "*", false));
            assert!(
                matches!(
                    &refused,
                    Err(ClientError::Refused {
                        code: response::NO_PERMISSION,
                        ..
                    })
                ),
                "the other broker's answer counts: {refused:?}"
            );
            // As the callers do after a failure.
            assert!(
                world
                    .runtime
                    .block_on(puller.unsubscribe(LATER_TOPIC, false))
                    .unwrap()
            );
            let beats = strict.asked(request::HEART_BEAT);
            assert!(!beats_for(beats.last().unwrap(), LATER_TOPIC));
        }
        subscribe(&world, &puller, TOPIC, "a");
    }
}

#[test]
fn a_broker_that_forbids_what_was_there_before_keeps_no_topic_of_another_one_away() {
    let world = World::new(2);
    *world.consumed[1].forbidden.lock().unwrap() = Some(TOPIC);
    let puller = polled(&world, |_| ());
    let refused = world.runtime.block_on(puller.subscribe(TOPIC, "*", false));
    assert!(refused.is_err(), "it has the topic");
    world.replicate(&[(0, 0)]);
    subscribe(&world, &puller, LATER_TOPIC, "*");
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

/// Members in front of this one, and behind it, in the order by which queues are shared.
const FIRST: &str = "0";
const LAST: &str = "~";

/// A member that has read three messages of a queue, which is on its way to another member: the commit waits.
fn giving_back(world: &World) -> Puller {
    world.consumed[0].store(tagged(&["a"; 3]));
    let puller = polled(world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
        options.client.request_timeout = Duration::from_secs(1);
    });
    subscribe(world, &puller, TOPIC, "*");
    assert_eq!(poll(&puller), [0, 1, 2]);
    assert!(puller.take(10).unwrap().is_empty());
    world.hold(request::UPDATE_CONSUMER_OFFSET);
    world.regroup(&[FIRST]);
    until("the last commit is on its way", || world.held() > 0);
    puller
}

#[test]
fn a_close_waits_for_the_commits_of_queues_that_are_going_back() {
    let world = World::new(2);
    let puller = giving_back(&world);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| world.runtime.block_on(puller.shut(true)));
        std::thread::sleep(Duration::from_millis(150));
        assert!(!closing.is_finished(), "the connection was closed under a commit");
        world.release();
        closing.join().unwrap().unwrap();
    });
    assert_eq!(world.consumed[0].position(), Some(3));
}

#[test]
fn a_close_reports_queues_that_were_going_back_and_are_not_committed() {
    let world = World::new(2);
    let puller = giving_back(&world);
    let closed = world.runtime.block_on(puller.shut(true));
    let Err(ClientError::NotCommitted { failed, .. }) = closed else {
        panic!("{closed:?}");
    };
    let is_named = failed
        .iter()
        .any(|one| &*one.broker == "b0" && one.queue_id == 0 && one.offset == 3);
    assert!(is_named, "{failed:?}");
}

/// Drops a call of the consumer before it has ended, as Ctrl-C does.
fn interrupt<T>(world: &World, call: impl Future<Output = T>) {
    let time = Duration::from_millis(100);
    let cut = world
        .runtime
        .block_on(async { tokio::time::timeout(time, call).await.is_err() });
    assert!(cut, "it has ended before it was interrupted");
}

/// A member that has read three messages. Its commits wait.
fn reading(world: &World, announces_rebalances: bool) -> Puller {
    world.consumed[0].store(tagged(&["a"; 3]));
    let puller = polled(world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
        options.client.request_timeout = Duration::from_secs(1);
        options.announces_rebalances = announces_rebalances;
    });
    subscribe(world, &puller, TOPIC, "*");
    if announces_rebalances {
        until("the queues have come", || puller.has_rebalance_event());
        while let Some(event) = puller.next_rebalance_event(true) {
            end_event(world, &puller, &event);
        }
    }
    assert_eq!(poll(&puller), [0, 1, 2]);
    assert!(puller.take(10).unwrap().is_empty());
    world.hold(request::UPDATE_CONSUMER_OFFSET);
    puller
}

fn keys(event: &RebalanceEvent) -> Vec<QueueKey> {
    event.queues.iter().map(|key| (**key).clone()).collect()
}

fn end_event(world: &World, puller: &Puller, event: &RebalanceEvent) {
    let keys = keys(event);
    let ended = puller.end_rebalance_event(event.kind, &keys, true);
    world.runtime.block_on(ended).unwrap();
}

#[test]
fn queues_that_an_interrupted_call_gives_back_are_committed() {
    for verb in ["unsubscribe", "assign", "revoke"] {
        let world = World::new(2);
        let puller = reading(&world, verb == "revoke");
        match verb {
            "unsubscribe" => interrupt(&world, puller.unsubscribe(TOPIC, false)),
            "assign" => interrupt(&world, puller.assign(Vec::new(), "*")),
            _ => {
                assert!(puller.retire(TOPIC));
                let event = puller.next_rebalance_event(true).unwrap();
                let keys = keys(&event);
                interrupt(&world, puller.end_rebalance_event(event.kind, &keys, true));
            }
        }
        world.release();
        let closed = world.runtime.block_on(puller.shut(true));
        assert!(closed.is_ok(), "{verb}: {closed:?}");
        assert_eq!(world.consumed[0].position(), Some(3), "{verb}");
    }
}

#[test]
fn a_silent_broker_does_not_delay_the_last_commits_of_another_ones_queues() {
    let world = World::new(2);
    for broker in &world.consumed {
        broker.store(tagged(&["a"; 3]));
    }
    let puller = polled(&world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
        // Longer than this test waits for anything.
        options.client.request_timeout = Duration::from_mins(1);
        options.announces_rebalances = true;
    });
    subscribe(&world, &puller, TOPIC, "*");
    until("the queues have come", || puller.has_rebalance_event());
    while let Some(event) = puller.next_rebalance_event(true) {
        end_event(&world, &puller, &event);
    }
    let mut seen = 0;
    while seen < 6 {
        seen += poll(&puller).len();
    }
    for code in [request::QUERY_CONSUMER_OFFSET, request::UPDATE_CONSUMER_OFFSET] {
        world.consumed[1].held_back.lock().unwrap().push(code);
    }
    assert!(puller.retire(TOPIC));
    let event = puller.next_rebalance_event(true).unwrap();
    let keys = keys(&event);
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let ended = puller.end_rebalance_event(event.kind, &keys, true);
            world.runtime.block_on(ended)
        });
        until("the silent broker is asked", || world.held() > 0);
        until("the other one has the commit", || {
            world.consumed[0].position() == Some(3)
        });
        // The next member of its queue goes on.
        let place = (TOPIC.to_owned(), "0".to_owned());
        world.consumed[0].committed.lock().unwrap().insert(place, 9);
        world.release();
        ended.join().unwrap().unwrap();
    });
    assert_eq!(world.consumed[0].position(), Some(9));
    assert_eq!(world.consumed[1].position(), Some(3));
}

fn has_left(world: &World) -> bool {
    let mut brokers = world.consumed.iter();
    brokers.all(|broker| !broker.asked(request::UNREGISTER_CLIENT).is_empty())
}

#[test]
fn a_close_that_is_interrupted_goes_on_and_a_second_one_waits_for_it() {
    for is_released in [true, false] {
        let world = World::new(2);
        let puller = reading(&world, false);
        interrupt(&world, puller.shut(true));
        assert!(!puller.is_closed());
        if is_released {
            world.release();
        }
        let closed = world.runtime.block_on(puller.shut(true));
        assert_eq!(closed.is_ok(), is_released, "{closed:?}");
        assert!(puller.is_closed() && has_left(&world));
    }
}

#[test]
fn a_close_whose_runtime_has_ended_does_not_say_that_all_is_committed() {
    let world = World::new(2);
    let own = Runtime::new().unwrap();
    let mut options = PullerOptions::new(vec![world.name_server()], "group");
    options.commit_interval = Some(Duration::from_mins(10));
    let puller = Puller::new(own.handle(), options, Start::First).unwrap();
    world.consumed[0].store(tagged(&["a"; 3]));
    own.block_on(puller.subscribe(TOPIC, "*", false)).unwrap();
    assert_eq!(poll(&puller), [0, 1, 2]);
    drop(own);
    let closed = world.runtime.block_on(puller.shut(true));
    assert!(closed.is_err(), "{closed:?}");
    assert_eq!(world.consumed[0].position(), None);
}

#[test]
fn a_close_that_is_interrupted_goes_on_without_its_consumer() {
    let world = World::new(2);
    let puller = reading(&world, false);
    interrupt(&world, puller.shut(true));
    drop(puller);
    world.release();
    until("the member has left", || has_left(&world));
    assert_eq!(world.consumed[0].position(), Some(3));
}

/// A member whose connections stay open after its end, as they are another client's, too.
fn sharing(world: &World) -> (Puller, Puller) {
    let connections = Connections::new();
    let other = polled(world, |options| {
        options.client.group = "other".into();
        options.client.connections = connections.clone();
    });
    let puller = polled(world, |options| options.client.connections = connections.clone());
    for topic in [TOPIC, LATER_TOPIC] {
        subscribe(world, &puller, topic, "*");
    }
    (puller, other)
}

#[test]
fn nothing_registers_a_member_again_after_it_has_unregistered() {
    let world = World::new(2);
    let (puller, _other) = sharing(&world);
    world.hold(request::GET_CONSUMER_LIST_BY_GROUP);
    // It is slow to answer the unregistration.
    let slow = &world.consumed[0];
    slow.held_back.lock().unwrap().push(request::UNREGISTER_CLIENT);
    world.regroup(&[]);
    until("the rebalance asks for the members", || world.held() > 0);
    for broker in &world.consumed {
        // A broker that has been started again: the rebalance finds itself missing.
        broker.members.lock().unwrap().clear();
    }
    let quick = &world.consumed[1];
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| world.runtime.block_on(puller.shut(true)));
        until("the unregistration has come", || {
            !quick.asked(request::UNREGISTER_CLIENT).is_empty()
        });
        world.release_where(|code| code == request::GET_CONSUMER_LIST_BY_GROUP);
        closing.join().unwrap().unwrap();
    });
    let requests = quick.requests.lock().unwrap();
    let last = requests
        .iter()
        .rfind(|one| [request::HEART_BEAT, request::UNREGISTER_CLIENT].contains(&one.code));
    assert_eq!(last.unwrap().code, request::UNREGISTER_CLIENT);
}

#[test]
fn a_member_unregisters_after_the_heartbeats_that_are_on_their_way() {
    for has_caller in [true, false] {
        let world = World::new(2);
        let (puller, _other) = sharing(&world);
        world.hold(request::HEART_BEAT);
        if has_caller {
            for broker in &world.consumed {
                broker.members.lock().unwrap().clear();
            }
            world.regroup(&[]);
            until("the rebalance sends heartbeats", || world.held() > 0);
        } else {
            interrupt(&world, puller.subscribe(TOPIC, "other", false));
        }
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| world.runtime.block_on(puller.shut(true)));
            until("the consumer is closed", || puller.is_closed());
            std::thread::sleep(Duration::from_millis(100));
            let has_come = world
                .consumed
                .iter()
                .any(|broker| !broker.asked(request::UNREGISTER_CLIENT).is_empty());
            assert!(
                !has_come,
                "brokers may handle the unregistration before the heartbeat"
            );
            world.release();
            closing.join().unwrap().unwrap();
        });
        assert!(has_left(&world));
    }
}

#[test]
fn a_member_unregisters_again_from_a_broker_that_was_silent() {
    let world = World::new(2);
    let connections = Connections::new();
    let with = |group: &str, name: &str| {
        let puller = polled(&world, |options| {
            options.client.group = group.into();
            options.client.instance_name = name.into();
            options.client.connections = connections.clone();
            options.client.request_timeout = Duration::from_millis(700);
        });
        subscribe(&world, &puller, TOPIC, "*");
        puller
    };
    let (puller, _other) = (with("group", "one"), with("other", "one"));
    let unregistrations = || world.consumed[0].asked(request::UNREGISTER_CLIENT).len();
    world.hold(request::HEART_BEAT);
    world.hold(request::UNREGISTER_CLIENT);
    let refused = world.runtime.block_on(puller.subscribe(TOPIC, "other", false));
    assert!(refused.is_err(), "its heartbeats are not answered in time");
    world.runtime.block_on(puller.shut(true)).unwrap();
    until("the unregistration is repeated", || unregistrations() == 2);
    world.release();
    until("it is repeated once the broker answers", || {
        unregistrations() == 3
    });
}

#[test]
fn a_member_that_has_read_nothing_does_not_take_the_group_back() {
    for is_given_back in [false, true] {
        let world = World::new(2);
        let puller = polled(&world, |options| {
            options.commit_interval = Some(Duration::from_mins(10));
        });
        subscribe(&world, &puller, TOPIC, "*");
        // The member before commits late.
        let place = (TOPIC.to_owned(), "0".to_owned());
        world.consumed[0].committed.lock().unwrap().insert(place, 20);
        if is_given_back {
            world.regroup(&[FIRST]);
            until("the queue goes", || {
                puller.positions().iter().all(|(key, _)| **key != queue())
            });
        }
        world.runtime.block_on(puller.shut(true)).unwrap();
        assert_eq!(world.consumed[0].position(), Some(20));
    }
}

#[test]
fn a_queue_of_another_member_begins_behind_its_last_commit() {
    let world = World::new(2);
    world.consumed[0].store(tagged(&["a"; 20]));
    world.set_others(&[LAST]);
    let puller = polled(&world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
    });
    subscribe(&world, &puller, TOPIC, "*");
    assert!(
        puller.take(10).unwrap().is_empty(),
        "the other member may be at work"
    );
    let place = (TOPIC.to_owned(), "0".to_owned());
    world.consumed[0].committed.lock().unwrap().insert(place, 12);
    assert_eq!(poll(&puller), [12, 13, 14, 15, 16, 17, 18, 19]);
}

#[test]
fn a_queue_may_be_another_members_after_several_changes_at_once() {
    /// Behind `FIRST`, in front of this member.
    const SECOND: &str = "00";
    let world = World::new(2);
    world.consumed[1].store(tagged(&["a"; 20]));
    world.set_others(&[FIRST, SECOND]);
    let puller = polled(&world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
    });
    subscribe(&world, &puller, TOPIC, "*");
    let is_taken = || {
        let positions = puller.positions();
        let mut taken = positions.iter().filter(|(_, position)| *position >= 0);
        taken.any(|(key, _)| (&*key.broker, key.queue_id) == ("b1", 0))
    };
    assert!(!is_taken(), "it is the second member's");
    // The second one has left, the first one has taken its queue, and the last one has come.
    world.regroup(&[FIRST, LAST]);
    until("the queue is taken", is_taken);
    let place = (TOPIC.to_owned(), "0".to_owned());
    world.consumed[1].committed.lock().unwrap().insert(place, 12);
    assert_eq!(poll(&puller), (12..20).collect::<Vec<_>>());
}

#[test]
fn a_queue_may_be_another_members_when_the_queues_have_changed_with_the_members() {
    /// Behind `FIRST`, in front of this member.
    const SECOND: &str = "00";
    let world = World::new(3);
    // Two queues of the first member, one of the second, one of this one.
    world.offer(&[1, 1, 2]);
    world.consumed[1].store(tagged(&["a"; 20]));
    world.set_others(&[FIRST, SECOND]);
    let puller = polled(&world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
    });
    subscribe(&world, &puller, TOPIC, "*");
    let has_only = |broker: &str, queue_id| {
        let positions = puller.positions();
        positions.len() == 1
            && positions
                .iter()
                .all(|(key, at)| (&*key.broker, key.queue_id) == (broker, queue_id) && *at >= 0)
    };
    until("the last queue is this member's", || has_only("b2", 1));
    // The second member has gone with a broker. Of two queues the second one would have been its own.
    world.hold(request::GET_CONSUMER_LIST_BY_GROUP);
    world.regroup(&[FIRST]);
    until("the group is asked for", || world.held() > 0);
    world.offer(&[1, 1]);
    let topic = TOPIC.into();
    let refreshed = puller.routes().refresh(&topic);
    world.runtime.block_on(refreshed).unwrap();
    world.release();
    until("the first member's queue is taken", || has_only("b1", 0));
    let place = (TOPIC.to_owned(), "0".to_owned());
    world.consumed[1].committed.lock().unwrap().insert(place, 12);
    assert_eq!(poll(&puller), (12..20).collect::<Vec<_>>());
}

#[test]
fn a_commit_of_ones_own_does_not_move_a_queue_that_was_just_taken() {
    let world = World::new(2);
    world.consumed[0].store(tagged(&["a"; 20]));
    world.set_others(&[LAST]);
    let puller = polled(&world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
    });
    subscribe(&world, &puller, TOPIC, "*");
    let committed = puller.commit_offsets(vec![(queue(), 12)]);
    world.runtime.block_on(committed).unwrap();
    // Longer than another member's commit is waited for.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(poll(&puller), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_commit_of_ones_own_that_fails_leaves_that_of_the_member_before_to_be_waited_for() {
    let world = World::new(2);
    world.consumed[0].store(tagged(&["a"; 20]));
    world.set_others(&[LAST]);
    let puller = polled(&world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
    });
    // Where the group is said at once, and not while the queue waits for the member before.
    world.hold(request::QUERY_CONSUMER_OFFSET);
    std::thread::scope(|scope| {
        let subscribing = scope.spawn(|| subscribe(&world, &puller, TOPIC, "*"));
        until("its queues are to begin", || world.held() == 2);
        world.answer_held();
        subscribing.join().unwrap();
    });
    world.consumed[0]
        .refused
        .lock()
        .unwrap()
        .push(request::UPDATE_CONSUMER_OFFSET);
    let committed = puller.commit_offsets(vec![(queue(), 5)]);
    assert!(world.runtime.block_on(committed).is_err());
    let place = (TOPIC.to_owned(), "0".to_owned());
    world.consumed[0].committed.lock().unwrap().insert(place, 12);
    world.release();
    assert_eq!(poll(&puller), (12..20).collect::<Vec<_>>());
}

/// A member that has taken messages of one queue by two polls, five each.
fn polled_twice(world: &World) -> Puller {
    world.consumed[0].store(tagged(&["a"; 10]));
    let puller = polled(world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
    });
    subscribe(world, &puller, TOPIC, "*");
    until("the messages are there", || puller.wait(Duration::from_millis(5)));
    for _ in 0..2 {
        let taken: usize = puller.take(5).unwrap().iter().map(Messages::len).sum();
        assert_eq!(taken, 5);
    }
    puller
}

#[test]
fn polls_that_are_undone_in_any_order_are_repeated_from_the_first_message() {
    let all: Vec<i64> = (0..10).collect();
    for order in [[0, 5], [5, 0]] {
        let world = World::new(1);
        let puller = polled_twice(&world);
        for first in order {
            puller.seek_back(&queue(), first).unwrap();
        }
        assert_eq!(poll(&puller), all, "undone in the order {order:?}");
    }
}

#[test]
fn a_poll_that_is_undone_leaves_a_position_before_it_and_makes_nothing_done() {
    let world = World::new(1);
    let puller = polled_twice(&world);
    puller.seek(&queue(), 2).unwrap();
    puller.seek_back(&queue(), 5).unwrap();
    assert_eq!(poll(&puller), (2..10).collect::<Vec<i64>>());
    // Another thread has them now, and has not polled again.
    puller.seek_back(&queue(), 5).unwrap();
    world.runtime.block_on(puller.shut(false)).unwrap();
    assert_eq!(world.consumed[0].position(), Some(2));
}

#[test]
fn a_queue_that_goes_waits_for_the_calls_that_have_messages_of_it() {
    let world = World::new(2);
    world.consumed[0].store(tagged(&["a"; 3]));
    let puller = listening(&world, |options| {
        options.commit_interval = Some(Duration::from_mins(10));
    });
    let work = take(&puller, 1);
    assert_eq!(offsets(&work), [0]);
    let lists = || world.consumed[0].asked(request::GET_CONSUMER_LIST_BY_GROUP).len();
    let before = lists();
    world.regroup(&[FIRST]);
    until("the group is asked for", || lists() > before);
    std::thread::sleep(Duration::from_millis(50));
    assert!(
        puller.take_work(1).unwrap().is_none(),
        "nothing more is handed out"
    );
    puller.finish(&work, 0..1, &[]);
    until("its position is committed", || {
        world.consumed[0].position() == Some(1)
    });
    assert!(puller.positions().iter().all(|(key, _)| **key != queue()));
}

#[test]
fn a_queue_that_goes_does_not_wait_for_a_slow_call() {
    let world = World::new(2);
    world.consumed[0].store(tagged(&["a"; 3]));
    let puller = listening(&world, |_| ());
    let work = take(&puller, 1);
    world.regroup(&[FIRST]);
    until("the queue goes", || {
        puller.positions().iter().all(|(key, _)| **key != queue())
    });
    puller.finish(&work, 0..1, &[]);
    world.runtime.block_on(puller.shut(true)).unwrap();
    assert_eq!(
        world.consumed[0].position(),
        Some(0),
        "it is delivered again elsewhere"
    );
}

/// As in a forked child, where the parent's memberships never end.
#[test]
fn a_member_with_other_connections_does_not_end_the_repetition_of_an_unregistration() {
    let world = World::new(2);
    let connections = Connections::new();
    let with = |group: &str, connections: &Arc<Connections>| {
        let puller = polled(&world, |options| {
            options.client.group = group.into();
            options.client.instance_name = "one".into();
            options.client.connections = connections.clone();
            options.client.request_timeout = Duration::from_millis(700);
        });
        subscribe(&world, &puller, TOPIC, "*");
        puller
    };
    let (puller, _other) = (with("group", &connections), with("other", &connections));
    let _elsewhere = with("group", &Connections::new());
    let unregistrations = || world.consumed[0].asked(request::UNREGISTER_CLIENT).len();
    world.hold(request::HEART_BEAT);
    world.hold(request::UNREGISTER_CLIENT);
    let refused = world.runtime.block_on(puller.subscribe(TOPIC, "other", false));
    assert!(refused.is_err(), "its heartbeats are not answered in time");
    world.runtime.block_on(puller.shut(true)).unwrap();
    until("the unregistration is repeated", || unregistrations() == 2);
    world.release();
}
