//! Log files as column buffers: the files of a log, how they are cut into pieces, and the rows of a piece.

use crate::consumer::columns::{PyBlock, block_into_py, named_columns};
use crate::enter;
use crate::errors::Error;
use pyo3::prelude::*;
use pyrmq_columns::{BadBody, BadRow, LogRows, RowFilter, Tags};
use pyrmq_remoting::sync::lock;
use pyrmq_store::RealFs;
use pyrmq_store::scan::{LogFile, LogScan, PlanLimits, Stop, deleted_topics, log_files, plan};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Path, position of the first byte, and length of a file.
type File = (PathBuf, i64, i64);
/// Positions of the first record, of the last, and after it; number of records; first and last store time in ms;
/// topics.
type PlannedPiece = (i64, i64, i64, u64, i64, i64, Vec<String>);
/// The pieces, the position after the last, why they end there, and what is wrong there.
type Planned = (Vec<PlannedPiece>, i64, &'static str, Option<String>);
/// The first offset and the one after the last, by topic and queue id.
type QueueRanges = HashMap<String, HashMap<i32, (i64, i64)>>;

/// The log files of a directory, in order.
#[pyfunction(name = "log_files")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it converts")]
fn py_log_files(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<File>> {
    let files = enter::compute(py, || log_files(&RealFs, &directory).map_err(Error::from))?;
    Ok(files
        .into_iter()
        .map(|file| (file.path, file.base, file.length))
        .collect())
}

/// The topics that were deleted from a pyrmq store, and the log position before which their messages are gone.
#[pyfunction(name = "deleted_topics")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it converts")]
fn py_deleted_topics(py: Python<'_>, root: PathBuf) -> PyResult<HashMap<String, i64>> {
    enter::compute(py, || deleted_topics(&RealFs, &root).map_err(Error::from))
}

/// Cuts the records of a file from `position` up to `until` into pieces.
///
/// The third value says why the pieces end: `end` (of the file), `limit` (enough records were read), `unused` (zeros)
/// or `damage`. The fourth says what is wrong, for `damage`.
#[pyfunction]
#[pyo3(signature = (file, position, *, piece_bytes, most_records, with_topics, until=None))]
fn plan_log(
    py: Python<'_>,
    file: File,
    position: i64,
    piece_bytes: i64,
    most_records: u64,
    with_topics: bool,
    until: Option<i64>,
) -> PyResult<Planned> {
    let file = log_file(file);
    let limits = PlanLimits {
        piece_bytes,
        records: most_records,
        with_topics,
    };
    let (pieces, end, stop) = enter::compute(py, || {
        let mut scan = LogScan::open(&RealFs, &file, position, until.unwrap_or(i64::MAX))?;
        let (pieces, stop) = plan(&mut scan, limits)?;
        Ok::<_, Error>((pieces, scan.position(), stop))
    })?;
    let pieces = pieces.into_iter().map(|piece| {
        let topics = piece.topics.into_iter().collect();
        let (first_ms, last_ms) = (piece.first_ms, piece.last_ms);
        (
            piece.from,
            piece.last,
            piece.until,
            piece.records,
            first_ms,
            last_ms,
            topics,
        )
    });
    let (why, reason) = match stop {
        Stop::End => ("end", None),
        Stop::Paused => ("limit", None),
        Stop::Unused => ("unused", None),
        Stop::Damaged(reason) => ("damage", Some(reason)),
    };
    Ok((pieces.collect(), end, why, reason))
}

/// The position of the next valid record from `position` on; None if the file has none.
#[pyfunction]
fn next_record(py: Python<'_>, file: File, position: i64) -> PyResult<Option<i64>> {
    let file = log_file(file);
    enter::compute(py, || {
        let mut scan = LogScan::open(&RealFs, &file, position, i64::MAX)?;
        Ok::<_, Error>(scan.find_sound(position)?.then(|| scan.position()))
    })
}

fn log_file((path, base, length): File) -> LogFile {
    LogFile { path, base, length }
}

/// A scan and what it collects.
struct Reading {
    scan: LogScan,
    rows: LogRows,
    path: PathBuf,
    max_rows: usize,
    max_bytes: usize,
    skips_damage: bool,
    skipped: Vec<String>,
    failed: Option<BadRow>,
}

impl Reading {
    /// Works for up to `slice`. `None`: it is not done yet.
    fn poll(&mut self, slice: Duration) -> Option<Result<bool, Error>> {
        let until = Instant::now() + slice;
        loop {
            match self.step(until) {
                Ok(Some(is_more)) => return Some(Ok(is_more)),
                Ok(None) if Instant::now() >= until => return None,
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// `Some(true)`: a block is full. `Some(false)`: no record follows the collected ones. `None`: there is more to do.
    fn step(&mut self, until: Instant) -> Result<Option<bool>, Error> {
        let (rows, failed) = (&mut self.rows, &mut self.failed);
        let (max_rows, max_bytes) = (self.max_rows, self.max_bytes);
        let mut visited = 0_u32;
        let stop = self.scan.visit(|record, bytes| {
            visited = visited.wrapping_add(1);
            if let Err(bad) = rows.push(record, bytes) {
                *failed = Some(bad);
                return ControlFlow::Break(());
            }
            let is_full = rows.rows() >= max_rows || rows.bytes() >= max_bytes;
            // The clock is read only once every 4,096 records: a filter may reject them all.
            if is_full || (visited.is_multiple_of(4096) && Instant::now() >= until) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        if let Some(bad) = self.failed.take() {
            return Err(Error::LogMessage {
                path: self.path.clone(),
                text: in_words(&bad),
            });
        }
        match stop {
            Stop::End => Ok(Some(false)),
            Stop::Paused if self.rows.rows() >= max_rows || self.rows.bytes() >= max_bytes => Ok(Some(true)),
            Stop::Paused => Ok(None),
            Stop::Unused => self.damaged("zeros where a record should be".to_owned()),
            Stop::Damaged(reason) => self.damaged(reason),
        }
    }

    fn damaged(&mut self, reason: String) -> Result<Option<bool>, Error> {
        let position = self.scan.position();
        if !self.skips_damage {
            return Err(Error::DamagedLog {
                path: self.path.clone(),
                position,
                reason,
            });
        }
        let is_more = self.scan.skip_damage()?;
        let until = if is_more {
            format!("position {}", self.scan.position())
        } else {
            "its end".to_owned()
        };
        let path = self.path.display();
        self.skipped
            .push(format!("{path} from position {position} to {until}: {reason}"));
        Ok(if is_more { None } else { Some(false) })
    }
}

fn in_words(bad: &BadRow) -> String {
    let BadRow {
        topic,
        queue_id,
        offset,
        position,
        cause,
    } = bad;
    format!("topic {topic}, queue {queue_id}, offset {offset}, position {position}: {cause}")
}

/// Reads the rows of a piece, block by block.
#[pyclass(frozen, name = "LogScan", module = "pyrmq._core")]
struct PyLogScan {
    // Guards the scan: threads that call `next_block` take turns.
    reading: Mutex<Reading>,
}

#[pymethods]
impl PyLogScan {
    #[new]
    #[pyo3(signature = (file, from_position, until_position, columns, *, topics, tags, stored_ms, queues, deleted, broker, max_rows, max_bytes, on_bad, on_corrupt, check_bodies))]
    #[expect(clippy::too_many_arguments, reason = "one for each option of a read")]
    fn new(
        py: Python<'_>,
        file: File,
        from_position: i64,
        until_position: i64,
        columns: Vec<String>,
        topics: HashSet<String>,
        tags: &str,
        stored_ms: Option<(i64, i64)>,
        queues: Option<QueueRanges>,
        deleted: HashMap<String, i64>,
        broker: Option<String>,
        max_rows: usize,
        max_bytes: usize,
        on_bad: &str,
        on_corrupt: &str,
        check_bodies: bool,
    ) -> PyResult<Self> {
        let columns = named_columns(columns).map_err(|error| error.into_py(py))?;
        let on_bad = choice("on_bad", on_bad, &BAD_BODIES).map_err(|error| error.into_py(py))?;
        let skips_damage =
            choice("on_corrupt", on_corrupt, &ON_CORRUPT).map_err(|error| error.into_py(py))?;
        let filter = RowFilter {
            topics,
            tags: Tags::parse(tags),
            stored_ms: stored_ms.map(|(from, until)| from..until),
            queues: queues.map(|topics| {
                let ranges = |queues: HashMap<i32, (i64, i64)>| {
                    let queues = queues.into_iter();
                    queues
                        .map(|(queue, (from, until))| (queue, from..until))
                        .collect()
                };
                let topics = topics.into_iter();
                topics.map(|(topic, queues)| (topic, ranges(queues))).collect()
            }),
            deleted,
        };
        let file = log_file(file);
        let scan = enter::compute(py, || {
            let scan = LogScan::open(&RealFs, &file, from_position, until_position);
            scan.map_err(Error::from)
        })?;
        Ok(Self {
            reading: Mutex::new(Reading {
                scan: if check_bodies {
                    scan.checking_bodies()
                } else {
                    scan
                },
                rows: LogRows::new(columns, filter, broker, on_bad),
                path: file.path,
                max_rows,
                max_bytes,
                skips_damage,
                skipped: Vec::new(),
                failed: None,
            }),
        })
    }

    /// The next rows; None when all have been read.
    fn next_block(&self, py: Python<'_>) -> PyResult<Option<PyBlock>> {
        let block = enter::wait(py, |slice| {
            let mut reading = lock(&self.reading);
            let is_more = reading.poll(slice)?;
            Some(is_more.map(|is_more| {
                let has_rows = is_more || reading.rows.rows() > 0;
                has_rows.then(|| reading.rows.finish())
            }))
        })?;
        match block.map_err(|error| error.into_py(py))? {
            Some(block) => block_into_py(py, block).map(Some),
            None => Ok(None),
        }
    }

    /// Describes the messages that could not be read since the previous call.
    fn take_unreadable(&self) -> Vec<String> {
        let mut reading = lock(&self.reading);
        reading.rows.take_bad().iter().map(in_words).collect()
    }

    /// Describes the parts of the file that were skipped since the previous call.
    fn take_corrupt(&self) -> Vec<String> {
        let mut reading = lock(&self.reading);
        std::mem::take(&mut reading.skipped)
    }
}

const BAD_BODIES: [(&str, BadBody); 3] = [
    ("fail", BadBody::Fail),
    ("null", BadBody::Null),
    ("skip", BadBody::Skip),
];
const ON_CORRUPT: [(&str, bool); 2] = [("fail", false), ("skip", true)];

fn choice<T: Copy>(name: &str, given: &str, known: &[(&str, T)]) -> Result<T, Error> {
    let found = known.iter().find(|(word, _)| *word == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        Error::Config {
            text: format!("{name} is one of {}, found: {given}", words.join(", ")),
        }
    })
}

/// Adds this file's names to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLogScan>()?;
    module.add_function(wrap_pyfunction!(py_log_files, module)?)?;
    module.add_function(wrap_pyfunction!(py_deleted_topics, module)?)?;
    module.add_function(wrap_pyfunction!(plan_log, module)?)?;
    module.add_function(wrap_pyfunction!(next_record, module)?)
}
