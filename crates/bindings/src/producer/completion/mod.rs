//! What became of a message: `pyrmq.SendResult`, and how outcomes reach the thread, callback or future that waits.
//!
//! ```text
//! one send      Waiter: a slot, the waiting thread is woken by the connection's task itself
//! many calls    CompletionList: (token, outcome) pairs; a thread takes all that are there, or asyncio does when the
//!               pipe's end becomes readable. One byte is in the pipe while the list is not empty.
//! ```

pub(crate) mod callbacks;
pub(crate) mod future;
pub(crate) mod queue;

use crate::enter;
use crate::errors::{Error, attempts_of};
use crate::runtime::{self, Owner};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple};
use pyrmq_client::ClientError;
use pyrmq_client::error::{Attempt, id_at};
use pyrmq_client::producer::{SendResult, SendStatus};
use pyrmq_remoting::message::Durability;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The outcome of one frame: a message, or a batch of them.
pub(crate) type Outcome = Result<SendResult, ClientError>;

/// A queue as it comes from Python and goes there: topic, broker name, queue number.
pub(crate) type QueueRef = (String, String, i32);

/// What a call that runs without a waiting thread gives.
#[derive(Debug)]
pub(crate) enum Value {
    /// Nothing but that it was done.
    Done,
    /// Yes or no.
    Truth(bool),
    /// A message's result.
    Sent(SendResult),
    /// The frames of a batch call.
    Batch(Vec<BatchPart>, Unsent),
    /// An offset.
    Offset(i64),
    /// Queues.
    QueueRefs(Vec<QueueRef>),
    /// An id.
    Text(String),
}

/// Messages of a batch call that were in one frame, each as its place there and its number in the call, and their
/// outcome.
pub(crate) type BatchPart = (Vec<(u32, u32)>, Result<Arc<SendResult>, ClientError>);

/// What a batch call that ended early has not sent.
#[derive(Debug)]
pub(crate) struct Unsent {
    /// Messages that were read.
    pub(crate) count: u32,
    /// The one that could not be sent.
    pub(crate) failed: Option<u32>,
    /// What the call ended by.
    pub(crate) error: Option<PyErr>,
}

impl Unsent {
    /// The outcome of a message that was read and not sent.
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

/// One message's share of an outcome. Texts are cut out of the frame's when they are asked for.
#[pyclass(frozen, name = "SendResult", module = "pyrmq.message")]
#[derive(Debug)]
pub(crate) struct PySendResult {
    frame: Arc<SendResult>,
    // `None`: a message of its own; else its place in the batch.
    item: Option<u32>,
}

impl PySendResult {
    /// `item`: its place, when the frame is a batch.
    pub(crate) fn of(frame: Arc<SendResult>, item: Option<u32>) -> Self {
        Self { frame, item }
    }

    /// What two results are compared by.
    fn parts(&self) -> impl PartialEq + '_ {
        let frame = &*self.frame;
        (
            (frame.status, &frame.topic, &frame.broker, frame.queue_id),
            (self.queue_offset(), self.message_id(), self.offset_message_id()),
            (&frame.transaction_id, &frame.recall_handle, frame.durability),
            (frame.attempts, frame.may_be_duplicate, &frame.failed_attempts),
        )
    }
}

#[pymethods]
impl PySendResult {
    #[getter]
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let module = PyModule::import(py, "pyrmq.message")?;
        module.getattr("SendStatus")?.get_item(self.frame.status.name())
    }

    #[getter]
    fn message_id(&self) -> &str {
        id_at(&self.frame.message_id, self.item)
    }

    #[getter]
    fn offset_message_id(&self) -> &str {
        let ids = &self.frame.offset_message_id;
        let item = self.item.map(|item| item as usize);
        item.and_then(|item| ids.split(',').nth(item)).unwrap_or(ids)
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.frame.topic
    }

    #[getter]
    fn broker(&self) -> &str {
        &self.frame.broker
    }

    #[getter]
    fn queue_id(&self) -> i32 {
        self.frame.queue_id
    }

    #[getter]
    fn queue_offset(&self) -> i64 {
        self.frame.queue_offset + i64::from(self.item.unwrap_or(0))
    }

    #[getter]
    fn transaction_id(&self) -> Option<&str> {
        self.frame.transaction_id.as_deref()
    }

    #[getter]
    fn recall_handle(&self) -> Option<&str> {
        self.frame.recall_handle.as_deref()
    }

    #[getter]
    fn attempts(&self) -> u32 {
        self.frame.attempts
    }

    #[getter]
    fn durability(&self) -> Option<&'static str> {
        self.frame.durability.map(Durability::name)
    }

    #[getter]
    fn may_be_duplicate(&self) -> bool {
        self.frame.may_be_duplicate
    }

    /// The attempts that failed before.
    #[getter]
    fn failed_attempts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        attempts_of(py, &self.frame.failed_attempts)
    }

    /// What pickles and copies it: the function that makes it again, and that function's arguments.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Parts)> {
        let frame = &*self.frame;
        let failed_attempts = frame.failed_attempts.iter();
        let parts = (
            (
                frame.status.name().to_owned(),
                frame.topic.to_string(),
                frame.broker.to_string(),
                frame.queue_id,
                self.queue_offset(),
            ),
            (
                self.message_id().to_owned(),
                self.offset_message_id().to_owned(),
                frame.transaction_id.clone(),
                frame.recall_handle.clone(),
            ),
            (
                frame.attempts,
                frame.durability.map(|level| level.name().to_owned()),
                frame.may_be_duplicate,
            ),
            failed_attempts.map(unmade).collect(),
        );
        Ok((
            PyModule::import(py, "pyrmq._core")?.getattr("remade_result")?,
            parts,
        ))
    }

    fn __repr__(&self) -> String {
        let mut again = String::new();
        if self.frame.attempts > 1 {
            let failed_attempts: Vec<String> = self
                .frame
                .failed_attempts
                .iter()
                .map(ToString::to_string)
                .collect();
            again = format!(
                ", attempts={}, failed=[{}]",
                self.frame.attempts,
                failed_attempts.join("; ")
            );
        }
        let level = match self.frame.durability {
            Some(level) => format!(", durability={:?}", level.name()),
            None => String::new(),
        };
        let twice = if self.frame.may_be_duplicate {
            ", may_be_duplicate=True"
        } else {
            ""
        };
        format!(
            "SendResult({}, topic={:?}, broker={:?}, queue_id={}, queue_offset={}, message_id={:?}{level}{again}{twice})",
            self.frame.status.name(),
            &*self.frame.topic,
            &*self.frame.broker,
            self.queue_id(),
            self.queue_offset(),
            self.message_id(),
        )
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| self.parts() == other.get().parts())
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.message_id().hash(&mut hasher);
        self.queue_offset().hash(&mut hasher);
        hasher.finish()
    }
}

/// A result as it is pickled: place, ids, how it was stored, and the attempts before.
type Parts = (
    (String, String, String, i32, i64),
    (String, String, Option<String>, Option<String>),
    (u32, Option<String>, bool),
    Vec<AttemptParts>,
);

/// A failed attempt as it is pickled.
type AttemptParts = (u32, String, i32, u64, u64, String, bool);

fn unmade(attempt: &Attempt) -> AttemptParts {
    (
        attempt.number,
        attempt.broker.to_string(),
        attempt.queue_id,
        attempt.began_ms,
        attempt.took_ms,
        attempt.cause.clone(),
        attempt.may_exist,
    )
}

/// Makes a result again from what `SendResult.__reduce__` gave.
#[pyfunction]
fn remade_result(
    place: (String, String, String, i32, i64),
    ids: (String, String, Option<String>, Option<String>),
    stored: (u32, Option<String>, bool),
    failed_attempts: Vec<AttemptParts>,
) -> PyResult<PySendResult> {
    let (status, topic, broker, queue_id, queue_offset) = place;
    let (message_id, offset_message_id, transaction_id, recall_handle) = ids;
    let (attempts, durability, may_be_duplicate) = stored;
    let status = SendStatus::from_name(&status)
        .ok_or_else(|| PyValueError::new_err(format!("{status:?} is no status of a send")))?;
    let attempt = |(number, broker, queue_id, began_ms, took_ms, cause, may_exist): AttemptParts| Attempt {
        number,
        broker: broker.into(),
        queue_id,
        began_ms,
        took_ms,
        cause,
        may_exist,
    };
    let frame = SendResult {
        status,
        topic: topic.into(),
        broker: broker.into(),
        queue_id,
        queue_offset,
        message_id,
        offset_message_id,
        transaction_id,
        recall_handle,
        attempts,
        durability: durability.as_deref().and_then(Durability::of_name),
        may_be_duplicate,
        failed_attempts: failed_attempts.into_iter().map(attempt).collect(),
    };
    Ok(PySendResult::of(Arc::new(frame), None))
}

/// What a blocking send gets: its frame's result, and its place when that was a batch.
pub(crate) type Share = Result<(Arc<SendResult>, Option<u32>), ClientError>;

/// Where a blocking send waits.
pub(crate) type Waiter = pyrmq_client::producer::waiter::Waiter<Share>;

/// A byte in a pipe while there is something to look at: what asyncio can wait for.
#[derive(Debug)]
pub(crate) struct PipeSignal {
    reader: PipeReader,
    writer: PipeWriter,
    // Guards whether the byte is in the pipe.
    is_notified: Mutex<bool>,
}

impl PipeSignal {
    pub(crate) fn new() -> Result<Self, Error> {
        let (reader, writer) = std::io::pipe().map_err(|cause| Error::Runtime { cause })?;
        Ok(Self {
            reader,
            writer,
            is_notified: Mutex::new(false),
        })
    }

    pub(crate) fn fd(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// Never blocks: at most one byte is in the pipe.
    pub(crate) fn notify(&self) {
        let mut is_notified = self.is_notified.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_notified {
            *is_notified = (&self.writer).write_all(&[1]).is_ok();
        }
    }

    /// Takes the byte out, if it is there.
    pub(crate) fn reset(&self) {
        let mut is_notified = self.is_notified.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_notified {
            *is_notified = (&self.reader).read_exact(&mut [0]).is_err();
        }
    }
}

/// A list of outcomes for a thread or an event loop.
#[pyclass(frozen, name = "CompletionList", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct CompletionList {
    owner: Owner,
    shared: Arc<SharedCompletions>,
}

#[derive(Debug, Default)]
pub(crate) struct SharedCompletions {
    // Guards what waits to be taken.
    state: Mutex<State>,
    ready: Condvar,
    pipe_signal: Option<PipeSignal>,
}

/// What became of the call with this token.
type Reply = (u64, Result<Value, ClientError>);

#[derive(Debug, Default)]
struct State {
    list: Vec<Reply>,
    closed: bool,
}

impl SharedCompletions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, token: u64, outcome: Result<Value, ClientError>) {
        let mut state = self.state();
        let first = state.list.is_empty();
        state.list.push((token, outcome));
        drop(state);
        if first {
            match &self.pipe_signal {
                Some(pipe_signal) => pipe_signal.notify(),
                None => self.ready.notify_all(),
            }
        }
    }

    /// What is there within the slice, and whether more may come.
    fn wait(&self, slice: Duration) -> (Vec<Reply>, bool) {
        let state = self.state();
        let (mut state, _) = self
            .ready
            .wait_timeout_while(state, slice, |state| state.list.is_empty() && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut state.list), !state.closed)
    }
}

impl CompletionList {
    pub(crate) fn shared(&self) -> Arc<SharedCompletions> {
        self.shared.clone()
    }

    /// Runs a call on the runtime; its outcome comes to this list under `token`.
    pub(crate) fn run(
        &self,
        py: Python<'_>,
        token: u64,
        call: impl Future<Output = Result<Value, ClientError>> + Send + 'static,
    ) -> PyResult<()> {
        let runtime = runtime::current().map_err(|error| error.into_py(py))?;
        let shared = self.shared();
        // Nobody waits for the task: its outcome is its end.
        drop(runtime.spawn(async move { shared.push(token, call.await) }));
        Ok(())
    }
}

#[pymethods]
impl CompletionList {
    /// With `descriptor`, an event loop waits on `fileno()`; without, a thread waits in `wait`.
    #[new]
    fn new(py: Python<'_>, descriptor: bool) -> PyResult<Self> {
        let pipe_signal = descriptor.then(PipeSignal::new).transpose();
        Ok(Self {
            owner: Owner::new("this list of outcomes"),
            shared: Arc::new(SharedCompletions {
                pipe_signal: pipe_signal.map_err(|error| error.into_py(py))?,
                ..SharedCompletions::default()
            }),
        })
    }

    /// The descriptor that is readable while something is in the list; -1 without one.
    fn fileno(&self) -> i32 {
        self.shared.pipe_signal.as_ref().map_or(-1, PipeSignal::fd)
    }

    /// Takes what is there: (token, result or exception, None when it succeeded).
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.owner.check().map_err(|error| error.into_py(py))?;
        if let Some(pipe_signal) = &self.shared.pipe_signal {
            pipe_signal.reset();
        }
        let taken = std::mem::take(&mut self.shared.state().list);
        to_list(py, taken)
    }

    /// Takes what is there within the time, perhaps nothing. `None`: closed, and nothing is left.
    fn wait<'py>(&self, py: Python<'py>, timeout_ms: u64) -> PyResult<Option<Bound<'py, PyList>>> {
        self.owner.check().map_err(|error| error.into_py(py))?;
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let (taken, open) = enter::wait(py, |slice| {
            let left = deadline.saturating_duration_since(Instant::now());
            let (taken, open) = self.shared.wait(slice.min(left));
            (!taken.is_empty() || !open || left <= slice).then_some((taken, open))
        })?;
        if taken.is_empty() && !open {
            return Ok(None);
        }
        to_list(py, taken).map(Some)
    }

    /// Ends `wait`.
    fn close(&self) {
        self.shared.state().closed = true;
        self.shared.ready.notify_all();
    }
}

fn to_list(py: Python<'_>, taken: Vec<Reply>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for (token, outcome) in taken {
        let (value, error) = match outcome {
            Ok(value) => (value.into_py(py)?, py.None()),
            Err(error) => (
                py.None(),
                Error::from(error).into_py(py).into_value(py).into_any(),
            ),
        };
        list.append((token, value, error))?;
    }
    Ok(list)
}

impl Value {
    fn into_py(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Done => py.None(),
            Self::Truth(truth) => PyBool::new(py, truth).to_owned().into_any().unbind(),
            Self::Sent(result) => Py::new(py, PySendResult::of(Arc::new(result), None))?.into_any(),
            Self::Batch(parts, unsent) => batch_list(py, parts, unsent)?.into_any().unbind(),
            Self::Offset(offset) => offset.into_pyobject(py)?.into_any().unbind(),
            Self::QueueRefs(places) => places.into_pyobject(py)?.into_any().unbind(),
            Self::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
        })
    }
}

/// A result or an exception for each message of a batch call, in the order of the messages, and what the call ended by,
/// when that was early.
pub(crate) fn batch_list(
    py: Python<'_>,
    parts: Vec<BatchPart>,
    unsent: Unsent,
) -> PyResult<Bound<'_, PyTuple>> {
    let mut results: Vec<Option<Py<PyAny>>> = Vec::new();
    results.resize_with(unsent.count as usize, || None);
    for (members, outcome) in parts {
        for (place, member) in members {
            let value = match &outcome {
                Ok(result) => Py::new(py, PySendResult::of(result.clone(), Some(place)))?.into_any(),
                Err(error) => {
                    let error = error.clone().of_item(Some(place));
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

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySendResult>()?;
    module.add_function(wrap_pyfunction!(remade_result, module)?)?;
    module.add_class::<CompletionList>()
}
