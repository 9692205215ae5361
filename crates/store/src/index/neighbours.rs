//! Whether a file is missing between two index files, because somebody deleted it: nothing in them says how many there
//! are, but the log has the records whose keys are in none.

use crate::error::StoreError;
use crate::index::file::IndexFile;
use crate::index::{MessageKeys, TopicKeys};
use crate::log::commit_log::CommitLog;
use crate::log::reader::{LogReader, Step};
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::properties::names;

/// Bytes of the log that are read at most for one pair of files. Most messages have a key.
const MAX_BYTES: i64 = 1 << 20;

/// Whether the log has a record with a key between the newest one of the file before (without one: the log's start) and
/// the oldest one of this file. False if the log cannot be read there, as its records could not be found anyway.
pub(super) fn is_one_missing(log: &CommitLog, before: Option<&IndexFile>, file: &IndexFile) -> bool {
    let before = before.map(|before| before.header.end_position);
    let path = file.path.display();
    match lacks_key(log, before, file.header.begin_position) {
        Ok(true) => {
            tracing::warn!(file = %path, "an index file before this one is missing");
            true
        }
        Ok(false) => false,
        Err(error) => {
            tracing::warn!(file = %path, %error, "cannot see whether an index file before this one is missing");
            false
        }
    }
}

fn lacks_key(log: &CommitLog, before: Option<i64>, begin: i64) -> Result<bool, StoreError> {
    let indexed = before.filter(|position| *position >= log.start());
    let mut reader = LogReader::new(log, indexed.unwrap_or_else(|| log.start()), false);
    if begin <= reader.position() || (indexed.is_some() && matches!(reader.step()?, Step::End(_))) {
        return Ok(false);
    }
    let end = begin.min(reader.position() + MAX_BYTES);
    while reader.position() < end {
        match reader.step()? {
            Step::Record(record) if record.physical_offset >= begin => break,
            Step::Record(record) if has_key(&record) => return Ok(true),
            Step::Record(_) => {}
            Step::End(_) => break,
        }
    }
    Ok(false)
}

/// Whether every broker indexes the record: those before 5.5 ignore tags.
fn has_key(record: &Record<'_>) -> bool {
    let [unique_key, keys] = record.properties.get_many([names::UNIQ_KEY, names::KEYS]);
    let keys = MessageKeys {
        unique_key,
        keys,
        tag: None,
    };
    let mut found = false;
    TopicKeys::new(record.topic, record.sys_flag).hashes(&keys, |_| found = true);
    found
}
