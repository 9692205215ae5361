//! Records by position: those of a pull into one buffer, and single ones.

use crate::error::StoreError;
use crate::format::{CqUnit, to_i64, to_usize};
use crate::fs::read_mode::ReadMode;
use crate::options::FlushDiskType;
use crate::read::reader::Reader;
use bytes::Bytes;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::record::{Hop, hop};
use std::sync::atomic::Ordering;

/// Neighbours with smaller gaps are read at once, and the gap is discarded.
const SMALL_GAP: i64 = 4096;

impl Reader {
    /// Reads records into one buffer; `None` if the log has dropped one of them meanwhile.
    pub(super) fn read_records(
        &self,
        mode: &ReadMode,
        units: &[CqUnit],
    ) -> Result<Option<Bytes>, StoreError> {
        let total: i64 = units.iter().map(|unit| i64::from(unit.size)).sum();
        let mut body = self.buffers.acquire(to_usize(total));
        let mut place = body.as_mut();
        let mut left = units;
        while let Some(first) = left.first() {
            let (count, span_end, size) = self.run_of(left, first.position);
            let Some((now, rest)) = std::mem::take(&mut place).split_at_mut_checked(to_usize(size)) else {
                return Ok(None);
            };
            let run = left.get(..count).unwrap_or_default();
            let is_there = if span_end - first.position == size {
                self.shared.log.read_by(mode, first.position, now)?
            } else {
                self.read_span(mode, run, (first.position, span_end), now)?
            };
            if !is_there {
                return Ok(None);
            }
            check_records(run, now)?;
            place = rest;
            left = left.get(count..).unwrap_or_default();
        }
        Ok(Some(body.freeze()))
    }

    /// The records at these positions.
    pub(crate) fn records_at(&self, places: &[(i64, i32)]) -> Result<Option<Bytes>, StoreError> {
        self.shared.state.check_open()?;
        let (start, end) = (self.shared.log.start(), self.shared.log.appended());
        let units: Vec<CqUnit> = places
            .iter()
            .map(|(position, size)| CqUnit {
                position: *position,
                size: *size,
                tags_code: 0,
            })
            .collect();
        let are_there = units
            .iter()
            .all(|unit| unit.is_written() && unit.position >= start && unit.end() <= end);
        if !are_there {
            return Ok(None);
        }
        match self.read_records(&ReadMode::waiting(), &units) {
            Err(StoreError::QueueMismatch { .. }) => Ok(None),
            done => done,
        }
    }

    /// The units from the first on that are read at once: their number, where the last one ends, and their bytes.
    fn run_of(&self, units: &[CqUnit], start: i64) -> (usize, i64, i64) {
        let segment_end = self.shared.log.next_segment(start);
        let (mut count, mut end, mut size) = (0, start, 0);
        for unit in units {
            let gap = unit.position - end;
            if count > 0 && (!(0..=SMALL_GAP).contains(&gap) || unit.end() > segment_end) {
                break;
            }
            count += 1;
            end = unit.end();
            size += i64::from(unit.size);
        }
        (count, end, size)
    }

    /// Reads a span with gaps and copies the records out of it.
    fn read_span(
        &self,
        mode: &ReadMode,
        units: &[CqUnit],
        (start, end): (i64, i64),
        place: &mut [u8],
    ) -> Result<bool, StoreError> {
        let mut span = self.buffers.acquire(to_usize(end - start));
        if !self.shared.log.read_by(mode, start, span.as_mut())? {
            return Ok(false);
        }
        let mut place = place;
        for unit in units {
            let from = to_usize(unit.position - start);
            let size = to_usize(i64::from(unit.size));
            let Some(record) = span.as_ref().get(from..from + size) else {
                return Ok(false);
            };
            let Some((now, rest)) = std::mem::take(&mut place).split_at_mut_checked(size) else {
                return Ok(false);
            };
            now.copy_from_slice(record);
            place = rest;
        }
        Ok(true)
    }

    /// The record that begins at a position.
    pub(crate) fn record_at(&self, position: i64) -> Result<Option<Bytes>, StoreError> {
        self.shared.state.check_open()?;
        if position < self.shared.log.start() || position >= self.shared.log.appended() {
            return Ok(None);
        }
        let room = self
            .shared
            .log
            .appended()
            .min(self.shared.log.next_segment(position))
            - position;
        let mut bytes = vec![0; to_usize(room.min(4096))];
        if !self.shared.log.read(position, &mut bytes)? {
            return Ok(None);
        }
        let Hop::Record(size) = hop(&bytes) else {
            return Ok(None);
        };
        if to_i64(size) > room {
            return Ok(None);
        }
        if size > bytes.len() {
            bytes.resize(size, 0);
            if !self.shared.log.read(position, &mut bytes)? {
                return Ok(None);
            }
        }
        bytes.truncate(size);
        let is_here = Record::decode(&bytes).is_ok_and(|record| record.physical_offset == position);
        Ok(is_here.then(|| Bytes::from(bytes)))
    }

    /// The record that begins at a position, if readers may see it: with `SYNC_FLUSH`, only durable records are
    /// readable.
    pub(crate) fn readable_at(&self, position: i64) -> Result<Option<Bytes>, StoreError> {
        let is_sync = self.shared.live.flush() == FlushDiskType::Sync;
        let readable = self.shared.state.readable.load(Ordering::Acquire);
        let record = self.record_at(position)?;
        Ok(record.filter(|record| !is_sync || position + to_i64(record.len()) <= readable))
    }
}

/// Checks that every record matches its queue entry, since a wrong queue must not send garbage to a reader.
fn check_records(units: &[CqUnit], bytes: &[u8]) -> Result<(), StoreError> {
    let mut left = bytes;
    for unit in units {
        let size = to_usize(i64::from(unit.size));
        if hop(left) != Hop::Record(size) {
            return Err(StoreError::QueueMismatch {
                position: unit.position,
                size: unit.size,
            });
        }
        left = left.get(size..).unwrap_or_default();
    }
    Ok(())
}
