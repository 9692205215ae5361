//! The hot window: how much of the log stays in the system's page cache.
//!
//! Left to itself the log fills all memory, and then every new page must be taken from somewhere: on a machine that
//! returns freed memory to its host a new page costs more than the copy into it. So what lies further back than the
//! window, and is durable, is dropped from the cache; the pages that become free are used again while they are warm.
//!
//! Pulls of the newest messages read memory. A pull behind the window reads the disk; what it read stays for others
//! that follow, as much as another window, and goes oldest first, so a consumer with a backlog takes memory from
//! nobody.

use crate::format::to_i64;
use crate::sync::lock;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

/// Less than this is not worth a system call.
const STEP: i64 = 16 << 20;
/// The window takes this part of the memory at most.
const SHARE_OF_MEMORY: u64 = 8;

/// What of the log is dropped from memory, and what was read of that since.
#[derive(Debug)]
pub(crate) struct HotWindow {
    /// In front of this nothing is kept but what pulls have read since.
    dropped: AtomicI64,
    reads: Mutex<ColdReads>,
    /// What `hotLogBytes` cannot exceed.
    most: i64,
}

/// Reads in front of the window.
#[derive(Debug, Default)]
struct ColdReads {
    /// Since the last round: the range in each segment, by the segment's base.
    fresh: BTreeMap<i64, Range<i64>>,
    /// Of earlier rounds, oldest first.
    kept: VecDeque<Range<i64>>,
    kept_bytes: i64,
}

impl HotWindow {
    /// A window over a log; `memory` is what the process may use, if that is known.
    pub(crate) fn new(memory: Option<u64>) -> Self {
        Self {
            dropped: AtomicI64::new(i64::MIN),
            reads: Mutex::default(),
            most: memory.map_or(i64::MAX, |bytes| {
                i64::try_from(bytes / SHARE_OF_MEMORY).unwrap_or(i64::MAX)
            }),
        }
    }

    /// Notes a read from a file of a segment. For a read inside the window it is one comparison.
    pub(crate) fn note_read(&self, segment: i64, position: i64, bytes: usize) {
        if position >= self.dropped.load(Ordering::Relaxed) {
            return;
        }
        let end = position.saturating_add(to_i64(bytes));
        let mut reads = lock(&self.reads);
        let range = reads.fresh.entry(segment).or_insert(position..end);
        range.start = range.start.min(position);
        range.end = range.end.max(end);
    }

    /// What to drop now, where `hot_bytes` is the option, `log` what there is of the log, and everything in front of
    /// `durable` is on the disk. A range may lie in several segments.
    pub(crate) fn round(&self, hot_bytes: u64, log: Range<i64>, durable: i64) -> Vec<Range<i64>> {
        let window = i64::try_from(hot_bytes).unwrap_or(i64::MAX).min(self.most);
        if window == 0 {
            // Switched off: nothing is noted any more.
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
    /// Ends a round: returns the oldest reads beyond so many bytes.
    fn expire(&mut self, most: i64) -> Vec<Range<i64>> {
        for range in std::mem::take(&mut self.fresh).into_values() {
            self.kept_bytes += range.end - range.start;
            self.kept.push_back(range);
        }
        let mut expired = Vec::new();
        while self.kept_bytes > most
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_bytes -= oldest.end - oldest.start;
            expired.push(oldest);
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
    fn cold_reads_stay_up_to_a_window_and_go_oldest_first() {
        let hot = HotWindow::new(None);
        hot.note_read(0, 0, 1 << 20);
        assert_eq!(hot.round(WINDOW, 0..1000 * MIB, 1000 * MIB), [0..936 * MIB]);
        for step in 0..16 {
            hot.note_read(0, step * 8 * MIB, 8 << 20);
            hot.note_read(0, 990 * MIB, 1 << 20);
            let dropped = hot.round(WINDOW, 0..1000 * MIB, 1000 * MIB);
            if step < 8 {
                assert!(dropped.is_empty(), "{step}");
            } else {
                let oldest = (step - 8) * 8 * MIB;
                assert_eq!(dropped, [oldest..oldest + 8 * MIB]);
            }
        }
    }

    #[test]
    fn zero_switches_it_off_and_back_on() {
        let hot = HotWindow::new(None);
        assert!(hot.round(0, 0..1000 * MIB, 1000 * MIB).is_empty());
        hot.note_read(0, 0, 1 << 20);
        assert!(hot.round(0, 0..1000 * MIB, 1000 * MIB).is_empty());
        let all = hot.round(WINDOW, 0..1000 * MIB, 1000 * MIB);
        assert_eq!(all, [0..936 * MIB]);
        assert!(all.iter().all(|range| range.end - range.start >= STEP));
    }
}
