//! What listeners are given, and what becomes of messages that they do not handle, against scripted brokers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::consumers::{TOPIC, World, fail, listening, offsets, take, until};
use pyrmq_client::consumer::listener::Failure;
use pyrmq_client::consumer::options::Order;
use pyrmq_client::consumer::puller::Puller;
use pyrmq_remoting::body::{Body, MessageQueue, ResetOffsetBody};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::message::NewRecord;
use pyrmq_testkit::new_record;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn bodies(count: usize) -> Vec<(Vec<u8>, String)> {
    (0..count)
        .map(|number| (number.to_string().into_bytes(), String::new()))
        .collect()
}

/// Two brokers; the first has the messages.
fn world(messages: Vec<(Vec<u8>, String)>) -> World {
    let world = World::new(2);
    world.consumed[0].store(messages);
    world
}

/// No broker takes back a message, nor a new one in its place.
fn refuse_what_comes_back(world: &World) {
    let codes = [request::CONSUMER_SEND_MSG_BACK, request::SEND_MESSAGE_V2];
    for broker in &world.consumed {
        broker.refused.lock().unwrap().extend(codes);
    }
}

/// A message fails twice, and is refused each time: the delay levels with which it was handed back.
fn levels_of_two_refusals(world: &World, puller: &Puller) -> Vec<String> {
    for _ in 0..2 {
        fail(puller, &take(puller, 1), Failure::Later { delay_level: 0 });
    }
    until("it was handed back twice", || {
        world.consumed[0].asked(request::CONSUMER_SEND_MSG_BACK).len() == 2
    });
    let handed_back = world.consumed[0].asked(request::CONSUMER_SEND_MSG_BACK);
    let levels = handed_back.iter().map(|asked| asked.fields.get("delayLevel"));
    levels.map(|level| level.unwrap_or_default().to_owned()).collect()
}

#[test]
fn an_ending_consumer_hands_out_what_lies_before_finished_messages_and_nothing_else() {
    let world = world(bodies(10));
    let puller = listening(&world, |_| ());
    let (first, second) = (take(&puller, 4), take(&puller, 4));
    assert_eq!(
        (offsets(&first), offsets(&second)),
        (vec![0, 1, 2, 3], vec![4, 5, 6, 7])
    );
    // The first thread has handled 0 and gives the rest back, the second has handled up to 5.
    puller.finish(
        &first,
        0..4,
        &[
            (1, Failure::Untouched),
            (2, Failure::Untouched),
            (3, Failure::Untouched),
        ],
    );
    puller.finish(&second, 0..2, &[]);
    puller.finish(&second, 2..4, &[(2, Failure::Untouched), (3, Failure::Untouched)]);
    assert!(world.runtime.block_on(puller.drain(Duration::ZERO)));
    let gap = take(&puller, 2);
    assert_eq!(offsets(&gap), [1]);
    let more = take(&puller, 8);
    assert_eq!(offsets(&more), [2]);
    let last = take(&puller, 8);
    assert_eq!(offsets(&last), [3]);
    for work in [&gap, &more, &last] {
        puller.finish(work, 0..1, &[]);
    }
    assert!(puller.take_work(8).unwrap().is_none(), "nothing is done behind 6");
    world.runtime.block_on(puller.shut(true)).unwrap();
    assert_eq!(world.consumed[0].position(), Some(6));
}

#[test]
fn a_refused_message_is_sent_to_the_retry_topic_as_a_new_one() {
    let world = world(vec![(
        b"coffee".to_vec(),
        "UNIQ_KEY\u{1}ID7\u{2}KEYS\u{1}a\u{2}DELAY\u{1}2\u{2}".to_owned(),
    )]);
    for broker in &world.consumed {
        broker
            .refused
            .lock()
            .unwrap()
            .push(request::CONSUMER_SEND_MSG_BACK);
    }
    let puller = listening(&world, |_| ());
    fail(&puller, &take(&puller, 1), Failure::Later { delay_level: 0 });
    until("the position is committed", || {
        world.consumed[0].position() == Some(1)
    });
    let sent: Vec<_> = world
        .consumed
        .iter()
        .flat_map(|broker| broker.asked(request::SEND_MESSAGE_V2))
        .collect();
    assert_eq!(sent.len(), 1);
    let field = |letter| sent[0].fields.get(letter).unwrap_or_default();
    assert_eq!(
        (field("b"), field("j"), field("a")),
        ("%RETRY%group", "1", "CLIENT_INNER_PRODUCER")
    );
    let properties = field("i");
    for wanted in [
        "KEYS\u{1}a\u{2}",
        "DELAY\u{1}3\u{2}",
        "RETRY_TOPIC\u{1}orders\u{2}",
        "ORIGIN_MESSAGE_ID\u{1}ID7\u{2}",
    ] {
        assert!(properties.contains(wanted), "{wanted:?} in {properties:?}");
    }
    assert!(!properties.contains("DELAY\u{1}2"));
    assert_eq!(sent[0].body.as_deref(), Some(&b"coffee"[..]));
    assert_eq!(puller.failures().later, 1);
}

#[test]
fn a_broker_that_needs_the_number_of_tries_gets_apaches_default() {
    let world = world(bodies(1));
    world.consumed[0].needs_limit.store(true, Ordering::Relaxed);
    let puller = listening(&world, |_| ());
    fail(&puller, &take(&puller, 1), Failure::Later { delay_level: 0 });
    until("it is handed back", || puller.failures().later == 1);
    let asked = world.consumed[0].asked(request::CONSUMER_SEND_MSG_BACK);
    assert_eq!(asked.last().unwrap().fields.get("maxReconsumeTimes"), Some("16"));
}

#[test]
fn a_message_that_nobody_takes_back_is_tried_again_here_and_counted_once() {
    let world = world(bodies(1));
    refuse_what_comes_back(&world);
    let puller = listening(&world, |_| ());
    fail(&puller, &take(&puller, 1), Failure::Dead);
    // It comes once both brokers have refused it and its copy.
    let again = take(&puller, 1);
    assert_eq!(world.consumed[0].asked(request::CONSUMER_SEND_MSG_BACK).len(), 1);
    assert_eq!(again.parts[0].deliveries(), 2);
    world.consumed[0].refused.lock().unwrap().clear();
    assert_eq!(puller.failures().dead, 0);
    fail(&puller, &again, Failure::Dead);
    until("it is a dead letter", || puller.failures().dead == 1);
    assert_eq!(puller.failures().later, 0);
}

#[test]
fn a_dead_letter_that_has_no_room_for_more_properties_is_sent_without_the_largest() {
    let large = "v".repeat(32_700);
    let properties = format!("UNIQ_KEY\u{1}ID7\u{2}KEYS\u{1}k\u{2}large\u{1}{large}\u{2}small\u{1}s\u{2}");
    let world = world(vec![(b"poison".to_vec(), properties)]);
    for broker in &world.consumed {
        broker
            .refused
            .lock()
            .unwrap()
            .push(request::CONSUMER_SEND_MSG_BACK);
    }
    let puller = listening(&world, |_| ());
    fail(&puller, &take(&puller, 1), Failure::Dead);
    until("it is a dead letter", || puller.failures().dead == 1);
    let consumed = world.consumed.iter();
    let sent: Vec<_> = consumed
        .flat_map(|broker| broker.asked(request::SEND_MESSAGE_V2))
        .map(|sent| sent.fields.get("i").unwrap_or_default().to_owned())
        .collect();
    let (short, long): (Vec<_>, Vec<_>) = sent.iter().partition(|text| !text.contains("large"));
    assert_eq!(
        (short.len(), long.len()),
        (1, 2),
        "both brokers refuse all properties"
    );
    for kept in [
        "KEYS\u{1}k\u{2}",
        "small\u{1}s\u{2}",
        "ORIGIN_MESSAGE_ID\u{1}ID7\u{2}",
    ] {
        assert!(short[0].contains(kept), "{kept:?} in {:?}", short[0]);
    }
}

#[test]
fn a_message_that_nobody_takes_back_is_a_dead_letter_after_its_last_try_here() {
    let world = world(bodies(1));
    refuse_what_comes_back(&world);
    let puller = listening(&world, |options| options.max_tries = Some(1));
    assert_eq!(levels_of_two_refusals(&world, &puller), ["0", "-1"]);
}

#[test]
fn tries_that_a_broker_has_counted_make_no_refused_message_a_dead_letter() {
    let world = world(Vec::new());
    // The group's maximum is the broker's, and larger than Apache's default of 16.
    let mut bytes = Vec::new();
    let record = NewRecord {
        body: b"often tried",
        reconsume_times: 20,
        ..new_record(TOPIC, 0, 0)
    };
    record.encode(&mut bytes).unwrap();
    world.consumed[0].records.lock().unwrap().push(bytes.into());
    refuse_what_comes_back(&world);
    let puller = listening(&world, |_| ());
    assert_eq!(levels_of_two_refusals(&world, &puller), ["0", "0"]);
}

#[test]
fn a_hand_back_that_gets_no_answer_is_not_sent_anew() {
    let world = world(bodies(1));
    world.hold(request::CONSUMER_SEND_MSG_BACK);
    let puller = listening(&world, |options| {
        options.client.request_timeout = Duration::from_millis(300);
    });
    fail(&puller, &take(&puller, 1), Failure::Later { delay_level: 0 });
    // The broker may have taken it back: a new message would be a copy, and so would one on each broker.
    let again = take(&puller, 1);
    assert_eq!(again.parts[0].deliveries(), 2);
    for broker in &world.consumed {
        assert!(broker.asked(request::SEND_MESSAGE_V2).is_empty());
    }
    assert_eq!(world.held(), 1);
}

#[test]
fn a_hand_back_waits_for_a_slow_broker() {
    let world = world(bodies(1));
    world.hold(request::CONSUMER_SEND_MSG_BACK);
    let puller = listening(&world, |options| {
        options.client.request_timeout = Duration::from_secs(2);
    });
    fail(&puller, &take(&puller, 1), Failure::Later { delay_level: 0 });
    until("the message is handed back", || world.held() == 1);
    std::thread::sleep(Duration::from_secs(3));
    world.release();
    until("the message is done here", || puller.failures().later == 1);
    assert_eq!(world.consumed[0].asked(request::CONSUMER_SEND_MSG_BACK).len(), 1);
}

#[test]
fn a_new_message_that_gets_no_answer_is_not_sent_to_the_next_broker() {
    let world = world(bodies(1));
    world.consumed[0]
        .refused
        .lock()
        .unwrap()
        .push(request::CONSUMER_SEND_MSG_BACK);
    world.hold(request::SEND_MESSAGE_V2);
    let puller = listening(&world, |options| {
        options.client.request_timeout = Duration::from_millis(300);
    });
    fail(&puller, &take(&puller, 1), Failure::Later { delay_level: 0 });
    take(&puller, 1);
    assert!(world.consumed[0].asked(request::SEND_MESSAGE_V2).is_empty());
    assert_eq!(world.consumed[1].asked(request::SEND_MESSAGE_V2).len(), 1);
}

#[test]
fn a_message_that_cannot_be_read_is_passed_over_and_no_other() {
    for broken in [0, 5, 9] {
        let world = World::new(2);
        world.consumed[0].store(bodies(10));
        {
            let mut records = world.consumed[0].records.lock().unwrap();
            let mut bytes = records[broken].to_vec();
            bytes[4] ^= 0xff; // Its magic code.
            records[broken] = bytes.into();
        }
        let puller = listening(&world, |_| ());
        let mut seen = Vec::new();
        while seen.len() < 9 {
            let work = take(&puller, 4);
            seen.extend(offsets(&work));
            puller.finish(&work, 0..offsets(&work).len(), &[]);
        }
        let broken = i64::try_from(broken).unwrap();
        assert_eq!(
            seen,
            (0..10).filter(|offset| *offset != broken).collect::<Vec<_>>()
        );
        until("the last position is committed", || {
            world.consumed[0].position() == Some(10)
        });
        assert_eq!(puller.failures().unreadable, 1);
    }
}

#[test]
fn a_message_whose_inside_is_broken_is_passed_over_when_its_listener_fails() {
    let world = World::new(2);
    world.consumed[0].store(bodies(2));
    {
        let mut records = world.consumed[0].records.lock().unwrap();
        let mut bytes = records[0].to_vec();
        bytes[84] = 0x7f; // The length of its body.
        records[0] = bytes.into();
    }
    let puller = listening(&world, |options| options.order = Order::Key);
    let work = take(&puller, 1);
    assert_eq!(offsets(&work), [0]);
    fail(&puller, &work, Failure::Later { delay_level: 0 });
    let next = take(&puller, 1);
    assert_eq!(offsets(&next), [1]);
    puller.finish(&next, 0..1, &[]);
    until("the position is committed", || {
        world.consumed[0].position() == Some(2)
    });
    assert_eq!(puller.failures().unreadable, 1);
}

#[test]
fn tries_in_place_are_counted_and_end_as_one_dead_letter() {
    let world = world(bodies(1));
    let puller = listening(&world, |options| {
        options.order = Order::Key;
        options.max_tries = Some(2);
        options.suspend_pause = Duration::from_millis(1);
    });
    for _ in 0..3 {
        fail(&puller, &take(&puller, 1), Failure::Later { delay_level: 0 });
    }
    until("it is a dead letter", || puller.failures().dead == 1);
    assert_eq!(puller.failures().later, 2);
    let handed_back = world.consumed[0].asked(request::CONSUMER_SEND_MSG_BACK);
    assert_eq!(handed_back.len(), 1);
    assert_eq!(handed_back[0].fields.get("delayLevel"), Some("-1"));
    until("the position is committed", || {
        world.consumed[0].position() == Some(1)
    });
}

#[test]
fn a_message_that_waits_does_not_keep_its_answer() {
    let mut messages = bodies(200);
    messages.push((vec![b'x'; 100_000], String::new()));
    let world = world(messages);
    let puller = listening(&world, |_| ());
    let work = take(&puller, 1);
    let answer = std::sync::Arc::downgrade(&work.parts[0].chunk);
    let pause = Duration::from_mins(1);
    fail(&puller, &work, Failure::Again { pause });
    drop(work);
    loop {
        let work = take(&puller, 1024);
        let last = *offsets(&work).last().unwrap();
        puller.finish(&work, 0..offsets(&work).len(), &[]);
        if last == 200 {
            break;
        }
    }
    until("the answer is freed", || answer.strong_count() == 0);
}

#[test]
fn an_outcome_of_before_a_reset_commits_nothing() {
    let world = world(bodies(10));
    let puller = listening(&world, |_| ());
    let before = take(&puller, 10);
    let queue = MessageQueue::new(TOPIC, "b0", 0);
    let body = ResetOffsetBody {
        offset_table: [(queue, 2)].into(),
    };
    world.push(0, request::RESET_CONSUMER_CLIENT_OFFSET, body.encode());
    let after = take(&puller, 10);
    assert_eq!(offsets(&after), (2..10).collect::<Vec<_>>());
    puller.finish(&before, 0..10, &[]);
    until("the reset is committed", || {
        world.consumed[0].position() == Some(2)
    });
    puller.finish(&after, 0..1, &[]);
    until("what is done now is committed", || {
        world.consumed[0].position() == Some(3)
    });
}

#[test]
fn a_reset_drops_what_was_read_ahead_of_a_queue_that_does_not_pull() {
    let world = world(bodies(100));
    let puller = listening(&world, |options| options.ahead_messages = Some(80));
    let first = take(&puller, 1);
    // Brokers answer at once: the queue has soon all that it may have, and pulls only when half of it is done.
    std::thread::sleep(Duration::from_millis(200));
    let ahead: usize = puller.queue_states().iter().map(|queue| queue.waiting).sum();
    assert!((5..90).contains(&ahead), "{ahead} read ahead");
    *world.consumed[0].reset_to.lock().unwrap() = Some(90);
    puller.finish(&first, 0..1, &[]);
    until("the queue is pulled", || {
        world.consumed[0].reset_to.lock().unwrap().is_none()
    });
    let next = take(&puller, 1);
    assert_eq!(offsets(&next), [90]);
    puller.finish(&next, 0..1, &[]);
    until("what is done now is committed", || {
        world.consumed[0].position() == Some(91)
    });
}

#[test]
fn a_queue_that_comes_back_while_it_is_given_back_is_locked_last() {
    let world = world(bodies(3));
    let puller = listening(&world, |options| options.order = Order::Queue);
    let first = take(&puller, 1);
    assert_eq!(offsets(&first), [0]);
    world.regroup(&["0"]);
    until("the queue is leaving", || !puller.holds(&first));
    world.regroup(&[]);
    puller.finish(&first, 0..1, &[]);
    let next = take(&puller, 1);
    assert_eq!(
        offsets(&next),
        [1],
        "the position was committed before the queue was taken again"
    );
    let requests = world.consumed[0].requests.lock().unwrap();
    let locks = [request::LOCK_BATCH_MQ, request::UNLOCK_BATCH_MQ];
    let last = requests.iter().rev().find(|one| locks.contains(&one.code));
    assert_eq!(last.map(|one| one.code), Some(request::LOCK_BATCH_MQ));
}

#[test]
fn a_queue_is_handed_out_no_further_than_its_span() {
    for order in [Order::None, Order::Key] {
        let world = World::new(1);
        world.consumed[0].store((0..50).map(|_| (b"x".to_vec(), String::new())));
        let puller = listening(&world, |options| {
            options.order = order;
            options.max_span = 10;
        });
        let first = take(&puller, 1);
        let second = take(&puller, 1024);
        assert_eq!(offsets(&second), (1..10).collect::<Vec<i64>>(), "{order:?}");
        puller.finish(&second, 0..9, &[]);
        assert!(puller.take_work(1024).unwrap().is_none(), "{order:?}");
        puller.finish(&first, 0..1, &[]);
        assert_eq!(
            offsets(&take(&puller, 1024)),
            (10..20).collect::<Vec<i64>>(),
            "{order:?}"
        );
    }
}

#[test]
fn no_more_messages_are_fetched_ahead_than_the_bound() {
    let world = World::new(2);
    world.consumed[0].store((0..100).map(|_| (b"x".to_vec(), String::new())));
    let puller = listening(&world, |options| options.ahead_messages = Some(40));
    let waiting = || {
        let states = puller.queue_states();
        states.iter().map(|queue| queue.waiting).sum::<usize>()
    };
    until("messages were fetched", || waiting() > 0);
    let mut next = 0;
    while next < 100 {
        std::thread::sleep(Duration::from_millis(10));
        assert!(waiting() <= 40, "{} wait", waiting());
        let work = take(&puller, 7);
        let got = offsets(&work);
        assert_eq!(got.first(), Some(&next));
        next += i64::try_from(got.len()).unwrap();
        puller.finish(&work, 0..got.len(), &[]);
    }
    let rates = puller.rates();
    assert!(
        rates.done > 0.0 && rates.received > 0.0 && rates.failed == 0.0,
        "{rates:?}"
    );
    let states = puller.queue_states();
    let queue = states.iter().find(|queue| queue.position == 100).unwrap();
    assert_eq!((queue.lag, queue.waiting, queue.in_flight), (Some(0), 0, 0));
}
