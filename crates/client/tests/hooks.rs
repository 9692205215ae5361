//! The hook around each request of a client.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use bytes::Bytes;
use common::{Act, WAIT, World};
use pyrmq_client::producer::SendOutcome;
use pyrmq_client::producer::outgoing::{Properties, Target};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{NetError, RequestHook};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records requests and outcomes.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<(i32, &'static str)>>);

impl RequestHook for Recorder {
    fn before(&self, request: &mut Command) {
        self.0.lock().unwrap().push((request.code, "before"));
    }

    fn after(&self, code: i32, outcome: &Result<Command, NetError>, _: Duration) {
        let answer = outcome.as_ref().unwrap();
        let outcome = if answer.code == 0 { "stored" } else { "refused" };
        self.0.lock().unwrap().push((code, outcome));
    }
}

/// Panics after each request.
#[derive(Debug)]
struct Broken;

impl RequestHook for Broken {
    fn before(&self, _: &mut Command) {}

    fn after(&self, _: i32, _: &Result<Command, NetError>, _: Duration) {
        panic!("a hook that panics");
    }
}

/// Sends a message with this hook, and returns the outcome.
fn send(world: &World, hook: Arc<dyn RequestHook>) -> SendOutcome {
    let producer = world.producer(|options| options.client.hook = Some(hook));
    let topic: Arc<str> = "orders".into();
    let properties = Properties::new("orders", producer.ids());
    let id = properties.message_id().to_owned();
    let text = properties.finish().unwrap();
    let body = Bytes::from_static(b"x");
    let outgoing = producer.prepare(&topic, body, text, id, 0, Target::Any).unwrap();
    let permit = producer.back_pressure().acquire(1, 1, WAIT).unwrap();
    let (sender, receiver) = channel();
    let done = Box::new(move |outcome: SendOutcome| sender.send(outcome).unwrap());
    producer.send(outgoing, permit, WAIT, done);
    receiver.recv().unwrap()
}

#[test]
fn a_hook_sees_each_attempt_of_a_send() {
    let world = World::new(1);
    world.script(0, &[Act::Say(response::SYSTEM_BUSY)]);
    let hook = Arc::new(Recorder::default());
    assert_eq!(send(&world, hook.clone()).unwrap().attempts, 2);
    let seen = hook.0.lock().unwrap().clone();
    let of_sends = seen.iter().filter(|(code, _)| *code == request::SEND_MESSAGE_V2);
    let of_sends: Vec<_> = of_sends.map(|(_, what)| *what).collect();
    assert_eq!(of_sends, ["before", "refused", "before", "stored"]);
    let route = (request::GET_ROUTEINFO_BY_TOPIC, "before");
    assert_eq!(seen.first(), Some(&route));
}

#[test]
fn a_hook_that_panics_loses_no_outcome() {
    let world = World::new(1);
    world.script(0, &[Act::Say(response::SYSTEM_BUSY)]);
    assert_eq!(send(&world, Arc::new(Broken)).unwrap().attempts, 2);
}
