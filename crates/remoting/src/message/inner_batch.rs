//! Splits records that contain a batch of messages (Apache `MessageDecoder.decodeMessage`, `PullAPIWrapper`).
//!
//! A batch topic (`queue.type=BatchCQ`, Apache's brokers from 5.0 on) stores a batch as one record. Its queue offset is
//! that of its first message; the other messages have the following ones. The result is ordinary records: topic, queue,
//! hosts, times and position in the log come from the batch; flag, body and properties from the message.

use crate::WireError;
use crate::message::compress::{self, Codec};
use crate::message::record::{self, Hop, Record};
use crate::message::{NewRecord, batch, sys_flag};
use bytes::Bytes;

/// The flags of a record to be split: Apache's readers check both.
const WRAPPED: i32 = sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP;

/// Maximum size of a split response: each small message gets a long head.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// The records of a response with its batches split. Messages of a batch before offset `from` are omitted, since a
/// broker returns whole batches. A response without a batch is returned unchanged.
pub fn unwrapped(body: Bytes, from: i64) -> Result<Bytes, WireError> {
    if !holds_batches(&body) {
        return Ok(body);
    }
    let mut out = Vec::with_capacity(body.len().saturating_mul(2).min(MAX_BYTES));
    let mut rest: &[u8] = &body;
    while !rest.is_empty() {
        let record = Record::decode(rest)?;
        let (own, after) = rest.split_at_checked(record.size).unwrap_or((rest, &[]));
        if record.sys_flag & WRAPPED == WRAPPED {
            split(&record, from, &mut out)?;
        } else {
            out.extend_from_slice(own);
        }
        rest = after;
    }
    Ok(out.into())
}

fn holds_batches(mut rest: &[u8]) -> bool {
    while let Hop::Record(size) = record::hop(rest) {
        if record::flags_of(rest).is_some_and(|flags| flags & WRAPPED == WRAPPED) {
            return true;
        }
        rest = rest.get(size..).unwrap_or_default();
    }
    false
}

fn split(whole: &Record<'_>, from: i64, out: &mut Vec<u8>) -> Result<(), WireError> {
    let unpacked = match Codec::of(whole.sys_flag)? {
        Some(codec) => Some(compress::decompress(codec, whole.body, MAX_BYTES)?),
        None => None,
    };
    let items = batch::items(unpacked.as_deref().unwrap_or(whole.body));
    for (queue_offset, item) in (whole.queue_offset..).zip(items) {
        let item = item?;
        if queue_offset < from {
            continue;
        }
        let message = NewRecord {
            queue_offset,
            flag: item.flag,
            sys_flag: whole.sys_flag & !(WRAPPED | sys_flag::COMPRESSED | sys_flag::COMPRESSION_TYPE),
            body: item.body,
            properties: item.properties,
            ..whole.to_new()
        };
        let length = out.len() + message.encoded_size();
        if length > MAX_BYTES {
            return Err(WireError::TooLarge {
                what: "an answer's batches, taken apart",
                length,
                limit: MAX_BYTES,
            });
        }
        message.encode(out)?;
    }
    Ok(())
}
