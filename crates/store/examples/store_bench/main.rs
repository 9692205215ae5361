//! Compares the store with the bare disk, in turns, and prints one line of JSON per row:
//! `cargo run --release -p pyrmq-store --example store_bench -- [--rows append,sync,...] [--rounds N] [--queues N] [--mb N] [--messages N] [DIR]`.
//! DIR is emptied first and removed at the end, also after a failure.
//!
//! `append` batches of 32 messages / bare writes of the same bytes to one file; `put` one message a call; `sync` a lone
//! sender with `SYNC_FLUSH` / write and fdatasync of the same bytes, and 64 senders; `roll` the slowest put around each
//! roll / the p99.9 without one; `start` opening after a clean stop and after kill -9 (a process is killed in each
//! round); `queues` one message in each of many queues. A ratio is of two figures of one round, taken one after the
//! other. Only when named: `many` the cost of a put with `--queues` queues / with 1,000, and the memory; `long` the
//! memory while `--mb` megabytes go through; `deep` `--messages` in one queue; `open` opening what DIR holds, which
//! stays. Each message has its own keys, which are prepared before a put is measured.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program for people who measure"
)]
#![allow(clippy::cast_precision_loss, reason = "rates")]

mod large;

use pyrmq_store::fs::{File, Fs, RealFs};
use pyrmq_store::{
    AppendBatch, BatchMessage, FlushDiskType, MessageBatch, NewMessage, OnDurable, Options, Store,
    StoreError, Stored,
};
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const PROPERTIES: &str = "KEYS\u{1}order-00000001\u{2}UNIQ_KEY\u{1}7F0000011AE24E0E2F2A6AE800000001\u{2}CLUSTER\u{1}DefaultCluster\u{2}WAIT\u{1}true\u{2}MSG_REGION\u{1}DefaultRegion\u{2}TRACE_ON\u{1}true\u{2}TAGS\u{1}t\u{2}";
const BATCH: usize = 32;

struct Arguments {
    rows: Option<Vec<String>>,
    rounds: usize,
    queues: usize,
    megabytes: usize,
    messages: usize,
    root: PathBuf,
    fill: bool,
    more: bool,
}

fn arguments() -> Arguments {
    let mut arguments = Arguments {
        rows: None,
        rounds: 5,
        queues: 40_000,
        megabytes: 1000,
        messages: 10_000_000,
        root: std::env::temp_dir().join("pyrmq-store-bench"),
        fill: false,
        more: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value");
        match word.as_str() {
            "--rows" => arguments.rows = Some(value().split(',').map(str::to_owned).collect()),
            "--rounds" => arguments.rounds = value().parse().expect("a number"),
            "--queues" => arguments.queues = value().parse().expect("a number"),
            "--mb" => arguments.megabytes = value().parse().expect("a number"),
            "--messages" => arguments.messages = value().parse().expect("a number"),
            "--fill" => arguments.fill = true,
            "--more" => arguments.more = true,
            directory => arguments.root = PathBuf::from(directory),
        }
    }
    arguments
}

/// A function that measures a row.
type Measure = fn(&Arguments);

/// One row: its figures in order of measurement.
fn tell(row: &str, unit: &str, values: &[f64]) {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
    println!(
        "{{\"row\":\"{row}\",\"unit\":\"{unit}\",\"values\":[{}]}}",
        values.join(",")
    );
}

fn host() -> SocketAddr {
    "127.0.0.1:10911".parse().expect("an address")
}

/// The properties of many messages. Each has its own unique key and key, like real ones, so that they spread over the
/// index's slots.
#[derive(Clone)]
struct Properties {
    text: Vec<String>,
    /// Positions of the eight digits of key and unique key in each text.
    digits: [usize; 2],
}

impl Properties {
    fn new(count: usize) -> Self {
        let digits = ["order-", "7F0000011AE24E0E2F2A6AE8"]
            .map(|before| PROPERTIES.find(before).expect("it is there") + before.len());
        let mut properties = Self {
            text: vec![PROPERTIES.to_owned(); count],
            digits,
        };
        properties.renew(0);
        properties
    }

    /// Writes the keys of the messages from `number` on into the texts.
    fn renew(&mut self, number: usize) {
        for (text, number) in self.text.iter_mut().zip(number..) {
            let digits = format!("{:08x}", number & 0xffff_ffff);
            for at in self.digits {
                text.replace_range(at..at + 8, &digits);
            }
        }
    }

    fn count(&self) -> usize {
        self.text.len()
    }

    /// The properties of the message with a number, which was renewed last.
    fn of(&self, number: usize) -> Keyed<'_> {
        let text = &self.text[number % self.text.len()];
        let [key_end, unique_end] = self.digits.map(|at| at + 8);
        Keyed {
            text,
            key: &text[key_end - "order-00000001".len()..key_end],
            unique_key: &text[unique_end - 32..unique_end],
        }
    }
}

/// The properties of one message, and the keys in them.
#[derive(Clone, Copy)]
struct Keyed<'a> {
    text: &'a str,
    key: &'a str,
    unique_key: &'a str,
}

fn message<'a>(body: &'a [u8], queue_id: i32, keyed: Keyed<'a>) -> NewMessage<'a> {
    NewMessage {
        topic: "bench",
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host(),
        store_host: host(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: keyed.text.into(),
        tags_code: 116,
        unique_key: Some(keyed.unique_key),
        keys: Some(keyed.key),
        tag: Some("t"),
    }
}

fn open(options: Options) -> Arc<Store> {
    Store::open(options, Arc::new(RealFs)).expect("the store opens")
}

fn fresh(root: &Path) -> Options {
    drop(std::fs::remove_dir_all(root));
    Options::new(root)
}

/// Waits until the disk has everything written so far: no measurement should pay for another's pages.
fn settle(root: &Path) {
    RealFs.create_directories(root).expect("a directory");
    RealFs.sync_all(root).expect("everything is synced");
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Time that a piece of work took.
#[derive(Clone, Copy)]
struct Taken {
    /// By the clock, in seconds.
    wall: f64,
    /// Processor time of this thread, in seconds; 0 if the system does not report it. Other work on the machine changes
    /// it little.
    cpu: f64,
}

fn taken(work: impl FnOnce()) -> Taken {
    let cpu = || {
        let text = String::from_utf8(
            RealFs
                .read(Path::new("/proc/thread-self/schedstat"))
                .unwrap_or_default(),
        );
        let first = text.unwrap_or_default().split(' ').next().map(str::to_owned);
        first
            .and_then(|nanos| nanos.parse::<f64>().ok())
            .unwrap_or_default()
            / 1e9
    };
    let before = cpu();
    let wall = seconds(work);
    Taken {
        wall,
        cpu: cpu() - before,
    }
}

/// Messages whose properties are prepared together.
const PART: usize = 64 * BATCH;

/// Times work on `count` messages, in parts. The properties of a part are written before it, which is not measured: a
/// broker receives them from its clients, and finds them in the processor's cache.
fn in_parts(count: usize, mut work: impl FnMut(&Properties, Range<usize>)) -> Taken {
    let mut properties = Properties::new(PART);
    let mut sum = Taken { wall: 0.0, cpu: 0.0 };
    for first in (0..count).step_by(PART) {
        properties.renew(first);
        let part = taken(|| work(&properties, first..(first + PART).min(count)));
        sum = Taken {
            wall: sum.wall + part.wall,
            cpu: sum.cpu + part.cpu,
        };
    }
    sum
}

/// Puts `count` batches, into one of `queues` queues after the other.
fn batches(store: &Store, body: &[u8], count: usize, queues: usize) -> Taken {
    in_parts(count * BATCH, |properties, part| {
        for first in part.step_by(BATCH) {
            put_batch(store, body, properties, (first, first / BATCH % queues));
        }
    })
}

/// Puts one batch, whose first message has this number, into a queue.
fn put_batch(store: &Store, body: &[u8], properties: &Properties, (first, queue): (usize, usize)) -> Stored {
    let items: [BatchMessage<'_>; BATCH] = std::array::from_fn(|index| {
        let keyed = properties.of(first + index);
        BatchMessage {
            flag: 0,
            body,
            properties: keyed.text,
            tags_code: 116,
            unique_key: Some(keyed.unique_key),
            keys: Some(keyed.key),
            tag: Some("t"),
        }
    });
    let batch = MessageBatch {
        topic: "bench",
        queue_id: i32::try_from(queue).unwrap(),
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host(),
        store_host: host(),
        reconsume_times: 0,
        items: &items,
    };
    store.put_batch(&batch).expect("stored")
}

/// One of eight queues.
fn queue_of(number: usize) -> i32 {
    i32::try_from(number % 8).unwrap()
}

/// Writes the same number of bytes in pieces of the same size to one file.
fn bare(root: &Path, size: usize, count: usize) -> Taken {
    drop(std::fs::remove_dir_all(root));
    let file = bare_file(root);
    let bytes = vec![7u8; size];
    taken(|| {
        for number in 0..count {
            file.write_all_at(&bytes, (number * size) as u64)
                .expect("a write");
        }
    })
}

fn bare_file(root: &Path) -> Arc<dyn File> {
    RealFs.create_directories(root).expect("a directory");
    let file = RealFs.create(&root.join("bare")).expect("a file");
    file.set_length(1 << 30).expect("a length");
    file
}

fn append(arguments: &Arguments) {
    for size in [128, 1024] {
        let body = vec![7u8; size];
        let record = 88 + size + 1 + "bench".len() + 2 + PROPERTIES.len();
        let count = (200 << 20) / (record * BATCH);
        let bytes = (record * BATCH * count) as f64 / 1e6;
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..arguments.rounds {
            settle(&arguments.root);
            floor.push(bare(&arguments.root, record * BATCH, count));
            let store = open(fresh(&arguments.root));
            settle(&arguments.root);
            ours.push(batches(&store, &body, count, 8));
        }
        let rates = |taken: &[Taken]| -> Vec<f64> { taken.iter().map(|one| bytes / one.wall).collect() };
        let nanos = |taken: &[Taken]| -> Vec<f64> {
            taken
                .iter()
                .map(|one| one.cpu * 1e9 / (count * BATCH) as f64)
                .collect()
        };
        let pairs = || floor.iter().zip(&ours);
        let ratio: Vec<f64> = pairs().map(|(floor, ours)| floor.wall / ours.wall).collect();
        let of_cpu: Vec<f64> = pairs().map(|(floor, ours)| floor.cpu / ours.cpu).collect();
        tell(&format!("append_{size}"), "MB/s", &rates(&ours));
        tell(&format!("append_{size}_bare"), "MB/s", &rates(&floor));
        tell(&format!("append_{size}_of_bare"), "times", &ratio);
        tell(&format!("append_{size}_cpu"), "ns a message", &nanos(&ours));
        tell(&format!("append_{size}_bare_cpu"), "ns a message", &nanos(&floor));
        tell(&format!("append_{size}_cpu_of_bare"), "times", &of_cpu);
    }
}

fn put(arguments: &Arguments) {
    let body = [7u8; 128];
    let count = 300_000;
    let (mut rates, mut nanos) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        let store = open(fresh(&arguments.root));
        settle(&arguments.root);
        let taken = in_parts(count, |properties, part| {
            for number in part {
                let message = message(&body, queue_of(number), properties.of(number));
                store.put(&message).expect("stored");
            }
        });
        rates.push(count as f64 / taken.wall);
        nanos.push(taken.cpu * 1e9 / count as f64);
    }
    tell("put_128", "messages/s", &rates);
    tell("put_128_cpu", "ns a message", &nanos);
}

/// Puts of connections: alone in their append batch, and 64 of them together.
fn staged(arguments: &Arguments) {
    let body = [7u8; 128];
    for together in [1, 64] {
        let (mut rates, mut nanos) = (Vec::new(), Vec::new());
        let count = 512_000;
        for _ in 0..arguments.rounds {
            let store = open(fresh(&arguments.root));
            let mut puts = store.append_batch();
            settle(&arguments.root);
            let taken = in_parts(count, |properties, part| {
                for number in part {
                    let stored = |stored: Result<Stored, StoreError>| {
                        stored.expect("stored");
                        None
                    };
                    let message = message(&body, queue_of(number), properties.of(number));
                    puts.stage(&message, Box::new(stored));
                    if (number + 1).is_multiple_of(together) {
                        puts.commit();
                    }
                }
            });
            rates.push(count as f64 / taken.wall);
            nanos.push(taken.cpu * 1e9 / count as f64);
        }
        tell(&format!("staged_{together}"), "messages/s", &rates);
        tell(&format!("staged_{together}_cpu"), "ns a message", &nanos);
    }
}

/// Puts one message as a connection's task does, and waits until it is durable. Returns microseconds.
fn put_durable(puts: &mut AppendBatch, message: &NewMessage<'_>) -> f64 {
    let (done, wait) = mpsc::channel();
    1e6 * seconds(|| {
        let on_stored = Box::new(move |stored: Result<Stored, StoreError>| {
            let done = Box::new(move |result: Result<(), StoreError>| done.send(result).expect("a waiter"));
            Some((stored.expect("stored").end_position, done as OnDurable))
        });
        puts.stage(message, on_stored);
        puts.commit();
        wait.recv().expect("an answer").expect("durable");
    })
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let at = (last as f64 * share) as usize;
    values.get(at).copied().unwrap_or_default()
}

fn sync(arguments: &Arguments) {
    let body = [7u8; 128];
    let bare_root = arguments.root.with_extension("bare");
    let mut options = fresh(&arguments.root);
    options.flush = FlushDiskType::Sync;
    let store = open(options);
    let mut puts = store.append_batch();
    let file = bare_file(&bare_root);
    let record = vec![7u8; 352];
    let (mut ours, mut floor, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    let (mut properties, mut number) = (Properties::new(1), 0);
    settle(&arguments.root);
    for _ in 0..arguments.rounds {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            for _ in 0..20 {
                properties.renew(number);
                one.push(put_durable(&mut puts, &message(&body, 0, properties.of(number))));
                number += 1;
            }
            for _ in 0..20 {
                other.push(
                    1e6 * seconds(|| {
                        file.write_all_at(&record, at).expect("a write");
                        file.sync().expect("an fsync");
                    }),
                );
                at += record.len() as u64;
            }
        }
        let (one, other) = (percentile(&mut one, 0.5), percentile(&mut other, 0.5));
        ours.push(one);
        floor.push(other);
        ratio.push(one / other);
    }
    tell("sync_lone_p50", "us", &ours);
    tell("fdatasync_p50", "us", &floor);
    tell("sync_lone_of_fdatasync", "times", &ratio);
    let (mut rates, mut shares) = (Vec::new(), Vec::new());
    let mut properties = Properties::new(64 * 50);
    for _ in 0..arguments.rounds {
        properties.renew(number);
        let before = store.stats();
        let taken = seconds(|| {
            std::thread::scope(|scope| {
                for sender in 0..64 {
                    let (store, body, properties) = (&store, &body, &properties);
                    scope.spawn(move || {
                        let mut puts = store.append_batch();
                        for own in 0..50 {
                            let keyed = properties.of(sender * 50 + own);
                            put_durable(&mut puts, &message(body, queue_of(sender), keyed));
                        }
                    });
                }
            });
        });
        number += 64 * 50;
        let after = store.stats();
        let messages = (after.messages_put - before.messages_put) as f64;
        rates.push(messages / taken);
        shares.push(messages / (after.flushes - before.flushes).max(1) as f64);
    }
    tell("sync_64_senders", "messages/s", &rates);
    tell("sync_64_messages_an_fsync", "messages", &shares);
    drop(store);
    drop(std::fs::remove_dir_all(&bare_root));
}

/// Compares the slowest put around each roll with the p99.9 of puts without one: any percentile of all puts would hide
/// 18 rolls among 60,000 puts.
fn roll(arguments: &Arguments) {
    const AROUND: usize = 8;
    let body = [7u8; 1024];
    let (mut rolls, mut one, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        for segment in [4 << 20, 1 << 30] {
            let mut options = fresh(&arguments.root);
            options.segment_bytes = segment;
            let store = open(options);
            settle(&arguments.root);
            let mut taken = Vec::with_capacity(60_000);
            let (mut rolled, mut file) = (Vec::new(), 0);
            let mut properties = Properties::new(64);
            for number in 0..60_000 {
                if number % 64 == 0 {
                    properties.renew(number);
                }
                let message = message(&body, queue_of(number), properties.of(number));
                let mut end = 0;
                taken.push(
                    1e6 * seconds(|| {
                        end = store.put(&message).expect("stored").end_position;
                    }),
                );
                let now = (end - 1) / i64::try_from(segment).unwrap();
                if now != file {
                    rolled.push(taken.len() - 1);
                    file = now;
                }
                // As fast as a broker under load, not as fast as memory: the disk keeps up.
                if number % 64 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            if rolled.is_empty() {
                one.push(percentile(&mut taken, 0.999));
                continue;
            }
            let mut slowest: Vec<f64> = rolled
                .iter()
                .map(|&at| {
                    let around = at.saturating_sub(AROUND)..(at + AROUND).min(taken.len());
                    taken[around].iter().copied().fold(0.0, f64::max)
                })
                .collect();
            worst.push(percentile(&mut slowest, 1.0));
            rolls.push(percentile(&mut slowest, 0.5));
        }
    }
    let ratio: Vec<f64> = rolls.iter().zip(&one).map(|(roll, p999)| roll / p999).collect();
    tell("put_slowest_around_a_roll", "us", &rolls);
    tell("put_slowest_around_any_roll", "us", &worst);
    tell("put_p999_without_roll", "us", &one);
    tell("put_roll_of_p999", "times", &ratio);
}

/// Removes the directory on drop.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn main() {
    let arguments = arguments();
    if arguments.fill || arguments.more {
        let store = if arguments.fill {
            open(fresh(&arguments.root))
        } else {
            open(Options::new(&arguments.root))
        };
        if arguments.fill {
            large::fill(&arguments, &store);
        } else {
            large::more(&arguments, &store);
        }
        println!("filled");
        std::io::stdout().flush().expect("a reader");
        // The parent kills it here.
        std::thread::sleep(Duration::from_mins(10));
        return;
    }
    let named = |name: &str| {
        let rows = arguments.rows.as_ref();
        rows.is_some_and(|rows| rows.iter().any(|row| row == name))
    };
    if named("open") {
        return large::open_there(&arguments);
    }
    let _remove = Remove(arguments.root.clone());
    let rows: [(&str, Measure); 7] = [
        ("append", append),
        ("put", put),
        ("staged", staged),
        ("sync", sync),
        ("roll", roll),
        ("start", large::start),
        ("queues", large::queues),
    ];
    for (name, row) in rows {
        if arguments.rows.is_none() || named(name) {
            row(&arguments);
        }
    }
    let long: [(&str, Measure); 3] = [
        ("many", large::many),
        ("long", large::long),
        ("deep", large::deep),
    ];
    for (_, row) in long.iter().filter(|(name, _)| named(name)) {
        row(&arguments);
    }
}
