//! The accumulator as Python uses it: `produce` and its callbacks, and the futures of async sends.
//!
//! ```text
//! Python thread   produce -> back pressure -> partition queue          one lock, one copy of the body
//! runtime         batch finished -> completion queue                   one lock and at most one wake-up a batch
//! Python thread   poll, flush, or produce when it must wait -> callbacks
//! futures' thread serve -> set_result          event loop: descriptor readable -> serve -> set_result
//! ```
//! Python objects are touched only on Python's threads: elsewhere a callback or future travels as a completion. A
//! message counts as in flight until its callback has run or its future is done, so outcomes that nobody fetches are
//! bounded, too.

#![expect(
    clippy::needless_pass_by_value,
    reason = "what Python hands over is extracted by value"
)]

use crate::completion::callbacks::{Callbacks, Thread, wait_for};
use crate::completion::future::SendFuture;
use crate::completion::queue::{Completer, CompletionQueue, share};
use crate::completion::{self, CallbackQueue, PipeSignal, PySendResult, PyWaiter, ReplyTo, Value};
use crate::enter;
use crate::errors::Error;
use crate::producer::args::{Kind, MessageProperties, QueueAndTime, SendArgs};
use crate::producer::batch::{self, Plan};
use crate::producer::batch_target::BatchTarget;
use crate::producer::class::PyProducer;
use crate::producer::submit::SendMode;
use crate::runtime::Owned;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::accumulator::{Accumulator, Limits, TargetRef};
use pyrmq_client::producer::back_pressure::{Candidates, Condition};
use pyrmq_remoting::message::java_hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Accumulates a producer's messages into batches.
#[pyclass(frozen, name = "Accumulator", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyAccumulator {
    pub(super) py_producer: Py<PyProducer>,
    pub(super) producer: Arc<Producer>,
    pub(super) accumulator: Owned<Accumulator<Completer>>,
    pub(super) calls: Arc<Callbacks>,
    pub(super) futures: Arc<CompletionQueue>,
}

impl PyAccumulator {
    pub(super) fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.accumulator.check_in(py)
    }

    fn plan<'a, 'py>(
        &self,
        topic: &'a str,
        properties: &'a MessageProperties<'py>,
        (queue, timeout_ms): &'a QueueAndTime,
        batch_bytes: usize,
        inner: bool,
    ) -> Plan<'a, 'py> {
        Plan {
            topic,
            properties,
            queue: queue.as_ref(),
            batch_bytes,
            timeout: self.py_producer.get().timeout(*timeout_ms),
            inner,
        }
    }

    pub(super) fn batch_target(&self) -> BatchTarget<'_> {
        BatchTarget {
            py_producer: &self.py_producer,
            producer: &self.producer,
            accumulator: &self.accumulator,
        }
    }

    /// Where the rows of a table go. An error in a forked child.
    pub(crate) fn checked_batch_target(&self, py: Python<'_>) -> PyResult<BatchTarget<'_>> {
        self.check(py)?;
        Ok(self.batch_target())
    }

    fn completed_for_loop(&self) -> usize {
        if self.futures.pipe_signal.is_some() {
            self.futures.completions()
        } else {
            0
        }
    }
}

#[pymethods]
impl PyAccumulator {
    /// `descriptor`: the futures belong to an event loop, which waits for `fileno()`. `on_error(exception)` is called
    /// with exceptions from callbacks.
    #[new]
    fn new(
        py: Python<'_>,
        producer: Py<PyProducer>,
        linger_us: u64,
        batch_bytes: usize,
        batch_messages: u32,
        descriptor: bool,
        on_error: Py<PyAny>,
    ) -> PyResult<Self> {
        let pipe_signal = descriptor.then(PipeSignal::new).transpose();
        let calls = producer.get().callbacks.clone();
        calls.set_error_handler(on_error);
        let futures = Arc::new(CompletionQueue::new(
            pipe_signal.map_err(|error| error.into_py(py))?,
        ));
        let limits = Limits {
            linger: Duration::from_micros(linger_us),
            bytes: batch_bytes,
            messages: batch_messages,
        };
        let py_producer = producer;
        let producer = py_producer.get().producer.clone();
        let (to_calls, to_futures) = (calls.clone(), futures.clone());
        let sink = Box::new(move |outcome| share(&to_calls.completion_queue, &to_futures, outcome));
        Ok(Self {
            py_producer,
            accumulator: Owned::new("this producer", Accumulator::new(producer.clone(), limits, sink)),
            producer,
            calls,
            futures,
        })
    }

    /// Accepts a message. `poll`, `flush` or a `produce` that waits calls `on_delivery(error, result)`.
    #[pyo3(name = "produce")]
    fn produce_options<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        body: &Bound<'py, PyAny>,
        on_delivery: Option<Py<PyAny>>,
        wait: bool,
        options: &Bound<'py, PyDict>,
    ) -> PyResult<()> {
        let args = SendArgs::read(Kind::Send, options)?;
        self.produce(py, topic, body, on_delivery, wait, &args)
    }

    /// Accepts a message whose outcome completes a `concurrent.futures.Future`.
    fn send<'py>(
        &self,
        py: Python<'py>,
        future: Py<PyAny>,
        topic: &str,
        body: &Bound<'py, PyAny>,
        options: &Bound<'py, PyDict>,
        queue_and_time: QueueAndTime,
    ) -> PyResult<()> {
        let args = SendArgs::read(Kind::Send, options)?;
        let (queue, timeout_ms) = queue_and_time;
        let mode = SendMode {
            completion: Some(Completer::Future(future)),
            eager: true,
            wait: true,
            timeout: timeout_ms.map(Duration::from_millis),
        };
        self.submit(py, topic, body, &args.properties, queue.as_ref(), mode)
            .map(drop)
    }

    /// Accepts a message from an event loop without waiting and returns its future. `eager`: a task awaits it, so it is
    /// sent with the messages of the tasks that run in this pass of the loop.
    fn offer<'py>(
        slf: &Bound<'py, Self>,
        callback_queue: Py<CallbackQueue>,
        eager: bool,
        topic: &str,
        body: &Bound<'py, PyAny>,
        options: &Bound<'py, PyDict>,
        queue_and_time: QueueAndTime,
    ) -> PyResult<Py<SendFuture>> {
        let (this, py) = (slf.get(), slf.py());
        let args = SendArgs::read(Kind::Send, options)?;
        let (queue, timeout_ms) = queue_and_time;
        let future = Py::new(py, SendFuture::new(callback_queue.clone_ref(py)))?;
        let mode = SendMode {
            completion: Some(Completer::SendFuture(future.clone_ref(py))),
            eager,
            wait: false,
            timeout: timeout_ms.map(Duration::from_millis),
        };
        if this.submit(py, topic, body, &args.properties, queue.as_ref(), mode)? {
            let uncork = slf.getattr(intern!(py, "uncork"))?;
            callback_queue.get().call(py, &uncork)?;
        }
        Ok(future)
    }

    /// Sends a message after earlier ones of its queue, and waits for the outcome.
    fn send_and_wait<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        body: &Bound<'py, PyAny>,
        options: &Bound<'py, PyDict>,
        queue_and_time: QueueAndTime,
    ) -> PyResult<PySendResult> {
        let args = SendArgs::read(Kind::Send, options)?;
        let (queue, timeout_ms) = queue_and_time;
        let waiter: Arc<PyWaiter> = Arc::default();
        let mode = SendMode {
            completion: Some(Completer::Thread(waiter.clone())),
            eager: true,
            wait: true,
            timeout: timeout_ms.map(Duration::from_millis),
        };
        self.submit(py, topic, body, &args.properties, queue.as_ref(), mode)?;
        match enter::wait(py, |slice| waiter.wait(slice))? {
            Ok((frame, index)) => Ok(PySendResult::of(frame, index)),
            Err(error) => Err(Error::from(error).into_py(py)),
        }
    }

    /// Sends many messages of one topic and waits for all outcomes. Returns a list with a result or an exception for
    /// each, and the exception that ended the call early, if one did.
    #[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
    fn send_batch<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        messages: &Bound<'py, PyAny>,
        options: &Bound<'py, PyDict>,
        queue_and_time: QueueAndTime,
        batch_bytes: usize,
        inner: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.check(py)?;
        let args = SendArgs::read(Kind::Batch, options)?;
        let plan = self.plan(topic, &args.properties, &queue_and_time, batch_bytes, inner);
        batch::send(&self.batch_target(), py, messages, &plan)
    }

    /// Like `send_batch`, but without waiting: the outcomes come as one value.
    #[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
    fn send_batch_to<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        messages: &Bound<'py, PyAny>,
        options: &Bound<'py, PyDict>,
        queue_and_time: QueueAndTime,
        batch_bytes: usize,
        inner: bool,
        to: ReplyTo,
    ) -> PyResult<()> {
        self.check(py)?;
        let args = SendArgs::read(Kind::Batch, options)?;
        let plan = self.plan(topic, &args.properties, &queue_and_time, batch_bytes, inner);
        let reply = completion::reply(to);
        let then = move |parts, unsent| reply(Ok(Value::Batch(parts, unsent)));
        batch::send_then(&self.batch_target(), py, messages, &plan, then)
    }

    /// The number of topics and queues with waiting or in-flight messages.
    fn partitions(&self) -> usize {
        self.accumulator.partitions()
    }

    /// Waits up to `timeout_ms` for the first due callback, runs those that are due, and returns how many ran.
    fn poll(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<usize> {
        self.check(py)?;
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        self.calls.poll(py, self.producer.back_pressure(), deadline)
    }

    /// Sends the accumulated messages and runs callbacks until nothing is in flight. False: the time passed first.
    fn flush(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<bool> {
        self.check(py)?;
        self.accumulator.flush();
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        // Outcomes that an event loop has yet to fetch do not count: this thread may be the loop's own, so a producer
        // that is being dropped must not wait for them.
        let excluded = || self.completed_for_loop();
        self.calls
            .serve_until_empty(py, self.producer.back_pressure(), excluded, deadline)
    }

    /// Sends the accumulated messages, without waiting.
    fn launch(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py)?;
        self.accumulator.flush();
        Ok(())
    }

    /// Sends the messages that an event loop's tasks produced since the loop last waited.
    fn uncork(&self) {
        if self.accumulator.is_here() {
            self.accumulator.uncork();
        }
    }

    /// Completes futures, after waiting up to `timeout_ms` for the first. False: closed, and nothing is left.
    fn serve_futures(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<bool> {
        self.check(py)?;
        let thread = if let Some(pipe_signal) = &self.futures.pipe_signal {
            pipe_signal.reset();
            Thread::Callers
        } else {
            let wake_registration = self.futures.register_thread();
            let has_nothing = {
                let state = self.futures.state();
                state.frames.is_empty() && !state.closed
            };
            if has_nothing {
                let deadline = Instant::now() + Duration::from_millis(timeout_ms);
                wait_for(py, wake_registration.wakeup(), deadline)?;
            }
            Thread::Ours
        };
        let served = self
            .calls
            .serve_from(py, &self.futures, self.producer.back_pressure(), thread)?;
        Ok(served > 0 || !self.futures.state().closed)
    }

    /// The file descriptor that is readable while futures are due; -1 without one.
    fn fileno(&self) -> i32 {
        self.futures.pipe_signal.as_ref().map_or(-1, PipeSignal::fd)
    }

    /// Replies once `bytes` may fit. `broker`: the broker that the message must go to.
    fn capacity_to(&self, bytes: usize, broker: Option<&str>, to: ReplyTo) {
        let brokers = candidates(broker);
        let reply = completion::reply(to);
        let listener = Box::new(move || reply(Ok(Value::Done)));
        self.producer
            .back_pressure()
            .notify_when(Condition::Room { bytes, brokers }, listener);
    }

    /// The only broker that a message may go to, if its capacity is limited separately.
    fn only_broker(
        &self,
        topic: &str,
        sharding_key: Option<&str>,
        queue: Option<(String, i32)>,
    ) -> Option<String> {
        let target = match (&queue, sharding_key) {
            (Some((broker, id)), _) => TargetRef::Queue(broker, *id),
            (None, Some(key)) => TargetRef::Hash(java_hash::hash(key)),
            (None, None) => TargetRef::Any,
        };
        match self.producer.candidates(topic, target).names() {
            [only] => Some(only.to_string()),
            _ => None,
        }
    }

    /// How many messages fit now; with `broker`, how many to that broker.
    fn free(&self, broker: Option<&str>) -> usize {
        let brokers = candidates(broker);
        self.producer.back_pressure().free(&brokers)
    }

    /// The exception for a send that found no capacity within `waited_ms`; `broker`: the one whose capacity was
    /// missing.
    fn full(&self, py: Python<'_>, waited_ms: u64, broker: Option<&str>) -> Py<PyAny> {
        let brokers = candidates(broker);
        let full = self
            .producer
            .back_pressure()
            .full(Duration::from_millis(waited_ms), &brokers);
        Error::from(full).into_py(py).into_value(py).into_any()
    }

    /// Replies once nothing is in flight.
    fn empty_to(&self, to: ReplyTo) {
        let reply = completion::reply(to);
        let listener = Box::new(move || reply(Ok(Value::Truth(true))));
        self.producer
            .back_pressure()
            .notify_when(Condition::Empty, listener);
    }

    /// Accepts no more messages and sends the accumulated ones.
    fn close(&self) {
        if self.accumulator.is_here() {
            self.accumulator.close();
        }
    }

    /// Ends `serve_futures`.
    fn end(&self) {
        self.calls.completion_queue.close();
        self.futures.close();
    }
}

fn candidates(broker: Option<&str>) -> Candidates {
    broker.map_or_else(Candidates::default, |name| Candidates::all([name.into()].into()))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyAccumulator>()
}
