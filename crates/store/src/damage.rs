//! Tells a damaged log from one that a crash cut short: sound records behind the first unsound one.
//!
//! A crash may leave gaps in what was written after the last fsync, and sound records behind them. What is older than the
//! checkpoint was fsynced with everything in front of it: where such a record stands behind an unsound one, the log is
//! damaged. After a clean stop every sound record behind an unsound one says so.

use crate::commit_log::{CommitLog, Segment};
use crate::error::StoreError;
use crate::format::{to_i64, to_u64};
use crate::fs::Context;
use crate::log_reader::{LogReader, Step};
use pyrmq_remoting::message::record::{MAGIC_V1, MAGIC_V2};

const CHUNK: usize = 1 << 20;
/// Length and magic number in front of everything else of a record.
const HEAD: usize = 8;

/// The position of a sound record behind `end` for whose position and store time `counts` holds.
pub(crate) fn record_behind(
    log: &CommitLog,
    end: i64,
    counts: impl Fn(i64, i64) -> bool,
) -> Result<Option<i64>, StoreError> {
    for segment in log.segments() {
        if segment.base + log.segment_bytes() <= end {
            continue;
        }
        if let Some(found) = in_segment(log, &segment, end.max(segment.base), &counts)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn in_segment(
    log: &CommitLog,
    segment: &Segment,
    from: i64,
    counts: &impl Fn(i64, i64) -> bool,
) -> Result<Option<i64>, StoreError> {
    let mut buffer = Vec::new();
    let mut at = to_u64(from - segment.base);
    let length = to_u64(log.segment_bytes());
    while let Some(data) = segment
        .file
        .next_data(at)
        .at("read", &segment.path)?
        .filter(|data| *data < length)
    {
        // What stands in front of data is zero, but the data may begin in the middle of a head.
        let start = data.saturating_sub(HEAD as u64).max(at);
        buffer.resize(CHUNK.min(usize::try_from(length - start).unwrap_or(CHUNK)), 0);
        let got = segment
            .file
            .read_at(&mut buffer, start)
            .at("read", &segment.path)?;
        let bytes = buffer.get(..got).unwrap_or_default();
        for head in heads(bytes) {
            let position = segment.base + to_i64(usize::try_from(start).unwrap_or_default() + head);
            if let Step::Record(record) = LogReader::new(log, position, true).step()?
                && counts(position, record.store_timestamp_ms)
            {
                return Ok(Some(position));
            }
        }
        if got < buffer.len() || start + got as u64 >= length {
            break;
        }
        // A head may lie across the border of two chunks.
        at = start + got as u64 - (HEAD - 1) as u64;
    }
    Ok(None)
}

/// Where a record's length and magic number may stand.
fn heads(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let last = bytes.len().saturating_sub(HEAD - 1);
    (0..last).filter(move |at| {
        bytes
            .get(at + 4..)
            .and_then(<[u8]>::first_chunk)
            .is_some_and(|magic| matches!(u32::from_be_bytes(*magic), MAGIC_V1 | MAGIC_V2))
    })
}
