//! Name servers that move: through DNS, and through the address server's list.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use bytes::Bytes;
use common::{WAIT, World};
use pyrmq_client::ClientError;
use pyrmq_client::producer::outgoing::{Properties, Target};
use pyrmq_client::producer::{Producer, SendOutcome, SendResult};
use pyrmq_client::session::address_server::AddressServer;
use pyrmq_remoting::net::{Resolve, ResolveFuture};
use std::io::{Error, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NAME: &str = "names.test:9876";
const OFTEN: Duration = Duration::from_millis(10);

/// A DNS server's answer for the only name.
#[derive(Debug, Default)]
struct Zone {
    addresses: Mutex<Vec<SocketAddr>>,
    asked: Mutex<u32>,
}

impl Zone {
    fn of(addresses: &[SocketAddr]) -> Arc<Self> {
        let zone = Arc::new(Self::default());
        zone.set_answer(addresses);
        zone
    }

    fn set_answer(&self, addresses: &[SocketAddr]) {
        *self.addresses.lock().unwrap() = addresses.to_vec();
    }
}

impl Resolve for Zone {
    fn resolve<'a>(&'a self, address: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            if let Ok(digits) = address.parse() {
                return Ok(vec![digits]);
            }
            assert_eq!(address, NAME);
            *self.asked.lock().unwrap() += 1;
            let known = self.addresses.lock().unwrap().clone();
            if known.is_empty() {
                let text = "failed to lookup address information: Name or service not known";
                return Err(Error::other(text));
            }
            Ok(known)
        })
    }
}

fn send(producer: &Producer, topic: &str) -> Result<SendResult, ClientError> {
    send_within(producer, topic, WAIT)
}

fn send_within(producer: &Producer, topic: &str, timeout: Duration) -> Result<SendResult, ClientError> {
    let topic: Arc<str> = topic.into();
    let properties = Properties::new(&topic, producer.ids());
    let id = properties.message_id().to_owned();
    let text = properties.finish().unwrap();
    let outgoing = producer
        .prepare(&topic, Bytes::from_static(b"x"), text, id, 0, Target::Any)
        .unwrap();
    let permit = producer.back_pressure().acquire(1, 1, WAIT).unwrap();
    let (sender, receiver) = channel();
    producer.send(
        outgoing,
        permit,
        timeout,
        Box::new(move |outcome: SendOutcome| sender.send(outcome).unwrap()),
    );
    receiver.recv_timeout(WAIT).unwrap()
}

/// Sends until the condition holds; no send fails.
fn send_until(producer: &Producer, what: &str, mut holds: impl FnMut() -> bool) -> u32 {
    let until = Instant::now() + WAIT;
    let mut sent = 0;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        send(producer, "orders").unwrap();
        sent += 1;
    }
    sent
}

fn asked(world: &World) -> u32 {
    *world.asked.lock().unwrap()
}

/// Options with a host name, and with an interval of look-ups for which a test can wait.
fn by_name(world: &World, zone: &Arc<Zone>) -> Producer {
    let zone = zone.clone();
    world.producer(move |options| {
        options.client.name_servers = vec![NAME.to_owned()];
        options.client.resolver = zone;
        options.client.route_interval = OFTEN;
        options.client.name_server_interval = OFTEN;
    })
}

#[test]
fn a_name_that_has_moved_is_followed_without_a_failed_send() {
    let (old, new) = (World::new(1), World::new(1));
    let zone = Zone::of(&[old.names]);
    let producer = by_name(&old, &zone);
    send_until(&producer, "the first is asked", || asked(&old) > 1);
    assert_eq!(asked(&new), 0);
    // The old server keeps answering: only the look-up shows that it is no longer used.
    zone.set_answer(&[new.names]);
    send_until(&producer, "the second is asked", || asked(&new) > 2);
    let last = asked(&old);
    let seen = asked(&new);
    send_until(&producer, "the second stays", || asked(&new) > seen + 3);
    assert_eq!(asked(&old), last, "nobody asks the old one any more");
    assert!(new.stored() > 0, "its route is in use");
}

#[test]
fn a_name_that_gets_and_loses_addresses_is_followed() {
    let worlds = [World::new(1), World::new(1), World::new(1)];
    let zone = Zone::of(&[worlds[0].names]);
    let producer = by_name(&worlds[0], &zone);
    for (at, world) in worlds.iter().enumerate() {
        let next = &worlds[(at + 1) % worlds.len()];
        zone.set_answer(&[world.names, next.names]);
        send_until(&producer, "one of two is asked", || {
            producer.routes().name_servers().addresses().len() == 2
        });
        zone.set_answer(&[next.names]);
        let before = asked(next);
        send_until(&producer, "the one that stays is asked", || {
            asked(next) > before + 1
        });
        assert_eq!(*producer.routes().name_servers().addresses(), [NAME.to_owned()]);
    }
}

#[test]
fn a_name_that_cannot_be_looked_up_for_a_while_keeps_its_addresses() {
    let (one, other) = (World::new(1), World::new(1));
    let zone = Zone::of(&[one.names, other.names]);
    let producer = by_name(&one, &zone);
    send(&producer, "orders").unwrap();
    zone.set_answer(&[]);
    let before = *zone.asked.lock().unwrap();
    send_until(&producer, "it is looked up", || {
        *zone.asked.lock().unwrap() > before + 3
    });
    assert_eq!(producer.routes().name_servers().addresses().len(), 2);
    send(&producer, "another").unwrap();
}

#[test]
fn a_name_is_looked_up_at_once_when_nobody_answers() {
    let (gone, here) = (World::new(1), World::new(1));
    let zone = Zone::of(&[gone.names]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let producer = here.producer(|options| {
        options.client.name_servers = vec![NAME.to_owned()];
        options.client.resolver = zone.clone();
        options.client.request_timeout = Duration::from_millis(200);
    });
    send(&producer, "orders").unwrap();
    drop(gone);
    zone.set_answer(&[here.names]);
    send(&producer, "after-its-end").unwrap();
    // A server that accepts connections and never answers.
    zone.set_answer(&[silent.local_addr().unwrap()]);
    let producer = here.producer(|options| {
        options.client.name_servers = vec![NAME.to_owned()];
        options.client.resolver = zone.clone();
        options.client.request_timeout = Duration::from_millis(200);
    });
    let error = send_within(&producer, "orders", Duration::from_millis(100));
    let error = error.unwrap_err();
    assert!(
        matches!(error.cause(), ClientError::NameServers { .. }),
        "{error:?}"
    );
    zone.set_answer(&[here.names]);
    send(&producer, "after-its-silence").unwrap();
}

#[test]
fn a_name_that_has_moved_is_followed_by_all_requests_in_progress() {
    let here = World::new(1);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let zone = Zone::of(&[silent.local_addr().unwrap()]);
    let producer = here.producer(|options| {
        options.client.name_servers = vec![NAME.to_owned()];
        options.client.resolver = zone.clone();
        options.client.request_timeout = Duration::from_millis(200);
        options.client.route_interval = Duration::from_hours(1);
    });
    let find = |topic: &str| {
        let (routes, topic) = (producer.routes().clone(), Arc::from(topic));
        async move { routes.get(&topic).await }
    };
    let error = here.runtime.block_on(find("first")).unwrap_err();
    assert!(matches!(error, ClientError::NameServers { .. }), "{error:?}");
    zone.set_answer(&[here.names]);
    let topics = (0..16).map(|number| format!("t{number}"));
    // All are sent to the silent address before any of them has waited long enough.
    let waits: Vec<_> = topics.map(|topic| here.runtime.spawn(find(&topic))).collect();
    for wait in waits {
        here.runtime.block_on(wait).unwrap().unwrap();
    }
}

/// A DNS server that receives queries and never answers.
#[derive(Debug, Default)]
struct SilentZone {
    asked: Mutex<u32>,
}

impl Resolve for SilentZone {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolveFuture<'a> {
        *self.asked.lock().unwrap() += 1;
        Box::pin(std::future::pending())
    }
}

#[test]
fn closing_while_a_name_is_looked_up_ends_every_send() {
    let world = World::new(1);
    let zone = Arc::new(SilentZone::default());
    let producer = world.producer(|options| {
        options.client.name_servers = vec![NAME.to_owned()];
        options.client.resolver = zone.clone();
        options.client.request_timeout = Duration::from_mins(1);
    });
    let long = Duration::from_mins(1);
    let topic = "others".into();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send_within(&producer, "orders", long));
        let asking = scope.spawn(|| world.runtime.block_on(producer.routes().get(&topic)));
        let until = Instant::now() + WAIT;
        while *zone.asked.lock().unwrap() == 0 || producer.back_pressure().in_flight() == 0 {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
        world.runtime.block_on(producer.shut());
        let error = sending.join().unwrap().unwrap_err();
        assert!(matches!(error.cause(), ClientError::Closed { .. }), "{error}");
        assert!(!error.failure().unwrap().may_exist);
        let error = asking.join().unwrap().unwrap_err();
        assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    });
    assert_eq!(producer.back_pressure().in_flight(), 0);
}

#[test]
fn the_wait_for_a_route_respects_the_timeout() {
    let world = World::new(1);
    let producer = world.producer(|options| {
        options.client.name_servers = vec![NAME.to_owned()];
        options.client.resolver = Arc::new(SilentZone::default());
        options.client.request_timeout = Duration::from_mins(1);
    });
    let topic = "orders".into();
    let short = Duration::from_millis(50);
    let found = world
        .runtime
        .block_on(async { producer.routes().get_within(&topic, short).await });
    let error = found.unwrap_err();
    assert!(
        error.to_string().contains("within the time of the call"),
        "{error}"
    );
}

#[test]
fn an_unknown_name_is_reported_as_such() {
    let world = World::new(1);
    let producer = by_name(&world, &Zone::of(&[]));
    let error = send(&producer, "orders").unwrap_err();
    assert!(
        matches!(error.cause(), ClientError::NameServers { unresolved: true, .. }),
        "{error:?}"
    );
}

/// An address server whose list can be changed.
struct ListServer {
    answer: Arc<Mutex<String>>,
    address: SocketAddr,
}

impl ListServer {
    fn new(answer: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(Mutex::new(answer.to_owned()));
        let kept = answer.clone();
        // The thread ends with the process: it only waits for connections.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 1024];
                drop(stream.read(&mut request));
                let answer = kept.lock().unwrap().clone();
                drop(stream.write_all(answer.as_bytes()));
            }
        });
        Self { answer, address }
    }

    fn set_answer(&self, answer: &str) {
        answer.clone_into(&mut self.answer.lock().unwrap());
    }
}

fn list(addresses: &[SocketAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("HTTP/1.0 200 OK\r\n\r\n{}\n", all.join(";"))
}

#[test]
fn changes_of_the_address_server_are_followed_without_a_failed_send() {
    let (old, new) = (World::new(1), World::new(1));
    let server = ListServer::new(&list(&[old.names]));
    let producer = old.producer(|options| {
        options.client.name_servers.clear();
        options.client.address_server = Some(AddressServer::new(&server.address.to_string(), "").unwrap());
        options.client.route_interval = OFTEN;
        options.client.name_server_interval = OFTEN;
    });
    send_until(&producer, "the first is asked", || asked(&old) > 1);
    assert_eq!(asked(&new), 0);
    // If it fails, the list stays as it was.
    for nothing in [
        "HTTP/1.0 500 Broken\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
        "nonsense",
    ] {
        server.set_answer(nothing);
        let before = asked(&old);
        send_until(&producer, "the first stays", || asked(&old) > before + 2);
    }
    server.set_answer(&list(&[old.names, new.names]));
    send_until(&producer, "both are known", || {
        producer.routes().name_servers().addresses().len() == 2
    });
    server.set_answer(&list(&[new.names]));
    send_until(&producer, "the second is asked", || {
        *producer.routes().name_servers().addresses() == [new.names.to_string()] && asked(&new) > 1
    });
    let (last, seen) = (asked(&old), asked(&new));
    send_until(&producer, "the second stays", || asked(&new) > seen + 3);
    assert_eq!(asked(&old), last, "nobody asks the old one any more");
}
