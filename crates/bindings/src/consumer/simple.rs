//! The consumer that receives messages for a limited time, as Python drives it.

use crate::completion::{self, ArrivalSignal, ReplyTo, Value};
use crate::consumer::control::{StatsTuple, stats_tuple};
use crate::consumer::popped::{self, MessageOrReceipt};
use crate::consumer::settings::SimpleSettings;
use crate::enter;
use crate::errors::Error;
use crate::runtime::{self, Owned};
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyrmq_client::consumer::pop::answer::Popped;
use pyrmq_client::consumer::pop::receipt::Receipt;
use pyrmq_client::consumer::pop::receiving::Receiving;
use pyrmq_client::consumer::pop::renew::Renewal;
use pyrmq_client::consumer::pop::simple::SimpleConsumer;
use pyrmq_remoting::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a call waits after its timeout for answers that may still come.
const LATE: Duration = Duration::from_millis(20);

/// A consumer. Frozen and shared by threads.
#[pyclass(frozen, name = "SimpleConsumer", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PySimpleConsumer {
    consumer: Owned<SimpleConsumer>,
    arrival_signal: ArrivalSignal,
}

/// A call that waits for messages, for event loops.
#[pyclass(frozen, name = "Receiving", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyReceiving {
    // Guards the call until it ends.
    receiving: Mutex<Option<Receiving>>,
    consumer: Arc<SimpleConsumer>,
}

/// Renews messages until it ends.
#[pyclass(frozen, name = "Renewal", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyRenewal {
    // Guards the renewal until it ends.
    renewal: Mutex<Option<Renewal>>,
}

fn receipts_of(settled: Vec<MessageOrReceipt<'_>>) -> Vec<Arc<Receipt>> {
    settled.into_iter().map(MessageOrReceipt::into_receipt).collect()
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl PySimpleConsumer {
    fn begin_native(
        &self,
        py: Python<'_>,
        max: usize,
        invisible_ms: u64,
        wait_ms: u64,
    ) -> PyResult<Receiving> {
        self.consumer.check_in(py)?;
        self.consumer
            .receive(max, millis(invisible_ms), millis(wait_ms))
            .map_err(|error| Error::from(error).into_py(py))
    }

    fn list<'py>(&self, py: Python<'py>, messages: Vec<Popped>) -> PyResult<Bound<'py, PyList>> {
        popped::to_list(py, messages, &self.consumer.options().client)
    }
}

#[pymethods]
impl PySimpleConsumer {
    #[new]
    fn new(py: Python<'_>, settings: SimpleSettings) -> PyResult<Self> {
        let made = settings
            .options()
            .and_then(|options| Ok(SimpleConsumer::new(runtime::current()?.handle(), options)?));
        let consumer = made.map_err(|error| error.into_py(py))?;
        Ok(Self {
            consumer: Owned::new("this consumer", Arc::new(consumer)),
            arrival_signal: ArrivalSignal::default(),
        })
    }

    /// The client id that brokers list.
    fn client_id(&self) -> &str {
        self.consumer.client_id()
    }

    /// The topics that are subscribed to.
    fn topics(&self) -> Vec<String> {
        let options = &self.consumer.options().client;
        let topics = self.consumer.topics().into_iter();
        topics.map(|topic| options.inside(&topic).to_owned()).collect()
    }

    /// The rates of the last minute, the state of each topic on each broker, and how often messages were renewed.
    fn stats(&self, py: Python<'_>) -> PyResult<StatsTuple> {
        self.consumer.check_in(py)?;
        let consumer = &self.consumer;
        let client = &consumer.options().client;
        Ok(stats_tuple(
            client,
            consumer.rates(),
            consumer.queue_states(),
            consumer.counts().renewed,
        ))
    }

    /// Messages that were acknowledged, that were given back, that are dead letters, and that callers have now.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, usize)> {
        self.consumer.check_in(py)?;
        let counts = self.consumer.counts();
        Ok((counts.done, counts.given_back, counts.dead, counts.in_flight))
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
        let consumer = self.consumer.here(py)?;
        completion::run(py, to, async move {
            let topic = consumer.options().client.wrap(&topic);
            consumer.subscribe(&topic, &expression, is_sql).await
        })
    }

    /// Leaves the group for a topic. False: it was not subscribed to.
    #[pyo3(signature = (topic, to=None))]
    fn unsubscribe(&self, py: Python<'_>, topic: String, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        let consumer = self.consumer.here(py)?;
        completion::run(py, to, async move {
            let topic = consumer.options().client.wrap(&topic);
            consumer.unsubscribe(&topic).await
        })
    }

    /// Up to `max` messages, hidden from others for `invisible_ms`; waits up to `wait_ms` for the first.
    fn receive<'py>(
        &self,
        py: Python<'py>,
        max: usize,
        invisible_ms: u64,
        wait_ms: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let receiving = self.begin_native(py, max, invisible_ms, wait_ms)?;
        let by = Instant::now() + millis(wait_ms);
        let taken = enter::wait(py, |slice| {
            if let Some(outcome) = receiving.take().transpose() {
                return Some(outcome);
            }
            let left = by.saturating_duration_since(Instant::now()).max(LATE);
            receiving.wait(slice.min(left));
            receiving.take().transpose()
        })?;
        self.list(py, taken.map_err(|error| Error::from(error).into_py(py))?)
    }

    /// Starts to receive messages without waiting for them; the returned object is asked for them. See `receive`.
    fn begin(&self, py: Python<'_>, max: usize, invisible_ms: u64, wait_ms: u64) -> PyResult<PyReceiving> {
        let receiving = self.begin_native(py, max, invisible_ms, wait_ms)?;
        Ok(PyReceiving {
            receiving: Mutex::new(Some(receiving)),
            consumer: self.consumer.clone(),
        })
    }

    /// Acknowledges messages: None for each, or why not.
    #[pyo3(signature = (messages, to=None))]
    fn ack(
        &self,
        py: Python<'_>,
        messages: Vec<MessageOrReceipt<'_>>,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.consumer.check_in(py)?;
        let (consumer, receipts) = (self.consumer.clone(), receipts_of(messages));
        completion::run(py, to, async move {
            Ok(Value::Acknowledged(consumer.ack(&receipts).await))
        })
    }

    /// Hides a message for this time from now on; 0 gives it back.
    #[pyo3(signature = (message, invisible_ms, to=None))]
    fn change_invisible(
        &self,
        py: Python<'_>,
        message: MessageOrReceipt<'_>,
        invisible_ms: u64,
        to: Option<ReplyTo>,
    ) -> PyResult<Py<PyAny>> {
        self.consumer.check_in(py)?;
        let (consumer, receipt) = (self.consumer.clone(), message.into_receipt());
        completion::run(py, to, async move {
            consumer.change_invisible(&receipt, millis(invisible_ms)).await
        })
    }

    /// Renews messages until the result is ended, for at most `limit_ms` in all.
    fn renew(
        &self,
        py: Python<'_>,
        messages: Vec<MessageOrReceipt<'_>>,
        invisible_ms: u64,
        limit_ms: u64,
    ) -> PyResult<PyRenewal> {
        self.consumer.check_in(py)?;
        let renewal = self
            .consumer
            .renew(receipts_of(messages), millis(invisible_ms), millis(limit_ms))
            .map_err(|error| Error::from(error).into_py(py))?;
        Ok(PyRenewal {
            renewal: Mutex::new(Some(renewal)),
        })
    }

    /// A descriptor that is readable when something may be there: for event loops.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.consumer.check_in(py)?;
        self.arrival_signal
            .fd(py, |waker| self.consumer.on_arrival(waker))
    }

    /// Makes the descriptor unreadable until something arrives.
    fn hush(&self) {
        self.arrival_signal.reset();
    }

    /// Gives back what was not handed out and ends everything. In a forked child nothing is done: it is the parent's.
    #[pyo3(signature = (to=None))]
    fn close(&self, py: Python<'_>, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        if to.is_none() && !self.consumer.is_here() {
            return Ok(py.None());
        }
        let consumer = self.consumer.here(py)?;
        completion::run(py, to, async move { consumer.close().await })
    }
}

#[pymethods]
impl PyReceiving {
    /// The messages; an empty list if the time has passed; None: wait.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let receiving = lock(&self.receiving);
        let taken = receiving.as_ref().map_or(Ok(Some(Vec::new())), Receiving::take);
        let taken = taken.map_err(|error| Error::from(error).into_py(py))?;
        let options = &self.consumer.options().client;
        taken
            .map(|messages| popped::to_list(py, messages, options))
            .transpose()
    }

    /// Ends the wait for messages.
    fn end(&self) {
        drop(lock(&self.receiving).take());
    }
}

#[pymethods]
impl PyRenewal {
    /// Ends the renewals.
    fn end(&self) {
        drop(lock(&self.renewal).take());
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySimpleConsumer>()?;
    module.add_class::<PyReceiving>()?;
    module.add_class::<PyRenewal>()
}
