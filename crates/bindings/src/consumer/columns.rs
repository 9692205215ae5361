//! Ranges of queues as column buffers that pyarrow wraps: no Python object a row, no copy on the way.
//!
//! A buffer is a frozen object with the buffer protocol: its memory never moves and never changes while anybody holds
//! it, so pyarrow can keep it for as long as it likes.

use crate::connections::Connections;
use crate::enter;
use crate::errors::Error;
use pyo3::ffi;
use pyo3::prelude::*;
use pyrmq_client::reader::{OnBadMessage, Range, RangeError, RangeReader, ReadOptions};
use pyrmq_columns::{Block, Buffer, Column};
use pyrmq_remoting::sync::lock;
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::sync::Mutex;
use std::time::Duration;

/// One column's buffer.
#[pyclass(frozen, name = "ColumnBuffer", module = "pyrmq._core")]
struct ColumnBuffer {
    buffer: Buffer,
}

impl ColumnBuffer {
    fn start_and_bytes(&self) -> (*const u8, usize) {
        match &self.buffer {
            Buffer::Bytes(data) => (data.as_ptr(), data.len()),
            Buffer::Int32(data) => (data.as_ptr().cast(), size_of_val(data.as_slice())),
            Buffer::Int64(data) => (data.as_ptr().cast(), size_of_val(data.as_slice())),
        }
    }
}

#[pymethods]
impl ColumnBuffer {
    fn __len__(&self) -> usize {
        self.start_and_bytes().1
    }

    #[expect(
        unsafe_code,
        reason = "the buffer protocol is C: this is what pyarrow wraps without a copy"
    )]
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, bytes) = slf.get().start_and_bytes();
        let length = isize::try_from(bytes).unwrap_or(isize::MAX);
        // SAFETY: Python gives a `view` to fill. The memory belongs to a frozen object that the filled view keeps
        // alive, and nobody can change or free it before; read-only is said (1), so no consumer may write.
        let status =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut().cast(), length, 1, flags) };
        if status == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

/// Rows of messages, column by column.
#[pyclass(frozen, name = "Block", module = "pyrmq._core")]
pub(crate) struct PyBlock {
    /// How many rows.
    #[pyo3(get)]
    rows: usize,
    columns: Vec<(usize, Vec<Option<Py<ColumnBuffer>>>)>,
}

#[pymethods]
impl PyBlock {
    /// For each column its number of nulls and its buffers in Arrow's order, the validity first.
    #[getter]
    fn columns(&self, py: Python<'_>) -> Vec<(usize, Vec<Option<Py<ColumnBuffer>>>)> {
        self.columns
            .iter()
            .map(|(nulls, buffers)| {
                let buffers = buffers
                    .iter()
                    .map(|buffer| buffer.as_ref().map(|buffer| buffer.clone_ref(py)))
                    .collect();
                (*nulls, buffers)
            })
            .collect()
    }
}

pub(crate) fn block_into_py(py: Python<'_>, block: Block) -> PyResult<PyBlock> {
    let mut columns = Vec::with_capacity(block.columns.len());
    for column in block.columns {
        let buffers: PyResult<Vec<_>> = column
            .buffers
            .into_iter()
            .map(|buffer| {
                buffer
                    .map(|buffer| Py::new(py, ColumnBuffer { buffer }))
                    .transpose()
            })
            .collect();
        columns.push((column.nulls, buffers?));
    }
    Ok(PyBlock {
        rows: block.rows,
        columns,
    })
}

/// Reads ranges block by block.
#[pyclass(frozen, name = "RangeReader", module = "pyrmq._core")]
struct PyRangeReader {
    connections: Py<Connections>,
    // Guards the reader: two threads that ask take turns.
    reader: Mutex<RangeReader>,
}

#[pymethods]
impl PyRangeReader {
    #[new]
    #[pyo3(signature = (connections, ranges, columns, *, group, tags, max_rows, max_bytes, pulls_in_flight, timeout_ms, skip_lost, on_bad="fail", unreachable_ms=None, sql=None, compacted=HashSet::new()))]
    #[expect(clippy::too_many_arguments, reason = "one for each option of a read")]
    fn new(
        py: Python<'_>,
        connections: Py<Connections>,
        ranges: Vec<(String, String, String, i32, i64, i64)>,
        columns: Vec<String>,
        group: String,
        tags: String,
        max_rows: usize,
        max_bytes: usize,
        pulls_in_flight: usize,
        timeout_ms: u64,
        skip_lost: bool,
        on_bad: &str,
        unreachable_ms: Option<u64>,
        sql: Option<String>,
        compacted: HashSet<String>,
    ) -> PyResult<Self> {
        let on_bad = on_bad_message(on_bad).map_err(|error| error.into_py(py))?;
        let columns = named_columns(columns).map_err(|error| error.into_py(py))?;
        let ranges = ranges
            .into_iter()
            .map(|(address, broker, topic, queue_id, start, end)| Range {
                address,
                broker,
                topic,
                queue_id,
                start,
                end,
            })
            .collect();
        let options = ReadOptions {
            group,
            tags,
            sql,
            compacted,
            columns,
            max_rows,
            max_bytes,
            pulls_in_flight,
            timeout: Duration::from_millis(timeout_ms),
            unreachable_after: Duration::from_millis(unreachable_ms.unwrap_or(timeout_ms).min(timeout_ms)),
            skip_lost,
            on_bad,
        };
        let client = connections.get().client().map_err(|error| error.into_py(py))?;
        Ok(Self {
            connections,
            reader: Mutex::new(RangeReader::new(client, ranges, options)),
        })
    }

    /// The next rows, or None when all were read.
    fn next_block(&self, py: Python<'_>) -> PyResult<Option<PyBlock>> {
        self.connections
            .get()
            .client()
            .map_err(|error| error.into_py(py))?;
        let block: Result<Option<Block>, RangeError> =
            enter::wait(py, |slice| lock(&self.reader).poll(slice))?;
        match block.map_err(|error| Error::from(error).into_py(py))? {
            Some(block) => block_into_py(py, block).map(Some),
            None => Ok(None),
        }
    }

    /// Continues after `ConnectionLost`, with brokers at these addresses, by name.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what Python hands over is extracted by value"
    )]
    fn resume(&self, addresses: HashMap<String, String>) {
        let mut reader = lock(&self.reader);
        reader.resume(&addresses);
    }

    /// The messages that could not be read since the last call, in words.
    fn take_unreadable(&self) -> Vec<String> {
        let mut reader = lock(&self.reader);
        let bad = reader.take_unreadable();
        bad.iter()
            .map(|bad| format!("{}: offset {}: {}", bad.range, bad.offset, bad.cause))
            .collect()
    }

    /// What was left out since the last call, in words.
    fn take_lost(&self) -> Vec<String> {
        let mut reader = lock(&self.reader);
        let lost = reader.take_lost();
        lost.iter()
            .map(|lost| format!("{}: offsets {} to {}", lost.range, lost.from, lost.to))
            .collect()
    }
}

pub(crate) fn named_columns(names: Vec<String>) -> Result<Vec<Column>, Error> {
    let columns = names.into_iter().map(|name| {
        Column::from_name(&name).ok_or_else(|| Error::Config {
            text: format!("unknown column: {name}"),
        })
    });
    columns.collect()
}

fn on_bad_message(name: &str) -> Result<OnBadMessage, Error> {
    match name {
        "fail" => Ok(OnBadMessage::Fail),
        "null" => Ok(OnBadMessage::Null),
        "skip" => Ok(OnBadMessage::Skip),
        other => Err(Error::Config {
            text: format!("on_bad is fail, null or skip, found: {other}"),
        }),
    }
}

/// Adds this file's classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ColumnBuffer>()?;
    module.add_class::<PyBlock>()?;
    module.add_class::<PyRangeReader>()
}
