//! Back pressure: how many messages and bytes may be on their way.
//!
//! Senders come in before they queue anything, and leave when the outcome is known. A waiting sender is woken by the
//! one who leaves; without waiters leaving costs one uncontended lock.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts what is on its way.
#[derive(Debug)]
pub struct Gate {
    messages: usize,
    bytes: usize,
    // Guards the counts, and who waits for them to fall.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    messages: usize,
    bytes: usize,
    waiters: usize,
}

impl Gate {
    /// At most this many messages and bytes; one message larger than all of `bytes` may go alone.
    pub fn new(messages: usize, bytes: usize) -> Self {
        Self {
            messages,
            bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Comes in if there is room.
    pub fn try_enter(&self, messages: usize, bytes: usize) -> bool {
        self.admit(&mut self.state(), messages, bytes)
    }

    /// Comes in, or waits up to `slice` for room.
    pub fn enter(&self, messages: usize, bytes: usize, slice: Duration) -> bool {
        let mut state = self.state();
        if self.admit(&mut state, messages, bytes) {
            return true;
        }
        state.waiters += 1;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, slice, |state| !self.fits(state, messages, bytes))
            .unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        self.admit(&mut state, messages, bytes)
    }

    /// Leaves.
    pub fn leave(&self, messages: usize, bytes: usize) {
        let mut state = self.state();
        state.messages = state.messages.saturating_sub(messages);
        state.bytes = state.bytes.saturating_sub(bytes);
        let wake = state.waiters > 0;
        drop(state);
        if wake {
            self.changed.notify_all();
        }
    }

    /// Messages on their way.
    pub fn waiting(&self) -> usize {
        self.state().messages
    }

    /// The most messages that may be on their way.
    pub fn limit(&self) -> usize {
        self.messages
    }

    /// Waits up to `slice` until nothing is on its way.
    pub fn empty(&self, slice: Duration) -> bool {
        let mut state = self.state();
        state.waiters += 1;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, slice, |state| state.messages > 0)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        state.messages == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, state: &State, messages: usize, bytes: usize) -> bool {
        state.messages == 0
            || (state.messages + messages <= self.messages && state.bytes + bytes <= self.bytes)
    }

    fn admit(&self, state: &mut State, messages: usize, bytes: usize) -> bool {
        let fits = self.fits(state, messages, bytes);
        if fits {
            state.messages += messages;
            state.bytes += bytes;
        }
        fits
    }
}
