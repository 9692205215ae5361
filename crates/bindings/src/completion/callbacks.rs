//! Delivery callbacks, and threads that wait for room or for the end of what is on its way.
//!
//! A thread that waits runs callbacks meanwhile: a message counts as on its way until its callback has run, so they are
//! what makes room when nobody polls. Each waiting thread has a wake-up of its own, which back pressure sets when
//! capacity is free, and the completion queue when callbacks are due.

use crate::completion::queue::{CompletionQueue, deliver};
use crate::enter;
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use pyrmq_client::producer::accumulator::BatchOutcome;
use pyrmq_client::producer::back_pressure::{BackPressure, BorrowedPermit, Candidates, Condition, Listener};
use pyrmq_remoting::sync::wakeup::Wakeup;
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
    pub(crate) completion_queue: CompletionQueue,
    on_error: OnceLock<Py<PyAny>>,
}

fn notifying(wakeup: &Arc<Wakeup>) -> Listener {
    let wakeup = wakeup.clone();
    Box::new(move || wakeup.notify())
}

impl Callbacks {
    /// `on_error(exception)` is told of what callbacks raise.
    pub(crate) fn tell_errors_to(&self, on_error: Py<PyAny>) {
        self.on_error.get_or_init(|| on_error);
    }

    /// Runs the callbacks that are due; how many.
    pub(crate) fn serve(&self, py: Python<'_>, back_pressure: &Arc<BackPressure>) -> PyResult<usize> {
        self.serve_from(py, &self.completion_queue, back_pressure, Thread::Callers)
    }

    /// Delivers what is in a completion queue; the number of messages.
    pub(crate) fn serve_from(
        &self,
        py: Python<'_>,
        completion_queue: &CompletionQueue,
        back_pressure: &Arc<BackPressure>,
        thread: Thread,
    ) -> PyResult<usize> {
        let mut served = 0;
        while let Some(batch_outcome) = completion_queue.pop() {
            let BatchOutcome {
                permit,
                completions,
                batch,
                outcome,
            } = batch_outcome;
            // A callback that sends needs the capacity.
            drop(permit);
            let mut completions = completions.into_iter();
            let mut failed = None;
            for (place, completion) in completions.by_ref() {
                served += 1;
                let handed = deliver(py, completion, batch.then_some(place), &outcome);
                failed = handed.err().and_then(|error| self.tell(py, error, thread).err());
                if failed.is_some() {
                    break;
                }
            }
            let Some(error) = failed else { continue };
            let rest: Vec<_> = completions.collect();
            if !rest.is_empty() {
                let permit = back_pressure.force_acquire(rest.len(), 0).into_owned();
                completion_queue.state().frames.push_front(BatchOutcome {
                    permit,
                    completions: rest,
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

    /// Acquires capacity; `None` when there was none until `deadline`.
    pub(crate) fn acquire_capacity<'a>(
        &self,
        py: Python<'_>,
        back_pressure: &'a Arc<BackPressure>,
        (messages, bytes, brokers): (usize, usize, &Candidates),
        deadline: Instant,
    ) -> PyResult<Option<BorrowedPermit<'a>>> {
        let wake_registration = self.completion_queue.register_thread();
        let wakeup = wake_registration.wakeup();
        let mut place = back_pressure.enqueue_acquire(messages, bytes, brokers.clone(), notifying(wakeup));
        loop {
            self.serve(py, back_pressure)?;
            // Once more when the time is over: whoever fits is not refused.
            if let Some(permit) = place.try_acquire() {
                return Ok(Some(permit));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            let acquired = enter::wait(py, |slice| {
                let left = deadline.saturating_duration_since(Instant::now());
                let is_set = wakeup.notified_within(slice.min(left));
                let permit = place.try_acquire();
                (is_set || permit.is_some() || left <= slice).then_some(permit)
            })?;
            if acquired.is_some() {
                return Ok(acquired);
            }
        }
    }

    /// Runs callbacks until nothing is on its way but `apart`; false when the time passed first.
    pub(crate) fn serve_until_empty(
        &self,
        py: Python<'_>,
        back_pressure: &Arc<BackPressure>,
        apart: impl Fn() -> usize,
        deadline: Instant,
    ) -> PyResult<bool> {
        let wake_registration = self.completion_queue.register_thread();
        let wakeup = wake_registration.wakeup();
        let watch = back_pressure.watch(Condition::Empty, notifying(wakeup));
        loop {
            self.serve(py, back_pressure)?;
            if watch.is_satisfied() || back_pressure.in_flight() <= apart() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            wait_for(py, wakeup, deadline)?;
        }
    }

    /// Runs the callbacks that are due, after waiting for the first until `deadline`; how many.
    pub(crate) fn poll(
        &self,
        py: Python<'_>,
        back_pressure: &Arc<BackPressure>,
        deadline: Instant,
    ) -> PyResult<usize> {
        let wake_registration = self.completion_queue.register_thread();
        loop {
            let served = self.serve(py, back_pressure)?;
            if served > 0 || Instant::now() >= deadline || self.completion_queue.state().closed {
                return Ok(served);
            }
            wait_for(py, wake_registration.wakeup(), deadline)?;
        }
    }
}

/// Sleeps until notified, or the time is over.
pub(crate) fn wait_for(py: Python<'_>, wakeup: &Wakeup, deadline: Instant) -> PyResult<()> {
    enter::wait(py, |slice: Duration| {
        let left = deadline.saturating_duration_since(Instant::now());
        (wakeup.notified_within(slice.min(left)) || left <= slice).then_some(())
    })
}
