//! Back pressure: how many messages and bytes may be on their way.
//!
//! A sender acquires capacity before it queues anything, and releases it when the outcome is known. Senders for whom
//! there is none wait in a queue. Once a quarter of the capacity is free, not at each release, it goes to those at the
//! head of the queue as long as they fit: a sender that is woken has its capacity already, so no other can take it away
//! and no wake-up is lost. Without waiters a release costs one uncontended lock. A waiter removes its own entry.
//!
//! What is on its way is also counted for each broker, as soon as its frame leaves. A broker that says that it has too
//! much to do narrows its own window (`window.rs`). A broker that holds more than is free has too much: what may go to
//! another broker does, so one that does not answer gets half of the room at most, and the next one half of the rest.

use crate::error::{ClientError, WindowFull};
use crate::session::signal::Signal;
use crate::window::{Used, Window};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts what is on its way.
#[derive(Debug)]
pub struct BackPressure {
    messages: usize,
    bytes: usize,
    // At most `messages`: the sum of the brokers' windows. Changed under the lock, looked at without it.
    window: AtomicUsize,
    // Brokers whose window is narrow. Changed under the lock, looked at without it.
    narrow: AtomicUsize,
    // Guards the counts, and who waits for them to fall.
    state: Mutex<State>,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// A quarter of the capacity is free, and enough for one message of this size.
    Room {
        /// Bytes that it counts for.
        bytes: usize,
    },
    /// Nothing on its way any more.
    Empty,
    /// Capacity for these: the listener is called once it is acquired.
    Entry {
        /// Messages.
        messages: usize,
        /// Bytes that they count for.
        bytes: usize,
    },
}

/// Called once, by the thread that releases capacity; it must not block.
pub type Listener = Box<dyn FnOnce() + Send>;

struct Waiter {
    number: u64,
    condition: Condition,
    listener: Listener,
}

/// A registered listener; dropped, it is not called any more.
#[derive(Debug)]
#[must_use = "dropped, it waits no more"]
pub struct Watch<'a> {
    back_pressure: &'a BackPressure,
    number: u64,
}

impl Watch<'_> {
    /// Whether what was waited for has come true since.
    pub fn is_satisfied(&self) -> bool {
        !self.back_pressure.state().has(self.number)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.back_pressure.state().remove(self.number);
    }
}

/// A place in the queue for capacity; dropped, it is given up.
#[derive(Debug)]
#[must_use = "dropped, the place in the line is given up"]
pub struct QueuedAcquire<'a> {
    back_pressure: &'a BackPressure,
    number: u64,
    messages: usize,
    bytes: usize,
    acquired: bool,
}

impl QueuedAcquire<'_> {
    /// True once capacity is acquired: handed over by a release, or because there is some now.
    pub fn try_acquire(&mut self) -> bool {
        if !self.acquired {
            let mut state = self.back_pressure.state();
            self.acquired = if !state.has(self.number) {
                true
            } else if self
                .back_pressure
                .try_admit(&mut state.used, self.messages, self.bytes)
            {
                state.remove(self.number);
                true
            } else {
                false
            };
        }
        self.acquired
    }
}

impl Drop for QueuedAcquire<'_> {
    fn drop(&mut self) {
        // Whoever was let in and does not come gives the room back.
        if !self.acquired && !self.back_pressure.state().remove(self.number) {
            self.back_pressure.release(self.messages, self.bytes);
        }
    }
}

#[derive(Default)]
struct State {
    used: Used,
    // Every broker that a frame has left for.
    brokers: HashMap<Arc<str>, Window>,
    // In the order in which they came.
    waiters: Vec<Waiter>,
    last_number: u64,
}

impl State {
    fn push(&mut self, condition: Condition, listener: Listener) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.waiters.push(Waiter {
            number,
            condition,
            listener,
        });
        number
    }

    fn has(&self, number: u64) -> bool {
        self.waiters.iter().any(|waiter| waiter.number == number)
    }

    /// False when it was told before.
    fn remove(&mut self, number: u64) -> bool {
        let at = self.waiters.iter().position(|waiter| waiter.number == number);
        at.map(|at| self.waiters.remove(at)).is_some()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl BackPressure {
    /// At most this many messages and bytes; one message larger than all of `bytes` may go alone.
    pub fn new(messages: usize, bytes: usize) -> Self {
        Self {
            messages,
            bytes,
            window: AtomicUsize::new(messages),
            narrow: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// Acquires capacity if there is enough.
    pub fn try_acquire(&self, messages: usize, bytes: usize) -> bool {
        self.try_admit(&mut self.state().used, messages, bytes)
    }

    /// Acquires capacity beyond the limit: for what was released and comes back, or is in memory anyway.
    pub fn force_acquire(&self, messages: usize, bytes: usize) {
        self.state().used.add(messages, bytes);
    }

    /// Acquires capacity, or waits up to `slice` for it.
    pub fn acquire(&self, messages: usize, bytes: usize, slice: Duration) -> bool {
        if self.try_acquire(messages, bytes) {
            return true;
        }
        let signal: Arc<Signal> = Arc::default();
        let satisfied = signal.clone();
        let mut queued = self.enqueue_acquire(messages, bytes, Box::new(move || satisfied.set()));
        if !queued.try_acquire() {
            signal.wait(slice);
        }
        queued.try_acquire()
    }

    /// Queues for capacity; `listener` is called once it is acquired.
    pub fn enqueue_acquire(&self, messages: usize, bytes: usize, listener: Listener) -> QueuedAcquire<'_> {
        QueuedAcquire {
            back_pressure: self,
            number: self.wait_for(Condition::Entry { messages, bytes }, listener),
            messages,
            bytes,
            acquired: false,
        }
    }

    /// Releases capacity.
    pub fn release(&self, messages: usize, bytes: usize) {
        let mut state = self.state();
        state.used.remove(messages, bytes);
        let satisfied = self.take_satisfied(&mut state);
        drop(state);
        for listener in satisfied {
            listener();
        }
    }

    /// Calls once what is wanted holds, which may be at once.
    pub fn notify_when(&self, condition: Condition, listener: Listener) {
        self.wait_for(condition, listener);
    }

    /// As [`Self::notify_when`], until the watch is dropped.
    pub fn watch(&self, condition: Condition, listener: Listener) -> Watch<'_> {
        Watch {
            back_pressure: self,
            number: self.wait_for(condition, listener),
        }
    }

    fn wait_for(&self, condition: Condition, listener: Listener) -> u64 {
        let mut state = self.state();
        let number = state.push(condition, listener);
        let satisfied = self.take_satisfied(&mut state);
        drop(state);
        for listener in satisfied {
            listener();
        }
        number
    }

    /// Takes out those whose wish is fulfilled. Without a line nothing is allocated.
    fn take_satisfied(&self, state: &mut State) -> Vec<Listener> {
        if state.waiters.is_empty() || !self.has_spare_capacity(state) {
            return Vec::new();
        }
        let State { waiters, used, .. } = state;
        let was_empty = used.messages == 0;
        let holds = |waiter: &mut Waiter| match waiter.condition {
            Condition::Empty => was_empty,
            Condition::Room { bytes } => self.fits(used, 1, bytes),
            Condition::Entry { messages, bytes } => self.try_admit(used, messages, bytes),
        };
        let satisfied = waiters.extract_if(.., holds);
        satisfied.map(|waiter| waiter.listener).collect()
    }

    fn has_spare_capacity(&self, state: &State) -> bool {
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
    pub fn waiter_count(&self) -> usize {
        self.state().waiters.len()
    }

    /// Bytes on their way.
    pub fn bytes(&self) -> usize {
        self.state().used.bytes
    }

    /// A frame leaves for a broker.
    pub fn on_dispatch(&self, broker: &Arc<str>, messages: usize, bytes: usize) {
        let mut state = self.state();
        if let Some(window) = state.brokers.get_mut(broker) {
            window.used.add(messages, bytes);
            return;
        }
        let mut window = Window::new(self.messages);
        window.used.add(messages, bytes);
        state.brokers.insert(broker.clone(), window);
        // What a broker takes counts from its first frame on, also where the others have narrowed.
        self.adjust(&state);
    }

    /// It is no longer on its way to that broker.
    pub fn on_response(&self, broker: &str, messages: usize, bytes: usize) {
        if let Some(window) = self.state().brokers.get_mut(broker) {
            window.used.remove(messages, bytes);
        }
    }

    /// The broker that has least of what is on its way, for what should not go to `broker`, which has too much.
    pub fn instead_of<'a>(
        &self,
        broker: &str,
        all: impl Iterator<Item = &'a Arc<str>>,
    ) -> Option<&'a Arc<str>> {
        let state = self.state();
        let free = self.messages.saturating_sub(state.used.messages);
        let free_bytes = self.bytes.saturating_sub(state.used.bytes);
        let window = state.brokers.get(broker)?;
        let used = window.used;
        let has_too_much = used.messages >= window.width() || used.messages > free || used.bytes > free_bytes;
        if !has_too_much {
            return None;
        }
        let load = |broker: &Arc<str>| {
            let window = state.brokers.get(broker);
            window.map_or((false, 0, 0), |window| {
                let used = window.used;
                (used.messages >= window.width(), used.bytes, used.messages)
            })
        };
        all.min_by_key(|broker| load(broker))
            .filter(|least| &***least != broker)
    }

    /// A broker has too much to do: its window narrows.
    pub fn shrink_window(&self, broker: &str, now: Instant) {
        let mut state = self.state();
        if let Some(window) = state.brokers.get_mut(broker) {
            window.shrink_window(now);
            self.adjust(&state);
        }
    }

    /// A broker has confirmed messages. Costs nothing while all windows are as wide as they may be.
    pub fn confirm(&self, broker: &str, messages: usize) {
        if self.narrow.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state();
        if let Some(window) = state.brokers.get_mut(broker).filter(|window| window.is_narrow()) {
            window.confirm(messages);
            self.adjust(&state);
        }
    }

    fn adjust(&self, state: &State) {
        let windows = || state.brokers.values();
        let all = windows().fold(0_usize, |sum, window| sum.saturating_add(window.width()));
        self.window.store(all.min(self.messages), Ordering::Relaxed);
        let narrow = windows().filter(|window| window.is_narrow()).count();
        self.narrow.store(narrow, Ordering::Relaxed);
    }

    /// How many messages may be on their way now.
    pub fn window(&self) -> usize {
        self.window.load(Ordering::Relaxed)
    }

    /// Messages on their way.
    pub fn in_flight(&self) -> usize {
        self.state().used.messages
    }

    /// The error for one who found no room in that time.
    pub fn full(&self, waited: Duration) -> ClientError {
        let state = self.state();
        ClientError::TooManyInFlight(WindowFull {
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
        let satisfied = signal.clone();
        let watch = self.watch(Condition::Empty, Box::new(move || satisfied.set()));
        watch.is_satisfied() || signal.wait(slice)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, used: &Used, messages: usize, bytes: usize) -> bool {
        used.messages == 0 || (used.messages + messages <= self.window() && used.bytes + bytes <= self.bytes)
    }

    fn try_admit(&self, used: &mut Used, messages: usize, bytes: usize) -> bool {
        let fits = self.fits(used, messages, bytes);
        if fits {
            used.add(messages, bytes);
        }
        fits
    }
}
