//! Reads the log record by record, in large pieces, for recovery and for catching up with the key index.

use crate::error::StoreError;
use crate::format::{to_i64, to_u64, to_usize};
use crate::fs::{Context, File};
use crate::log::commit_log::CommitLog;
use crate::log::nul_records::{NulRecords, looks_torn};
use crate::log::segment::Segment;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::record::{Hop, PHYSICAL_OFFSET_AT, hop, no_record};
use std::sync::Arc;

const CHUNK: usize = 1 << 20;

/// Reads records from the files, regardless of how much `CommitLog` considers written: recovery does not know the end
/// yet.
#[derive(Debug)]
pub(crate) struct LogReader<'l> {
    log: &'l CommitLog,
    /// Position of the next record.
    position: i64,
    /// The current segment and its file, which is read to its end even if it is deleted meanwhile.
    segment: Option<(Arc<Segment>, Arc<dyn File>)>,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    buffer_at: i64,
    /// Where the reader ends: the start of a segment.
    limit: i64,
    check_crc: bool,
    /// How torn records are distinguished from whole ones; without it no record counts as torn.
    trust: Option<Trust<'l>>,
}

/// How torn records are recognized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trust<'l> {
    /// The part of the log that cannot be torn.
    pub(crate) durable: Durable,
    /// Whole records that look torn.
    pub(crate) notes: &'l NulRecords,
    /// From this position on, every whole record that looks torn was noted.
    pub(crate) notes_from: i64,
}

/// The part of the log that is known to be on disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Durable {
    /// The whole log, after a clean stop.
    All,
    /// The log before a position.
    Before(i64),
    /// Everything stored before a time, ms.
    OlderThan(i64),
}

impl Durable {
    /// Whether a record at a position with a store time belongs to this part.
    pub(crate) fn holds(self, position: i64, store_ms: i64) -> bool {
        match self {
            Self::All => true,
            Self::Before(end) => position < end,
            Self::OlderThan(end_ms) => store_ms < end_ms,
        }
    }
}

/// What is at the reader's position.
#[derive(Debug)]
pub(crate) enum Step<'b> {
    /// A whole, valid record.
    Record(Record<'b>),
    /// Nothing valid, with the reason if something is there.
    End(Option<String>),
}

impl<'l> LogReader<'l> {
    pub(crate) fn new(log: &'l CommitLog, position: i64, check_crc: bool) -> Self {
        Self {
            log,
            position,
            segment: None,
            buffer: Vec::new(),
            buffer_at: position,
            limit: i64::MAX,
            check_crc,
            trust: None,
        }
    }

    /// Makes the reader check for torn records.
    pub(crate) fn trust(mut self, trust: Trust<'l>) -> Self {
        self.trust = Some(trust);
        self
    }

    /// Makes the reader end at the start of a segment.
    pub(crate) fn until(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }

    pub(crate) fn position(&self) -> i64 {
        self.position
    }

    /// Reads the record at the position and moves past it; blank records are skipped.
    pub(crate) fn step(&mut self) -> Result<Step<'_>, StoreError> {
        let size = match self.record_size()? {
            Ok(size) => size,
            Err(reason) => return Ok(Step::End(reason)),
        };
        let position = self.position;
        if to_i64(size) > self.log.next_segment(position) - position {
            return Ok(Step::End(Some(format!(
                "a record of {size} bytes does not fit its file"
            ))));
        }
        if self.window(size)?.len() < size {
            return Ok(Step::End(Some("a record is cut off".to_owned())));
        }
        let check_crc = self.check_crc;
        let inside = self
            .segment
            .as_ref()
            .map_or(0, |(segment, _)| position - segment.base);
        let from = to_usize(position - self.buffer_at);
        let bytes = self.buffer.get(from..from + size).unwrap_or_default();
        let record = Record::decode(bytes).and_then(|record| {
            if check_crc {
                record.check_body()?;
            }
            Ok(record)
        });
        match record {
            Ok(record)
                if let Some(trust) = &self.trust
                    && !trust.durable.holds(position, record.store_timestamp_ms)
                    && looks_torn(&record, bytes, to_usize(inside))
                    && !trust.notes.knows(position, bytes)
                    && (position >= trust.notes_from || !is_followed(self.log, position + to_i64(size))?) =>
            {
                Ok(Step::End(Some("a sector of a record is missing".to_owned())))
            }
            Ok(record) if record.physical_offset == position && !record.topic.is_empty() => {
                self.position = position + to_i64(size);
                Ok(Step::Record(record))
            }
            Ok(record) => Ok(Step::End(Some(format!(
                "the record says that its position is {}",
                record.physical_offset
            )))),
            Err(error) => Ok(Step::End(Some(error.to_string()))),
        }
    }

    /// The size of the record at the position, after blank records; or why there is none, if that is known.
    fn record_size(&mut self) -> Result<Result<usize, Option<String>>, StoreError> {
        loop {
            if self.position >= self.limit || !self.enter_segment()? {
                return Ok(Err(None));
            }
            let head = self.window(8)?;
            match hop(head) {
                Hop::Record(size) => return Ok(Ok(size)),
                Hop::Blank(left) => {
                    let next = self.log.next_segment(self.position);
                    if self.position + to_i64(left) != next {
                        return Ok(Err(Some(format!(
                            "a blank record of {left} bytes does not end its file"
                        ))));
                    }
                    self.position = next;
                }
                Hop::End => {
                    let zero = head.iter().all(|byte| *byte == 0);
                    return Ok(Err((!zero).then(|| no_record(head))));
                }
            }
        }
    }

    /// Opens the segment of the position. False: there is none.
    fn enter_segment(&mut self) -> Result<bool, StoreError> {
        let inside = self.segment.as_ref().is_some_and(|(segment, _)| {
            (segment.base..segment.base + self.log.segment_bytes()).contains(&self.position)
        });
        if !inside {
            self.segment = None;
            if let Some(segment) = self.log.segment_at(self.position)
                && let Some(file) = self.log.file_if_there(&segment)?
            {
                self.segment = Some((segment, file));
            }
            self.buffer.clear();
        }
        Ok(self.segment.is_some())
    }

    /// At least `size` bytes at the position; fewer only at the end of the segment.
    fn window(&mut self, size: usize) -> Result<&[u8], StoreError> {
        let have = self.buffer_at + to_i64(self.buffer.len()) - self.position;
        if self.position < self.buffer_at || have < to_i64(size) {
            self.fill(size.max(CHUNK))?;
        }
        let from = to_usize(self.position - self.buffer_at);
        let to = (from + size).min(self.buffer.len());
        Ok(self.buffer.get(from..to).unwrap_or_default())
    }

    fn fill(&mut self, wanted: usize) -> Result<(), StoreError> {
        let Some((segment, file)) = &self.segment else {
            return Ok(());
        };
        let left = segment.base + self.log.segment_bytes() - self.position;
        let size = wanted.min(to_usize(left));
        self.buffer.resize(size, 0);
        self.buffer_at = self.position;
        let at = to_u64(self.position - segment.base);
        let got = file.read_at(&mut self.buffer, at).at("read", &segment.path)?;
        self.buffer.truncate(got);
        Ok(())
    }
}

/// Whether a record that names this position, or the end of its segment, is at a position: then the record before it
/// was written as a whole, unless the disk reordered writes.
fn is_followed(log: &CommitLog, position: i64) -> Result<bool, StoreError> {
    let Some(segment) = log.segment_at(position) else {
        return Ok(false);
    };
    let mut head = [0; PHYSICAL_OFFSET_AT + 8];
    let got = log
        .file(&segment)?
        .read_at(&mut head, to_u64(position - segment.base))
        .at("read", &segment.path)?;
    Ok(match hop(head.get(..got).unwrap_or_default()) {
        Hop::Record(_) => head.last_chunk() == Some(&position.to_be_bytes()),
        Hop::Blank(left) => position + to_i64(left) == log.next_segment(position),
        Hop::End => false,
    })
}

/// Position after a record.
pub(crate) fn end_of(record: &Record<'_>) -> i64 {
    record.physical_offset + to_i64(record.size)
}
