//! State that a connection's task shares with others: the queue of outgoing frames, the requests that wait for an
//! answer, and the connection's phase.
//!
//! One lock guards queue, waits and the sleeping task's waker, so sending a request takes one lock. A push wakes the
//! task only if it sleeps: frames that the task itself queues while it works cost no wake-up.

pub(super) mod outbound_request;
pub(super) mod peer;
pub(super) mod pending;
pub(super) mod send_queue;

use crate::command::Command;
use crate::net::link::outbound_request::{Commanded, Request};
use crate::net::link::pending::{Callback, MemberId, Pending};
use crate::net::link::send_queue::{SendQueue, cost_of};
use crate::net::{CloseReason, NetError, Outbox};
use crate::sync::lock;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::time::Instant;

/// Returns the bytes that a waiting frame counts for its connection.
pub(super) fn cost(command: &Command) -> usize {
    cost_of(command.body.as_ref().map_or(0, bytes::Bytes::len))
}

/// Phases of a connection. It only moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// The server is stopping: end as soon as the connection is idle.
    Draining,
    /// End once everything queued is written; nothing more is queued.
    Closing,
    /// End now.
    Cut,
    /// Ended.
    Gone,
}

impl Phase {
    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Open,
            1 => Self::Draining,
            2 => Self::Closing,
            3 => Self::Cut,
            _ => Self::Gone,
        }
    }
}

/// Whether the task may sleep.
pub(super) enum Park {
    /// The task must not sleep: there is new work.
    Awake,
    /// The task may sleep, until this moment at the latest.
    Asleep(Option<Instant>),
}

/// Called with the outcome of connecting.
pub(super) type Opened = Box<dyn FnOnce(Result<(), NetError>) + Send>;

#[derive(Default)]
pub(super) struct State {
    pub(super) queue: SendQueue,
    pub(super) pending: Pending,
    pub(super) parked: Option<Waker>,
    /// A pause has ended since the task last looked at `pauses`.
    reads_on: bool,
    pub(super) connected: bool,
    pub(super) opened: Vec<Opened>,
    pub(super) reason: Option<CloseReason>,
    /// Why it could not connect.
    pub(super) failed: Option<NetError>,
}

pub(super) struct Link {
    /// The address as the caller wrote it, or the remote address; used in errors.
    pub(super) address: String,
    // Guards everything that several threads change; see the module's documentation.
    state: Mutex<State>,
    pub(super) phase: AtomicU8,
    /// Bytes waiting in the queue or in the task's current batch.
    pub(super) queued: AtomicUsize,
    /// Unanswered requests of the peer.
    in_flight: AtomicUsize,
    /// While there are any, no more requests are read. Ends under the lock, and is read without it.
    pauses: AtomicUsize,
    /// The peer has closed the connection, whose last requests are not read yet.
    closed_by_peer: AtomicBool,
    pub(super) opaque: Arc<AtomicI32>,
    pub(super) outgoing_bytes: usize,
    outgoing_close_bytes: usize,
    pub(super) pending_limit: usize,
    /// Retires the address of a server that is stopping; `None` for a server's connections.
    pub(super) retire: Option<Weak<dyn RetireAddress>>,
}

/// The owner of the connections: a client's table of links.
pub(super) trait RetireAddress: Send + Sync {
    /// Called when the server at this address is stopping: the next request opens a new connection.
    fn retire(&self, address: &str);
}

impl Link {
    pub(super) fn new(
        address: String,
        options: &super::ConnectionOptions,
        opaque: Arc<AtomicI32>,
        connected: bool,
        retire: Option<Weak<dyn RetireAddress>>,
    ) -> Self {
        Self {
            address,
            state: Mutex::new(State {
                connected,
                ..State::default()
            }),
            phase: AtomicU8::new(0),
            queued: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            pauses: AtomicUsize::new(0),
            closed_by_peer: AtomicBool::new(false),
            opaque,
            outgoing_bytes: options.outgoing_bytes,
            outgoing_close_bytes: options.outgoing_close_bytes,
            pending_limit: options.pending,
            retire,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::from_number(self.phase.load(Ordering::Acquire))
    }

    /// Advances the phase and wakes the task.
    pub(super) fn advance(&self, phase: Phase) {
        let mut state = self.lock();
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        let waker = state.parked.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Advances the phase and records the reason.
    pub(super) fn advance_because(&self, phase: Phase, reason: CloseReason) {
        self.lock().reason.get_or_insert(reason);
        self.advance(phase);
    }

    pub(super) fn reason(&self) -> Option<CloseReason> {
        self.lock().reason.clone()
    }

    pub(super) fn written(&self, cost: usize) {
        self.queued.fetch_sub(cost, Ordering::Relaxed);
    }

    /// Counts one more unanswered request and returns their number.
    pub(super) fn begin_request(&self) -> usize {
        self.in_flight.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Returns true if the connection is idle: no unanswered request, nothing queued, no wait.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight() == 0 && self.queued.load(Ordering::Relaxed) == 0 && self.lock().pending.len() == 0
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pauses.load(Ordering::Acquire) > 0
    }

    pub(super) fn is_closed_by_peer(&self) -> bool {
        self.closed_by_peer.load(Ordering::Acquire)
    }

    /// Counts the connection as closed, although it ends only once its last requests were read.
    pub(super) fn mark_closed_by_peer(&self) {
        self.closed_by_peer.store(true, Ordering::Release);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.lock().connected && self.phase() < Phase::Closing
    }

    /// Marks the task as awake: pushes need not wake it.
    pub(super) fn unpark(&self) {
        let mut state = self.lock();
        state.parked = None;
        state.reads_on = false;
    }

    /// Asks whether the task may sleep. It may not if the phase has advanced beyond `seen`, if a pause has ended, or if
    /// a frame is queued and the task is not `blocked` by a full socket.
    pub(super) fn park(&self, waker: &Waker, seen: Phase, blocked: bool) -> Park {
        let mut state = self.lock();
        let reads_on = std::mem::take(&mut state.reads_on);
        if reads_on || self.phase() != seen || (!blocked && !state.queue.is_empty()) {
            return Park::Awake;
        }
        state.queue.shrink();
        state.parked = Some(waker.clone());
        Park::Asleep(state.pending.earliest())
    }

    /// Moves everything queued to `ready`, which is empty.
    pub(super) fn take_queue(&self, ready: &mut SendQueue) {
        ready.clear();
        std::mem::swap(&mut self.lock().queue, ready);
    }

    pub(super) fn enqueue(&self, command: Command) {
        self.enqueue_with(cost(&command), |queue| queue.push(command));
    }

    fn enqueue_with(&self, cost: usize, push: impl FnOnce(&mut SendQueue)) {
        let mut state = self.lock();
        if self.phase() >= Phase::Closing {
            return;
        }
        let queued = self.queued.fetch_add(cost, Ordering::Relaxed) + cost;
        push(&mut state.queue);
        if queued > self.outgoing_close_bytes {
            let limit = self.outgoing_close_bytes;
            state
                .reason
                .get_or_insert(CloseReason::Overflow { queued, limit });
            self.phase.fetch_max(Phase::Cut as u8, Ordering::AcqRel);
        }
        let waker = state.parked.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Marks the connection as open.
    pub(super) fn connected(&self) {
        let mut state = self.lock();
        state.connected = true;
        let opened = std::mem::take(&mut state.opened);
        drop(state);
        for callback in opened {
            callback(Ok(()));
        }
    }

    /// Calls back once the connection is open or has failed to open.
    pub(super) fn when_connected(&self, callback: Opened) {
        let mut state = self.lock();
        let result = if self.phase() >= Phase::Closing {
            Err(NetError::NotSent {
                address: self.address.clone(),
                reason: state.reason.clone().unwrap_or(CloseReason::Here),
            })
        } else if state.connected {
            Ok(())
        } else {
            state.opened.push(callback);
            return;
        };
        drop(state);
        callback(result);
    }
}

impl Outbox for Link {
    fn push(&self, command: Command) {
        self.enqueue(command);
    }

    fn reply(&self, command: Command) {
        // Queue the answer first: a thread that sees no request in flight must see its answer in the queue.
        self.enqueue(command);
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    fn reply_written(&self, head: &[u8]) {
        self.enqueue_with(cost_of(0), |queue| queue.push_written(None, head, None));
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    fn silence(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    fn request(&self, command: Command, timeout: Duration, callback: Callback) {
        let request = Commanded {
            address: &self.address,
            command,
            callback,
        };
        if let Err(rejected) = Link::request(self, request, (Instant::now(), timeout), MemberId::SERVER) {
            rejected.request.refuse(rejected.error);
        }
    }

    fn pause(&self) {
        self.pauses.fetch_add(1, Ordering::AcqRel);
    }

    fn read_on(&self) {
        let mut state = self.lock();
        if self.pauses.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        state.reads_on = true;
        let waker = state.parked.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_paused(&self) -> bool {
        Link::is_paused(self)
    }

    fn is_closed(&self) -> bool {
        self.phase() >= Phase::Closing || self.is_closed_by_peer()
    }

    fn close(&self) {
        self.advance_because(Phase::Closing, CloseReason::Here);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("address", &self.address)
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}
