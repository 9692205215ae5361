//! The base of `pyrmq.Producer`: its `produce`, without a method of Python's around it, whose frame costs as much
//! again.

use crate::errors::Error;
use crate::producer::accumulator::PyAccumulator;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::sync::OnceLock;

/// Hands messages over for the class that is made of it.
#[pyclass(frozen, subclass, name = "ProducerBase", module = "pyrmq._core")]
#[derive(Debug, Default)]
pub(crate) struct ProducerBase {
    // The accumulator that takes the messages; `Some(None)`: `_produce_hooked` takes them, because hooks run first.
    way: OnceLock<Option<Py<PyAccumulator>>>,
}

#[pymethods]
impl ProducerBase {
    /// The arguments are those of the class that is made of it.
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// Once, before the first message: what takes them. `None`: `_produce_hooked` does.
    fn _produce_by(&self, accumulator: Option<Py<PyAccumulator>>) {
        // A second call changes nothing.
        drop(self.way.set(accumulator));
    }

    /// Hand a message over; it leaves with others of its topic (or queue), soon.
    ///
    /// Batches are Apache's plain batches: brokers store each message by itself, and consumers of
    /// every kind read them. A batch leaves when it is full, when its first message is ``linger``
    /// old, or with :meth:`flush`. Messages with the same sharding key, or for the same queue,
    /// keep their order also when something has to be tried again.
    ///
    /// Callbacks run in :meth:`poll`, :meth:`flush` and :meth:`close`, and in a ``produce`` that
    /// waits for room; what they raise is logged. Messages without a callback that fail are
    /// logged, and counted by :meth:`stats`.
    ///
    /// Args:
    ///     topic: As for :meth:`send`, and so for the arguments that are not told here.
    ///     body: Bytes, any bytes-like object, or text (sent as UTF-8); it is copied.
    ///     on_delivery: Called once with ``(error, None)`` or ``(None, result)``.
    ///     delay_level: 1 to 18; such a message leaves in a frame of its own.
    ///     delay: Seconds until it is delivered; in a frame of its own, too.
    ///     deliver_at: When it is delivered; in a frame of its own, too.
    ///     wait: When as much is on its way as may be: wait for room up to ``send_timeout``;
    ///         False: raise at once.
    ///
    /// Raises:
    ///     MessageError: No broker would take the message.
    ///     QueueFull: There was no room.
    ///     ClosedError: The producer is closed.
    ///     ForkError: The producer is the parent process's.
    #[pyo3(signature = (topic, body, on_delivery=None, *, keys=None, tags=None, properties=None, sharding_key=None,
        delay_level=0, delay=None, deliver_at=None, flag=0, queue=None, wait=true))]
    #[expect(
        clippy::too_many_arguments,
        reason = "a message's parts, each as Python gives it"
    )]
    fn produce<'py>(
        slf: &Bound<'py, Self>,
        topic: &str,
        body: &Bound<'py, PyAny>,
        on_delivery: Option<Bound<'py, PyAny>>,
        keys: Option<Bound<'py, PyAny>>,
        tags: Option<Bound<'py, PyString>>,
        properties: Option<Bound<'py, PyAny>>,
        sharding_key: Option<Bound<'py, PyString>>,
        delay_level: i64,
        delay: Option<Bound<'py, PyAny>>,
        deliver_at: Option<Bound<'py, PyAny>>,
        flag: i32,
        queue: Option<Bound<'py, PyAny>>,
        wait: bool,
    ) -> PyResult<()> {
        let py = slf.py();
        match slf.get().way.get() {
            Some(Some(accumulator)) => accumulator.get().produce(
                py,
                topic,
                body,
                on_delivery,
                keys,
                tags,
                properties,
                sharding_key,
                delay_level,
                delay,
                deliver_at,
                flag,
                queue,
                wait,
            ),
            Some(None) => {
                let when = (delay_level, delay, deliver_at);
                let arguments = (
                    topic,
                    body,
                    on_delivery,
                    keys,
                    tags,
                    properties,
                    sharding_key,
                    when,
                    flag,
                    queue,
                    wait,
                );
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
