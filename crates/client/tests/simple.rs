//! The consumer by POP against scripted brokers: those that are silent, lose answers, or answer late.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::consumers::{TOPIC, record};
use common::{WAIT, route, serve};
use pyrmq_client::ClientError;
use pyrmq_client::consumer::pop::answer::Popped;
use pyrmq_client::consumer::pop::options::SimpleOptions;
use pyrmq_client::consumer::pop::simple::SimpleConsumer;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Peer, Processor, ProcessorTable, Reply, Shutdown};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const CODES: [i32; 7] = [
    request::HEART_BEAT,
    request::UNREGISTER_CLIENT,
    request::GET_SUBSCRIPTIONGROUP_CONFIG,
    request::POP_MESSAGE,
    request::ACK_MESSAGE,
    request::BATCH_ACK_MESSAGE,
    request::CHANGE_MESSAGE_INVISIBLETIME,
];
const INVISIBLE: Duration = Duration::from_secs(30);

/// A broker with messages to hand out.
#[derive(Default)]
struct Broker {
    /// Bodies with their properties, each for one pop.
    messages: Mutex<Vec<(&'static str, &'static str)>>,
    /// Codes that are not answered.
    silent: Mutex<Vec<i32>>,
    /// Heartbeats with this text are refused.
    forbidden: Mutex<Option<&'static str>>,
    /// Pops that wait.
    held: Mutex<Vec<Reply>>,
    requests: Mutex<Vec<Command>>,
}

impl Broker {
    fn seen(&self, code: i32) -> Vec<Command> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|request| request.code == code)
            .cloned()
            .collect()
    }

    fn next(&self) -> Option<Command> {
        let mut messages = self.messages.lock().unwrap();
        if messages.is_empty() {
            return None;
        }
        let (body, properties) = messages.remove(0);
        Some(answer(body, properties))
    }

    /// Answers a pop that waits.
    fn answer_held(&self, body: &str) {
        self.held.lock().unwrap().remove(0).send(answer(body, ""));
    }
}

fn answer(body: &str, properties: &str) -> Command {
    Command::response(response::SUCCESS)
        .with_field("popTime", "1700000000000")
        .with_field("invisibleTime", "30000")
        .with_field("reviveQid", "3")
        .with_field("restNum", "0")
        .with_field("startOffsetInfo", "0 0 5")
        .with_field("msgOffsetInfo", "0 0 7")
        .with_body(record(7, body.as_bytes(), properties))
}

/// Whether a heartbeat names a topic, or has a filter.
fn names(beat: &Command, text: &str) -> bool {
    String::from_utf8_lossy(beat.body.as_deref().unwrap_or_default()).contains(text)
}

impl Processor for Broker {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        self.requests.lock().unwrap().push(request.clone());
        if self.silent.lock().unwrap().contains(&request.code) {
            return std::mem::forget(reply);
        }
        match request.code {
            request::HEART_BEAT
                if self
                    .forbidden
                    .lock()
                    .unwrap()
                    .is_some_and(|text| names(&request, text)) =>
            {
                reply.send(Command::error(response::NO_PERMISSION, "as the script says"));
            }
            request::POP_MESSAGE => match self.next() {
                Some(answer) => reply.send(answer),
                None if request.fields.get("pollTime") == Some("0") => {
                    reply.send(Command::error(response::POLLING_TIMEOUT, "nothing"));
                }
                None => self.held.lock().unwrap().push(reply),
            },
            request::CHANGE_MESSAGE_INVISIBLETIME => reply.send(
                Command::response(response::SUCCESS)
                    .with_field("popTime", "1700000009000")
                    .with_field("invisibleTime", "30000")
                    .with_field("reviveQid", "3"),
            ),
            request::GET_SUBSCRIPTIONGROUP_CONFIG => {
                reply.send(Command::error(response::SYSTEM_ERROR, "none"));
            }
            _ => reply.send(Command::response(response::SUCCESS)),
        }
    }
}

struct World {
    brokers: Vec<Arc<Broker>>,
    consumer: SimpleConsumer,
    shutdown: Shutdown,
    runtime: Runtime,
}

impl World {
    fn new(brokers: usize, filter: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let shutdown = Shutdown::new();
        let brokers: Vec<Arc<Broker>> = (0..brokers).map(|_| Arc::default()).collect();
        let listen = |codes: &[i32], processor: Arc<dyn Processor>| {
            let mut table = ProcessorTable::new();
            table.native(codes, &processor);
            serve(&runtime, &shutdown, table)
        };
        let addresses: Vec<SocketAddr> = brokers
            .iter()
            .map(|broker| listen(&CODES, broker.clone()))
            .collect();
        let route = route(&addresses);
        let names = listen(
            &[request::GET_ROUTEINFO_BY_TOPIC],
            Arc::new(move |_: Command, _: &Peer, reply: Reply| {
                reply.send(Command::response(response::SUCCESS).with_body(route.clone()));
            }),
        );
        let mut options = SimpleOptions::new(vec![names.to_string()], "group");
        options.client.request_timeout = Duration::from_secs(1);
        let consumer = SimpleConsumer::new(runtime.handle(), options).unwrap();
        runtime
            .block_on(consumer.subscribe(TOPIC, filter, false))
            .unwrap();
        Self {
            brokers,
            consumer,
            shutdown,
            runtime,
        }
    }

    fn receive(&self, max: usize, invisible: Duration, wait: Duration) -> Vec<Popped> {
        let receiving = self.consumer.receive(max, invisible, wait).unwrap();
        loop {
            if let Some(messages) = receiving.take().unwrap() {
                return messages;
            }
            receiving.wait(Duration::from_millis(10));
        }
    }

    fn ack(&self, messages: &[Popped]) -> Vec<Result<(), ClientError>> {
        let receipts: Vec<_> = messages.iter().map(|message| message.receipt.clone()).collect();
        self.runtime.block_on(self.consumer.ack(&receipts))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.runtime.block_on(self.consumer.close()).unwrap();
        self.shutdown.stop_now();
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let by = Instant::now() + WAIT;
    while !condition() {
        assert!(Instant::now() < by, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn bodies(messages: &[Popped]) -> Vec<Vec<u8>> {
    let records = messages
        .iter()
        .map(|one| one.chunk.record(one.index).unwrap().unwrap());
    records.map(|record| record.body.to_vec()).collect()
}

#[test]
fn a_call_takes_what_one_broker_has_and_asks_the_others_only_without() {
    let world = World::new(2, "*");
    for broker in &world.brokers {
        broker.messages.lock().unwrap().push(("there", ""));
    }
    let first = world.receive(1, INVISIBLE, WAIT);
    assert_eq!(bodies(&first), [b"there"]);
    let left: usize = world
        .brokers
        .iter()
        .map(|broker| broker.messages.lock().unwrap().len())
        .sum();
    assert_eq!(left, 1, "the other broker was not asked");
    assert_eq!(bodies(&world.receive(1, INVISIBLE, WAIT)), [b"there"]);
}

#[test]
fn a_silent_broker_keeps_nobody_from_the_other_ones_messages() {
    let world = World::new(2, "*");
    world.brokers[0].silent.lock().unwrap().push(request::POP_MESSAGE);
    world.brokers[1]
        .messages
        .lock()
        .unwrap()
        .extend([("1", ""), ("2", "")]);
    for _ in 0..2 {
        assert_eq!(world.receive(1, INVISIBLE, WAIT).len(), 1);
    }
}

#[test]
fn what_comes_for_a_call_that_has_ended_is_for_the_next_one_or_given_back() {
    let world = World::new(1, "*");
    let broker = &world.brokers[0];
    let receiving = world.consumer.receive(1, INVISIBLE, WAIT).unwrap();
    until("no pop is held", || !broker.held.lock().unwrap().is_empty());
    drop(receiving);
    broker.answer_held("for the next");
    assert_eq!(bodies(&world.receive(1, INVISIBLE, WAIT)), [b"for the next"]);

    let short = Duration::from_secs(2);
    let receiving = world.consumer.receive(1, short, WAIT).unwrap();
    until("no pop is held", || !broker.held.lock().unwrap().is_empty());
    drop(receiving);
    broker.answer_held("for nobody");
    until("nothing is given back", || {
        let changes = broker.seen(request::CHANGE_MESSAGE_INVISIBLETIME);
        changes
            .iter()
            .any(|change| change.fields.get("invisibleTime") == Some("0"))
    });
}

#[test]
fn a_close_that_is_interrupted_goes_on_and_a_second_one_waits_for_it() {
    let world = World::new(1, "*");
    let broker = &world.brokers[0];
    let receiving = world.consumer.receive(1, INVISIBLE, WAIT).unwrap();
    until("no pop is held", || !broker.held.lock().unwrap().is_empty());
    drop(receiving);
    // What was fetched is given back first, which takes the time of a request here.
    broker
        .silent
        .lock()
        .unwrap()
        .push(request::CHANGE_MESSAGE_INVISIBLETIME);
    broker.answer_held("for nobody");
    world.runtime.block_on(async {
        drop(tokio::time::timeout(Duration::from_millis(100), world.consumer.close()).await);
    });
    world.runtime.block_on(world.consumer.close()).unwrap();
    assert_eq!(broker.seen(request::UNREGISTER_CLIENT).len(), 1);
}

#[test]
fn a_subscription_that_is_refused_leaves_what_was_there_before() {
    let world = World::new(1, "one-tag");
    let (broker, consumer) = (&world.brokers[0], &world.consumer);
    for (topic, filter, forbidden) in [("secrets", "*", "secrets"), (TOPIC, "other-tag", "other-tag")] {
        *broker.forbidden.lock().unwrap() = Some(forbidden);
        let beats = || broker.seen(request::HEART_BEAT);
        let before = beats().len();
        let refused = world.runtime.block_on(consumer.subscribe(topic, filter, false));
        assert!(
            matches!(
                &refused,
                Err(ClientError::Refused {
                    code: response::NO_PERMISSION,
                    ..
                })
            ),
            "{refused:?}"
        );
        assert_eq!(consumer.topics(), [Arc::<str>::from(TOPIC)]);
        until("the broker hears of it", || {
            let beats = beats();
            let last = beats.last().unwrap();
            beats.len() > before && !names(last, forbidden) && names(last, "one-tag")
        });
    }
    // Pops of the topic that failed would be refused for good.
    broker
        .messages
        .lock()
        .unwrap()
        .push(("there", "TAGS\u{1}one-tag\u{2}"));
    assert_eq!(bodies(&world.receive(1, INVISIBLE, WAIT)), [b"there"]);
    let pops = broker.seen(request::POP_MESSAGE);
    assert!(pops.iter().all(|pop| pop.fields.get("topic") == Some(TOPIC)));
}

#[test]
fn two_subscriptions_of_one_topic_that_are_refused_at_once_leave_nothing() {
    let world = World::new(1, "*");
    let consumer = &world.consumer;
    *world.brokers[0].forbidden.lock().unwrap() = Some("secrets");
    let subscribe = |filter| consumer.subscribe("secrets", filter, false);
    // Its route is known from now on, so that the next two meet.
    world.runtime.block_on(subscribe("*")).unwrap_err();
    let both = async { tokio::join!(subscribe("one-tag"), subscribe("other-tag")) };
    let (one, other) = world.runtime.block_on(both);
    for refused in [one, other] {
        assert!(matches!(refused, Err(ClientError::Refused { .. })), "{refused:?}");
    }
    assert_eq!(consumer.topics(), [Arc::<str>::from(TOPIC)]);
}

#[test]
fn a_first_subscription_that_is_not_answered_leaves_no_member_behind() {
    let world = World::new(1, "*");
    let (broker, consumer) = (&world.brokers[0], &world.consumer);
    assert!(world.runtime.block_on(consumer.unsubscribe(TOPIC)).unwrap());
    let unregistrations = || broker.seen(request::UNREGISTER_CLIENT).len();
    let before = unregistrations();
    broker.silent.lock().unwrap().push(request::HEART_BEAT);
    let failed = world.runtime.block_on(consumer.subscribe(TOPIC, "*", false));
    assert!(matches!(failed, Err(ClientError::Net { .. })), "{failed:?}");
    assert!(consumer.topics().is_empty());
    until("the broker hears of it", || unregistrations() > before);
    broker.silent.lock().unwrap().clear();
}

#[test]
fn what_has_waited_with_another_time_is_renewed_before_it_is_handed_out() {
    let world = World::new(1, "*");
    let broker = &world.brokers[0];
    let receiving = world.consumer.receive(1, INVISIBLE, WAIT).unwrap();
    until("no pop is held", || !broker.held.lock().unwrap().is_empty());
    drop(receiving);
    broker.answer_held("waits");
    let longer = Duration::from_mins(1);
    let messages = world.receive(1, longer, WAIT);
    assert_eq!(bodies(&messages), [b"waits"]);
    assert_eq!(broker.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len(), 1);
    assert_eq!(messages[0].receipt.handle(), "7 1700000009000 30000 3 0 b0 0 7");
}

#[test]
fn an_acknowledgement_whose_answer_is_lost_is_sent_again() {
    let world = World::new(1, "*");
    let broker = &world.brokers[0];
    broker.messages.lock().unwrap().push(("one", ""));
    let messages = world.receive(1, INVISIBLE, WAIT);
    broker.silent.lock().unwrap().push(request::ACK_MESSAGE);
    std::thread::scope(|scope| {
        let acked = scope.spawn(|| world.ack(&messages));
        until("it is not sent", || !broker.seen(request::ACK_MESSAGE).is_empty());
        broker.silent.lock().unwrap().clear();
        assert!(acked.join().unwrap()[0].is_ok());
    });
    let acks = broker.seen(request::ACK_MESSAGE);
    assert!(acks.len() >= 2);
    assert_eq!(
        acks[0].fields.get("extraInfo"),
        Some("5 1700000000000 30000 3 0 b0 0 7")
    );
    assert!(matches!(
        &world.ack(&messages)[0],
        Err(ClientError::Receipt { .. })
    ));
}

#[test]
fn a_change_of_the_time_whose_answer_is_lost_is_not_repeated_and_leaves_a_doubt() {
    let world = World::new(1, "*");
    let broker = &world.brokers[0];
    broker.messages.lock().unwrap().push(("there", ""));
    let messages = world.receive(1, INVISIBLE, WAIT);
    broker
        .silent
        .lock()
        .unwrap()
        .push(request::CHANGE_MESSAGE_INVISIBLETIME);
    let changed = world
        .runtime
        .block_on(world.consumer.change_invisible(&messages[0].receipt, INVISIBLE));
    assert!(matches!(changed, Err(ClientError::Net { .. })), "{changed:?}");
    assert_eq!(broker.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len(), 1);
    let outcomes = world.ack(&messages);
    assert_eq!(
        broker.seen(request::ACK_MESSAGE).len(),
        1,
        "it may still be effective"
    );
    let refused = |outcome: &Result<(), ClientError>| matches!(outcome, Err(ClientError::Receipt { .. }));
    assert!(outcomes.iter().all(refused), "{outcomes:?}");
    assert!(messages[0].receipt.is_used());
}

#[test]
fn a_refused_pop_that_nobody_waited_for_fails_no_later_call() {
    let world = World::new(1, "*");
    let broker = &world.brokers[0];
    drop(world.consumer.receive(1, INVISIBLE, WAIT).unwrap());
    until("it is not held", || !broker.held.lock().unwrap().is_empty());
    let refusal = Command::error(response::NO_PERMISSION, "refused");
    broker.held.lock().unwrap().remove(0).send(refusal);
    std::thread::sleep(Duration::from_millis(200));
    broker.messages.lock().unwrap().push(("there", ""));
    assert_eq!(bodies(&world.receive(1, INVISIBLE, WAIT)), [b"there"]);
}

#[test]
fn messages_are_renewed_until_the_renewal_ends() {
    let world = World::new(1, "*");
    let broker = &world.brokers[0];
    broker.messages.lock().unwrap().push(("one", ""));
    let messages = world.receive(1, Duration::from_secs(3), WAIT);
    let receipts = vec![messages[0].receipt.clone()];
    let renewal = world
        .consumer
        .renew(receipts, Duration::from_secs(3), Duration::from_mins(1))
        .unwrap();
    let renewed = || broker.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len();
    until("it is not renewed", || renewed() >= 2);
    drop(renewal);
    assert!(world.ack(&messages)[0].is_ok());
    let acked = broker.seen(request::ACK_MESSAGE);
    assert_eq!(
        acked[0].fields.get("extraInfo"),
        Some("7 1700000009000 30000 3 0 b0 0 7")
    );
}

#[test]
fn a_message_with_another_tag_of_the_same_hash_is_acknowledged_and_not_received() {
    let world = World::new(1, "Aa");
    let broker = &world.brokers[0];
    let messages = [("other", "TAGS\u{1}BB\u{2}"), ("own", "TAGS\u{1}Aa\u{2}")];
    broker.messages.lock().unwrap().extend(messages);
    assert_eq!(bodies(&world.receive(1, INVISIBLE, WAIT)), [b"own"]);
    until("it is not acknowledged", || {
        broker.seen(request::ACK_MESSAGE).len() == 1
    });
}
