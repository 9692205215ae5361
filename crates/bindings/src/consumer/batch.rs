//! Messages of one poll as a whole: a list for each property, or column buffers that pyarrow wraps. Nothing is decoded
//! before it is asked for.
#![allow(
    clippy::needless_pass_by_value,
    reason = "pyo3 makes the lists for the call, and hands them over"
)]

use crate::consumer::columns::{PyBlock, block_into_py};
use crate::errors::Error;
use crate::received;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyrmq_client::ClientOptions;
use pyrmq_client::consumer::process_queue::Messages;
use pyrmq_columns::{Column, Columns};
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::compress::{self, Codec};
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::record::Record;
use std::borrow::Cow;

/// A compressed body may grow to this and no further.
const BODY_BYTES: usize = 16 * 1024 * 1024;

/// The messages of one poll.
#[pyclass(frozen, name = "MessageBatch", module = "pyrmq.message")]
#[derive(Debug)]
pub(crate) struct PyMessageBatch {
    parts: Vec<Messages>,
    options: ClientOptions,
}

impl PyMessageBatch {
    pub(crate) fn new(parts: Vec<Messages>, options: ClientOptions) -> Self {
        Self { parts, options }
    }

    fn count(&self) -> usize {
        self.parts.iter().map(Messages::len).sum()
    }

    /// Calls `use_it` with every message.
    fn each<'a>(
        &'a self,
        py: Python<'_>,
        mut use_it: impl FnMut(&'a Messages, &Record<'a>) -> PyResult<()>,
    ) -> PyResult<()> {
        for part in &self.parts {
            for index in part.first..part.end {
                let missing = Err(WireError::MissingField("record"));
                let record = part.chunk.record(index).unwrap_or(missing);
                let record = record.map_err(|error| Error::Wire(error).into_py(py))?;
                use_it(part, &record)?;
            }
        }
        Ok(())
    }

    /// A list with a value for each message.
    fn list<'py, 'a, T: IntoPyObject<'py>>(
        &'a self,
        py: Python<'py>,
        value: impl Fn(&'a Messages, &Record<'a>) -> T,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.each(py, |part, record| list.append(value(part, record)))?;
        Ok(list)
    }
}

fn plain<'a>(record: &Record<'a>) -> Result<Cow<'a, [u8]>, WireError> {
    Ok(match Codec::of(record.sys_flag)? {
        Some(codec) => Cow::Owned(compress::decompress(codec, record.body, BODY_BYTES)?),
        None => Cow::Borrowed(record.body),
    })
}

#[pymethods]
impl PyMessageBatch {
    fn __len__(&self) -> usize {
        self.count()
    }

    /// The messages, one object each.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        received::to_list(py, self.parts.clone(), &self.options)
    }

    /// The messages' bodies.
    #[getter]
    fn bodies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.each(py, |_, record| {
            let body = plain(record).map_err(|error| Error::Wire(error).into_py(py))?;
            list.append(PyBytes::new(py, &body))
        })?;
        Ok(list)
    }

    /// The messages' keys, as sent: several have spaces between them; None for a message without keys.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |_, record| record.properties.get(names::KEYS))
    }

    /// The messages' tags; None for a message without a tag.
    #[getter]
    fn tags<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |_, record| record.properties.get(names::TAGS))
    }

    /// The messages' offsets in their queues.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |_, record| record.queue_offset)
    }

    /// The numbers of the messages' queues.
    #[getter]
    fn queue_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |part, _| part.chunk.queue.queue_id)
    }

    /// The names of the messages' brokers.
    #[getter]
    fn brokers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |part, _| &*part.chunk.queue.broker)
    }

    /// The messages' topics.
    #[getter]
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |part, _| self.options.inside(&part.chunk.queue.topic))
    }

    /// When brokers stored them, ms since the epoch.
    #[getter]
    fn store_timestamps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |_, record| record.store_timestamp_ms)
    }

    /// Columns of these names as buffers.
    fn columns(&self, py: Python<'_>, names: Vec<String>) -> PyResult<PyBlock> {
        let wanted: Vec<Column> = names.iter().filter_map(|name| Column::from_name(name)).collect();
        let mut columns = Columns::new(wanted);
        self.each(py, |part, record| {
            let pushed = columns.push(Some(&part.chunk.queue.broker), record);
            pushed
                .map(drop)
                .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
        })?;
        block_into_py(py, columns.finish())
    }

    /// The messages as a `pyarrow.RecordBatch`, with these columns or all of them.
    #[pyo3(signature = (columns=None))]
    fn to_arrow<'py>(slf: &Bound<'py, Self>, columns: Option<Vec<String>>) -> PyResult<Bound<'py, PyAny>> {
        let module = PyModule::import(slf.py(), "pyrmq._client.arrow")?;
        module.call_method1("of_messages", (slf, columns))
    }

    fn __repr__(&self) -> String {
        format!("<MessageBatch of {} messages>", self.count())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyMessageBatch>()
}
