//! What one thread sleeps on: it stays set until the thread has seen it, so a wake-up that comes early is not lost.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The wake-up of one waiting thread.
#[derive(Debug, Default)]
pub struct Signal {
    // Guards whether the thread is to look again.
    set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Wakes the thread, or keeps it from falling asleep the next time.
    pub fn set(&self) {
        *self.state() = true;
        self.changed.notify_one();
    }

    /// Sleeps at most `slice`; true when it was set, which it is not any more.
    pub fn wait(&self, slice: Duration) -> bool {
        let (mut set, _) = self
            .changed
            .wait_timeout_while(self.state(), slice, |set| !*set)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *set)
    }

    fn state(&self) -> MutexGuard<'_, bool> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
