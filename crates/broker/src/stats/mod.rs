//! The broker's counters: plain atomics on the hot path, sampled once a second for rates (Apache `StoreStatsService`,
//! `BrokerStats`).

pub mod traffic;
pub mod windows;

use pyrmq_remoting::sync::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use windows::{Growth, Sample, Span, Windows};

/// The windows of a rate, in samples of one second (Apache `StoreStatsService.getPutTps`).
const WINDOWS: [usize; 3] = [10, 60, 600];
const DAY_MS: i64 = 86_400_000;

/// Counters since start.
#[derive(Debug, Default)]
pub struct Stats {
    /// Messages stored.
    pub put: AtomicU64,
    /// Bytes of messages stored.
    pub put_bytes: AtomicU64,
    /// Sends that the store refused.
    pub put_failed: AtomicU64,
    /// Duration of the slowest put, in microseconds.
    pub put_slowest_us: AtomicU64,
    /// Pulls that found messages.
    pub pull_found: AtomicU64,
    /// Pulls that found none.
    pub pull_missed: AtomicU64,
    /// Messages sent to consumers.
    pub sent: AtomicU64,
    /// Bytes sent to consumers.
    pub sent_bytes: AtomicU64,
    /// Messages that consumers sent back for a retry.
    pub sent_back: AtomicU64,
    /// Messages that ended in a dead-letter topic.
    pub dead: AtomicU64,
    /// Pop check points stored.
    pub check_points: AtomicU64,
    /// Acknowledgements of popped messages stored.
    pub acks: AtomicU64,
    /// Heartbeats of members whose subscriptions differ from those of others in their group.
    pub subscription_conflicts: AtomicU64,
    /// Panics of background work, and of requests on threads of their own.
    pub panics: AtomicU64,
    started_ms: AtomicI64,
    // Guards the windows of puts, gets, pop check points and acknowledgements; used by the sampler and by tools.
    windows: Mutex<[Windows; 4]>,
    // Guards the samples and the counts at the start of each day.
    history: Mutex<History>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Second {
    at_ms: i64,
    put: u64,
    found: u64,
    missed: u64,
    sent: u64,
}

#[derive(Debug, Default)]
struct History {
    samples: VecDeque<Second>,
    day: i64,
    put_mornings: [u64; 2],
    get_mornings: [u64; 2],
}

/// Rates over the last 10 seconds, minute and 10 minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    /// Messages stored a second.
    pub put: [f64; 3],
    /// Pulls with messages a second.
    pub found: [f64; 3],
    /// Pulls without messages a second.
    pub missed: [f64; 3],
    /// Messages sent to consumers a second.
    pub sent: [f64; 3],
}

impl Stats {
    /// Counters that start at this time.
    pub fn new(now_ms: i64) -> Self {
        let stats = Self::default();
        stats.started_ms.store(now_ms, Ordering::Relaxed);
        stats.sample(now_ms);
        stats
    }

    /// When counting began.
    pub fn started_ms(&self) -> i64 {
        self.started_ms.load(Ordering::Relaxed)
    }

    /// Counts a put.
    pub fn count_put(&self, messages: u64, bytes: u64) {
        self.put.fetch_add(messages, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts an answer to a pull.
    pub fn count_sent(&self, messages: u64, bytes: u64) {
        self.pull_found.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(messages, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes this second's sample; the first of each day (UTC) is kept.
    pub fn sample(&self, now_ms: i64) {
        let sample = Second {
            at_ms: now_ms,
            put: self.put.load(Ordering::Relaxed),
            found: self.pull_found.load(Ordering::Relaxed),
            missed: self.pull_missed.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
        };
        let mut history = lock(&self.history);
        let day = now_ms.div_euclid(DAY_MS);
        if !history.samples.is_empty() && day != history.day {
            history.put_mornings = [history.put_mornings[1], sample.put];
            history.get_mornings = [history.get_mornings[1], sample.sent];
        }
        history.day = day;
        if history.samples.len() > WINDOWS[2] {
            history.samples.pop_front();
        }
        history.samples.push_back(sample);
    }

    /// Takes the samples of the windows that are due.
    pub fn sample_windows(&self, now_ms: i64, due: &[Span]) {
        let samples = self.totals(now_ms);
        let mut windows = lock(&self.windows);
        for (windows, sample) in windows.iter_mut().zip(samples) {
            for span in due {
                windows.push(*span, sample);
            }
        }
    }

    /// What was stored and sent in the span that ends now, then pop check points and acknowledgements.
    pub fn growth(&self, span: Span, now_ms: i64) -> [Growth; 4] {
        let [put, sent, check_points, acks] = self.totals(now_ms);
        let windows = lock(&self.windows);
        let [of_put, of_sent, of_check_points, of_acks] = &*windows;
        [
            of_put.growth(span, put),
            of_sent.growth(span, sent),
            of_check_points.growth(span, check_points),
            of_acks.growth(span, acks),
        ]
    }

    fn totals(&self, now_ms: i64) -> [Sample; 4] {
        let sample = |messages: &AtomicU64, bytes: &AtomicU64, calls: &AtomicU64| Sample {
            at_ms: now_ms,
            messages: messages.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
            calls: calls.load(Ordering::Relaxed),
        };
        let no_bytes = AtomicU64::new(0);
        [
            sample(&self.put, &self.put_bytes, &self.put),
            sample(&self.sent, &self.sent_bytes, &self.pull_found),
            sample(&self.check_points, &no_bytes, &self.check_points),
            sample(&self.acks, &no_bytes, &self.acks),
        ]
    }

    /// Rates up to the last sample.
    pub fn rates(&self) -> Rates {
        let history = lock(&self.history);
        let mut rates = Rates::default();
        let Some(last) = history.samples.back() else {
            return rates;
        };
        for (at, window) in WINDOWS.iter().enumerate() {
            let first = history.samples.len().saturating_sub(window + 1);
            let Some(first) = history.samples.get(first) else {
                continue;
            };
            let per_second = |before: u64, after: u64| rate(before, after, last.at_ms - first.at_ms);
            rates.put[at] = per_second(first.put, last.put);
            rates.found[at] = per_second(first.found, last.found);
            rates.missed[at] = per_second(first.missed, last.missed);
            rates.sent[at] = per_second(first.sent, last.sent);
        }
        rates
    }

    /// Messages stored and sent up to the start of yesterday, and up to the start of today.
    pub fn mornings(&self) -> ([u64; 2], [u64; 2]) {
        let history = lock(&self.history);
        (history.put_mornings, history.get_mornings)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(before: u64, after: u64, span_ms: i64) -> f64 {
    if span_ms <= 0 {
        return 0.0;
    }
    after.saturating_sub(before) as f64 * 1000.0 / span_ms as f64
}
