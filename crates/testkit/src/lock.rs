//! Locks of the simulated disks and of the schedule itself, which are no switch points.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock, also after another thread has panicked: a test that fails must not make others fail. Unlike
/// `pyrmq_remoting::sync::lock`, it never lets the schedule run another thread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
