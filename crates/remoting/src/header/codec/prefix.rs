//! The first eight bytes of a frame: its length, the kind of its header, the header's length.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::error::WireError;

/// Bytes of the length word.
pub(crate) const LENGTH_WORD: usize = 4;
/// Bytes of the length word and the header word.
pub(crate) const PREFIX: usize = 8;
/// Largest header: its length has 24 bits.
const HEADER_MAX: usize = 0x00FF_FFFF;

/// Reserves a frame's first eight bytes, which [`seal`] fills in.
pub(crate) fn open(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    start
}

/// Fills in the first bytes of the frame that began at `start`, once its header is written; `body` bytes will follow.
pub(crate) fn seal(out: &mut [u8], start: usize, kind: u8, body: usize) -> Result<(), WireError> {
    let header = out.len().saturating_sub(start).saturating_sub(PREFIX);
    if header > HEADER_MAX {
        return Err(WireError::TooLarge {
            what: "header",
            length: header,
            limit: HEADER_MAX,
        });
    }
    let total = body.saturating_add(header).saturating_add(LENGTH_WORD);
    let length = i32::try_from(total).map_err(|_| WireError::TooLarge {
        what: "frame",
        length: total,
        limit: i32::MAX.unsigned_abs() as usize,
    })?;
    let [_, high, middle, low] = u32::try_from(header).unwrap_or(u32::MAX).to_be_bytes();
    if let Some(word) = out
        .get_mut(start..)
        .and_then(|head| head.first_chunk_mut::<PREFIX>())
    {
        let [a, b, c, d] = length.to_be_bytes();
        *word = [a, b, c, d, kind, high, middle, low];
    }
    Ok(())
}
