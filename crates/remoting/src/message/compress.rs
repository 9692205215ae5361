//! Compression of message bodies (Apache `CompressorFactory`): ZLIB, LZ4 in frames, ZSTD.
//!
//! The sys flag names the algorithm; old clients leave those bits zero and mean ZLIB. Decompression is bounded: a body
//! that expands beyond the caller's limit is an error, not an allocation.

use super::sys_flag;
use crate::error::WireError;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};

const WHAT: &str = "message body";

/// A compression algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// RFC 1950.
    Zlib,
    /// The LZ4 frame format, not bare blocks.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Codec {
    /// The algorithm that a sys flag names; `None` when the body is not compressed.
    pub fn of(flags: i32) -> Result<Option<Self>, WireError> {
        if flags & sys_flag::COMPRESSED == 0 {
            return Ok(None);
        }
        match flags & sys_flag::COMPRESSION_TYPE {
            0 | sys_flag::COMPRESSION_ZLIB => Ok(Some(Self::Zlib)),
            sys_flag::COMPRESSION_LZ4 => Ok(Some(Self::Lz4)),
            sys_flag::COMPRESSION_ZSTD => Ok(Some(Self::Zstd)),
            other => Err(WireError::Compression {
                what: WHAT,
                reason: format!("unknown compression type in sys flag: {other:#x}"),
            }),
        }
    }

    /// The sys flag bits of a body that this algorithm compressed.
    pub const fn flags(self) -> i32 {
        sys_flag::COMPRESSED
            | match self {
                Self::Zlib => sys_flag::COMPRESSION_ZLIB,
                Self::Lz4 => sys_flag::COMPRESSION_LZ4,
                Self::Zstd => sys_flag::COMPRESSION_ZSTD,
            }
    }
}

fn failed(error: impl std::fmt::Display) -> WireError {
    WireError::Compression {
        what: WHAT,
        reason: error.to_string(),
    }
}

/// Compresses a body. `level` is Apache's, 0 to 9 (its clients use 5); LZ4 has no levels here.
pub fn compress(codec: Codec, level: u32, body: &[u8]) -> Result<Vec<u8>, WireError> {
    let level = level.min(9);
    let room = Vec::with_capacity(body.len() / 2 + 64);
    match codec {
        Codec::Zlib => {
            let mut encoder = ZlibEncoder::new(room, Compression::new(level));
            encoder.write_all(body).map_err(failed)?;
            encoder.finish().map_err(failed)
        }
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(room);
            encoder.write_all(body).map_err(failed)?;
            encoder.finish().map_err(failed)
        }
        Codec::Zstd => zstd::stream::encode_all(body, i32::try_from(level).unwrap_or(3)).map_err(failed),
    }
}

/// Decompresses a body to at most `limit` bytes.
pub fn decompress(codec: Codec, body: &[u8], limit: usize) -> Result<Vec<u8>, WireError> {
    match codec {
        Codec::Zlib => bounded(ZlibDecoder::new(body), body.len(), limit),
        Codec::Lz4 => bounded(lz4_flex::frame::FrameDecoder::new(body), body.len(), limit),
        Codec::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(failed)?;
            // A conforming decoder must accept windows of 8 MiB; a larger one is a peer's attempt to use our memory.
            decoder.window_log_max(23).map_err(failed)?;
            bounded(decoder, body.len(), limit)
        }
    }
}

fn bounded(reader: impl Read, compressed: usize, limit: usize) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(compressed.saturating_mul(3).min(limit));
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(most).read_to_end(&mut out).map_err(failed)?;
    if out.len() > limit {
        return Err(failed(format_args!("more than {limit} bytes")));
    }
    Ok(out)
}
