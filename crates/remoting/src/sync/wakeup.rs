//! Wakes one thread that sleeps between rounds of work.
//!
//! `loom_group_commit.rs` of the store goes through its interleavings.

use crate::sync::{Condvar, Mutex, lock, wait_while};
use std::time::Duration;

/// Wakes one sleeper. A notification without a sleeper ends the next sleep.
#[derive(Debug, Default)]
pub struct Wakeup {
    state: Mutex<WakeupState>,
    changed: Condvar,
}

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// By [`Wakeup::notify`], during the sleep or before it.
    Notified,
    /// The time is over.
    TimedOut,
    /// By [`Wakeup::stop`]: the thread is to end.
    Stopped,
}

#[derive(Debug, Default)]
struct WakeupState {
    notified: bool,
    stopped: bool,
}

impl Wakeup {
    /// Ends the current or the next sleep.
    pub fn notify(&self) {
        let mut state = lock(&self.state);
        if !state.notified {
            state.notified = true;
            self.changed.notify_one();
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }

    /// Returns true once stopped.
    pub fn is_stopped(&self) -> bool {
        lock(&self.state).stopped
    }

    /// Sleeps until notified, stopped or out of time; false once stopped.
    pub fn sleep(&self, longest: Duration) -> bool {
        self.wait(longest) != Woken::Stopped
    }

    /// Sleeps until notified or out of time; true once notified.
    pub fn notified_within(&self, longest: Duration) -> bool {
        self.wait(longest) == Woken::Notified
    }

    /// Sleeps until notified, stopped or out of time, and says which.
    pub fn wait(&self, longest: Duration) -> Woken {
        let state = lock(&self.state);
        let mut state = wait_while(&self.changed, state, longest, |state| {
            !state.notified && !state.stopped
        });
        let notified = std::mem::take(&mut state.notified);
        match (state.stopped, notified) {
            (true, _) => Woken::Stopped,
            (false, true) => Woken::Notified,
            (false, false) => Woken::TimedOut,
        }
    }
}
