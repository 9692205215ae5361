//! Rows of Arrow columns as messages: from column buffers into batch frames, without a Python object for each row.
//!
//! ```text
//! body, properties, map      -> Properties -> Batch (any queue, frames leave as soon as they are full)
//! with sharding key or queue -> accumulator, after what is for the same queue, so that order holds
//! delayed                    -> accumulator, each in a frame of its own (brokers refuse it in a batch)
//! ```
//! A row that cannot be a message is reported with its number, and the others are sent. The caller waits for the
//! outcomes with [`TableSend::wait`], so the next table can be encoded while answers come.

use crate::completion::BatchCollector;
use crate::enter;
use crate::errors::Error;
use crate::producer::accumulator::PyAccumulator;
use crate::producer::batch_target::{BatchTarget, Frames};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyrmq_client::ClientError;
use pyrmq_client::producer::accumulator::{BatchSettings, TargetRef};
use pyrmq_client::producer::outgoing::Properties;
use pyrmq_client::session::topic_name::check_topic;
use pyrmq_remoting::message::java_hash;
use pyrmq_remoting::message::properties::names;
use std::sync::Arc;
use std::time::Duration;

/// The properties that delay a message's delivery.
const DELAYS: [&str; 3] = [names::DELAY, names::TIMER_DELAY_MS, names::TIMER_DELIVER_MS];

/// A column of strings or bytes: validity, offsets, data, first row.
#[derive(FromPyObject)]
struct TextColumn<'py>(
    Option<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    usize,
);

/// A column of maps from string to string: validity, offsets, first row, keys, values.
#[derive(FromPyObject)]
struct MapColumn<'py>(
    Option<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
    usize,
    TextColumn<'py>,
    TextColumn<'py>,
);

/// A column of 32-bit integers: validity, values, first row.
#[derive(FromPyObject)]
struct IntColumn<'py>(Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>, usize);

fn is_valid(bits: Option<&Bound<'_, PyBytes>>, at: usize) -> bool {
    bits.is_none_or(|bits| {
        let byte = bits.as_bytes().get(at / 8).copied().unwrap_or(0);
        byte >> (at % 8) & 1 == 1
    })
}

fn int_at(values: &Bound<'_, PyBytes>, at: usize) -> Option<i32> {
    let bytes = values.as_bytes().get(at * 4..at * 4 + 4)?;
    bytes.try_into().ok().map(i32::from_le_bytes)
}

fn span(offsets: &Bound<'_, PyBytes>, at: usize) -> Option<(usize, usize)> {
    let from = usize::try_from(int_at(offsets, at)?).ok()?;
    let to = usize::try_from(int_at(offsets, at + 1)?).ok()?;
    Some((from, to))
}

impl TextColumn<'_> {
    fn bytes(&self, row: usize) -> Option<&[u8]> {
        let at = self.3 + row;
        if !is_valid(self.0.as_ref(), at) {
            return None;
        }
        let (from, to) = span(&self.1, at)?;
        self.2.as_bytes().get(from..to)
    }

    fn text(&self, row: usize) -> Result<Option<&str>, String> {
        self.bytes(row)
            .map(|bytes| {
                std::str::from_utf8(bytes).map_err(|error| format!("text that is not UTF-8: {error}"))
            })
            .transpose()
    }
}

impl MapColumn<'_> {
    fn pairs(&self, row: usize) -> std::ops::Range<usize> {
        let at = self.2 + row;
        if !is_valid(self.0.as_ref(), at) {
            return 0..0;
        }
        span(&self.1, at).map_or(0..0, |(from, to)| from..to)
    }
}

impl IntColumn<'_> {
    fn get(&self, row: usize) -> Option<i32> {
        let at = self.2 + row;
        is_valid(self.0.as_ref(), at)
            .then(|| int_at(&self.1, at))
            .flatten()
    }
}

/// The rows to send.
struct Table<'py> {
    topic: String,
    rows: u32,
    body: TextColumn<'py>,
    properties: Vec<(String, TextColumn<'py>)>,
    map: Option<MapColumn<'py>>,
    queues: Option<IntColumn<'py>>,
}

/// Why a row cannot be sent.
enum BadRow {
    Text(String),
    Message(ClientError),
}

impl From<ClientError> for BadRow {
    fn from(error: ClientError) -> Self {
        Self::Message(error)
    }
}

impl From<String> for BadRow {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Table<'_> {
    fn body(&self, row: usize) -> Result<&[u8], BadRow> {
        let body = self.body.bytes(row);
        body.ok_or_else(|| BadRow::Text("the body is NULL".to_owned()))
    }

    fn write(&self, row: usize, text: &mut Properties<'_>) -> Result<(), BadRow> {
        for (name, column) in &self.properties {
            if let Some(value) = column.text(row)? {
                text.push(name, value)?;
            }
        }
        if let Some(map) = &self.map {
            for pair in map.pairs(row) {
                if let (Some(name), Some(value)) = (map.3.text(pair)?, map.4.text(pair)?) {
                    text.push_user(name, value)?;
                }
            }
        }
        Ok(())
    }

    fn has(&self, row: usize, names: &[&str]) -> bool {
        let mut columns = self.properties.iter();
        columns.any(|(name, column)| names.contains(&name.as_str()) && column.bytes(row).is_some())
    }

    fn sharding_hash(&self, row: usize) -> Result<Option<i32>, BadRow> {
        for (name, column) in &self.properties {
            if name == names::SHARDINGKEY {
                return Ok(column.text(row)?.map(java_hash::hash));
            }
        }
        Ok(None)
    }
}

/// One call in progress.
struct TableCall<'a, 'py> {
    batch_target: BatchTarget<'a>,
    table: &'a Table<'py>,
    frames: Frames<'a, 'py>,
}

impl TableCall<'_, '_> {
    /// Sends one row. The inner result concerns this row; the outer error ends the call.
    fn add(&mut self, member: u32) -> PyResult<Result<(), BadRow>> {
        let row = usize::try_from(member).unwrap_or(usize::MAX);
        let table = self.table;
        let body = match table.body(row) {
            Ok(body) => body,
            Err(bad) => return Ok(Err(bad)),
        };
        if let Err(error) = self
            .batch_target
            .producer
            .check_size(&self.frames.topic, body.len())
        {
            return Ok(Err(error.into()));
        }
        let hash = match table.sharding_hash(row) {
            Ok(hash) => hash,
            Err(bad) => return Ok(Err(bad)),
        };
        let alone = table.has(row, &DELAYS);
        let queue = table.queues.as_ref().and_then(|queues| queues.get(row));
        match (queue, hash) {
            (Some(id), _) => self.push(row, member, body, TargetRef::Queue("", id), alone),
            (None, Some(hash)) => self.push(row, member, body, TargetRef::Hash(hash), alone),
            (None, None) if alone => self.push(row, member, body, TargetRef::Any, alone),
            (None, None) => self.add_to_frame(row, member, body),
        }
    }

    /// Sends a delayed message, or one for a queue, after earlier ones for it.
    fn push(
        &mut self,
        row: usize,
        member: u32,
        body: &[u8],
        target: TargetRef<'_>,
        alone: bool,
    ) -> PyResult<Result<(), BadRow>> {
        let mut text = Properties::bare(&self.table.topic);
        let written = self.table.write(row, &mut text);
        let extra = match written.and_then(|()| text.finish().map_err(BadRow::from)) {
            Ok(extra) => extra,
            Err(bad) => return Ok(Err(bad)),
        };
        let member = (member, body, extra.as_str(), 0);
        Ok(self.frames.push(member, target, alone)?.map_err(BadRow::from))
    }

    /// Adds a message for any queue to the frame that is being filled.
    fn add_to_frame(&mut self, row: usize, member: u32, body: &[u8]) -> PyResult<Result<(), BadRow>> {
        let mut text = Properties::new(&self.frames.topic, self.batch_target.producer.ids());
        let id = text.message_id().to_owned();
        let written = self.table.write(row, &mut text);
        let properties = match written.and_then(|()| text.finish().map_err(BadRow::from)) {
            Ok(properties) => properties,
            Err(bad) => return Ok(Err(bad)),
        };
        let member = (member, body, properties.as_str(), 0);
        let added = self.frames.add_to_frame(member, &id)?;
        Ok(added.map_err(|error| BadRow::Text(error.to_string())))
    }
}

/// A row's number and why it was not sent.
type Failed = (u32, Py<PyAny>);

/// A table that is being sent.
#[pyclass(frozen, name = "TableSend", module = "pyrmq._core")]
struct TableSend {
    collector: Arc<BatchCollector>,
    bad: Vec<Failed>,
}

#[pymethods]
impl TableSend {
    /// Waits for the outcome of every row. Returns the rows that are not known to be stored, in order, with their
    /// exceptions.
    fn wait(&self, py: Python<'_>) -> PyResult<Vec<Failed>> {
        let parts = enter::wait(py, |slice| self.collector.wait(slice))?;
        let mut failed: Vec<Failed> = self
            .bad
            .iter()
            .map(|(row, error)| (*row, error.clone_ref(py)))
            .collect();
        for (members, outcome) in parts {
            if let Err(error) = outcome {
                let error = Error::from(error).into_py(py).into_value(py).into_any();
                failed.extend(members.iter().map(|(_, row)| (*row, error.clone_ref(py))));
            }
        }
        failed.sort_by_key(|(row, _)| *row);
        Ok(failed)
    }
}

/// Sends the rows of one topic without waiting for the outcomes; `TableSend.wait` does that.
///
/// `properties` maps property names (`KEYS`, `TAGS`, `__SHARDINGKEY` and so on) to text columns. Integers and offsets
/// are little-endian.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
fn send_table<'py>(
    py: Python<'py>,
    accumulator: &PyAccumulator,
    topic: String,
    rows: u32,
    body: TextColumn<'py>,
    properties: Vec<(String, TextColumn<'py>)>,
    map: Option<MapColumn<'py>>,
    queues: Option<IntColumn<'py>>,
    batch_bytes: usize,
    timeout_ms: u64,
) -> PyResult<TableSend> {
    let batch_target = accumulator.checked_batch_target(py)?;
    check_topic(&topic).map_err(|error| Error::from(error).into_py(py))?;
    let table = Table {
        topic,
        rows,
        body,
        properties,
        map,
        queues,
    };
    let settings = BatchSettings {
        bytes: batch_bytes,
        inner: false,
        timeout: Duration::from_millis(timeout_ms),
    };
    let mut call = TableCall {
        batch_target,
        table: &table,
        frames: Frames::new(batch_target, py, &table.topic, settings, true),
    };
    let mut bad = Vec::new();
    let mut ended = Ok(());
    for row in 0..table.rows {
        match call.add(row) {
            Ok(Ok(())) => {}
            Ok(Err(BadRow::Message(error))) => {
                bad.push((row, Error::from(error).into_py(py).into_value(py).into_any()));
            }
            Ok(Err(BadRow::Text(text))) => {
                bad.push((row, PyValueError::new_err(text).into_value(py).into_any()));
            }
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    let ended = ended.and_then(|()| call.frames.launch_open());
    batch_target.accumulator.uncork();
    call.frames.collector.expect(call.frames.sent, None);
    ended.map(|()| TableSend {
        collector: call.frames.collector,
        bad,
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TableSend>()?;
    module.add("RESERVED_PROPERTIES", names::ALL.to_vec())?;
    module.add_function(wrap_pyfunction!(send_table, module)?)
}
