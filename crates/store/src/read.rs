//! The way out: pulls, single records, times, keys.

use crate::engine::Engine;
use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CqUnit, to_i64, to_usize};
use crate::options::FlushDiskType;
use crate::query::{Boundary, Found, Get, GetStatus, Got, KeyKind, KeyQuery, TagFilter};
use crate::queue::consume_queue::ConsumeQueue;
use crate::queue::ext::is_address;
use crate::read_buffers::ReadMode;
use crate::sync::lock;
use bytes::Bytes;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::properties::{KEY_SEPARATOR, names};
use pyrmq_remoting::message::record::{self, Hop, hop};
use std::cell::RefCell;
use std::sync::atomic::Ordering;

/// Most units that a pull looks at when its filter lets nothing through (Apache `maxFilterMessageSize`, in units).
const MAX_SCANNED: i64 = 800 * 4;
/// Units read at once for a filter.
const SCAN: i64 = 800;
/// Neighbours closer than this are read in one go and the gap thrown away.
const SMALL_GAP: i64 = 4096;
/// Records that a search by key looks at, if there are so many of that hash.
const MIN_SCANNED: usize = 1024;
/// Bytes of a record up to and including the store time, whatever its hosts.
const TIME_HEAD: usize = 76;

thread_local! {
    static UNITS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SPAN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A pull under way.
struct Picked {
    units: Vec<CqUnit>,
    bytes: usize,
    next: i64,
}

impl Engine {
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
        self.check_open()?;
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
                self.distrust_queues(&queue.topic, queue.id, error);
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

    /// Reads records into one buffer; `None` when the log has dropped one of them meanwhile.
    fn read_records(&self, mode: &ReadMode, units: &[CqUnit]) -> Result<Option<Bytes>, StoreError> {
        let total: i64 = units.iter().map(|unit| i64::from(unit.size)).sum();
        let mut body = self.buffers.take(to_usize(total));
        let mut place = body.as_mut();
        let mut left = units;
        while let Some(first) = left.first() {
            let (count, span_end, size) = self.run_of(left, first.position);
            let Some((now, rest)) = std::mem::take(&mut place).split_at_mut_checked(to_usize(size)) else {
                return Ok(None);
            };
            let run = left.get(..count).unwrap_or_default();
            let is_there = if span_end - first.position == size {
                self.log.read_by(mode, first.position, now)?
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
        self.check_open()?;
        let (start, end) = (self.log.start(), self.log.appended());
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

    /// How many units from the first on are read in one go: their number, where the last one ends, and their bytes.
    fn run_of(&self, units: &[CqUnit], start: i64) -> (usize, i64, i64) {
        let segment_end = self.log.next_segment(start);
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
        SPAN.with_borrow_mut(|span| {
            span.resize(to_usize(end - start), 0);
            if !self.log.read_by(mode, start, span)? {
                return Ok(false);
            }
            let mut place = place;
            for unit in units {
                let from = to_usize(unit.position - start);
                let size = to_usize(i64::from(unit.size));
                let Some(record) = span.get(from..from + size) else {
                    return Ok(false);
                };
                let Some((now, rest)) = std::mem::take(&mut place).split_at_mut_checked(size) else {
                    return Ok(false);
                };
                now.copy_from_slice(record);
                place = rest;
            }
            Ok(true)
        })
    }

    /// The record that begins at a position.
    pub(crate) fn record_at(&self, position: i64) -> Result<Option<Bytes>, StoreError> {
        self.check_open()?;
        if position < self.log.start() || position >= self.log.appended() {
            return Ok(None);
        }
        let room = self.log.appended().min(self.log.next_segment(position)) - position;
        let mut bytes = vec![0; to_usize(room.min(4096))];
        if !self.log.read(position, &mut bytes)? {
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
            if !self.log.read(position, &mut bytes)? {
                return Ok(None);
            }
        }
        bytes.truncate(size);
        let is_here = Record::decode(&bytes).is_ok_and(|record| record.physical_offset == position);
        Ok(is_here.then(|| Bytes::from(bytes)))
    }

    /// The record that begins at a position, if readers may see it: with `SYNC_FLUSH` what is not durable is not
    /// readable.
    pub(crate) fn readable_at(&self, position: i64) -> Result<Option<Bytes>, StoreError> {
        let is_sync = self.live.flush() == FlushDiskType::Sync;
        let readable = self.readable.load(Ordering::Acquire);
        let record = self.record_at(position)?;
        Ok(record.filter(|record| !is_sync || position + to_i64(record.len()) <= readable))
    }

    /// When the record of a unit was stored.
    fn time_of(&self, unit: CqUnit) -> Result<Option<i64>, StoreError> {
        let mut head = [0; TIME_HEAD];
        if unit.is_filler() || !unit.is_written() || !self.log.read(unit.position, &mut head)? {
            return Ok(None);
        }
        Ok(record::store_timestamp_of(&head))
    }

    fn unit_at(&self, topic: &str, queue_id: i32, index: i64) -> Result<Option<CqUnit>, StoreError> {
        let Some(queue) = self.queues.get(topic, queue_id) else {
            return Ok(None);
        };
        if index < queue.min() || index >= queue.end() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(CQ_UNIT_SIZE);
        queue.read(self.fs.as_ref(), index, 1, &mut bytes)?;
        Ok(CqUnit::from_bytes(&bytes))
    }

    /// When the message at an index was stored.
    pub(crate) fn store_time(
        &self,
        topic: &str,
        queue_id: i32,
        index: i64,
    ) -> Result<Option<i64>, StoreError> {
        match self.unit_at(topic, queue_id, index)? {
            Some(unit) => self.time_of(unit),
            None => Ok(None),
        }
    }

    /// The index that a time means.
    pub(crate) fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<i64, StoreError> {
        let Some(queue) = self.queues.get(topic, queue_id) else {
            return Ok(0);
        };
        let (min, max) = (queue.min(), queue.end());
        let first_behind = |limit: i64| {
            queue.first_where(self.fs.as_ref(), min, max, |unit| {
                // A record that is gone is older than all that are there.
                Ok(self.time_of(unit)?.is_some_and(|time| time >= limit))
            })
        };
        match boundary {
            Boundary::Lower => first_behind(timestamp_ms),
            Boundary::Upper => {
                let behind = first_behind(timestamp_ms.saturating_add(1))?;
                // Apache answers a time before everything with 0, one after everything with the end.
                Ok(if behind == min { 0 } else { behind - 1 })
            }
        }
    }

    /// Searches by key.
    pub(crate) fn query(&self, query: &KeyQuery<'_>) -> Result<Found, StoreError> {
        self.check_open()?;
        let Some(index) = &self.index else {
            return Ok(Found::default());
        };
        let is_whole = lock(&self.append).index_direct;
        if !self.log.failure.is_set() {
            self.note_failure("cannot fill the key index", self.index_round());
        }
        let most = query.max_count.clamp(1, self.live.max_query_count());
        // Other keys may have the hash.
        let positions = index.find(query, most.saturating_mul(4).max(MIN_SCANNED))?;
        let mut found = Found {
            index_last_update_ms: positions.last_update_ms,
            index_last_update_offset: positions.last_update_position,
            is_complete: is_whole && !positions.is_cut,
            ..Found::default()
        };
        let mut body = Vec::new();
        let mut discovered = std::collections::HashSet::new();
        for position in positions.positions {
            if found.count >= most || !discovered.insert(position) {
                continue;
            }
            let Some(bytes) = self.readable_at(position)? else {
                continue;
            };
            if Record::decode(&bytes).is_ok_and(|record| has_key(&record, query)) {
                body.extend_from_slice(&bytes);
                found.count += 1;
            }
        }
        found.body = Bytes::from(body);
        Ok(found)
    }
}

/// The index only knows hashes and whole seconds.
fn has_key(record: &Record<'_>, query: &KeyQuery<'_>) -> bool {
    let [unique, keys, tag] = record
        .properties
        .get_many([names::UNIQ_KEY, names::KEYS, names::TAGS]);
    let matches = match query.kind {
        KeyKind::Tag => tag == Some(query.key),
        KeyKind::Unique => unique == Some(query.key),
        KeyKind::Key => {
            unique == Some(query.key)
                || keys.is_some_and(|keys| keys.split(KEY_SEPARATOR).any(|key| key == query.key))
        }
    };
    matches
        && record.topic == query.topic
        && (query.begin_ms..=query.end_ms).contains(&record.store_timestamp_ms)
}

/// Every record must be what its queue says: a queue that is wrong must not send noise to a reader.
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
