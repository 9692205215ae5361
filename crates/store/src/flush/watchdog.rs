//! Watches the fsyncs of threads that committed an append batch and have other work than waiting for a disk that hangs.
//! While such threads fsync, a thread of the store checks every [`CHECK_INTERVAL`] whether an fsync is slow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the fsyncs are checked while there are any.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Number of consecutive checks without an fsync after which the watch ends.
const QUIET_CHECKS: u32 = 100;
/// An fsync that has taken this long is reported as slow.
const SLOW_AFTER: Duration = Duration::from_millis(5);

/// What the watching thread sees of the flush leader.
#[derive(Debug)]
pub(crate) struct FlushWatchdog {
    origin: Instant,
    /// When the current inline fsync began, ms after `origin` plus one; 0 if there is none.
    since: AtomicU64,
    /// Number of inline fsyncs so far.
    count: AtomicU64,
    is_active: AtomicBool,
}

/// What the watching thread remembers between checks.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    count: u64,
    quiet_checks: u32,
}

impl Default for FlushWatchdog {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            since: AtomicU64::new(0),
            count: AtomicU64::new(0),
            is_active: AtomicBool::new(false),
        }
    }
}

impl FlushWatchdog {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Begins an inline fsync; only the flush leader may call this. True: the caller must wake the watching thread.
    pub(crate) fn begin(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.since.store(self.now_ms(), Ordering::Relaxed);
        !self.is_active.load(Ordering::Relaxed) && !self.is_active.swap(true, Ordering::AcqRel)
    }

    /// Ends the inline fsync.
    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// How long the watching thread may sleep, at most `longest`.
    pub(crate) fn tick(&self, longest: Duration) -> Duration {
        if self.is_active.load(Ordering::Acquire) {
            CHECK_INTERVAL.min(longest)
        } else {
            longest
        }
    }

    /// Whether an fsync is slow. If there was none for a while, the watch ends until the next inline fsync.
    pub(crate) fn check(&self, observed: &mut Observed) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        observed.quiet_checks = if count == observed.count {
            observed.quiet_checks + 1
        } else {
            0
        };
        observed.count = count;
        match self.since.load(Ordering::Relaxed) {
            0 => {
                if observed.quiet_checks >= QUIET_CHECKS {
                    observed.quiet_checks = 0;
                    self.is_active.store(false, Ordering::Release);
                }
                false
            }
            since => self.is_slow_since(since),
        }
    }

    /// Whether the current inline fsync is slow: a write to the same file may hang then, too.
    pub(crate) fn is_slow(&self) -> bool {
        match self.since.load(Ordering::Relaxed) {
            0 => false,
            since => self.is_slow_since(since),
        }
    }

    fn is_slow_since(&self, since: u64) -> bool {
        Duration::from_millis(self.now_ms().saturating_sub(since)) >= SLOW_AFTER
    }
}
