//! Kills a real writing process with -9, again and again; everything it reported as stored must exist.
//!
//! The writer is this test binary itself, started with an environment variable that names the directory. It reports
//! every acknowledged message on a pipe, after the put returned.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on says so, and looks at files behind the store's back"
)]

mod common;

use common::{bodies, message, open, real, small};
use pyrmq_remoting::message::record::MAGIC_V1;
use pyrmq_store::{FlushDiskType, Options, Store, StoreError};
use pyrmq_testkit::TempDir;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const DIRECTORY: &str = "PYRMQ_KILL_DIRECTORY";
const FIRST: &str = "PYRMQ_KILL_FIRST";
const SYNC: &str = "PYRMQ_KILL_SYNC";
const NULS: &str = "PYRMQ_KILL_NULS";
const QUEUES: u64 = 4;

fn options(root: &Path, sync: bool) -> Options {
    let mut options = small(root);
    options.index_entries = 5000;
    if sync {
        options.flush = FlushDiskType::Sync;
    }
    options
}

/// The child's part of the test. Without the variable it does nothing.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(root) = std::env::var(DIRECTORY) else {
        return;
    };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let sync = std::env::var(SYNC).unwrap() == "true";
    let nuls = std::env::var(NULS).unwrap() == "true";
    let store = open(options(Path::new(&root), sync));
    let long = format!("k\u{1}{}\u{2}", "\0".repeat(1100));
    let mut out = std::io::stdout().lock();
    for number in first.. {
        let body = format!(
            "{number:0width$}",
            width = 20 + usize::try_from(number % 500).unwrap()
        );
        let queue = i32::try_from(number % QUEUES).unwrap();
        let properties = match number % 5 {
            0 if nuls => "k\u{1}v\0\0",
            1 if nuls => long.as_str(),
            _ => "",
        };
        let stored = store
            .put(&message("T", queue, body.as_bytes(), properties))
            .unwrap();
        if sync {
            let (done, answer) = mpsc::channel();
            store.when_durable(stored.end_position, move |result| done.send(result).unwrap());
            answer.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
        }
        writeln!(out, "stored {number} {queue} {}", stored.queue_offset).unwrap();
        out.flush().unwrap();
    }
}

/// Lets a child store at least `least` messages, kills it, and returns what it had reported.
fn run_and_kill(root: &Path, first: u64, least: usize, (sync, nuls): (bool, bool)) -> Vec<(u64, i32, i64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "child_writes_until_it_is_killed",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIRECTORY, root)
        .env(FIRST, first.to_string())
        .env(SYNC, sync.to_string())
        .env(NULS, nuls.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut reported = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The first report may follow the test runner's output on the same line.
    let parse = |line: &str| {
        let mut words = line.split("stored ").nth(1)?.split(' ');
        Some((
            words.next()?.parse::<u64>().ok()?,
            words.next()?.parse::<i32>().ok()?,
            words.next()?.parse::<i64>().ok()?,
        ))
    };
    while reported.len() < least {
        let line = lines.next().expect("the child goes on").unwrap();
        reported.extend(parse(&line));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // Messages in the pipe were acknowledged too; only the last line may be cut off.
    for line in lines.map_while(Result::ok) {
        if line.split(' ').count() >= 4 {
            reported.extend(parse(&line).filter(|(number, _, _)| *number == first + reported.len() as u64));
        }
    }
    reported
}

fn kill_loop(rounds: usize, least: usize, sync: bool, nuls: bool) {
    let dir = TempDir::new().unwrap();
    let mut next = 0;
    let mut acknowledged: Vec<(u64, i32, i64)> = Vec::new();
    for round in 0..rounds {
        let reported = run_and_kill(dir.path(), next, least + round * 37, (sync, nuls));
        acknowledged.extend(reported);
        // Checks the queues: every acknowledged message at its index, nothing twice, nothing invented.
        let store = open(options(dir.path(), sync));
        assert!(store.health().recovered_from_crash);
        let queues: Vec<Vec<u64>> = (0..QUEUES)
            .map(|queue| {
                bodies(&store, "T", i32::try_from(queue).unwrap())
                    .into_iter()
                    .map(|body| String::from_utf8(body).unwrap().parse().unwrap())
                    .collect()
            })
            .collect();
        for (number, queue, index) in &acknowledged {
            let queue = &queues[usize::try_from(*queue).unwrap()];
            assert_eq!(
                queue.get(usize::try_from(*index).unwrap()),
                Some(number),
                "round {round}"
            );
        }
        let mut all: Vec<u64> = queues.into_iter().flatten().collect();
        all.sort_unstable();
        next = all.last().map_or(0, |last| last + 1);
        let expected: Vec<u64> = (0..next).collect();
        assert_eq!(all, expected, "round {round}: each number once");
        if round % 2 == 0 {
            // Every second time, the next writer finds a crashed directory that was not repaired.
            store.close().unwrap();
        }
    }
    assert!(acknowledged.len() >= rounds * least);
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    kill_loop(6, 1500, false, false);
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_with_sync_flush() {
    kill_loop(3, 150, true, false);
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_whatever_bytes_properties_have() {
    kill_loop(3, 800, false, true);
    kill_loop(3, 100, true, true);
}

#[test]
fn only_after_a_kill_is_a_damaged_new_record_considered_damage() {
    let dir = TempDir::new().unwrap();
    run_and_kill(dir.path(), 0, 200, (false, false));
    let log = dir.path().join("commitlog/00000000000000000000");
    let mut bytes = fs::read(&log).unwrap();
    let places = [MAGIC_V1.to_be_bytes()];
    let heads: Vec<_> = (0..bytes.len() - 4)
        .filter(|at| places.contains(&bytes[*at..*at + 4].try_into().unwrap()))
        .collect();
    let at = heads[heads.len() - 3];
    bytes[at + 90] ^= 1;
    fs::write(&log, &bytes).unwrap();
    // A copy may be made while the broker runs: its pages are from different moments.
    let copy = TempDir::copy_of(dir.path()).unwrap();
    let error = Store::open(options(dir.path(), false), real()).expect_err("it is damaged");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let mark = fs::read(copy.path().join("checkpoint")).unwrap();
    let mark = u64::from_be_bytes(mark[80..88].try_into().unwrap());
    if mark <= at as u64 {
        let text = error.to_string();
        assert!(
            text.contains("unmounted by force") && text.contains("pyrmq log repair"),
            "{text}"
        );
        open(options(copy.path(), false));
    }
}
