//! What both kinds of consumers have: subscriptions, commits, their end, offsets of many queues, pauses, and callbacks
//! that Python takes.

use crate::completion::{self, QueueRef, ReplyTo, Value};
use crate::consumer::rebalance::PyRebalanceEvents;
use crate::enter;
use crate::errors::Error;
use crate::received::PyReceived;
use crate::runtime::Owned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyrmq_client::consumer::callbacks::{Callback, CallbackAnswer};
use pyrmq_client::consumer::process_queue::{QueueKey, QueueState};
use pyrmq_client::consumer::puller::Puller;
use pyrmq_client::consumer::rates::Rates;
use pyrmq_client::{ClientError, ClientOptions};
use pyrmq_remoting::body::{Body, MessageQueue, ResetOffsetBody, Style};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The part of a consumer that does not depend on how messages are taken. Frozen and shared by threads.
#[pyclass(frozen, name = "ConsumerControl", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyControl {
    puller: Owned<Puller>,
}

/// A queue by the name that brokers know.
pub(crate) fn key_of(puller: &Puller, queue_ref: QueueRef) -> QueueKey {
    let (topic, broker, queue_id) = queue_ref;
    QueueKey {
        topic: puller.options().client.wrap(&topic).into(),
        broker: broker.into(),
        queue_id,
    }
}

/// A queue by the name that the caller knows.
pub(crate) fn queue_ref_of(puller: &Puller, key: &QueueKey) -> QueueRef {
    queue_ref_in(&puller.options().client, key)
}

fn queue_ref_in(client: &ClientOptions, key: &QueueKey) -> QueueRef {
    let topic = client.inside(&key.topic).to_owned();
    (topic, key.broker.to_string(), key.queue_id)
}

pub(crate) fn keys_of(puller: &Puller, queue_refs: Vec<QueueRef>) -> Vec<QueueKey> {
    queue_refs
        .into_iter()
        .map(|queue_ref| key_of(puller, queue_ref))
        .collect()
}

fn offsets_of(puller: &Puller, offsets: Vec<(QueueRef, i64)>) -> Vec<(QueueKey, i64)> {
    let offsets = offsets.into_iter();
    offsets
        .map(|(queue_ref, offset)| (key_of(puller, queue_ref), offset))
        .collect()
}

impl PyControl {
    pub(crate) fn new(puller: Arc<Puller>) -> Self {
        Self {
            puller: Owned::new("this consumer", puller),
        }
    }
}

/// Received, done and failed messages a second; mean times of a pull and of a call, ms.
type RatesTuple = (f64, f64, f64, f64, f64);
/// A queue with its position, lag (None: not known yet), messages and bytes that wait, and messages that calls have.
type QueueTuple = (QueueRef, i64, Option<i64>, usize, usize, usize);
/// Rates, queues, and how often the time of messages was renewed.
pub(crate) type StatsTuple = (RatesTuple, Vec<QueueTuple>, u64);

/// The statistics of a consumer, with topics by the names that the caller knows.
pub(crate) fn stats_tuple(
    client: &ClientOptions,
    rates: Rates,
    queues: Vec<QueueState>,
    renewed: u64,
) -> StatsTuple {
    let rates = (
        rates.received,
        rates.done,
        rates.failed,
        rates.pull_ms,
        rates.call_ms,
    );
    let queues = queues.into_iter().map(|queue| {
        let queue_ref = queue_ref_in(client, &queue.key);
        let (position, lag) = (queue.position, queue.lag);
        (
            queue_ref,
            position,
            lag,
            queue.waiting,
            queue.bytes,
            queue.in_flight,
        )
    });
    (rates, queues.collect(), renewed)
}

#[pymethods]
impl PyControl {
    /// The rates of the last minute, the state of each queue, and how often popped messages were renewed.
    fn stats(&self, py: Python<'_>) -> PyResult<StatsTuple> {
        self.puller.check_in(py)?;
        let puller = &self.puller;
        let client = &puller.options().client;
        Ok(stats_tuple(
            client,
            puller.rates(),
            puller.queue_states(),
            puller.renewed(),
        ))
    }

    /// The client id that brokers list.
    fn client_id(&self) -> &str {
        self.puller.client_id()
    }

    /// The rebalance events of polled consumers.
    fn rebalance_events(&self) -> PyRebalanceEvents {
        PyRebalanceEvents::new(self.puller.clone())
    }

    // An event loop calls with `to`, where the outcome goes: see `completion::run`.

    /// Joins the group for a topic.
    #[pyo3(signature = (topic, expression, is_sql, to=None))]
    fn subscribe(
        &self,
        py: Python<'_>,
        topic: String,
        expression: String,
        is_sql: bool,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        let puller = self.puller.here(py)?;
        completion::run(py, to, async move {
            let topic = puller.options().client.wrap(&topic);
            puller.subscribe(&topic, &expression, is_sql).await
        })
    }

    /// Leaves the group for a topic; with `is_lost` polls report its queues as lost. False: it was not subscribed to.
    #[pyo3(signature = (topic, is_lost, to=None))]
    fn unsubscribe(
        &self,
        py: Python<'_>,
        topic: String,
        is_lost: bool,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        let puller = self.puller.here(py)?;
        completion::run(py, to, async move {
            let topic = puller.options().client.wrap(&topic);
            puller.unsubscribe(&topic, is_lost).await
        })
    }

    /// Fails the calls of `subscribe` for a topic that have not joined the group yet. Does nothing in a forked child.
    fn cancel_subscribe(&self, topic: &str) {
        if self.puller.is_here() {
            let topic = self.puller.options().client.wrap(topic);
            self.puller.cancel_subscribe(&topic);
        }
    }

    /// Pauses queues or resumes them.
    fn pause(&self, py: Python<'_>, queues: Vec<QueueRef>, is_paused: bool) -> PyResult<()> {
        self.puller.check_in(py)?;
        let keys = keys_of(&self.puller, queues);
        self.puller
            .pause(&keys, is_paused)
            .map_err(|error| Error::from(error).into_py(py))
    }

    /// The paused queues.
    fn paused(&self, py: Python<'_>) -> PyResult<Vec<QueueRef>> {
        self.puller.check_in(py)?;
        let keys = self.puller.paused();
        Ok(keys.iter().map(|key| queue_ref_of(&self.puller, key)).collect())
    }

    /// Commits everything that was handed out or that listeners have finished.
    #[pyo3(signature = (to=None))]
    fn commit(&self, py: Python<'_>, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        let puller = self.puller.here(py)?;
        completion::run(py, to, async move { puller.commit().await })
    }

    /// Closes the consumer. With `all`, messages that were handed out or that listeners have finished are done, and
    /// committed if there is a commit interval. In a forked child nothing is done: the consumer is the parent's.
    #[pyo3(signature = (all, to=None))]
    fn shut(&self, py: Python<'_>, all: bool, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        if to.is_none() && !self.puller.is_here() {
            return Ok(py.None());
        }
        let puller = self.puller.here(py)?;
        completion::run(py, to, async move { puller.shut(all).await })
    }

    /// Commits these offsets.
    #[pyo3(signature = (offsets, to=None))]
    fn commit_offsets(
        &self,
        py: Python<'_>,
        offsets: Vec<(QueueRef, i64)>,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.puller.check_in(py)?;
        let offsets = offsets_of(&self.puller, offsets);
        let puller = self.puller.clone();
        completion::run(py, to, async move { puller.commit_offsets(offsets).await })
    }

    /// Offsets of queues, asked at the same time: first, last, committed (-1 when there is none), or by time; with
    /// `only_masters` no slave is asked.
    #[pyo3(signature = (queues, which, timestamp_ms, only_masters=false, to=None))]
    fn offsets(
        &self,
        py: Python<'_>,
        queues: Vec<QueueRef>,
        which: String,
        timestamp_ms: i64,
        only_masters: bool,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.puller.check_in(py)?;
        let keys = keys_of(&self.puller, queues);
        let puller = self.puller.clone();
        completion::run(py, to, async move {
            let offsets = puller.offsets_of(keys, &which, timestamp_ms, only_masters).await;
            offsets.map(Value::Offsets)
        })
    }

    // Groups whose members get every message each: their offsets are in a file of the member.

    /// Sets the offsets at which this member continues.
    fn begin_at(&self, py: Python<'_>, offsets: Vec<(QueueRef, i64)>) -> PyResult<()> {
        self.puller.check_in(py)?;
        // As the file has them: topics with their namespace.
        let offsets = offsets.into_iter().map(|((topic, broker, queue_id), offset)| {
            let key = QueueKey {
                topic: topic.into(),
                broker: broker.into(),
                queue_id,
            };
            (key, offset)
        });
        self.puller.begin_at(offsets.collect());
        Ok(())
    }

    /// How far this member has come, in the form of Apache's file.
    fn local_offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.puller.check_in(py)?;
        let offsets = self.puller.local_offsets().into_iter();
        let message_queue = |key: QueueKey| MessageQueue::new(&*key.topic, &*key.broker, key.queue_id);
        let body = ResetOffsetBody {
            offset_table: offsets
                .map(|(key, offset)| (message_queue(key), offset))
                .collect(),
        };
        Ok(PyBytes::new(py, &body.encode_as(Style::PRETTY)))
    }

    // Callbacks: a thread of Python takes them and answers by number.

    /// From now on callbacks are taken.
    fn serve_callbacks(&self, py: Python<'_>) -> PyResult<()> {
        self.puller.check_in(py)?;
        self.puller.serve_callbacks();
        Ok(())
    }

    /// Ends the wait for the next callback: its thread has something else to do. In a forked child nothing is done.
    fn wake_callbacks(&self) {
        if self.puller.is_here() {
            self.puller.wake_callbacks();
        }
    }

    /// The next callback within the time: its number, its name, queues, members, and a message. None after the time, or
    /// `wake_callbacks`. An error once the consumer is closed.
    fn next_callback(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<Option<CallbackTuple>> {
        self.puller.check_in(py)?;
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let taken = enter::wait_quietly(py, |slice| {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.puller.next_callback(slice.min(left)) {
                Poll::Ready(taken) => Some(taken),
                Poll::Pending => (left <= slice).then_some(None),
            }
        })?;
        let Some((number, callback)) = taken else {
            if self.puller.is_closed() {
                return Err(Error::from(ClientError::Closed { what: "consumer" }).into_py(py));
            }
            return Ok(None);
        };
        Ok(Some(match callback {
            Callback::Allocate { queues, members } => {
                let queue_refs = queues.iter().map(|key| queue_ref_of(&self.puller, key)).collect();
                (number, "allocate", queue_refs, members, None)
            }
            Callback::Stacks => (number, "stacks", Vec::new(), Vec::new(), None),
            Callback::Consume { chunk } => {
                let message = PyReceived::of_chunk(chunk, &self.puller.options().client);
                (number, "consume", Vec::new(), Vec::new(), Some(message))
            }
        }))
    }

    /// Answers with indexes in the queues of the callback.
    fn answer_indexes(&self, py: Python<'_>, number: u64, indexes: Vec<usize>) -> PyResult<()> {
        self.puller.check_in(py)?;
        self.puller
            .answer_callback(number, CallbackAnswer::Indexes(indexes));
        Ok(())
    }

    /// Answers with a text.
    fn answer_text(&self, py: Python<'_>, number: u64, text: String) -> PyResult<()> {
        self.puller.check_in(py)?;
        self.puller.answer_callback(number, CallbackAnswer::Text(text));
        Ok(())
    }

    /// Reports how a listener's call ended: done, later, or what it raised.
    fn answer_consumed(
        &self,
        py: Python<'_>,
        number: u64,
        result: &str,
        remark: Option<String>,
    ) -> PyResult<()> {
        self.puller.check_in(py)?;
        let result = match result {
            "success" => "CR_SUCCESS",
            "later" => "CR_LATER",
            "raised" => "CR_THROW_EXCEPTION",
            other => return Err(PyValueError::new_err(format!("unknown outcome {other:?}"))),
        };
        let answer = CallbackAnswer::Consumed { result, remark };
        self.puller.answer_callback(number, answer);
        Ok(())
    }
}

type CallbackTuple = (u64, &'static str, Vec<QueueRef>, Vec<String>, Option<PyReceived>);

/// Reads Apache's file of offsets.
#[pyfunction]
fn decode_local_offsets(py: Python<'_>, text: &[u8]) -> PyResult<Vec<(QueueRef, i64)>> {
    let body = ResetOffsetBody::decode(text).map_err(|error| Error::Wire(error).into_py(py))?;
    let rows = body.offset_table.into_iter();
    Ok(rows
        .map(|(queue, offset)| ((queue.topic, queue.broker_name, queue.queue_id), offset))
        .collect())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyControl>()?;
    module.add_function(wrap_pyfunction!(decode_local_offsets, module)?)
}
