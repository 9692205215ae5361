//! The producer as Python drives it. Bodies are copied once; no Python object outlives the call that brought it.
#![expect(
    clippy::needless_pass_by_value,
    reason = "what Python hands over is extracted by value"
)]

use crate::command::body_of;
use crate::enter;
use crate::errors::{Error, about};
use crate::producer::args::MessageProperties;
use crate::producer::completion::callbacks::Callbacks;
use crate::producer::completion::{CompletionList, Outcome, PySendResult, QueueRef, Value, Waiter};
use crate::producer::request_reply;
use crate::runtime;
use crate::runtime::Owner;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::outgoing::{OutgoingMessage, Target};
use pyrmq_client::session::address_server::AddressServer;
use pyrmq_client::session::routes::TopicRoute;
use pyrmq_client::{ClientError, Compression, ProducerOptions};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::message::Durability;
use pyrmq_remoting::message::compress::Codec;
use pyrmq_remoting::net::{Requests, Table};
use pyrmq_routing::fault::Schedule;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A producer. Frozen and shared by threads.
#[pyclass(frozen, name = "Producer", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyProducer {
    owner: Owner,
    pub(crate) producer: Arc<Producer>,
    pub(crate) asked: Arc<Requests>,
    pub(crate) callbacks: Arc<Callbacks>,
}

/// Questions of brokers that may wait for Python: how a transaction ended, and to take a reply; one more is told that
/// the producer is busy.
const ASKED_LIMIT: usize = 1024;

/// The queue that a call names: (broker name or empty, number), else by the sharding key, else any.
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
        self.owner.check().map_err(|error| error.into_py(py))
    }

    /// True in the process that made it.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    fn prepare(
        &self,
        py: Python<'_>,
        topic: &str,
        body: &Bound<'_, PyAny>,
        extras: &MessageProperties<'_>,
        queue: Option<(String, i32)>,
    ) -> PyResult<OutgoingMessage> {
        self.check(py)?;
        let topic = self.producer.topic(topic);
        let body = body_of(body)?;
        let target = target_of(queue, extras.sharding_hash()?);
        let flag = extras.flag;
        let raise = |error: ClientError| Error::from(error).into_py(py);
        let properties = extras.properties(&topic, &self.producer)?.map_err(raise)?;
        let id = properties.message_id().to_owned();
        let text = properties.finish().map_err(raise)?;
        // It may compress the body.
        enter::compute(py, || self.producer.prepare(&topic, body, text, id, flag, target))
    }

    /// Acquires capacity, waiting at most until `deadline`; callbacks run meanwhile.
    pub(crate) fn acquire(
        &self,
        py: Python<'_>,
        messages: usize,
        bytes: usize,
        deadline: Instant,
    ) -> PyResult<()> {
        let back_pressure = self.producer.back_pressure();
        if back_pressure.try_acquire(messages, bytes) {
            return Ok(());
        }
        let began = Instant::now();
        if self
            .callbacks
            .acquire_capacity(py, back_pressure, (messages, bytes), deadline)?
        {
            return Ok(());
        }
        Err(Error::from(back_pressure.full(began.elapsed())).into_py(py))
    }

    /// Sends and waits for the outcome.
    pub(crate) fn send_and_wait(
        &self,
        py: Python<'_>,
        outgoing: OutgoingMessage,
        timeout_ms: Option<u64>,
    ) -> PyResult<PySendResult> {
        let deadline = Instant::now() + self.timeout(timeout_ms);
        self.acquire(py, 1, outgoing.charged_bytes, deadline)
            .map_err(|error| {
                let topic = self.producer.options().client.unwrap_name(&outgoing.topic);
                about(py, error, &topic, Some(&outgoing.message_id))
            })?;
        let timeout = deadline.saturating_duration_since(Instant::now());
        let waiter: Arc<Waiter> = Arc::default();
        let slot = waiter.clone();
        let done = Box::new(move |outcome: Outcome| slot.set(outcome.map(|frame| (Arc::new(frame), None))));
        self.producer.send(outgoing, timeout, done);
        match enter::wait(py, |slice| waiter.wait(slice))? {
            Ok((frame, place)) => Ok(PySendResult::of(frame, place)),
            Err(error) => Err(Error::from(error).into_py(py)),
        }
    }

    pub(crate) fn timeout(&self, timeout_ms: Option<u64>) -> Duration {
        timeout_ms.map_or(self.producer.options().send_timeout, Duration::from_millis)
    }
}

#[pymethods]
impl PyProducer {
    #[new]
    #[pyo3(signature = (name_servers, group, *, instance_name, send_timeout_ms, retries, retry_not_stored_ok,
        compress_over_bytes, compression, compress_level, max_message_bytes, default_queues, create_topic_key, retry_codes,
        namespace, latency_fault, fault_schedule, detect, detect_timeout_ms, detect_interval_ms,
        trace_topic, durability, vip_channel, unit_mode, unit_name, address_server, max_in_flight, max_in_flight_bytes,
        checks))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "one for each option; Python has the defaults"
    )]
    fn new(
        py: Python<'_>,
        name_servers: Vec<String>,
        group: String,
        instance_name: String,
        send_timeout_ms: u64,
        retries: u32,
        retry_not_stored_ok: bool,
        compress_over_bytes: Option<usize>,
        compression: &str,
        compress_level: u32,
        max_message_bytes: usize,
        default_queues: i32,
        create_topic_key: String,
        retry_codes: Option<Vec<i32>>,
        namespace: String,
        latency_fault: bool,
        fault_schedule: Option<Vec<(u64, u64)>>,
        detect: bool,
        detect_timeout_ms: u64,
        detect_interval_ms: u64,
        trace_topic: Option<String>,
        durability: Option<&str>,
        vip_channel: bool,
        unit_mode: bool,
        unit_name: String,
        address_server: Option<&str>,
        max_in_flight: usize,
        max_in_flight_bytes: usize,
        checks: bool,
    ) -> PyResult<Self> {
        let mut options = ProducerOptions::new(name_servers, group);
        options.client.instance_name = instance_name;
        options.send_timeout = Duration::from_millis(send_timeout_ms);
        options.retries = retries;
        options.retry_not_stored_ok = retry_not_stored_ok;
        let codec = match compression {
            "lz4" => Codec::Lz4,
            "zstd" => Codec::Zstd,
            _ => Codec::Zlib,
        };
        options.compression = compress_over_bytes.map(|over_bytes| Compression {
            over_bytes,
            codec,
            level: compress_level,
        });
        options.max_message_bytes = max_message_bytes;
        options.default_queues = default_queues;
        options.create_topic_key = create_topic_key;
        options.retry_codes = retry_codes.unwrap_or(options.retry_codes);
        options.client.namespace = namespace;
        options.latency_fault = latency_fault;
        if let Some(rows) = fault_schedule {
            let wrong = || Error::Config {
                text: format!("option `fault_schedule` is {rows:?}, its latencies must ascend"),
            };
            options.fault_schedule = Schedule::new(&rows).ok_or_else(|| wrong().into_py(py))?;
        }
        options.detect = detect;
        options.detect_timeout = Duration::from_millis(detect_timeout_ms);
        options.trace_topic = trace_topic;
        options.durability = durability.and_then(Durability::of_name);
        options.vip_channel = vip_channel;
        options.unit_mode = unit_mode;
        options.client.address_server =
            server_of(address_server, &unit_name).map_err(|error| Error::from(error).into_py(py))?;
        options.client.unit_name = unit_name;
        options.detect_interval = Duration::from_millis(detect_interval_ms);
        options.max_in_flight = max_in_flight;
        options.max_in_flight_bytes = max_in_flight_bytes;
        let asked = Arc::new(Requests::new(ASKED_LIMIT));
        let mut table = Table::new();
        table.python(&[request::PUSH_REPLY_MESSAGE_TO_CLIENT], &asked);
        let check = [request::CHECK_TRANSACTION_STATE];
        if checks {
            table.python(&check, &asked);
        } else {
            table.native(&check, &request_reply::no_checks(options.client.group.clone()));
        }
        // Checked before the runtime starts: a mistake starts nothing.
        let made = options
            .validate()
            .map_err(Error::from)
            .and_then(|()| runtime::current())
            .and_then(|runtime| Ok(Producer::with_table(runtime.handle(), options, table)?));
        Ok(Self {
            owner: Owner::new("this producer"),
            asked,
            callbacks: Arc::default(),
            producer: Arc::new(made.map_err(|error| error.into_py(py))?),
        })
    }

    /// Sends without an answer.
    fn send_oneway(
        &self,
        py: Python<'_>,
        topic: &str,
        body: &Bound<'_, PyAny>,
        extras: MessageProperties<'_>,
        queue: Option<(String, i32)>,
    ) -> PyResult<()> {
        let outgoing = self.prepare(py, topic, body, &extras, queue)?;
        enter::block_on(py, self.producer.send_oneway(outgoing))
    }

    /// Sends without an answer; that it was queued comes to `outcomes` under `token`.
    #[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
    fn send_oneway_to(
        &self,
        py: Python<'_>,
        outcomes: &CompletionList,
        token: u64,
        topic: &str,
        body: &Bound<'_, PyAny>,
        extras: MessageProperties<'_>,
        queue: Option<(String, i32)>,
    ) -> PyResult<()> {
        let outgoing = self.prepare(py, topic, body, &extras, queue)?;
        let producer = self.producer.clone();
        outcomes.run(py, token, async move {
            producer.send_oneway(outgoing).await?;
            Ok(Value::Done)
        })
    }

    /// `shut` for an event loop.
    fn shut_to(&self, py: Python<'_>, outcomes: &CompletionList, token: u64) -> PyResult<()> {
        self.check(py)?;
        let producer = self.producer.clone();
        outcomes.run(py, token, async move {
            producer.shut().await;
            Ok(Value::Done)
        })
    }

    /// The queues of a topic that may be written: (topic, broker, number).
    #[pyo3(signature = (topic, timeout_ms=None))]
    fn queues(&self, py: Python<'_>, topic: &str, timeout_ms: Option<u64>) -> PyResult<Vec<QueueRef>> {
        self.check(py)?;
        let time = self.timeout(timeout_ms);
        let (given, topic) = (topic, self.producer.topic(topic));
        let routes = self.producer.routes();
        let route = match routes.cached(&topic) {
            Some(route) => route,
            None => enter::block_on(py, routes.get_within(&topic, time))?,
        };
        Ok(places(given, &route))
    }

    /// `queues` for an event loop.
    fn queues_to(
        &self,
        py: Python<'_>,
        outcomes: &CompletionList,
        token: u64,
        topic: &str,
        timeout_ms: Option<u64>,
    ) -> PyResult<()> {
        self.check(py)?;
        let time = self.timeout(timeout_ms);
        let (given, topic) = (topic.to_owned(), self.producer.topic(topic));
        let producer = self.producer.clone();
        outcomes.run(py, token, async move {
            let route = producer.routes().get_within(&topic, time).await?;
            Ok(Value::QueueRefs(places(&given, &route)))
        })
    }

    /// Messages that may be on their way now.
    fn window(&self) -> usize {
        self.producer.back_pressure().window()
    }

    /// Messages on their way.
    fn in_flight(&self) -> usize {
        self.producer.back_pressure().in_flight()
    }

    /// Threads and tasks that wait for room, or until nothing is on its way.
    fn watchers(&self) -> usize {
        self.producer.back_pressure().waiter_count()
    }

    /// Counters by name.
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

    /// What the fault table knows: (broker, latency ms, left out for ms more, reachable).
    fn brokers(&self) -> Vec<(String, u64, u64, bool)> {
        self.producer.brokers()
    }

    /// Takes no more messages.
    fn close(&self) {
        self.producer.close();
    }

    /// Says goodbye and ends every connection. In a forked child nothing is done: it is the parent's.
    fn shut(&self, py: Python<'_>) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        enter::block_on(py, async {
            self.producer.shut().await;
            Ok::<(), Error>(())
        })
    }
}

/// The address server that an option names.
pub(crate) fn server_of(text: Option<&str>, unit_name: &str) -> Result<Option<AddressServer>, ClientError> {
    text.map(|text| AddressServer::new(text, unit_name)).transpose()
}

fn places(topic: &str, route: &TopicRoute) -> Vec<QueueRef> {
    let queues = route.published.queues.iter();
    queues
        .map(|queue| (topic.to_owned(), queue.broker.to_string(), queue.queue_id))
        .collect()
}

impl Drop for PyProducer {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // The parent's threads may have held its locks during the fork: closing could wait for ever.
            std::mem::forget(self.producer.clone());
        }
    }
}

/// A body's bytes without a copy where that is safe while the interpreter is held.
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
