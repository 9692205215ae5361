//! Back pressure: how many messages and bytes may be on their way.
//!
//! Senders come in before they queue anything, and leave when the outcome is known. Senders that wait stand in a line.
//! Once a quarter of the room is free, not for each message that leaves, those in the line are let in as long as they
//! fit: a sender that is woken has its room already, so nobody can take it away again and no wake-up is lost. Without
//! a line leaving costs one uncontended lock. Each entry of the line belongs to its sender, who takes it away.
//!
//! The room shrinks when a broker says that it has too much to do, at most five times a second: to a quarter the first
//! time, for it may be far too wide, to half after that. It grows by an eighth for each quarter of it that is confirmed,
//! and near the width at which the broker had too much by a sixty-fourth only: real brokers refuse what waited for
//! 200 ms, so a window that is wider than they are fast would fail most of its messages.

use crate::error::{ClientError, Full};
use crate::signal::Signal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// A quarter of the room, and enough for one message of this size.
    Room {
        /// Bytes that it counts for.
        bytes: usize,
    },
    /// Nothing on its way any more.
    Empty,
    /// To come in: whoever is told has come in.
    Entry {
        /// Messages.
        messages: usize,
        /// Bytes that they count for.
        bytes: usize,
    },
}

/// Called once, by the one who leaves; it must not block.
pub type Listener = Box<dyn FnOnce() + Send>;

struct Waiting {
    number: u64,
    want: Want,
    listener: Listener,
}

/// One who waits; dropped, he waits no more.
#[derive(Debug)]
#[must_use = "dropped, it waits no more"]
pub struct Watch<'a> {
    gate: &'a Gate,
    number: u64,
}

impl Watch<'_> {
    /// Whether what was waited for has come true since.
    pub fn is_told(&self) -> bool {
        !self.gate.state().has(self.number)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.gate.state().remove(self.number);
    }
}

/// A place in the line of those who want to come in; dropped, it is given up.
#[derive(Debug)]
#[must_use = "dropped, the place in the line is given up"]
pub struct InLine<'a> {
    gate: &'a Gate,
    number: u64,
    messages: usize,
    bytes: usize,
    entered: bool,
}

impl InLine<'_> {
    /// True once it is in: let in by one who left, or because there is room now.
    pub fn try_enter(&mut self) -> bool {
        if !self.entered {
            let mut state = self.gate.state();
            self.entered = if !state.has(self.number) {
                true
            } else if self.gate.admit(&mut state.used, self.messages, self.bytes) {
                state.remove(self.number);
                true
            } else {
                false
            };
        }
        self.entered
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        // Whoever was let in and does not come gives the room back.
        if !self.entered && !self.gate.state().remove(self.number) {
            self.gate.leave(self.messages, self.bytes);
        }
    }
}

/// What is on its way.
#[derive(Debug, Default)]
struct Used {
    messages: usize,
    bytes: usize,
}

#[derive(Default)]
struct State {
    used: Used,
    // In the order in which they came.
    line: Vec<Waiting>,
    last_number: u64,
    // When the room shrank, how wide it was then, and what was confirmed since it last changed.
    shrank: Option<(Instant, usize)>,
    confirmed: usize,
}

impl State {
    fn push(&mut self, want: Want, listener: Listener) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.line.push(Waiting {
            number,
            want,
            listener,
        });
        number
    }

    fn has(&self, number: u64) -> bool {
        self.line.iter().any(|waiting| waiting.number == number)
    }

    /// False when it was told before.
    fn remove(&mut self, number: u64) -> bool {
        let at = self.line.iter().position(|waiting| waiting.number == number);
        at.map(|at| self.line.remove(at)).is_some()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("used", &self.used)
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
        }
    }

    /// Comes in if there is room.
    pub fn try_enter(&self, messages: usize, bytes: usize) -> bool {
        self.admit(&mut self.state().used, messages, bytes)
    }

    /// Comes in without being asked: what had left and is given back, or is in memory anyway.
    pub fn enter_anyway(&self, messages: usize, bytes: usize) {
        let mut state = self.state();
        state.used.messages += messages;
        state.used.bytes += bytes;
    }

    /// Comes in, or waits up to `slice` for room.
    pub fn enter(&self, messages: usize, bytes: usize, slice: Duration) -> bool {
        if self.try_enter(messages, bytes) {
            return true;
        }
        let signal: Arc<Signal> = Arc::default();
        let told = signal.clone();
        let mut place = self.line_up(messages, bytes, Box::new(move || told.set()));
        if !place.try_enter() {
            signal.wait(slice);
        }
        place.try_enter()
    }

    /// Stands in line for room; `listener` is called when it was let in.
    pub fn line_up(&self, messages: usize, bytes: usize, listener: Listener) -> InLine<'_> {
        InLine {
            gate: self,
            number: self.wait_for(Want::Entry { messages, bytes }, listener),
            messages,
            bytes,
            entered: false,
        }
    }

    /// Leaves.
    pub fn leave(&self, messages: usize, bytes: usize) {
        let mut state = self.state();
        state.used.messages = state.used.messages.saturating_sub(messages);
        state.used.bytes = state.used.bytes.saturating_sub(bytes);
        let told = self.told(&mut state);
        drop(state);
        for listener in told {
            listener();
        }
    }

    /// Calls once what is wanted holds, which may be at once.
    pub fn when(&self, want: Want, listener: Listener) {
        self.wait_for(want, listener);
    }

    /// The same until the watch is dropped.
    pub fn watch(&self, want: Want, listener: Listener) -> Watch<'_> {
        Watch {
            gate: self,
            number: self.wait_for(want, listener),
        }
    }

    fn wait_for(&self, want: Want, listener: Listener) -> u64 {
        let mut state = self.state();
        let number = state.push(want, listener);
        let told = self.told(&mut state);
        drop(state);
        for listener in told {
            listener();
        }
        number
    }

    /// Takes out those whose wish is fulfilled. Without a line nothing is allocated.
    fn told(&self, state: &mut State) -> Vec<Listener> {
        if state.line.is_empty() || !self.is_roomy(state) {
            return Vec::new();
        }
        let State { line, used, .. } = state;
        let was_empty = used.messages == 0;
        let holds = |waiting: &mut Waiting| match waiting.want {
            Want::Empty => was_empty,
            Want::Room { bytes } => self.fits(used, 1, bytes),
            Want::Entry { messages, bytes } => self.admit(used, messages, bytes),
        };
        let told = line.extract_if(.., holds);
        told.map(|waiting| waiting.listener).collect()
    }

    fn is_roomy(&self, state: &State) -> bool {
        let window = self.window();
        let used = &state.used;
        used.messages == 0
            || (used.messages <= window - window.div_ceil(4) && used.bytes <= self.bytes / 4 * 3)
    }

    /// True without room for one more message.
    pub fn is_full(&self) -> bool {
        !self.fits(&self.state().used, 1, 1)
    }

    /// Threads and tasks that wait for room, or until nothing is on its way.
    pub fn watchers(&self) -> usize {
        self.state().line.len()
    }

    /// Bytes on their way.
    pub fn bytes(&self) -> usize {
        self.state().used.bytes
    }

    /// A broker has too much to do: half of what is on its way may be.
    pub fn slow_down(&self, now: Instant) {
        let mut state = self.state();
        if state.shrank.is_some_and(|(at, _)| now < at + SHRINK_AGAIN) {
            return;
        }
        let used = self.window().min(state.used.messages.max(1));
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
        self.state().used.messages
    }

    /// The error for one who found no room in that time.
    pub fn full(&self, waited: Duration) -> ClientError {
        let state = self.state();
        ClientError::TooManyInFlight(Full {
            messages: state.used.messages,
            bytes: state.used.bytes,
            window: self.window(),
            message_limit: self.messages,
            byte_limit: self.bytes,
            waited,
        })
    }

    /// Waits up to `slice` until nothing is on its way.
    pub fn empty(&self, slice: Duration) -> bool {
        let signal: Arc<Signal> = Arc::default();
        let told = signal.clone();
        let watch = self.watch(Want::Empty, Box::new(move || told.set()));
        watch.is_told() || signal.wait(slice)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, used: &Used, messages: usize, bytes: usize) -> bool {
        used.messages == 0 || (used.messages + messages <= self.window() && used.bytes + bytes <= self.bytes)
    }

    fn admit(&self, used: &mut Used, messages: usize, bytes: usize) -> bool {
        let fits = self.fits(used, messages, bytes);
        if fits {
            used.messages += messages;
            used.bytes += bytes;
        }
        fits
    }
}
