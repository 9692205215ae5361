//! The base class of `pyrmq.Producer`, which defines `produce`: a Python method around it would double its cost
//! (docs/decisions/0005-native-produce.md).

use crate::errors::Error;
use crate::producer::accumulator::PyAccumulator;
use crate::producer::args::{self, DelayLevel, Flag, MessageProperties, SendArgs};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::sync::OnceLock;

/// Accepts the messages of its Python subclass.
#[pyclass(frozen, subclass, name = "ProducerBase", module = "pyrmq._core")]
#[derive(Debug, Default)]
pub(crate) struct ProducerBase {
    // The accumulator that accepts the messages. `Some(None)`: `_produce_hooked` accepts them, because hooks run first.
    accumulator: OnceLock<Option<Py<PyAccumulator>>>,
}

#[pymethods]
impl ProducerBase {
    /// Ignores the arguments: they are the subclass's.
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// Called once, before the first message, with the accumulator that accepts messages. `None`: `_produce_hooked`
    /// does.
    fn _produce_by(&self, accumulator: Option<Py<PyAccumulator>>) {
        // A second call changes nothing.
        drop(self.accumulator.set(accumulator));
    }

    /// Add a message to the batch of its topic or queue; the batch leaves soon.
    ///
    /// Batches are Apache's plain batches: brokers store each message by itself, and all consumers
    /// can read them. A batch leaves when it is full, when its first message is ``linger`` old, or
    /// with :meth:`flush`. Messages with the same sharding key or for the same queue keep their
    /// order, even when a batch is sent again.
    ///
    /// Callbacks run in :meth:`poll`, :meth:`flush` and :meth:`close`, and in a ``produce`` that
    /// waits for room. Exceptions from callbacks are logged. Failed messages without a callback
    /// are logged and counted by :meth:`stats`.
    ///
    /// Args:
    ///     topic: Topic; created on the first send where the broker allows it.
    ///     body: Bytes, any bytes-like object, or text (sent as UTF-8); it is copied.
    ///     on_delivery: Called once with ``(error, None)`` or ``(None, result)``.
    ///     wait: Whether to wait for room, up to ``send_timeout``, when ``max_in_flight`` is
    ///         reached. False: raise at once.
    ///     options: The other keyword arguments describe the message, as for :meth:`send`. A
    ///         delayed message leaves in a frame of its own.
    ///
    /// Raises:
    ///     MessageError: No broker would take the message.
    ///     QueueFull: There was no room.
    ///     ClosedError: The producer is closed.
    ///     ForkError: The producer is the parent process's.
    // The options are listed one by one because pyo3 gives a method with `**options` a slow calling convention.
    #[pyo3(signature = (topic, body, on_delivery=None, *, wait=true, keys=None, tags=None, properties=None, queue=None,
        sharding_key=None, flag=Flag(0), delay_level=DelayLevel(0), delay=None, deliver_at=None))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument for each option of a message"
    )]
    fn produce<'py>(
        slf: &Bound<'py, Self>,
        topic: &str,
        body: &Bound<'py, PyAny>,
        on_delivery: Option<Py<PyAny>>,
        wait: bool,
        keys: Option<Bound<'py, PyAny>>,
        tags: Option<Bound<'py, PyString>>,
        properties: Option<Bound<'py, PyAny>>,
        queue: Option<Bound<'py, PyAny>>,
        sharding_key: Option<Bound<'py, PyString>>,
        flag: Flag,
        delay_level: DelayLevel,
        delay: Option<Bound<'py, PyAny>>,
        deliver_at: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        match slf.get().accumulator.get() {
            Some(Some(accumulator)) => {
                let properties = MessageProperties {
                    keys,
                    tags,
                    properties: properties.map(args::dict_of).transpose()?,
                    sharding_key,
                    when: args::when_of(py, delay_level, delay, deliver_at)?,
                    flag,
                };
                let args = SendArgs { properties, queue };
                accumulator
                    .get()
                    .produce(py, topic, body, on_delivery, wait, &args)
            }
            Some(None) => {
                let options = PyDict::new(py);
                options.set_item(intern!(py, "keys"), keys)?;
                options.set_item(intern!(py, "tags"), tags)?;
                options.set_item(intern!(py, "properties"), properties)?;
                options.set_item(intern!(py, "queue"), queue)?;
                options.set_item(intern!(py, "sharding_key"), sharding_key)?;
                options.set_item(intern!(py, "flag"), flag.0)?;
                options.set_item(intern!(py, "delay_level"), delay_level.0)?;
                options.set_item(intern!(py, "delay"), delay)?;
                options.set_item(intern!(py, "deliver_at"), deliver_at)?;
                let arguments = (topic, body, on_delivery, wait, options);
                slf.call_method1(intern!(py, "_produce_hooked"), arguments)?;
                Ok(())
            }
            None => Err(Error::Closed { what: "the producer" }.into_py(py)),
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ProducerBase>()
}
