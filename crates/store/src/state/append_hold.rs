//! How long a put holds the append lock, and how threads wait for it.
//!
//! A write to the log may hang for as long as the disk does. A thread that has other work, such as one of a runtime,
//! must not wait for it then: from [`STUCK_MS`] on it waits in [`Listeners::block_in_place`], or not at all. While an
//! inline fsync is slow, it writes in that, too.

use crate::state::append_state::AppendState;
use crate::state::listeners::Listeners;
use crate::sync::{LockWaiters, MutexGuard, lock};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// How long a put holds the append lock until threads with other work wait for it no longer, in ms. A write into the
/// page cache takes less, even during an fsync of the same file.
const STUCK_MS: u64 = 100;

/// How long the append lock is held, and the threads that wait for it.
pub(crate) struct AppendHold {
    origin: Instant,
    /// When the current put took the append lock, ms after `origin` plus one; 0 if none holds it.
    since: AtomicI64,
    waiters: LockWaiters,
    listeners: Arc<Listeners>,
}

/// A put holds the append lock for as long as this value lives.
pub(crate) struct LockHeld<'h>(&'h AppendHold);

impl Drop for LockHeld<'_> {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Relaxed);
    }
}

/// No more threads may wait for the append lock.
pub(crate) struct TooManyWait;

/// Wakes a thread that waits for the append lock when it is dropped, which is after the lock was released.
pub(crate) struct WakesNext<'h>(&'h AppendHold);

impl Drop for WakesNext<'_> {
    fn drop(&mut self) {
        self.0.wake_next();
    }
}

impl AppendHold {
    pub(crate) fn new(listeners: &Arc<Listeners>) -> Self {
        Self {
            origin: Instant::now(),
            since: AtomicI64::new(0),
            waiters: LockWaiters::default(),
            listeners: Arc::clone(listeners),
        }
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.origin.elapsed().as_millis()).unwrap_or(i64::MAX - 1) + 1
    }

    /// Records that the append lock was taken.
    pub(crate) fn mark(&self) -> LockHeld<'_> {
        self.since.store(self.now_ms(), Ordering::Relaxed);
        LockHeld(self)
    }

    /// How long the current put has held the append lock, in ms.
    pub(crate) fn held_ms(&self) -> u64 {
        match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => u64::try_from(self.now_ms() - since).unwrap_or_default(),
        }
    }

    /// Wakes the next thread. The lock was released.
    pub(crate) fn wake_next(&self) {
        self.waiters.notify();
    }

    /// Wakes the next thread at its drop. It must live longer than the guard of the lock.
    pub(crate) fn wakes_next(&self) -> WakesNext<'_> {
        WakesNext(self)
    }

    /// Waits for the lock while `waits` holds and no write is stuck.
    pub(crate) fn wait_if_short<'a>(
        &self,
        append: &'a Mutex<AppendState>,
        waits: impl Fn() -> bool,
    ) -> Option<MutexGuard<'a, AppendState>> {
        self.waiters.wait(append, || self.held_ms() < STUCK_MS && waits())
    }

    /// Waits for the lock in `block_in_place` while `waits` holds. `None`: it was not taken in time. An error: too many
    /// threads wait like this.
    pub(crate) fn wait_in_place<'a>(
        &self,
        append: &'a Mutex<AppendState>,
        waits: impl Fn() -> bool,
    ) -> Result<Option<MutexGuard<'a, AppendState>>, TooManyWait> {
        self.wait_in_place_for(&self.waiters, append, waits)
    }

    /// Like [`AppendHold::wait_in_place`], for a lock with these waiters.
    pub(crate) fn wait_in_place_for<'m, T>(
        &self,
        waiters: &LockWaiters,
        mutex: &'m Mutex<T>,
        waits: impl Fn() -> bool,
    ) -> Result<Option<MutexGuard<'m, T>>, TooManyWait> {
        let mut waited = Err(TooManyWait);
        self.listeners
            .block_in_place(&mut || waited = Ok(waiters.wait(mutex, &waits)));
        waited
    }

    /// Takes the lock, however long that takes, in `block_in_place` while a write is stuck.
    pub(crate) fn take<'a>(&self, append: &'a Mutex<AppendState>) -> MutexGuard<'a, AppendState> {
        let mut guard = self.wait_if_short(append, || true);
        if guard.is_none() {
            self.listeners.block_in_place(&mut || guard = Some(lock(append)));
        }
        guard.unwrap_or_else(|| lock(append))
    }
}
