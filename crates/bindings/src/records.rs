//! Commit log records as rows, many at a time, for the command line's log tools.

use pyo3::prelude::*;
use pyo3::types::PyString;
use pyrmq_remoting::message::java_hash;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::record::{Hop, Record, hop, no_record};

/// Position, size, topic, queue id, queue offset, store timestamp, tags code and sys flag of one record, and whether it
/// looks torn.
type RecordRow = (i64, usize, Py<PyString>, i32, i64, i64, i64, i32, bool);

/// Rows, the position where they end, and why they end there.
type Scanned = (Vec<RecordRow>, i64, &'static str, Option<String>);

/// Reads the records at the start of `data`, which begins at `position` of the log, in a file that begins at `base`.
///
/// The third value says why reading ended: `more` (a record needs more bytes), `blank` (the rest of the file is
/// unused), `unused` (zeros) or `damage`. The fourth says what is wrong, for `damage`.
#[pyfunction]
fn scan_records(py: Python<'_>, data: &[u8], position: i64, base: i64, check: bool) -> Scanned {
    let mut rows = Vec::new();
    let mut at = 0_usize;
    let mut last: Option<(String, Py<PyString>)> = None;
    let here = |at: usize| position.saturating_add(i64::try_from(at).unwrap_or(i64::MAX));
    let inside = |at: usize| usize::try_from(here(at).saturating_sub(base)).unwrap_or_default();
    loop {
        let rest = data.get(at..).unwrap_or_default();
        if rest.len() < HEAD {
            return (rows, here(at), "more", None);
        }
        let size = match hop(rest) {
            Hop::Record(size) => size,
            Hop::Blank(_) => return (rows, here(at), "blank", None),
            Hop::End if rest.iter().take(HEAD).all(|byte| *byte == 0) => {
                return (rows, here(at), "unused", None);
            }
            Hop::End => return (rows, here(at), "damage", Some(no_record(rest))),
        };
        let Some(bytes) = rest.get(..size) else {
            return (rows, here(at), "more", None);
        };
        let record = match sound(bytes, here(at), check) {
            Ok(record) => record,
            Err(reason) => return (rows, here(at), "damage", Some(reason)),
        };
        let topic = match &last {
            Some((name, topic)) if name == record.topic => topic.clone_ref(py),
            _ => {
                let topic = PyString::new(py, record.topic).unbind();
                last = Some((record.topic.to_owned(), topic.clone_ref(py)));
                topic
            }
        };
        rows.push((
            here(at),
            size,
            topic,
            record.queue_id,
            record.queue_offset,
            record.store_timestamp_ms,
            java_hash::tags_code(record.properties.get(names::TAGS)),
            record.sys_flag,
            check && pyrmq_store::looks_torn(&record, bytes, inside(at)),
        ));
        at = at.saturating_add(size);
    }
}

/// Bytes that tell a record's size and magic.
const HEAD: usize = 8;

fn sound(bytes: &[u8], position: i64, check: bool) -> Result<Record<'_>, String> {
    let record = Record::decode(bytes).map_err(|error| error.to_string())?;
    if record.physical_offset != position {
        return Err(format!(
            "the record says that its position is {}",
            record.physical_offset
        ));
    }
    if record.topic.is_empty() {
        return Err("the record has no topic".to_owned());
    }
    if check {
        record.check_body().map_err(|error| error.to_string())?;
    }
    Ok(record)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(scan_records, module)?)
}
