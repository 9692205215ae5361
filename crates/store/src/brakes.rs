//! When a put is answered "busy" instead of being left to wait (Apache `DefaultMessageStore.isOSPageCacheBusy`, `BrokerFastFailure`).
//!
//! A put waits for two things: for the append lock while another put writes, and, with `SYNC_FLUSH`, for an fsync. Both waits are
//! measured here. None of this costs a put anything while nobody waits but one look at the clock.

use crate::error::StoreError;
use crate::inner::Inner;
use crate::options::FlushDiskType;
use crate::stats::Busy;
use crate::sync::{MutexGuard, lock, try_lock};
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What made a put be answered "busy", by the mark that Apache's answer begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Brake {
    /// A write or an fsync has taken longer than `osPageCacheBusyTimeOutMills`: nothing was queued behind it.
    Held,
    /// This put itself has waited longer than `waitTimeMillsInSendQueue`.
    Waited,
    /// `sendThreadPoolQueueCapacity` senders wait for the disk.
    Overload,
}

impl fmt::Display for Brake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Held => "[PC_SYNCHRONIZED]",
            Self::Waited => "[TIMEOUT_CLEAN_QUEUE]",
            Self::Overload => "[OVERLOAD]",
        })
    }
}

/// Who waits, and how often that was too long.
#[derive(Debug)]
pub(crate) struct Brakes {
    origin: Instant,
    /// Since when the append lock is held by a put, ms after `origin` and one; 0 for not.
    held_since: AtomicI64,
    /// Puts that wait for the append lock.
    waiting: AtomicUsize,
    held: AtomicU64,
    waited: AtomicU64,
    overload: AtomicU64,
    longest_ms: AtomicU64,
}

impl Default for Brakes {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            held_since: AtomicI64::new(0),
            waiting: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            overload: AtomicU64::new(0),
            longest_ms: AtomicU64::new(0),
        }
    }
}

/// As long as it lives the append lock is held by a put.
pub(crate) struct Hold<'b>(&'b Brakes);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.held_since.store(0, Ordering::Relaxed);
    }
}

impl Brakes {
    fn now_ms(&self) -> i64 {
        i64::try_from(self.origin.elapsed().as_millis()).unwrap_or(i64::MAX - 1) + 1
    }

    /// Says that the append lock was taken.
    pub(crate) fn hold(&self) -> Hold<'_> {
        self.held_since.store(self.now_ms(), Ordering::Relaxed);
        Hold(self)
    }

    /// For how long a put has held the append lock by now, ms.
    pub(crate) fn held_ms(&self) -> u64 {
        match self.held_since.load(Ordering::Relaxed) {
            0 => 0,
            since => u64::try_from(self.now_ms() - since).unwrap_or_default(),
        }
    }

    fn count(&self, brake: Brake, waited_ms: u64) {
        let counter = match brake {
            Brake::Held => &self.held,
            Brake::Waited => &self.waited,
            Brake::Overload => &self.overload,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.longest_ms.fetch_max(waited_ms, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Inner {
    fn busy(&self, brake: Brake, waited_ms: u64, waiting: usize) -> StoreError {
        self.brakes.count(brake, waited_ms);
        let live = &self.live;
        let limit = match brake {
            Brake::Held => format!("osPageCacheBusyTimeOutMills={}", live.busy_ms()),
            Brake::Waited => format!("waitTimeMillsInSendQueue={}", live.send_wait_ms()),
            Brake::Overload => format!("sendThreadPoolQueueCapacity={}", live.send_capacity()),
        };
        StoreError::Busy {
            brake,
            waited_ms,
            waiting,
            limit,
        }
    }

    /// Refuses a put that would wait behind something that has taken too long already, or behind too many.
    pub(crate) fn check_brakes(&self) -> Result<(), StoreError> {
        let busy_ms = self.live.busy_ms();
        let held_ms = self.brakes.held_ms();
        if held_ms > busy_ms {
            let waiting = self.brakes.waiting.load(Ordering::Relaxed);
            return Err(self.busy(Brake::Held, held_ms, waiting));
        }
        if self.live.flush() == FlushDiskType::Async {
            return Ok(());
        }
        let (waiting, oldest) = self.commit.waiters.queue();
        let oldest_ms = millis(oldest);
        if oldest_ms > busy_ms {
            return Err(self.busy(Brake::Held, oldest_ms, waiting));
        }
        if waiting >= self.live.send_capacity() {
            return Err(self.busy(Brake::Overload, oldest_ms, waiting));
        }
        Ok(())
    }

    /// The append lock, unless waiting for it takes too long.
    pub(crate) fn wait_for_append(&self) -> Result<MutexGuard<'_, crate::append::Append>, StoreError> {
        if let Some(guard) = try_lock(&self.append) {
            return Ok(guard);
        }
        let since = Instant::now();
        self.brakes.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = lock(&self.append);
        let waiting = self.brakes.waiting.fetch_sub(1, Ordering::Relaxed);
        let waited_ms = millis(since.elapsed());
        if waited_ms > self.live.send_wait_ms() {
            return Err(self.busy(Brake::Waited, waited_ms, waiting));
        }
        Ok(guard)
    }

    /// What the brakes have counted, and who waits now.
    pub(crate) fn busy_counts(&self) -> Busy {
        let brakes = &self.brakes;
        let (for_disk, oldest) = self.commit.waiters.queue();
        Busy {
            held: brakes.held.load(Ordering::Relaxed),
            waited: brakes.waited.load(Ordering::Relaxed),
            overload: brakes.overload.load(Ordering::Relaxed),
            longest_ms: brakes.longest_ms.load(Ordering::Relaxed),
            held_now_ms: brakes.held_ms(),
            waiting_for_lock: brakes.waiting.load(Ordering::Relaxed),
            waiting_for_disk: for_disk,
            oldest_ms: millis(oldest),
        }
    }
}
