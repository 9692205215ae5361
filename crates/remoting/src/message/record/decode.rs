//! A record read from a buffer.

use super::{MAGIC_V1, MAGIC_V2, NewRecord, WHAT, body_crc};
use crate::error::WireError;
use crate::message::properties::Properties;
use crate::message::read::Cursor;
use crate::message::sys_flag;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A record in a buffer.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Bytes of the whole record.
    pub size: usize,
    /// Checksum of the body as stored; [`Record::check_body`] compares it.
    pub body_crc: u32,
    /// Queue inside the topic.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// Index in the consume queue.
    pub queue_offset: i64,
    /// Position in the commit log.
    pub physical_offset: i64,
    /// See [`sys_flag`].
    pub sys_flag: i32,
    /// When the producer made it, ms.
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
    /// The body as stored, compressed if the sys flag says so.
    pub body: &'a [u8],
    /// Topic.
    pub topic: &'a str,
    /// A view of the properties.
    pub properties: Properties<'a>,
}

impl<'a> Record<'a> {
    /// Decodes the record at the front of `bytes`; `size` says how many it uses. The body's checksum is not verified.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut head = Cursor::new(bytes, WHAT);
        let announced = head.i32()?;
        let magic = head.u32()?;
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return Err(WireError::Magic { what: WHAT, magic });
        }
        let bad_size = WireError::Length {
            what: WHAT,
            length: i64::from(announced),
        };
        let size = usize::try_from(announced).map_err(|_| bad_size.clone())?;
        let rest = size.checked_sub(8).ok_or_else(|| bad_size.clone())?;
        let mut cursor = Cursor::new(head.take(rest)?, WHAT);
        let body_crc = cursor.u32()?;
        let queue_id = cursor.i32()?;
        let flag = cursor.i32()?;
        let queue_offset = cursor.i64()?;
        let physical_offset = cursor.i64()?;
        let flags = cursor.i32()?;
        let born_timestamp_ms = cursor.i64()?;
        let born_host = take_host(&mut cursor, flags & sys_flag::BORN_HOST_V6 != 0)?;
        let store_timestamp_ms = cursor.i64()?;
        let store_host = take_host(&mut cursor, flags & sys_flag::STORE_HOST_V6 != 0)?;
        let reconsume_times = cursor.i32()?;
        let prepared_transaction_offset = cursor.i64()?;
        let length = i64::from(cursor.i32()?);
        let body = cursor.take(cursor.length(length)?)?;
        let length = if magic == MAGIC_V2 {
            i64::from(cursor.i16()?)
        } else {
            i64::from(cursor.u8()?)
        };
        let topic = cursor.take(cursor.length(length)?)?;
        let length = i64::from(cursor.i16()?);
        let properties = cursor.take(cursor.length(length)?)?;
        if cursor.remaining() != 0 {
            return Err(bad_size);
        }
        Ok(Self {
            size,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag: flags,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            topic: std::str::from_utf8(topic).map_err(|_| WireError::Utf8 { what: "topic" })?,
            properties: Properties::from_bytes(properties),
        })
    }

    /// Compares the body with its checksum.
    pub fn check_body(&self) -> Result<(), WireError> {
        let actual = body_crc(self.body);
        if actual == self.body_crc {
            Ok(())
        } else {
            Err(WireError::Checksum {
                what: "message body",
                expected: self.body_crc,
                actual,
            })
        }
    }

    /// The message that encodes to this record.
    pub fn to_new(&self) -> NewRecord<'a> {
        NewRecord {
            topic: self.topic,
            queue_id: self.queue_id,
            flag: self.flag,
            queue_offset: self.queue_offset,
            physical_offset: self.physical_offset,
            sys_flag: self.sys_flag,
            born_timestamp_ms: self.born_timestamp_ms,
            born_host: self.born_host,
            store_timestamp_ms: self.store_timestamp_ms,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: self.prepared_transaction_offset,
            body: self.body,
            properties: self.properties.as_bytes(),
        }
    }
}

/// A port that does not fit 16 bits is truncated; Java's socket address would refuse it.
fn take_host(cursor: &mut Cursor<'_>, v6: bool) -> Result<SocketAddr, WireError> {
    let ip = if v6 {
        let bytes = cursor.take(16)?;
        IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default()))
    } else {
        IpAddr::V4(Ipv4Addr::from(cursor.u32()?))
    };
    let [_, _, high, low] = cursor.u32()?.to_be_bytes();
    Ok(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
}
