//! A value that one thread sets and another waits for.

use crate::sync::{Condvar, Mutex, lock, wait_while};
use std::time::Duration;

/// A slot for one value, such as the outcome of a call.
#[derive(Debug)]
pub struct OneShot<T> {
    value: Mutex<Option<T>>,
    ready: Condvar,
}

impl<T> Default for OneShot<T> {
    fn default() -> Self {
        Self {
            value: Mutex::new(None),
            ready: Condvar::new(),
        }
    }
}

impl<T> OneShot<T> {
    /// Sets the value and wakes the thread that waits for it.
    pub fn set(&self, value: T) {
        *lock(&self.value) = Some(value);
        self.ready.notify_all();
    }

    /// Waits up to `longest` for the value, which is returned only once. `None`: it is not set yet.
    pub fn wait(&self, longest: Duration) -> Option<T> {
        let value = lock(&self.value);
        wait_while(&self.ready, value, longest, |value| value.is_none()).take()
    }
}
