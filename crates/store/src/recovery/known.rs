//! What is known of log and queues before the replay: which part of the log was durable, and where the replay begins.

use crate::checkpoint::{Mark, SLACK_MS, Times};
use crate::error::StoreError;
use crate::fs::Fs;
use crate::log::commit_log::CommitLog;
use crate::log::reader::{Durable, LogReader, Step, end_of};
use crate::queue::registry::Queues;
use crate::recovery::inspected::Inspected;

/// Where the replay begins, the record before that and its store time, as far as they are known.
pub(super) fn beginning(inspected: &Inspected, must_rebuild: bool) -> Result<(i64, Mark, i64), StoreError> {
    let log = &inspected.log;
    if must_rebuild {
        return Ok((log.start(), Mark::default(), 0));
    }
    if !inspected.is_crash() {
        return newest_known(inspected.fs.as_ref(), log, &inspected.queues);
    }
    if let Some(store_ms) = store_time_of(log, inspected.times.queues)? {
        let mark = inspected.times.queues;
        return Ok((mark.end, mark, store_ms));
    }
    Ok((safe_segment(log, inspected.times)?, Mark::default(), 0))
}

/// Which part of the log was durable before the last stop.
pub(super) fn durable(inspected: &Inspected) -> Result<Durable, StoreError> {
    let (log, times) = (&inspected.log, inspected.times);
    // Retention may have deleted the mark's record.
    let is_past = times.log.is_some() && times.log.record < log.start();
    Ok(if !inspected.is_crash() {
        Durable::All
    } else if is_past || store_time_of(log, times.log)?.is_some() {
        Durable::Before(times.log.end)
    } else {
        // Smaller steps back of our clock are not noted. A Java broker's store has no mark; there, the start is refused
        // rather than the good records after a damaged one lost.
        let slack_ms = if times.log.is_some() { SLACK_MS } else { 0 };
        Durable::OlderThan(times.physic_ms - slack_ms)
    })
}

/// Position from which on every whole record that looks torn was noted.
pub(super) fn notes_from(inspected: &Inspected) -> i64 {
    let noted_from = inspected.last_stop.abort().notes_from;
    noted_from.map_or(i64::MAX, |from| from.max(inspected.nul_records.complete_from()))
}

/// The store time of a mark's record, if the log has that record.
fn store_time_of(log: &CommitLog, mark: Mark) -> Result<Option<i64>, StoreError> {
    if !mark.is_some() || mark.record < log.start() {
        return Ok(None);
    }
    Ok(match LogReader::new(log, mark.record, true).step()? {
        Step::Record(record) if end_of(&record) == mark.end => Some(record.store_timestamp_ms),
        _ => None,
    })
}

/// The beginning of the newest segment whose first record is older than what the checkpoint calls safe.
pub(super) fn safe_segment(log: &CommitLog, times: Times) -> Result<i64, StoreError> {
    for segment in log.segments().iter().rev() {
        if let Step::Record(record) = LogReader::new(log, segment.base, false).step()?
            && record.store_timestamp_ms <= times.safe_ms()
        {
            return Ok(segment.base);
        }
    }
    Ok(log.start())
}

/// The position after the newest record that a queue knows, that record and its store time; if there is none, the log's
/// start.
fn newest_known(fs: &dyn Fs, log: &CommitLog, queues: &Queues) -> Result<(i64, Mark, i64), StoreError> {
    let mut newest = None;
    for queue in queues.all() {
        let last = queue
            .last(fs)?
            .filter(|unit| !unit.is_filler())
            .map(|unit| unit.position);
        newest = newest.max(last);
    }
    let Some(position) = newest.filter(|position| *position >= log.start()) else {
        return Ok((log.start(), Mark::default(), 0));
    };
    match LogReader::new(log, position, true).step()? {
        Step::Record(record) => {
            let end = end_of(&record);
            let mark = Mark {
                record: position,
                end,
            };
            Ok((end, mark, record.store_timestamp_ms))
        }
        Step::End(_) => {
            tracing::warn!(
                position,
                "a consume queue knows a record that the log does not have"
            );
            Ok((log.start(), Mark::default(), 0))
        }
    }
}
