//! The requests that wait for the peer's answer, by opaque number.
//!
//! Deadlines are found by scanning, not by a timer for each request: only the earliest deadline that was ever added
//! since the last scan is kept, so a busy connection scans once per timeout length, whatever its rate.

use super::NetError;
use crate::command::Command;
use crate::error::WireError;
use crate::hash::NameMap;
use bytes::Bytes;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Who waits for a request's outcome: any function, or what holds all about a request in one piece of memory.
pub trait ResponseHandler: Send {
    /// Gets the outcome, once: from the connection's task, or from the call that asked when nothing could be queued. It
    /// must not block.
    fn on_response(self: Box<Self>, outcome: Result<Command, NetError>);
}

impl<F: FnOnce(Result<Command, NetError>) + Send> ResponseHandler for F {
    fn on_response(self: Box<Self>, outcome: Result<Command, NetError>) {
        self(outcome);
    }
}

/// A request that holds all about itself in one piece of memory: it writes its own frame, and waits for the outcome.
pub trait OutboundRequest: ResponseHandler {
    /// Where it goes, `host:port`.
    fn address(&self) -> &str;
    /// Appends everything of its frame but the body, with this number; called again when the number changes.
    fn write_head(&self, opaque: i32, out: &mut Vec<u8>) -> Result<(), WireError>;
    /// Its body.
    fn body(&self) -> &Bytes;
    /// It is in the queue: lets go of what it needs only to be written, on the thread that has it at hand.
    fn on_queued(&mut self) {}
}

/// Gets a request's outcome, once.
pub type Callback = Box<dyn ResponseHandler>;

/// One request that waits.
pub(super) struct Waiter {
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) callback: Callback,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    waiters: NameMap<i32, Waiter>,
    earliest: Option<Instant>,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn contains(&self, opaque: i32) -> bool {
        self.waiters.contains_key(&opaque)
    }

    pub(super) fn insert(&mut self, opaque: i32, waiter: Waiter) {
        self.earliest = Some(
            self.earliest
                .map_or(waiter.deadline, |earliest| earliest.min(waiter.deadline)),
        );
        self.waiters.insert(opaque, waiter);
    }

    pub(super) fn take(&mut self, opaque: i32) -> Option<Waiter> {
        self.waiters.remove(&opaque)
    }

    /// When [`Pending::expire`] should run next: never later than the first deadline.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Takes out every request whose deadline has come.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(i32, Waiter)> {
        let expired = self
            .waiters
            .extract_if(|_, waiter| waiter.deadline <= now)
            .collect();
        self.earliest = self.waiters.values().map(|waiter| waiter.deadline).min();
        expired
    }

    /// Takes out all.
    pub(super) fn drain(&mut self) -> Vec<(i32, Waiter)> {
        self.earliest = None;
        std::mem::take(&mut self.waiters).into_iter().collect()
    }
}
