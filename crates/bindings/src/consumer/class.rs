//! The pulling consumer as Python drives it.

use crate::completion::{self, ArrivalSignal, QueueRef, ReplyTo, Value};
use crate::consumer::batch::PyMessageBatch;
use crate::consumer::control::{PyControl, key_of, queue_ref_of};
use crate::consumer::settings::ConsumerSettings;
use crate::enter;
use crate::errors::Error;
use crate::received;
use crate::runtime::Owned;
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyrmq_client::ClientError;
use pyrmq_client::consumer::process_queue::Messages;
use pyrmq_client::consumer::puller::Puller;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A consumer. Frozen and shared by threads.
#[pyclass(frozen, name = "PullConsumer", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyConsumer {
    puller: Owned<Puller>,
    arrival_signal: ArrivalSignal,
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
    /// Takes messages, waiting for the first. The list is empty if the time has passed or a rebalance event waits.
    fn take(&self, py: Python<'_>, max: usize, timeout_ms: Option<u64>) -> PyResult<Vec<Messages>> {
        self.puller.check_in(py)?;
        self.arrival_signal.reset();
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
        Ok(Self {
            puller: settings.puller(py)?,
            arrival_signal: ArrivalSignal::default(),
        })
    }

    /// The part that it shares with consumers that have listeners.
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
        self.puller.check_in(py)?;
        let queues = queues
            .into_iter()
            .map(|(queue, start)| (key_of(&self.puller, queue), start))
            .collect();
        let puller = self.puller.clone();
        completion::run(py, to, async move { puller.assign(queues, &expression).await })
    }

    /// The queues of a topic that can be read.
    #[pyo3(signature = (topic, to=None))]
    fn queues_of(&self, py: Python<'_>, topic: String, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        let puller = self.puller.here(py)?;
        completion::run(py, to, async move {
            queues_of(&puller, &topic).await.map(Value::QueueRefs)
        })
    }

    /// The assigned queues with their positions.
    fn positions(&self, py: Python<'_>) -> PyResult<Vec<(QueueRef, i64)>> {
        self.puller.check_in(py)?;
        let positions = self.puller.positions().into_iter();
        Ok(positions
            .map(|(key, position)| (queue_ref_of(&self.puller, &key), position))
            .collect())
    }

    /// Sets the offset at which polls of a queue continue.
    fn seek(&self, py: Python<'_>, queue: QueueRef, offset: i64) -> PyResult<()> {
        self.puller.check_in(py)?;
        self.puller
            .seek(&key_of(&self.puller, queue), offset)
            .map_err(|error| Error::from(error).into_py(py))
    }

    /// Goes back to this offset, unless the queue is before it already: never forward.
    fn seek_back(&self, py: Python<'_>, queue: QueueRef, offset: i64) -> PyResult<()> {
        self.puller.check_in(py)?;
        self.puller
            .seek_back(&key_of(&self.puller, queue), offset)
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

    /// Takes messages as `poll` does, but returns them all in one object.
    fn poll_batch(&self, py: Python<'_>, max: usize, timeout_ms: Option<u64>) -> PyResult<PyMessageBatch> {
        let taken = self.take(py, max, timeout_ms)?;
        Ok(PyMessageBatch::new(taken, self.puller.options().client.clone()))
    }

    /// A descriptor that is readable when a poll may find something: for event loops.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.puller.check_in(py)?;
        self.arrival_signal.fd(py, |waker| self.puller.on_arrival(waker))
    }

    /// Makes the descriptor unreadable until something arrives.
    fn hush(&self) {
        self.arrival_signal.reset();
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyConsumer>()
}
