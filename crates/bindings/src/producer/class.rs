//! The producer as Python uses it. Bodies are copied once; of a call's Python objects only its callback or future
//! outlives it.

use crate::command::body_of;
use crate::completion::callbacks::Callbacks;
use crate::completion::{self, Outcome, PySendResult, PyWaiter, QueueRef, ReplyTo, Value};
use crate::enter;
use crate::errors::{Error, about};
use crate::producer::args::{Kind, SendArgs};
use crate::producer::checks;
use crate::producer::options::NativeOptions;
use crate::runtime::{self, Owned};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::back_pressure::{BorrowedPermit, Candidates};
use pyrmq_client::producer::outgoing::{OutgoingMessage, Target};
use pyrmq_client::session::routes::TopicRoute;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::net::{ProcessorTable, Requests};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A producer. It is frozen, and threads may share it.
#[pyclass(frozen, name = "Producer", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyProducer {
    pub(crate) producer: Owned<Producer>,
    pub(crate) broker_requests: Arc<Requests>,
    pub(crate) callbacks: Arc<Callbacks>,
}

/// Maximum number of brokers' requests (transaction checks and pushed replies) that wait for Python. A broker whose
/// request exceeds it is answered that the producer is busy.
const MAX_BROKER_REQUESTS: usize = 1024;

/// The queue that a call names (broker name or empty, queue id), else one by the sharding key, else any.
pub(crate) fn target_of(queue: Option<(String, i32)>, sharding_hash: Option<i32>) -> Target {
    match (queue, sharding_hash) {
        (Some((broker, id)), _) => Target::Queue {
            broker: broker.into(),
            id,
        },
        (None, Some(hash)) => Target::Hash(hash),
        (None, None) => Target::Any,
    }
}

impl PyProducer {
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.producer.check_in(py)
    }

    /// True in the process that created it.
    pub(crate) fn is_here(&self) -> bool {
        self.producer.is_here()
    }

    fn prepare(
        &self,
        py: Python<'_>,
        topic: &str,
        body: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        queue: Option<(String, i32)>,
    ) -> PyResult<OutgoingMessage> {
        self.check(py)?;
        let properties = SendArgs::read(Kind::Oneway, options)?.properties;
        let topic = self.producer.topic(topic);
        let body = body_of(body)?;
        let target = target_of(queue, properties.sharding_hash()?);
        let flag = properties.flag.0;
        let (id, text) = properties.encode(py, &topic, &self.producer, &[])?;
        // Preparing may compress the body, so other threads run meanwhile.
        enter::compute(py, || self.producer.prepare(&topic, body, text, id, flag, target))
    }

    /// Acquires capacity, waiting until `deadline` and running callbacks meanwhile.
    pub(crate) fn acquire(
        &self,
        py: Python<'_>,
        (messages, bytes, brokers): (usize, usize, &Candidates),
        deadline: Instant,
    ) -> PyResult<BorrowedPermit<'_>> {
        let back_pressure = self.producer.back_pressure();
        if let Some(permit) = back_pressure.try_acquire_at(messages, bytes, brokers) {
            return Ok(permit);
        }
        let began = Instant::now();
        let acquired =
            self.callbacks
                .acquire_capacity(py, back_pressure, (messages, bytes, brokers), deadline)?;
        if let Some(permit) = acquired {
            return Ok(permit);
        }
        Err(Error::from(back_pressure.full(began.elapsed(), brokers)).into_py(py))
    }

    /// Sends one message and waits for the outcome.
    pub(crate) fn send_and_wait(
        &self,
        py: Python<'_>,
        outgoing: OutgoingMessage,
        timeout_ms: Option<u64>,
    ) -> PyResult<PySendResult> {
        let deadline = Instant::now() + self.timeout(timeout_ms);
        let brokers = self
            .producer
            .candidates(&outgoing.topic, outgoing.target.to_ref());
        let permit = self
            .acquire(py, (1, outgoing.charged_bytes, &brokers), deadline)
            .map_err(|error| {
                let topic = self.producer.options().client.unwrap_name(&outgoing.topic);
                about(py, error, &topic, Some(&outgoing.message_id))
            })?;
        let timeout = deadline.saturating_duration_since(Instant::now());
        let waiter: Arc<PyWaiter> = Arc::default();
        let slot = waiter.clone();
        let done = Box::new(move |outcome: Outcome| slot.set(outcome.map(|frame| (Arc::new(frame), None))));
        self.producer.send(outgoing, permit, timeout, done);
        match enter::wait(py, |slice| waiter.wait(slice))? {
            Ok((frame, index)) => Ok(PySendResult::of(frame, index)),
            Err(error) => Err(Error::from(error).into_py(py)),
        }
    }

    pub(crate) fn timeout(&self, timeout_ms: Option<u64>) -> Duration {
        timeout_ms.map_or(self.producer.options().send_timeout, Duration::from_millis)
    }
}

#[pymethods]
impl PyProducer {
    /// `checks`: whether it answers checks of transactions.
    #[new]
    fn new(py: Python<'_>, options: NativeOptions, checks: bool) -> PyResult<Self> {
        let mut options = options.read().map_err(|error| error.into_py(py))?;
        let broker_requests = Arc::new(Requests::new(MAX_BROKER_REQUESTS));
        let mut table = ProcessorTable::new();
        table.python(&[request::PUSH_REPLY_MESSAGE_TO_CLIENT], &broker_requests);
        let check = [request::CHECK_TRANSACTION_STATE];
        if checks {
            table.python(&check, &broker_requests);
        } else {
            table.native(&check, &checks::refuse(options.client.group.clone()));
        }
        // The options are checked before the runtime starts, so that wrong ones start nothing.
        let made = options
            .validate()
            .map_err(Error::from)
            .and_then(|()| runtime::current())
            .and_then(|runtime| {
                options.client.connections = runtime::connections()?;
                Ok(Producer::with_table(runtime.handle(), options, table)?)
            });
        let producer = made.map_err(|error| error.into_py(py))?;
        Ok(Self {
            broker_requests,
            callbacks: Arc::default(),
            producer: Owned::new("this producer", Arc::new(producer)),
        })
    }

    // An event loop calls with `to`, where the outcome goes: see `completion::run`.

    /// Sends without asking for a response.
    #[pyo3(signature = (topic, body, options, queue, to=None))]
    fn send_oneway(
        &self,
        py: Python<'_>,
        topic: &str,
        body: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        queue: Option<(String, i32)>,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        let outgoing = self.prepare(py, topic, body, options, queue)?;
        let producer = self.producer.clone();
        completion::run(py, to, async move { producer.send_oneway(outgoing).await })
    }

    /// The writable queues of a topic: (topic, broker, queue id).
    #[pyo3(signature = (topic, timeout_ms=None, to=None))]
    fn queues(
        &self,
        py: Python<'_>,
        topic: String,
        timeout_ms: Option<u64>,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.check(py)?;
        let time = self.timeout(timeout_ms);
        let (topic, given) = (self.producer.topic(&topic), topic);
        if to.is_none()
            && let Some(route) = self.producer.routes().cached(&topic)
        {
            return Value::QueueRefs(queue_refs(&given, &route)).into_py(py);
        }
        let producer = self.producer.clone();
        completion::run(py, to, async move {
            let route = producer.routes().get_within(&topic, time).await?;
            Ok(Value::QueueRefs(queue_refs(&given, &route)))
        })
    }

    /// How many messages may be in flight now.
    fn window(&self) -> usize {
        self.producer.back_pressure().window()
    }

    /// How many messages are in flight.
    fn in_flight(&self) -> usize {
        self.producer.back_pressure().in_flight()
    }

    /// How many threads and tasks wait for capacity, or until nothing is in flight.
    fn watchers(&self) -> usize {
        self.producer.back_pressure().waiter_count()
    }

    /// The counters by name.
    fn stats(&self) -> [(&'static str, u64); 10] {
        let stats = self.producer.stats();
        let back_pressure = self.producer.back_pressure();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("confirmed", count(&stats.confirmed)),
            ("failed", count(&stats.failed)),
            ("retries", count(&stats.retries)),
            ("frames", count(&stats.frames)),
            ("batches", count(&stats.batches)),
            ("batched", count(&stats.batched)),
            ("in_flight", back_pressure.in_flight() as u64),
            ("in_flight_bytes", back_pressure.bytes() as u64),
            ("window", back_pressure.window() as u64),
            ("dropped_traces", self.producer.dropped_traces()),
        ]
    }

    /// The fault table: (broker, latency in ms, ms for which it is still avoided, whether it is reachable).
    fn brokers(&self) -> Vec<(String, u64, u64, bool)> {
        self.producer.brokers()
    }

    /// Waits `grace_ms` for name servers to answer, then looks up no more routes and fails the sends that wait for one.
    fn end_lookups(&self, py: Python<'_>, grace_ms: u64) -> PyResult<()> {
        if !self.is_here() {
            return Ok(());
        }
        let runtime = runtime::current().map_err(|error| error.into_py(py))?;
        let routes = self.producer.routes().clone();
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(grace_ms)).await;
            routes.close();
        });
        Ok(())
    }

    /// Accepts no more messages.
    fn close(&self) {
        self.producer.close();
    }

    /// Unregisters from the brokers and closes every connection. Does nothing in a forked child, where they are the
    /// parent's.
    #[pyo3(signature = (to=None))]
    fn shut(&self, py: Python<'_>, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        if to.is_none() && !self.is_here() {
            return Ok(py.None());
        }
        let producer = self.producer.here(py)?;
        completion::run(py, to, async move {
            producer.shut().await;
            Ok(())
        })
    }
}

fn queue_refs(topic: &str, route: &TopicRoute) -> Vec<QueueRef> {
    let queues = route.published.queues.iter();
    queues
        .map(|queue| (topic.to_owned(), queue.broker.to_string(), queue.queue_id))
        .collect()
}

/// A body's bytes, borrowed where that is safe while the interpreter is held.
pub(crate) enum BodyRef<'a> {
    Borrowed(&'a [u8]),
    Owned(bytes::Bytes),
}

impl BodyRef<'_> {
    pub(crate) fn of<'a>(body: &'a Bound<'_, PyAny>) -> PyResult<BodyRef<'a>> {
        match body.cast::<PyBytes>() {
            Ok(bytes) => Ok(BodyRef::Borrowed(bytes.as_bytes())),
            Err(_) => body_of(body).map(BodyRef::Owned),
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyProducer>()
}
