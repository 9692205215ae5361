//! Threads that wait for outcomes that arrive together: they are woken one after the other.
//!
//! The thread that has the outcomes wakes the first one, and each wakes the next as soon as it runs. All at once would
//! contend for what they need next (the interpreter), and most would have to sleep again. No thread depends on what
//! another does after that. One that no longer waits is skipped.

use pyrmq_remoting::sync::{get_mut, lock, wait_while};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Where a thread waits for an outcome.
#[derive(Debug)]
pub struct SendWaiter<T> {
    // Guards the outcome, and the waiter to be woken next.
    slot: Mutex<WaitSlot<T>>,
    ready: Condvar,
}

#[derive(Debug)]
struct WaitSlot<T> {
    outcome: Option<T>,
    next: Option<Arc<SendWaiter<T>>>,
}

impl<T> Default for SendWaiter<T> {
    fn default() -> Self {
        Self {
            slot: Mutex::new(WaitSlot {
                outcome: None,
                next: None,
            }),
            ready: Condvar::new(),
        }
    }
}

impl<T> SendWaiter<T> {
    fn slot(&self) -> MutexGuard<'_, WaitSlot<T>> {
        lock(&self.slot)
    }

    /// Gives the outcome to the waiting thread.
    pub fn set(&self, outcome: T) {
        self.slot().outcome = Some(outcome);
        self.ready.notify_one();
    }

    /// Gives each its outcome, and wakes the first.
    pub fn set_all(waiting: Vec<(Arc<Self>, T)>) {
        let mut next: Option<Arc<Self>> = None;
        for (waiter, outcome) in waiting.into_iter().rev() {
            let mut slot = waiter.slot();
            (slot.outcome, slot.next) = (Some(outcome), next.take());
            drop(slot);
            next = Some(waiter);
        }
        if let Some(first) = next {
            first.ready.notify_one();
        }
    }

    /// Waits up to `slice` for the outcome.
    pub fn wait(&self, slice: Duration) -> Option<T> {
        let mut slot = wait_while(&self.ready, self.slot(), slice, |slot| slot.outcome.is_none());
        let (outcome, next) = (slot.outcome.take(), slot.next.take());
        drop(slot);
        if let Some(next) = next {
            next.ready.notify_one();
        }
        outcome
    }

    fn take_next(&mut self) -> Option<Arc<Self>> {
        let slot = get_mut(&mut self.slot);
        slot.next.take()
    }
}

impl<T> Drop for SendWaiter<T> {
    /// A thread that left without its outcome woke no other: the next ones are woken here.
    fn drop(&mut self) {
        let mut next = self.take_next();
        while let Some(waiter) = next {
            waiter.ready.notify_one();
            // In a loop: where many have left, each dropping the next one would recurse deeply.
            next = Arc::try_unwrap(waiter).ok().and_then(|mut gone| gone.take_next());
        }
    }
}
