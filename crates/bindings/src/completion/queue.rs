//! Outcomes on their way to the callbacks, futures and threads that wait for them.
//!
//! The connection's task hands out the completions of a finished frame and touches no Python object. Threads are woken
//! at once; callbacks and futures wait in a completion queue until a Python thread takes them.

use crate::completion::PyWaiter;
use crate::completion::collector::BatchCollector;
use crate::completion::future::{End, SendFuture};
use crate::completion::pipe_signal::PipeSignal;
use crate::completion::result::PySendResult;
use crate::errors::Error;
use pyo3::intern;
use pyo3::prelude::*;
use pyrmq_client::ClientError;
use pyrmq_client::producer::SendResult;
use pyrmq_client::producer::accumulator::BatchOutcome;
use pyrmq_remoting::sync::lock;
use pyrmq_remoting::sync::wakeup::Wakeup;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// What waits for a message's outcome.
#[derive(Debug)]
pub(crate) enum Completer {
    /// A callback, called as `on_delivery(error, result)`.
    Call(Py<PyAny>),
    /// A `concurrent.futures.Future`.
    Future(Py<PyAny>),
    /// An event loop's future.
    SendFuture(Py<SendFuture>),
    /// A blocked thread.
    Thread(Arc<PyWaiter>),
    /// A call of many messages, and the message's number in it.
    Member(Arc<BatchCollector>, u32),
}

/// Finished frames whose completions wait for a Python thread.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueue {
    // Guards the finished frames and the threads that wait for them.
    state: Mutex<CompletedFrames>,
    pub(crate) pipe_signal: Option<PipeSignal>,
}

impl CompletionQueue {
    /// With a pipe signal, completions wake an event loop; without one, they wake the registered threads.
    pub(crate) fn new(pipe_signal: Option<PipeSignal>) -> Self {
        Self {
            state: Mutex::default(),
            pipe_signal,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct CompletedFrames {
    pub(crate) frames: VecDeque<BatchOutcome<Completer>>,
    registered: Vec<Arc<Wakeup>>,
    pub(crate) closed: bool,
}

impl CompletedFrames {
    fn wake_all(&self) {
        for wakeup in &self.registered {
            wakeup.notify();
        }
    }
}

/// A registered thread, which completions wake. Dropping this ends the registration.
pub(crate) struct WakeRegistration<'a> {
    completion_queue: &'a CompletionQueue,
    wakeup: Arc<Wakeup>,
}

impl WakeRegistration<'_> {
    /// Notified when a frame has finished or the queue was closed.
    pub(crate) fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }
}

impl Drop for WakeRegistration<'_> {
    fn drop(&mut self) {
        let mut state = self.completion_queue.state();
        state.registered.retain(|other| !Arc::ptr_eq(other, &self.wakeup));
    }
}

impl CompletionQueue {
    pub(crate) fn state(&self) -> MutexGuard<'_, CompletedFrames> {
        lock(&self.state)
    }

    fn push(&self, batch_outcome: BatchOutcome<Completer>) {
        let mut state = self.state();
        let first = state.frames.is_empty();
        state.frames.push_back(batch_outcome);
        if first && self.pipe_signal.is_none() {
            state.wake_all();
        }
        drop(state);
        if first && let Some(pipe_signal) = &self.pipe_signal {
            pipe_signal.notify();
        }
    }

    /// Completions wake this thread from now on. It must look itself for frames that finished before.
    pub(crate) fn register_thread(&self) -> WakeRegistration<'_> {
        let wakeup: Arc<Wakeup> = Arc::default();
        self.state().registered.push(wakeup.clone());
        WakeRegistration {
            completion_queue: self,
            wakeup,
        }
    }

    pub(crate) fn pop(&self) -> Option<BatchOutcome<Completer>> {
        self.state().frames.pop_front()
    }

    /// The number of messages whose outcome nobody has fetched.
    pub(crate) fn completions(&self) -> usize {
        let state = self.state();
        state
            .frames
            .iter()
            .map(|batch_outcome| batch_outcome.completions.len())
            .sum()
    }

    /// Wakes the waiting threads, so that they check their condition again.
    pub(crate) fn kick(&self) {
        self.state().wake_all();
    }

    /// Closes the queue: nothing more will arrive.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.wake_all();
    }
}

/// Calls the callback, or completes the future.
pub(crate) fn deliver(
    py: Python<'_>,
    completion: Completer,
    index: Option<u32>,
    outcome: &Result<Arc<SendResult>, ClientError>,
) -> PyResult<()> {
    if let Completer::SendFuture(future) = &completion
        && future.get().is_done()
    {
        // Nobody waits for a cancelled future.
        return Ok(());
    }
    let value = match outcome {
        Ok(frame) => Ok(Py::new(py, PySendResult::of(frame.clone(), index))?),
        Err(error) => Err(Error::from(error.clone().of_item(index))
            .into_py(py)
            .into_value(py)),
    };
    match completion {
        Completer::Call(call) => {
            match value {
                Ok(result) => call.call1(py, (py.None(), result))?,
                Err(error) => call.call1(py, (error, py.None()))?,
            };
        }
        Completer::Future(future) => {
            let future = future.bind(py);
            // Nobody waits for a cancelled future.
            if future.call_method0(intern!(py, "done"))?.is_truthy()? {
                return Ok(());
            }
            match value {
                Ok(result) => future.call_method1(intern!(py, "set_result"), (result,))?,
                Err(error) => future.call_method1(intern!(py, "set_exception"), (error,))?,
            };
        }
        Completer::SendFuture(future) => {
            let end = match value {
                Ok(result) => End::Value(result.into_any()),
                Err(error) => End::Error(error.into_any()),
            };
            SendFuture::complete(future.bind(py), end)?;
        }
        Completer::Thread(_) | Completer::Member(..) => {}
    }
    Ok(())
}

/// Hands out a frame's completions. Threads are woken here; the rest waits in its completion queue.
pub(crate) fn share(
    calls: &CompletionQueue,
    futures: &CompletionQueue,
    batch_outcome: BatchOutcome<Completer>,
) {
    let BatchOutcome {
        mut permit,
        completions,
        batch,
        outcome,
    } = batch_outcome;
    let (mut to_call, mut to_complete, mut to_wake) = (Vec::new(), Vec::new(), Vec::new());
    let mut to_gather = Vec::new();
    for (index, completion) in completions {
        match completion {
            Completer::Call(_) => to_call.push((index, completion)),
            Completer::Future(_) | Completer::SendFuture(_) => to_complete.push((index, completion)),
            Completer::Member(collector, member) => to_gather.push((collector, index, member)),
            Completer::Thread(waiter) => {
                let index = batch.then_some(index);
                let share = outcome
                    .clone()
                    .map(|frame| (frame, index))
                    .map_err(|error| error.of_item(index));
                to_wake.push((waiter, share));
            }
        }
    }
    if !to_gather.is_empty() {
        drop(permit.split(to_gather.len(), 0));
        BatchCollector::record_all(&to_gather, &outcome);
    }
    if !to_wake.is_empty() {
        drop(permit.split(to_wake.len(), 0));
        PyWaiter::set_all(to_wake);
    }
    let for_a_loop = futures.pipe_signal.is_some() && !to_complete.is_empty();
    for (completion_queue, completions) in [(calls, to_call), (futures, to_complete)] {
        if !completions.is_empty() {
            let (permit, outcome) = (permit.split(completions.len(), 0), outcome.clone());
            completion_queue.push(BatchOutcome {
                permit,
                completions,
                batch,
                outcome,
            });
        }
    }
    if for_a_loop {
        // A producer that is being dropped may wait for this frame.
        calls.kick();
    }
}
