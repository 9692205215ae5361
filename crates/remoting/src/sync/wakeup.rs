//! Wakes one thread that sleeps between rounds of work.
//!
//! The store's `loom_group_commit.rs` checks its interleavings.

use crate::sync::{Condvar, Mutex, lock, wait_while};
use std::time::Duration;

/// Wakes one sleeping thread. A notification while no thread sleeps ends the next sleep.
#[derive(Debug, Default)]
pub struct Wakeup {
    state: Mutex<WakeupState>,
    changed: Condvar,
}

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// [`Wakeup::notify`] was called, during the sleep or before it.
    Notified,
    /// The time is over.
    TimedOut,
    /// [`Wakeup::stop`] was called: the thread should end.
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

    /// Ends the current sleep and all later ones, so that the thread ends.
    pub fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }

    /// Whether [`Wakeup::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        lock(&self.state).stopped
    }

    /// Sleeps until notified or stopped, for at most `longest`. False: stopped.
    pub fn sleep(&self, longest: Duration) -> bool {
        self.wait(longest) != Woken::Stopped
    }

    /// Sleeps until notified, for at most `longest`. True: notified.
    pub fn notified_within(&self, longest: Duration) -> bool {
        self.wait(longest) == Woken::Notified
    }

    /// Sleeps until notified or stopped, for at most `longest`. Returns why the sleep ended.
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
