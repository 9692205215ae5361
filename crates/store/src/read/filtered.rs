//! Pulls with a filter on records (SQL92): records are read in chunks, from which the filter chooses.
//!
//! Chunks begin small, since most pulls with a filter that matches often need no more, and double while little matches.

use crate::error::StoreError;
use crate::format::{CqUnit, to_usize};
use crate::fs::read_mode::ReadMode;
use crate::live::Live;
use crate::queue::consume_queue::ConsumeQueue;
use crate::read::pull::{MAX_SCANNED, max_span};
use crate::read::query::{GetMessage, GetMessageResult, GetStatus, RecordFilter, TagFilter};
use crate::read::reader::Reader;
use bytes::Bytes;
use pyrmq_remoting::message::Record;

/// Maximum bytes of records that one pull reads when its filter matches nothing.
const MAX_SCANNED_BYTES: usize = 8 << 20;
/// Number of records in the largest chunk.
const MAX_CHUNK: usize = 512;
/// Bytes of a chunk, unless a single record is larger.
const CHUNK_BYTES: usize = 256 << 10;

/// The messages chosen so far.
struct Chosen {
    body: Vec<u8>,
    count: usize,
    most: usize,
    most_bytes: usize,
}

impl Chosen {
    fn none(request: &GetMessage<'_>, live: &Live) -> Self {
        Self {
            body: Vec::new(),
            count: 0,
            most: request.max_count.clamp(1, live.max_transfer_count()),
            most_bytes: request.max_bytes.min(live.max_transfer_bytes()),
        }
    }

    /// Adds a record. False: it does not fit into the answer.
    fn add(&mut self, record: &[u8]) -> bool {
        let is_full = self.count >= self.most || self.body.len() + record.len() > self.most_bytes;
        if is_full && self.count > 0 {
            return false;
        }
        self.body.extend_from_slice(record);
        self.count += 1;
        true
    }
}

impl Reader {
    /// Fills the answer to a pull with the messages that a filter on records chooses.
    pub(super) fn scan_records(
        &self,
        mode: &ReadMode,
        queue: &ConsumeQueue,
        request: &GetMessage<'_>,
        filter: &dyn RecordFilter,
        got: &mut GetMessageResult,
    ) -> Result<(), StoreError> {
        let max = got.max_offset;
        let mut chosen = Chosen::none(request, &self.shared.live);
        let mut next = request.offset;
        let mut chunk = chosen.most.min(MAX_CHUNK);
        let mut scanned_bytes = 0;
        let mut end = request.offset.saturating_add(MAX_SCANNED);
        while chosen.count < chosen.most && next < max.min(end) && scanned_bytes < MAX_SCANNED_BYTES {
            let left = usize::try_from(end - next).unwrap_or(MAX_CHUNK);
            let part = next_chunk(request, next, chunk.min(left));
            chunk = (chunk * 2).min(MAX_CHUNK);
            let (before, is_first) = (next, chosen.count == 0);
            let picked = self.pick(mode, queue, &part, max)?;
            let Some(last) = picked.units.last() else {
                if picked.next == next {
                    break;
                }
                next = picked.next;
                continue;
            };
            let records = self.read_records(mode, &picked.units)?;
            if mode.has_missed() {
                return Ok(());
            }
            let Some(records) = records else {
                if chosen.count > 0 {
                    break;
                }
                got.next_offset = next;
                return self.skip_deleted(queue, request.offset, &picked.units, got);
            };
            scanned_bytes += records.len();
            got.behind_bytes = self.shared.log.appended() - last.position;
            next = picked.next;
            if let Some(left_out) = choose(&picked.units, &records, filter, &mut chosen) {
                next = left_out;
                break;
            }
            if is_first && chosen.count > 0 {
                end = end.min(before.saturating_add(max_span(request.max_count)));
            }
        }
        got.next_offset = next;
        if chosen.count > 0 {
            self.found(got, chosen.count, Bytes::from(chosen.body));
        } else if next == request.offset && !mode.has_missed() {
            got.status = GetStatus::OffsetFoundNull;
            got.next_offset = queue.next_file(request.offset).min(max);
        }
        Ok(())
    }
}

/// The read of the next records for a pull.
fn next_chunk<'a>(request: &GetMessage<'a>, offset: i64, max_count: usize) -> GetMessage<'a> {
    GetMessage {
        offset,
        max_count,
        max_bytes: CHUNK_BYTES,
        tags: TagFilter::All,
        ..*request
    }
}

/// Adds the matching records. Returns the queue offset of the first that matches but does not fit.
fn choose(units: &[CqUnit], records: &[u8], filter: &dyn RecordFilter, chosen: &mut Chosen) -> Option<i64> {
    let mut left = records;
    for unit in units {
        let (record, rest) = left.split_at_checked(to_usize(i64::from(unit.size)))?;
        if filter.matches(record) && !chosen.add(record) {
            // It was decoded to be matched.
            return Record::decode(record).ok().map(|record| record.queue_offset);
        }
        left = rest;
    }
    None
}
