//! Locks, what threads without a runtime wait on, and what is called at the end of an operation.
//!
//! The locks continue to work after another thread has panicked, because what they guard changes in one step or not at
//! all. They are the standard library's: `parking_lot` keeps its waiting threads in a table of the process, which a
//! forked child may inherit in a locked state.

mod completion;
mod lock_waiters;
mod one_shot;
pub mod wakeup;

pub use completion::Completion;
pub use lock_waiters::LockWaiters;
pub use one_shot::OneShot;
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub use std::sync::{Condvar, Mutex, MutexGuard};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// The scheduler of a test's threads: called before each lock, with `true` after each attempt that found it taken. It
/// lets another thread run, and returns whether it schedules this thread.
#[cfg(debug_assertions)]
static SCHEDULER: std::sync::OnceLock<fn(bool) -> bool> = std::sync::OnceLock::new();

/// Sets the scheduler of a test's threads, once. Only builds with debug assertions have this.
#[cfg(debug_assertions)]
pub fn schedule_by(point: fn(bool) -> bool) {
    // A second test in this process sets the same scheduler.
    SCHEDULER.get_or_init(|| point);
}

/// Takes a lock under the control of the test's scheduler; `None` without a scheduler.
#[cfg(debug_assertions)]
fn scheduled<G>(take: impl Fn() -> Option<G>) -> Option<G> {
    let point = SCHEDULER.get()?;
    if !point(false) {
        return None;
    }
    loop {
        if let Some(guard) = take() {
            return Some(guard);
        }
        point(true);
    }
}

/// A release build has no scheduler.
#[cfg(not(debug_assertions))]
#[inline]
fn scheduled<G>(_take: impl Fn() -> Option<G>) -> Option<G> {
    None
}

/// The guard of an attempt that succeeded.
fn taken<G>(attempt: Result<G, TryLockError<G>>) -> Option<G> {
    match attempt {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Takes the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if let Some(guard) = scheduled(|| try_lock(mutex)) {
        return guard;
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock if it is free.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    taken(mutex.try_lock())
}

/// Takes the lock to read.
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    if let Some(guard) = scheduled(|| taken(lock.try_read())) {
        return guard;
    }
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock to write.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    if let Some(guard) = scheduled(|| taken(lock.try_write())) {
        return guard;
    }
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The guarded value, which no other thread can have.
pub fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Waits while a condition holds, for at most `longest`.
pub fn wait_while<'g, T>(
    changed: &Condvar,
    guard: MutexGuard<'g, T>,
    longest: Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'g, T> {
    let (guard, _) = changed
        .wait_timeout_while(guard, longest, condition)
        .unwrap_or_else(PoisonError::into_inner);
    guard
}
