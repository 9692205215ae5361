//! Where a batch call sends its messages, and the frames that it fills.

use crate::completion::BatchCollector;
use crate::completion::queue::Completer;
use crate::enter;
use crate::errors::Error;
use crate::producer::class::PyProducer;
use pyo3::prelude::*;
use pyrmq_client::ClientError;
use pyrmq_client::producer::accumulator::{AccumulatedMessage, Accumulator, BatchSettings, TargetRef};
use pyrmq_client::producer::back_pressure::BorrowedPermit;
use pyrmq_client::producer::batch::Batch;
use pyrmq_client::producer::outgoing::{EncodedBody, OutgoingMessage, Target};
use pyrmq_client::producer::{Producer, SendResult};
use pyrmq_remoting::{WireError, clock};
use std::sync::Arc;
use std::time::Instant;

/// The parts of an accumulator that a batch call needs.
#[derive(Clone, Copy)]
pub(crate) struct BatchTarget<'a> {
    pub(crate) py_producer: &'a Py<PyProducer>,
    pub(crate) producer: &'a Arc<Producer>,
    pub(crate) accumulator: &'a Arc<Accumulator<Completer>>,
}

impl BatchTarget<'_> {
    /// Compresses a body that is large enough, detached from the interpreter.
    pub(crate) fn encode_body(&self, py: Python<'_>, body: &[u8]) -> PyResult<Option<EncodedBody>> {
        // A body that is too large will be refused, so it is not compressed.
        if body.len() > self.producer.options().max_message_bytes {
            return Ok(None);
        }
        enter::compute(py, || Ok::<_, Error>(self.producer.encode_body(body)))
    }
}

/// A message of a batch call: its number there, its body, its properties in wire form, its flag.
pub(super) type Member<'a> = (u32, &'a [u8], &'a str, i32);

/// What one batch call has sent, and the frame that it fills.
pub(super) struct Frames<'a, 'py> {
    batch_target: BatchTarget<'a>,
    py: Python<'py>,
    /// The topic as the caller names it.
    given: &'a str,
    /// The topic with its namespace.
    pub(super) topic: Arc<str>,
    settings: BatchSettings,
    /// Whether the call waits for capacity. An event loop's call does not: it has waited before.
    waits: bool,
    /// The frame that is being filled with messages for any queue, and the numbers of those messages.
    open: Option<(Batch, Vec<u32>)>,
    pub(super) collector: Arc<BatchCollector>,
    /// How many messages were handed over.
    pub(super) sent: usize,
}

impl<'a, 'py> Frames<'a, 'py> {
    pub(super) fn new(
        batch_target: BatchTarget<'a>,
        py: Python<'py>,
        topic: &'a str,
        settings: BatchSettings,
        waits: bool,
    ) -> Self {
        Self {
            batch_target,
            py,
            given: topic,
            topic: batch_target.producer.topic(topic),
            settings: BatchSettings {
                bytes: settings
                    .bytes
                    .min(batch_target.producer.options().max_message_bytes),
                ..settings
            },
            waits,
            open: None,
            collector: BatchCollector::new(),
            sent: 0,
        }
    }

    /// Sends a message after earlier ones for its queue; `alone`: in a frame of its own.
    pub(super) fn push(
        &mut self,
        (number, body, properties, flag): Member<'_>,
        target: TargetRef<'_>,
        alone: bool,
    ) -> PyResult<Result<(), ClientError>> {
        let message = AccumulatedMessage {
            topic: self.given,
            body,
            encoded: if alone {
                self.batch_target.encode_body(self.py, body)?
            } else {
                None
            },
            properties,
            flag,
            target,
            eager: true,
            alone,
            timeout: None,
            batch: Some(self.settings),
            completion: Some(Completer::Member(self.collector.clone(), number)),
        };
        let permit = self.acquire(1, message.charged_bytes(), target)?;
        let pushed = self.batch_target.accumulator.push_corked(message, permit);
        self.sent += usize::from(pushed.is_ok());
        Ok(pushed.map(drop))
    }

    /// Adds a message for any queue to the frame that is being filled. `id`: the unique id among its properties.
    pub(super) fn add_to_frame(
        &mut self,
        (number, body, properties, flag): Member<'_>,
        id: &str,
    ) -> PyResult<Result<(), WireError>> {
        let fits = |(open, _): &(Batch, Vec<u32>)| open.fits(body.len(), properties.len());
        if !self.open.as_ref().is_none_or(fits) {
            self.launch_open()?;
        }
        let (topic, settings, ids) = (&self.topic, self.settings, self.batch_target.producer.ids());
        let (open, members) = self.open.get_or_insert_with(|| {
            let open = Batch::new(topic.clone(), Target::Any, settings.bytes);
            let open = if settings.inner {
                open.with_id(ids.next(clock::now_ms()).to_string())
            } else {
                open
            };
            (open, Vec::new())
        });
        let pushed = open.push(body, properties, id, flag);
        if pushed.is_ok() {
            members.push(number);
        }
        Ok(pushed)
    }

    /// Sends the frame that is being filled.
    pub(super) fn launch_open(&mut self) -> PyResult<()> {
        match self.open.take() {
            Some((mut open, members)) if !open.is_empty() => self.launch(open.finish_batch(), members),
            _ => Ok(()),
        }
    }

    /// Sends a frame.
    pub(super) fn launch(&mut self, outgoing: OutgoingMessage, members: Vec<u32>) -> PyResult<()> {
        let permit = self.acquire(members.len(), outgoing.charged_bytes, TargetRef::Any)?;
        let sent = members.len();
        let collector = self.collector.clone();
        let done = Box::new(move |outcome: Result<SendResult, ClientError>| {
            collector.record(((0..).zip(members).collect(), outcome.map(Arc::new)));
        });
        let timeout = self.settings.timeout;
        self.batch_target.producer.send(outgoing, permit, timeout, done);
        self.sent += sent;
        Ok(())
    }

    fn acquire(&self, messages: usize, bytes: usize, target: TargetRef<'_>) -> PyResult<BorrowedPermit<'_>> {
        let back_pressure = self.batch_target.producer.back_pressure();
        let brokers = self.batch_target.producer.candidates(self.given, target);
        if let Some(permit) = back_pressure.try_acquire_at(messages, bytes, &brokers) {
            return Ok(permit);
        }
        if !self.waits {
            // Not bounded here: the caller holds the whole list in memory already.
            return Ok(back_pressure.force_acquire(messages, bytes));
        }
        // The messages that this call has not sent yet may hold the capacity that it waits for.
        self.batch_target.accumulator.uncork();
        let deadline = Instant::now() + self.settings.timeout;
        let py_producer = self.batch_target.py_producer.get();
        py_producer.acquire(self.py, (messages, bytes, &brokers), deadline)
    }
}
