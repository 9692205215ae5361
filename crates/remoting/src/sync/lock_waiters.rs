//! Waits for a lock that end when the waiting thread has waited enough. The standard library's mutex has no such wait.
//!
//! ```text
//! waiter   lock taken after some attempts -> counts itself -> sleeps until notified, and tries now and then
//! holder   releases the lock -> if anyone is counted: wakes one
//! ```
//! The lock itself stays an ordinary one, which others may also take without a limit. Without waiters a release costs
//! its holder one load.

use crate::sync::{Condvar, Mutex, MutexGuard, lock, scheduled, try_lock};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Attempts before a thread sleeps: most locks are held for a few microseconds.
const SPINS: u32 = 100;
/// How long a waiter sleeps before it tries again by itself, at first and at most. A notification wakes it at once; but
/// a holder that does not know of the waiters sends none, and one that releases the lock while a waiter counts itself
/// may not see it.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// The threads that wait for one lock.
#[derive(Debug, Default)]
pub struct LockWaiters {
    count: AtomicUsize,
    // Guards nothing: a waiter holds it from its last attempt until it sleeps, so that no notification is lost.
    gate: Mutex<()>,
    released: Condvar,
}

impl LockWaiters {
    /// Takes the lock. `None`: it was taken, and `waits` said that this thread should not wait any longer. `waits` is
    /// called after each attempt.
    pub fn wait<'m, T>(&self, mutex: &'m Mutex<T>, waits: impl Fn() -> bool) -> Option<MutexGuard<'m, T>> {
        if let Some(guard) = scheduled(|| try_lock(mutex)) {
            return Some(guard);
        }
        for _ in 0..SPINS {
            if let Some(guard) = try_lock(mutex) {
                return Some(guard);
            }
            std::hint::spin_loop();
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        let guard = self.sleep_until_taken(mutex, waits);
        self.count.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    fn sleep_until_taken<'m, T>(
        &self,
        mutex: &'m Mutex<T>,
        waits: impl Fn() -> bool,
    ) -> Option<MutexGuard<'m, T>> {
        let mut sleep = FIRST_SLEEP;
        let mut gate = lock(&self.gate);
        loop {
            let guard = try_lock(mutex);
            if guard.is_some() || !waits() {
                return guard;
            }
            let slept = self.released.wait_timeout(gate, sleep);
            (gate, _) = slept.unwrap_or_else(PoisonError::into_inner);
            sleep = (sleep * 2).min(MAX_SLEEP);
        }
    }

    /// Wakes one waiter. Called after the lock was released.
    pub fn notify(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.gate));
            self.released.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    #[test]
    fn a_wait_ends_when_its_thread_has_waited_enough() {
        let (waiters, mutex) = (LockWaiters::default(), Mutex::new(7));
        let held = lock(&mutex);
        let begun = Instant::now();
        let waits = || begun.elapsed() < Duration::from_millis(50);
        std::thread::scope(|scope| {
            let waited = scope.spawn(|| waiters.wait(&mutex, waits).is_some());
            assert!(!waited.join().unwrap());
        });
        assert!(begun.elapsed() >= Duration::from_millis(50));
        drop(held);
        assert_eq!(waiters.wait(&mutex, || false).map(|guard| *guard), Some(7));
        assert_eq!(waiters.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn each_waiter_gets_the_lock_and_excludes_the_others() {
        let (waiters, mutex, is_inside) = (LockWaiters::default(), Mutex::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut guard = waiters.wait(&mutex, || true).unwrap();
                        assert!(!is_inside.swap(true, Ordering::SeqCst));
                        *guard += 1;
                        std::thread::yield_now();
                        is_inside.store(false, Ordering::SeqCst);
                        drop(guard);
                        waiters.notify();
                    }
                });
            }
        });
        assert_eq!(*lock(&mutex), 1600);
    }
}
