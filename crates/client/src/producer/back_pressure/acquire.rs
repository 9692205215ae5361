//! Acquiring capacity: at once, or through a place in the queue.

use super::candidates::Candidates;
use super::permit::BorrowedPermit;
use super::waiting::{Condition, Listener};
use super::window::Usage;
use super::{BackPressure, BackPressureState};
use pyrmq_remoting::sync::wakeup::Wakeup;
use std::sync::Arc;
use std::time::Duration;

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
            if !state.try_admit(self.wanted, &self.brokers) {
                return None;
            }
            self.back_pressure.publish(&state);
            state.waiters.remove(self.number);
        }
        self.acquired = true;
        let permit = self.permit(&state);
        drop(state);
        Some(permit)
    }

    fn permit(&self, state: &BackPressureState) -> BorrowedPermit<'a> {
        let broker = state.brokers.only(&self.brokers);
        BorrowedPermit::new(self.back_pressure, self.wanted, broker)
    }
}

impl Drop for QueuedAcquire<'_> {
    fn drop(&mut self) {
        if self.acquired {
            return;
        }
        let mut state = self.back_pressure.state();
        // A sender that was admitted and gave up returns its capacity.
        let unused = match state.waiters.remove(self.number) {
            Some(_) => None,
            None => Some(self.permit(&state)),
        };
        drop(state);
        drop(unused);
    }
}

impl BackPressure {
    /// Acquires capacity if there is enough.
    pub fn try_acquire(self: &Arc<Self>, messages: usize, bytes: usize) -> Option<BorrowedPermit<'_>> {
        self.try_acquire_at(messages, bytes, &Candidates::NONE)
    }

    /// Acquires capacity if there is enough, also at one of these brokers, to which the messages go.
    pub fn try_acquire_at(
        self: &Arc<Self>,
        messages: usize,
        bytes: usize,
        brokers: &Candidates,
    ) -> Option<BorrowedPermit<'_>> {
        let wanted = Usage { messages, bytes };
        let mut state = self.state();
        if !state.try_admit(wanted, brokers) {
            return None;
        }
        let broker = state.brokers.only(brokers);
        if broker.is_some() {
            self.publish(&state);
        }
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

    /// Acquires capacity, also at one of these brokers, to which the messages go, or waits up to `slice` for it.
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
        let wakeup: Arc<Wakeup> = Arc::default();
        let satisfied = wakeup.clone();
        let listener = Box::new(move || satisfied.notify());
        let mut queued = self.enqueue_acquire(messages, bytes, brokers.clone(), listener);
        if let Some(permit) = queued.try_acquire() {
            return Some(permit);
        }
        wakeup.notified_within(slice);
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

    /// Calls `listener` once `condition` holds, which may be at once.
    pub fn notify_when(&self, condition: Condition, listener: Listener) {
        self.wait_for(condition, listener);
    }

    /// Calls `listener` once `condition` holds, which may be at once, unless the watch is dropped before.
    pub fn watch(&self, condition: Condition, listener: Listener) -> Watch<'_> {
        Watch {
            back_pressure: self,
            number: self.wait_for(condition, listener),
        }
    }

    /// Waits up to `slice` until nothing is on its way.
    pub fn empty(&self, slice: Duration) -> bool {
        let wakeup: Arc<Wakeup> = Arc::default();
        let satisfied = wakeup.clone();
        let watch = self.watch(Condition::Empty, Box::new(move || satisfied.notify()));
        watch.is_satisfied() || wakeup.notified_within(slice)
    }

    fn wait_for(&self, condition: Condition, listener: Listener) -> u64 {
        let mut state = self.state();
        let (number, satisfied) = state.push_waiter(condition, listener);
        self.publish(&state);
        drop(state);
        if let Some(listener) = satisfied {
            listener();
        }
        number
    }
}
