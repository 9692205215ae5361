//! Transactions and request-reply: messages with RocketMQ's own properties, and the requests that brokers send to a
//! producer.
//!
//! ```text
//! half      TRAN_MSG, PGROUP        end (37) to the broker that stored it     check (39) -> RequestQueue -> end (37)
//! request   CORRELATION_ID, REPLY_TO_CLIENT, TTL                              reply (326) -> RequestQueue
//! reply     MSG_TYPE, CORRELATION_ID, ... sent by 325
//! ```
use crate::completion::{self, Outcome, PySendResult, ReplyTo, Value};
use crate::enter;
use crate::errors::Error;
use crate::producer::args::{Kind, QueueAndTime, SendArgs};
use crate::producer::class::{BodyRef, PyProducer, target_of};
use crate::received::PyReceived;
use crate::server::requests::RequestQueue;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::outgoing::OutgoingMessage;
use pyrmq_client::producer::transaction::EndTransaction;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::{NewRecord, sys_flag};
use pyrmq_remoting::net::Requests;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The operations of a producer other than plain sends.
#[pyclass(frozen, name = "RequestReply", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyRequestReply {
    py_producer: Py<PyProducer>,
    producer: Arc<Producer>,
    broker_requests: Arc<Requests>,
}

/// A message with RocketMQ's own properties, as Python passes it.
type Message<'a, 'py> = (
    &'a str,
    &'a Bound<'py, PyAny>,
    &'a Bound<'py, PyDict>,
    Vec<(String, String)>,
);

/// How a transaction ended, as Python passes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Ending {
    topic: String,
    broker: String,
    /// The broker's address, if the broker checked it.
    address: Option<String>,
    /// The offset id of the half message, or its position in the log.
    half: String,
    queue_offset: i64,
    message_id: String,
    state: i32,
    /// The broker's region, if the broker checked it.
    region: Option<String>,
    tags: Option<String>,
    keys: Option<String>,
}

impl Ending {
    fn read(self) -> Result<EndTransaction, Error> {
        let position = self
            .half
            .parse::<i64>()
            .or_else(|_| self.half.parse::<OffsetId>().map(|id| id.offset));
        Ok(EndTransaction {
            commit_log_offset: position.map_err(Error::Wire)?,
            topic: self.topic,
            broker: self.broker,
            from_check: self.address.is_some(),
            address: self.address,
            queue_offset: self.queue_offset,
            message_id: self.message_id,
            state: self.state,
            region: self.region,
            tags: self.tags,
            keys: self.keys,
        })
    }
}

impl PyRequestReply {
    fn prepare(
        &self,
        py: Python<'_>,
        (topic, body, options, system): Message<'_, '_>,
        kind: &str,
        queue: Option<(String, i32)>,
    ) -> PyResult<OutgoingMessage> {
        self.py_producer.get().check(py)?;
        let kind = Kind::of(kind)?;
        let properties = SendArgs::read(kind, options)?.properties;
        // A reply's topic belongs to the cluster, not to a namespace.
        let topic = match kind {
            Kind::Reply => topic.into(),
            _ => self.producer.topic(topic),
        };
        let body = Bytes::copy_from_slice(BodyRef::of(body)?.as_slice());
        let (id, text) = properties.encode(py, &topic, &self.producer, &system)?;
        let target = target_of(queue, properties.sharding_hash()?);
        let (producer, flag) = (&self.producer, properties.flag.0);
        // Preparing may compress the body, so other threads run meanwhile.
        let mut outgoing = enter::compute(py, || producer.prepare(&topic, body, text, id, flag, target))?;
        match kind {
            Kind::Half => outgoing.sys_flag |= sys_flag::TRANSACTION_PREPARED,
            Kind::Reply => outgoing.reply = true,
            _ => {}
        }
        Ok(outgoing)
    }
}

#[pymethods]
impl PyRequestReply {
    #[new]
    fn new(producer: Bound<'_, PyProducer>) -> Self {
        Self {
            producer: producer.get().producer.clone(),
            broker_requests: producer.get().broker_requests.clone(),
            py_producer: producer.unbind(),
        }
    }

    /// Sends a message with RocketMQ's own properties and waits. `kind`: `half`, `request` or `reply`.
    #[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
    fn send(
        &self,
        py: Python<'_>,
        topic: &str,
        body: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        system: Vec<(String, String)>,
        kind: &str,
        queue_and_time: QueueAndTime,
    ) -> PyResult<PySendResult> {
        let (queue, timeout_ms) = queue_and_time;
        let outgoing = self.prepare(py, (topic, body, options, system), kind, queue)?;
        self.py_producer.get().send_and_wait(py, outgoing, timeout_ms)
    }

    /// Sends a message with RocketMQ's own properties without waiting.
    #[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
    fn send_to(
        &self,
        py: Python<'_>,
        topic: &str,
        body: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        system: Vec<(String, String)>,
        kind: &str,
        queue_and_time: QueueAndTime,
        to: ReplyTo,
    ) -> PyResult<()> {
        let (queue, timeout_ms) = queue_and_time;
        let outgoing = self.prepare(py, (topic, body, options, system), kind, queue)?;
        let timeout = self.py_producer.get().timeout(timeout_ms);
        // An event loop must not wait, and few of these are in flight at once, so they always get their permit.
        let permit = self
            .producer
            .back_pressure()
            .force_acquire(1, outgoing.charged_bytes);
        let reply = completion::reply(to);
        let done = Box::new(move |outcome: Outcome| reply(outcome.map(Value::Sent)));
        self.producer.send(outgoing, permit, timeout, done);
        Ok(())
    }

    // An event loop calls with `to`, where the outcome goes: see `completion::run`.

    /// Makes sure that the topic's brokers know this producer.
    #[pyo3(signature = (topic, timeout_ms, to=None))]
    fn heartbeat(
        &self,
        py: Python<'_>,
        topic: &str,
        timeout_ms: u64,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.py_producer.get().check(py)?;
        let time = Duration::from_millis(timeout_ms);
        let (producer, topic) = (self.producer.clone(), self.producer.topic(topic));
        completion::run(py, to, async move { producer.heartbeat_to(&topic, time).await })
    }

    /// Ends a transaction at its broker: commit, roll back, or leave it open.
    #[pyo3(signature = (end, timeout_ms, to=None))]
    fn end(&self, py: Python<'_>, end: Ending, timeout_ms: u64, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        self.py_producer.get().check(py)?;
        let end = end.read().map_err(|error| error.into_py(py))?;
        let time = Duration::from_millis(timeout_ms);
        let producer = self.producer.clone();
        completion::run(py, to, async move { producer.end_transaction(&end, time).await })
    }

    /// Recalls a timer message by the `broker` and `id` of its handle. Returns the id of the recalling message.
    #[pyo3(signature = (topic, broker, id, handle, to=None))]
    fn recall(
        &self,
        py: Python<'_>,
        topic: &str,
        broker: String,
        id: String,
        handle: String,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.py_producer.get().check(py)?;
        let (producer, topic) = (self.producer.clone(), self.producer.topic(topic));
        completion::run(py, to, async move {
            let id = producer.recall(&topic, &broker, &id, &handle).await?;
            Ok(Value::Text(id))
        })
    }

    /// The client id by which brokers know this producer.
    #[getter]
    fn client_id(&self) -> &str {
        self.producer.client_id()
    }

    /// The queue of requests from brokers.
    #[getter]
    fn broker_requests(&self) -> RequestQueue {
        RequestQueue::new(self.broker_requests.clone())
    }

    /// Accepts no more requests from brokers.
    fn close(&self) {
        // In a forked child its lock may be held forever.
        if self.py_producer.get().is_here() {
            self.broker_requests.close();
        }
    }

    /// Decodes a record into the message that a consumer would get.
    #[staticmethod]
    fn message_of(py: Python<'_>, record: &[u8], broker: &str) -> PyResult<PyReceived> {
        PyReceived::of_record(py, Bytes::copy_from_slice(record), broker, None)
    }

    /// Decodes a record into a message, with its topic as this producer knows it.
    fn message_to_check(&self, py: Python<'_>, record: &[u8], broker: &str) -> PyResult<PyReceived> {
        let options = &self.producer.options().client;
        PyReceived::of_record(py, Bytes::copy_from_slice(record), broker, Some(options))
    }

    /// Decodes the message in a pushed reply.
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument for each field of the request"
    )]
    fn reply_of(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: i32,
        flag: i32,
        flags: i32,
        born_ms: i64,
        born_host: &str,
        store_ms: i64,
        store_host: &str,
        properties: &str,
        body: &[u8],
    ) -> PyResult<PyReceived> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let host = |text: &str| text.trim_start_matches('/').parse().unwrap_or(unknown);
        let record = NewRecord {
            topic,
            queue_id,
            flag,
            queue_offset: 0,
            physical_offset: 0,
            sys_flag: flags & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6),
            born_timestamp_ms: born_ms,
            born_host: host(born_host),
            store_timestamp_ms: store_ms,
            store_host: host(store_host),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties: properties.as_bytes(),
        };
        let mut bytes = Vec::new();
        record
            .encode(&mut bytes)
            .map_err(|error| Error::Wire(error).into_py(py))?;
        PyReceived::of_record(py, bytes.into(), "", Some(&self.producer.options().client))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyRequestReply>()
}
