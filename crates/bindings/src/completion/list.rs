//! A list of outcomes by token, read by a thread or an event loop.

use crate::completion::collector::{BatchPart, Unsent, batch_list};
use crate::completion::pipe_signal::PipeSignal;
use crate::completion::result::PySendResult;
use crate::enter;
use crate::errors::Error;
use crate::runtime::{self, Owner};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList};
use pyrmq_client::ClientError;
use pyrmq_client::producer::SendResult;
use pyrmq_remoting::sync::{lock, wait_while};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A queue as Python passes it: topic, broker name, queue id.
pub(crate) type QueueRef = (String, String, i32);

/// The result of a call that runs without a waiting thread.
#[derive(Debug)]
pub(crate) enum Value {
    /// The call was done; it has no result.
    Done,
    /// A truth value.
    Truth(bool),
    /// The result of one message.
    Sent(SendResult),
    /// The outcomes of a batch call's frames.
    Batch(Vec<BatchPart>, Unsent),
    /// Offsets of queues.
    Offsets(Vec<i64>),
    /// Queues.
    QueueRefs(Vec<QueueRef>),
    /// A text, such as a message id.
    Text(String),
    /// The outcome of each acknowledgement.
    Acknowledged(Vec<Result<(), ClientError>>),
}

/// A list of outcomes, read by a thread or an event loop.
#[pyclass(frozen, name = "CompletionList", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct CompletionList {
    owner: Owner,
    shared: Arc<SharedCompletions>,
}

#[derive(Debug, Default)]
struct SharedCompletions {
    // Guards the outcomes that were not taken yet.
    state: Mutex<State>,
    ready: Condvar,
    pipe_signal: Option<PipeSignal>,
}

/// Where the outcome of a call that no thread waits for goes: a list, and the call's token there.
pub(crate) type ReplyTo = (Py<CompletionList>, u64);

/// A call's token and its outcome.
type Reply = (u64, Result<Value, ClientError>);

#[derive(Debug, Default)]
struct State {
    list: Vec<Reply>,
    closed: bool,
}

impl SharedCompletions {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn push(&self, token: u64, outcome: Result<Value, ClientError>) {
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

    /// Takes what arrives within the slice. The flag says whether more may come.
    fn wait(&self, slice: Duration) -> (Vec<Reply>, bool) {
        let state = self.state();
        let mut state = wait_while(&self.ready, state, slice, |state| {
            state.list.is_empty() && !state.closed
        });
        (std::mem::take(&mut state.list), !state.closed)
    }
}

/// The function that hands an outcome over.
pub(crate) fn reply((list, token): ReplyTo) -> impl FnOnce(Result<Value, ClientError>) + Send + 'static {
    let shared = list.get().shared.clone();
    move |outcome| shared.push(token, outcome)
}

/// Waits for a call and returns its result. With `to` it returns None at once, and the outcome goes there.
pub(crate) fn run<T: Into<Value> + Send + 'static>(
    py: Python<'_>,
    to: Option<ReplyTo>,
    call: impl Future<Output = Result<T, ClientError>> + Send + 'static,
) -> PyResult<Py<PyAny>> {
    let Some(to) = to else {
        let value: Value = enter::run(py, call)?.into();
        return value.into_py(py);
    };
    let runtime = runtime::current().map_err(|error| error.into_py(py))?;
    let reply = reply(to);
    // Nobody joins the task: it reports its outcome itself.
    let task: Pin<Box<dyn Future<Output = ()> + Send>> =
        Box::pin(async move { reply(call.await.map(Into::into)) });
    drop(runtime.spawn(task));
    Ok(py.None())
}

#[pymethods]
impl CompletionList {
    /// With `descriptor`, an event loop waits for `fileno()`; without, a thread calls `wait`.
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

    /// The file descriptor that is readable while the list is not empty; -1 without one.
    fn fileno(&self) -> i32 {
        self.shared.pipe_signal.as_ref().map_or(-1, PipeSignal::fd)
    }

    /// Takes what is there: (token, result or exception), with None for a call that succeeded without a result.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.owner.check_in(py)?;
        if let Some(pipe_signal) = &self.shared.pipe_signal {
            pipe_signal.reset();
        }
        let taken = std::mem::take(&mut self.shared.state().list);
        to_list(py, taken)
    }

    /// Takes what arrives within the time, which may be nothing. `None`: the list is closed and empty.
    fn wait<'py>(&self, py: Python<'py>, timeout_ms: u64) -> PyResult<Option<Bound<'py, PyList>>> {
        self.owner.check_in(py)?;
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

    /// Ends `wait` once the list is empty.
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

/// For each message None if it was acknowledged, else the exception.
fn errors_of(py: Python<'_>, outcomes: Vec<Result<(), ClientError>>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for outcome in outcomes {
        match outcome {
            Ok(()) => list.append(py.None())?,
            Err(error) => list.append(Error::from(error).into_py(py).into_value(py))?,
        }
    }
    Ok(list)
}

impl From<()> for Value {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

impl Value {
    pub(crate) fn into_py(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Done => py.None(),
            Self::Truth(truth) => PyBool::new(py, truth).to_owned().into_any().unbind(),
            Self::Sent(result) => Py::new(py, PySendResult::of(Arc::new(result), None))?.into_any(),
            Self::Batch(parts, unsent) => batch_list(py, parts, unsent)?.into_any().unbind(),
            Self::Offsets(offsets) => offsets.into_pyobject(py)?.into_any().unbind(),
            Self::QueueRefs(queues) => queues.into_pyobject(py)?.into_any().unbind(),
            Self::Acknowledged(outcomes) => errors_of(py, outcomes)?.into_any().unbind(),
            Self::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
        })
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CompletionList>()
}
