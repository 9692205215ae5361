//! Measures the duration of one kind of operation: a request from its arrival to its response, an fsync, or a wait.
//!
//! ```text
//! buckets   up to 1, 2, 4, 8 ... 2^23 microseconds, then everything longer
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets with an upper bound; one more counts longer times.
const BOUNDED: usize = 24;

/// Counts and durations of one kind of request or call.
#[derive(Debug, Default)]
pub struct Meter {
    buckets: [AtomicU64; BOUNDED + 1],
    sum_us: AtomicU64,
}

impl Meter {
    /// Counts a request or call that took this long.
    pub fn add(&self, took: Duration) {
        self.add_all(took, 1);
    }

    /// Counts several that took this long each.
    pub fn add_all(&self, took: Duration, count: u64) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = (u64::BITS - us.saturating_sub(1).leading_zeros()) as usize;
        self.buckets[at.min(BOUNDED)].fetch_add(count, Ordering::Relaxed);
        self.sum_us.fetch_add(us.saturating_mul(count), Ordering::Relaxed);
    }

    /// Returns how many it has counted.
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns its current values under this name.
    pub fn read(&self, name: &'static str) -> Latency {
        Latency {
            name,
            buckets: self
                .buckets
                .iter()
                .map(|bucket| bucket.load(Ordering::Relaxed))
                .collect(),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

/// The values of a meter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// Kind of request.
    pub name: &'static str,
    /// Requests that took at most 1, 2, 4 ... 2^23 microseconds, each counted once; the last took longer.
    pub buckets: Vec<u64>,
    /// Sum of all times in microseconds.
    pub sum_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_bucket_whose_bound_it_does_not_pass() {
        let meter = Meter::default();
        for us in [0, 1, 2, 3, 4, 5, 8_388_608, 8_388_609, u64::MAX / 2] {
            meter.add(Duration::from_micros(us));
        }
        let before = meter.read("x").sum_us;
        meter.add_all(Duration::from_micros(100), 3);
        assert_eq!(meter.read("x").sum_us, before + 300);
        let read = meter.read("x");
        let counted: Vec<(usize, u64)> = read
            .buckets
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, n)| *n > 0)
            .collect();
        assert_eq!(
            counted,
            [(0, 2), (1, 1), (2, 2), (3, 1), (7, 3), (23, 1), (24, 2)]
        );
    }
}
