//! Wakes one thread that sleeps between rounds of work. `tests/loom_group_commit.rs` goes through its interleavings.

use crate::sync::{Condvar, Mutex, lock, wait_while};
use std::time::Duration;

/// Wakes one sleeper. A notification without a sleeper ends the next sleep.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    state: Mutex<WakeupState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WakeupState {
    notified: bool,
    stopped: bool,
}

impl Wakeup {
    /// Ends the current or the next sleep.
    pub(crate) fn notify(&self) {
        let mut state = lock(&self.state);
        if !state.notified {
            state.notified = true;
            self.changed.notify_one();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }

    /// Sleeps until notified, stopped or out of time; false once stopped.
    pub(crate) fn sleep(&self, longest: Duration) -> bool {
        let state = lock(&self.state);
        let mut state = wait_while(&self.changed, state, longest, |state| {
            !state.notified && !state.stopped
        });
        state.notified = false;
        !state.stopped
    }
}
