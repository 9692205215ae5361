//! Threads that read from the disk for pulls of old data, and for pops that were held.
//!
//! A pull is answered on its connection's task while the page cache has the data, since a hop to another thread would
//! cost more than the read. A read from the disk would block the thread's other connections, so data outside the page
//! cache is read here. Where the system cannot say what is cached (`Store::knows_cached`), reads are timed: after a
//! slow read, pulls far from their queue's end go through this pool for `SLOW_READ_TTL_MS`.
//!
//! One task answers all pops that were held. It leaves those that need the disk to a pool of their own.
//!
//! Threads are started when they are needed and end when idle for `KEEP_ALIVE`; at most `THREADS` read at a time.

use pyrmq_remoting::sync::{lock, wait_while};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A read that took this long was not served by the page cache.
pub(super) const SLOW: Duration = Duration::from_millis(1);
/// How long a slow read is remembered.
const SLOW_READ_TTL_MS: i64 = 5_000;
const THREADS: usize = 4;
const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// Answers a request.
type Job = Box<dyn FnOnce() + Send>;

/// The threads, and whether they are needed.
#[derive(Default)]
pub(crate) struct ColdReadPool {
    slow_until_ms: AtomicI64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    // Guards the waiting jobs and the number of threads.
    jobs: Mutex<Jobs>,
    more: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl fmt::Debug for ColdReadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ColdReadPool")
    }
}

impl ColdReadPool {
    /// Whether the disk was slow recently.
    pub(super) fn is_needed(&self, now_ms: i64) -> bool {
        now_ms < self.slow_until_ms.load(Ordering::Relaxed)
    }

    /// Records how long a read took.
    pub(super) fn record_duration(&self, took: Duration, now_ms: i64) {
        if took >= SLOW {
            self.slow_until_ms
                .store(now_ms + SLOW_READ_TTL_MS, Ordering::Relaxed);
        }
    }

    /// Runs a job on one of the threads. Returns a job to be run elsewhere if there is none and none can be started.
    pub(crate) fn submit(&self, job: Job) -> Option<Job> {
        let mut jobs = self.shared.jobs();
        jobs.waiting.push_back(job);
        if jobs.idle >= jobs.waiting.len() {
            drop(jobs);
            self.shared.more.notify_one();
            return None;
        }
        if jobs.threads >= THREADS {
            return None;
        }
        jobs.threads += 1;
        drop(jobs);
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("read-old".to_owned());
        if let Err(error) = thread.spawn(move || shared.run()) {
            tracing::warn!(%error, "cannot start a thread that reads old messages");
            let mut jobs = self.shared.jobs();
            jobs.threads -= 1;
            if jobs.threads == 0 {
                return jobs.waiting.pop_back();
            }
        }
        None
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        lock(&self.jobs)
    }

    fn run(&self) {
        let mut jobs = self.jobs();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                drop(jobs);
                job();
                jobs = self.jobs();
                continue;
            }
            jobs.idle += 1;
            jobs = wait_while(&self.more, jobs, KEEP_ALIVE, |jobs| jobs.waiting.is_empty());
            jobs.idle -= 1;
            if jobs.waiting.is_empty() {
                jobs.threads -= 1;
                return;
            }
        }
    }
}
