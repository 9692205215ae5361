//! Scripted brokers behind a name server.
#![allow(dead_code, unreachable_pub, reason = "not every test file uses all of it")]

pub mod consumers;

use bytes::Bytes;
use pyrmq_client::ProducerOptions;
use pyrmq_client::producer::Producer;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Peer, Processor, ProcessorTable, Reply, Server, ServerOptions, Shutdown};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;

pub const WAIT: Duration = Duration::from_secs(10);

/// What a broker does with a send.
#[derive(Clone, Copy)]
pub enum Act {
    Store,
    /// Stores it, and answers with this code.
    StoreSaying(i32),
    Say(i32),
    /// Says with this code that the topic does not have the queue.
    MissQueue(i32),
    Silent,
}

#[derive(Default)]
pub struct Broker {
    /// Reactions to the first frames; afterwards everything is stored.
    pub acts: Mutex<VecDeque<Act>>,
    pub bodies: Mutex<Vec<Bytes>>,
    pub held: Mutex<Vec<Reply>>,
    /// Frames that it always refuses, and its answer.
    pub refuses: Mutex<Option<(Refuses, i32, &'static str)>>,
}

/// Whether a frame's body is refused.
pub type Refuses = Box<dyn Fn(&[u8]) -> bool + Send>;

impl Processor for Broker {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        if request.code == request::GET_MAX_OFFSET {
            return reply.send(Command::response(response::SUCCESS).with_field("offset", "0"));
        }
        if let Some((refuses, code, remark)) = &*self.refuses.lock().unwrap()
            && refuses(request.body.as_deref().unwrap_or_default())
        {
            return reply.send(Command::error(*code, *remark));
        }
        match self.acts.lock().unwrap().pop_front().unwrap_or(Act::Store) {
            Act::Silent => self.held.lock().unwrap().push(reply),
            Act::Say(code) => reply.send(Command::error(code, "as the script says")),
            Act::MissQueue(code) => reply.send(Command::error(code, "request queueId[1] is illegal, ...")),
            Act::Store => self.store(&request, reply, response::SUCCESS),
            Act::StoreSaying(code) => self.store(&request, reply, code),
        }
    }
}

impl Broker {
    fn store(&self, request: &Command, reply: Reply, code: i32) {
        let mut bodies = self.bodies.lock().unwrap();
        let offset = bodies.len().to_string();
        bodies.push(request.body.clone().unwrap());
        let queue = request.fields.get("e").unwrap().to_owned();
        let mut answer = stored_answer(&queue, &offset);
        answer.code = code;
        reply.send(answer);
    }
}

pub struct World {
    pub runtime: Runtime,
    pub shutdown: Shutdown,
    pub brokers: Vec<Arc<Broker>>,
    pub asked: Arc<Mutex<u32>>,
    pub addresses: Vec<SocketAddr>,
    pub route: Arc<Mutex<String>>,
    /// Topics that are on some of the brokers only.
    pub own_routes: Arc<Mutex<HashMap<String, String>>>,
    pub names: SocketAddr,
}

/// A broker's answer to a message that it has stored.
pub fn stored_answer(queue: &str, offset: &str) -> Command {
    Command::response(response::SUCCESS)
        .with_field("msgId", "offset-id")
        .with_field("queueId", queue)
        .with_field("queueOffset", offset)
}

impl World {
    pub fn new(brokers: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let shutdown = Shutdown::new();
        let brokers: Vec<Arc<Broker>> = (0..brokers).map(|_| Arc::default()).collect();
        let addresses: Vec<SocketAddr> = brokers
            .iter()
            .map(|broker| {
                let mut table = ProcessorTable::new();
                let processor: Arc<dyn Processor> = broker.clone();
                table.native(
                    &[
                        request::SEND_MESSAGE_V2,
                        request::SEND_BATCH_MESSAGE,
                        request::GET_MAX_OFFSET,
                    ],
                    &processor,
                );
                serve(&runtime, &shutdown, table)
            })
            .collect();
        let asked = Arc::new(Mutex::new(0));
        let all_routes = Arc::new(Mutex::new(route(&addresses)));
        let route_of_all = all_routes.clone();
        let count = asked.clone();
        let own_routes: Arc<Mutex<HashMap<String, String>>> = Arc::default();
        let own = own_routes.clone();
        let processor: Arc<dyn Processor> = Arc::new(move |request: Command, _: &Peer, reply: Reply| {
            *count.lock().unwrap() += 1;
            let own = own.lock().unwrap();
            let topic = request.fields.get("topic").unwrap_or_default();
            let route = own.get(topic).cloned();
            let route = route.unwrap_or_else(|| route_of_all.lock().unwrap().clone());
            reply.send(Command::response(response::SUCCESS).with_body(route));
        });
        let mut table = ProcessorTable::new();
        table.native(&[request::GET_ROUTEINFO_BY_TOPIC], &processor);
        let names = serve(&runtime, &shutdown, table);
        Self {
            runtime,
            shutdown,
            brokers,
            asked,
            addresses,
            route: all_routes,
            own_routes,
            names,
        }
    }

    pub fn script(&self, broker: usize, acts: &[Act]) {
        self.brokers[broker].acts.lock().unwrap().extend(acts);
    }

    /// Makes the name server know only this many brokers, the first ones.
    pub fn leave(&self, brokers: usize) {
        *self.route.lock().unwrap() = route(&self.addresses[..brokers]);
    }

    /// Leaves a topic on the first `brokers` brokers only.
    pub fn restrict(&self, topic: &str, brokers: usize) {
        let own = route(&self.addresses[..brokers]);
        self.own_routes.lock().unwrap().insert(topic.to_owned(), own);
    }

    pub fn producer(&self, set: impl FnOnce(&mut ProducerOptions)) -> Producer {
        let mut options = ProducerOptions::new(vec![self.names.to_string()], "group");
        set(&mut options);
        Producer::new(self.runtime.handle(), options).unwrap()
    }

    pub fn stored(&self) -> usize {
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

pub fn serve(runtime: &Runtime, shutdown: &Shutdown, table: ProcessorTable) -> SocketAddr {
    let _context = runtime.enter();
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(any, ServerOptions::default(), Arc::new(table), Arc::new(())).unwrap();
    let address = server.local_addr();
    let shutdown = shutdown.clone();
    runtime.spawn(async move { server.run(shutdown).await });
    address
}

pub fn route(addresses: &[SocketAddr]) -> String {
    route_of(addresses, &vec![2; addresses.len()])
}

/// The route of a topic with these numbers of queues on the first brokers.
pub fn route_of(addresses: &[SocketAddr], queues: &[usize]) -> String {
    let brokers: Vec<String> = (0..queues.len())
        .zip(addresses)
        .map(|(at, address)| {
            format!("{{\"brokerAddrs\":{{0:\"{address}\"}},\"brokerName\":\"b{at}\",\"cluster\":\"c\"}}")
        })
        .collect();
    let queues: Vec<String> = (0..)
        .zip(queues)
        .map(|(at, count)| {
            format!(
                "{{\"brokerName\":\"b{at}\",\"perm\":6,\"readQueueNums\":{count},\"writeQueueNums\":{count}}}"
            )
        })
        .collect();
    format!(
        "{{\"brokerDatas\":[{}],\"queueDatas\":[{}]}}",
        brokers.join(","),
        queues.join(",")
    )
}
