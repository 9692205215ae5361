//! Many messages in one call: from a Python iterable into batch frames, with an outcome for each message.
//!
//! Messages without a sharding key or queue are added to frames, each sent as soon as it is full, so encoding goes
//! on while the first responses arrive. Those with a sharding key or queue go through the accumulator, after earlier
//! messages of their queue, which keeps their order. A delayed message gets a frame of its own, since brokers refuse it
//! in a batch. A call that ends early still waits for the messages already sent: their outcomes are reported with the
//! error.

use crate::completion::{BatchCollector, BatchPart, Unsent, batch_list};
use crate::enter;
use crate::errors::Error;
use crate::producer::args::MessageProperties;
use crate::producer::batch_target::{BatchTarget, Frames};
use crate::producer::class::BodyRef;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use pyrmq_client::ClientError;
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::accumulator::{BatchSettings, TargetRef};
use pyrmq_client::producer::back_pressure::Candidates;
use pyrmq_client::producer::outgoing::Target;
use pyrmq_client::session::topic_name::check_topic;
use std::sync::Arc;
use std::time::Duration;

/// How a call's messages are sent.
pub(crate) struct Plan<'a, 'py> {
    pub(crate) topic: &'a str,
    pub(crate) properties: &'a MessageProperties<'py>,
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
struct BatchCall<'a, 'py> {
    batch_target: &'a BatchTarget<'a>,
    py: Python<'py>,
    plan: &'a Plan<'a, 'py>,
    frames: Frames<'a, 'py>,
    /// How many messages were read.
    count: u32,
}

/// Sends all messages and waits for their outcomes. Returns a result or an exception for each message that was read,
/// and the exception that ended the call early, if one did.
pub(crate) fn send<'py>(
    batch_target: &BatchTarget<'_>,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
) -> PyResult<Bound<'py, PyTuple>> {
    let (collector, sent, unsent) = launch_all(batch_target, py, messages, plan, true)?;
    collector.expect(sent, None);
    let parts = enter::wait(py, |slice| collector.wait(slice))?;
    batch_list(py, parts, unsent)
}

/// Sends all messages; `then` gets the outcomes when all have arrived.
pub(crate) fn send_then<'py>(
    batch_target: &BatchTarget<'_>,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
    then: impl FnOnce(Vec<BatchPart>, Unsent) + Send + 'static,
) -> PyResult<()> {
    let (back_pressure, brokers) = (
        batch_target.producer.back_pressure(),
        plan.candidates(batch_target.producer),
    );
    if back_pressure.is_full(&brokers) {
        return Err(Error::from(back_pressure.full(Duration::ZERO, &brokers)).into_py(py));
    }
    let (collector, sent, unsent) = launch_all(batch_target, py, messages, plan, false)?;
    collector.expect(sent, Some(Box::new(move |parts| then(parts, unsent))));
    Ok(())
}

/// Hands over the messages. Returns the collector of their outcomes, how many were sent, and what was not. Fails only
/// when nothing was sent or the call was interrupted (Ctrl-C); other errors come with the unsent messages.
fn launch_all<'py>(
    batch_target: &BatchTarget<'_>,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
    waits: bool,
) -> PyResult<(Arc<BatchCollector>, usize, Unsent)> {
    check_topic(plan.topic).map_err(|error| Error::from(error).into_py(py))?;
    let settings = BatchSettings {
        bytes: plan.batch_bytes,
        inner: plan.inner,
        timeout: plan.timeout,
    };
    let mut call = BatchCall {
        batch_target,
        py,
        plan,
        frames: Frames::new(*batch_target, py, plan.topic, settings, waits),
        count: 0,
    };
    let mut failed = None;
    let read = call.read(messages, &mut failed);
    let ended = read.and_then(|()| call.frames.launch_open());
    batch_target.accumulator.uncork();
    match ended {
        Err(error) if call.frames.sent == 0 || !error.is_instance_of::<PyException>(py) => Err(error),
        ended => {
            let unsent = Unsent {
                count: call.count,
                failed,
                error: ended.err(),
            };
            Ok((call.frames.collector, call.frames.sent, unsent))
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

impl<'py> BatchCall<'_, 'py> {
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
            return self.add_body(message, self.plan.properties, member);
        }
        if let Ok(body) = message.getattr("body") {
            let own = MessageProperties::of_message(message)?;
            check_same_topic(message, self.plan.topic)?;
            return self.add_body(&body, &own, member);
        }
        self.add_body(message, self.plan.properties, member)
    }

    fn add_body(
        &mut self,
        body: &Bound<'py, PyAny>,
        properties: &MessageProperties<'py>,
        member: u32,
    ) -> PyResult<()> {
        let body = BodyRef::of(body)?;
        let body = body.as_slice();
        let checked = self
            .batch_target
            .producer
            .check_size(&self.frames.topic, body.len());
        checked.map_err(|error| self.raise(error))?;
        match (self.plan.queue, properties.sharding_hash()?) {
            (Some((broker, id)), _) => self.push(body, properties, TargetRef::Queue(broker, *id), member),
            (None, Some(hash)) => self.push(body, properties, TargetRef::Hash(hash), member),
            (None, None) if properties.is_delayed() => self.send_alone(body, properties, member),
            (None, None) => self.add_to_frame(body, properties, member),
        }
    }

    fn push(
        &mut self,
        body: &[u8],
        properties: &MessageProperties<'py>,
        target: TargetRef<'_>,
        number: u32,
    ) -> PyResult<()> {
        let text = properties.encode_bare(&self.frames.topic)?;
        let text = text.map_err(|error| self.raise(error))?;
        let member = (number, body, text.as_str(), properties.flag.0);
        let pushed = self.frames.push(member, target, properties.is_delayed())?;
        pushed.map_err(|error| self.raise(error))
    }

    fn send_alone(&mut self, body: &[u8], properties: &MessageProperties<'py>, number: u32) -> PyResult<()> {
        let (producer, topic, flag) = (self.batch_target.producer, &self.frames.topic, properties.flag.0);
        let (id, text) = properties.encode(self.py, topic, producer, &[])?;
        let outgoing = enter::compute(self.py, || {
            let body = bytes::Bytes::copy_from_slice(body);
            producer.prepare(topic, body, text, id, flag, Target::Any)
        })?;
        self.frames.launch(outgoing, vec![number])
    }

    fn add_to_frame(
        &mut self,
        body: &[u8],
        properties: &MessageProperties<'py>,
        number: u32,
    ) -> PyResult<()> {
        let (id, text) = properties.encode(self.py, &self.frames.topic, self.batch_target.producer, &[])?;
        let member = (number, body, text.as_str(), properties.flag.0);
        let added = self.frames.add_to_frame(member, &id)?;
        added.map_err(|error| Error::Wire(error).into_py(self.py))
    }
}
