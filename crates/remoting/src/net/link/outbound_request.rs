//! Our requests on a link: queued with their wait, answered, timed out, or ended with the connection.

use crate::codes::response;
use crate::command::{Command, FLAG_ONEWAY};
use crate::error::WireError;
use crate::net::link::pending::{Callback, MemberId, OutboundRequest, PendingRequest};
use crate::net::link::send_queue::{QueuedFrame, SendQueue, cost_of};
use crate::net::link::{Link, Phase, State};
use crate::net::{CloseReason, NetError};
use bytes::Bytes;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Replaces deadlines that a clock cannot represent.
const FAR_FUTURE: Duration = Duration::from_hours(24 * 365);

/// A request that was not queued, returned to the caller.
pub(crate) struct Rejected<Q> {
    pub(crate) error: NetError,
    pub(crate) request: Q,
}

/// A request to be queued, with the handler of its outcome.
pub(crate) trait Request: Sized {
    fn address(&self) -> &str;
    /// Sets its opaque number, which may change again.
    fn number(&mut self, opaque: i32) -> Result<(), WireError>;
    /// Returns the bytes of its body.
    fn body(&self) -> usize;
    /// Adds itself to the queue.
    fn queue(self, opaque: i32, queue: &mut SendQueue) -> Callback;
    /// Fails with this error; it was not queued.
    fn refuse(self, error: NetError);
}

/// A request in the form of a command.
pub(crate) struct Commanded<'a> {
    pub(crate) address: &'a str,
    pub(crate) command: Command,
    pub(crate) callback: Callback,
}

impl Request for Commanded<'_> {
    fn address(&self) -> &str {
        self.address
    }

    fn number(&mut self, opaque: i32) -> Result<(), WireError> {
        self.command.opaque = opaque;
        Ok(())
    }

    fn body(&self) -> usize {
        self.command.body.as_ref().map_or(0, Bytes::len)
    }

    fn queue(self, _opaque: i32, queue: &mut SendQueue) -> Callback {
        queue.push(self.command);
        self.callback
    }

    fn refuse(self, error: NetError) {
        call(self.callback, Err(error));
    }
}

/// A request whose sender writes its head.
pub(crate) struct Framed<'a, A> {
    pub(crate) outbound: Box<A>,
    pub(crate) head: &'a mut Vec<u8>,
}

impl<A: OutboundRequest + 'static> Request for Framed<'_, A> {
    fn address(&self) -> &str {
        self.outbound.address()
    }

    fn number(&mut self, opaque: i32) -> Result<(), WireError> {
        self.head.clear();
        self.outbound.write_head(opaque, self.head)
    }

    fn body(&self) -> usize {
        self.outbound.body().len()
    }

    fn queue(mut self, opaque: i32, queue: &mut SendQueue) -> Callback {
        queue.push_written(Some(opaque), self.head, Some(self.outbound.body()));
        self.outbound.on_queued();
        self.outbound
    }

    fn refuse(self, error: NetError) {
        self.outbound.complete(Err(error));
    }
}

impl Link {
    /// Queues a request and its wait. On an error nothing was queued, and the request is returned with it.
    pub(crate) fn request<Q: Request>(
        &self,
        mut request: Q,
        (now, timeout): (Instant, Duration),
        member: MemberId,
    ) -> Result<(), Box<Rejected<Q>>> {
        let rejected = |error, request| Err(Box::new(Rejected { error, request }));
        let deadline = now.checked_add(timeout).unwrap_or(now + FAR_FUTURE);
        // Write its head before taking the lock.
        let mut opaque = self.next_opaque();
        if let Err(error) = request.number(opaque) {
            return rejected(NetError::Frame(error), request);
        }
        let mut state = self.lock();
        if let Err(error) = self.takes(&state, state.pending.len()) {
            drop(state);
            return rejected(error, request);
        }
        // After 2^32 requests, an old request may still wait under this number.
        while state.pending.contains(opaque) {
            opaque = self.next_opaque();
            if let Err(error) = request.number(opaque) {
                drop(state);
                return rejected(NetError::Frame(error), request);
            }
        }
        self.queued.fetch_add(cost_of(request.body()), Ordering::Relaxed);
        let pending_request = PendingRequest {
            deadline,
            timeout,
            member,
            callback: request.queue(opaque, &mut state.queue),
        };
        state.pending.insert(opaque, pending_request);
        let waker = state.parked.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Queues a oneway request.
    pub(crate) fn oneway(&self, mut command: Command) -> Result<(), Box<(NetError, Command)>> {
        let refused = self.takes(&self.lock(), 0);
        if let Err(error) = refused {
            return Err(Box::new((error, command)));
        }
        command.opaque = self.next_opaque();
        command.flag |= FLAG_ONEWAY;
        self.enqueue(command);
        Ok(())
    }

    /// Checks whether one more of our requests may be queued.
    fn takes(&self, state: &State, pending: usize) -> Result<(), NetError> {
        let address = || self.address.clone();
        if self.phase() >= Phase::Closing {
            // A connection may fail to open before its first request is queued.
            return Err(state.failed.clone().unwrap_or_else(|| NetError::NotSent {
                address: address(),
                reason: state.reason.clone().unwrap_or(CloseReason::Here),
            }));
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

    pub(crate) fn next_opaque(&self) -> i32 {
        self.opaque.fetch_add(1, Ordering::Relaxed)
    }

    /// Passes responses to their handlers; returns the number of responses without a waiting request.
    pub(crate) fn complete(
        &self,
        responses: &mut Vec<Command>,
        completed: &mut Vec<(PendingRequest, Command)>,
    ) -> u64 {
        let mut late = 0;
        let mut state = self.lock();
        for response in responses.drain(..) {
            match state.pending.take(response.opaque) {
                Some(pending_request) => completed.push((pending_request, response)),
                None => late += 1,
            }
        }
        drop(state);
        for (pending_request, response) in completed.drain(..) {
            call(pending_request.callback, self.refuse_go_away(response));
        }
        late
    }

    /// Retires the address of a server that stops: the next request opens a new connection, which fails or finds its
    /// successor.
    fn refuse_go_away(&self, answer: Command) -> Result<Command, NetError> {
        let Some(retire) = self.retire.as_ref().filter(|_| answer.code == response::GO_AWAY) else {
            return Ok(answer);
        };
        if let Some(client) = retire.upgrade() {
            client.retire(&self.address);
        }
        Err(NetError::GoAway {
            address: self.address.clone(),
        })
    }

    /// Ends the waits whose deadline has passed, and removes those of their requests that were not written yet.
    pub(crate) fn expire(&self, now: Instant, ready: &mut SendQueue) {
        let mut state = self.lock();
        let State { pending, queue, .. } = &mut *state;
        let expired = pending.expire(now);
        let unsent = self.take_unsent(&expired, [Some(ready), Some(queue)]);
        drop(state);
        for (opaque, pending_request) in expired {
            let error = NetError::Timeout {
                address: self.address.clone(),
                timeout: pending_request.timeout,
                sent: !unsent.contains(&opaque),
            };
            call(pending_request.callback, Err(error));
        }
    }

    /// Ends the waits of one of the clients that share the connection.
    pub(crate) fn abandon(&self, member: MemberId) {
        let mut state = self.lock();
        let State { pending, queue, .. } = &mut *state;
        let left = pending.take_of(member);
        let unsent = self.take_unsent(&left, [None, Some(queue)]);
        drop(state);
        for (opaque, pending_request) in left {
            let error = self.ended(unsent.contains(&opaque), &CloseReason::Here);
            call(pending_request.callback, Err(error));
        }
    }

    /// Removes requests from the queues; returns the numbers of those that were there.
    fn take_unsent(
        &self,
        requests: &[(i32, PendingRequest)],
        queues: [Option<&mut SendQueue>; 2],
    ) -> HashSet<i32> {
        let mut unsent = HashSet::new();
        if requests.is_empty() {
            return unsent;
        }
        let opaques: HashSet<i32> = requests.iter().map(|(opaque, _)| *opaque).collect();
        for queue in queues.into_iter().flatten() {
            queue.retain(|frame: &QueuedFrame| {
                let gone = frame.request().filter(|opaque| opaques.contains(opaque));
                if let Some(opaque) = gone {
                    self.queued.fetch_sub(frame.cost(), Ordering::Relaxed);
                    unsent.insert(opaque);
                }
                gone.is_none()
            });
        }
        unsent
    }

    /// The error of a request that gets no answer because the connection, or its client, has ended.
    fn ended(&self, is_unsent: bool, reason: &CloseReason) -> NetError {
        let (address, reason) = (self.address.clone(), reason.clone());
        if is_unsent {
            NetError::NotSent { address, reason }
        } else {
            NetError::ConnectionLost { address, reason }
        }
    }

    /// Ends one wait because its request cannot be encoded.
    pub(crate) fn refuse(&self, opaque: i32, error: WireError) {
        let pending_request = self.lock().pending.take(opaque);
        if let Some(pending_request) = pending_request {
            call(pending_request.callback, Err(NetError::Frame(error)));
        }
    }

    /// Ends every wait because the connection ended. Requests in `ready` or still queued were certainly not sent.
    pub(crate) fn end(&self, ready: &SendQueue, reason: &CloseReason, connect: Option<&NetError>) {
        let mut state = self.lock();
        state.reason.get_or_insert_with(|| reason.clone());
        if let Some(error) = connect {
            state.failed = Some(error.clone());
        }
        self.phase.fetch_max(Phase::Gone as u8, Ordering::AcqRel);
        let queued = std::mem::take(&mut state.queue);
        let pending = state.pending.drain();
        let opened = std::mem::take(&mut state.opened);
        state.parked = None;
        drop(state);
        self.queued.store(0, Ordering::Relaxed);
        let unsent: HashSet<i32> = ready.requests().chain(queued.requests()).collect();
        for (opaque, pending_request) in pending {
            let error = match connect {
                Some(error) => error.clone(),
                None => self.ended(unsent.contains(&opaque), reason),
            };
            call(pending_request.callback, Err(error));
        }
        for callback in opened {
            callback(Err(connect.cloned().unwrap_or(NetError::Closed)));
        }
    }
}

/// Calls a callback. A panic in it must not end the connection.
pub(crate) fn call(callback: Callback, result: Result<Command, NetError>) {
    if catch_unwind(AssertUnwindSafe(|| callback.complete(result))).is_err() {
        tracing::error!("a response's callback panicked");
    }
}
