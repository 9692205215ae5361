//! Our own requests on a link: queued with their wait, answered, timed out, ended with the connection.

use super::link::{Link, Phase, State, cost};
use super::pending::{Callback, Waiter};
use super::{CloseReason, NetError};
use crate::command::{Command, FLAG_ONEWAY};
use crate::error::WireError;
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Stands for deadlines that a clock cannot hold.
const FAR: Duration = Duration::from_hours(24 * 365);

/// A request that was not queued, given back.
pub(super) struct Rejected {
    pub(super) error: NetError,
    pub(super) command: Command,
    pub(super) callback: Callback,
}

impl Link {
    /// Queues a request and its wait. Nothing was queued when an error comes back, with command and callback.
    pub(super) fn request(
        &self,
        mut command: Command,
        timeout: Duration,
        callback: Callback,
    ) -> Result<(), Box<Rejected>> {
        let cost = cost(&command);
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + FAR);
        let mut state = self.lock();
        if let Err(error) = self.takes(&state, state.pending.len()) {
            drop(state);
            return Err(Box::new(Rejected {
                error,
                command,
                callback,
            }));
        }
        command.opaque = self.next_opaque();
        // After 2^32 requests a number may still be waited for.
        while state.pending.contains(command.opaque) {
            command.opaque = self.next_opaque();
        }
        self.queued.fetch_add(cost, Ordering::Relaxed);
        let waiter = Waiter {
            deadline,
            timeout,
            callback,
        };
        state.pending.insert(command.opaque, waiter);
        state.queue.push_back(command);
        let waker = state.parked.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Queues a request that nobody answers.
    pub(super) fn oneway(&self, mut command: Command) -> Result<(), Box<(NetError, Command)>> {
        let refused = self.takes(&self.lock(), 0);
        if let Err(error) = refused {
            return Err(Box::new((error, command)));
        }
        command.opaque = self.next_opaque();
        command.flag |= FLAG_ONEWAY;
        self.enqueue(command);
        Ok(())
    }

    /// Whether one more of our requests may be queued.
    fn takes(&self, state: &State, pending: usize) -> Result<(), NetError> {
        let address = || self.address.clone();
        if self.phase() >= Phase::Closing {
            let reason = state.reason.clone().unwrap_or(CloseReason::Here);
            let address = address();
            return Err(NetError::NotSent { address, reason });
        }
        let queued = self.queued.load(Ordering::Relaxed);
        let (waiting, unit, limit) = if pending >= self.pending_limit {
            (pending, "requests", self.pending_limit)
        } else if queued >= self.outgoing_bytes {
            (queued, "bytes", self.outgoing_bytes)
        } else {
            return Ok(());
        };
        Err(NetError::Busy {
            address: address(),
            waiting,
            unit,
            limit,
        })
    }

    pub(super) fn next_opaque(&self) -> i32 {
        self.opaque.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands responses to those who wait; returns how many nobody waited for.
    pub(super) fn complete(&self, responses: &mut Vec<Command>, scratch: &mut Vec<(Waiter, Command)>) -> u64 {
        let mut late = 0;
        let mut state = self.lock();
        for response in responses.drain(..) {
            match state.pending.take(response.opaque) {
                Some(waiter) => scratch.push((waiter, response)),
                None => late += 1,
            }
        }
        drop(state);
        for (waiter, response) in scratch.drain(..) {
            call(waiter.callback, Ok(response));
        }
        late
    }

    /// Ends the waits whose time has come, and takes back those of their requests that have not left.
    pub(super) fn expire(&self, now: Instant, ready: &mut VecDeque<Command>) {
        let mut state = self.lock();
        let expired = state.pending.expire(now);
        let mut unsent = HashSet::new();
        if !expired.is_empty() {
            let opaques: HashSet<i32> = expired.iter().map(|(opaque, _)| *opaque).collect();
            let mut keep = |command: &Command| {
                let drop = !command.is_response() && opaques.contains(&command.opaque);
                if drop {
                    self.queued.fetch_sub(cost(command), Ordering::Relaxed);
                    unsent.insert(command.opaque);
                }
                !drop
            };
            ready.retain(&mut keep);
            state.queue.retain(&mut keep);
        }
        drop(state);
        for (opaque, waiter) in expired {
            let error = NetError::Timeout {
                address: self.address.clone(),
                timeout: waiter.timeout,
                sent: !unsent.contains(&opaque),
            };
            call(waiter.callback, Err(error));
        }
    }

    /// Ends one wait because its request cannot be written.
    pub(super) fn refuse(&self, opaque: i32, error: WireError) {
        let waiter = self.lock().pending.take(opaque);
        if let Some(waiter) = waiter {
            call(waiter.callback, Err(NetError::Frame(error)));
        }
    }

    /// The end: every wait ends now. Requests in `ready` or still queued are known not to have left.
    pub(super) fn end(&self, mut ready: VecDeque<Command>, reason: &CloseReason, connect: Option<&NetError>) {
        let mut state = self.lock();
        state.reason.get_or_insert_with(|| reason.clone());
        self.phase.fetch_max(Phase::Gone as u8, Ordering::AcqRel);
        ready.append(&mut state.queue);
        let pending = state.pending.drain();
        let opened = std::mem::take(&mut state.opened);
        state.parked = None;
        drop(state);
        self.queued.store(0, Ordering::Relaxed);
        let unsent: HashSet<i32> = ready
            .iter()
            .filter(|command| !command.is_response())
            .map(|command| command.opaque)
            .collect();
        let (address, reason) = (&self.address, reason.clone());
        for (opaque, waiter) in pending {
            let error = match connect {
                Some(error) => error.clone(),
                None if unsent.contains(&opaque) => NetError::NotSent {
                    address: address.clone(),
                    reason: reason.clone(),
                },
                None => NetError::ConnectionLost {
                    address: address.clone(),
                    reason: reason.clone(),
                },
            };
            call(waiter.callback, Err(error));
        }
        for callback in opened {
            callback(Err(connect.cloned().unwrap_or(NetError::Closed)));
        }
    }
}

/// A callback that panics must not take the connection with it.
pub(super) fn call(callback: Callback, result: Result<Command, NetError>) {
    if catch_unwind(AssertUnwindSafe(|| callback(result))).is_err() {
        tracing::error!("a response's callback panicked");
    }
}
