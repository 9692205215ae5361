//! Chooses the thread that fsyncs the log: one leader at a time, and no request is lost.
//!
//! ```text
//! requests:  what must be durable is written and in the lists; requested = true; fence; try the lock
//!              got it   -> this thread leads a round
//!              not      -> it continues: the leader sees `requested` when its round ends
//! leads:     lock; requested = false (after it, all that was written before is covered); round; unlock; fence;
//!              requested? -> another round is owed: the leader wakes the flush thread
//! ```
//! Because of the two fences one of the two threads sees the other: either the one that requests finds the lock free,
//! or the leader finds `requested` set. The leader clears `requested` with an acquiring swap before its round, so the
//! round covers what a thread did before its request; a later request stays set. A leader never runs a second round for
//! others, because it has answers of its own to write.

use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, fence, lock, try_lock};
use std::time::Duration;

/// Weight of the newest fsync in the average: one in this many.
const AVERAGE_WEIGHT: u64 = 4;

/// The assumed average before the first fsyncs, in ns: that of a slow disk.
const INITIAL_AVERAGE_NS: u64 = 4_000_000;

/// The flush leadership, and how long recent fsyncs took.
#[derive(Debug)]
pub(crate) struct FlushLeader {
    leading: Mutex<()>,
    requested: AtomicBool,
    /// Moving average of fsyncs, in ns.
    average_ns: AtomicU64,
}

impl Default for FlushLeader {
    fn default() -> Self {
        Self {
            leading: Mutex::default(),
            requested: AtomicBool::new(false),
            average_ns: AtomicU64::new(INITIAL_AVERAGE_NS),
        }
    }
}

impl FlushLeader {
    /// Waits to become the leader, then does a round. The returned flag is true if another round was requested
    /// meanwhile.
    pub(crate) fn wait<R>(&self, round: impl FnOnce() -> R) -> (R, bool) {
        self.lead(lock(&self.leading), round)
    }

    /// Does a round at once if none is in progress. Otherwise its leader sees that another one is requested.
    pub(crate) fn try_lead<R>(&self, round: impl FnOnce() -> R) -> Option<(R, bool)> {
        self.requested.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        try_lock(&self.leading).map(|leading| self.lead(leading, round))
    }

    fn lead<R>(&self, leading: MutexGuard<'_, ()>, round: impl FnOnce() -> R) -> (R, bool) {
        self.requested.swap(false, Ordering::AcqRel);
        let result = round();
        drop(leading);
        fence(Ordering::SeqCst);
        (result, self.requested.load(Ordering::Relaxed))
    }

    /// Records how long an fsync took; only the leader may call this.
    pub(crate) fn record(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / AVERAGE_WEIGHT);
        let before = self.average_ns.load(Ordering::Relaxed);
        let now = before - before / AVERAGE_WEIGHT + took / AVERAGE_WEIGHT;
        self.average_ns.store(now, Ordering::Relaxed);
    }

    /// Whether fsyncs take less than `limit` on average.
    pub(crate) fn is_fast(&self, limit: Duration) -> bool {
        u128::from(self.average_ns.load(Ordering::Relaxed)) < limit.as_nanos()
    }
}
