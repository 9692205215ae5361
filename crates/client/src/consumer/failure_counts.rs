//! Messages that listeners did not handle: how many there were, and what happened to them.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Tries of a message before it is a dead letter (Apache `getMaxReconsumeTimes`): orderly consumers try for ever.
const MAX_TRIES: i32 = 16;

/// What a listener did with a message that it did not handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Deliver it again: after the pause of this delay level, or the one that the broker chooses by the number of
    /// tries when it is 0. Consumers that keep an order use the pause of `Again`.
    Later {
        /// Delay level, 0 to 18.
        delay_level: i32,
    },
    /// Deliver it again to this process after a pause.
    Again {
        /// The pause.
        pause: Duration,
    },
    /// The message cannot be handled: put it into the group's dead-letter topic.
    Dead,
    /// The listener did not get to it: give it to another one.
    Untouched,
}

/// Counters of what happened to messages that were not handled.
#[derive(Debug)]
pub(crate) struct Counts {
    later: AtomicU64,
    dead: AtomicU64,
    unreadable: AtomicU64,
    /// Messages on their way back to a broker.
    pub(crate) handing_back: AtomicUsize,
    /// The last message that was handed back was refused.
    pub(crate) is_refused: AtomicBool,
    /// The group's own maximum of tries, from its broker.
    pub(crate) max_tries: AtomicI32,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            later: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
            handing_back: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
            max_tries: AtomicI32::new(MAX_TRIES),
        }
    }
}

/// Counts, since the start, of what happened to messages that were not handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureCounts {
    /// Messages that are delivered again.
    pub later: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Messages that could not be read, and were skipped.
    pub unreadable: u64,
}

impl Counts {
    pub(crate) fn read(&self) -> FailureCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FailureCounts {
            later: read(&self.later),
            dead: read(&self.dead),
            unreadable: read(&self.unreadable),
        }
    }

    pub(crate) fn add_unreadable(&self) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_later(&self) {
        self.later.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_dead(&self) {
        self.dead.fetch_add(1, Ordering::Relaxed);
    }
}
