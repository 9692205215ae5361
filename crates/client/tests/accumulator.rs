//! Gathering messages into batches: when a batch is sent, in which order, and each message's outcome.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Act, Refuses, WAIT, World};
use pyrmq_client::ProducerOptions;
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::accumulator::{
    AccumulatedMessage, Accumulator, BatchOutcome, BatchSettings, Limits, TargetRef,
};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::batch;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_mins(1);

struct Bench {
    world: World,
    accumulator: Arc<Accumulator<u32>>,
    producer: Arc<Producer>,
    landed: Receiver<BatchOutcome<u32>>,
}

impl Bench {
    fn new(brokers: usize, limits: Limits, set: impl FnOnce(&mut ProducerOptions)) -> Self {
        let world = World::new(brokers);
        let producer = Arc::new(world.producer(set));
        let (sender, landed) = channel();
        let sink = Box::new(move |landed| drop(sender.send(landed)));
        let accumulator = Accumulator::new(producer.clone(), limits, sink);
        Self {
            world,
            accumulator,
            producer,
            landed,
        }
    }

    fn push(&self, completion: u32, target: TargetRef<'_>, eager: bool) {
        self.push_within(completion, target, eager, None);
    }

    fn push_within(&self, completion: u32, target: TargetRef<'_>, eager: bool, timeout: Option<Duration>) {
        let body = completion.to_be_bytes();
        // It cannot wait for capacity, which refusals reduce: this thread itself takes the outcomes.
        let permit = self.producer.back_pressure().force_acquire(1, body.len());
        let message = AccumulatedMessage {
            topic: "orders",
            body: &body,
            encoded: None,
            properties: "",
            flag: 0,
            target,
            eager,
            alone: false,
            timeout,
            batch: None,
            completion: Some(completion),
        };
        self.accumulator.push(message, permit).unwrap();
    }

    /// Returns the completions of the next frame, with its result.
    fn next(&self) -> (Vec<u32>, bool) {
        let landed = self.landed.recv_timeout(WAIT).unwrap();
        assert_eq!(landed.permit.messages(), landed.completions.len());
        let places: Vec<u32> = landed.completions.iter().map(|(target, _)| *target).collect();
        if landed.batch {
            assert!(places.is_sorted(), "places ascend: {places:?}");
        }
        let completions = landed
            .completions
            .into_iter()
            .map(|(_, completion)| completion)
            .collect();
        (completions, landed.outcome.is_ok())
    }

    /// Returns the numbers of all stored messages, in the order in which the brokers stored them.
    fn stored(&self, broker: usize) -> Vec<u32> {
        let bodies = self.world.brokers[broker].bodies.lock().unwrap();
        let mut numbers = Vec::new();
        for body in bodies.iter() {
            if let Ok(number) = <[u8; 4]>::try_from(&body[..]) {
                numbers.push(u32::from_be_bytes(number));
                continue;
            }
            for item in batch::items(body) {
                numbers.push(u32::from_be_bytes(item.unwrap().body.try_into().unwrap()));
            }
        }
        numbers
    }
}

fn limits(linger: Duration) -> Limits {
    Limits {
        linger,
        bytes: 64 * 1024,
        messages: 1024,
    }
}

const QUEUE: TargetRef<'_> = TargetRef::Queue("b0", 1);

#[test]
fn messages_of_one_queue_stay_in_order_whatever_has_to_be_tried_again() {
    let bench = Bench::new(1, limits(Duration::from_millis(1)), |_| ());
    let busy = Act::Say(response::SYSTEM_BUSY);
    bench
        .world
        .script(0, &[busy, Act::Store, busy, busy, Act::Store, busy]);
    for number in 0..300 {
        bench.push(number, QUEUE, number % 2 == 0);
    }
    let mut completed = Vec::new();
    while completed.len() < 300 {
        let (completions, stored) = bench.next();
        assert!(stored);
        completed.extend(completions);
    }
    let wanted: Vec<u32> = (0..300).collect();
    assert_eq!(completed, wanted, "outcomes come in order");
    assert_eq!(bench.stored(0), wanted, "so do messages");
}

#[test]
fn a_hash_waits_for_its_route_and_keeps_its_order() {
    let bench = Bench::new(1, limits(LONG), |_| ());
    for number in 0..100 {
        bench.push(number, TargetRef::Hash(7), true);
    }
    let mut completed = Vec::new();
    while completed.len() < 100 {
        completed.extend(bench.next().0);
    }
    assert_eq!(bench.stored(0), (0..100).collect::<Vec<u32>>());
    assert_eq!(*bench.world.asked.lock().unwrap(), 1, "one question for all");
}

#[test]
fn messages_that_nobody_awaits_linger_until_their_time_a_full_batch_or_a_flush() {
    let bench = Bench::new(
        1,
        Limits {
            messages: 10,
            ..limits(LONG)
        },
        |_| (),
    );
    for number in 0..25 {
        bench.push(number, TargetRef::Any, false);
    }
    assert_eq!(bench.next().0.len(), 10);
    assert_eq!(bench.next().0.len(), 10);
    assert!(bench.landed.try_recv().is_err(), "the last five linger");
    bench.accumulator.flush();
    assert_eq!(bench.next().0, [20, 21, 22, 23, 24]);
    let quick = Bench::new(1, limits(Duration::from_millis(20)), |_| ());
    let began = Instant::now();
    quick.push(1, TargetRef::Any, false);
    quick.push(2, TargetRef::Any, false);
    assert_eq!(quick.next().0, [1, 2]);
    assert!(began.elapsed() >= Duration::from_millis(20));
}

#[test]
fn awaited_messages_are_sent_at_once_and_then_together_with_later_ones() {
    let bench = Bench::new(1, limits(LONG), |_| ());
    bench.world.script(0, &[Act::Silent]);
    bench.push(0, TargetRef::Any, true);
    for number in 1..50 {
        bench.push(number, TargetRef::Any, true);
    }
    let held = loop {
        if let Some(reply) = bench.world.brokers[0].held.lock().unwrap().pop() {
            break reply;
        }
        std::thread::yield_now();
    };
    assert!(bench.landed.try_recv().is_err());
    held.send(common::stored_answer("1", "0"));
    assert_eq!(bench.next().0, [0]);
    assert_eq!(bench.next().0, (1..50).collect::<Vec<u32>>());
    bench.push(50, TargetRef::Any, true);
    assert_eq!(bench.next(), (vec![50], true));
    let bodies = bench.world.brokers[0].bodies.lock().unwrap();
    assert_eq!(batch::items(&bodies[0]).count(), 49);
    assert_eq!(
        bodies[1],
        50_u32.to_be_bytes()[..],
        "who stayed alone is no batch"
    );
}

#[test]
fn corked_messages_are_sent_together_when_full_or_uncorked() {
    let bench = Bench::new(1, limits(LONG), |_| ());
    let push = |number: u32, target| {
        let permit = bench.producer.back_pressure().force_acquire(1, 4);
        let message = AccumulatedMessage {
            topic: "orders",
            body: &number.to_be_bytes(),
            encoded: None,
            properties: "",
            flag: 0,
            target,
            eager: true,
            alone: false,
            timeout: None,
            batch: None,
            completion: Some(number),
        };
        bench.accumulator.push_corked(message, permit).unwrap()
    };
    assert!(push(0, TargetRef::Any), "somebody must uncork");
    assert!(!push(1, TargetRef::Any), "once for all");
    assert!(!push(2, QUEUE));
    assert!(bench.landed.try_recv().is_err());
    bench.accumulator.uncork();
    let mut landed = [bench.next().0, bench.next().0];
    landed.sort();
    assert_eq!(landed, [vec![0, 1], vec![2]]);
    assert!(push(3, TargetRef::Any), "uncorked once, corked again");
    bench.accumulator.flush();
    assert_eq!(bench.next().0, [3], "a flush does not wait for it");
}

#[test]
fn without_linger_each_message_is_a_frame() {
    let bench = Bench::new(2, limits(Duration::ZERO), |_| ());
    for number in 0..20 {
        bench.push(number, TargetRef::Any, false);
    }
    for _ in 0..20 {
        assert_eq!(bench.next().0.len(), 1);
    }
    assert_eq!(bench.world.stored(), 20);
}

#[test]
fn a_message_with_a_shorter_timeout_fails_before_the_one_that_it_waits_behind() {
    let set = |options: &mut ProducerOptions| options.send_timeout = Duration::from_millis(500);
    let bench = Bench::new(1, limits(LONG), set);
    bench.world.script(0, &[Act::Silent]);
    bench.push(0, QUEUE, true);
    bench.push_within(1, QUEUE, true, Some(Duration::from_millis(1)));
    let landed = bench.landed.recv_timeout(WAIT).unwrap();
    assert_eq!(landed.completions, [(0, 1)]);
    let text = landed.outcome.unwrap_err().to_string();
    assert!(
        text.contains("after 0 attempts")
            && text.contains("it was not stored")
            && text.ends_with("not sent within 1 ms: earlier messages of its queue were still in flight"),
        "{text}"
    );
    assert_eq!(bench.next(), (vec![0], false));
}

#[test]
fn closing_sends_lingering_messages_and_accepts_no_more() {
    let bench = Bench::new(1, limits(LONG), |_| ());
    bench.push(0, TargetRef::Any, false);
    bench.accumulator.close();
    assert_eq!(bench.next(), (vec![0], true));
    let message = AccumulatedMessage {
        topic: "orders",
        body: b"x",
        encoded: None,
        properties: "",
        flag: 0,
        target: TargetRef::Any,
        eager: false,
        alone: false,
        timeout: None,
        batch: None,
        completion: Some(1),
    };
    let permit = bench.producer.back_pressure().force_acquire(1, 1);
    assert_eq!(
        bench.accumulator.push(message, permit).unwrap_err().to_string(),
        "the producer is closed"
    );
    assert_eq!(bench.producer.back_pressure().in_flight(), 0);
}

#[test]
fn a_queue_that_is_not_there_fails_thousands_of_waiting_messages_without_recursion() {
    let bench = Bench::new(
        1,
        Limits {
            messages: 1,
            ..limits(Duration::from_millis(1))
        },
        |_| (),
    );
    for number in 0..5000 {
        bench.push(number, TargetRef::Queue("b0", 99), false);
    }
    for _ in 0..5000 {
        assert!(!bench.next().1);
    }
    assert_eq!(bench.producer.back_pressure().in_flight(), 0);
}

#[test]
fn messages_of_a_hash_follow_it_in_order_when_their_broker_leaves_the_route() {
    let bench = Bench::new(2, limits(LONG), |_| ());
    // Of the four queues, 2 and 3 belong to the second broker, which holds its first frame.
    bench.world.script(1, &[Act::Silent]);
    bench.push(0, TargetRef::Hash(2), true);
    let held = loop {
        if let Some(reply) = bench.world.brokers[1].held.lock().unwrap().pop() {
            break reply;
        }
        std::thread::yield_now();
    };
    for number in 1..50 {
        bench.push(number, TargetRef::Hash(2), true);
    }
    bench.push_within(50, TargetRef::Hash(2), true, Some(WAIT));
    bench.push(99, TargetRef::Queue("b1", 0), true);
    bench.world.leave(1);
    let topic = bench.producer.topic("orders");
    let routes = bench.producer.routes();
    bench.world.runtime.block_on(routes.refresh(&topic)).unwrap();
    for number in 51..60 {
        bench.push(number, TargetRef::Hash(2), true);
    }
    let mut completed = Vec::new();
    while completed.len() < 59 {
        let (completions, stored) = bench.next();
        assert!(stored);
        completed.extend(completions);
    }
    assert_eq!(bench.stored(0), (1..60).collect::<Vec<u32>>());
    assert_eq!(completed, (1..60).collect::<Vec<u32>>());
    held.send(common::stored_answer("0", "0"));
    assert_eq!(
        bench.next(),
        (vec![0], true),
        "what was on its way stays where it is"
    );
    assert_eq!(bench.next(), (vec![99], false), "a chosen queue is never another");
    assert_eq!(bench.producer.back_pressure().in_flight(), 0);
}

#[test]
fn messages_waiting_for_a_broker_that_left_follow_in_their_turn() {
    let bench = Bench::new(2, limits(LONG), |_| ());
    bench.world.script(1, &[Act::Silent]);
    bench.push(0, TargetRef::Hash(3), true);
    let held = loop {
        if let Some(reply) = bench.world.brokers[1].held.lock().unwrap().pop() {
            break reply;
        }
        std::thread::yield_now();
    };
    for number in 1..20 {
        bench.push(number, TargetRef::Hash(if number % 2 == 0 { 3 } else { 7 }), true);
    }
    bench.world.leave(1);
    let topic = bench.producer.topic("orders");
    let routes = bench.producer.routes();
    bench.world.runtime.block_on(routes.refresh(&topic)).unwrap();
    held.send(common::stored_answer("1", "0"));
    assert_eq!(bench.next(), (vec![0], true));
    assert_eq!(bench.next(), ((1..20).collect::<Vec<u32>>(), true));
    assert_eq!(bench.stored(0), (1..20).collect::<Vec<u32>>());
    assert!(bench.stored(1).is_empty());
}

/// Everything acquired is released, byte for byte: neither a batch's heads nor the savings of compression count.
#[test]
fn capacity_is_released_with_the_bytes_that_were_acquired() {
    let bench = Bench::new(1, limits(LONG), |_| {});
    let back_pressure = bench.producer.back_pressure();
    // Bytes that stay acquired: releasing too many would show.
    let _stays = back_pressure.force_acquire(1, 1 << 20);
    let bodies = [
        vec![b'x'; 10],
        vec![b'x'; 64 * 1024],
        vec![b'x'; 1000],
        vec![b'x'; 20],
    ];
    for (completion, body) in (0..).zip(&bodies) {
        for target in [TargetRef::Any, QUEUE] {
            let permit = back_pressure.force_acquire(1, body.len());
            let message = AccumulatedMessage {
                topic: "orders",
                body,
                encoded: None,
                properties: "",
                flag: 0,
                target,
                eager: false,
                alone: false,
                timeout: None,
                batch: None,
                completion: Some(completion),
            };
            bench.accumulator.push(message, permit).unwrap();
        }
    }
    bench.accumulator.flush();
    let mut completed = 0;
    while completed < 2 * bodies.len() {
        let landed = bench.landed.recv_timeout(WAIT).unwrap();
        landed.outcome.unwrap();
        completed += landed.completions.len();
        assert_eq!(landed.permit.messages(), landed.completions.len());
    }
    assert_eq!((back_pressure.in_flight(), back_pressure.bytes()), (1, 1 << 20));
}

/// Returns the outcome of each completion, once this many have finished.
fn outcomes(bench: &Bench, count: usize) -> BTreeMap<u32, bool> {
    let mut completed = BTreeMap::new();
    while completed.len() < count {
        let (completions, stored) = bench.next();
        for completion in completions {
            assert_eq!(
                completed.insert(completion, stored),
                None,
                "{completion} is reported twice"
            );
        }
    }
    completed
}

/// If a broker refuses a batch for its size, its messages are stored in smaller batches, in order, and later batches
/// are that small from the start.
#[test]
fn a_batch_that_is_too_long_for_the_broker_is_stored_in_parts() {
    let refusals = [
        (
            response::MESSAGE_ILLEGAL,
            "the message body has more bytes than maxMessageSize",
        ),
        (
            response::SYSTEM_ERROR,
            "java.lang.RuntimeException: message body size exceeded",
        ),
    ];
    for (code, remark) in refusals {
        for target in [TargetRef::Any, QUEUE, TargetRef::Hash(7)] {
            let bench = Bench::new(1, limits(LONG), |_| ());
            let too_long: Refuses = Box::new(|body| body.len() > 1000);
            *bench.world.brokers[0].refuses.lock().unwrap() = Some((too_long, code, remark));
            for number in 0..100 {
                bench.push(number, target, false);
            }
            // With a hash, the queue is known before the message is sent.
            bench.accumulator.flush();
            let all: BTreeMap<u32, bool> = (0..100).map(|number| (number, true)).collect();
            if matches!(target, TargetRef::Hash(_)) {
                bench.push(100, target, true);
                assert_eq!(outcomes(&bench, 101).len(), 101);
            } else {
                assert_eq!(outcomes(&bench, 100), all);
            }
            let mut stored = bench.stored(0);
            if matches!(target, TargetRef::Any) {
                stored.sort_unstable();
            }
            assert!(stored.is_sorted(), "{stored:?}");
            let stats = bench.producer.stats();
            assert_eq!(stats.failed.load(Ordering::Relaxed), 0);
            let before = stats.frames.load(Ordering::Relaxed);
            for number in 200..250 {
                bench.push(number, target, false);
            }
            bench.accumulator.flush();
            assert!(outcomes(&bench, 50).values().all(|stored| *stored));
            let frames = stats.frames.load(Ordering::Relaxed) - before;
            assert!(
                (4..=10).contains(&frames),
                "{frames} frames of at most 1000 bytes"
            );
            let back_pressure = bench.producer.back_pressure();
            assert_eq!((back_pressure.in_flight(), back_pressure.bytes()), (0, 0));
        }
    }
}

#[test]
fn one_message_that_cannot_be_stored_does_not_fail_those_that_it_was_gathered_with() {
    let bench = Bench::new(1, limits(LONG), |_| ());
    let is_bad: Refuses = Box::new(|body| {
        let bad = 57_u32.to_be_bytes();
        body == bad || batch::items(body).flatten().any(|item| item.body == bad)
    });
    *bench.world.brokers[0].refuses.lock().unwrap() = Some((is_bad, response::MESSAGE_ILLEGAL, "bad"));
    for number in 0..100 {
        bench.push(number, QUEUE, false);
    }
    bench.accumulator.flush();
    let failed: Vec<u32> = outcomes(&bench, 100)
        .into_iter()
        .filter_map(|(number, stored)| (!stored).then_some(number))
        .collect();
    assert_eq!(failed, [57]);
    let stored = bench.stored(0);
    assert_eq!((stored.len(), stored.is_sorted()), (99, true), "{stored:?}");
    // The cause was not the length: batches keep their length.
    let stats = bench.producer.stats();
    let before = stats.frames.load(Ordering::Relaxed);
    for number in 100..200 {
        bench.push(number, QUEUE, false);
    }
    bench.accumulator.flush();
    assert_eq!(outcomes(&bench, 100).len(), 100);
    assert_eq!(stats.frames.load(Ordering::Relaxed) - before, 1);
    assert_eq!(stats.failed.load(Ordering::Relaxed), 1);
}

/// `send_batch` comes after earlier single sends and before later ones.
#[test]
fn the_messages_of_a_call_keep_their_place_whatever_has_to_be_tried_again() {
    let bench = Bench::new(1, limits(LONG), |_| ());
    let busy = Act::Say(response::SYSTEM_BUSY);
    let script = [
        busy,
        Act::Store,
        busy,
        busy,
        Act::Store,
        busy,
        Act::Store,
        Act::Store,
    ];
    bench.world.script(0, &script);
    let own = BatchSettings {
        bytes: 2000,
        inner: false,
        timeout: WAIT,
    };
    for number in 0_u32..1000 {
        let of_call = (300..800).contains(&number);
        let body = number.to_be_bytes();
        let message = AccumulatedMessage {
            topic: "orders",
            body: &body,
            encoded: None,
            properties: "",
            flag: 0,
            target: TargetRef::Hash(5),
            eager: of_call,
            alone: number % 97 == 0,
            timeout: None,
            batch: of_call.then_some(own),
            completion: Some(number),
        };
        let back_pressure = bench.producer.back_pressure();
        let permit = back_pressure.force_acquire(1, message.charged_bytes());
        bench.accumulator.push_corked(message, permit).unwrap();
    }
    bench.accumulator.uncork();
    bench.accumulator.flush();
    let (mut completed, mut frames) = (Vec::new(), 0);
    while completed.len() < 1000 {
        let (completions, stored) = bench.next();
        assert!(stored);
        completed.extend(completions);
        frames += 1;
    }
    let wanted: Vec<u32> = (0..1000).collect();
    assert_eq!(completed, wanted);
    assert_eq!(bench.stored(0), wanted);
    assert!(
        frames > 20,
        "batches of the call keep to its own length: {frames} frames"
    );
    assert_eq!(bench.accumulator.partitions(), 0);
    assert_eq!(
        (
            bench.producer.back_pressure().in_flight(),
            bench.producer.back_pressure().bytes()
        ),
        (0, 0)
    );
}

/// What waits behind a silent broker's frame counts for that broker from its way in.
#[test]
fn what_waits_for_a_silent_broker_leaves_room_for_the_other() {
    let bench = Bench::new(2, limits(LONG), |options| options.max_in_flight = 100);
    for (number, broker) in (0..).zip(["b0", "b1"]) {
        bench.push(number, TargetRef::Queue(broker, 1), true);
        assert!(bench.next().1);
    }
    bench.world.script(0, &[Act::Silent]);
    let push = |target| {
        let brokers = bench.producer.candidates("orders", target);
        let back_pressure = bench.producer.back_pressure();
        let Some(permit) = back_pressure.acquire_at(1, 1, &brokers, Duration::from_millis(20)) else {
            return false;
        };
        let message = AccumulatedMessage {
            topic: "orders",
            body: b"x",
            encoded: None,
            properties: "",
            flag: 0,
            target,
            eager: true,
            alone: false,
            timeout: None,
            batch: None,
            completion: None,
        };
        bench.accumulator.push(message, permit).unwrap();
        true
    };
    let kept = [TargetRef::Queue("b0", 1), TargetRef::Hash(0)].map(|target| {
        let pushed = (0..200).take_while(|_| push(target));
        pushed.count()
    });
    assert_eq!(kept, [50, 0], "half of the room");
    let deadline = Instant::now() + WAIT;
    for number in 0..500 {
        let target = if number % 2 == 0 {
            TargetRef::Queue("b1", 1)
        } else {
            TargetRef::Hash(2)
        };
        while !push(target) {
            assert!(Instant::now() < deadline, "the other broker's room is free");
        }
    }
    assert!(bench.producer.back_pressure().in_flight() >= 50);
    bench.world.runtime.block_on(bench.producer.shut());
}

/// Batch topics: the halves of a refused batch have ids of their own too.
#[test]
fn a_batch_with_an_id_of_its_own_is_split_into_such() {
    let bench = Bench::new(1, limits(LONG), |_| ());
    let refused = Act::Say(response::MESSAGE_ILLEGAL);
    bench.world.script(0, &[refused, refused]);
    for number in 0_u32..4 {
        let body = number.to_be_bytes();
        let message = AccumulatedMessage {
            topic: "orders",
            body: &body,
            encoded: None,
            properties: "",
            flag: 0,
            target: QUEUE,
            eager: true,
            alone: false,
            timeout: None,
            batch: Some(BatchSettings {
                bytes: 2000,
                inner: true,
                timeout: WAIT,
            }),
            completion: Some(number),
        };
        let back_pressure = bench.producer.back_pressure();
        let permit = back_pressure.force_acquire(1, message.charged_bytes());
        bench.accumulator.push_corked(message, permit).unwrap();
    }
    bench.accumulator.uncork();
    let mut completed = Vec::new();
    while completed.len() < 4 {
        let landed = bench.landed.recv_timeout(WAIT).unwrap();
        assert!(landed.batch, "a lone message of such a topic is a batch, too");
        assert!(landed.outcome.is_ok());
        completed.extend(landed.completions.into_iter().map(|(_, completion)| completion));
    }
    assert_eq!(completed, [0, 1, 2, 3]);
    assert_eq!(bench.stored(0), [0, 1, 2, 3]);
}
