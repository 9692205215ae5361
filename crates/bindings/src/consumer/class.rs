//! The pulling consumer as Python drives it.

use crate::consumer::received;
use crate::enter;
use crate::errors::Error;
use crate::producer::completion::{CompletionList, PipeSignal, QueueRef, Value};
use crate::producer::options::server_of;
use crate::runtime;
use crate::runtime::Owner;
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyrmq_client::consumer::process_queue::QueueKey;
use pyrmq_client::consumer::puller::{Puller, Start};
use pyrmq_client::{ClientError, PullerOptions};
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

/// A queue by the name that brokers know.
fn key_of(puller: &Puller, place: QueueRef) -> QueueKey {
    let (topic, broker, queue_id) = place;
    QueueKey {
        topic: puller.options().client.wrap(&topic).into(),
        broker: broker.into(),
        queue_id,
    }
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

async fn offset_of(
    puller: &Puller,
    key: &QueueKey,
    which: &str,
    timestamp_ms: i64,
) -> Result<i64, ClientError> {
    let offsets = puller.offsets();
    match which {
        "first" => offsets.first(key).await,
        "last" => offsets.last(key).await,
        "timestamp" => offsets.at_time(key, timestamp_ms).await,
        _ => Ok(offsets.committed(key).await?.unwrap_or(-1)),
    }
}

impl PyConsumer {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check().map_err(|error| error.into_py(py))
    }
}

#[pymethods]
impl PyConsumer {
    #[new]
    #[pyo3(signature = (name_servers, group, *, namespace, address_server, unit_name, instance_name, start, start_timestamp_ms, batch, suspend_ms,
        ahead_bytes, commit_interval_ms, rebalance_interval_ms))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one for each option; Python has the defaults"
    )]
    fn new(
        py: Python<'_>,
        name_servers: Vec<String>,
        group: String,
        namespace: String,
        address_server: Option<&str>,
        unit_name: String,
        instance_name: String,
        start: &str,
        start_timestamp_ms: i64,
        batch: i32,
        suspend_ms: u64,
        ahead_bytes: usize,
        commit_interval_ms: Option<u64>,
        rebalance_interval_ms: u64,
    ) -> PyResult<Self> {
        let mut options = PullerOptions::new(name_servers, group);
        options.client.instance_name = instance_name;
        options.client.address_server =
            server_of(address_server, &unit_name).map_err(|error| Error::from(error).into_py(py))?;
        options.client.unit_name = unit_name;
        options.client.namespace = namespace;
        options.batch = batch;
        options.suspend = Duration::from_millis(suspend_ms);
        options.ahead_bytes = ahead_bytes;
        options.commit_interval = commit_interval_ms.map(Duration::from_millis);
        options.rebalance_interval = Duration::from_millis(rebalance_interval_ms);
        let start = match start {
            "last" => Start::Last,
            "timestamp" => Start::Time(start_timestamp_ms),
            _ => Start::First,
        };
        let made = options
            .validate()
            .map_err(Error::from)
            .and_then(|()| runtime::current())
            .and_then(|runtime| Ok(Puller::new(runtime.handle(), options, start)?));
        Ok(Self {
            owner: Owner::new("this consumer"),
            puller: Arc::new(made.map_err(|error| error.into_py(py))?),
            pipe_signal: OnceLock::new(),
        })
    }

    /// Joins the group for a topic.
    fn subscribe(&self, py: Python<'_>, topic: &str, expression: &str) -> PyResult<()> {
        self.check(py)?;
        let topic = self.puller.options().client.wrap(topic);
        enter::block_on(py, self.puller.subscribe(&topic, expression))
    }

    /// Takes exactly these queues.
    fn assign(&self, py: Python<'_>, queues: Vec<(QueueRef, Option<i64>)>, expression: &str) -> PyResult<()> {
        self.check(py)?;
        let queues = queues
            .into_iter()
            .map(|(place, start)| (key_of(&self.puller, place), start))
            .collect();
        enter::block_on(py, self.puller.assign(queues, expression))
    }

    /// The queues of a topic that can be read.
    fn queues_of(&self, py: Python<'_>, topic: &str) -> PyResult<Vec<QueueRef>> {
        self.check(py)?;
        enter::block_on(py, queues_of(&self.puller, topic))
    }

    /// The assigned queues with their positions.
    fn positions(&self, py: Python<'_>) -> PyResult<Vec<(QueueRef, i64)>> {
        self.check(py)?;
        let positions = self.puller.positions().into_iter();
        let options = &self.puller.options().client;
        Ok(positions
            .map(|(key, position)| {
                let topic = options.inside(&key.topic).to_owned();
                let place = (topic, key.broker.to_string(), key.queue_id);
                (place, position)
            })
            .collect())
    }

    /// Goes on from this offset.
    fn seek(&self, py: Python<'_>, place: QueueRef, offset: i64) -> PyResult<()> {
        self.check(py)?;
        self.puller
            .seek(&key_of(&self.puller, place), offset)
            .map_err(|error| Error::from(error).into_py(py))
    }

    /// first, last, committed (-1 when there is none), or by time.
    fn offset(&self, py: Python<'_>, place: QueueRef, which: &str, timestamp_ms: i64) -> PyResult<i64> {
        self.check(py)?;
        enter::block_on(
            py,
            offset_of(&self.puller, &key_of(&self.puller, place), which, timestamp_ms),
        )
    }

    /// Up to `max` messages; waits up to `timeout_ms` for the first, for ever without a limit.
    fn poll<'py>(
        &self,
        py: Python<'py>,
        max: usize,
        timeout_ms: Option<u64>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.check(py)?;
        if let Some(pipe_signal) = self.pipe_signal.get() {
            pipe_signal.reset();
        }
        let deadline = timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            let taken = self
                .puller
                .take(max)
                .map_err(|error| Error::from(error).into_py(py))?;
            if !taken.is_empty() {
                return received::to_list(py, taken, &self.puller.options().client);
            }
            let there = enter::wait(py, |slice| {
                let left = deadline.map_or(slice, |by| by.saturating_duration_since(Instant::now()));
                if self.puller.wait(slice.min(left)) {
                    return Some(true);
                }
                (deadline.is_some() && left <= slice).then_some(false)
            })?;
            if !there {
                return Ok(PyList::empty(py));
            }
        }
    }

    /// A descriptor that is readable when a poll may find something: for event loops.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.check(py)?;
        if let Some(pipe_signal) = self.pipe_signal.get() {
            return Ok(pipe_signal.fd());
        }
        let pipe_signal = Arc::new(PipeSignal::new().map_err(|error| error.into_py(py))?);
        let kept = self.pipe_signal.get_or_init(|| pipe_signal).clone();
        let is_notified = kept.clone();
        self.puller.on_arrival(Arc::new(move || is_notified.notify()));
        // What came before somebody listened.
        kept.notify();
        Ok(kept.fd())
    }

    /// Makes the descriptor silent until something comes.
    fn hush(&self) {
        if let Some(pipe_signal) = self.pipe_signal.get() {
            pipe_signal.reset();
        }
    }

    /// Everything handed out is done: tells the brokers.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        enter::block_on(py, self.puller.commit())
    }

    /// Ends everything; `all`: what was handed out is done. Commits only with a commit interval. In a forked child
    /// nothing is done: it is the parent's.
    fn shut(&self, py: Python<'_>, all: bool) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        enter::block_on(py, self.puller.shut(all))
    }

    // For event loops: the same calls, whose outcome comes to `outcomes` under `token`.

    fn subscribe_to(
        &self,
        py: Python<'_>,
        outcomes: &CompletionList,
        token: u64,
        topic: String,
        expression: String,
    ) -> PyResult<()> {
        self.check(py)?;
        let puller = self.puller.clone();
        outcomes.run(py, token, async move {
            let topic = puller.options().client.wrap(&topic);
            puller.subscribe(&topic, &expression).await?;
            Ok(Value::Done)
        })
    }

    fn assign_to(
        &self,
        py: Python<'_>,
        outcomes: &CompletionList,
        token: u64,
        queues: Vec<(QueueRef, Option<i64>)>,
        expression: String,
    ) -> PyResult<()> {
        self.check(py)?;
        let puller = self.puller.clone();
        let queues = queues
            .into_iter()
            .map(|(place, start)| (key_of(&puller, place), start))
            .collect();
        outcomes.run(py, token, async move {
            puller.assign(queues, &expression).await?;
            Ok(Value::Done)
        })
    }

    fn queues_of_to(
        &self,
        py: Python<'_>,
        outcomes: &CompletionList,
        token: u64,
        topic: String,
    ) -> PyResult<()> {
        self.check(py)?;
        let puller = self.puller.clone();
        outcomes.run(py, token, async move {
            queues_of(&puller, &topic).await.map(Value::QueueRefs)
        })
    }

    fn offset_to(
        &self,
        py: Python<'_>,
        outcomes: &CompletionList,
        token: u64,
        place: QueueRef,
        which: String,
        timestamp_ms: i64,
    ) -> PyResult<()> {
        self.check(py)?;
        let puller = self.puller.clone();
        outcomes.run(py, token, async move {
            let offset = offset_of(&puller, &key_of(&puller, place), &which, timestamp_ms).await?;
            Ok(Value::Offset(offset))
        })
    }

    fn commit_to(&self, py: Python<'_>, outcomes: &CompletionList, token: u64) -> PyResult<()> {
        self.check(py)?;
        let puller = self.puller.clone();
        outcomes.run(py, token, async move {
            puller.commit().await?;
            Ok(Value::Done)
        })
    }

    fn shut_to(&self, py: Python<'_>, outcomes: &CompletionList, token: u64, all: bool) -> PyResult<()> {
        self.check(py)?;
        let puller = self.puller.clone();
        outcomes.run(py, token, async move {
            puller.shut(all).await?;
            Ok(Value::Done)
        })
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
