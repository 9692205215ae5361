//! Senders that wait for capacity, and threads and tasks that wait until nothing is in flight.

use super::candidates::Candidates;

/// What is waited for.
#[derive(Debug, Clone)]
pub enum Condition {
    /// A quarter of the capacity is free, and enough for one message of this size.
    Room {
        /// Bytes that it counts for.
        bytes: usize,
        /// The brokers that it may go to: one of them has capacity, too.
        brokers: Candidates,
    },
    /// Nothing on its way any more.
    Empty,
    /// Capacity for these: the listener is called once it is acquired.
    Entry {
        /// Messages.
        messages: usize,
        /// Bytes that they count for.
        bytes: usize,
        /// The brokers that they may go to: one of them has capacity, too.
        brokers: Candidates,
    },
}

impl Condition {
    /// Bytes that it waits for.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Room { bytes, .. } | Self::Entry { bytes, .. } => *bytes,
        }
    }

    /// The brokers whose windows matter.
    pub(super) fn brokers(&self) -> &Candidates {
        const ANYWHERE: &Candidates = &Candidates::NONE;
        match self {
            Self::Empty => ANYWHERE,
            Self::Room { brokers, .. } | Self::Entry { brokers, .. } => brokers,
        }
    }
}

/// Called once, by the thread that releases capacity; it must not block.
pub type Listener = Box<dyn FnOnce() + Send>;

pub(super) struct CapacityWaiter {
    number: u64,
    pub(super) condition: Condition,
    pub(super) listener: Listener,
}

/// Senders and others that wait, in the order in which they came.
#[derive(Default)]
pub(super) struct CapacityWaiters {
    /// Waiters whose messages may go anywhere.
    pub(super) anywhere: Vec<CapacityWaiter>,
    /// Waiters whose messages may go to some brokers only. A separate list: while a broker is stalled these may be
    /// many, and they are checked only when a window opens or capacity returns.
    pub(super) at_brokers: Vec<CapacityWaiter>,
    last_number: u64,
}

impl CapacityWaiters {
    pub(super) fn push(&mut self, condition: Condition, listener: Listener) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let list = if condition.brokers().names().is_empty() {
            &mut self.anywhere
        } else {
            &mut self.at_brokers
        };
        list.push(CapacityWaiter {
            number,
            condition,
            listener,
        });
        number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.anywhere.is_empty() && self.at_brokers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.anywhere.len() + self.at_brokers.len()
    }

    /// Whether a sender waits whose messages cannot go to this broker.
    pub(super) fn wait_for_another(&self, broker: &str) -> bool {
        self.at_brokers.iter().any(|waiter| {
            let mut names = waiter.condition.brokers().names().iter();
            names.all(|name| **name != *broker)
        })
    }

    pub(super) fn has(&self, number: u64) -> bool {
        let mut all = self.anywhere.iter().chain(&self.at_brokers);
        all.any(|waiter| waiter.number == number)
    }

    /// The waiter of this number; `None` when it was called before.
    pub(super) fn remove(&mut self, number: u64) -> Option<CapacityWaiter> {
        let mut lists = [&mut self.anywhere, &mut self.at_brokers].into_iter();
        lists.find_map(|list| {
            let at = list.iter().position(|waiter| waiter.number == number)?;
            Some(list.remove(at))
        })
    }
}
