//! How one message enters the accumulator from Python: capacity, body, completion.

use crate::completion::queue::Completer;
use crate::errors::{Error, about};
use crate::producer::accumulator::PyAccumulator;
use crate::producer::args::{self, MessageProperties, SendArgs};
use crate::producer::class::BodyRef;
use pyo3::prelude::*;
use pyrmq_client::ClientError;
use pyrmq_client::producer::accumulator::{AccumulatedMessage, TargetRef};
use pyrmq_client::producer::back_pressure::{BorrowedPermit, Candidates};
use std::time::{Duration, Instant};

/// How a message is sent: which thread waits, for how long, and what is completed.
pub(super) struct SendMode {
    pub(super) completion: Option<Completer>,
    pub(super) eager: bool,
    pub(super) wait: bool,
    pub(super) timeout: Option<Duration>,
}

impl PyAccumulator {
    pub(super) fn submit<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        body: &Bound<'py, PyAny>,
        properties: &MessageProperties<'py>,
        queue: Option<&(String, i32)>,
        mut mode: SendMode,
    ) -> PyResult<bool> {
        self.check(py)?;
        let raise = |error: ClientError| Error::from(error).into_py(py);
        let body = BodyRef::of(body)?;
        let body = body.as_slice();
        let text = properties.encode_bare(topic)?.map_err(raise)?;
        let target = match (queue, properties.sharding_hash()?) {
            (Some((broker, id)), _) => TargetRef::Queue(broker, *id),
            (None, Some(hash)) => TargetRef::Hash(hash),
            (None, None) => TargetRef::Any,
        };
        let charged_bytes = body.len() + text.len();
        let back_pressure = self.producer.back_pressure();
        let brokers = self.producer.candidates(topic, target);
        let permit = match back_pressure.try_acquire_at(1, charged_bytes, &brokers) {
            Some(permit) => permit,
            None => self.acquire_capacity(py, topic, (charged_bytes, brokers), &mut mode)?,
        };
        let encoded = if self.producer.is_compressible(body.len()) {
            self.batch_target().encode_body(py, body)?
        } else {
            None
        };
        let message = AccumulatedMessage {
            topic,
            body,
            encoded,
            properties: &text,
            flag: properties.flag.0,
            target,
            eager: mode.eager,
            alone: properties.is_delayed(),
            timeout: mode.timeout,
            batch: None,
            completion: mode.completion,
        };
        // A message that is awaited in an event loop waits for the loop's other tasks; the caller does not block.
        let corked = mode.eager && !mode.wait && self.futures.pipe_signal.is_some();
        let pushed = if corked {
            self.accumulator.push_corked(message, permit)
        } else {
            self.accumulator.push(message, permit).map(|()| false)
        };
        pushed.map_err(raise)
    }

    /// Accepts a message whose outcome goes to a callback.
    pub(crate) fn produce<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        body: &Bound<'py, PyAny>,
        on_delivery: Option<Py<PyAny>>,
        wait: bool,
        args: &SendArgs<'py>,
    ) -> PyResult<()> {
        let queue = match &args.queue {
            Some(queue) => args::queue_of(self.py_producer.bind(py), topic, queue)?,
            None => None,
        };
        let mode = SendMode {
            completion: on_delivery.map(Completer::Call),
            eager: false,
            wait,
            timeout: None,
        };
        self.submit(py, topic, body, &args.properties, queue.as_ref(), mode)
            .map(drop)
    }

    /// Waits for capacity and runs callbacks meanwhile: when nobody polls, only they free capacity.
    fn acquire_capacity(
        &self,
        py: Python<'_>,
        topic: &str,
        (bytes, brokers): (usize, Candidates),
        mode: &mut SendMode,
    ) -> PyResult<BorrowedPermit<'_>> {
        let back_pressure = self.producer.back_pressure();
        let time = mode.timeout.unwrap_or(self.producer.options().send_timeout);
        let deadline = Instant::now() + time;
        if mode.wait
            && let Some(permit) =
                self.calls
                    .acquire_capacity(py, back_pressure, (1, bytes, &brokers), deadline)?
        {
            // The wait for capacity counts towards the message's own timeout, and towards that of a thread that waits
            // for it.
            if mode.timeout.is_some() || matches!(mode.completion, Some(Completer::Thread(_))) {
                mode.timeout = Some(deadline.saturating_duration_since(Instant::now()));
            }
            return Ok(permit);
        }
        let waited = if mode.wait { time } else { Duration::ZERO };
        Err(about(
            py,
            Error::from(back_pressure.full(waited, &brokers)).into_py(py),
            topic,
            None,
        ))
    }
}
