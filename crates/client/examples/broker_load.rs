//! Load generator for a broker, ours or Apache's: sends with our producer, pulls with raw frames, and bare operations
//! for comparison.
//!
//! `cargo run --release -p pyrmq-client --example broker_load -- BROKER NAME_SERVER`, both as HOST:PORT, then one
//! command per line on standard input, each answered by one JSON object per line:
//! ```text
//! send THREADS SECONDS SIZE                       each thread has one message in flight
//! chained SENDERS SECONDS SIZE                    `send` without threads: each sender sends its next on an answer
//! paced RATE SECONDS SIZE                         this many a second; latencies count from when each was due
//! pull TOPIC QUEUES SECONDS CONNECTIONS DEPTH     the queues' backlog over and over, DEPTH pulls in flight
//! copy SECONDS CONNECTIONS BYTES                  answers of that size over a bare socket, read in the same way
//! fdatasync DIRECTORY COUNT SIZE                  write and fdatasync, one after the other
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool"
)]

use bytes::Bytes;
use pyrmq_client::ProducerOptions;
use pyrmq_client::producer::outgoing::{Properties, Target};
use pyrmq_client::producer::send_waiter::SendWaiter;
use pyrmq_client::producer::{Producer, SendCallback, SendOutcome, SendResult, SendStatus};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::{Command, SerializeType, frame};
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

const TOPIC: &str = "bench-load";
const LIMIT: Duration = Duration::from_secs(30);
/// Each takes at most its three seconds.
const WARM_TRIES: usize = 10;
/// Messages of one answer: what clients request, and the maximum of both brokers.
const PULLED: i64 = 32;
const ROOM: usize = 1 << 20;

struct Bench {
    runtime: Runtime,
    broker: String,
    names: String,
}

fn main() {
    let bench = Bench {
        runtime: Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap(),
        broker: std::env::args().nth(1).unwrap(),
        names: std::env::args().nth(2).unwrap(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<f64>().unwrap();
        let report = match words[0] {
            "send" => bench.send(number(1) as usize, number(2), number(3) as usize),
            "chained" => bench.chained(number(1) as usize, number(2), number(3) as usize),
            "paced" => bench.paced(number(1), number(2), number(3) as usize),
            "pull" => {
                let (connections, depth) = (number(4) as usize, number(5) as usize);
                bench.pull(words[1], number(2) as i32, number(3), connections, depth)
            }
            "copy" => copy(number(1), number(2) as usize, number(3) as usize),
            "fdatasync" => fdatasync(Path::new(words[1]), number(2) as usize, number(3) as usize),
            other => panic!("unknown command {other}"),
        };
        println!("{report}");
    }
    bench.runtime.shutdown_timeout(Duration::from_secs(1));
}

/// Sends one message, however long a broker that has just started needs.
fn warm(producer: &Producer, body: &Bytes) {
    let done = (0..WARM_TRIES).any(|_| one(producer, body, &Arc::default()));
    assert!(done, "no message is taken");
}

/// Formats latencies in microseconds and the total duration.
fn report(mut us: Vec<f64>, seconds: f64) -> String {
    us.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| us.get(((us.len() as f64 * share) as usize).min(us.len().saturating_sub(1)));
    format!(
        "{{\"answers\":{},\"per_second\":{:.1},\"p50_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1}}}",
        us.len(),
        us.len() as f64 / seconds,
        at(0.5).unwrap_or(&0.0),
        at(0.99).unwrap_or(&0.0),
        us.last().unwrap_or(&0.0),
    )
}

impl Bench {
    fn producer(&self) -> Producer {
        let mut options = ProducerOptions::new(vec![self.names.clone()], "bench-load");
        options.compression = None;
        Producer::new(self.runtime.handle(), options).unwrap()
    }

    fn send(&self, threads: usize, seconds: f64, size: usize) -> String {
        let producer = self.producer();
        let body = Bytes::from(vec![7; size]);
        warm(&producer, &body);
        let (begin, us) = (Instant::now(), Mutex::new(Vec::new()));
        let failed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let (mut own, wait) = (Vec::new(), Arc::default());
                    while begin.elapsed().as_secs_f64() < seconds {
                        let sent = Instant::now();
                        if one(&producer, &body, &wait) {
                            own.push(sent.elapsed().as_secs_f64() * 1e6);
                        } else {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    us.lock().unwrap().append(&mut own);
                });
            }
        });
        let took = begin.elapsed().as_secs_f64();
        self.runtime.block_on(producer.shut());
        let report = report(us.into_inner().unwrap(), took);
        format!(
            "{},\"failed\":{}}}",
            report.trim_end_matches('}'),
            failed.into_inner()
        )
    }

    fn chained(&self, senders: usize, seconds: f64, size: usize) -> String {
        let producer = Arc::new(self.producer());
        let body = Bytes::from(vec![7; size]);
        warm(&producer, &body);
        let begin = Instant::now();
        let chains = Arc::new(Chains {
            producer: producer.clone(),
            body,
            until: begin + Duration::from_secs_f64(seconds),
            us: Mutex::default(),
            failed: AtomicU64::new(0),
            left: AtomicU64::new(senders as u64),
        });
        for _ in 0..senders {
            next(chains.clone());
        }
        while chains.left.load(Ordering::Acquire) > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let took = begin.elapsed().as_secs_f64();
        self.runtime.block_on(producer.shut());
        let us = std::mem::take(&mut *chains.us.lock().unwrap());
        let failed = chains.failed.load(Ordering::Relaxed);
        format!("{},\"failed\":{failed}}}", report(us, took).trim_end_matches('}'))
    }

    fn paced(&self, rate: f64, seconds: f64, size: usize) -> String {
        let producer = self.producer();
        let body = Bytes::from(vec![7; size]);
        warm(&producer, &body);
        let us: Arc<Mutex<Vec<f64>>> = Arc::default();
        let total = (rate * seconds) as usize;
        let begin = Instant::now();
        for number in 0..total {
            let due = begin + Duration::from_secs_f64(number as f64 / rate);
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                std::thread::sleep(early);
            }
            let us = us.clone();
            start(
                &producer,
                &body,
                Box::new(move |outcome: SendOutcome| {
                    assert_eq!(outcome.unwrap().status, SendStatus::Ok);
                    us.lock().unwrap().push(due.elapsed().as_secs_f64() * 1e6);
                }),
            );
        }
        while us.lock().unwrap().len() < total && begin.elapsed().as_secs_f64() < seconds + 60.0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.runtime.block_on(producer.shut());
        let all = std::mem::take(&mut *us.lock().unwrap());
        report(all, seconds)
    }

    fn pull(&self, topic: &str, queues: i32, seconds: f64, connections: usize, depth: usize) -> String {
        let ends: Vec<i64> = (0..queues).map(|queue| self.end_of(topic, queue)).collect();
        let load = Load::new(seconds);
        std::thread::scope(|scope| {
            for number in 0..connections {
                let queue = number as i32 % queues;
                let mut pulls = Pulls::new(topic, queue, ends[queue as usize]);
                let mut stream = TcpStream::connect(&self.broker).unwrap();
                let load = &load;
                scope.spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    for _ in 0..depth {
                        stream.write_all(&pulls.next()).unwrap();
                    }
                    let mut writer = stream.try_clone().unwrap();
                    load.read(&mut stream, |code| {
                        assert_eq!(code, 0, "a pull was refused or found nothing");
                        writer.write_all(&pulls.next()).unwrap();
                    });
                });
            }
        });
        load.report()
    }

    fn end_of(&self, topic: &str, queue: i32) -> i64 {
        let command = Command::request(request::GET_MAX_OFFSET)
            .with_field("topic", topic)
            .with_field("queueId", &queue.to_string());
        let mut stream = TcpStream::connect(&self.broker).unwrap();
        stream.write_all(&frame::encode(&command).unwrap()).unwrap();
        let mut size = [0; 4];
        stream.read_exact(&mut size).unwrap();
        let mut input = bytes::BytesMut::from(&size[..]);
        input.resize(4 + u32::from_be_bytes(size) as usize, 0);
        stream.read_exact(&mut input[4..]).unwrap();
        let answer = frame::decode(&mut input, &frame::Limits::default())
            .unwrap()
            .unwrap();
        answer.fields.get("offset").unwrap().parse().unwrap()
    }
}

/// Sends one message and waits for its answer. Returns whether it was stored as requested.
fn one(producer: &Producer, body: &Bytes, wait: &Arc<SendWaiter<bool>>) -> bool {
    let waiter = wait.clone();
    let done = move |outcome: Result<SendResult, _>| {
        waiter.set(outcome.is_ok_and(|result| result.status == SendStatus::Ok));
    };
    start(producer, body, Box::new(done));
    wait.wait(LIMIT * 2)
        .expect("a send is neither answered nor timed out")
}

/// Senders without threads: the handler of an answer sends the next message.
struct Chains {
    producer: Arc<Producer>,
    body: Bytes,
    until: Instant,
    us: Mutex<Vec<f64>>,
    failed: AtomicU64,
    left: AtomicU64,
}

fn next(chains: Arc<Chains>) {
    let sent = Instant::now();
    let (producer, body) = (chains.producer.clone(), chains.body.clone());
    let done: SendCallback = Box::new(move |outcome: SendOutcome| {
        if outcome.is_ok_and(|result| result.status == SendStatus::Ok) {
            chains.us.lock().unwrap().push(sent.elapsed().as_secs_f64() * 1e6);
        } else {
            chains.failed.fetch_add(1, Ordering::Relaxed);
        }
        if Instant::now() < chains.until {
            next(chains);
        } else {
            chains.left.fetch_sub(1, Ordering::Release);
        }
    });
    start(&producer, &body, done);
}

fn start(producer: &Producer, body: &Bytes, done: SendCallback) {
    let topic = producer.topic(TOPIC);
    let properties = Properties::new(TOPIC, producer.ids());
    let id = properties.message_id().to_owned();
    let text = properties.finish().unwrap();
    let outgoing = producer
        .prepare(&topic, body.clone(), text, id, 0, Target::Any)
        .unwrap();
    let permit = producer.back_pressure().acquire(1, body.len(), LIMIT).unwrap();
    producer.send(outgoing, permit, LIMIT, done);
}

/// The pulls of one connection: a queue from its start to its end and again.
struct Pulls {
    topic: String,
    queue: i32,
    end: i64,
    at: i64,
    opaque: i32,
}

impl Pulls {
    fn new(topic: &str, queue: i32, end: i64) -> Self {
        assert!(end >= PULLED, "queue {queue} of {topic} has no backlog");
        Self {
            topic: topic.to_owned(),
            queue,
            end: end - end % PULLED,
            at: 0,
            opaque: 0,
        }
    }

    fn next(&mut self) -> Vec<u8> {
        let mut command = Command::request(request::PULL_MESSAGE);
        command.serialize_type = SerializeType::RocketMq;
        command.opaque = self.opaque;
        for (name, value) in [
            ("consumerGroup", "bench-load"),
            ("topic", &self.topic),
            ("queueId", &self.queue.to_string()),
            ("queueOffset", &self.at.to_string()),
            ("maxMsgNums", &PULLED.to_string()),
            ("sysFlag", "4"),
            ("commitOffset", "0"),
            ("suspendTimeoutMillis", "0"),
            ("subscription", "*"),
            ("subVersion", "0"),
            ("expressionType", "TAG"),
        ] {
            command.fields.push(name, value);
        }
        self.opaque += 1;
        self.at += PULLED;
        if self.at >= self.end {
            self.at = 0;
        }
        frame::encode(&command).unwrap()
    }
}

/// Counts what all connections read in a turn. An additional quarter of the time, at the beginning, does not count.
struct Load {
    seconds: f64,
    begin: Instant,
    stop: AtomicBool,
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Load {
    fn new(seconds: f64) -> Self {
        Self {
            seconds,
            begin: Instant::now(),
            stop: AtomicBool::new(false),
            frames: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Reads frames until the time is up, and checks the codes of the answers, which have binary or JSON headers.
    fn read(&self, stream: &mut TcpStream, mut each: impl FnMut(i32)) {
        let mut room = vec![0; ROOM];
        // Bytes in `room`, and how many bytes of the current frame follow them.
        let (mut have, mut skip) = (0_usize, 0_usize);
        while !self.stop.load(Ordering::Relaxed) {
            let read = stream.read(&mut room[have..]).unwrap();
            assert!(read > 0, "the broker closed the connection");
            let charged_bytes = self.begin.elapsed().as_secs_f64() >= self.seconds / 4.0;
            if charged_bytes {
                self.bytes.fetch_add(read as u64, Ordering::Relaxed);
            }
            have += read;
            let mut at = skip.min(have);
            skip -= at;
            while skip == 0 && have - at >= 64 {
                let size = u32::from_be_bytes(room[at..at + 4].try_into().unwrap()) as usize + 4;
                each(code_of(&room[at..at + 64]));
                if charged_bytes {
                    self.frames.fetch_add(1, Ordering::Relaxed);
                }
                skip = size - size.min(have - at);
                at += size.min(have - at);
            }
            room.copy_within(at..have, 0);
            have -= at;
            if self.begin.elapsed().as_secs_f64() >= self.seconds * 1.25 {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn report(&self) -> String {
        let took = self.begin.elapsed().as_secs_f64() - self.seconds / 4.0;
        let (frames, bytes) = (
            self.frames.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        );
        format!(
            "{{\"answers\":{frames},\"bytes\":{bytes},\"bytes_per_second\":{:.0}}}",
            bytes as f64 / took
        )
    }
}

/// The code of an answer, from its first bytes.
fn code_of(head: &[u8]) -> i32 {
    if head[4] == 1 {
        return i32::from(i16::from_be_bytes([head[8], head[9]]));
    }
    let text = String::from_utf8_lossy(&head[8..]);
    let digits = text
        .split_once("\"code\":")
        .map_or("-1", |(_, rest)| rest.split([',', '}']).next().unwrap());
    digits.parse().unwrap()
}

/// Writes frames of `size` bytes from a thread that does nothing else: the limit of the socket alone.
fn copy(seconds: f64, connections: usize, size: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut answer = vec![0_u8; size];
    answer[..4].copy_from_slice(&(size as u32 - 4).to_be_bytes());
    answer[4] = 1;
    let load = Load::new(seconds);
    std::thread::scope(|scope| {
        for _ in 0..connections {
            let mut reader = TcpStream::connect(address).unwrap();
            let (mut writer, _) = listener.accept().unwrap();
            let answer = &answer;
            scope.spawn(move || while writer.write_all(answer).is_ok() {});
            let load = &load;
            scope.spawn(move || load.read(&mut reader, |_| ()));
        }
    });
    load.report()
}

fn fdatasync(directory: &Path, count: usize, size: usize) -> String {
    let path = directory.join("fdatasync");
    let mut file = std::fs::File::create(&path).unwrap();
    // Like a segment: its length is set before, so that no write changes it.
    file.set_len(1 << 30).unwrap();
    file.sync_all().unwrap();
    let bytes = vec![7; size];
    let begin = Instant::now();
    let us = (0..count)
        .map(|_| {
            let one = Instant::now();
            file.write_all(&bytes).unwrap();
            file.sync_data().unwrap();
            one.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    let took = begin.elapsed().as_secs_f64();
    std::fs::remove_file(&path).unwrap();
    report(us, took)
}
