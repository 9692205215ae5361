//! Delivery callbacks, and threads that wait for capacity or until nothing is in flight.
//!
//! A waiting thread runs callbacks itself. A message counts as in flight until its callback has run, so nothing else
//! would free capacity when nobody polls. Each waiting thread has its own wake-up: back pressure sets it when capacity
//! is free, the completion queue when callbacks are due.

use crate::completion::queue::{CompletionQueue, deliver};
use crate::enter;
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use pyrmq_client::producer::accumulator::BatchOutcome;
use pyrmq_client::producer::back_pressure::{BackPressure, BorrowedPermit, Candidates, Condition, Listener};
use pyrmq_remoting::sync::wakeup::Wakeup;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The kind of thread that runs callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thread {
    /// The caller's thread. Ctrl-C and `sys.exit` in a callback end the call; the outcomes left are delivered later.
    Callers,
    /// A thread of the library. No exception from a callback may end it.
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
    /// Sets `on_error(exception)`, which is called with exceptions from callbacks.
    pub(crate) fn set_error_handler(&self, on_error: Py<PyAny>) {
        self.on_error.get_or_init(|| on_error);
    }

    /// Runs the callbacks that are due and returns how many ran.
    pub(crate) fn serve(&self, py: Python<'_>, back_pressure: &Arc<BackPressure>) -> PyResult<usize> {
        self.serve_from(py, &self.completion_queue, back_pressure, Thread::Callers)
    }

    /// Delivers the outcomes in a completion queue and returns the number of messages.
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
            // Released first: a callback that sends needs the capacity.
            drop(permit);
            let mut completions = completions.into_iter();
            let mut failed = None;
            for (index, completion) in completions.by_ref() {
                served += 1;
                let handed = deliver(py, completion, batch.then_some(index), &outcome);
                failed = handed
                    .err()
                    .and_then(|error| self.report(py, error, thread).err());
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

    /// Reports what a callback raised, unless it ends the call. The reporting function (a logging handler) may raise,
    /// too.
    fn report(&self, py: Python<'_>, error: PyErr, thread: Thread) -> PyResult<()> {
        let ends = |error: &PyErr| {
            thread == Thread::Callers
                && (error.is_instance_of::<PyKeyboardInterrupt>(py)
                    || error.is_instance_of::<PySystemExit>(py))
        };
        if ends(&error) {
            return Err(error);
        }
        let reported = match self.on_error.get() {
            Some(on_error) => on_error.call1(py, (error.into_value(py),)).map(drop),
            None => Err(error),
        };
        match reported {
            Err(raised) if ends(&raised) => Err(raised),
            Err(raised) => {
                raised.write_unraisable(py, None);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Acquires capacity. `None`: there was none until `deadline`.
    pub(crate) fn acquire_capacity<'a>(
        &self,
        py: Python<'_>,
        back_pressure: &'a Arc<BackPressure>,
        (messages, bytes, brokers): (usize, usize, &Candidates),
        deadline: Instant,
    ) -> PyResult<Option<BorrowedPermit<'a>>> {
        let wake_registration = self.completion_queue.register_thread();
        let wakeup = wake_registration.wakeup();
        let mut queued = back_pressure.enqueue_acquire(messages, bytes, brokers.clone(), notifying(wakeup));
        loop {
            self.serve(py, back_pressure)?;
            // Tried once more after the deadline: capacity that is free now is not refused.
            if let Some(permit) = queued.try_acquire() {
                return Ok(Some(permit));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            let acquired = enter::wait(py, |slice| {
                let left = deadline.saturating_duration_since(Instant::now());
                let is_set = wakeup.notified_within(slice.min(left));
                let permit = queued.try_acquire();
                (is_set || permit.is_some() || left <= slice).then_some(permit)
            })?;
            if acquired.is_some() {
                return Ok(acquired);
            }
        }
    }

    /// Runs callbacks until nothing is in flight except `excluded` messages. False: `deadline` passed first.
    pub(crate) fn serve_until_empty(
        &self,
        py: Python<'_>,
        back_pressure: &Arc<BackPressure>,
        excluded: impl Fn() -> usize,
        deadline: Instant,
    ) -> PyResult<bool> {
        let wake_registration = self.completion_queue.register_thread();
        let wakeup = wake_registration.wakeup();
        let watch = back_pressure.watch(Condition::Empty, notifying(wakeup));
        loop {
            self.serve(py, back_pressure)?;
            if watch.is_satisfied() || back_pressure.in_flight() <= excluded() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            wait_for(py, wakeup, deadline)?;
        }
    }

    /// Waits for the first due callback until `deadline`, runs those that are due, and returns how many ran.
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

/// Sleeps until notified or until `deadline`.
pub(crate) fn wait_for(py: Python<'_>, wakeup: &Wakeup, deadline: Instant) -> PyResult<()> {
    enter::wait(py, |slice: Duration| {
        let left = deadline.saturating_duration_since(Instant::now());
        (wakeup.notified_within(slice.min(left)) || left <= slice).then_some(())
    })
}
