//! Many messages in one call: from a Python iterable into batch frames, with an outcome for each message.
//!
//! Messages without a sharding key or queue are gathered into frames, each sent as soon as it is full, so encoding goes
//! on while the first responses arrive. Those with a sharding key or queue go through the accumulator, behind earlier
//! messages of their queue, which keeps their order. A delayed message gets a frame of its own, since brokers refuse it
//! in a batch. A call that ends early still waits for the messages already sent: their outcomes are reported with the
//! error.

use crate::completion::queue::Completion;
use crate::completion::{BatchCollector, BatchPart, Unsent, batch_list};
use crate::enter;
use crate::errors::Error;
use crate::producer::args::MessageProperties;
use crate::producer::class::BodyRef;
use crate::producer::way::Way;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use pyrmq_client::ClientError;
use pyrmq_client::producer::accumulator::{BatchSettings, Message, TargetRef};
use pyrmq_client::producer::back_pressure::{BorrowedPermit, Candidates};
use pyrmq_client::producer::batch::Batch;
use pyrmq_client::producer::outgoing::{OutgoingMessage, Target, check_topic};
use pyrmq_client::producer::{Producer, SendResult};
use pyrmq_remoting::clock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a call's messages are sent.
pub(crate) struct Plan<'a, 'py> {
    pub(crate) topic: &'a str,
    pub(crate) extras: &'a MessageProperties<'py>,
    pub(crate) queue: Option<&'a (String, i32)>,
    pub(crate) batch_bytes: usize,
    pub(crate) timeout: Duration,
    /// Whether the topic stores each batch as one record.
    pub(crate) inner: bool,
}

impl Plan<'_, '_> {
    /// The brokers that the call's messages may go to. Messages with a sharding key have their own.
    fn candidates(&self, producer: &Producer) -> Candidates {
        let target = match self.queue {
            Some((broker, id)) => TargetRef::Queue(broker, *id),
            None => TargetRef::Any,
        };
        producer.candidates(self.topic, target)
    }
}

/// One call in progress.
struct Call<'a, 'py> {
    way: &'a Way<'a>,
    py: Python<'py>,
    plan: &'a Plan<'a, 'py>,
    topic: Arc<str>,
    batch_bytes: usize,
    /// The frame that is being filled with messages for any queue, and the numbers of those messages.
    open: Option<(Batch, Vec<u32>)>,
    collector: Arc<BatchCollector>,
    /// How many messages were read.
    count: u32,
    /// How many of them were handed over.
    sent: usize,
    /// Whether the call waits for capacity. An event loop's call does not: it has waited before.
    waits: bool,
}

/// Sends all messages and waits for their outcomes. Returns a result or an exception for each message that was read,
/// and the exception that ended the call early, if one did.
pub(crate) fn send<'py>(
    way: &Way<'_>,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
) -> PyResult<Bound<'py, PyTuple>> {
    let (collector, sent, unsent) = launch_all(way, py, messages, plan, true)?;
    collector.expect(sent, None);
    let parts = enter::wait(py, |slice| collector.wait(slice))?;
    batch_list(py, parts, unsent)
}

/// Sends all messages; `then` gets the outcomes when all have arrived.
pub(crate) fn send_then<'py>(
    way: &Way<'_>,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
    then: impl FnOnce(Vec<BatchPart>, Unsent) + Send + 'static,
) -> PyResult<()> {
    let (back_pressure, brokers) = (way.producer.back_pressure(), plan.candidates(way.producer));
    if back_pressure.is_full(&brokers) {
        return Err(Error::from(back_pressure.full(Duration::ZERO, &brokers)).into_py(py));
    }
    let (collector, sent, unsent) = launch_all(way, py, messages, plan, false)?;
    collector.expect(sent, Some(Box::new(move |parts| then(parts, unsent))));
    Ok(())
}

/// Hands over the messages. Returns the collector of their outcomes, how many were sent, and what was not. Fails only
/// when nothing was sent or the call was interrupted (Ctrl-C); other errors come with the unsent messages.
fn launch_all<'py>(
    way: &Way<'_>,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
    waits: bool,
) -> PyResult<(Arc<BatchCollector>, usize, Unsent)> {
    check_topic(plan.topic).map_err(|error| Error::from(error).into_py(py))?;
    let producer = &way.producer;
    let mut call = Call {
        way,
        py,
        plan,
        topic: producer.topic(plan.topic),
        batch_bytes: plan.batch_bytes.min(producer.options().max_message_bytes),
        open: None,
        collector: BatchCollector::new(),
        count: 0,
        sent: 0,
        waits,
    };
    let mut failed = None;
    let ended = call.read(messages, &mut failed).and_then(|()| call.finish());
    way.core().uncork();
    match ended {
        Err(error) if call.sent == 0 || !error.is_instance_of::<PyException>(py) => Err(error),
        ended => {
            let unsent = Unsent {
                count: call.count,
                failed,
                error: ended.err(),
            };
            Ok((call.collector, call.sent, unsent))
        }
    }
}

/// A message that names a topic other than the call's is an error.
fn check_same_topic(message: &Bound<'_, PyAny>, topic: &str) -> PyResult<()> {
    let own = message.getattr("topic")?;
    let own = own.cast::<PyString>()?.to_cow()?;
    if own == topic {
        return Ok(());
    }
    let mixed = ClientError::MixedTopics {
        topic: topic.to_owned(),
        other: own.into_owned(),
    };
    Err(Error::from(mixed).into_py(message.py()))
}

impl<'py> Call<'_, 'py> {
    fn raise(&self, error: ClientError) -> PyErr {
        Error::from(error).into_py(self.py)
    }

    /// Reads all messages. `failed` becomes the number of the one that could not be sent.
    fn read(&mut self, messages: &Bound<'py, PyAny>, failed: &mut Option<u32>) -> PyResult<()> {
        for message in messages.try_iter()? {
            let message = message?;
            let member = self.count;
            self.count += 1;
            if let Err(error) = self.add(&message, member) {
                *failed = Some(member);
                return Err(error);
            }
        }
        Ok(())
    }

    fn add(&mut self, message: &Bound<'py, PyAny>, member: u32) -> PyResult<()> {
        if message.is_instance_of::<PyBytes>() || message.is_instance_of::<PyString>() {
            return self.add_body(message, self.plan.extras, member);
        }
        if let Ok(body) = message.getattr("body") {
            let own = MessageProperties::of_message(message)?;
            check_same_topic(message, self.plan.topic)?;
            return self.add_body(&body, &own, member);
        }
        self.add_body(message, self.plan.extras, member)
    }

    fn add_body(
        &mut self,
        body: &Bound<'py, PyAny>,
        extras: &MessageProperties<'py>,
        member: u32,
    ) -> PyResult<()> {
        let body = BodyRef::of(body)?;
        let body = body.as_slice();
        let checked = self.way.producer.check_size(&self.topic, body.len());
        checked.map_err(|error| self.raise(error))?;
        match (self.plan.queue, extras.sharding_hash()?) {
            (Some((broker, id)), _) => self.push(body, extras, TargetRef::Queue(broker, *id), member),
            (None, Some(hash)) => self.push(body, extras, TargetRef::Hash(hash), member),
            (None, None) if extras.is_delayed() => self.send_alone(body, extras, member),
            (None, None) => self.gather(body, extras, member),
        }
    }

    /// Sends a message for one queue, behind earlier ones for it.
    fn push(
        &mut self,
        body: &[u8],
        extras: &MessageProperties<'py>,
        target: TargetRef<'_>,
        member: u32,
    ) -> PyResult<()> {
        let extra = extras.text(&self.topic)?.map_err(|error| self.raise(error))?;
        let alone = extras.is_delayed();
        let message = Message {
            topic: self.plan.topic,
            body,
            encoded: if alone {
                self.way.encode_body(self.py, body)?
            } else {
                None
            },
            properties: &extra,
            flag: extras.flag.0,
            target,
            eager: true,
            alone,
            timeout: None,
            batch: Some(BatchSettings {
                bytes: self.batch_bytes,
                inner: self.plan.inner,
                timeout: self.plan.timeout,
            }),
            completion: Some(Completion::Member(self.collector.clone(), member)),
        };
        let charged_bytes = message.charged_bytes();
        let permit = self.acquire_capacity(1, charged_bytes, target)?;
        let pushed = self.way.core().push_corked(message, permit);
        pushed.map_err(|error| self.raise(error))?;
        self.sent += 1;
        Ok(())
    }

    fn send_alone(&mut self, body: &[u8], extras: &MessageProperties<'py>, member: u32) -> PyResult<()> {
        let producer = &self.way.producer;
        let (id, properties) = extras.with_id(self.py, &self.topic, producer, &[])?;
        let (topic, flag) = (&self.topic, extras.flag.0);
        let outgoing = enter::compute(self.py, || {
            let body = bytes::Bytes::copy_from_slice(body);
            producer.prepare(topic, body, properties, id, flag, Target::Any)
        })?;
        self.launch(outgoing, vec![member])
    }

    /// Adds a message for any queue to the frame that is being filled.
    fn gather(&mut self, body: &[u8], extras: &MessageProperties<'py>, member: u32) -> PyResult<()> {
        let producer = self.way.producer.clone();
        let (id, properties) = extras.with_id(self.py, &self.topic, &producer, &[])?;
        let fits = |(open, _): &(Batch, Vec<u32>)| open.fits(body.len(), properties.len());
        if !self.open.as_ref().is_none_or(fits) {
            self.launch_open()?;
        }
        let (topic, limit, inner) = (self.topic.clone(), self.batch_bytes, self.plan.inner);
        let (open, members) = self.open.get_or_insert_with(|| {
            let open = Batch::new(topic, Target::Any, limit);
            let open = if inner {
                open.with_id(producer.ids().next(clock::now_ms()).to_string())
            } else {
                open
            };
            (open, Vec::new())
        });
        let pushed = open.push(body, &properties, &id, extras.flag.0);
        pushed.map_err(|error| Error::from(error).into_py(self.py))?;
        members.push(member);
        Ok(())
    }

    fn acquire_capacity(
        &self,
        messages: usize,
        bytes: usize,
        target: TargetRef<'_>,
    ) -> PyResult<BorrowedPermit<'_>> {
        let back_pressure = self.way.producer.back_pressure();
        let brokers = self.way.producer.candidates(self.plan.topic, target);
        if let Some(permit) = back_pressure.try_acquire_at(messages, bytes, &brokers) {
            return Ok(permit);
        }
        if !self.waits {
            // Not bounded here: the caller holds the whole list in memory already.
            return Ok(back_pressure.force_acquire(messages, bytes));
        }
        // The messages that this call has not sent yet may hold the capacity that it waits for.
        self.way.core().uncork();
        let deadline = Instant::now() + self.plan.timeout;
        let native = self.way.native.get();
        native.acquire(self.py, (messages, bytes, &brokers), deadline)
    }

    fn launch(&mut self, outgoing: OutgoingMessage, members: Vec<u32>) -> PyResult<()> {
        let permit = self.acquire_capacity(members.len(), outgoing.charged_bytes, TargetRef::Any)?;
        let sent = members.len();
        let collector = self.collector.clone();
        let done = Box::new(move |outcome: Result<SendResult, ClientError>| {
            collector.record(((0..).zip(members).collect(), outcome.map(Arc::new)));
        });
        self.way.producer.send(outgoing, permit, self.plan.timeout, done);
        self.sent += sent;
        Ok(())
    }

    fn launch_open(&mut self) -> PyResult<()> {
        match self.open.take() {
            Some((mut open, members)) if !open.is_empty() => self.launch(open.take(), members),
            _ => Ok(()),
        }
    }

    /// Sends the last frame.
    fn finish(&mut self) -> PyResult<()> {
        self.launch_open()
    }
}
