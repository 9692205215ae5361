//! Back pressure: how many messages and bytes may be on their way.
//!
//! A sender acquires capacity as a [`Permit`] before it queues anything; dropped, the permit gives it back. Senders for
//! whom there is none wait in a queue. Once a quarter of the capacity is free, not at each release, it goes to those at
//! the head of the queue as long as they fit: a sender that is woken has its capacity already, so no other can take it
//! away and no wake-up is lost. Without waiters a release costs one uncontended lock. A waiter removes its own entry.
//!
//! Messages are also counted for each broker: those that can go to one broker only (a key, a chosen queue, a topic of
//! one broker) from their way in, all others once their frame leaves. Each broker has a window (`window.rs`), which it
//! narrows by saying that it has too much to do. Where there are several brokers, a window is half of the capacity at
//! most, so that a broker that does not answer leaves the other half to the rest. A sender whose messages can only go
//! to brokers with full windows waits for one of these to open; what can go elsewhere does.

mod candidates;
mod permit;
mod waiting;
mod window;

use crate::error::{BrokerFull, ClientError, WindowFull};
use crate::session::signal::Signal;
pub use candidates::Candidates;
pub use permit::{BorrowedPermit, Permit};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub use waiting::{Condition, Listener};
use waiting::{Waiter, Waiters};
use window::{BrokerId, Usage, Window, Windows};

/// Counts what is on its way.
#[derive(Debug)]
pub struct BackPressure {
    limit: Usage,
    // At most the limit of messages: the sum of the brokers' windows. Changed under the lock, looked at without it.
    window: AtomicUsize,
    // Brokers whose window is narrow, and brokers whose window is full. As above.
    narrow: AtomicUsize,
    full: AtomicUsize,
    // There are several brokers.
    is_shared: AtomicBool,
    // Guards the counts, and who waits for them to fall.
    state: Mutex<State>,
}

struct State {
    used: Usage,
    brokers: Windows,
    waiters: Waiters,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
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
        !self.back_pressure.state().waiters.has(self.number)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.back_pressure.state().waiters.remove(self.number);
    }
}

/// A place in the queue for capacity; dropped, it is given up.
#[derive(Debug)]
#[must_use = "dropped, the place in the queue is given up"]
pub struct QueuedAcquire<'a> {
    back_pressure: &'a Arc<BackPressure>,
    number: u64,
    wanted: Usage,
    brokers: Candidates,
    acquired: bool,
}

impl<'a> QueuedAcquire<'a> {
    /// The capacity, once: a release has handed it over, or there is some now.
    pub fn try_acquire(&mut self) -> Option<BorrowedPermit<'a>> {
        if self.acquired {
            return None;
        }
        let mut state = self.back_pressure.state();
        if state.waiters.has(self.number) {
            if !self
                .back_pressure
                .try_admit(&mut state, self.wanted, &self.brokers)
            {
                return None;
            }
            state.waiters.remove(self.number);
        }
        self.acquired = true;
        drop(state);
        Some(self.permit())
    }

    fn permit(&self) -> BorrowedPermit<'a> {
        let broker = self.back_pressure.state().brokers.only(&self.brokers);
        BorrowedPermit::new(self.back_pressure, self.wanted, broker)
    }
}

impl Drop for QueuedAcquire<'_> {
    fn drop(&mut self) {
        if self.acquired {
            return;
        }
        let waiter = self.back_pressure.state().waiters.remove(self.number);
        // A sender that was admitted and no longer comes gives the capacity back.
        if waiter.is_none() {
            drop(self.permit());
        }
    }
}

impl BackPressure {
    /// At most this many messages and bytes; one message larger than all of `bytes` may go alone.
    pub fn new(messages: usize, bytes: usize) -> Arc<Self> {
        let limit = Usage { messages, bytes };
        Arc::new(Self {
            limit,
            window: AtomicUsize::new(messages),
            narrow: AtomicUsize::new(0),
            full: AtomicUsize::new(0),
            is_shared: AtomicBool::new(false),
            state: Mutex::new(State {
                used: Usage::default(),
                brokers: Windows::new(limit),
                waiters: Waiters::default(),
            }),
        })
    }

    /// There are several brokers: from now on each has half of the capacity at most.
    pub fn share_among_brokers(&self) {
        if self.is_shared.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        state.brokers.set_share(Usage {
            messages: self.limit.messages.div_ceil(2),
            bytes: self.limit.bytes.div_ceil(2),
        });
        self.note_full(&state.brokers);
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Whether a broker's window is narrow or full, so that it matters where a message may go.
    pub fn is_guarded(&self) -> bool {
        self.narrow.load(Ordering::Relaxed) > 0 || self.full.load(Ordering::Relaxed) > 0
    }

    /// Acquires capacity if there is enough.
    pub fn try_acquire(self: &Arc<Self>, messages: usize, bytes: usize) -> Option<BorrowedPermit<'_>> {
        self.try_acquire_at(messages, bytes, &Candidates::NONE)
    }

    /// As [`Self::try_acquire`], for messages that go to one of these brokers: one of them must have capacity, too.
    pub fn try_acquire_at(
        self: &Arc<Self>,
        messages: usize,
        bytes: usize,
        brokers: &Candidates,
    ) -> Option<BorrowedPermit<'_>> {
        let wanted = Usage { messages, bytes };
        let mut state = self.state();
        if !self.try_admit(&mut state, wanted, brokers) {
            return None;
        }
        let broker = state.brokers.only(brokers);
        drop(state);
        Some(BorrowedPermit::new(self, wanted, broker))
    }

    /// Acquires capacity beyond the limit, for what is in memory anyway.
    pub fn force_acquire(self: &Arc<Self>, messages: usize, bytes: usize) -> BorrowedPermit<'_> {
        let wanted = Usage { messages, bytes };
        self.state().used.add(wanted);
        BorrowedPermit::new(self, wanted, None)
    }

    /// Acquires capacity, or waits up to `slice` for it.
    pub fn acquire(
        self: &Arc<Self>,
        messages: usize,
        bytes: usize,
        slice: Duration,
    ) -> Option<BorrowedPermit<'_>> {
        self.acquire_at(messages, bytes, &Candidates::NONE, slice)
    }

    /// As [`Self::acquire`], for messages that go to one of these brokers.
    pub fn acquire_at(
        self: &Arc<Self>,
        messages: usize,
        bytes: usize,
        brokers: &Candidates,
        slice: Duration,
    ) -> Option<BorrowedPermit<'_>> {
        if let Some(permit) = self.try_acquire_at(messages, bytes, brokers) {
            return Some(permit);
        }
        let signal: Arc<Signal> = Arc::default();
        let satisfied = signal.clone();
        let listener = Box::new(move || satisfied.set());
        let mut queued = self.enqueue_acquire(messages, bytes, brokers.clone(), listener);
        if let Some(permit) = queued.try_acquire() {
            return Some(permit);
        }
        signal.wait(slice);
        queued.try_acquire()
    }

    /// Queues for capacity, for messages that go to one of these brokers; `listener` is called once it is acquired.
    pub fn enqueue_acquire(
        self: &Arc<Self>,
        messages: usize,
        bytes: usize,
        brokers: Candidates,
        listener: Listener,
    ) -> QueuedAcquire<'_> {
        let entry = Condition::Entry {
            messages,
            bytes,
            brokers: brokers.clone(),
        };
        QueuedAcquire {
            back_pressure: self,
            number: self.wait_for(entry, listener),
            wanted: Usage { messages, bytes },
            brokers,
            acquired: false,
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

    /// Waits up to `slice` until nothing is on its way.
    pub fn empty(&self, slice: Duration) -> bool {
        let signal: Arc<Signal> = Arc::default();
        let satisfied = signal.clone();
        let watch = self.watch(Condition::Empty, Box::new(move || satisfied.set()));
        watch.is_satisfied() || signal.wait(slice)
    }

    fn wait_for(&self, condition: Condition, listener: Listener) -> u64 {
        let mut guard = self.state();
        let state = &mut *guard;
        let is_empty = state.used.messages == 0;
        let may_hold = self.has_spare(state.used) && state.brokers.any_has_spare(condition.brokers().names());
        let holds = may_hold && self.holds(&condition, state, is_empty, &mut 0);
        let number = state.waiters.push(condition, listener);
        let satisfied = if holds { state.waiters.remove(number) } else { None };
        drop(guard);
        if let Some(waiter) = satisfied {
            (waiter.listener)();
        }
        number
    }

    /// Capacity returns. With it, `kept` leaves the window of the broker.
    fn release(&self, usage: Usage, kept: Usage, broker: Option<BrokerId>) {
        let mut state = self.state();
        let had_spare = self.has_spare(state.used);
        state.used.remove(usage);
        let opened = broker.is_some_and(|id| {
            state.brokers.update(id, |window| {
                window.used.remove(usage);
                window.used.remove(kept);
            })
        });
        self.finish(state, had_spare, opened);
    }

    /// Ends a change: calls those whose wish is fulfilled, without the lock. `had_spare`: a quarter of the room was free
    /// before it; `opened`: a broker's window opened.
    fn finish(&self, mut state: MutexGuard<'_, State>, had_spare: bool, opened: bool) {
        self.note_full(&state.brokers);
        let satisfied = self.take_satisfied(&mut state, had_spare, opened);
        drop(state);
        for listener in satisfied {
            listener();
        }
    }

    /// Takes out those whose wish is fulfilled. Without waiters nothing is allocated.
    fn take_satisfied(&self, state: &mut State, had_spare: bool, opened: bool) -> Vec<Listener> {
        let mut satisfied = Vec::new();
        if state.waiters.is_empty() {
            return satisfied;
        }
        let is_empty = state.used.messages == 0;
        let has_spare = self.has_spare(state.used);
        let room_opened = is_empty || (has_spare && !had_spare);
        let mut granted = 0;
        let mut serve = |state: &mut State, list: fn(&mut Waiters) -> &mut Vec<Waiter>| {
            let mut waiting = std::mem::take(list(&mut state.waiters));
            let holds = |waiter: &mut Waiter| self.holds(&waiter.condition, state, is_empty, &mut granted);
            satisfied.extend(waiting.extract_if(.., holds).map(|waiter| waiter.listener));
            *list(&mut state.waiters) = waiting;
        };
        if has_spare {
            serve(state, |waiters| &mut waiters.anywhere);
        }
        // One that needs more than a quarter of the room waits longer than for the opening.
        let is_large = |waiter: &Waiter| waiter.condition.bytes() > self.limit.bytes / 4;
        if opened || room_opened || (has_spare && state.waiters.at_brokers.iter().any(is_large)) {
            serve(state, |waiters| &mut waiters.at_brokers);
        }
        satisfied
    }

    /// Whether a wish is fulfilled; an entry is admitted then. `granted` counts the messages for several brokers that
    /// were admitted in this round: they count in no window before they leave.
    fn holds(&self, condition: &Condition, state: &mut State, is_empty: bool, granted: &mut usize) -> bool {
        match condition {
            Condition::Empty => is_empty,
            Condition::Room { bytes, brokers } => {
                let wanted = Usage {
                    messages: 1,
                    bytes: *bytes,
                };
                self.fits(state.used, wanted) && state.brokers.any_fits(brokers.names(), wanted)
            }
            Condition::Entry {
                messages,
                bytes,
                brokers,
            } => {
                let wanted = Usage {
                    messages: *messages,
                    bytes: *bytes,
                };
                let names = brokers.names();
                let is_one_of_several = names.len() > 1;
                if is_one_of_several && *granted > 0 && *granted + messages > state.brokers.free(names) {
                    return false;
                }
                let admitted = self.try_admit(state, wanted, brokers);
                if admitted && is_one_of_several {
                    *granted += messages;
                }
                admitted
            }
        }
    }

    /// Threads and tasks that wait for room, or until nothing is on its way.
    pub fn waiter_count(&self) -> usize {
        self.state().waiters.len()
    }

    /// True without capacity for one more message to one of these brokers.
    pub fn is_full(&self, brokers: &Candidates) -> bool {
        let state = self.state();
        !self.fits(state.used, Usage::ONE) || !state.brokers.any_fits(brokers.names(), Usage::ONE)
    }

    /// How many more messages may be on their way now, to one of these brokers.
    pub fn free(&self, brokers: &Candidates) -> usize {
        let state = self.state();
        let free = self.window().saturating_sub(state.used.messages);
        match brokers.names() {
            [] => free,
            names => free.min(state.brokers.free(names)),
        }
    }

    /// Bytes on their way.
    pub fn bytes(&self) -> usize {
        self.state().used.bytes
    }

    /// Messages on their way.
    pub fn in_flight(&self) -> usize {
        self.state().used.messages
    }

    /// Messages and bytes that count in the brokers' windows.
    pub fn in_flight_of_brokers(&self) -> (usize, usize) {
        let state = self.state();
        let mut all = Usage::default();
        for window in state.brokers.iter() {
            all.add(window.used);
        }
        (all.messages, all.bytes)
    }

    /// Brokers that have a window.
    pub fn broker_count(&self) -> usize {
        self.state().brokers.iter().count()
    }

    /// A frame leaves for a broker; until now it counted in the window of `from`.
    fn dispatch(&self, usage: Usage, from: Option<BrokerId>, broker: &Arc<str>) -> BrokerId {
        let mut state = self.state();
        let had_spare = self.has_spare(state.used);
        let id = self.broker_id(&mut state.brokers, broker);
        let opened = state.brokers.change(usage, from, Some(id));
        self.finish(state, had_spare, opened);
        id
    }

    /// What counted in one broker's window counts in another's, or in none.
    fn change_broker(&self, usage: Usage, from: Option<BrokerId>, to: Option<BrokerId>) {
        let mut state = self.state();
        let had_spare = self.has_spare(state.used);
        let opened = state.brokers.change(usage, from, to);
        self.finish(state, had_spare, opened);
    }

    /// What a broker takes counts from its first message on, also where the others have narrowed.
    fn broker_id(&self, brokers: &mut Windows, broker: &Arc<str>) -> BrokerId {
        if let Some(id) = brokers.id(broker) {
            return id;
        }
        let id = brokers.insert(broker, self.limit.messages);
        self.adjust(brokers);
        id
    }

    /// The broker that has least of what is on its way, for what should not go to `broker`, which has too much.
    pub fn instead_of<'a>(
        &self,
        broker: &str,
        all: impl Iterator<Item = &'a Arc<str>>,
    ) -> Option<&'a Arc<str>> {
        let state = self.state();
        let free = self.limit.messages.saturating_sub(state.used.messages);
        let free_bytes = self.limit.bytes.saturating_sub(state.used.bytes);
        let window = state.brokers.by_name(broker)?;
        let used = window.used;
        let has_too_much = used.messages >= window.width() || used.messages > free || used.bytes > free_bytes;
        if !has_too_much {
            return None;
        }
        let load = |broker: &Arc<str>| {
            let window = state.brokers.by_name(broker);
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
        self.change_window(broker, |window| window.shrink_window(now));
    }

    /// A broker has confirmed messages. Costs nothing while all windows are as wide as they may be.
    pub fn confirm(&self, broker: &str, messages: usize) {
        if self.narrow.load(Ordering::Relaxed) > 0 {
            self.change_window(broker, |window| {
                if window.is_narrow() {
                    window.confirm(messages);
                }
            });
        }
    }

    fn change_window(&self, broker: &str, change: impl FnOnce(&mut Window)) {
        let mut state = self.state();
        let Some(id) = state.brokers.id(broker) else {
            return;
        };
        let had_spare = self.has_spare(state.used);
        let opened = state.brokers.update(id, change);
        self.adjust(&state.brokers);
        self.finish(state, had_spare, opened);
    }

    fn adjust(&self, brokers: &Windows) {
        let windows = || brokers.iter();
        let all = windows().fold(0_usize, |sum, window| sum.saturating_add(window.width()));
        self.window.store(all.min(self.limit.messages), Ordering::Relaxed);
        let narrow = windows().filter(|window| window.is_narrow()).count();
        self.narrow.store(narrow, Ordering::Relaxed);
    }

    fn note_full(&self, brokers: &Windows) {
        let full = brokers.full();
        if self.full.load(Ordering::Relaxed) != full {
            self.full.store(full, Ordering::Relaxed);
        }
    }

    /// How many messages may be on their way now.
    pub fn window(&self) -> usize {
        self.window.load(Ordering::Relaxed)
    }

    /// The error for a sender that found no capacity in that time, for messages that go to one of these brokers.
    pub fn full(&self, waited: Duration, brokers: &Candidates) -> ClientError {
        let state = self.state();
        let share = state.brokers.share();
        let has_room = self.fits(state.used, Usage::ONE);
        let windows = brokers.names().iter().filter_map(|name| {
            let window = state.brokers.by_name(name)?;
            Some(BrokerFull {
                name: name.clone(),
                messages: window.used.messages,
                bytes: window.used.bytes,
                window: window.width().min(share.messages),
                byte_limit: share.bytes,
            })
        });
        ClientError::TooManyInFlight(WindowFull {
            messages: state.used.messages,
            bytes: state.used.bytes,
            window: self.window(),
            message_limit: self.limit.messages,
            byte_limit: self.limit.bytes,
            broker: windows.min_by_key(|broker| broker.messages).filter(|_| has_room),
            waited,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_spare(&self, used: Usage) -> bool {
        let window = self.window();
        used.messages == 0
            || (used.messages <= window - window.div_ceil(4) && used.bytes <= self.limit.bytes / 4 * 3)
    }

    fn fits(&self, used: Usage, wanted: Usage) -> bool {
        used.messages == 0
            || (used.messages + wanted.messages <= self.window()
                && used.bytes + wanted.bytes <= self.limit.bytes)
    }

    /// Counts these if there is capacity for them. What can go to one broker only counts in its window at once: it may
    /// wait long behind others before it leaves.
    fn try_admit(&self, state: &mut State, wanted: Usage, brokers: &Candidates) -> bool {
        let names = brokers.names();
        if !self.fits(state.used, wanted) || !state.brokers.any_fits(names, wanted) {
            return false;
        }
        state.used.add(wanted);
        if let [only] = names {
            let id = self.broker_id(&mut state.brokers, only);
            state.brokers.update(id, |window| window.used.add(wanted));
            self.note_full(&state.brokers);
        }
        true
    }
}
