//! Back pressure: a limit on the messages and bytes in flight.
//!
//! A sender acquires capacity as a [`Permit`] before it queues anything; dropped, the permit gives it back. Senders for
//! which there is none wait in a queue. Once a quarter of the capacity is free, not at each release, it goes to those
//! at the head of the queue as long as they fit: a sender that is woken has its capacity already, so no other can take
//! it away and no wake-up is lost. Without waiters a release costs one uncontended lock. A waiter removes its own
//! entry.
//!
//! Messages are also counted for each broker: those that can go to one broker only (a key, a chosen queue, a topic of
//! one broker) from the moment they are admitted, all others once their frame is sent. Each broker has a window
//! (`window.rs`), which narrows when the broker answers that it is overloaded. Where there are several brokers, a
//! window is half of the capacity at first, so that a broker that does not answer leaves the other half to the rest.
//! While it is the only one in use, a broker earns the other half, too: each answer that arrives while its half is full
//! adds to its allowance. A sender whose messages can only go to brokers with full windows waits for one of these to
//! open; other senders do not wait.

mod acquire;
mod candidates;
mod permit;
mod state;
mod waiting;
mod window;

use crate::error::{BrokerFull, ClientError, WindowFull};
pub use acquire::{QueuedAcquire, Watch};
pub use candidates::Candidates;
pub use permit::{BorrowedPermit, Permit};
use pyrmq_remoting::sync::lock;
use state::BackPressureState;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
pub use waiting::{Condition, Listener};
use window::{BrokerId, BrokerWindow, Usage};

/// Counts what is on its way.
#[derive(Debug)]
pub struct BackPressure {
    limit: Usage,
    // Copies of parts of the state, to be read without the lock: the sum of the brokers' windows, brokers whose window
    // is narrow, brokers whose share is used up.
    window: AtomicUsize,
    narrow: AtomicUsize,
    full: AtomicUsize,
    // There are several brokers.
    is_shared: AtomicBool,
    // Guards the counts, and the senders that wait for them to fall.
    state: Mutex<BackPressureState>,
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
            state: Mutex::new(BackPressureState::new(limit)),
        })
    }

    /// There are several brokers: from now on the share of each is half of the capacity.
    pub fn share_among_brokers(&self) {
        if self.is_shared.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        state.brokers.set_share(Usage {
            messages: self.limit.messages.div_ceil(2),
            bytes: self.limit.bytes.div_ceil(2),
        });
        self.publish(&state);
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Whether a broker's window is narrow or its share used up, so that it matters where a message may go.
    pub fn is_guarded(&self) -> bool {
        self.narrow.load(Ordering::Relaxed) > 0 || self.full.load(Ordering::Relaxed) > 0
    }

    /// Number of threads and tasks that wait for capacity, or until nothing is in flight.
    pub fn waiter_count(&self) -> usize {
        self.state().waiters.len()
    }

    /// True without capacity for one more message to one of these brokers.
    pub fn is_full(&self, brokers: &Candidates) -> bool {
        let state = self.state();
        !state.fits(Usage::ONE) || !state.any_fits(brokers.names(), Usage::ONE)
    }

    /// How many more messages may be in flight to these brokers now.
    pub fn free(&self, brokers: &Candidates) -> usize {
        let state = self.state();
        let free = state.window.saturating_sub(state.used.messages);
        match brokers.names() {
            [] => free,
            names => free.min(state.free(names)),
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

    /// The broker with the fewest messages in flight, if `broker` has too many.
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

    /// Narrows the window of a broker that is overloaded.
    pub fn shrink_window(&self, broker: &str, now: Instant) {
        self.change_window(broker, |window, _| window.shrink_window(now));
    }

    /// Limits a broker that did not answer to its share until it answers again.
    pub fn reset_allowance(&self, broker: &str) {
        self.change_window(broker, |window, _| window.reset_allowance());
    }

    /// A broker has confirmed messages, which still count. Costs nothing while all windows are as wide as they may be,
    /// and no share is used up.
    pub fn confirm(&self, broker: &str, messages: usize) {
        if !self.is_guarded() {
            return;
        }
        self.change_window(broker, |window, shares| {
            if window.is_narrow() {
                window.confirm(messages);
            }
            window.grow_allowance(messages, shares);
        });
    }

    /// How many messages may be in flight now.
    pub fn window(&self) -> usize {
        self.window.load(Ordering::Relaxed)
    }

    /// The error for a sender that found no capacity in that time, for messages that go to one of these brokers.
    pub fn full(&self, waited: Duration, brokers: &Candidates) -> ClientError {
        let state = self.state();
        let has_room = state.fits(Usage::ONE);
        let windows = brokers.names().iter().filter_map(|name| {
            let window = state.brokers.by_name(name)?;
            let limit = state.brokers.limit_of(name, window, &state.waiters);
            Some(BrokerFull {
                name: name.clone(),
                messages: window.used.messages,
                bytes: window.used.bytes,
                window: window.width().min(limit.messages),
                byte_limit: limit.bytes,
            })
        });
        ClientError::TooManyInFlight(WindowFull {
            messages: state.used.messages,
            bytes: state.used.bytes,
            window: state.window,
            message_limit: self.limit.messages,
            byte_limit: self.limit.bytes,
            broker: windows.min_by_key(|broker| broker.messages).filter(|_| has_room),
            waited,
        })
    }

    /// Capacity returns. With it, `kept` leaves the window of the broker.
    fn release(&self, usage: Usage, kept: Usage, broker: Option<BrokerId>) {
        let mut state = self.state();
        let had_spare = state.has_spare();
        state.used.remove(usage);
        let opened = broker.is_some_and(|id| {
            state.brokers.update(id, |window| {
                window.used.remove(usage);
                window.used.remove(kept);
            })
        });
        self.finish(state, had_spare, opened);
    }

    /// A frame leaves for a broker; until now it counted in the window of `from`.
    fn dispatch(&self, usage: Usage, from: Option<BrokerId>, broker: &Arc<str>) -> BrokerId {
        let mut state = self.state();
        let had_spare = state.has_spare();
        let id = state.broker_id(broker);
        let opened = state.brokers.change(usage, from, Some(id));
        self.finish(state, had_spare, opened);
        id
    }

    /// Moves usage from one broker's window to another's, or out of all windows.
    fn change_broker(&self, usage: Usage, from: Option<BrokerId>, to: Option<BrokerId>) {
        let mut state = self.state();
        let had_spare = state.has_spare();
        let opened = state.brokers.change(usage, from, to);
        self.finish(state, had_spare, opened);
    }

    /// Changes a broker's window, if it has one; `change` also gets a broker's share and the whole capacity.
    fn change_window(&self, broker: &str, change: impl FnOnce(&mut BrokerWindow, (Usage, Usage))) {
        let mut state = self.state();
        let Some(id) = state.brokers.id(broker) else {
            return;
        };
        let had_spare = state.has_spare();
        let shares = (state.brokers.share(), self.limit);
        let mut is_wider_or_narrower = false;
        let opened = state.brokers.update(id, |window| {
            let width = window.width();
            change(window, shares);
            is_wider_or_narrower = window.width() != width;
        });
        if is_wider_or_narrower {
            state.adjust();
        }
        self.finish(state, had_spare, opened);
    }

    /// Ends a change: calls those whose condition holds now, without the lock. `had_spare`: a quarter of the capacity
    /// was free before it; `opened`: a broker's window opened.
    fn finish(&self, mut state: MutexGuard<'_, BackPressureState>, had_spare: bool, opened: bool) {
        let satisfied = state.take_satisfied(had_spare, opened);
        self.publish(&state);
        drop(state);
        for listener in satisfied {
            listener();
        }
    }

    /// Updates the copies that are read without the lock.
    fn publish(&self, state: &BackPressureState) {
        let copies = [
            (&self.window, state.window),
            (&self.narrow, state.narrow),
            (&self.full, state.brokers.full()),
        ];
        for (copy, now) in copies {
            if copy.load(Ordering::Relaxed) != now {
                copy.store(now, Ordering::Relaxed);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, BackPressureState> {
        lock(&self.state)
    }
}
