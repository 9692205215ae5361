//! Delivery callbacks, and threads that wait for room or for the end of what is on its way.
//!
//! A thread that waits runs callbacks meanwhile: a message counts as on its way until its callback has run, so they are
//! what makes room when nobody polls. Each waiting thread has a wake-up of its own, which the gate sets when it is let
//! in, and the inbox when callbacks are due.

use crate::enter;
use crate::inbox::{Inbox, hand_on};
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use pyrmq_client::accumulate::Landed;
use pyrmq_client::gate::{Gate, Listener, Want};
use pyrmq_client::signal::Signal;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Whose thread runs callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thread {
    /// The caller's: Ctrl-C and `sys.exit` in a callback end the call, and what is left is told later.
    Callers,
    /// Ours: nothing that a callback raises may end it.
    Ours,
}

/// The delivery callbacks of one producer.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    pub(crate) inbox: Inbox,
    on_error: OnceLock<Py<PyAny>>,
}

fn setting(signal: &Arc<Signal>) -> Listener {
    let signal = signal.clone();
    Box::new(move || signal.set())
}

impl Callbacks {
    /// `on_error(exception)` is told of what callbacks raise.
    pub(crate) fn tell_errors_to(&self, on_error: Py<PyAny>) {
        self.on_error.get_or_init(|| on_error);
    }

    /// Runs the callbacks that are due; how many.
    pub(crate) fn serve(&self, py: Python<'_>, gate: &Gate) -> PyResult<usize> {
        self.serve_from(py, &self.inbox, gate, Thread::Callers)
    }

    /// Hands on what has landed in an inbox; the number of messages.
    pub(crate) fn serve_from(
        &self,
        py: Python<'_>,
        inbox: &Inbox,
        gate: &Gate,
        thread: Thread,
    ) -> PyResult<usize> {
        let mut served = 0;
        while let Some(landed) = inbox.pop() {
            gate.leave(landed.tickets.len(), 0);
            let batch = landed.batch;
            let outcome = landed.outcome;
            let mut tickets = landed.tickets.into_iter();
            let mut failed = None;
            for (place, ticket) in tickets.by_ref() {
                served += 1;
                let handed = hand_on(py, ticket, batch.then_some(place), &outcome);
                failed = handed.err().and_then(|error| self.tell(py, error, thread).err());
                if failed.is_some() {
                    break;
                }
            }
            let Some(error) = failed else { continue };
            let rest: Vec<_> = tickets.collect();
            if !rest.is_empty() {
                gate.enter_anyway(rest.len(), 0);
                inbox.state().frames.push_front(Landed {
                    tickets: rest,
                    batch,
                    outcome,
                });
            }
            return Err(error);
        }
        Ok(served)
    }

    /// Tells what a callback raised, unless it ends the call. Whoever is told may raise, too: a logging handler.
    fn tell(&self, py: Python<'_>, error: PyErr, thread: Thread) -> PyResult<()> {
        let ends = |error: &PyErr| {
            thread == Thread::Callers
                && (error.is_instance_of::<PyKeyboardInterrupt>(py)
                    || error.is_instance_of::<PySystemExit>(py))
        };
        if ends(&error) {
            return Err(error);
        }
        let told = match self.on_error.get() {
            Some(on_error) => on_error.call1(py, (error.into_value(py),)).map(drop),
            None => Err(error),
        };
        match told {
            Err(raised) if ends(&raised) => Err(raised),
            Err(raised) => {
                raised.write_unraisable(py, None);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Comes in through the gate; false when there was no room until `deadline`.
    pub(crate) fn come_in(
        &self,
        py: Python<'_>,
        gate: &Gate,
        (messages, bytes): (usize, usize),
        deadline: Instant,
    ) -> PyResult<bool> {
        let attending = self.inbox.attend();
        let signal = attending.signal();
        let mut place = gate.line_up(messages, bytes, setting(signal));
        loop {
            self.serve(py, gate)?;
            // Once more when the time is over: whoever fits is not refused.
            if place.try_enter() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            enter::wait(py, |slice| {
                let left = deadline.saturating_duration_since(Instant::now());
                (signal.wait(slice.min(left)) || place.try_enter() || left <= slice).then_some(())
            })?;
        }
    }

    /// Runs callbacks until nothing is on its way but `apart`; false when the time passed first.
    pub(crate) fn serve_until_empty(
        &self,
        py: Python<'_>,
        gate: &Gate,
        apart: impl Fn() -> usize,
        deadline: Instant,
    ) -> PyResult<bool> {
        let attending = self.inbox.attend();
        let signal = attending.signal();
        let watch = gate.watch(Want::Empty, setting(signal));
        loop {
            self.serve(py, gate)?;
            if watch.is_told() || gate.waiting() <= apart() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            wait_for(py, signal, deadline)?;
        }
    }

    /// Runs the callbacks that are due, after waiting for the first until `deadline`; how many.
    pub(crate) fn poll(&self, py: Python<'_>, gate: &Gate, deadline: Instant) -> PyResult<usize> {
        let attending = self.inbox.attend();
        loop {
            let served = self.serve(py, gate)?;
            if served > 0 || Instant::now() >= deadline || self.inbox.state().closed {
                return Ok(served);
            }
            wait_for(py, attending.signal(), deadline)?;
        }
    }
}

/// Sleeps until the signal is set, or the time is over.
pub(crate) fn wait_for(py: Python<'_>, signal: &Signal, deadline: Instant) -> PyResult<()> {
    enter::wait(py, |slice: Duration| {
        let left = deadline.saturating_duration_since(Instant::now());
        (signal.wait(slice.min(left)) || left <= slice).then_some(())
    })
}
