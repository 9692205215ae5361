//! Outcomes on their way to the callbacks, futures and threads that wait for them.
//!
//! A finished frame's completions are handed out on the connection's task, which touches nothing of Python: threads are
//! woken at once, callbacks and futures wait in a completion queue until a thread of Python's takes them.

use crate::completion::Waiter;
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
pub(crate) enum Completion {
    /// `on_delivery(error, result)`.
    Call(Py<PyAny>),
    /// A future of `concurrent.futures`.
    Future(Py<PyAny>),
    /// A future of an event loop.
    SendFuture(Py<SendFuture>),
    /// A thread.
    Thread(Arc<Waiter>),
    /// A call of many messages, and the message's number in it.
    Member(Arc<BatchCollector>, u32),
}

/// Frames whose completions wait for a thread of Python's.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueue {
    // Guards the finished frames, and the threads that wait for them.
    state: Mutex<CompletedFrames>,
    pub(crate) pipe_signal: Option<PipeSignal>,
}

impl CompletionQueue {
    /// With a pipe signal an event loop is woken by completions, without one the registered threads are.
    pub(crate) fn new(pipe_signal: Option<PipeSignal>) -> Self {
        Self {
            state: Mutex::default(),
            pipe_signal,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct CompletedFrames {
    pub(crate) frames: VecDeque<BatchOutcome<Completion>>,
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

/// A thread that is woken by completions; dropped, it is not any more.
pub(crate) struct WakeRegistration<'a> {
    completion_queue: &'a CompletionQueue,
    wakeup: Arc<Wakeup>,
}

impl WakeRegistration<'_> {
    /// Set when a frame has finished, or the queue was closed.
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

    fn push(&self, batch_outcome: BatchOutcome<Completion>) {
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

    /// A thread is woken from now on; what finished before, it sees by itself.
    pub(crate) fn register_thread(&self) -> WakeRegistration<'_> {
        let wakeup: Arc<Wakeup> = Arc::default();
        self.state().registered.push(wakeup.clone());
        WakeRegistration {
            completion_queue: self,
            wakeup,
        }
    }

    pub(crate) fn pop(&self) -> Option<BatchOutcome<Completion>> {
        self.state().frames.pop_front()
    }

    /// Messages whose outcome nobody has fetched.
    pub(crate) fn completions(&self) -> usize {
        let state = self.state();
        state
            .frames
            .iter()
            .map(|batch_outcome| batch_outcome.completions.len())
            .sum()
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
pub(crate) fn deliver(
    py: Python<'_>,
    completion: Completion,
    place: Option<u32>,
    outcome: &Result<Arc<SendResult>, ClientError>,
) -> PyResult<()> {
    if let Completion::SendFuture(future) = &completion
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
    match completion {
        Completion::Call(call) => {
            match value {
                Ok(result) => call.call1(py, (py.None(), result))?,
                Err(error) => call.call1(py, (error, py.None()))?,
            };
        }
        Completion::Future(future) => {
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
        Completion::SendFuture(future) => {
            let end = match value {
                Ok(result) => End::Value(result.into_any()),
                Err(error) => End::Error(error.into_any()),
            };
            SendFuture::complete(future.bind(py), end)?;
        }
        Completion::Thread(_) | Completion::Member(..) => {}
    }
    Ok(())
}

/// Hands a frame's completions out. Threads are woken here; all else waits in its completion queue.
pub(crate) fn share(
    calls: &CompletionQueue,
    futures: &CompletionQueue,
    batch_outcome: BatchOutcome<Completion>,
) {
    let BatchOutcome {
        mut permit,
        completions,
        batch,
        outcome,
    } = batch_outcome;
    let (mut to_call, mut to_complete, mut to_wake) = (Vec::new(), Vec::new(), Vec::new());
    let mut to_gather = Vec::new();
    for (place, completion) in completions {
        match completion {
            Completion::Call(_) => to_call.push((place, completion)),
            Completion::Future(_) | Completion::SendFuture(_) => to_complete.push((place, completion)),
            Completion::Member(collector, member) => to_gather.push((collector, place, member)),
            Completion::Thread(waiter) => {
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
        drop(permit.split(to_gather.len(), 0));
        BatchCollector::record_all(&to_gather, &outcome);
    }
    if !to_wake.is_empty() {
        drop(permit.split(to_wake.len(), 0));
        Waiter::set_all(to_wake);
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
        // A producer that is dropped may wait for this.
        calls.kick();
    }
}
