//! Distinguishes a damaged log from one that a crash cut short, by valid records after the first invalid one.
//!
//! A power loss may leave gaps in what was written after the last fsync, and valid records after them. What is older
//! than the checkpoint was fsynced with everything before it: if such a record follows an invalid one, the log is
//! damaged. After a clean stop, and after a kill while the system ran on, any valid record after an invalid one proves
//! damage.
//!
//! Bodies contain whatever senders like, including bytes that look like heads of records, each with a size of its own.
//! So bytes are only read as a record if they name their own position, if that position counts, and if their lengths
//! are consistent.
//!
//! A reader that finds no record where a unit points to asks [`damage_at`] which of the two is wrong.

use crate::error::StoreError;
use crate::format::{to_i64, to_u64};
use crate::fs::Context;
use crate::log::commit_log::CommitLog;
use crate::log::reader::{LogReader, Step, end_of};
use crate::log::segment::Segment;
use pyrmq_remoting::message::record::{self, FIXED_V4, Hop, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, hop};
use pyrmq_remoting::message::sys_flag;
use std::sync::Arc;

const CHUNK: usize = 1 << 20;
/// Bytes of length and magic number at the start of a record.
const HEAD: usize = 8;
/// Bytes before the body, with any kind of hosts.
const FIXED: usize = FIXED_V4 + 24;
/// Records are at most this long: no client sends frames of more than 16 MiB.
const MAX_RECORD_BYTES: i64 = 32 << 20;

/// A damaged part of the log, which readers of its messages meet.
#[derive(Debug)]
pub(crate) struct Damage {
    /// Position at which the damage begins.
    pub(crate) from: i64,
    /// Beginning of the next segment that is not known to be damaged.
    pub(crate) until: i64,
    pub(crate) error: StoreError,
}

/// Finds a valid record after the invalid one at `end` whose position and store time satisfy `counts`.
pub(crate) fn record_after(
    log: &CommitLog,
    end: i64,
    counts: impl Fn(i64, i64) -> bool,
) -> Result<Option<i64>, StoreError> {
    for segment in log.segments() {
        if segment.base + log.segment_bytes() <= end {
            continue;
        }
        let from = if segment.base <= end {
            after_body(log, &segment, end)?
        } else {
            segment.base
        };
        if let Some(found) = in_segment(log, &segment, from, &counts)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Finds a valid record after the invalid one at `end` in its segment.
pub(crate) fn record_in(
    log: &CommitLog,
    segment: &Arc<Segment>,
    end: i64,
) -> Result<Option<i64>, StoreError> {
    in_segment(log, segment, after_body(log, segment, end)?, &|_, _| true)
}

/// The damage of the log at a position where a unit says that a record of `size` bytes begins. `None` if the unit is
/// wrong: a record that can be read begins there or lies around the position, or no record was ever stored there.
pub(crate) fn damage_at(log: &CommitLog, position: i64, size: i32) -> Result<Option<Damage>, StoreError> {
    let Some(segment) = log.segment_at(position).filter(|_| position < log.appended()) else {
        return Ok(None);
    };
    let Some(reason) = unreadable(log, &segment, position)? else {
        return Ok(None);
    };
    let error = match record_after(log, position, |_, _| true)? {
        Some(good) => StoreError::Damaged {
            path: segment.path.clone(),
            position,
            reason,
            good,
        },
        None => StoreError::QueueMismatch { position, size },
    };
    Ok(Some(Damage {
        from: position,
        until: segment.base + log.segment_bytes(),
        error,
    }))
}

/// Why no record can be read at a position, found by reading record by record up to it; `None` if one begins there or
/// lies around it, or if the position is in the unused rest of the segment.
fn unreadable(log: &CommitLog, segment: &Arc<Segment>, position: i64) -> Result<Option<String>, StoreError> {
    let mut from = segment.base.max(position - MAX_RECORD_BYTES);
    while from <= position
        && let Some(first) = in_segment(log, segment, from, &|_, _| true)?
        && first <= position
    {
        let mut reader = LogReader::new(log, first, false).until(segment.base + log.segment_bytes());
        let reason = loop {
            match reader.step()? {
                Step::Record(record) if end_of(&record) > position => return Ok(None),
                Step::Record(_) => {}
                Step::End(reason) => break reason,
            }
        };
        let end = reader.position();
        if end > position {
            return Ok(None);
        }
        if end == position {
            return Ok(Some(reason.unwrap_or_else(no_record_text)));
        }
        from = after_body(log, segment, end)?;
    }
    Ok(Some("no record can be read there".to_owned()))
}

/// Why nothing can be read where only zero bytes are.
pub(crate) fn no_record_text() -> String {
    "zero bytes where a record should be".to_owned()
}

/// Whether a full segment begins as one must: with a record, or with a blank record of its whole length, which
/// `pyrmq log repair` leaves. True for one that retention has deleted meanwhile.
pub(crate) fn has_head(log: &CommitLog, segment: &Arc<Segment>) -> Result<bool, StoreError> {
    let Some(file) = log.file_if_there(segment)? else {
        return Ok(true);
    };
    let mut head = [0; FIXED];
    file.read_at(&mut head, 0).at("read", &segment.path)?;
    Ok(match hop(&head) {
        Hop::Record(_) => Claim::read(log, segment.base, &head).is_some(),
        Hop::Blank(left) => to_i64(left) == log.segment_bytes(),
        Hop::End => false,
    })
}

/// Where to look for records after an invalid one: after its body, if its head is complete.
fn after_body(log: &CommitLog, segment: &Arc<Segment>, position: i64) -> Result<i64, StoreError> {
    let head = head_at(log, segment, position)?;
    Ok(Claim::read(log, position, &head).map_or(position + 1, |claim| position + to_i64(claim.body_end)))
}

fn head_at(log: &CommitLog, segment: &Arc<Segment>, position: i64) -> Result<[u8; FIXED], StoreError> {
    let mut head = [0; FIXED];
    log.file(segment)?
        .read_at(&mut head, to_u64(position - segment.base))
        .at("read", &segment.path)?;
    Ok(head)
}

/// The fields of a head that is plausible at its position.
#[derive(Debug, Clone, Copy)]
struct Claim {
    size: usize,
    store_ms: i64,
    /// Where the body ends, in bytes from the record's start; the topic's length follows.
    body_end: usize,
    topic_length: usize,
}

impl Claim {
    /// Parses the head of a record at a position; `None` if it cannot be there.
    fn read(log: &CommitLog, position: i64, head: &[u8; FIXED]) -> Option<Self> {
        let Hop::Record(size) = hop(head) else {
            return None;
        };
        let named: [u8; 8] = *head.get(PHYSICAL_OFFSET_AT..)?.first_chunk()?;
        if i64::from_be_bytes(named) != position || to_i64(size) > log.next_segment(position) - position {
            return None;
        }
        let flags = record::flags_of(head)?;
        let hosts = [sys_flag::BORN_HOST_V6, sys_flag::STORE_HOST_V6];
        let wide = hosts.iter().filter(|host| flags & **host != 0).count();
        let fixed = FIXED_V4 + 12 * wide;
        let body: [u8; 4] = *head.get(fixed - 4..)?.first_chunk()?;
        let body_end = fixed + usize::try_from(i32::from_be_bytes(body)).ok()?;
        let magic: [u8; 4] = *head.get(4..)?.first_chunk()?;
        let topic_length = if u32::from_be_bytes(magic) == MAGIC_V2 {
            2
        } else {
            1
        };
        (body_end + topic_length + 2 < size).then_some(Self {
            size,
            store_ms: record::store_timestamp_of(head)?,
            body_end,
            topic_length,
        })
    }

    /// Whether topic and properties end where the record does.
    fn fits(&self, log: &CommitLog, segment: &Arc<Segment>, position: i64) -> Result<bool, StoreError> {
        let at = to_u64(position - segment.base) + self.body_end as u64;
        let file = log.file(segment)?;
        let number = |at: u64, wide: usize| {
            let mut bytes = [0; 2];
            let place = bytes.get_mut(2 - wide..).unwrap_or_default();
            file.read_at(place, at).at("read", &segment.path)?;
            Ok::<_, StoreError>(usize::from(u16::from_be_bytes(bytes)))
        };
        let topic = number(at, self.topic_length)?;
        let properties_at = self.body_end + self.topic_length + topic;
        if topic == 0 || properties_at + 2 > self.size {
            return Ok(false);
        }
        let properties = number(at + (self.topic_length + topic) as u64, 2)?;
        Ok(properties_at + 2 + properties == self.size)
    }
}

fn in_segment(
    log: &CommitLog,
    segment: &Arc<Segment>,
    from: i64,
    counts: &impl Fn(i64, i64) -> bool,
) -> Result<Option<i64>, StoreError> {
    let file = log.file(segment)?;
    let length = to_u64(log.segment_bytes());
    let mut at = to_u64(from - segment.base);
    let mut buffer = Vec::new();
    while let Some(data) = file
        .next_data(at)
        .at("read", &segment.path)?
        .filter(|data| *data < length)
    {
        // Bytes before data are zero, but the data may begin in the middle of a head.
        let start = data.saturating_sub(HEAD as u64).max(at);
        buffer.resize(CHUNK.min(usize::try_from(length - start).unwrap_or(CHUNK)), 0);
        let got = file.read_at(&mut buffer, start).at("read", &segment.path)?;
        let bytes = buffer.get(..got).unwrap_or_default();
        for head in heads(bytes) {
            let position = segment.base + to_i64(usize::try_from(start).unwrap_or_default() + head);
            if is_sound(
                log,
                segment,
                position,
                bytes.get(head..).unwrap_or_default(),
                counts,
            )? {
                return Ok(Some(position));
            }
        }
        if got < buffer.len() || start + got as u64 >= length {
            break;
        }
        // A head may span two chunks.
        at = start + got as u64 - (HEAD - 1) as u64;
    }
    Ok(None)
}

/// Whether this is a valid record that counts.
fn is_sound(
    log: &CommitLog,
    segment: &Arc<Segment>,
    position: i64,
    bytes: &[u8],
    counts: &impl Fn(i64, i64) -> bool,
) -> Result<bool, StoreError> {
    let head = match bytes.first_chunk() {
        Some(head) => *head,
        None => head_at(log, segment, position)?,
    };
    let Some(claim) = Claim::read(log, position, &head).filter(|claim| counts(position, claim.store_ms))
    else {
        return Ok(false);
    };
    Ok(claim.fits(log, segment, position)?
        && matches!(LogReader::new(log, position, true).step()?, Step::Record(_)))
}

/// Offsets at which a record's length and magic number may be.
fn heads(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let last = bytes.len().saturating_sub(HEAD - 1);
    (0..last).filter(move |at| {
        bytes
            .get(at + 4..)
            .and_then(<[u8]>::first_chunk)
            .is_some_and(|magic| matches!(u32::from_be_bytes(*magic), MAGIC_V1 | MAGIC_V2))
    })
}
