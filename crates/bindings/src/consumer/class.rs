//! The pulling consumer as Python drives it.

use crate::completion::{self, PipeSignal, QueueRef, ReplyTo, Value};
use crate::consumer::batch::PyMessageBatch;
use crate::consumer::control::{PyControl, key_of, place_of};
use crate::consumer::settings::ConsumerSettings;
use crate::enter;
use crate::errors::Error;
use crate::received;
use crate::runtime;
use crate::runtime::Owner;
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyrmq_client::ClientError;
use pyrmq_client::consumer::process_queue::Messages;
use pyrmq_client::consumer::puller::Puller;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A consumer. Frozen and shared by threads.
#[pyclass(frozen, name = "PullConsumer", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyConsumer {
    owner: Owner,
    puller: Arc<Puller>,
    pipe_signal: OnceLock<Arc<PipeSignal>>,
}

async fn queues_of(puller: &Puller, given: &str) -> Result<Vec<QueueRef>, ClientError> {
    let topic: Arc<str> = puller.options().client.wrap(given).into();
    puller.routes().find(&topic).await?;
    let route = puller.routes().refresh(&topic).await?;
    let queues = route.route.subscribed().into_iter();
    Ok(queues
        .map(|queue| (given.to_owned(), queue.broker.to_string(), queue.queue_id))
        .collect())
}

impl PyConsumer {
    /// Messages, waiting for the first; none when the time has passed, or the application is to hear of queues first.
    fn take(&self, py: Python<'_>, max: usize, timeout_ms: Option<u64>) -> PyResult<Vec<Messages>> {
        self.owner.check_in(py)?;
        if let Some(pipe_signal) = self.pipe_signal.get() {
            pipe_signal.reset();
        }
        let deadline = timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            let taken = self
                .puller
                .take(max)
                .map_err(|error| Error::from(error).into_py(py))?;
            if !taken.is_empty() || self.puller.has_rebalance_event() {
                return Ok(taken);
            }
            let there = enter::wait(py, |slice| {
                let left = deadline.map_or(slice, |by| by.saturating_duration_since(Instant::now()));
                if self.puller.wait(slice.min(left)) {
                    return Some(true);
                }
                (deadline.is_some() && left <= slice).then_some(false)
            })?;
            if !there {
                return Ok(Vec::new());
            }
        }
    }
}

#[pymethods]
impl PyConsumer {
    #[new]
    fn new(py: Python<'_>, settings: ConsumerSettings) -> PyResult<Self> {
        let made = settings.options().and_then(|(mut options, start)| {
            let runtime = runtime::current()?;
            options.client.connections = runtime::connections()?;
            Ok(Puller::new(runtime.handle(), options, start)?)
        });
        Ok(Self {
            owner: Owner::new("this consumer"),
            puller: Arc::new(made.map_err(|error| error.into_py(py))?),
            pipe_signal: OnceLock::new(),
        })
    }

    /// What it has in common with consumers that have listeners.
    fn control(&self) -> PyControl {
        PyControl::new(self.puller.clone())
    }

    // An event loop calls with `to`, where the outcome goes: see `completion::run`.

    /// Takes exactly these queues.
    #[pyo3(signature = (queues, expression, to=None))]
    fn assign(
        &self,
        py: Python<'_>,
        queues: Vec<(QueueRef, Option<i64>)>,
        expression: String,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.owner.check_in(py)?;
        let queues = queues
            .into_iter()
            .map(|(place, start)| (key_of(&self.puller, place), start))
            .collect();
        let puller = self.puller.clone();
        completion::run(py, to, async move { puller.assign(queues, &expression).await })
    }

    /// The queues of a topic that can be read.
    #[pyo3(signature = (topic, to=None))]
    fn queues_of(&self, py: Python<'_>, topic: String, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        self.owner.check_in(py)?;
        let puller = self.puller.clone();
        completion::run(py, to, async move {
            queues_of(&puller, &topic).await.map(Value::QueueRefs)
        })
    }

    /// The assigned queues with their positions.
    fn positions(&self, py: Python<'_>) -> PyResult<Vec<(QueueRef, i64)>> {
        self.owner.check_in(py)?;
        let positions = self.puller.positions().into_iter();
        Ok(positions
            .map(|(key, position)| (place_of(&self.puller, &key), position))
            .collect())
    }

    /// Goes on from this offset.
    fn seek(&self, py: Python<'_>, place: QueueRef, offset: i64) -> PyResult<()> {
        self.owner.check_in(py)?;
        self.puller
            .seek(&key_of(&self.puller, place), offset)
            .map_err(|error| Error::from(error).into_py(py))
    }

    /// Up to `max` messages; waits up to `timeout_ms` for the first, for ever without a limit.
    fn poll<'py>(
        &self,
        py: Python<'py>,
        max: usize,
        timeout_ms: Option<u64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let taken = self.take(py, max, timeout_ms)?;
        received::to_list(py, taken, &self.puller.options().client)
    }

    /// As `poll`, with all messages in one object.
    fn poll_batch(&self, py: Python<'_>, max: usize, timeout_ms: Option<u64>) -> PyResult<PyMessageBatch> {
        let taken = self.take(py, max, timeout_ms)?;
        Ok(PyMessageBatch::new(taken, self.puller.options().client.clone()))
    }

    /// A descriptor that is readable when a poll may find something: for event loops.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.owner.check_in(py)?;
        let puller = &self.puller;
        let signal = PipeSignal::once(&self.pipe_signal, |waker| puller.on_arrival(waker));
        signal
            .map(|signal| signal.fd())
            .map_err(|error| error.into_py(py))
    }

    /// Makes the descriptor silent until something comes.
    fn hush(&self) {
        if let Some(pipe_signal) = self.pipe_signal.get() {
            pipe_signal.reset();
        }
    }

}

impl Drop for PyConsumer {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // The parent's threads may have held its locks during the fork: closing could wait for ever.
            std::mem::forget(self.puller.clone());
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyConsumer>()
}
