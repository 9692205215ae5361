//! A pulled message: `pyrmq.ReceivedMessage`. It keeps the response that it came in and decodes each part on first use.

use crate::errors::Error;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use pyrmq_client::consumer::process_queue::{Chunk, Messages, QueueKey};
use pyrmq_client::{ClientOptions, Subscription};
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::compress::{self, Codec};
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::record::Record;
use pyrmq_remoting::names::RETRY_PREFIX;
use std::sync::Arc;

/// A compressed body may expand to this many bytes: four times the size that brokers accept by default.
const BODY_BYTES: usize = 16 * 1024 * 1024;

/// One message of a broker's answer, all of which it keeps in memory; `body` is a copy that does not.
#[pyclass(frozen, subclass, name = "ReceivedMessage", module = "pyrmq.message")]
#[derive(Debug)]
pub(crate) struct PyReceived {
    chunk: Arc<Chunk>,
    index: usize,
    // Length in bytes of the namespace before the topic's name, which the caller does not see.
    hidden: usize,
    // Length in bytes of the group's name, which the names of POP retry topics contain.
    group: usize,
    // How often this process has received it before, in retries that the broker does not know of.
    tries: i32,
}

impl PyReceived {
    /// A message from a single record.
    pub(crate) fn of_record(
        py: Python<'_>,
        record: bytes::Bytes,
        broker: &str,
        options: Option<&ClientOptions>,
    ) -> PyResult<Self> {
        let wire = |error| Error::Wire(error).into_py(py);
        let (topic, queue_id) = {
            let record = Record::decode(&record).map_err(wire)?;
            (record.topic.into(), record.queue_id)
        };
        let queue = Arc::new(QueueKey {
            topic,
            broker: broker.into(),
            queue_id,
        });
        let all = Subscription::tags_of("*", 0);
        let chunk = Chunk::new(queue, record, 0, &all).map_err(wire)?;
        Ok(Self {
            hidden: options.map_or(0, |options| hidden(&chunk, options)),
            group: options.map_or(0, |options| options.group.len()),
            chunk: Arc::new(chunk),
            index: 0,
            tries: 0,
        })
    }

    /// The only message of a chunk.
    pub(crate) fn of_chunk(chunk: Arc<Chunk>, options: &ClientOptions) -> Self {
        Self {
            hidden: hidden(&chunk, options),
            group: options.group.len(),
            chunk,
            index: 0,
            tries: 0,
        }
    }

    /// A popped message. `tries` counts the deliveries that its record does not.
    pub(crate) fn of_popped(chunk: Arc<Chunk>, index: usize, tries: i32, options: &ClientOptions) -> Self {
        Self {
            hidden: hidden(&chunk, options),
            group: options.group.len(),
            chunk,
            index,
            tries,
        }
    }

    fn record(&self, py: Python<'_>) -> PyResult<Record<'_>> {
        let missing = || Err(WireError::MissingField("record"));
        let record = self.chunk.record(self.index).unwrap_or_else(missing);
        record.map_err(|error| Error::Wire(error).into_py(py))
    }

    /// The topic that a retry topic of POP is for: `%RETRY%group_topic`, or `%RETRY%group+topic`.
    fn popped_from<'a>(&self, name: &'a str) -> Option<&'a str> {
        let rest = name.strip_prefix(RETRY_PREFIX)?.get(self.group..)?;
        rest.strip_prefix(['_', '+'])
    }

    fn plain_topic(&self) -> &str {
        let name = &*self.chunk.queue.topic;
        if name.starts_with(RETRY_PREFIX) {
            return name;
        }
        name.get(self.hidden..).unwrap_or(name)
    }

    fn unreadable(&self, record: &Record<'_>, source: WireError) -> Error {
        let id = record.properties.get(names::UNIQ_KEY).unwrap_or("without an id");
        let what = format!(
            "the body of message {id}, offset {} of queue {} of topic `{}` on broker `{}`",
            self.queue_offset(),
            self.queue_id(),
            self.plain_topic(),
            self.broker(),
        );
        Error::Message { what, source }
    }

    fn property(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        Ok(self.record(py)?.properties.get(name).map(str::to_owned))
    }
}

#[pymethods]
impl PyReceived {
    /// The topic that the message was sent to, even if it was redelivered through the group's retry topic.
    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<String> {
        let name = &*self.chunk.queue.topic;
        if !name.starts_with(RETRY_PREFIX) {
            return Ok(self.plain_topic().to_owned());
        }
        let record = self.record(py)?;
        let origin = record.properties.get(names::RETRY_TOPIC).unwrap_or(name);
        // What was popped before its group was switched to pulls has no property with its topic.
        match self.popped_from(origin) {
            None if origin == name => Ok(name.to_owned()),
            popped => {
                let origin = popped.unwrap_or(origin);
                Ok(origin.get(self.hidden..).unwrap_or(origin).to_owned())
            }
        }
    }

    #[getter]
    fn broker(&self) -> &str {
        &self.chunk.queue.broker
    }

    #[getter]
    fn queue_id(&self) -> i32 {
        self.chunk.queue.queue_id
    }

    #[getter]
    fn queue_offset(&self) -> i64 {
        self.chunk.offset(self.index).unwrap_or(-1)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let record = self.record(py)?;
        let plain = Codec::of(record.sys_flag).and_then(|codec| {
            codec
                .map(|codec| compress::decompress(codec, record.body, BODY_BYTES))
                .transpose()
        });
        match plain.map_err(|source| self.unreadable(&record, source).into_py(py))? {
            Some(plain) => Ok(PyBytes::new(py, &plain)),
            None => Ok(PyBytes::new(py, record.body)),
        }
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let record = self.record(py)?;
        let keys = record.properties.get(names::KEYS).unwrap_or_default();
        PyList::new(py, keys.split(' ').filter(|key| !key.is_empty()))
    }

    #[getter]
    fn tags(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.property(py, names::TAGS)
    }

    #[getter]
    fn sharding_key(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.property(py, names::SHARDINGKEY)
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        for (name, value) in self.record(py)?.properties {
            properties.set_item(name, value)?;
        }
        Ok(properties)
    }

    #[getter]
    fn message_id(&self, py: Python<'_>) -> PyResult<String> {
        match self.property(py, names::UNIQ_KEY)? {
            Some(id) => Ok(id),
            None => self.offset_message_id(py),
        }
    }

    #[getter]
    fn offset_message_id(&self, py: Python<'_>) -> PyResult<String> {
        let record = self.record(py)?;
        let id = OffsetId {
            host: record.store_host,
            offset: record.physical_offset,
        };
        Ok(id.to_string())
    }

    #[getter]
    fn born_timestamp(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.record(py)?.born_timestamp_ms)
    }

    #[getter]
    fn born_host(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.record(py)?.born_host.to_string())
    }

    #[getter]
    fn store_timestamp(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.record(py)?.store_timestamp_ms)
    }

    #[getter]
    fn store_host(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.record(py)?.store_host.to_string())
    }

    #[getter]
    fn commit_log_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.record(py)?.physical_offset)
    }

    #[getter]
    fn reconsume_times(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.record(py)?.reconsume_times + self.tries)
    }

    #[getter]
    fn flag(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.record(py)?.flag)
    }

    #[getter]
    fn sys_flag(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.record(py)?.sys_flag)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let record = self.record(py)?;
        let [keys, tags] = record.properties.get_many([names::KEYS, names::TAGS]);
        let named =
            |name, value: Option<&str>| value.map_or(String::new(), |value| format!(", {name}={value:?}"));
        Ok(format!(
            "ReceivedMessage(topic={:?}, broker={:?}, queue_id={}, queue_offset={}{}{}, body of {} bytes)",
            self.topic(py)?,
            self.broker(),
            self.queue_id(),
            self.queue_offset(),
            named("keys", keys),
            named("tags", tags),
            record.body.len(),
        ))
    }
}

/// All messages of a pull response, in order.
pub(crate) fn to_list<'py>(
    py: Python<'py>,
    taken: Vec<Messages>,
    options: &ClientOptions,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for messages in taken {
        let hidden = hidden(&messages.chunk, options);
        let tries = messages.tries;
        for index in messages.first..messages.end {
            let chunk = messages.chunk.clone();
            list.append(Py::new(
                py,
                PyReceived {
                    chunk,
                    index,
                    hidden,
                    group: options.group.len(),
                    tries,
                },
            )?)?;
        }
    }
    Ok(list)
}

fn hidden(chunk: &Chunk, options: &ClientOptions) -> usize {
    // A redelivered message is shown with its original topic, which is in the namespace.
    if chunk.queue.topic.starts_with(RETRY_PREFIX) && !options.namespace.is_empty() {
        return options.namespace.len() + 1;
    }
    let topic = &chunk.queue.topic;
    topic.len() - options.inside(topic).len()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyReceived>()
}
