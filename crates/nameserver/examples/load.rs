//! Load generator for a name server, ours or Apache's: registers brokers, queries routes, and prints what it measured.
//!
//! `cargo run --release -p pyrmq-nameserver --example load -- HOST:PORT`, then one command per line on standard input,
//! each answered by one JSON object per line:
//! ```text
//! register BROKERS TOPICS WIDE   each broker gets its share of TOPICS topics, and WIDE topics that all of them have
//! full BROKERS TOPICS            each broker gets all TOPICS topics
//! routes SECONDS                 as fast as possible, 16 connections with 16 in flight each
//! wide SECONDS                   as `routes`, for topics that all brokers have
//! paced RATE SECONDS             this many routes a second, spread evenly; latencies count from when each was due
//! again same|changed             every broker registers again at once
//! storm RATE SECONDS             `paced`, and in its middle `again changed`
//! idle CONNECTIONS               connections that send nothing, until the end
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::needless_for_each,
    clippy::needless_pass_by_value,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool"
)]

use bytes::{Bytes, BytesMut};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, DataVersion, RegisterBrokerBody, TopicConfig};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::frame;
use pyrmq_remoting::net::{Client, ClientOptions, ProcessorTable};
use std::collections::VecDeque;
use std::io::BufRead;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 16;
const IN_FLIGHT: usize = 16;
const LIMIT: Duration = Duration::from_mins(1);

struct Broker {
    client: Client,
    name: String,
    address: String,
    topics: Vec<String>,
    counter: i64,
}

struct Bench {
    runtime: Runtime,
    /// The brokers' threads, with a lower priority than all others: real brokers are other machines, and the megabytes
    /// that they write must not delay the routes whose latency is measured.
    brokers_runtime: Runtime,
    address: String,
    brokers: Vec<Broker>,
    topics: Arc<Vec<String>>,
    wide: Arc<Vec<String>>,
    idle: Vec<TcpStream>,
}

fn main() {
    let runtime = |threads, nice| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads).enable_all();
        #[cfg(target_os = "linux")]
        builder.on_thread_start(move || rustix::process::setpriority_process(None, nice).unwrap());
        builder.build().unwrap()
    };
    let mut bench = Bench {
        runtime: runtime(2, 0),
        brokers_runtime: runtime(1, 10),
        address: std::env::args().nth(1).unwrap(),
        brokers: Vec::new(),
        topics: Arc::default(),
        wide: Arc::default(),
        idle: Vec::new(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<f64>().unwrap();
        let summary = match words[0] {
            "register" => bench.register(number(1) as usize, number(2) as usize, number(3) as usize),
            "full" => bench.full(number(1) as usize, number(2) as usize),
            "routes" => bench.flood(&bench.topics.clone(), number(1)),
            "wide" => bench.flood(&bench.wide.clone(), number(1)),
            "paced" => bench.paced(number(1), number(2), false),
            "storm" => bench.paced(number(1), number(2), true),
            "again" => bench.again(words[1] == "changed"),
            "idle" => bench.idle(number(1) as usize),
            other => panic!("unknown command {other}"),
        };
        println!("{summary}");
    }
    bench.runtime.shutdown_timeout(Duration::from_secs(1));
    bench.brokers_runtime.shutdown_timeout(Duration::from_secs(1));
}

fn registration(broker: &Broker) -> Command {
    let mut body = RegisterBrokerBody::default();
    let wrapper = &mut body.topic_config_serialize_wrapper;
    wrapper.data_version = DataVersion {
        counter: broker.counter,
        state_version: 0,
        timestamp: 1_700_000_000_000,
    };
    let named = broker.topics.iter();
    wrapper.topic_config_table = named
        .map(|name| (name.clone(), TopicConfig::new(name.clone(), 8, 6)))
        .collect();
    Command::request(request::REGISTER_BROKER)
        .with_field("brokerName", &broker.name)
        .with_field("brokerAddr", &broker.address)
        .with_field("clusterName", "BenchCluster")
        .with_field("haServerAddr", "10.0.0.1:10912")
        .with_field("brokerId", "0")
        .with_field("compressed", "false")
        .with_field("bodyCrc32", "0")
        .with_body(Bytes::from(body.encode()))
}

fn route(topic: &str) -> Command {
    Command::request(request::GET_ROUTEINFO_BY_TOPIC)
        .with_field("topic", topic)
        .with_field("acceptStandardJsonOnly", "true")
}

/// Formats latencies in microseconds and the total duration.
fn summary(mut us: Vec<u32>, seconds: f64) -> String {
    us.sort_unstable();
    let at = |share: f64| us.get(((us.len() as f64 * share) as usize).min(us.len().saturating_sub(1)));
    format!(
        "{{\"answers\":{},\"per_second\":{:.1},\"p50_us\":{},\"p99_us\":{},\"max_us\":{}}}",
        us.len(),
        us.len() as f64 / seconds,
        at(0.5).unwrap_or(&0),
        at(0.99).unwrap_or(&0),
        us.last().unwrap_or(&0),
    )
}

/// One connection that keeps its requests in flight. Frames are encoded once, in advance, and only every [`CHECKED`]th
/// answer is decoded, so that the generator takes as little as possible of the processor that both sides share.
struct Flood {
    stream: TcpStream,
    frames: Arc<Vec<Vec<u8>>>,
    next: usize,
    sent: VecDeque<Instant>,
    input: BytesMut,
    us: Vec<u32>,
}

const CHECKED: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Warm,
    Counted,
    Over,
}

impl Flood {
    async fn run(mut self, stage: watch::Receiver<Stage>) -> Vec<u32> {
        let mut output = Vec::new();
        let mut asked = IN_FLIGHT;
        let limits = frame::Limits::default();
        while asked > 0 || !self.sent.is_empty() {
            output.clear();
            for _ in 0..asked {
                self.next = (self.next + 7919) % self.frames.len();
                output.extend_from_slice(&self.frames[self.next]);
                self.sent.push_back(Instant::now());
            }
            self.stream.write_all(&output).await.unwrap();
            assert_ne!(self.stream.read_buf(&mut self.input).await.unwrap(), 0, "hung up");
            let (mut answers, now) = (0, *stage.borrow());
            while let Some(size) = frame::announced(&self.input, &limits).unwrap()
                && size <= self.input.len()
            {
                let mut answer = self.input.split_to(size);
                if (self.us.len() + answers).is_multiple_of(CHECKED) {
                    let answer = frame::decode(&mut answer, &limits).unwrap().unwrap();
                    assert!(answer.code == 0 && answer.body.is_some());
                }
                answers += 1;
                // Answers of one connection arrive in any order; each counts as late as the oldest waiting request.
                let sent = self.sent.pop_front().unwrap();
                if now == Stage::Counted {
                    self.us.push(sent.elapsed().as_micros() as u32);
                }
            }
            self.input.reserve(256 * 1024);
            asked = if now == Stage::Over { 0 } else { answers };
        }
        self.us
    }
}

impl Bench {
    fn client(runtime: &Runtime) -> Client {
        let options = ClientOptions::default();
        Client::new(runtime.handle(), options, Arc::new(ProcessorTable::new())).unwrap()
    }

    fn register(&mut self, brokers: usize, topics: usize, wide: usize) -> String {
        let wide: Vec<String> = (0..wide).map(|number| format!("wide-topic-{number}")).collect();
        let own = topics / brokers;
        let share = |broker: usize| (0..own).map(move |number| format!("topic-{broker}-{number}"));
        let all: Vec<String> = (0..brokers).flat_map(share).collect();
        let of_each = (0..brokers)
            .map(|broker| share(broker).chain(wide.clone()).collect())
            .collect();
        self.topics = Arc::new(all);
        self.wide = Arc::new(wide);
        self.enter(of_each)
    }

    fn full(&mut self, brokers: usize, topics: usize) -> String {
        let all: Vec<String> = (0..topics).map(|number| format!("full-topic-{number}")).collect();
        let of_each = (0..brokers).map(|_| all.clone()).collect();
        self.wide = Arc::new(all.clone());
        self.topics = Arc::new(all);
        self.enter(of_each)
    }

    fn enter(&mut self, topics: Vec<Vec<String>>) -> String {
        self.brokers.clear();
        for (number, topics) in topics.into_iter().enumerate() {
            let client = Self::client(&self.brokers_runtime);
            self.brokers.push(Broker {
                client,
                name: format!("bench-broker-{number}"),
                address: format!("10.1.{}.{}:10911", number / 250, number % 250),
                topics,
                counter: 1,
            });
        }
        self.again(false)
    }

    /// Registers every broker at once, and waits until all are answered.
    fn again(&mut self, changed: bool) -> String {
        for broker in &mut self.brokers {
            broker.counter += i64::from(changed);
        }
        let commands: Vec<Command> = self.brokers.iter().map(registration).collect();
        let started = Instant::now();
        self.send_all(commands);
        format!("{{\"seconds\":{:.6}}}", started.elapsed().as_secs_f64())
    }

    fn send_all(&self, commands: Vec<Command>) {
        let calls: Vec<_> = self
            .brokers
            .iter()
            .zip(commands)
            .map(|(broker, command)| broker.client.call(&self.address, command, LIMIT))
            .collect();
        for call in calls {
            let answer = call.wait(LIMIT).unwrap().unwrap();
            assert_eq!(answer.code, 0, "{:?}", answer.remark);
        }
    }

    fn flood(&self, topics: &Arc<Vec<String>>, seconds: f64) -> String {
        let frame = |(number, topic): (usize, &String)| {
            let mut command = route(topic);
            command.opaque = number as i32;
            frame::encode(&command).unwrap()
        };
        let frames: Arc<Vec<Vec<u8>>> = Arc::new(topics.iter().enumerate().map(frame).collect());
        let (stage, watched) = watch::channel(Stage::Warm);
        self.runtime.block_on(async {
            let mut floods = JoinSet::new();
            for number in 0..CONNECTIONS {
                let stream = TcpStream::connect(&self.address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let flood = Flood {
                    stream,
                    frames: frames.clone(),
                    next: number * 104_729 % frames.len(),
                    sent: VecDeque::new(),
                    input: BytesMut::with_capacity(256 * 1024),
                    us: Vec::new(),
                };
                floods.spawn(flood.run(watched.clone()));
            }
            tokio::time::sleep(Duration::from_secs_f64(seconds / 4.0)).await;
            let started = Instant::now();
            stage.send_replace(Stage::Counted);
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            stage.send_replace(Stage::Over);
            let took = started.elapsed().as_secs_f64();
            summary(floods.join_all().await.concat(), took)
        })
    }

    fn paced(&mut self, rate: f64, seconds: f64, storm: bool) -> String {
        let clients: Vec<Client> = (0..CONNECTIONS).map(|_| Self::client(&self.runtime)).collect();
        let us: Arc<Mutex<Vec<u32>>> = Arc::default();
        if storm {
            self.brokers.iter_mut().for_each(|broker| broker.counter += 1);
        }
        let mut commands = storm.then(|| self.brokers.iter().map(registration).collect::<Vec<_>>());
        let total = (rate * seconds) as u64;
        let started = Instant::now();
        let (mut storming, mut lag) = (0.0, Duration::ZERO);
        std::thread::scope(|scope| {
            let mut waiting = None;
            for number in 0..total {
                let due = started + Duration::from_secs_f64(number as f64 / rate);
                let now = Instant::now();
                if due > now {
                    std::thread::sleep(due - now);
                }
                if number >= total / 3
                    && let Some(commands) = commands.take()
                {
                    let bench = &*self;
                    waiting = Some(scope.spawn(move || {
                        let begun = Instant::now();
                        bench.send_all(commands);
                        begun.elapsed().as_secs_f64()
                    }));
                }
                lag = lag.max(due.elapsed());
                let topic = &self.topics[(number as usize).wrapping_mul(7919) % self.topics.len()];
                let us = us.clone();
                clients[number as usize % CONNECTIONS].request_with(
                    &self.address,
                    route(topic),
                    LIMIT,
                    move |result| {
                        assert_eq!(result.unwrap().code, 0);
                        us.lock().unwrap().push(due.elapsed().as_micros() as u32);
                    },
                );
            }
            storming = waiting.map_or(0.0, |waiting| waiting.join().unwrap());
        });
        let until = Instant::now() + LIMIT;
        while us.lock().unwrap().len() < total as usize && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        clients.iter().for_each(Client::shut);
        let all = std::mem::take(&mut *us.lock().unwrap());
        let summary = summary(all, seconds);
        format!(
            "{},\"storm_seconds\":{storming:.4},\"sent_late_us\":{}}}",
            summary.trim_end_matches('}'),
            lag.as_micros()
        )
    }

    fn idle(&mut self, connections: usize) -> String {
        let address = self.address.clone();
        let opened = self.runtime.block_on(async {
            let mut opened = Vec::with_capacity(connections);
            while opened.len() < connections {
                match TcpStream::connect(&address).await {
                    Ok(stream) => opened.push(stream),
                    Err(_) => break,
                }
            }
            opened
        });
        self.idle.extend(opened);
        format!("{{\"connections\":{}}}", self.idle.len())
    }
}
