//! The messages that a pop has taken, on their way into the response.

use crate::message::properties::{self, names};
use crate::pop::pop_check_point::Taken;
use bytes::Bytes;
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::receipt::PopSource;
use pyrmq_remoting::message::{NewRecord, ReceiptHandle, Record};
use std::fmt::Write;

/// What a pop has so far.
#[derive(Default)]
pub(super) struct PopResult {
    pub(super) parts: Vec<Bytes>,
    pub(super) count: usize,
    pub(super) rest: i64,
    pub(super) start_offsets: String,
    pub(super) offsets: String,
    pub(super) order_counts: String,
    /// When a closed queue of an ordered group opens, or one that another pop has is tried again; the first of them.
    pub(super) opens_at: Option<i64>,
    /// Another pop has had a queue for too long.
    pub(super) is_incomplete: bool,
    /// The messages of a queue are not in memory, and the pass may not wait for the disk.
    pub(super) needs_disk: bool,
}

impl PopResult {
    pub(super) fn add(&mut self, source: PopSource, queue_id: i32, start_offset: i64, offsets: &[i64]) {
        let source = source.as_str();
        for text in [&mut self.start_offsets, &mut self.offsets] {
            if !text.is_empty() {
                text.push(';');
            }
        }
        // Writing into a String cannot fail.
        write!(self.start_offsets, "{source} {queue_id} {start_offset}").unwrap_or_default();
        write!(self.offsets, "{source} {queue_id} ").unwrap_or_default();
        for (at, offset) in offsets.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(self.offsets, "{comma}{offset}").unwrap_or_default();
        }
        self.count += offsets.len();
    }

    /// All records back to back.
    pub(super) fn into_body(self) -> Option<Bytes> {
        match <[Bytes; 1]>::try_from(self.parts) {
            Ok([only]) => Some(only),
            Err(parts) if parts.is_empty() => None,
            Err(parts) => Some(parts.concat().into()),
        }
    }
}

/// Records of a retry topic as messages of the topic that was requested; a handle says where they lie. A message whose
/// properties leave no room for the handle keeps the name of the retry topic.
pub(super) fn as_original(
    topic: &str,
    taken: &Taken<'_>,
    revive_queue_id: i32,
    source: PopSource,
    records: &[Record<'_>],
) -> Result<Bytes, WireError> {
    let mut out = Vec::new();
    for record in records {
        let handle = ReceiptHandle {
            start_offset: taken.start_offset,
            pop_time: taken.pop_time,
            invisible_time: taken.invisible_time,
            revive_queue_id,
            source,
            broker_name: taken.broker_name,
            queue_id: record.queue_id,
            offset: Some(record.queue_offset),
        };
        let old = record.properties.as_str()?;
        let mut text = properties::copy(old, 96, |name| name == names::POP_CK);
        properties::append(&mut text, names::POP_CK, &handle.to_string());
        let mut again = NewRecord {
            topic,
            queue_id: record.queue_id,
            flag: record.flag,
            queue_offset: record.queue_offset,
            physical_offset: record.physical_offset,
            sys_flag: record.sys_flag,
            born_timestamp_ms: record.born_timestamp_ms,
            born_host: record.born_host,
            store_timestamp_ms: record.store_timestamp_ms,
            store_host: record.store_host,
            reconsume_times: record.reconsume_times,
            // It says which message the record is a copy of, which is the broker's own business.
            prepared_transaction_offset: 0,
            body: record.body,
            properties: text.as_bytes(),
        };
        if again.encode(&mut out).is_err() {
            // Its properties leave no room for the handle. Clients make the handle themselves, and tell by the name of
            // the topic where the message lies.
            (again.topic, again.properties) = (record.topic, old.as_bytes());
            again.encode(&mut out)?;
        }
    }
    Ok(out.into())
}
