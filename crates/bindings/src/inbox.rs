//! Outcomes on their way to who waits for them: callbacks, futures, threads.
//!
//! A landed frame's tickets are shared out on the connection's task, which touches nothing of Python: threads are
//! woken at once, callbacks and futures wait in an inbox until a thread of Python's takes them.

use crate::batch::Gathered;
use crate::delivery::{Delivery, End};
use crate::errors::Error;
use crate::outcome::{Bell, PySendResult, Waiter};
use pyo3::intern;
use pyo3::prelude::*;
use pyrmq_client::ClientError;
use pyrmq_client::accumulate::Landed;
use pyrmq_client::producer::{Producer, SendResult};
use pyrmq_client::signal::Signal;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What waits for a message's outcome.
#[derive(Debug)]
pub(crate) enum Ticket {
    /// `on_delivery(error, result)`.
    Call(Py<PyAny>),
    /// A future of `concurrent.futures`.
    Future(Py<PyAny>),
    /// A future of an event loop.
    Delivery(Py<Delivery>),
    /// A thread.
    Thread(Arc<Waiter>),
    /// A call of many messages, and the message's number in it.
    Member(Arc<Gathered>, u32),
}

/// Frames whose tickets wait for a thread of Python's.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    // Guards what has landed, and the threads that wait for it.
    state: Mutex<Landing>,
    pub(crate) bell: Option<Bell>,
}

impl Inbox {
    /// With a bell, an event loop is told of what lands, else the threads that attend.
    pub(crate) fn new(bell: Option<Bell>) -> Self {
        Self {
            state: Mutex::default(),
            bell,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Landing {
    pub(crate) frames: VecDeque<Landed<Ticket>>,
    attending: Vec<Arc<Signal>>,
    pub(crate) closed: bool,
}

impl Landing {
    fn wake_all(&self) {
        for signal in &self.attending {
            signal.set();
        }
    }
}

/// A thread that is woken by what lands; dropped, it is not any more.
pub(crate) struct Attending<'a> {
    inbox: &'a Inbox,
    signal: Arc<Signal>,
}

impl Attending<'_> {
    /// Set when something has landed, or the inbox was closed.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        let mut state = self.inbox.state();
        state.attending.retain(|other| !Arc::ptr_eq(other, &self.signal));
    }
}

impl Inbox {
    pub(crate) fn state(&self) -> MutexGuard<'_, Landing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, landed: Landed<Ticket>) {
        let mut state = self.state();
        let first = state.frames.is_empty();
        state.frames.push_back(landed);
        if first && self.bell.is_none() {
            state.wake_all();
        }
        drop(state);
        if first && let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// A thread is woken from now on; what has landed before it sees by itself.
    pub(crate) fn attend(&self) -> Attending<'_> {
        let signal: Arc<Signal> = Arc::default();
        self.state().attending.push(signal.clone());
        Attending { inbox: self, signal }
    }

    pub(crate) fn pop(&self) -> Option<Landed<Ticket>> {
        self.state().frames.pop_front()
    }

    /// Messages whose outcome nobody has fetched.
    pub(crate) fn tickets(&self) -> usize {
        let state = self.state();
        state.frames.iter().map(|landed| landed.tickets.len()).sum()
    }

    /// Makes the waiting threads look again.
    pub(crate) fn kick(&self) {
        self.state().wake_all();
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.wake_all();
    }
}

/// Calls back, or completes the future.
pub(crate) fn hand_on(
    py: Python<'_>,
    ticket: Ticket,
    place: Option<u32>,
    outcome: &Result<Arc<SendResult>, ClientError>,
) -> PyResult<()> {
    if let Ticket::Delivery(future) = &ticket
        && future.get().is_done()
    {
        // A cancelled future has nobody who waits.
        return Ok(());
    }
    let value = match outcome {
        Ok(frame) => Ok(Py::new(py, PySendResult::of(frame.clone(), place))?),
        Err(error) => Err(Error::from(error.clone().of_item(place))
            .into_py(py)
            .into_value(py)),
    };
    match ticket {
        Ticket::Call(call) => {
            match value {
                Ok(result) => call.call1(py, (py.None(), result))?,
                Err(error) => call.call1(py, (error, py.None()))?,
            };
        }
        Ticket::Future(future) => {
            let future = future.bind(py);
            // A cancelled future has nobody who waits.
            if future.call_method0(intern!(py, "done"))?.is_truthy()? {
                return Ok(());
            }
            match value {
                Ok(result) => future.call_method1(intern!(py, "set_result"), (result,))?,
                Err(error) => future.call_method1(intern!(py, "set_exception"), (error,))?,
            };
        }
        Ticket::Delivery(future) => {
            let end = match value {
                Ok(result) => End::Value(result.into_any()),
                Err(error) => End::Error(error.into_any()),
            };
            Delivery::complete(future.bind(py), end)?;
        }
        Ticket::Thread(_) | Ticket::Member(..) => {}
    }
    Ok(())
}

/// Shares a frame's tickets out. Threads are woken here; all else waits in its inbox.
pub(crate) fn share(producer: &Producer, calls: &Inbox, futures: &Inbox, landed: Landed<Ticket>) {
    let Landed {
        tickets,
        batch,
        outcome,
    } = landed;
    let (mut to_call, mut to_complete, mut to_wake) = (Vec::new(), Vec::new(), Vec::new());
    let mut to_gather = Vec::new();
    for (place, ticket) in tickets {
        match ticket {
            Ticket::Call(_) => to_call.push((place, ticket)),
            Ticket::Future(_) | Ticket::Delivery(_) => to_complete.push((place, ticket)),
            Ticket::Member(gathered, member) => to_gather.push((gathered, place, member)),
            Ticket::Thread(waiter) => {
                let place = batch.then_some(place);
                let share = outcome
                    .clone()
                    .map(|frame| (frame, place))
                    .map_err(|error| error.of_item(place));
                to_wake.push((waiter, share));
            }
        }
    }
    if !to_gather.is_empty() {
        producer.gate().leave(to_gather.len(), 0);
        Gathered::bring_all(&to_gather, &outcome);
    }
    if !to_wake.is_empty() {
        producer.gate().leave(to_wake.len(), 0);
        Waiter::set_all(to_wake);
    }
    let for_a_loop = futures.bell.is_some() && !to_complete.is_empty();
    for (inbox, tickets) in [(calls, to_call), (futures, to_complete)] {
        if !tickets.is_empty() {
            let outcome = outcome.clone();
            inbox.push(Landed {
                tickets,
                batch,
                outcome,
            });
        }
    }
    if for_a_loop {
        // A producer that is dropped may wait for this.
        calls.kick();
    }
}
