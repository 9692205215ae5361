//! The message record (Apache `CommitLog.calMsgLength`, `MessageExtEncoder`, `MessageDecoder.decode`): what is in the
//! commit log is what travels in pull, query and view answers.
//!
//! ```text
//! at  bytes  field                          at  bytes  field
//!  0  4      total size                     48  8|20   born host: address, port as int32
//!  4  4      magic (V1 or V2)               56* 8      store timestamp, ms
//!  8  4      CRC-32 of body & 0x7FFFFFFF    64* 8|20   store host
//! 12  4      queue id                       72* 4      reconsume times
//! 16  4      flag                           76* 8      prepared transaction offset
//! 20  8      queue offset                   84* 4 + n  body
//! 28  8      physical offset                    1|2+n  topic; the length has 1 byte in V1, 2 in V2
//! 36  4      sys flag                           2 + n  properties
//! 40  8      born timestamp, ms             * with IPv4 hosts; an IPv6 host adds 12
//! ```
//! Queue offset, physical offset and store timestamp are outside of the CRC, so that [`Patch`] can set them under the
//! append lock. A blank record (bytes left in the file, blank magic) ends a file early; any other magic ends the valid
//! data.

mod decode;

pub use decode::Record;

use crate::error::WireError;
use crate::message::properties::{self};
pub use crate::message::records::{Hop, Records, hop, no_record, records, unknown_kind};
use crate::message::sys_flag;
use std::net::{IpAddr, SocketAddr};

/// Magic of a record whose topic length takes one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record whose topic length takes two bytes.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic of the blank record that ends a file.
pub const MAGIC_BLANK: u32 = 0xCBD4_3194;
/// Bytes of the blank record's head, for which a file keeps space after every record.
pub const BLANK_SIZE: usize = 8;
/// Bytes of everything up to and including the body length, with IPv4 hosts: no record is shorter than this and 3.
pub const FIXED_V4: usize = 88;
/// Position of the queue offset.
pub const QUEUE_OFFSET_AT: usize = 20;
/// Position of the physical offset.
pub const PHYSICAL_OFFSET_AT: usize = 28;
/// Position of the sys flag.
pub const SYS_FLAG_AT: usize = 36;
/// Longest topic of a V1 record, in bytes: its length is a signed byte.
pub const MAX_TOPIC_V1: usize = 127;
const WHAT: &str = "message record";

/// A message to be encoded as a record.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// Topic; over 127 bytes the record becomes V2.
    pub topic: &'a str,
    /// Queue inside the topic.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// Index in the consume queue.
    pub queue_offset: i64,
    /// Position in the commit log.
    pub physical_offset: i64,
    /// See [`sys_flag`]; the two host bits are set from the hosts.
    pub sys_flag: i32,
    /// When the producer created it, ms.
    pub born_timestamp_ms: i64,
    /// The sender's address.
    pub born_host: SocketAddr,
    /// When the broker stored it, ms.
    pub store_timestamp_ms: i64,
    /// The storing broker's address.
    pub store_host: SocketAddr,
    /// How often consumers sent it back.
    pub reconsume_times: i32,
    /// Position of a transaction's prepared message.
    pub prepared_transaction_offset: i64,
    /// The body, compressed if the sys flag says so.
    pub body: &'a [u8],
    /// The properties in wire form.
    pub properties: &'a [u8],
}

/// Bytes that a host takes: address and port.
const fn host_size(host: SocketAddr) -> usize {
    if host.is_ipv4() { 8 } else { 20 }
}

fn too_large(what: &'static str, length: usize, limit: usize) -> WireError {
    WireError::TooLarge { what, length, limit }
}

impl NewRecord<'_> {
    /// Exact number of bytes that [`NewRecord::encode`] appends.
    pub fn encoded_size(&self) -> usize {
        let topic_length = if self.topic.len() > MAX_TOPIC_V1 { 2 } else { 1 };
        FIXED_V4 - 16
            + host_size(self.born_host)
            + host_size(self.store_host)
            + self.body.len()
            + topic_length
            + self.topic.len()
            + 2
            + self.properties.len()
    }

    /// Appends the record, or nothing if a part does not fit its length field.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let sizes = Sizes::new(self.encoded_size(), self.topic, self.body, self.properties)?;
        let from = out.len();
        // Written in place: a head built elsewhere would be read back before its bytes have left the store buffer.
        out.reserve(sizes.record.max(MAX_HEAD));
        out.extend_from_slice(&[0; MAX_HEAD]);
        let head_size = match out.get_mut(from..).and_then(<[u8]>::first_chunk_mut) {
            Some(bytes) => self.write_head(Head { bytes, used: 0 }),
            None => 0,
        };
        out.truncate(from + head_size);
        sizes.finish(from, head_size, self.flag, out);
        Ok(())
    }

    /// Writes the part that the records of a batch share; returns the length of the head.
    #[inline]
    fn write_head(&self, mut head: Head<'_>) -> usize {
        let is_v1 = self.topic.len() <= MAX_TOPIC_V1;
        head.skip(4);
        head.put(if is_v1 { MAGIC_V1 } else { MAGIC_V2 }.to_be_bytes());
        head.skip(4);
        head.put(self.queue_id.to_be_bytes());
        head.skip(4);
        head.put(self.queue_offset.to_be_bytes());
        head.put(self.physical_offset.to_be_bytes());
        head.put(self.flags().to_be_bytes());
        head.put(self.born_timestamp_ms.to_be_bytes());
        head.host(self.born_host);
        head.put(self.store_timestamp_ms.to_be_bytes());
        head.host(self.store_host);
        head.put(self.reconsume_times.to_be_bytes());
        head.put(self.prepared_transaction_offset.to_be_bytes());
        head.skip(4);
        head.used
    }

    /// Number of bytes before the body.
    fn head_size(&self) -> usize {
        FIXED_V4 - 16 + host_size(self.born_host) + host_size(self.store_host)
    }

    /// Appends the record with a copy of the head at `pattern` in the buffer; only size, checksum and flag differ. So a
    /// batch builds its shared head once. Appends nothing if a part does not fit its length field.
    #[inline]
    pub fn encode_like(&self, pattern: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        let head = pattern..pattern + self.head_size();
        if head.end > out.len() {
            return Err(WireError::Truncated {
                what: WHAT,
                needed: head.end,
                left: out.len(),
            });
        }
        let sizes = Sizes::new(self.encoded_size(), self.topic, self.body, self.properties)?;
        let from = out.len();
        out.reserve(sizes.record);
        let head_size = head.len();
        out.extend_from_within(head);
        sizes.finish(from, head_size, self.flag, out);
        Ok(())
    }

    fn flags(&self) -> i32 {
        let mut flags = self.sys_flag & !(sys_flag::BORN_HOST_V6 | sys_flag::STORE_HOST_V6);
        if self.born_host.is_ipv6() {
            flags |= sys_flag::BORN_HOST_V6;
        }
        if self.store_host.is_ipv6() {
            flags |= sys_flag::STORE_HOST_V6;
        }
        flags
    }
}

/// The fields that are known only under the append lock.
#[derive(Debug, Clone, Copy)]
pub struct Patch {
    /// Index in the consume queue.
    pub queue_offset: i64,
    /// Position in the commit log.
    pub physical_offset: i64,
    /// When the broker stored it, ms.
    pub store_timestamp_ms: i64,
}

impl Patch {
    /// Writes the three fields into an encoded record.
    pub fn apply(&self, record: &mut [u8]) -> Result<(), WireError> {
        let left = record.len();
        let timestamp_at = store_timestamp_at(flags_of(record).unwrap_or_default());
        for (at, value) in [
            (QUEUE_OFFSET_AT, self.queue_offset),
            (PHYSICAL_OFFSET_AT, self.physical_offset),
            (timestamp_at, self.store_timestamp_ms),
        ] {
            let place = record.get_mut(at..at + 8).ok_or(WireError::Truncated {
                what: WHAT,
                needed: at + 8,
                left,
            })?;
            place.copy_from_slice(&value.to_be_bytes());
        }
        Ok(())
    }
}

/// The sys flag of an encoded record.
pub fn flags_of(record: &[u8]) -> Option<i32> {
    record
        .get(SYS_FLAG_AT..)?
        .first_chunk()
        .map(|bytes| i32::from_be_bytes(*bytes))
}

/// Position of the store timestamp in a record with this sys flag.
pub const fn store_timestamp_at(flags: i32) -> usize {
    if flags & sys_flag::BORN_HOST_V6 == 0 {
        56
    } else {
        68
    }
}

/// The store timestamp of an encoded record, or of at least its first 76 bytes.
pub fn store_timestamp_of(record: &[u8]) -> Option<i64> {
    let at = store_timestamp_at(flags_of(record)?);
    record
        .get(at..)?
        .first_chunk()
        .map(|bytes| i64::from_be_bytes(*bytes))
}

/// The checksum that a record carries for its body.
pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7FFF_FFFF
}

/// Maximum number of bytes before a body.
const MAX_HEAD: usize = FIXED_V4 + 2 * 12;
/// Position of the total size.
const SIZE_AT: usize = 0;
/// Position of the body's checksum.
const CRC_AT: usize = 8;
/// Position of the user's flag.
const FLAG_AT: usize = 16;

/// The parts of a record after its head, with lengths that fit their fields.
struct Sizes<'a> {
    record: usize,
    whole: i32,
    topic: (&'a str, i16),
    body: (&'a [u8], i32),
    properties: (&'a [u8], i16),
}

impl<'a> Sizes<'a> {
    #[inline]
    fn new(record: usize, topic: &'a str, body: &'a [u8], properties: &'a [u8]) -> Result<Self, WireError> {
        let most = i32::MAX as usize;
        let topic_size =
            i16::try_from(topic.len()).map_err(|_| too_large("topic", topic.len(), i16::MAX as usize))?;
        let properties_size = i16::try_from(properties.len())
            .map_err(|_| too_large("properties", properties.len(), properties::MAX_BYTES))?;
        Ok(Self {
            record,
            whole: i32::try_from(record).map_err(|_| too_large(WHAT, record, most))?,
            topic: (topic, topic_size),
            body: (
                body,
                i32::try_from(body.len()).map_err(|_| too_large(WHAT, record, most))?,
            ),
            properties: (properties, properties_size),
        })
    }

    /// Completes the head at `from`, at the end of the buffer, and appends the other parts.
    #[inline]
    fn finish(&self, from: usize, head_size: usize, flag: i32, out: &mut Vec<u8>) {
        let ((topic, topic_size), (body, body_size)) = (self.topic, self.body);
        if let Some(head) = out.get_mut(from..) {
            set(head, SIZE_AT, self.whole.to_be_bytes());
            set(head, CRC_AT, body_crc(body).to_be_bytes());
            set(head, FLAG_AT, flag.to_be_bytes());
            set(head, head_size.saturating_sub(4), body_size.to_be_bytes());
        }
        out.extend_from_slice(body);
        match u8::try_from(topic_size) {
            Ok(length) if topic.len() <= MAX_TOPIC_V1 => out.push(length),
            _ => out.extend_from_slice(&topic_size.to_be_bytes()),
        }
        out.extend_from_slice(topic.as_bytes());
        out.extend_from_slice(&self.properties.1.to_be_bytes());
        out.extend_from_slice(self.properties.0);
    }
}

#[inline]
fn set<const N: usize>(head: &mut [u8], at: usize, number: [u8; N]) {
    if let Some(place) = head.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = number;
    }
}

/// A record's bytes before its body, initially zero.
struct Head<'h> {
    bytes: &'h mut [u8; MAX_HEAD],
    used: usize,
}

impl Head<'_> {
    #[inline]
    fn skip(&mut self, bytes: usize) {
        self.used += bytes;
    }

    #[inline]
    fn put<const N: usize>(&mut self, number: [u8; N]) {
        if let Some(place) = self.bytes.get_mut(self.used..self.used + N) {
            place.copy_from_slice(&number);
        }
        self.used += N;
    }

    #[inline]
    fn host(&mut self, host: SocketAddr) {
        match host.ip() {
            IpAddr::V4(ip) => self.put(ip.octets()),
            IpAddr::V6(ip) => self.put(ip.octets()),
        }
        self.put(u32::from(host.port()).to_be_bytes());
    }
}
