//! Pulls: the wanted units of a queue, then their records in one buffer (Apache `DefaultMessageStore.getMessage`).

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CqUnit, to_i64, to_usize};
use crate::fs::read_mode::ReadMode;
use crate::queue::consume_queue::ConsumeQueue;
use crate::queue::ext::is_address;
use crate::read::query::{Get, GetStatus, Got, TagFilter};
use crate::read::reader::Reader;
use bytes::Bytes;
use std::cell::RefCell;
use std::sync::atomic::Ordering;

/// Most units that a pull looks at when its filter lets nothing through (Apache `maxFilterMessageSize`, in units).
const MAX_SCANNED: i64 = 800 * 4;
/// Units read at once for a filter.
const SCAN: i64 = 800;

thread_local! {
    static UNITS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A pull under way.
struct Picked {
    units: Vec<CqUnit>,
    bytes: usize,
    next: i64,
}

impl Reader {
    /// Reads messages of a queue, from the disk if it must be.
    pub(crate) fn get(&self, request: &Get<'_>) -> Result<Got, StoreError> {
        self.get_by(&ReadMode::waiting(), request)
    }

    /// Reads messages of a queue unless that needs the disk.
    pub(crate) fn get_cached(&self, request: &Get<'_>) -> Result<Option<Got>, StoreError> {
        let mode = ReadMode::cached();
        let got = self.get_by(&mode, request);
        if mode.has_missed() {
            return Ok(None);
        }
        got.map(Some)
    }

    /// When something is missed that had to be in memory, what this returns has no meaning.
    fn get_by(&self, mode: &ReadMode, request: &Get<'_>) -> Result<Got, StoreError> {
        self.state.check_open()?;
        let mut got = Got {
            status: GetStatus::NoMatchedLogicQueue,
            next_offset: 0,
            min_offset: 0,
            max_offset: 0,
            body: Bytes::new(),
            count: 0,
            behind_bytes: 0,
        };
        let Some(queue) = self.queues.get(request.topic, request.queue_id) else {
            return Ok(got);
        };
        let (min, max) = (queue.min(), queue.end());
        got.min_offset = min;
        got.max_offset = max;
        (got.status, got.next_offset) = if max == 0 {
            (GetStatus::NoMessageInQueue, 0)
        } else if request.offset < min {
            (GetStatus::OffsetTooSmall, min)
        } else if request.offset == max {
            (GetStatus::OffsetOverflowOne, max)
        } else if request.offset > max {
            (GetStatus::OffsetOverflowBadly, max)
        } else {
            (GetStatus::NoMatchedMessage, request.offset)
        };
        if got.status != GetStatus::NoMatchedMessage {
            return Ok(got);
        }
        let note_damage = |error: &StoreError| {
            if matches!(error, StoreError::QueueMismatch { .. }) {
                self.queue_maintenance
                    .distrust_queues(&queue.topic, queue.id, error);
            }
        };
        let picked = self.pick(mode, &queue, request, max).inspect_err(note_damage)?;
        if mode.has_missed() {
            return Ok(got);
        }
        got.next_offset = picked.next;
        let Some(last) = picked.units.last() else {
            if picked.next == request.offset {
                got.status = GetStatus::OffsetFoundNull;
                got.next_offset = queue.next_file(request.offset).min(max);
            }
            return Ok(got);
        };
        got.behind_bytes = self.log.appended() - last.position;
        let body = self.read_records(mode, &picked.units).inspect_err(note_damage)?;
        if mode.has_missed() {
            return Ok(got);
        }
        if let Some(body) = body {
            got.status = GetStatus::Found;
            got.count = picked.units.len();
            self.got_messages.fetch_add(got.count as u64, Ordering::Relaxed);
            self.got_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
            got.body = body;
            return Ok(got);
        }
        // Retention was faster. What is still there must not be passed over.
        let start = self.log.start();
        if let Some(first) = picked.units.first()
            && picked.units.iter().all(|unit| unit.position >= start)
        {
            let error = StoreError::QueueMismatch {
                position: first.position,
                size: first.size,
            };
            note_damage(&error);
            return Err(error);
        }
        let live = queue.first_where(self.fs.as_ref(), request.offset, max, |unit| {
            Ok(!unit.is_filler() && unit.position >= start)
        })?;
        got.status = GetStatus::MessageWasRemoving;
        if live > request.offset {
            got.next_offset = live;
        }
        Ok(got)
    }

    /// Chooses the units to answer with.
    fn pick(
        &self,
        mode: &ReadMode,
        queue: &ConsumeQueue,
        request: &Get<'_>,
        max: i64,
    ) -> Result<Picked, StoreError> {
        let most = request.max_count.clamp(1, self.live.max_transfer_count());
        let most_bytes = request.max_bytes.min(self.live.max_transfer_bytes());
        let chunk = match request.tags {
            TagFilter::All => to_i64(most),
            TagFilter::Codes(_) => SCAN.max(to_i64(most)),
        };
        let (log_start, log_end) = (self.log.start(), self.log.appended());
        let mut picked = Picked {
            units: Vec::with_capacity(most.min(64)),
            bytes: 0,
            next: request.offset,
        };
        UNITS.with_borrow_mut(|bytes| {
            while picked.units.len() < most && picked.next < max && picked.next - request.offset < MAX_SCANNED
            {
                bytes.clear();
                let wanted = (picked.next, chunk.min(max - picked.next));
                queue.read_by(mode, self.fs.as_ref(), wanted, bytes)?;
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
            }
            Ok(picked)
        })
    }

    /// Asks the filter; one that knows only a place among the extended entries is looked up there.
    fn is_wanted(
        &self,
        mode: &ReadMode,
        queue: &ConsumeQueue,
        tags: &TagFilter<'_>,
        unit: CqUnit,
    ) -> Result<bool, StoreError> {
        if matches!(tags, TagFilter::Codes(_)) && is_address(unit.tags_code) {
            let code = self
                .extended
                .code(mode, self.fs.as_ref(), queue, unit.tags_code)?;
            return Ok(code.is_none_or(|code| tags.matches(code)));
        }
        Ok(tags.matches(unit.tags_code))
    }
}
