//! The hot window: how much of the log stays in the system's page cache.
//!
//! Without a limit the log fills all memory, and every new page must be reclaimed from somewhere: on a machine that
//! returns freed memory to its host, a new page costs more than the copy into it. So durable data before the window is
//! dropped from the cache, and the freed pages are reused while they are warm.
//!
//! Pulls of the newest messages read memory. A pull before the window reads the disk. What it read stays in memory for
//! other pulls, up to the size of another window; the least recently read data goes first. So a consumer with a backlog
//! takes no memory from others, and consumers that follow each other read the disk once.

use crate::format::to_i64;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

/// Fewer bytes than this are not worth a system call.
const STEP: i64 = 16 << 20;
/// Size of the blocks in which reads before the window are recorded.
const BLOCK: i64 = 1 << 20;
/// The window takes at most this fraction of the memory.
const SHARE_OF_MEMORY: u64 = 8;

/// The part of the log that was dropped from memory, and the blocks of it that were read again.
#[derive(Debug)]
pub(crate) struct HotWindow {
    /// Before this position only what pulls have read since is kept.
    dropped: AtomicI64,
    reads: Mutex<ColdReads>,
    /// Upper limit of `hotLogBytes`.
    most: i64,
}

/// Blocks of the log that were read before the window, with the round of the last read.
#[derive(Debug, Default)]
struct ColdReads {
    round: u64,
    last_read: BTreeMap<i64, u64>,
}

impl HotWindow {
    /// A window over a log. `memory`: what the process may use, if that is known.
    pub(crate) fn new(memory: Option<u64>) -> Self {
        Self {
            dropped: AtomicI64::new(i64::MIN),
            reads: Mutex::default(),
            most: memory.map_or(i64::MAX, |bytes| {
                i64::try_from(bytes / SHARE_OF_MEMORY).unwrap_or(i64::MAX)
            }),
        }
    }

    /// Records a read. A read inside the window costs one comparison.
    pub(crate) fn record_read(&self, position: i64, bytes: usize) {
        if position >= self.dropped.load(Ordering::Relaxed) {
            return;
        }
        let last = position.saturating_add(to_i64(bytes.max(1)) - 1);
        let mut reads = lock(&self.reads);
        let round = reads.round;
        for block in position.div_euclid(BLOCK)..=last.div_euclid(BLOCK) {
            reads.last_read.insert(block, round);
        }
    }

    /// Returns what to drop now. `hot_bytes` is the option, `log` the extent of the log; everything before `durable` is
    /// on disk. A range may span several segments.
    pub(crate) fn round(&self, hot_bytes: u64, log: Range<i64>, durable: i64) -> Vec<Range<i64>> {
        let window = i64::try_from(hot_bytes).unwrap_or(i64::MAX).min(self.most);
        if window == 0 {
            // Switched off: nothing is recorded any more.
            self.dropped.store(i64::MIN, Ordering::Relaxed);
            *lock(&self.reads) = ColdReads::default();
            return Vec::new();
        }
        let mut dropped = lock(&self.reads).expire(window);
        let target = log.end.saturating_sub(window).min(durable);
        let from = self.dropped.load(Ordering::Relaxed).max(log.start);
        if target - from >= STEP {
            self.dropped.store(target, Ordering::Relaxed);
            dropped.push(from..target);
        }
        dropped
    }
}

impl ColdReads {
    /// Ends a round: keeps the `most` bytes that were read last, and returns the rest.
    fn expire(&mut self, most: i64) -> Vec<Range<i64>> {
        self.round += 1;
        let most = usize::try_from(most / BLOCK).unwrap_or(usize::MAX).max(1);
        let surplus = self.last_read.len().saturating_sub(most);
        if surplus == 0 {
            return Vec::new();
        }
        let mut by_age: Vec<(u64, i64)> = self
            .last_read
            .iter()
            .map(|(block, round)| (*round, *block))
            .collect();
        by_age.sort_unstable();
        let mut expired: Vec<Range<i64>> = Vec::new();
        for (_, block) in by_age.into_iter().take(surplus) {
            self.last_read.remove(&block);
            match expired.last_mut() {
                Some(range) if range.end == block * BLOCK => range.end += BLOCK,
                _ => expired.push(block * BLOCK..(block + 1) * BLOCK),
            }
        }
        expired
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "ranges are what is compared")]
mod tests {
    use super::{HotWindow, STEP};

    const MIB: i64 = 1 << 20;
    const WINDOW: u64 = 64 << 20;

    #[test]
    fn only_what_is_durable_and_behind_the_window_goes() {
        let hot = HotWindow::new(None);
        assert!(hot.round(WINDOW, 0..64 * MIB, 64 * MIB).is_empty());
        assert!(
            hot.round(WINDOW, 0..79 * MIB, 79 * MIB).is_empty(),
            "less than a step"
        );
        assert_eq!(hot.round(WINDOW, 0..100 * MIB, 100 * MIB), [0..36 * MIB]);
        assert!(hot.round(WINDOW, 0..100 * MIB, 100 * MIB).is_empty());
        assert_eq!(
            hot.round(WINDOW, 0..200 * MIB, 60 * MIB),
            [36 * MIB..60 * MIB],
            "not yet durable"
        );
    }

    #[test]
    fn what_retention_took_is_not_dropped() {
        let hot = HotWindow::new(None);
        assert_eq!(
            hot.round(WINDOW, 50 * MIB..150 * MIB, 150 * MIB),
            [50 * MIB..86 * MIB]
        );
    }

    #[test]
    fn a_container_s_limit_bounds_the_window() {
        let hot = HotWindow::new(Some(256 << 20));
        assert_eq!(
            hot.round(1 << 30, 0..100 * MIB, 100 * MIB),
            [0..68 * MIB],
            "an eighth is 32 MiB"
        );
    }

    #[test]
    fn cold_reads_stay_up_to_a_window_and_those_read_last_stay_longest() {
        let hot = HotWindow::new(None);
        hot.record_read(0, 1 << 20);
        assert_eq!(hot.round(WINDOW, 0..1000 * MIB, 1000 * MIB), [0..936 * MIB]);
        for step in 0..16 {
            // One reader goes on, another reads the same place again and again.
            hot.record_read(step * 8 * MIB, 8 << 20);
            hot.record_read(500 * MIB, 1 << 20);
            hot.record_read(990 * MIB, 1 << 20);
            let dropped = hot.round(WINDOW, 0..1000 * MIB, 1000 * MIB);
            let bytes: i64 = dropped.iter().map(|range| range.end - range.start).sum();
            let held = (step + 1) * 8 + 1;
            assert_eq!(bytes, (held - 64).clamp(0, 8) * MIB, "{step}");
            assert!(
                dropped.iter().all(|range| range.end <= step * 8 * MIB),
                "{dropped:?}"
            );
        }
    }

    #[test]
    fn two_readers_of_one_range_keep_it_for_each_other() {
        let hot = HotWindow::new(None);
        assert_eq!(hot.round(WINDOW, 0..1000 * MIB, 1000 * MIB), [0..936 * MIB]);
        for step in 0..100 {
            hot.record_read(step * MIB, 1 << 20);
            hot.record_read((step - 20).max(0) * MIB, 1 << 20);
            for range in hot.round(WINDOW, 0..1000 * MIB, 1000 * MIB) {
                assert!(range.end <= (step - 20) * MIB, "{range:?} in step {step}");
            }
        }
    }

    #[test]
    fn zero_switches_it_off_and_back_on() {
        let hot = HotWindow::new(None);
        assert!(hot.round(0, 0..1000 * MIB, 1000 * MIB).is_empty());
        hot.record_read(0, 1 << 20);
        assert!(hot.round(0, 0..1000 * MIB, 1000 * MIB).is_empty());
        let all = hot.round(WINDOW, 0..1000 * MIB, 1000 * MIB);
        assert_eq!(all, [0..936 * MIB]);
        assert!(all.iter().all(|range| range.end - range.start >= STEP));
    }
}
