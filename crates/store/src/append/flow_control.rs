//! Flow control: when a put is answered "busy" instead of waiting (Apache `DefaultMessageStore.isOSPageCacheBusy`,
//! `BrokerFastFailure`).
//!
//! A put waits for the append lock while another put writes and, with `SYNC_FLUSH` or if its sender asks for that, for
//! an fsync. Both waits are measured here. Without waiters, this costs a put one reading of the clock.

use crate::error::{BusyReason, StoreError};
use crate::group_commit::GroupCommit;
use crate::live::Live;
use crate::options::FlushDiskType;
use crate::state::append_hold::{AppendHold, TooManyWait};
use crate::state::append_state::AppendState;
use crate::stats::Busy;
use crate::sync::{LockWaiters, MutexGuard, try_lock};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The number of waiting puts, and how often a wait was too long.
pub(crate) struct FlowControl {
    live: Arc<Live>,
    group_commit: Arc<GroupCommit<StoreError>>,
    pub(crate) hold: Arc<AppendHold>,
    /// Puts that wait for the append lock.
    waiting: AtomicUsize,
    held: AtomicU64,
    waited: AtomicU64,
    overload: AtomicU64,
    longest_ms: AtomicU64,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl FlowControl {
    pub(crate) fn new(
        live: &Arc<Live>,
        group_commit: &Arc<GroupCommit<StoreError>>,
        hold: &Arc<AppendHold>,
    ) -> Self {
        Self {
            live: Arc::clone(live),
            group_commit: Arc::clone(group_commit),
            hold: Arc::clone(hold),
            waiting: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            overload: AtomicU64::new(0),
            longest_ms: AtomicU64::new(0),
        }
    }

    /// How long the current put has held the append lock, in ms.
    pub(crate) fn held_ms(&self) -> u64 {
        self.hold.held_ms()
    }

    fn count(&self, busy_reason: BusyReason, waited_ms: u64) {
        let counter = match busy_reason {
            BusyReason::PageCacheBusy => &self.held,
            BusyReason::QueueTimeout => &self.waited,
            BusyReason::QueueFull => &self.overload,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.longest_ms.fetch_max(waited_ms, Ordering::Relaxed);
    }

    fn busy(&self, busy_reason: BusyReason, waited_ms: u64, waiting: usize) -> StoreError {
        self.count(busy_reason, waited_ms);
        let live = &self.live;
        let limit = match busy_reason {
            BusyReason::PageCacheBusy => format!("osPageCacheBusyTimeOutMills={}", live.busy_ms()),
            BusyReason::QueueTimeout => format!("waitTimeMillsInSendQueue={}", live.send_wait_ms()),
            BusyReason::QueueFull => format!("sendThreadPoolQueueCapacity={}", live.send_capacity()),
        };
        StoreError::Busy {
            busy_reason,
            waited_ms,
            waiting,
            limit,
        }
    }

    /// Refuses a put that would wait for a write or fsync that already takes too long, or for too many puts.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let busy_ms = self.live.busy_ms();
        let held_ms = self.held_ms();
        if held_ms > busy_ms {
            let waiting = self.waiting.load(Ordering::Relaxed);
            return Err(self.busy(BusyReason::PageCacheBusy, held_ms, waiting));
        }
        if self.live.flush() == FlushDiskType::Async {
            return Ok(());
        }
        self.check_disk_queue()
    }

    /// Refuses a put whose sender will wait for the disk with any flush mode. With `SYNC_FLUSH`,
    /// [`FlowControl::check`] does this for every put.
    pub(crate) fn check_waiter(&self) -> Result<(), StoreError> {
        if self.live.flush() == FlushDiskType::Sync {
            return Ok(());
        }
        self.check_disk_queue()
    }

    /// An error if the senders that wait for the disk have waited for too long or are too many.
    fn check_disk_queue(&self) -> Result<(), StoreError> {
        let busy_ms = self.live.busy_ms();
        let (waiting, oldest) = self.group_commit.waiters.queue();
        let oldest_ms = millis(oldest);
        if oldest_ms > busy_ms {
            return Err(self.busy(BusyReason::PageCacheBusy, oldest_ms, waiting));
        }
        if waiting >= self.live.send_capacity() {
            return Err(self.busy(BusyReason::QueueFull, oldest_ms, waiting));
        }
        Ok(())
    }

    /// Takes the append lock, unless waiting for it takes too long: longer than `waitTimeMillsInSendQueue`, or until
    /// one write has taken longer than `osPageCacheBusyTimeOutMills` (Apache `BrokerFastFailure`). Behind a write that
    /// is stuck, it waits in `block_in_place`.
    pub(crate) fn wait_for<'a>(
        &self,
        append: &'a Mutex<AppendState>,
    ) -> Result<MutexGuard<'a, AppendState>, StoreError> {
        if let Some(guard) = try_lock(append) {
            return Ok(guard);
        }
        let since = Instant::now();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited_ms = || millis(since.elapsed());
        // The write may end between the check that ends this wait and the answer.
        let longest_ms = Cell::new(0);
        let waits = || {
            let held_ms = self.held_ms();
            longest_ms.set(longest_ms.get().max(held_ms));
            waited_ms() <= self.live.send_wait_ms() && held_ms <= self.live.busy_ms()
        };
        let mut taken = Ok(self.hold.wait_if_short(append, waits));
        if matches!(taken, Ok(None)) && waits() {
            taken = self.hold.wait_in_place(append, waits);
        }
        let waiting = self.waiting.fetch_sub(1, Ordering::Relaxed);
        let (waited_ms, held_ms) = (waited_ms(), self.held_ms());
        let is_late = waited_ms > self.live.send_wait_ms();
        match taken {
            Ok(Some(guard)) if !is_late => Ok(guard),
            Err(TooManyWait) => Err(self.too_many(waited_ms)),
            Ok(None) if !is_late || held_ms > self.live.busy_ms() => {
                let longest_ms = longest_ms.get().max(held_ms);
                Err(self.busy(BusyReason::PageCacheBusy, longest_ms, waiting))
            }
            Ok(_) => Err(self.busy(BusyReason::QueueTimeout, waited_ms, waiting)),
        }
    }

    /// Takes a lock that others hold while they wait for the disk, unless that takes longer than
    /// `waitTimeMillsInSendQueue`. It waits in `block_in_place`.
    pub(crate) fn wait_for_other<'m, T>(&self, mutex: &'m Mutex<T>) -> Result<MutexGuard<'m, T>, StoreError> {
        if let Some(guard) = try_lock(mutex) {
            return Ok(guard);
        }
        let since = Instant::now();
        let waited_ms = || millis(since.elapsed());
        let waits = || waited_ms() <= self.live.send_wait_ms();
        // A thread that releases the lock wakes nobody, so it is tried again and again.
        let waiters = LockWaiters::default();
        match self.hold.wait_in_place_for(&waiters, mutex, waits) {
            Ok(Some(guard)) => Ok(guard),
            Err(TooManyWait) => Err(self.too_many(waited_ms())),
            Ok(None) => {
                let waiting = self.waiting.load(Ordering::Relaxed);
                Err(self.busy(BusyReason::QueueTimeout, waited_ms(), waiting))
            }
        }
    }

    /// Counts a put that is refused because too many threads wait for the disk, and returns its error.
    pub(crate) fn too_many(&self, waited_ms: u64) -> StoreError {
        self.overloaded(waited_ms, "too many threads wait for the disk".to_owned())
    }

    /// Counts a put that is refused for another reason than a limit that an option sets, and returns its error.
    pub(crate) fn overloaded(&self, waited_ms: u64, limit: String) -> StoreError {
        self.count(BusyReason::QueueFull, waited_ms);
        StoreError::Busy {
            busy_reason: BusyReason::QueueFull,
            waited_ms,
            waiting: self.waiting.load(Ordering::Relaxed),
            limit,
        }
    }

    /// The counters of flow control, and how many puts wait now.
    pub(crate) fn counts(&self) -> Busy {
        let (for_disk, oldest) = self.group_commit.waiters.queue();
        Busy {
            held: self.held.load(Ordering::Relaxed),
            waited: self.waited.load(Ordering::Relaxed),
            overload: self.overload.load(Ordering::Relaxed),
            longest_ms: self.longest_ms.load(Ordering::Relaxed),
            held_now_ms: self.held_ms(),
            waiting_for_lock: self.waiting.load(Ordering::Relaxed),
            waiting_for_disk: for_disk,
            oldest_ms: millis(oldest),
        }
    }
}
