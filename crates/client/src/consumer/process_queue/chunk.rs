//! The records of one answer, as received.

use crate::consumer::process_queue::QueueKey;
use crate::session::membership::Subscription;
use bytes::Bytes;
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::record::{self, Hop, Record};
use std::sync::Arc;

/// Bytes that an answer keeps in addition to its records and their spans: its head, if its records stay in the buffer
/// of its read, and the chunk.
pub(super) const HEAD_BYTES: usize = 512;

/// Where one record is in a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    start: u32,
    end: u32,
    /// The record's queue offset.
    pub offset: i64,
}

impl Span {
    pub(super) fn len(&self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }
}

/// The records of one answer. They stay encoded: a reader of a record decodes it.
#[derive(Debug)]
pub struct Chunk {
    /// The queue of these records.
    pub queue: Arc<QueueKey>,
    /// The offset of the next pull of that queue.
    pub next_offset: i64,
    body: Bytes,
    pub(super) spans: Vec<Span>,
}

impl Chunk {
    /// Finds the records in an answer's body; those with other tags are left out.
    pub fn new(
        queue: Arc<QueueKey>,
        body: Bytes,
        next_offset: i64,
        subscription: &Subscription,
    ) -> Result<Self, WireError> {
        let tags = subscription.tags();
        let mut spans = Vec::with_capacity(estimated_records(&body));
        let mut at = 0;
        while let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) {
            let Hop::Record(size) = record::hop(rest) else {
                return Err(cut(rest.len()));
            };
            let bytes = rest.get(..size).ok_or_else(|| cut(rest.len()))?;
            let offset = queue_offset(bytes);
            if tags.is_empty() || is_wanted(bytes, &tags)? {
                spans.push(Span {
                    start: u32::try_from(at).unwrap_or(u32::MAX),
                    end: u32::try_from(at + size).unwrap_or(u32::MAX),
                    offset,
                });
            }
            at += size;
        }
        spans.shrink_to_fit();
        Ok(Self {
            queue,
            next_offset,
            body,
            spans,
        })
    }

    /// A copy of the records `first` to `end - 1`, which does not keep their answer alive.
    pub(super) fn copy_of(&self, first: usize, end: usize) -> Self {
        let wanted = self.spans.get(first..end).unwrap_or_default();
        let mut body = Vec::with_capacity(wanted.iter().map(Span::len).sum());
        let mut spans = Vec::with_capacity(wanted.len());
        for (index, span) in (first..).zip(wanted) {
            let start = u32::try_from(body.len()).unwrap_or(u32::MAX);
            body.extend_from_slice(self.record_bytes(index).unwrap_or_default());
            let end = u32::try_from(body.len()).unwrap_or(u32::MAX);
            let offset = span.offset;
            spans.push(Span { start, end, offset });
        }
        Self {
            queue: self.queue.clone(),
            next_offset: self.next_offset,
            body: body.into(),
            spans,
        }
    }

    /// Records in it.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True without any record.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of memory that it keeps: its records, and what is known about each.
    pub fn bytes(&self) -> usize {
        self.body.len() + self.spans.capacity() * size_of::<Span>() + HEAD_BYTES
    }

    /// Bytes of its records.
    pub(super) fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// One record's bytes.
    pub fn record_bytes(&self, index: usize) -> Option<&[u8]> {
        let span = self.spans.get(index)?;
        self.body.get(span.start as usize..span.end as usize)
    }

    /// One record, decoded.
    pub fn record(&self, index: usize) -> Option<Result<Record<'_>, WireError>> {
        self.record_bytes(index).map(Record::decode)
    }

    /// One record's queue offset.
    pub fn offset(&self, index: usize) -> Option<i64> {
        self.spans.get(index).map(|span| span.offset)
    }
}

/// The number of records if all are as long as the first.
fn estimated_records(body: &[u8]) -> usize {
    match record::hop(body) {
        Hop::Record(size) => body.len() / size.max(1),
        _ => 0,
    }
}

fn cut(left: usize) -> WireError {
    WireError::Truncated {
        what: "a pulled record",
        needed: record::FIXED_V4,
        left,
    }
}

fn queue_offset(bytes: &[u8]) -> i64 {
    let field = bytes
        .get(record::QUEUE_OFFSET_AT..)
        .and_then(|rest| rest.first_chunk::<8>());
    field.map_or(-1, |field| i64::from_be_bytes(*field))
}

fn is_wanted(bytes: &[u8], tags: &[&str]) -> Result<bool, WireError> {
    let record = Record::decode(bytes)?;
    let tag = record.properties.get(names::TAGS).unwrap_or_default();
    Ok(tags.contains(&tag))
}
