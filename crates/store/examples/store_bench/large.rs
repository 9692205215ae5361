//! Rows with many queues, many bytes or many messages.

use crate::{
    Arguments, BATCH, Properties, batches, fresh, message, open, percentile, put_batch, seconds, settle, tell,
};
use pyrmq_store::fs::{Fs, RealFs};
use pyrmq_store::{GetMessage, GetStatus, Options, Store, TagFilter};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Fills a store with `megabytes` of messages in `queues` queues.
pub(crate) fn fill(arguments: &Arguments, store: &Store) {
    put_round_robin(
        arguments,
        store,
        arguments.megabytes << 20,
        &mut Properties::new(1024),
    );
}

/// Puts one message into each queue, so that a crash finds messages after the last clean stop.
pub(crate) fn more(arguments: &Arguments, store: &Store) {
    put_round_robin(arguments, store, 0, &mut Properties::new(1024));
}

/// Puts messages into one queue after the other until each has one and the log ends at or after `until`. The keys of
/// the first messages are those that `properties` has.
fn put_round_robin(arguments: &Arguments, store: &Store, until: usize, properties: &mut Properties) {
    let body = vec![7u8; 800];
    let mut stored = 0;
    let mut number = 0;
    // No message that is in the log already has these keys: each takes more than one byte.
    let first_key = usize::try_from(store.end_position()).unwrap();
    while stored < until || number < arguments.queues {
        if first_key + number > 0 && number.is_multiple_of(properties.count()) {
            properties.renew(first_key + number);
        }
        let queue = number % arguments.queues;
        let topic = format!("topic-{}", queue / 64);
        let keyed = properties.of(number);
        let mut message = message(&body, i32::try_from(queue % 64).unwrap(), keyed);
        message.topic = &topic;
        let put = store.put(&message).expect("stored");
        stored = usize::try_from(put.end_position).unwrap();
        number += 1;
    }
}

pub(crate) fn start(arguments: &Arguments) {
    let mut clean = Vec::new();
    let mut killed = Vec::new();
    drop(std::fs::remove_dir_all(&arguments.root));
    for round in 0..arguments.rounds {
        kill_while_it_fills(arguments, if round == 0 { "--fill" } else { "--more" });
        let mut store = None;
        killed.push(seconds(|| store = Some(open(Options::new(&arguments.root)))));
        store.take().unwrap().close().expect("a clean stop");
        clean.push(seconds(|| store = Some(open(Options::new(&arguments.root)))));
        store.take().unwrap().close().expect("a clean stop");
    }
    tell("start_after_kill", "s", &killed);
    tell("start_clean", "s", &clean);
}

/// Runs this program on the directory in a separate process, and kills it once it has put its messages.
fn kill_while_it_fills(arguments: &Arguments, how: &str) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([how, "--queues", &arguments.queues.to_string()])
        .args(["--mb", &arguments.megabytes.to_string()])
        .arg(&arguments.root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    lines.next().expect("it fills").expect("it says so");
    child.kill().expect("killed");
    child.wait().expect("gone");
}

fn resident_mb() -> f64 {
    let text = String::from_utf8(RealFs.read(Path::new("/proc/self/status")).unwrap_or_default())
        .unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok())
        .unwrap_or_default()
        / 1e3
}

pub(crate) fn queues(arguments: &Arguments) {
    // Kept until the memory is measured: the store must not reuse what it frees.
    let mut properties = Properties::new(arguments.queues);
    let before = resident_mb();
    let store = open(fresh(&arguments.root));
    let filling = seconds(|| put_round_robin(arguments, &store, 0, &mut properties));
    tell(
        "queues_first_messages",
        "messages/s",
        &[arguments.queues as f64 / filling],
    );
    tell("queues_resident", "MB", &[resident_mb() - before]);
    drop(properties);
    tell(
        "queues_close",
        "s",
        &[seconds(|| store.close().expect("a clean stop"))],
    );
    drop(store);
    let mut store = None;
    tell(
        "queues_open",
        "s",
        &[seconds(|| store = Some(open(Options::new(&arguments.root))))],
    );
    let store = store.unwrap();
    assert_eq!(store.health().queues, arguments.queues);
    let got = store.get(&GetMessage {
        topic: "topic-0",
        queue_id: 0,
        offset: 0,
        max_count: 1,
        max_bytes: 1 << 20,
        tags: TagFilter::All,
    });
    assert_eq!(got.expect("an answer").count, 1);
}

/// Opens the store twice: as it is, and after a clean stop.
pub(crate) fn open_there(arguments: &Arguments) {
    for row in ["open_as_it_is", "open_again"] {
        let mut store = None;
        tell(
            row,
            "s",
            &[seconds(|| store = Some(open(Options::new(&arguments.root))))],
        );
        store.take().unwrap().close().expect("a clean stop");
    }
}

/// Puts to one of `queues` queues, chosen pseudo-randomly. Returns microseconds of each put.
fn scattered(store: &Store, queues: usize, count: usize) -> Vec<f64> {
    let body = [7u8; 800];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut taken = Vec::with_capacity(count);
    let mut properties = Properties::new(64);
    let first_key = usize::try_from(store.end_position()).unwrap();
    for number in 0..count {
        if number % 64 == 0 {
            properties.renew(first_key + number);
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let queue = usize::try_from(state >> 20).unwrap() % queues;
        let topic = format!("topic-{}", queue / 64);
        let keyed = properties.of(number);
        let mut message = message(&body, i32::try_from(queue % 64).unwrap(), keyed);
        message.topic = &topic;
        taken.push(
            1e6 * seconds(|| {
                store.put(&message).expect("stored");
            }),
        );
        // As fast as a broker under load, not as fast as memory.
        if number % 64 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    taken
}

/// Measures the cost of a put with many queues, and their memory.
pub(crate) fn many(arguments: &Arguments) {
    let before = resident_mb();
    let store = open(fresh(&arguments.root));
    let one = |queues: usize| Arguments {
        rows: None,
        queues,
        megabytes: 0,
        root: arguments.root.clone(),
        ..*arguments
    };
    fill(&one(1000), &store);
    settle(&arguments.root);
    let mut few: Vec<_> = (0..arguments.rounds)
        .map(|_| scattered(&store, 1000, 40_000))
        .collect();
    fill(&one(arguments.queues), &store);
    settle(&arguments.root);
    let mut all: Vec<_> = (0..arguments.rounds)
        .map(|_| scattered(&store, arguments.queues, 40_000))
        .collect();
    let medians = |rounds: &mut Vec<Vec<f64>>| -> Vec<f64> {
        rounds.iter_mut().map(|round| percentile(round, 0.5)).collect()
    };
    let (few_p50, all_p50) = (medians(&mut few), medians(&mut all));
    let mean = |rounds: &[Vec<f64>]| -> Vec<f64> {
        rounds
            .iter()
            .map(|round| round.iter().sum::<f64>() / round.len() as f64)
            .collect()
    };
    let (few_mean, all_mean) = (mean(&few), mean(&all));
    let ratio = |one: &[f64], other: &[f64]| -> Vec<f64> {
        one.iter().zip(other).map(|(one, other)| one / other).collect()
    };
    tell("put_p50_1000_queues", "us", &few_p50);
    tell("put_p50_many_queues", "us", &all_p50);
    tell("put_p50_many_of_1000", "times", &ratio(&all_p50, &few_p50));
    tell("put_mean_many_of_1000", "times", &ratio(&all_mean, &few_mean));
    tell("many_queues", "queues", &[store.health().queues as f64]);
    tell("many_queues_resident", "MB", &[resident_mb() - before]);
    tell(
        "many_queues_close",
        "s",
        &[seconds(|| store.close().expect("a clean stop"))],
    );
}

/// Measures resident memory while many bytes pass through, 64 times.
pub(crate) fn long(arguments: &Arguments) {
    let store = open(fresh(&arguments.root));
    let body = vec![7u8; 1024];
    let mut properties = Properties::new(BATCH);
    let (goal, mut number) = (arguments.megabytes << 20, 0);
    let (mut seen, mut done, mut taken) = (Vec::new(), 0, 0.0);
    while done < goal {
        properties.renew(number * BATCH);
        taken += seconds(|| {
            let stored = put_batch(&store, &body, &properties, (number * BATCH, number % 8));
            done = usize::try_from(stored.end_position).unwrap();
        });
        number += 1;
        if done >= goal / 64 * (seen.len() + 1) {
            seen.push(resident_mb());
        }
    }
    tell("long_resident", "MB", &seen);
    tell(
        "long_resident_most",
        "MB",
        &[seen.iter().copied().fold(0.0, f64::max)],
    );
    tell("long_rate", "MB/s", &[done as f64 / 1e6 / taken]);
    store.close().expect("a clean stop");
}

/// Measures many messages in one queue: filling it, a start, and reads at its beginning, middle and end.
pub(crate) fn deep(arguments: &Arguments) {
    let count = arguments.messages.div_ceil(BATCH) * BATCH;
    let store = open(fresh(&arguments.root));
    let taken = batches(&store, b"deep", count / BATCH, 1).wall;
    tell("deep_put", "messages/s", &[count as f64 / taken]);
    tell("deep_resident", "MB", &[resident_mb()]);
    store.close().expect("a clean stop");
    drop(store);
    let mut store = None;
    tell(
        "deep_open",
        "s",
        &[seconds(|| store = Some(open(Options::new(&arguments.root))))],
    );
    let store = store.unwrap();
    let end = i64::try_from(count).unwrap();
    assert_eq!(store.max_offset("bench", 0), end, "every message is there");
    for offset in [0, end / 2, end - 1] {
        let got = store.get(&GetMessage {
            topic: "bench",
            queue_id: 0,
            offset,
            max_count: 1,
            max_bytes: 1 << 20,
            tags: TagFilter::All,
        });
        let got = got.expect("an answer");
        assert_eq!((got.status, got.next_offset), (GetStatus::Found, offset + 1));
    }
    store.close().expect("a clean stop");
}
