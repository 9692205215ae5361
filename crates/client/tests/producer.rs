//! Sends against scripted brokers: which failures are tried again, where, and how long.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use pyrmq_client::draft::{Properties, Target};
use pyrmq_client::gate::Gate;
use pyrmq_client::producer::{Producer, SendResult};
use pyrmq_client::{ClientError, ProducerOptions};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Peer, Processor, Reply, Server, ServerOptions, Shutdown, Table};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const WAIT: Duration = Duration::from_secs(10);

/// What a broker does with a send.
#[derive(Clone, Copy)]
enum Act {
    Store,
    Say(i32),
    Silent,
}

#[derive(Default)]
struct Broker {
    /// Done first; then everything is stored.
    acts: Mutex<VecDeque<Act>>,
    bodies: Mutex<Vec<Bytes>>,
    held: Mutex<Vec<Reply>>,
}

impl Processor for Broker {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        match self.acts.lock().unwrap().pop_front().unwrap_or(Act::Store) {
            Act::Silent => self.held.lock().unwrap().push(reply),
            Act::Say(code) => reply.send(Command::error(code, "as the script says")),
            Act::Store => {
                let mut bodies = self.bodies.lock().unwrap();
                let offset = bodies.len().to_string();
                bodies.push(request.body.clone().unwrap());
                let queue = request.fields.get("e").unwrap().to_owned();
                reply.send(
                    Command::response(response::SUCCESS)
                        .with_field("msgId", "offset-id")
                        .with_field("queueId", &queue)
                        .with_field("queueOffset", &offset),
                );
            }
        }
    }
}

struct World {
    runtime: Runtime,
    shutdown: Shutdown,
    brokers: Vec<Arc<Broker>>,
    asked: Arc<Mutex<u32>>,
    names: SocketAddr,
}

impl World {
    fn new(brokers: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let shutdown = Shutdown::new();
        let brokers: Vec<Arc<Broker>> = (0..brokers).map(|_| Arc::default()).collect();
        let addresses: Vec<SocketAddr> = brokers
            .iter()
            .map(|broker| {
                let mut table = Table::new();
                let processor: Arc<dyn Processor> = broker.clone();
                table.native(
                    &[request::SEND_MESSAGE_V2, request::SEND_BATCH_MESSAGE],
                    &processor,
                );
                serve(&runtime, &shutdown, table)
            })
            .collect();
        let asked = Arc::new(Mutex::new(0));
        let route = route(&addresses);
        let count = asked.clone();
        let processor: Arc<dyn Processor> = Arc::new(move |_: Command, _: &Peer, reply: Reply| {
            *count.lock().unwrap() += 1;
            reply.send(Command::response(response::SUCCESS).with_body(route.clone()));
        });
        let mut table = Table::new();
        table.native(&[request::GET_ROUTEINFO_BY_TOPIC], &processor);
        let names = serve(&runtime, &shutdown, table);
        Self {
            runtime,
            shutdown,
            brokers,
            asked,
            names,
        }
    }

    fn script(&self, broker: usize, acts: &[Act]) {
        self.brokers[broker].acts.lock().unwrap().extend(acts);
    }

    fn producer(&self, set: impl FnOnce(&mut ProducerOptions)) -> Producer {
        let mut options = ProducerOptions::new(vec![self.names.to_string()], "group");
        set(&mut options);
        Producer::new(self.runtime.handle(), options).unwrap()
    }

    fn stored(&self) -> usize {
        self.brokers
            .iter()
            .map(|broker| broker.bodies.lock().unwrap().len())
            .sum()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.stop_now();
    }
}

fn serve(runtime: &Runtime, shutdown: &Shutdown, table: Table) -> SocketAddr {
    let _context = runtime.enter();
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(any, ServerOptions::default(), Arc::new(table), Arc::new(())).unwrap();
    let address = server.local_addr();
    let shutdown = shutdown.clone();
    runtime.spawn(async move { server.run(shutdown).await });
    address
}

fn route(addresses: &[SocketAddr]) -> String {
    let brokers: Vec<String> = (0..)
        .zip(addresses)
        .map(|(at, address)| {
            format!("{{\"brokerAddrs\":{{0:\"{address}\"}},\"brokerName\":\"b{at}\",\"cluster\":\"c\"}}")
        })
        .collect();
    let queues: Vec<String> = (0..addresses.len())
        .map(|at| format!("{{\"brokerName\":\"b{at}\",\"perm\":6,\"readQueueNums\":2,\"writeQueueNums\":2}}"))
        .collect();
    format!(
        "{{\"brokerDatas\":[{}],\"queueDatas\":[{}]}}",
        brokers.join(","),
        queues.join(",")
    )
}

fn send(
    producer: &Producer,
    body: &'static str,
    target: Target,
    timeout: Duration,
) -> Receiver<Result<SendResult, ClientError>> {
    let topic: Arc<str> = "orders".into();
    let properties = Properties::new("orders", producer.ids());
    let id = properties.message_id().to_owned();
    let text = properties.finish().unwrap();
    let draft = producer
        .draft(&topic, Bytes::from_static(body.as_bytes()), text, id, 0, target)
        .unwrap();
    assert!(producer.gate().enter(1, draft.body.len(), WAIT));
    let (sender, receiver) = channel();
    producer.send(
        draft,
        timeout,
        Box::new(move |outcome| sender.send(outcome).unwrap()),
    );
    receiver
}

fn bound() -> Target {
    Target::Queue {
        broker: "b0".into(),
        id: 1,
    }
}

#[test]
fn a_silent_broker_does_not_use_up_the_time_of_all() {
    let world = World::new(2);
    world.script(0, &[Act::Silent]);
    world.script(1, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let begin = Instant::now();
    let result = send(&producer, "x", Target::Any, Duration::from_millis(900)).recv_timeout(WAIT);
    let result = result.unwrap().unwrap();
    assert_eq!(result.attempts, 3, "each attempt had its share");
    assert!(result.may_be_duplicate, "two attempts left and were not answered");
    assert!(begin.elapsed() < Duration::from_millis(900));
    assert_eq!(world.stored(), 1);
}

#[test]
fn a_busy_broker_is_asked_again_until_it_takes_the_message() {
    let world = World::new(1);
    world.script(0, &[Act::Say(response::SYSTEM_BUSY); 6]);
    let producer = world.producer(|_| ());
    for target in [bound(), Target::Any] {
        let result = send(&producer, "x", target, WAIT)
            .recv_timeout(WAIT)
            .unwrap()
            .unwrap();
        assert!(!result.may_be_duplicate);
    }
    assert_eq!(world.stored(), 2);
}

#[test]
fn a_refused_message_is_not_sent_again() {
    let world = World::new(2);
    for broker in [0, 1] {
        world.script(broker, &[Act::Say(response::MESSAGE_ILLEGAL); 2]);
    }
    let producer = world.producer(|_| ());
    let error = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, ClientError::Answer { code: 13, .. }), "{error}");
    assert_eq!(world.stored(), 0);
}

#[test]
fn an_answer_that_does_not_pass_is_tried_as_often_as_asked_for() {
    let world = World::new(2);
    for broker in [0, 1] {
        world.script(broker, &[Act::Say(response::SYSTEM_ERROR); 9]);
    }
    let producer = world.producer(|options| options.retries = 3);
    let error = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    let ClientError::NotConfirmed {
        attempts,
        may_exist,
        in_time,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((attempts, may_exist, in_time), (4, false, false));
}

#[test]
fn without_retries_there_is_one_attempt() {
    let world = World::new(1);
    world.script(0, &[Act::Say(response::SYSTEM_BUSY)]);
    let producer = world.producer(|options| options.retries = 0);
    let error = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(error, ClientError::NotConfirmed { attempts: 1, .. }),
        "{error}"
    );
    assert_eq!(world.stored(), 0);
}

#[test]
fn a_chosen_queue_that_does_not_answer_leaves_the_outcome_unknown() {
    let world = World::new(2);
    world.script(0, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let begin = Instant::now();
    let timeout = Duration::from_millis(300);
    let error = send(&producer, "x", bound(), timeout)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("the outcome is unknown"), "{error}");
    assert!(matches!(
        error,
        ClientError::NotConfirmed {
            attempts: 1,
            may_exist: true,
            ..
        }
    ));
    assert!(begin.elapsed() >= timeout);
    assert_eq!(world.stored(), 0, "no other queue was tried");
}

#[test]
fn messages_keep_their_order_from_the_first_on_and_ask_for_the_route_once() {
    let world = World::new(1);
    let producer = world.producer(|_| ());
    let bodies = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let outcomes: Vec<_> = bodies
        .iter()
        .map(|body| send(&producer, body, bound(), WAIT))
        .collect();
    for (offset, outcome) in (0..).zip(outcomes) {
        let result = outcome.recv_timeout(WAIT).unwrap().unwrap();
        assert_eq!((result.queue_id, result.queue_offset), (1, offset));
    }
    assert_eq!(*world.brokers[0].bodies.lock().unwrap(), bodies);
    assert_eq!(*world.asked.lock().unwrap(), 1);
}

#[test]
fn a_closed_producer_refuses_and_frees_the_gate() {
    let world = World::new(1);
    let producer = world.producer(|_| ());
    producer.close();
    let error = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    assert_eq!(producer.gate().waiting(), 0);
}

#[test]
fn shutting_down_fails_what_is_on_its_way() {
    let world = World::new(1);
    world.script(0, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let outcome = send(&producer, "x", bound(), WAIT);
    let held = || !world.brokers[0].held.lock().unwrap().is_empty();
    let begin = Instant::now();
    while !held() {
        assert!(begin.elapsed() < WAIT);
        std::thread::yield_now();
    }
    world.runtime.block_on(producer.shut());
    let error = outcome.recv_timeout(WAIT).unwrap().unwrap_err();
    assert!(error.to_string().contains("the outcome is unknown"), "{error}");
    assert_eq!(producer.gate().waiting(), 0);
}

#[test]
fn the_gate_counts_messages_and_bytes_and_lets_a_large_one_go_alone() {
    let gate = Gate::new(2, 100);
    assert!(gate.try_enter(1, 500));
    assert!(!gate.try_enter(1, 1));
    gate.leave(1, 500);
    assert!(gate.try_enter(1, 60));
    assert!(!gate.enter(1, 60, Duration::from_millis(5)));
    assert!(gate.try_enter(1, 40));
    assert!(!gate.try_enter(1, 0));
    assert!(!gate.empty(Duration::from_millis(5)));
    gate.leave(2, 100);
    assert!(gate.empty(Duration::ZERO));
}

#[test]
fn illegal_properties_and_topics_are_named() {
    let ids = pyrmq_client::unique_ids();
    let mut properties = Properties::new("orders", &ids);
    assert_eq!(properties.message_id().len(), 32);
    properties.push_user("table", "7").unwrap();
    for (name, value) in [
        ("", "x"),
        ("a", ""),
        ("KEYS", "x"),
        ("a\u{2}", "x"),
        ("a", "\u{1}"),
    ] {
        let error = properties.push_user(name, value).unwrap_err();
        assert!(matches!(error, ClientError::Property { .. }), "{name}={value}");
    }
    let text = properties.finish().unwrap();
    assert!(text.ends_with("table\u{1}7\u{2}"), "{text}");
    for topic in ["", "two words", &"t".repeat(128), "RMQ_SYS_TRANS_HALF_TOPIC"] {
        assert!(pyrmq_client::draft::check_topic(topic).is_err(), "{topic}");
    }
}
