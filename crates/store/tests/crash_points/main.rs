//! Crash points: a seeded run over a simulated disk, crashes at any of its steps, and an oracle for what must exist
//! afterwards.
//!
//! The ordinary tests take fixed seeds; those marked as ignored take a new one for `make faults`. A failure prints its
//! seed: `PYRMQ_FAULT_SEED=n` replays it exactly and lists the steps.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on says so"
)]

#[path = "../common/mod.rs"]
mod common;
mod harm;
mod known;
mod oracle;
mod puts;
mod sent;
#[cfg(debug_assertions)]
mod threads;
mod workload;

use oracle::{Crash, check, deletions};
use pyrmq_store::Options;
use pyrmq_testkit::fault_points::{Part, Runs, replayed_seed};
use pyrmq_testkit::sim::{Loss, Swallow};
use pyrmq_testkit::{Random, SimDisk};
use workload::{History, Kind, Run};

/// Crash points of one run.
const POINTS_A_RUN: usize = 40;
/// Actions of one run.
const DONE_A_RUN: usize = 220;
/// Crash points of the ordinary tests.
const POINTS: usize = 1000;
#[cfg(debug_assertions)]
const POINTS_OF_THREADS: usize = 1000;

fn disk(swallow: Option<Swallow>) -> SimDisk {
    let disk = SimDisk::default();
    if let Some(what) = swallow {
        disk.swallow(what);
    }
    disk
}

fn kind_of(seed: u64, swallow: Option<Swallow>) -> Kind {
    let kind = Kind::of(seed);
    Kind {
        // A swallowed fsync must be noticed without other faults.
        has_faults: kind.has_faults && swallow.is_none(),
        ..kind
    }
}

/// One thread, on a disk that sometimes fails.
fn run(seed: u64, points: usize, swallow: Option<Swallow>) -> Result<(), String> {
    let kind = kind_of(seed, swallow);
    let mut run = Run::new(seed, kind, disk(swallow));
    let done = run.go(DONE_A_RUN);
    done.map_err(|what| format!("seed {seed}, {:?}: {what}", run.kind))?;
    let (disk, history) = (&run.disk, &run.history);
    crash(seed, points, (disk, history), (&run.options, run.kind))
}

/// Several threads, on a disk that sometimes fails.
#[cfg(debug_assertions)]
fn run_threads(seed: u64, points: usize, swallow: Option<Swallow>) -> Result<(), String> {
    let kind = kind_of(seed, swallow);
    let run = threads::run(seed, kind, disk(swallow));
    let run = run.map_err(|what| format!("threads, seed {seed}, {kind:?}: {what}"))?;
    let (disk, history) = (&run.disk, &run.history);
    crash(seed, points, (disk, history), (&run.options, kind)).map_err(|what| format!("threads, {what}"))
}

/// Checks the crash points of a run. Returns the first violation, with the data to replay it.
fn crash(
    seed: u64,
    points: usize,
    (disk, history): (&SimDisk, &History),
    (options, kind): (&Options, Kind),
) -> Result<(), String> {
    let mut random = Random::of(&[seed, 3]);
    for _ in 0..points {
        let steps = random.below(disk.steps() + 1);
        let loss = *random.choose(&Loss::ALL).unwrap();
        let after = disk.crash(steps, loss, random.next());
        // If only the log could show that files are missing, and it is not read, nothing shows it.
        let tells = kind.syncs_all || options.compare_bytes > 0;
        let harmed = if random.one_in(4) && tells {
            harm::a_queue(&after, &mut random)
        } else {
            None
        };
        let about_harm = harmed
            .as_ref()
            .map_or_else(String::new, |harm| format!(", {harm:?}"));
        let crash = Crash {
            history,
            steps,
            is_kill: loss == Loss::Nothing,
            options,
            kind,
            harmed: harmed.map(|harm| harm.queue),
            noted: deletions(&after),
        };
        check(&crash, &after, &mut random).map_err(|what| {
            if replayed_seed().is_some() {
                (1..=steps).for_each(|step| eprintln!("{step:6} {}", disk.describe(step)));
            }
            format!(
                "seed {seed}, {kind:?}, crash behind step {steps} of {} ({}), without {loss:?}{about_harm}: {what}\nbefore it:\n{}",
                disk.steps(),
                disk.describe(steps),
                history.last_told(steps)
            )
        })?;
    }
    Ok(())
}

const ONE_THREAD: Runs<'_> = Runs {
    points: POINTS_A_RUN,
    failed_once: known::SEEDS,
};

#[test]
fn nothing_acknowledged_is_lost_at_a_thousand_crash_points() {
    ONE_THREAD.take(POINTS, |seed, points| run(seed, points, None));
}

#[test]
#[ignore = "make faults: some minutes"]
fn nothing_acknowledged_is_lost_at_many_crash_points() {
    ONE_THREAD.take_new(Part::OneThread, |seed, points| run(seed, points, None));
}

#[cfg(debug_assertions)]
const THREADS: Runs<'_> = Runs {
    points: POINTS_A_RUN,
    failed_once: known::SEEDS_OF_THREADS,
};

#[cfg(debug_assertions)]
#[test]
fn nothing_acknowledged_is_lost_where_threads_race_at_a_thousand_crash_points() {
    THREADS.take(POINTS_OF_THREADS, |seed, points| run_threads(seed, points, None));
}

#[cfg(debug_assertions)]
#[test]
#[ignore = "make faults: some minutes"]
fn nothing_acknowledged_is_lost_where_threads_race_at_many_crash_points() {
    THREADS.take_new(Part::Threads, |seed, points| run_threads(seed, points, None));
}

/// A disk that only pretends to do one kind of fsync: the oracle must notice it within some runs, by one of these
/// losses.
fn is_noticed(swallow: Swallow, by: &[&str]) {
    is_noticed_by(run, swallow, by);
}

fn is_noticed_by(run: fn(u64, usize, Option<Swallow>) -> Result<(), String>, swallow: Swallow, by: &[&str]) {
    let found = (0..MAX_RUNS).find_map(|seed| {
        let found = run(seed, POINTS_A_RUN, Some(swallow)).err()?;
        eprintln!("{swallow:?}: {}", found.lines().next().unwrap_or_default());
        Some(found)
    });
    let found = found.unwrap_or_else(|| panic!("{swallow:?} was never noticed"));
    assert!(
        by.iter().any(|text| found.contains(text)),
        "{swallow:?} was noticed by another loss: {found}"
    );
}

/// Runs in which a missing fsync must be noticed.
const MAX_RUNS: u64 = 60;

#[test]
fn the_oracle_notices_a_log_that_is_never_flushed() {
    is_noticed(Swallow::File("/commitlog/"), &["lost: ", "has 0 bytes"]);
}

/// Switches these fsyncs off where threads race, too.
#[cfg(debug_assertions)]
#[test]
fn the_oracle_notices_fsyncs_that_are_switched_off_where_threads_race() {
    let losses: [(Swallow, &[&str]); 6] = [
        (Swallow::File("/commitlog/"), &["lost: ", "has 0 bytes"]),
        (Swallow::File("/consumequeue/"), &["the log has", "goes on at"]),
        (Swallow::Below("consumequeue"), &["the log has", "goes on at"]),
        (Swallow::File("/checkpoint"), &["the log has", "goes on at"]),
        (Swallow::File("/deletedTopics"), &["came back"]),
        (Swallow::File("/index/"), &["the index"]),
    ];
    for (swallow, by) in losses {
        is_noticed_by(run_threads, swallow, by);
    }
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
fn the_oracle_notices_queues_whose_names_are_never_flushed() {
    is_noticed(Swallow::Below("consumequeue"), &["the log has", "goes on at"]);
}

#[test]
fn the_oracle_notices_file_systems_that_are_never_flushed() {
    is_noticed(Swallow::All, &["the log has", "goes on at", "came back"]);
}

#[test]
fn the_oracle_notices_roots_whose_names_are_never_flushed() {
    is_noticed(
        Swallow::Directory("store"),
        &["lost: ", "came back", "the log has"],
    );
}

#[test]
fn the_oracle_notices_checkpoints_that_are_never_flushed() {
    is_noticed(Swallow::File("/checkpoint"), &["the log has", "goes on at"]);
}

#[test]
fn the_oracle_notices_abort_files_that_are_never_flushed() {
    is_noticed(Swallow::File("/abort"), &["is not what was put"]);
}

#[test]
fn the_oracle_notices_notes_of_zero_bytes_that_are_never_flushed() {
    is_noticed(Swallow::File("/nulRecords"), &["lost: "]);
}

#[test]
fn the_oracle_notices_ends_of_queues_that_are_never_flushed() {
    is_noticed(Swallow::File("/queueEnds"), &["the log has", "goes on at"]);
}

#[test]
fn the_oracle_notices_deletions_that_are_never_flushed() {
    is_noticed(Swallow::File("/deletedTopics"), &["came back"]);
}

#[test]
fn the_oracle_notices_an_index_that_is_never_flushed() {
    is_noticed(Swallow::File("/index/"), &["the index"]);
}

#[test]
fn the_oracle_notices_an_index_whose_names_are_never_flushed() {
    is_noticed(Swallow::Directory("index"), &["the index"]);
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
        let mut run = Run::new(seed, Kind::of(seed), SimDisk::default());
        run.go(60).unwrap();
        (
            run.disk.steps(),
            run.history.puts.last().map(|put| put.bytes.clone()),
        )
    };
    assert_eq!(steps(7), steps(7));
    assert_ne!(steps(7), steps(8));
}

#[cfg(debug_assertions)]
#[test]
fn a_seed_of_threads_replays_exactly() {
    let steps = |seed| {
        let run = threads::run(seed, Kind::of(seed), SimDisk::default()).unwrap();
        (1..=run.disk.steps())
            .map(|step| run.disk.describe(step))
            .collect::<Vec<_>>()
    };
    for seed in [94, 183] {
        let (one, other) = (steps(seed), steps(seed));
        let at = one.iter().zip(&other).position(|(one, other)| one != other);
        assert_eq!(
            at.map(|at| (at, &one[at.saturating_sub(3)..=at], &other[at])),
            None
        );
        assert_eq!(one.len(), other.len());
    }
}
