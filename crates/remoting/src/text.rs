//! Text as fastjson writes it: decimal numbers and escaped strings, shared by headers and bodies.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

const HEX: &[u8; 16] = b"0123456789abcdef";

/// A byte in all eight places of a word.
const fn everywhere(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const HIGH: u64 = everywhere(0x80);
const ONES: u64 = everywhere(1);

/// High bits set in a word where a byte equals one; places behind the first may be wrong.
const fn equal(word: u64, byte: u8) -> u64 {
    let zero = word ^ everywhere(byte);
    zero.wrapping_sub(ONES) & !zero & HIGH
}

/// Length of the text before the first byte that `wanted` marks, eight bytes at a time. `wanted` gets a little-endian
/// word and sets the high bit of each place that it wants; the first of them must be right.
#[inline]
fn before(bytes: &[u8], wanted: impl Fn(u64) -> u64) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut length = 0_usize;
    for word in words {
        let found = wanted(u64::from_le_bytes(*word));
        if found != 0 {
            return length.wrapping_add((found.trailing_zeros() >> 3) as usize);
        }
        length = length.wrapping_add(8);
    }
    for byte in tail {
        if wanted(u64::from(*byte) | everywhere(b'a') << 8) & 0x80 != 0 {
            break;
        }
        length = length.wrapping_add(1);
    }
    length
}

/// Length of the text before the first quote or backslash.
#[inline]
pub(crate) fn before_quote(bytes: &[u8], quote: u8) -> usize {
    before(bytes, |word| equal(word, quote) | equal(word, b'\\'))
}

/// Marks the bytes that must be escaped: controls, the quote and the backslash (fastjson2, since 5.5.0; fastjson of 4.x
/// reads the same).
#[inline]
fn escaped(word: u64) -> u64 {
    let control = word.wrapping_sub(everywhere(0x20)) & !word & HIGH;
    control | equal(word, b'"') | equal(word, b'\\')
}

/// True when nothing must be escaped. Looks at the ends twice rather than at single bytes.
#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    if let (Some(last), (words, _)) = (bytes.last_chunk::<8>(), bytes.as_chunks::<8>()) {
        return words
            .iter()
            .chain([last])
            .all(|word| escaped(u64::from_le_bytes(*word)) == 0);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return escaped(u64::from(first) << 32 | u64::from(last)) == 0;
    }
    bytes
        .iter()
        .all(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\')
}

/// Appends a string's content, escaped, without the quotes around it.
#[inline]
pub(crate) fn push_escaped(text: &str, out: &mut Vec<u8>) {
    if is_plain(text.as_bytes()) {
        out.extend_from_slice(text.as_bytes());
    } else {
        push_escapes(text, out);
    }
}

#[cold]
fn push_escapes(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    loop {
        let (plain, tail) = rest
            .split_at_checked(before(rest, escaped))
            .unwrap_or((rest, &[]));
        out.extend_from_slice(plain);
        let Some((byte, after)) = tail.split_first() else {
            return;
        };
        push_escape(*byte, out);
        rest = after;
    }
}

/// Appends the escape of one byte below 0x80.
pub(crate) fn push_escape(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        0x08 => out.extend_from_slice(b"\\b"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\n' => out.extend_from_slice(b"\\n"),
        0x0C => out.extend_from_slice(b"\\f"),
        b'\r' => out.extend_from_slice(b"\\r"),
        _ => {
            let digit = |nibble: u8| HEX.get(usize::from(nibble & 15)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
        }
    }
}

/// The number that four hexadecimal digits stand for.
pub(crate) fn hex4(digits: [u8; 4]) -> Option<u32> {
    let mut value = 0;
    for digit in digits {
        value = value << 4 | char::from(digit).to_digit(16)?;
    }
    Some(value)
}

/// Appends a number in decimal.
pub(crate) fn push_i32(value: i32, out: &mut Vec<u8>) {
    push_i64(i64::from(value), out);
}

/// Appends a number in decimal.
pub(crate) fn push_i64(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    out.extend_from_slice(decimal(value, &mut digits));
}

/// A number in decimal, at the end of a buffer that holds any 64 bit number with its sign.
pub(crate) fn decimal(value: i64, digits: &mut [u8; 20]) -> &[u8] {
    let mut left = value.unsigned_abs();
    let mut at = digits.len();
    loop {
        at = at.wrapping_sub(1);
        if let Some(place) = digits.get_mut(at) {
            *place = b'0' | u8::try_from(left % 10).unwrap_or_default();
        }
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if value < 0 {
        at = at.wrapping_sub(1);
        if let Some(place) = digits.get_mut(at) {
            *place = b'-';
        }
    }
    digits.get(at..).unwrap_or_default()
}
