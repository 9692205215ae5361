//! A real process that writes and is killed with -9, again and again; what it reported as stored must be there.
//!
//! The writer is this test binary itself, started with an environment variable that says where to write. It reports every
//! acknowledged message on a pipe, after the put returned.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{bodies, message, open, small};
use pyrmq_store::{FlushDiskType, Options};
use pyrmq_testkit::TempDir;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const DIRECTORY: &str = "PYRMQ_KILL_DIRECTORY";
const FIRST: &str = "PYRMQ_KILL_FIRST";
const SYNC: &str = "PYRMQ_KILL_SYNC";
const QUEUES: u64 = 4;

fn options(root: &Path, sync: bool) -> Options {
    let mut options = small(root);
    options.index_entries = 5000;
    if sync {
        options.flush = FlushDiskType::Sync;
    }
    options
}

/// Not a test of its own: the child's part. Without the variable it does nothing.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(root) = std::env::var(DIRECTORY) else {
        return;
    };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let sync = std::env::var(SYNC).unwrap() == "true";
    let store = open(options(Path::new(&root), sync));
    let mut out = std::io::stdout().lock();
    for number in first.. {
        let body = format!(
            "{number:0width$}",
            width = 20 + usize::try_from(number % 500).unwrap()
        );
        let queue = i32::try_from(number % QUEUES).unwrap();
        let stored = store.put(&message("T", queue, body.as_bytes(), "")).unwrap();
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
fn run_and_kill(root: &Path, first: u64, least: usize, sync: bool) -> Vec<(u64, i32, i64)> {
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
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut reported = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The first report may stand behind the test runner's own words on the same line.
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
    // What was in the pipe was acknowledged too; only the last line may be cut.
    for line in lines.map_while(Result::ok) {
        if line.split(' ').count() >= 4 {
            reported.extend(parse(&line).filter(|(number, _, _)| *number == first + reported.len() as u64));
        }
    }
    reported
}

fn kill_loop(rounds: usize, least: usize, sync: bool) {
    let dir = TempDir::new().unwrap();
    let mut next = 0;
    let mut acknowledged: Vec<(u64, i32, i64)> = Vec::new();
    for round in 0..rounds {
        let reported = run_and_kill(dir.path(), next, least + round * 37, sync);
        acknowledged.extend(reported);
        // Queues as they are now: every acknowledged message at its index, nothing twice, nothing invented.
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
            // Every second time the next writer finds a crashed directory that nobody repaired.
            store.close().unwrap();
        }
    }
    assert!(acknowledged.len() >= rounds * least);
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    kill_loop(6, 1500, false);
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_with_sync_flush() {
    kill_loop(3, 150, true);
}
