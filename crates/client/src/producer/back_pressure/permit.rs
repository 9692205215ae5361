//! Capacity as a value: it is acquired once, travels with its messages, and returns when it is dropped.
//!
//! A permit splits and merges as its messages do (a batch, its halves), so no code works out what to give back. While
//! its messages are in flight to a broker, the permit also counts in that broker's window; dropping it ends both.
//!
//! [`Permit`] owns a reference to the back pressure. [`BorrowedPermit`] borrows it: a message that only joins a batch
//! needs no reference count of its own.

use super::BackPressure;
use super::window::{BrokerId, Usage};
use std::borrow::Borrow;
use std::sync::Arc;

/// Capacity for messages and their bytes.
#[derive(Debug)]
#[must_use = "dropped, the capacity returns"]
pub struct Permit<B: Borrow<Arc<BackPressure>> = Arc<BackPressure>> {
    back_pressure: B,
    usage: Usage,
    // The broker in whose window it counts; `None` while it is empty.
    broker: Option<BrokerId>,
}

/// Capacity that borrows the back pressure it returns to.
pub type BorrowedPermit<'a> = Permit<&'a Arc<BackPressure>>;

impl<'a> BorrowedPermit<'a> {
    pub(super) fn new(back_pressure: &'a Arc<BackPressure>, usage: Usage, broker: Option<BrokerId>) -> Self {
        Self {
            back_pressure,
            usage,
            broker,
        }
    }

    /// Turns this into a permit that owns its capacity, so it may outlive the borrow.
    pub fn into_owned(mut self) -> Permit {
        let mut owned = Permit::empty(self.back_pressure);
        owned.absorb(&mut self);
        owned
    }
}

impl Permit {
    /// Capacity for nothing, to merge others into.
    pub fn empty(back_pressure: &Arc<BackPressure>) -> Self {
        Self {
            back_pressure: back_pressure.clone(),
            usage: Usage::default(),
            broker: None,
        }
    }
}

impl<B: Borrow<Arc<BackPressure>>> Permit<B> {
    /// Messages that it is for.
    pub fn messages(&self) -> usize {
        self.usage.messages
    }

    /// Bytes that it is for.
    pub fn bytes(&self) -> usize {
        self.usage.bytes
    }

    /// Splits off capacity for this many, or as much as there is.
    pub fn split(&mut self, messages: usize, bytes: usize) -> Permit {
        let part = self.usage.take(messages, bytes);
        let mut split = Permit::empty(self.back_pressure.borrow());
        if !part.is_empty() {
            (split.usage, split.broker) = (part, self.broker);
        }
        if self.usage.is_empty() {
            self.broker = None;
        }
        split
    }

    /// Takes out all of it.
    pub fn take(&mut self) -> Permit {
        self.split(usize::MAX, usize::MAX)
    }

    /// Adds the capacity of another. All of it counts in the window of one broker then: this one's, if it has one.
    pub fn merge<C: Borrow<Arc<BackPressure>>>(&mut self, mut other: Permit<C>) {
        self.absorb(&mut other);
    }

    /// Moves all of `other`'s capacity into this permit and leaves `other` empty. See [`Self::merge`].
    pub(crate) fn absorb<C: Borrow<Arc<BackPressure>>>(&mut self, other: &mut Permit<C>) {
        debug_assert!(Arc::ptr_eq(
            self.back_pressure.borrow(),
            other.back_pressure.borrow()
        ));
        let (usage, broker) = (std::mem::take(&mut other.usage), other.broker.take());
        if usage.is_empty() {
            return;
        }
        if self.usage.is_empty() {
            self.broker = broker;
        } else if self.broker.is_none() && broker.is_some() {
            self.back_pressure
                .borrow()
                .change_broker(self.usage, None, broker);
            self.broker = broker;
        } else if self.broker != broker {
            self.back_pressure
                .borrow()
                .change_broker(usage, broker, self.broker);
        }
        self.usage.add(usage);
    }

    /// Counts the messages in the window of the broker that they are sent to.
    pub fn dispatch(&mut self, broker: &Arc<str>) {
        if !self.usage.is_empty() {
            let back_pressure = self.back_pressure.borrow();
            self.broker = Some(back_pressure.dispatch(self.usage, self.broker, broker));
        }
    }

    /// Takes the messages, which were answered, out of their broker's window.
    pub fn on_response(&mut self) {
        if let Some(broker) = self.broker.take() {
            self.back_pressure
                .borrow()
                .change_broker(self.usage, Some(broker), None);
        }
    }

    /// Records that a broker has confirmed the messages, which still count: its window may widen.
    pub fn confirm(&self, broker: &str) {
        self.back_pressure.borrow().confirm(broker, self.usage.messages);
    }

    /// Returns all capacity except one message for each completion. These messages are no longer in flight to a broker.
    pub fn keep_for<T>(&mut self, completions: &[T]) {
        let kept = self.usage.take(completions.len(), 0);
        let (rest, broker) = (std::mem::replace(&mut self.usage, kept), self.broker.take());
        self.back_pressure.borrow().release(rest, kept, broker);
    }
}

impl<B: Borrow<Arc<BackPressure>>> Drop for Permit<B> {
    fn drop(&mut self) {
        if !self.usage.is_empty() {
            let back_pressure = self.back_pressure.borrow();
            back_pressure.release(self.usage, Usage::default(), self.broker);
        }
    }
}
