//! Pulls: reads the requested units of a queue, then their records into one buffer (Apache
//! `DefaultMessageStore.getMessage`).

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CqUnit, to_i64, to_usize};
use crate::fs::read_mode::ReadMode;
use crate::queue::consume_queue::ConsumeQueue;
use crate::queue::ext::is_address;
use crate::read::query::{GetMessage, GetMessageResult, GetStatus, QueueEntry, TagFilter};
use crate::read::reader::Reader;
use bytes::Bytes;
use std::sync::atomic::Ordering;

/// Maximum number of units that a pull checks when its filter matches nothing (Apache `maxFilterMessageSize`, in
/// units).
pub(super) const MAX_SCANNED: i64 = 800 * 4;
/// Number of units read at once for a filter.
const SCAN: i64 = 800;
/// Queue offsets that the messages of an answer may span for each one requested. Java consumers request 32 and pause
/// for 50 ms while what they hold of a queue spans more than 2,000 (`consumeConcurrentlyMaxSpan`); Apache's brokers
/// look at 800.
const SPAN_OF_EACH: i64 = 25;

/// How far the messages of an answer to a filtered pull may be apart.
pub(super) fn max_span(max_count: usize) -> i64 {
    to_i64(max_count)
        .saturating_mul(SPAN_OF_EACH)
        .clamp(SCAN, MAX_SCANNED)
}

/// The units for the answer to a pull.
pub(super) struct Picked {
    pub(super) units: Vec<CqUnit>,
    bytes: usize,
    pub(super) next: i64,
}

impl Reader {
    /// Reads messages of a queue, from the disk if necessary.
    pub(crate) fn get(&self, request: &GetMessage<'_>) -> Result<GetMessageResult, StoreError> {
        self.get_by(&ReadMode::waiting(), request)
    }

    /// Reads messages of a queue unless that needs the disk.
    pub(crate) fn get_cached(
        &self,
        request: &GetMessage<'_>,
    ) -> Result<Option<GetMessageResult>, StoreError> {
        let mode = ReadMode::cached();
        let got = self.get_by(&mode, request);
        if mode.has_missed() {
            return Ok(None);
        }
        got.map(Some)
    }

    /// The answer is meaningless once `mode` has missed something.
    fn get_by(&self, mode: &ReadMode, request: &GetMessage<'_>) -> Result<GetMessageResult, StoreError> {
        self.shared.state.check_open()?;
        let Some(queue) = self.shared.queues.get(request.topic, request.queue_id) else {
            return Ok(GetMessageResult::without_body(
                GetStatus::NoMatchedLogicQueue,
                0,
                (0, 0),
            ));
        };
        let mut got = answer_by_range(request.offset, (queue.min(), queue.end()));
        if got.status != GetStatus::NoMatchedMessage {
            return Ok(got);
        }
        self.read_from(mode, &queue, request, &mut got)
            .inspect_err(|error| {
                if let StoreError::QueueMismatch { position, size } = error {
                    self.queue_maintenance.mismatches.record(&queue, *position, *size);
                }
            })?;
        Ok(got)
    }

    /// Fills the answer to a pull inside the queue's range.
    fn read_from(
        &self,
        mode: &ReadMode,
        queue: &ConsumeQueue,
        request: &GetMessage<'_>,
        got: &mut GetMessageResult,
    ) -> Result<(), StoreError> {
        if let TagFilter::Records(filter) = request.tags {
            return self.scan_records(mode, queue, request, filter, got);
        }
        let picked = self.pick(mode, queue, request, got.max_offset)?;
        if mode.has_missed() {
            return Ok(());
        }
        got.next_offset = picked.next;
        let Some(last) = picked.units.last() else {
            if picked.next == request.offset {
                got.status = GetStatus::OffsetFoundNull;
                got.next_offset = queue.next_file(request.offset).min(got.max_offset);
            }
            return Ok(());
        };
        got.behind_bytes = self.shared.log.appended() - last.position;
        let body = self.read_records(mode, &picked.units)?;
        if mode.has_missed() {
            return Ok(());
        }
        let Some(body) = body else {
            return self.skip_deleted(queue, request.offset, &picked.units, got);
        };
        self.found(got, picked.units.len(), body);
        Ok(())
    }

    /// Completes and counts an answer with messages.
    pub(super) fn found(&self, got: &mut GetMessageResult, count: usize, body: Bytes) {
        got.status = GetStatus::Found;
        got.count = count;
        self.got_messages.fetch_add(count as u64, Ordering::Relaxed);
        self.got_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        got.body = body;
    }

    /// Retention deleted some of the records meanwhile: the reader continues at the first remaining one.
    pub(super) fn skip_deleted(
        &self,
        queue: &ConsumeQueue,
        offset: i64,
        units: &[CqUnit],
        got: &mut GetMessageResult,
    ) -> Result<(), StoreError> {
        let start = self.shared.log.start();
        if let Some(first) = units.first()
            && units.iter().all(|unit| unit.position >= start)
        {
            return Err(StoreError::QueueMismatch {
                position: first.position,
                size: first.size,
            });
        }
        let live = queue.first_where(self.shared.fs.as_ref(), offset, got.max_offset, |unit| {
            Ok(unit.position >= start)
        })?;
        got.status = GetStatus::MessageWasRemoving;
        if live > offset {
            got.next_offset = live;
        }
        Ok(())
    }

    /// The units of a queue from an index on.
    pub(crate) fn queue_entries(
        &self,
        topic: &str,
        queue_id: i32,
        index: i64,
        count: i64,
    ) -> Result<Option<Vec<QueueEntry>>, StoreError> {
        self.shared.state.check_open()?;
        let Some(queue) = self.shared.queues.get(topic, queue_id) else {
            return Ok(None);
        };
        let count = count.min(queue.end() - index);
        if index < queue.min() || count <= 0 {
            return Ok(Some(Vec::new()));
        }
        let mut bytes = Vec::new();
        queue.read_by(
            &ReadMode::waiting(),
            self.shared.fs.as_ref(),
            (index, count),
            &mut bytes,
        )?;
        let units = bytes.chunks_exact(CQ_UNIT_SIZE).filter_map(CqUnit::from_bytes);
        let entry = |unit: CqUnit| QueueEntry {
            position: unit.position,
            size: unit.size,
            tags_code: unit.tags_code,
        };
        Ok(Some(units.map(entry).collect()))
    }

    /// Chooses the units for the answer.
    pub(super) fn pick(
        &self,
        mode: &ReadMode,
        queue: &ConsumeQueue,
        request: &GetMessage<'_>,
        max: i64,
    ) -> Result<Picked, StoreError> {
        let most = request.max_count.clamp(1, self.shared.live.max_transfer_count());
        let most_bytes = request.max_bytes.min(self.shared.live.max_transfer_bytes());
        let chunk = match request.tags {
            TagFilter::All | TagFilter::Records(_) => to_i64(most),
            TagFilter::Codes(_) => SCAN.max(to_i64(most)),
        };
        let (log_start, log_end) = (self.shared.log.start(), self.shared.log.appended());
        let mut picked = Picked {
            units: Vec::with_capacity(most.min(64)),
            bytes: 0,
            next: request.offset,
        };
        let mut bytes = Vec::new();
        let mut end = request.offset.saturating_add(MAX_SCANNED);
        while picked.units.len() < most && picked.next < max.min(end) {
            let (before, is_first) = (picked.next, picked.units.is_empty());
            bytes.clear();
            let wanted = (picked.next, chunk.min(max - picked.next));
            queue.read_by(mode, self.shared.fs.as_ref(), wanted, &mut bytes)?;
            if bytes.len() < CQ_UNIT_SIZE {
                break;
            }
            for unit in bytes.chunks_exact(CQ_UNIT_SIZE).filter_map(CqUnit::from_bytes) {
                let size = to_usize(i64::from(unit.size));
                if !unit.is_written() || unit.end() > log_end {
                    return Err(StoreError::QueueMismatch {
                        position: unit.position,
                        size: unit.size,
                    });
                }
                let wanted = !unit.is_filler()
                    && unit.position >= log_start
                    && self.is_wanted(mode, queue, &request.tags, unit)?;
                if wanted {
                    let is_full = picked.units.len() >= most || picked.bytes + size > most_bytes;
                    if is_full && !picked.units.is_empty() {
                        return Ok(picked);
                    }
                    picked.units.push(unit);
                    picked.bytes += size;
                }
                picked.next += 1;
            }
            if is_first && !picked.units.is_empty() {
                end = end.min(before.saturating_add(max_span(request.max_count)));
            }
        }
        Ok(picked)
    }

    /// Applies the filter; a code that is an address is looked up in the extended entries.
    fn is_wanted(
        &self,
        mode: &ReadMode,
        queue: &ConsumeQueue,
        tags: &TagFilter<'_>,
        unit: CqUnit,
    ) -> Result<bool, StoreError> {
        if matches!(tags, TagFilter::Codes(_)) && is_address(unit.tags_code) {
            let code = self
                .shared
                .extended
                .code(mode, self.shared.fs.as_ref(), queue, unit.tags_code)?;
            return Ok(code.is_none_or(|code| tags.matches(code)));
        }
        Ok(tags.matches(unit.tags_code))
    }
}

/// The part of a pull's answer that follows from the queue's range: [`GetStatus::NoMatchedMessage`] if the offset is
/// inside.
fn answer_by_range(offset: i64, (min, max): (i64, i64)) -> GetMessageResult {
    let (status, next_offset) = if max == 0 {
        (GetStatus::NoMessageInQueue, 0)
    } else if offset < min {
        (GetStatus::OffsetTooSmall, min)
    } else if offset == max {
        (GetStatus::OffsetOverflowOne, max)
    } else if offset > max {
        (GetStatus::OffsetOverflowBadly, max)
    } else {
        (GetStatus::NoMatchedMessage, offset)
    };
    GetMessageResult::without_body(status, next_offset, (min, max))
}
