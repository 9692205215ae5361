//! Sixteen bytes of text at a time: finds the first byte that a JSON reader or writer must handle.
//!
//! One copy of fixed size moves a chunk, and the excess is cut off again: a header's names and values are seldom
//! longer, and a copy whose size is known only at run time costs more than all the rest.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use wide::u8x16;

/// Bytes of a chunk.
pub(crate) const CHUNK: usize = 16;

/// Appends the first `length` bytes of a chunk.
#[inline]
pub(crate) fn push_part(chunk: &[u8; CHUNK], length: usize, out: &mut Vec<u8>) {
    let end = out.len().wrapping_add(length);
    out.extend_from_slice(chunk);
    out.truncate(end);
}

/// Index of the first quote or backslash; `CHUNK` if there is none.
#[inline]
pub(crate) fn first_quote(chunk: &[u8; CHUNK], quote: u8) -> usize {
    let bytes = u8x16::new(*chunk);
    first(equal(bytes, quote) | equal(bytes, b'\\'))
}

/// Index of the first byte that must be escaped: a control character, the quote or the backslash (fastjson2, since
/// 5.5.0; fastjson of 4.x reads the same); `CHUNK` if there is none.
#[inline]
pub(crate) fn first_escaped(chunk: &[u8; CHUNK]) -> usize {
    let bytes = u8x16::new(*chunk);
    let control = bytes.min(u8x16::splat(0x1F)).simd_eq(bytes);
    first(control | equal(bytes, b'"') | equal(bytes, b'\\'))
}

#[inline]
fn equal(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.simd_eq(u8x16::splat(byte))
}

#[inline]
fn first(marks: u8x16) -> usize {
    (marks.to_bitmask() | 1 << CHUNK).trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_at_every_place() {
        for byte in 0..=u8::MAX {
            for (place, second) in (0..16).flat_map(|place| (0..16).map(move |second| (place, second))) {
                let mut chunk = *b"plain-text 0123~";
                chunk[place] = byte;
                chunk[second] = byte.wrapping_add(1);
                for quote in *b"\"'" {
                    let plain = chunk.iter().position(|byte| [quote, b'\\'].contains(byte));
                    assert_eq!(super::first_quote(&chunk, quote), plain.unwrap_or(16));
                }
                let plain = chunk
                    .iter()
                    .position(|byte| *byte < 0x20 || b"\"\\".contains(byte));
                assert_eq!(super::first_escaped(&chunk), plain.unwrap_or(16));
            }
        }
    }
}
