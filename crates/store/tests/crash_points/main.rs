//! Crash points: a seeded run over a simulated disk, crashes at any step of it, and an oracle for what must be there after.
//!
//! `make faults` takes 10,000 points and prints how far it is; a shorter run belongs to the ordinary tests. A failure
//! prints its seed: `PYRMQ_FAULT_SEED=n` replays it exactly and lists the steps, `PYRMQ_FAULT_POINTS` says how many points are taken.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on says so"
)]

#[path = "../common/mod.rs"]
mod common;
mod harm;
mod oracle;
mod workload;

use oracle::{Crash, check};
use pyrmq_testkit::sim::{Loss, Swallow};
use pyrmq_testkit::{Random, SimDisk};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use workload::Run;

/// Crash points of one run.
const POINTS_A_RUN: usize = 40;
/// Things done in one run.
const DONE_A_RUN: usize = 220;

/// One run and its crash points; the first thing that does not hold, with what is needed to see it again.
fn run(seed: u64, points: usize, swallow: Option<Swallow>) -> Result<(), String> {
    let disk = SimDisk::default();
    if let Some(what) = swallow {
        disk.swallow(what);
    }
    let mut run = Run::new(seed, disk);
    run.go(DONE_A_RUN);
    let mut random = Random::of(&[seed, 3]);
    for _ in 0..points {
        let steps = random.below(run.disk.steps() + 1);
        let loss = *random.choose(&Loss::ALL).unwrap();
        let after = run.disk.crash(steps, loss, random.next());
        let harmed = if random.one_in(4) {
            harm::a_queue(&after, &mut random)
        } else {
            None
        };
        let about_harm = harmed
            .as_ref()
            .map_or_else(String::new, |harm| format!(", {harm:?}"));
        let crash = Crash {
            history: &run.history,
            steps,
            is_kill: loss == Loss::Nothing,
            options: &run.options,
            harmed: harmed.map(|harm| harm.queue),
        };
        check(&crash, &after, &mut random).map_err(|what| {
            if number("PYRMQ_FAULT_SEED").is_some() {
                (1..=steps).for_each(|step| eprintln!("{step:6} {}", run.disk.describe(step)));
            }
            format!(
                "seed {seed}, crash behind step {steps} of {} ({}), {loss:?} lost{about_harm}: {what}\nbefore it:\n{}",
                run.disk.steps(),
                run.disk.describe(steps),
                run.history.last_told(steps)
            )
        })?;
    }
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

/// Takes so many points over runs of consecutive seeds, on all processors.
fn take(points: usize, show: bool) {
    if let Some(seed) = number("PYRMQ_FAULT_SEED") {
        eprintln!("crash points: seed {seed}");
        return run(seed, POINTS_A_RUN, None).unwrap_or_else(|what| panic!("{what}"));
    }
    let points = number("PYRMQ_FAULT_POINTS").map_or(points, |points| usize::try_from(points).unwrap());
    let runs = points.div_ceil(POINTS_A_RUN);
    // Time makes the first seed of a long run; the short one is the same every time.
    let first = if show {
        u64::try_from(pyrmq_remoting::clock::now_ms()).unwrap() % 1_000_000_000
    } else {
        0
    };
    eprintln!("crash points: {points} from seed {first} on");
    let (next, done) = (AtomicU64::new(first), AtomicUsize::new(0));
    let (start, failures) = (Instant::now(), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + runs as u64 || failures.lock().unwrap().len() >= 5 {
                        return;
                    }
                    if let Err(what) = run(seed, POINTS_A_RUN, None) {
                        eprintln!("{what}");
                        failures.lock().unwrap().push(what);
                    }
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if show && (done.is_multiple_of(25) || done == runs) {
                        eprintln!(
                            "{} of {points} points, {:.0} s",
                            (done * POINTS_A_RUN).min(points),
                            start.elapsed().as_secs_f64()
                        );
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} runs failed; PYRMQ_FAULT_SEED replays one:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn nothing_acknowledged_is_lost_at_some_hundred_crash_points() {
    take(480, false);
}

#[test]
#[ignore = "make faults: some minutes"]
fn nothing_acknowledged_is_lost_at_ten_thousand_crash_points() {
    take(10_000, true);
}

/// A disk that pretends to do one kind of fsync: the oracle has to notice within some runs.
fn is_noticed(swallow: Swallow, by: &[&str]) {
    let found = (0..30).find_map(|seed| run(seed, POINTS_A_RUN, Some(swallow)).err());
    let found = found.unwrap_or_else(|| panic!("{swallow:?} was never noticed"));
    assert!(
        by.iter().any(|text| found.contains(text)),
        "{swallow:?} was noticed by another loss: {found}"
    );
}

#[test]
fn the_oracle_notices_a_log_that_is_never_flushed() {
    is_noticed(Swallow::File("/commitlog/"), &["lost: "]);
}

#[test]
fn the_oracle_notices_segments_whose_names_are_never_flushed() {
    is_noticed(
        Swallow::Directory("commitlog"),
        &["lost: ", "does not open", "segment"],
    );
}

#[test]
fn the_oracle_notices_queues_that_are_never_flushed() {
    is_noticed(Swallow::File("/consumequeue/"), &["the log has", "goes on at"]);
}

#[test]
fn the_oracle_notices_deletions_that_are_never_flushed() {
    is_noticed(Swallow::File("/deletedTopics"), &["came back"]);
}

#[test]
fn the_oracle_notices_configurations_that_are_never_flushed() {
    is_noticed(Swallow::File("/config/"), &["lost: ", "cannot be read"]);
}

#[test]
fn the_oracle_notices_configurations_whose_renames_are_never_flushed() {
    is_noticed(Swallow::Directory("config"), &["lost: "]);
}

#[test]
fn a_seed_replays_exactly() {
    let steps = |seed| {
        let mut run = Run::new(seed, SimDisk::default());
        run.go(60);
        (
            run.disk.steps(),
            run.history.puts.last().map(|put| put.bytes.clone()),
        )
    };
    assert_eq!(steps(7), steps(7));
    assert_ne!(steps(7), steps(8));
}
