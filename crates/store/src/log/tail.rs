//! The end of the log, where records are appended under the append lock.

use crate::checkpoint::Mark;
use crate::error::{StoreError, is_full};
use crate::format::{to_i64, to_u64, to_usize};
use crate::fs::{File, write_zeros};
use crate::log::commit_log::CommitLog;
use crate::log::segment::Segment;
use pyrmq_remoting::message::record;
use std::sync::Arc;

/// The end of the log; under the append lock.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Position of the next record.
    pub(crate) position: i64,
    /// Store time of the newest record, ms.
    pub(crate) last_store_ms: i64,
    /// The newest record, if it is known.
    pub(crate) last: Mark,
    /// The current segment and its file, which stays open while it is appended to.
    segment: Option<(Arc<Segment>, Arc<dyn File>)>,
    /// Position up to which zeros were written ahead.
    ahead: i64,
}

impl Tail {
    /// Continues at the end of the log.
    pub(crate) fn new(log: &CommitLog, last: Mark, last_store_ms: i64) -> Self {
        let position = log.appended();
        Self {
            position,
            last_store_ms,
            last,
            segment: None,
            ahead: 0,
        }
    }

    /// Makes room for `size` bytes and the blank record after them, in this segment or the next. If space is missing,
    /// the tail stays as it was or at the segment's end, and the next call tries again.
    pub(crate) fn make_room(&mut self, log: &CommitLog, size: usize) -> Result<(), StoreError> {
        if self.segment.is_none()
            && let Some(segment) = log.segment_at(self.position)
        {
            let file = log.file(&segment)?;
            self.segment = Some((segment, file));
        }
        if let Some((segment, file)) = &self.segment {
            let left = segment.base + log.segment_bytes - self.position;
            if to_i64(size + record::BLANK_SIZE) <= left {
                return Ok(());
            }
            if left > 0 {
                let blank = blank_record(left);
                let head = blank
                    .get(..to_usize(left.min(to_i64(record::BLANK_SIZE))))
                    .unwrap_or_default();
                log.write_in(segment, file.as_ref(), self.position, head)?;
            }
            self.position = segment.base + log.segment_bytes;
        }
        let segment = match log.segment_at(self.position) {
            Some(segment) => segment,
            None => log.add_segment(self.position)?,
        };
        let file = log.file(&segment)?;
        self.segment = Some((segment, file));
        Ok(())
    }

    /// Bytes of records that the segment can still hold.
    pub(crate) fn room(&self, log: &CommitLog) -> usize {
        let left = self
            .segment
            .as_ref()
            .map_or(0, |(segment, _)| segment.base + log.segment_bytes - self.position);
        to_usize(left).saturating_sub(record::BLANK_SIZE)
    }

    /// Whether more than half of the segment is used, so that the next one should be created.
    pub(crate) fn is_past_half(&self, log: &CommitLog) -> bool {
        self.segment
            .as_ref()
            .is_some_and(|(segment, _)| self.position - segment.base > log.segment_bytes / 2)
    }

    /// Writes records at the position, for which room was made.
    pub(crate) fn write(&mut self, log: &CommitLog, records: &[u8]) -> Result<(), StoreError> {
        let Some((segment, file)) = &self.segment else {
            return Err(StoreError::Closed);
        };
        log.write_in(segment, file.as_ref(), self.position, records)?;
        self.position += to_i64(records.len());
        log.set_appended(self.position);
        Ok(())
    }

    /// Writes `bytes` zeros after the records once these have reached the end of the previous zeros. Later fsyncs then
    /// find blocks that the file system knows; otherwise it would record new blocks with each fsync, which costs one
    /// more write.
    pub(crate) fn write_ahead(&mut self, log: &CommitLog, bytes: u64) {
        if self.position < self.ahead || bytes == 0 {
            return;
        }
        let Some((segment, file)) = &self.segment else {
            return;
        };
        let segment_end = segment.base + log.segment_bytes;
        self.ahead = self.position.saturating_add_unsigned(bytes).min(segment_end);
        let place = |position: i64| to_u64(position - segment.base);
        let write = |zeros: &[u8], at| file.write_all_at(zeros, at);
        if let Err(error) = write_zeros(place(self.position), place(self.ahead), write) {
            // Nothing is lost: a full or broken disk shows at the next record.
            tracing::debug!(%error, path = %segment.path.display(), "no zeros ahead in this segment");
            self.ahead = segment_end;
        }
    }
}

impl CommitLog {
    /// Writes after the log's end. A full disk leaves zero bytes there, and the write may be retried. Any other failure
    /// turns the log read-only: it is unknown what reached the disk, so nothing may be written after it.
    fn write_in(
        &self,
        segment: &Segment,
        file: &dyn File,
        position: i64,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let from = to_u64(position - segment.base);
        let Err(error) = file.write_all_at(bytes, from) else {
            return Ok(());
        };
        // Durably: otherwise a power loss could mix these bytes with those written here next.
        let clear = || {
            file.clear(from, from + bytes.len() as u64)?;
            file.sync()
        };
        let cleared = is_full(error.kind()) && clear().is_ok();
        let error = StoreError::io("write", &segment.path, &error);
        if !cleared {
            self.failure.set(&error);
        }
        Err(error)
    }
}

fn blank_record(left: i64) -> [u8; record::BLANK_SIZE] {
    let [l0, l1, l2, l3] = i32::try_from(left).unwrap_or(i32::MAX).to_be_bytes();
    let [m0, m1, m2, m3] = record::MAGIC_BLANK.to_be_bytes();
    [l0, l1, l2, l3, m0, m1, m2, m3]
}
