//! Frames (Apache `NettyDecoder`, `RemotingCommand.decode`).
//!
//! ```text
//! offset 0  4  total length, counts everything after itself
//! offset 4  1  serialize type: 0 JSON, 1 ROCKETMQ
//! offset 5  3  header length, unsigned
//! offset 8  h  header
//! 8 + h     .. body, to the end of the frame
//! ```
//! All caps are checked before anything is allocated, as soon as the bytes that they depend on have arrived.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::command::{Command, SerializeType};
use crate::error::WireError;
use crate::header::codec::prefix::{LENGTH_WORD, PREFIX, open, seal};
use crate::header::codec::{binary, json};
use bytes::{Buf, BytesMut};

/// The decoder's limits: a peer can never make it allocate more.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one frame including the length word. Apache: 16 777 216.
    pub frame_bytes: usize,
    /// Bytes of one header.
    pub header_bytes: usize,
    /// Number of header fields.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 * 1024 * 1024,
            header_bytes: 1024 * 1024,
            fields: 1024,
        }
    }
}

/// The content of a frame's first eight bytes, checked against the limits.
struct Prefix {
    serialize_type: SerializeType,
    header: usize,
    body: usize,
}

/// Length in bytes of the frame that begins here, length word included, once its first four bytes have arrived. It is
/// checked against the limit, so a reader may reserve it.
pub fn announced(input: &[u8], limits: &Limits) -> Result<Option<usize>, WireError> {
    let Some(word) = input.first_chunk::<LENGTH_WORD>() else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(*word);
    let total = usize::try_from(length)
        .ok()
        .filter(|length| *length >= LENGTH_WORD)
        .and_then(|length| length.checked_add(LENGTH_WORD))
        .ok_or(WireError::FrameLength { length })?;
    if total > limits.frame_bytes {
        return Err(WireError::FrameTooLarge {
            length: total,
            limit: limits.frame_bytes,
        });
    }
    Ok(Some(total))
}

fn prefix(input: &[u8], limits: &Limits) -> Result<Option<Prefix>, WireError> {
    let Some(total) = announced(input, limits)? else {
        return Ok(None);
    };
    let Some(&[_, _, _, _, kind, high, middle, low]) = input.first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    let serialize_type = match kind {
        0 => SerializeType::Json,
        1 => SerializeType::RocketMq,
        other => return Err(WireError::SerializeType(other)),
    };
    let header = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    let room = total.saturating_sub(PREFIX);
    let Some(body) = room.checked_sub(header) else {
        return Err(WireError::HeaderLength { header, frame: room });
    };
    if header > limits.header_bytes {
        return Err(WireError::HeaderTooLarge {
            length: header,
            limit: limits.header_bytes,
        });
    }
    Ok(Some(Prefix {
        serialize_type,
        header,
        body,
    }))
}

/// Takes the next whole frame off the front of `input`. `Ok(None)`: more bytes are needed, and nothing is consumed. The
/// body is a slice of `input`'s memory, not a copy. After an error the frame boundary is unknown: close the connection.
pub fn decode(input: &mut BytesMut, limits: &Limits) -> Result<Option<Command>, WireError> {
    let Some(prefix) = prefix(input, limits)? else {
        return Ok(None);
    };
    let head = PREFIX.saturating_add(prefix.header);
    if input.len() < head.saturating_add(prefix.body) {
        return Ok(None);
    }
    let header = input.get(PREFIX..head).unwrap_or_default();
    let mut command = match prefix.serialize_type {
        SerializeType::Json => json::decode(header, limits.fields)?,
        SerializeType::RocketMq => binary::decode(header, limits.fields)?,
    };
    input.advance(head);
    if prefix.body > 0 {
        command.body = Some(input.split_to(prefix.body).freeze());
    }
    Ok(Some(command))
}

/// Appends a frame without its body: length word, header word, header. The caller writes `command.body` after it, so a
/// body is never copied. An error leaves `out` unchanged.
pub fn encode_head(command: &Command, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    let written = append_head(command, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn append_head(command: &Command, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = open(out);
    let kind = match command.serialize_type {
        SerializeType::Json => {
            json::encode(command, out);
            0
        }
        SerializeType::RocketMq => {
            binary::encode(command, out)?;
            1
        }
    };
    let body = command.body.as_ref().map_or(0, bytes::Bytes::len);
    seal(out, start, kind, body)
}

/// The whole frame in one buffer, for tests, tools and small commands.
pub fn encode(command: &Command) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    encode_head(command, &mut out)?;
    out.extend_from_slice(command.body.as_deref().unwrap_or_default());
    Ok(out)
}
