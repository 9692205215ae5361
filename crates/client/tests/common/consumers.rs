//! A broker that serves consumers as a script says.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "not every test file uses all of it; a test fails by panicking"
)]

use bytes::Bytes;
use pyrmq_client::PullerOptions;
use pyrmq_client::consumer::listener::{Failure, Work};
use pyrmq_client::consumer::process_queue::Messages;
use pyrmq_client::consumer::puller::{Puller, Start};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{
    Body, GetConsumerListByGroupResponseBody, HeartbeatData, LockBatchRequestBody, LockBatchResponseBody,
};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::command::FLAG_ONEWAY;
use pyrmq_remoting::message::NewRecord;
use pyrmq_remoting::message::properties::MAX_BYTES;
use pyrmq_remoting::net::{Peer, Processor, ProcessorTable, Reply, Shutdown};
use pyrmq_testkit::new_record;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

pub const TOPIC: &str = "orders";

/// One queue, number 0, of a topic; other queues are empty.
#[derive(Default)]
pub struct Consumed {
    pub records: Mutex<Vec<Bytes>>,
    pub members: Mutex<Vec<String>>,
    /// By topic and queue.
    pub committed: Mutex<BTreeMap<(String, String), i64>>,
    /// Codes that are refused.
    pub refused: Mutex<Vec<i32>>,
    /// Whether it fails as brokers before 4.9.1 where a message handed back has no number of tries.
    pub needs_limit: AtomicBool,
    /// A topic that heartbeats may not name.
    pub forbidden: Mutex<Option<&'static str>>,
    /// Codes that are not answered until [`World::release`].
    pub held_back: Mutex<Vec<i32>>,
    waiting: Mutex<Vec<(Command, Reply)>>,
    /// All requests but pulls: the code and the fields.
    pub requests: Mutex<Vec<Command>>,
    /// How many pulls came.
    pub pulls: AtomicUsize,
    /// What pulls are answered with in place of messages.
    pub pull_code: Mutex<Option<i32>>,
    /// The replica that answers suggest to read from.
    pub suggested: AtomicI64,
    /// Where its queues begin.
    pub first: AtomicI64,
    /// Where queue 0 goes on with its next pull. Until then commits of it are ignored.
    pub reset_to: Mutex<Option<i64>>,
    peer: Mutex<Option<Peer>>,
}

/// Such brokers behind a name server.
pub struct World {
    pub runtime: Runtime,
    pub consumed: Vec<Arc<Consumed>>,
    addresses: Vec<SocketAddr>,
    route: Arc<Mutex<String>>,
    names: SocketAddr,
    shutdown: Shutdown,
}

const CODES: [i32; 14] = [
    request::PULL_MESSAGE,
    request::HEART_BEAT,
    request::UNREGISTER_CLIENT,
    request::GET_CONSUMER_LIST_BY_GROUP,
    request::QUERY_CONSUMER_OFFSET,
    request::UPDATE_CONSUMER_OFFSET,
    request::GET_MIN_OFFSET,
    request::GET_MAX_OFFSET,
    request::CONSUMER_SEND_MSG_BACK,
    request::SEND_MESSAGE_V2,
    request::LOCK_BATCH_MQ,
    request::UNLOCK_BATCH_MQ,
    request::GET_SUBSCRIPTIONGROUP_CONFIG,
    request::CHECK_CLIENT_CONFIG,
];

impl World {
    pub fn new(brokers: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let shutdown = Shutdown::new();
        let consumed: Vec<Arc<Consumed>> = (0..brokers).map(|_| Arc::default()).collect();
        let serve = |codes: &[i32], processor: Arc<dyn Processor>| {
            let mut table = ProcessorTable::new();
            table.native(codes, &processor);
            super::serve(&runtime, &shutdown, table)
        };
        let addresses: Vec<SocketAddr> = consumed
            .iter()
            .map(|broker| serve(&CODES, broker.clone()))
            .collect();
        let route = Arc::new(Mutex::new(super::route(&addresses)));
        let answer = route.clone();
        let names = serve(
            &[request::GET_ROUTEINFO_BY_TOPIC],
            Arc::new(move |_: Command, _: &Peer, reply: Reply| {
                let route = answer.lock().unwrap().clone();
                reply.send(Command::response(response::SUCCESS).with_body(route));
            }),
        );
        Self {
            runtime,
            consumed,
            addresses,
            route,
            names,
            shutdown,
        }
    }

    /// The address of the name server.
    pub fn name_server(&self) -> String {
        self.names.to_string()
    }

    /// Changes the other members of the group, and notifies the consumer.
    pub fn regroup(&self, others: &[&str]) {
        self.set_others(others);
        self.push(0, request::NOTIFY_CONSUMER_IDS_CHANGED, Vec::new());
    }

    /// Changes the other members of the group.
    pub fn set_others(&self, others: &[&str]) {
        for broker in &self.consumed {
            let mut members = broker.members.lock().unwrap();
            // A client id of ours has an address in front.
            members.retain(|id| id.contains('@'));
            members.extend(others.iter().map(|id| (*id).to_owned()));
        }
    }

    /// From now on the only broker of the route is `b0`, with these replicas: the id of each and its place in
    /// `consumed`.
    pub fn replicate(&self, replicas: &[(i64, usize)]) {
        let addresses: Vec<String> = replicas
            .iter()
            .map(|(id, place)| format!("{id}:\"{}\"", self.addresses[*place]))
            .collect();
        *self.route.lock().unwrap() = format!(
            "{{\"brokerDatas\":[{{\"brokerAddrs\":{{{}}},\"brokerName\":\"b0\",\"cluster\":\"c\"}}],\
             \"queueDatas\":[{{\"brokerName\":\"b0\",\"perm\":6,\"readQueueNums\":2,\"writeQueueNums\":2}}]}}",
            addresses.join(",")
        );
    }

    /// From now on the first brokers are those of the route, each with this number of queues.
    pub fn offer(&self, queues: &[usize]) {
        *self.route.lock().unwrap() = super::route_of(&self.addresses, queues);
    }

    /// From now on no broker answers these requests.
    pub fn hold(&self, code: i32) {
        for broker in &self.consumed {
            broker.held_back.lock().unwrap().push(code);
        }
    }

    /// How many requests wait for their answers.
    pub fn held(&self) -> usize {
        let brokers = self.consumed.iter();
        brokers.map(|broker| broker.waiting.lock().unwrap().len()).sum()
    }

    /// Answers what was held back until now.
    pub fn answer_held(&self) {
        for broker in &self.consumed {
            let waiting = std::mem::take(&mut *broker.waiting.lock().unwrap());
            for (request, reply) in waiting {
                reply.send(broker.answer(&request));
            }
        }
    }

    /// Answers what was held back, and all that comes.
    pub fn release(&self) {
        self.release_where(|_| true);
    }

    /// As [`Self::release`], for requests with these codes.
    pub fn release_where(&self, is_meant: impl Fn(i32) -> bool) {
        for broker in &self.consumed {
            broker.held_back.lock().unwrap().retain(|code| !is_meant(*code));
            let mut waiting = broker.waiting.lock().unwrap();
            let (meant, others) = waiting.drain(..).partition(|(request, _)| is_meant(request.code));
            *waiting = others;
            drop(waiting);
            for (request, reply) in meant {
                reply.send(broker.answer(&request));
            }
        }
    }

    /// A broker tells its consumer something.
    pub fn push(&self, broker: usize, code: i32, body: Vec<u8>) {
        let peer = self.consumed[broker].peer.lock().unwrap().clone().unwrap();
        let mut command = Command::request(code)
            .with_field("consumerGroup", "group")
            .with_body(Bytes::from(body));
        command.flag |= FLAG_ONEWAY;
        peer.send(command);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.stop_now();
    }
}

/// A record of the queue.
pub fn record(offset: i64, body: &[u8], properties: &str) -> Bytes {
    let mut bytes = Vec::new();
    NewRecord {
        body,
        properties: properties.as_bytes(),
        ..new_record(TOPIC, 0, offset)
    }
    .encode(&mut bytes)
    .unwrap();
    Bytes::from(bytes)
}

impl Consumed {
    /// Stores messages.
    pub fn store(&self, bodies: impl IntoIterator<Item = (Vec<u8>, String)>) {
        let mut records = self.records.lock().unwrap();
        for (body, properties) in bodies {
            let offset = i64::try_from(records.len()).unwrap();
            records.push(record(offset, &body, &properties));
        }
    }

    /// How far the group has come in queue 0.
    pub fn position(&self) -> Option<i64> {
        let committed = self.committed.lock().unwrap();
        committed.get(&(TOPIC.to_owned(), "0".to_owned())).copied()
    }

    /// Requests with this code.
    pub fn asked(&self, code: i32) -> Vec<Command> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|one| one.code == code).cloned().collect()
    }

    fn pull(&self, request: &Command, reply: Reply) {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        let first = self.first.load(Ordering::Relaxed);
        if let Some(code) = *self.pull_code.lock().unwrap() {
            let answer = Command::error(code, "as the script says")
                .with_field("nextBeginOffset", &first.to_string())
                .with_field("minOffset", &first.to_string())
                .with_field("maxOffset", &first.to_string())
                .with_field("suggestWhichBrokerId", "1");
            return reply.send(answer);
        }
        let field = |name| request.fields.get(name).unwrap_or_default();
        let from: usize = field("queueOffset").parse().unwrap();
        let max: usize = field("maxMsgNums").parse().unwrap();
        let records = self.records.lock().unwrap();
        let is_ours = field("topic") == TOPIC && field("queueId") == "0";
        if is_ours && let Some(offset) = self.reset_to.lock().unwrap().take() {
            let answer = Command::response(response::PULL_OFFSET_MOVED)
                .with_field("nextBeginOffset", &offset.to_string())
                .with_field("minOffset", &first.to_string())
                .with_field("maxOffset", &records.len().to_string())
                .with_field("suggestWhichBrokerId", "0");
            return reply.send(answer);
        }
        let end = if is_ours { records.len().min(from + max) } else { 0 };
        let found = records.get(from..end).unwrap_or_default();
        let (code, next) = if found.is_empty() {
            (response::PULL_NOT_FOUND, from)
        } else {
            (response::SUCCESS, end)
        };
        let answer = Command::response(code)
            .with_field("nextBeginOffset", &next.to_string())
            .with_field("minOffset", &first.to_string())
            .with_field("maxOffset", &records.len().to_string())
            .with_field(
                "suggestWhichBrokerId",
                &self.suggested.load(Ordering::Relaxed).to_string(),
            );
        reply.send(answer.with_body(Bytes::from(found.concat())));
    }

    fn answer(&self, request: &Command) -> Command {
        let field = |name| request.fields.get(name).unwrap_or_default().to_owned();
        let place = (field("topic"), field("queueId"));
        let ok = Command::response(response::SUCCESS);
        match request.code {
            request::HEART_BEAT => {
                let beat = HeartbeatData::decode(request.body.as_deref().unwrap()).unwrap();
                let mut members = self.members.lock().unwrap();
                if !members.contains(&beat.client_id) {
                    members.push(beat.client_id);
                }
                ok
            }
            request::GET_CONSUMER_LIST_BY_GROUP => {
                let body = GetConsumerListByGroupResponseBody {
                    consumer_id_list: self.members.lock().unwrap().clone(),
                };
                ok.with_body(Bytes::from(body.encode()))
            }
            request::QUERY_CONSUMER_OFFSET => match self.committed.lock().unwrap().get(&place) {
                Some(offset) => ok.with_field("offset", &offset.to_string()),
                None => Command::response(response::QUERY_NOT_FOUND),
            },
            request::UPDATE_CONSUMER_OFFSET
                if place == (TOPIC.to_owned(), "0".to_owned()) && self.reset_to.lock().unwrap().is_some() =>
            {
                Command {
                    remark: Some("Offset has been previously reset".to_owned()),
                    ..ok
                }
            }
            request::UPDATE_CONSUMER_OFFSET => {
                let offset = field("commitOffset").parse().unwrap();
                self.committed.lock().unwrap().insert(place, offset);
                ok
            }
            request::GET_MIN_OFFSET => {
                ok.with_field("offset", &self.first.load(Ordering::Relaxed).to_string())
            }
            request::LOCK_BATCH_MQ => {
                let asked = LockBatchRequestBody::decode(request.body.as_deref().unwrap()).unwrap();
                let body = LockBatchResponseBody { locked: asked.mq_set };
                ok.with_body(Bytes::from(body.encode()))
            }
            request::SEND_MESSAGE_V2 => super::stored_answer("0", "0"),
            _ => ok,
        }
    }
}

impl Processor for Consumed {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        if request.code == request::HEART_BEAT {
            *self.peer.lock().unwrap() = Some(peer.clone());
        }
        if request.code == request::PULL_MESSAGE {
            return self.pull(&request, reply);
        }
        self.requests.lock().unwrap().push(request.clone());
        if self.held_back.lock().unwrap().contains(&request.code) {
            return self.waiting.lock().unwrap().push((request, reply));
        }
        if self.refused.lock().unwrap().contains(&request.code) {
            return reply.send(Command::error(response::SYSTEM_ERROR, "as the script says"));
        }
        if request.code == request::CONSUMER_SEND_MSG_BACK
            && self.needs_limit.load(Ordering::Relaxed)
            && request.fields.get("maxReconsumeTimes").is_none()
        {
            let failure = Command::error(response::SYSTEM_ERROR, "java.lang.NullPointerException");
            return reply.send(Command {
                version: 335,
                ..failure
            });
        }
        if request.code == request::SEND_MESSAGE_V2
            && request.fields.get("i").is_some_and(|text| text.len() > MAX_BYTES)
        {
            return reply.send(Command::error(
                response::MESSAGE_ILLEGAL,
                "properties are too long",
            ));
        }
        if self
            .forbidden
            .lock()
            .unwrap()
            .is_some_and(|topic| beats_for(&request, topic))
        {
            return reply.send(Command::error(response::NO_PERMISSION, "as the script says"));
        }
        reply.send(self.answer(&request));
    }
}

/// Whether this is a heartbeat that names a topic.
pub fn beats_for(request: &Command, topic: &str) -> bool {
    let is_beat = request.code == request::HEART_BEAT;
    is_beat && {
        let beat = HeartbeatData::decode(request.body.as_deref().unwrap()).unwrap();
        let mut named = beat
            .consumer_data_set
            .iter()
            .flat_map(|group| &group.subscription_data_set);
        named.any(|subscription| subscription.topic == topic)
    }
}

/// Starts a consumer with listeners.
pub fn listening(world: &World, set: impl FnOnce(&mut PullerOptions)) -> Puller {
    let mut options = PullerOptions::new(vec![world.names.to_string()], "group");
    options.is_listening = true;
    options.commit_interval = Some(Duration::from_millis(50));
    set(&mut options);
    let puller = Puller::new(world.runtime.handle(), options, Start::First).unwrap();
    world
        .runtime
        .block_on(puller.subscribe(TOPIC, "*", false))
        .unwrap();
    puller
}

/// Makes a consumer that is polled, without a subscription.
pub fn polled(world: &World, set: impl FnOnce(&mut PullerOptions)) -> Puller {
    let mut options = PullerOptions::new(vec![world.names.to_string()], "group");
    options.commit_interval = None;
    set(&mut options);
    Puller::new(world.runtime.handle(), options, Start::First).unwrap()
}

/// The offsets of the messages that a polled consumer gets next.
pub fn poll(puller: &Puller) -> Vec<i64> {
    let by = Instant::now() + super::WAIT;
    loop {
        let taken = puller.take(1024).unwrap();
        if !taken.is_empty() {
            return offsets_of(&taken);
        }
        assert!(Instant::now() < by, "no message came");
        puller.wait(Duration::from_millis(20));
    }
}

/// Takes work, waiting for it.
pub fn take(puller: &Puller, max: usize) -> Work {
    let by = Instant::now() + super::WAIT;
    loop {
        if let Some(work) = puller.take_work(max).unwrap() {
            return work;
        }
        assert!(Instant::now() < by, "no work came");
        puller.wait(Duration::from_millis(20));
    }
}

/// The offsets of the messages in a work.
pub fn offsets(work: &Work) -> Vec<i64> {
    offsets_of(&work.parts)
}

fn offsets_of(parts: &[Messages]) -> Vec<i64> {
    parts
        .iter()
        .flat_map(|part| (part.first..part.end).map(|index| part.chunk.offset(index).unwrap()))
        .collect()
}

/// Says that all messages of a work failed in the same way.
pub fn fail(puller: &Puller, work: &Work, failure: Failure) {
    let count = offsets(work).len();
    let failed: Vec<(usize, Failure)> = (0..count).map(|index| (index, failure)).collect();
    puller.finish(work, 0..count, &failed);
}

/// Waits for a condition.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let by = Instant::now() + super::WAIT;
    while !condition() {
        assert!(Instant::now() < by, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
