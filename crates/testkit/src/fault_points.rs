//! Runs of seeds, each with some crash points of a simulated disk: with fixed seeds for the ordinary tests, with new
//! ones for `make faults`.
//!
//! `PYRMQ_FAULT_POINTS` sets how many points `make faults` takes; its parts share them. `PYRMQ_FAULT_SEED` replays one
//! run instead.
#![allow(clippy::print_stderr, reason = "a long test shows its seed and how far it is")]

use crate::lock::lock;
use pyrmq_remoting::clock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Points of `make faults`.
const POINTS: usize = 10_000;
/// Number of failed runs that end a test.
const MAX_FAILURES: usize = 5;
/// Progress is shown about this often.
const SHOWN_EVERY: usize = 1000;

/// A part of `make faults`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The store, used by one thread.
    OneThread,
    /// The store, used by several threads.
    Threads,
    /// The files of timer messages.
    Timer,
    /// The broker's progress files.
    Progress,
    /// What brings popped messages back.
    Popped,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 5] = [
        Self::OneThread,
        Self::Threads,
        Self::Timer,
        Self::Progress,
        Self::Popped,
    ];

    /// How many of a hundred points it takes.
    const fn share(self) -> usize {
        match self {
            Self::OneThread => 40,
            Self::Threads => 30,
            Self::Timer | Self::Progress | Self::Popped => 10,
        }
    }

    /// How many of all points it takes.
    #[must_use]
    pub const fn of(self, points: usize) -> usize {
        points * self.share() / 100
    }
}

/// Runs of a test.
#[derive(Debug, Clone, Copy)]
pub struct Runs<'s> {
    /// Crash points of one run.
    pub points: usize,
    /// Seeds of runs that once failed: they run first.
    pub failed_once: &'s [u64],
}

impl Runs<'_> {
    /// Takes this many points with fixed seeds. `run` gets a seed and the number of points.
    pub fn take(self, points: usize, run: impl Fn(u64, usize) -> Result<(), String> + Sync) {
        self.take_from(0, points, None, run);
    }

    /// Takes a part's points of `make faults`, with a new seed, which is shown.
    pub fn take_new(self, part: Part, run: impl Fn(u64, usize) -> Result<(), String> + Sync) {
        let points = number("PYRMQ_FAULT_POINTS").and_then(|points| usize::try_from(points).ok());
        let points = part.of(points.unwrap_or(POINTS));
        let first = clock::now_ms().unsigned_abs() % 1_000_000_000;
        eprintln!("{part:?}: {points} crash points from seed {first} on");
        self.take_from(first, points, Some(part), run);
    }

    fn take_from(
        self,
        first: u64,
        points: usize,
        shown: Option<Part>,
        run: impl Fn(u64, usize) -> Result<(), String> + Sync,
    ) {
        let run = |seed: u64| {
            let done = catch_unwind(AssertUnwindSafe(|| run(seed, self.points)));
            done.unwrap_or_else(|_| Err(format!("seed {seed} panicked")))
        };
        if let Some(seed) = replayed_seed() {
            eprintln!("crash points: seed {seed}");
            return run(seed).unwrap_or_else(|what| panic!("{what}"));
        }
        let count = points.div_ceil(self.points) as u64;
        let seeds: Vec<u64> = self
            .failed_once
            .iter()
            .copied()
            .chain(first..first + count)
            .collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (start, failures) = (Instant::now(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while lock(&failures).len() < MAX_FAILURES
                        && let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        if let Err(what) = run(*seed) {
                            eprintln!("{what}");
                            lock(&failures).push(what);
                        }
                        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                        let is_shown = done.is_multiple_of((SHOWN_EVERY / self.points).max(1));
                        if let Some(part) = shown.filter(|_| is_shown || done == seeds.len()) {
                            let (points, time) = (done * self.points, start.elapsed().as_secs());
                            eprintln!("{part:?}: {points} points, {time} s");
                        }
                    }
                });
            }
        });
        let failures = lock(&failures);
        assert!(
            failures.is_empty(),
            "{} runs failed; PYRMQ_FAULT_SEED replays one:\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
}

/// The seed of the only run, if one is replayed.
#[must_use]
pub fn replayed_seed() -> Option<u64> {
    number("PYRMQ_FAULT_SEED")
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_make_faults_take_all_points() {
        let all: usize = Part::ALL.iter().map(|part| part.of(POINTS)).sum();
        assert_eq!(all, POINTS);
    }

    #[test]
    fn seeds_that_once_failed_and_the_first_ones_run_and_a_panic_names_its_seed() {
        let runs = Runs {
            points: 3,
            failed_once: &[77],
        };
        let seen = Mutex::new(Vec::new());
        runs.take(10, |seed, points| {
            assert_eq!(points, 3);
            lock(&seen).push(seed);
            Ok(())
        });
        let mut seen = lock(&seen).clone();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 77]);
        let failed = catch_unwind(|| {
            runs.take(10, |seed, _| {
                assert_ne!(seed, 2, "a bug");
                Ok(())
            });
        });
        let failed = failed.unwrap_err();
        let text = failed.downcast_ref::<String>().unwrap();
        assert!(
            text.contains("1 runs failed") && text.contains("seed 2 panicked"),
            "{text}"
        );
    }
}
