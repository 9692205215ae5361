//! Back pressure: how many messages and bytes may be on their way.
//!
//! Senders come in before they queue anything, and leave when the outcome is known. Who waits is woken once a quarter
//! of the room is free, not for each message that leaves; without waiters leaving costs one uncontended lock.
//!
//! The room shrinks when a broker says that it has too much to do, at most five times a second: to a quarter the first
//! time, for it may be far too wide, to half after that. It grows by an eighth for each quarter of it that is confirmed,
//! and near the width at which the broker had too much by a sixty-fourth only: real brokers refuse what waited for
//! 200 ms, so a window that is wider than they are fast would fail most of its messages.

use crate::error::{ClientError, Full};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The room never shrinks below this.
const NARROWEST: usize = 64;
/// Many refusals at once are one.
const SHRINK_AGAIN: Duration = Duration::from_millis(200);

/// Counts what is on its way.
#[derive(Debug)]
pub struct Gate {
    messages: usize,
    bytes: usize,
    // At most `messages`; changed under the lock, looked at without it.
    window: AtomicUsize,
    // Guards the counts, and who waits for them to fall.
    state: Mutex<State>,
    changed: Condvar,
}

/// What somebody without a thread of his own waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// A quarter of the room, and enough for one message of this size.
    Room {
        /// Bytes of its body.
        bytes: usize,
    },
    /// Nothing on its way any more.
    Empty,
}

/// Called once, by the one who leaves; it must not block.
pub type Listener = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    messages: usize,
    bytes: usize,
    waiters: usize,
    listeners: Vec<(Want, Listener)>,
    // When the room shrank, how wide it was then, and what was confirmed since it last changed.
    shrank: Option<(Instant, usize)>,
    confirmed: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("messages", &self.messages)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Gate {
    /// At most this many messages and bytes; one message larger than all of `bytes` may go alone.
    pub fn new(messages: usize, bytes: usize) -> Self {
        Self {
            messages,
            bytes,
            window: AtomicUsize::new(messages),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Comes in if there is room.
    pub fn try_enter(&self, messages: usize, bytes: usize) -> bool {
        self.admit(&mut self.state(), messages, bytes)
    }

    /// Comes in without being asked: what had left and is given back, or is in memory anyway.
    pub fn enter_anyway(&self, messages: usize, bytes: usize) {
        let mut state = self.state();
        state.messages += messages;
        state.bytes += bytes;
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
        let wake = state.waiters > 0 && self.is_roomy(&state);
        let told = self.told(&mut state);
        drop(state);
        if wake {
            self.changed.notify_all();
        }
        for listener in told {
            listener();
        }
    }

    /// Calls once what is wanted holds, which may be at once.
    pub fn when(&self, want: Want, listener: Listener) {
        let mut state = self.state();
        state.listeners.push((want, listener));
        let told = self.told(&mut state);
        drop(state);
        for listener in told {
            listener();
        }
    }

    /// Takes out those whose wish is fulfilled. Without listeners nothing is allocated.
    fn told(&self, state: &mut State) -> Vec<Listener> {
        if state.listeners.is_empty() {
            return Vec::new();
        }
        let roomy = self.is_roomy(state);
        let (messages, used) = (state.messages, state.bytes);
        let holds = |want: &mut (Want, Listener)| match want.0 {
            Want::Room { bytes } => roomy && (messages == 0 || used + bytes <= self.bytes),
            Want::Empty => messages == 0,
        };
        state
            .listeners
            .extract_if(.., holds)
            .map(|(_, listener)| listener)
            .collect()
    }

    fn is_roomy(&self, state: &State) -> bool {
        let window = self.window();
        state.messages <= window - window.div_ceil(4) && state.bytes <= self.bytes / 4 * 3
    }

    /// Bytes on their way.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// A broker has too much to do: half of what is on its way may be.
    pub fn slow_down(&self, now: Instant) {
        let mut state = self.state();
        if state.shrank.is_some_and(|(at, _)| now < at + SHRINK_AGAIN) {
            return;
        }
        let used = self.window().min(state.messages.max(1));
        let part = if state.shrank.is_none() {
            used / 4
        } else {
            used / 2
        };
        self.window
            .store(part.max(NARROWEST).min(self.messages), Ordering::Relaxed);
        (state.shrank, state.confirmed) = (Some((now, used)), 0);
    }

    /// So many were confirmed. Costs nothing while the room is as wide as it may be.
    pub fn confirm(&self, messages: usize) {
        if self.window() == self.messages {
            return;
        }
        let mut state = self.state();
        state.confirmed += messages;
        let window = self.window();
        if state.confirmed >= window / 4 {
            state.confirmed = 0;
            let is_near = state
                .shrank
                .is_some_and(|(_, was)| (was / 4 * 3..was / 4 * 5).contains(&window));
            let step = if is_near { window / 64 } else { window / 8 };
            let wider = (window + step + 1).min(self.messages);
            self.window.store(wider, Ordering::Relaxed);
        }
    }

    /// How many messages may be on their way now.
    pub fn window(&self) -> usize {
        self.window.load(Ordering::Relaxed)
    }

    /// Messages on their way.
    pub fn waiting(&self) -> usize {
        self.state().messages
    }

    /// The error for one who found no room in that time.
    pub fn full(&self, waited: Duration) -> ClientError {
        let state = self.state();
        ClientError::TooManyInFlight(Full {
            messages: state.messages,
            bytes: state.bytes,
            window: self.window(),
            message_limit: self.messages,
            byte_limit: self.bytes,
            waited,
        })
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
            || (state.messages + messages <= self.window() && state.bytes + bytes <= self.bytes)
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
