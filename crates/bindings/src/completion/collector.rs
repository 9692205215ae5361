//! Collects the outcomes of a call with many messages, one for each, in the order of the messages.

use crate::completion::result::PySendResult;
use crate::errors::Error;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use pyrmq_client::ClientError;
use pyrmq_client::producer::SendResult;
use pyrmq_remoting::sync::{lock, wait_while};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Messages of a batch call that shared a frame, each as its index in the frame and its number in the call, and the
/// frame's outcome.
pub(crate) type BatchPart = (Vec<(u32, u32)>, Result<Arc<SendResult>, ClientError>);

/// What a batch call that ended early did not send.
#[derive(Debug)]
pub(crate) struct Unsent {
    /// How many messages were read.
    pub(crate) count: u32,
    /// The number of the message that could not be sent.
    pub(crate) failed: Option<u32>,
    /// The exception that ended the call.
    pub(crate) error: Option<PyErr>,
}

impl Unsent {
    /// The outcome of a message that was read but not sent.
    fn outcome(&self, py: Python<'_>, member: u32) -> PyResult<Py<PyAny>> {
        let errors = PyModule::import(py, "pyrmq.errors")?.getattr("RmqError")?;
        let Some(error) = &self.error else {
            return Ok(py.None());
        };
        let value = error.value(py);
        let own = self.failed.is_none_or(|failed| failed == member);
        if own && value.is_instance(&errors)? {
            return Ok(value.clone().into_any().unbind());
        }
        let text = format!("it was not sent, because the call ended early: {error}");
        let made = errors.call1((text,))?;
        made.setattr("__cause__", value)?;
        Ok(made.unbind())
    }
}

/// Called once all outcomes have arrived.
type Then = Box<dyn FnOnce(Vec<BatchPart>) + Send>;

/// Collects the outcomes of a call's messages. The thread that records the last one completes the call.
pub(crate) struct BatchCollector {
    // Guards the outcomes that have arrived.
    state: Mutex<Arrived>,
    done: Condvar,
}

#[derive(Default)]
struct Arrived {
    expected: Option<usize>,
    messages: usize,
    parts: Vec<BatchPart>,
    then: Option<Then>,
}

impl Arrived {
    fn is_whole(&self) -> bool {
        self.expected == Some(self.messages)
    }
}

impl std::fmt::Debug for BatchCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchCollector").finish_non_exhaustive()
    }
}

impl BatchCollector {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            done: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, Arrived> {
        lock(&self.state)
    }

    pub(crate) fn record(&self, part: BatchPart) {
        let mut state = self.state();
        state.messages += part.0.len();
        state.parts.push(part);
        self.end_if_whole(state);
    }

    /// Records the outcome of a frame in each call that has messages in it. A member is the call, the message's index
    /// in the frame, and its number in the call.
    pub(crate) fn record_all(
        members: &[(Arc<Self>, u32, u32)],
        outcome: &Result<Arc<SendResult>, ClientError>,
    ) {
        for of_one in members.chunk_by(|(one, ..), (other, ..)| Arc::ptr_eq(one, other)) {
            let Some((collector, ..)) = of_one.first() else {
                continue;
            };
            let indexes = of_one.iter().map(|(_, index, member)| (*index, *member));
            collector.record((indexes.collect(), outcome.clone()));
        }
    }

    fn end_if_whole(&self, mut state: MutexGuard<'_, Arrived>) {
        if !state.is_whole() {
            return;
        }
        match state.then.take() {
            Some(then) => {
                let parts = std::mem::take(&mut state.parts);
                drop(state);
                then(parts);
            }
            None => self.done.notify_all(),
        }
    }

    /// Sets how many messages were sent. The call is complete when that many outcomes have arrived.
    pub(crate) fn expect(&self, messages: usize, then: Option<Then>) {
        let mut state = self.state();
        state.expected = Some(messages);
        state.then = then;
        self.end_if_whole(state);
    }

    pub(crate) fn wait(&self, slice: Duration) -> Option<Vec<BatchPart>> {
        let state = self.state();
        let mut state = wait_while(&self.done, state, slice, |state| !state.is_whole());
        state.is_whole().then(|| std::mem::take(&mut state.parts))
    }
}

/// A result or an exception for each message of a batch call, in order, and the exception that ended the call early, if
/// one did.
pub(crate) fn batch_list(
    py: Python<'_>,
    parts: Vec<BatchPart>,
    unsent: Unsent,
) -> PyResult<Bound<'_, PyTuple>> {
    let mut results: Vec<Option<Py<PyAny>>> = Vec::new();
    results.resize_with(unsent.count as usize, || None);
    for (members, outcome) in parts {
        for (index, member) in members {
            let value = match &outcome {
                Ok(result) => Py::new(py, PySendResult::of(result.clone(), Some(index)))?.into_any(),
                Err(error) => {
                    let error = error.clone().of_item(Some(index));
                    Error::from(error).into_py(py).into_value(py).into_any()
                }
            };
            if let Some(slot) = results.get_mut(member as usize) {
                *slot = Some(value);
            }
        }
    }
    let list = PyList::empty(py);
    for (member, result) in (0..).zip(results) {
        match result {
            Some(result) => list.append(result)?,
            None => list.append(unsent.outcome(py, member)?)?,
        }
    }
    let error = unsent.error.map(|error| error.into_value(py));
    (list, error).into_pyobject(py)
}
