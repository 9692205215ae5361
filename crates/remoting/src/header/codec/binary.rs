//! The ROCKETMQ binary header (Apache `RocketMQSerializable`).
//!
//! ```text
//!  2      code, signed
//!  1      language number
//!  2      version, signed
//!  4      opaque
//!  4      flag
//!  4 + n  remark length, UTF-8 bytes; 0 = none
//!  4 + n  length of all fields, then per field: 2 + n key, 4 + n value
//! ```
//! Code and version have 16 bits, so POP requests need the JSON form. An empty remark equals none. A field with an
//! empty value is kept; Apache, and fields read as optional numbers, treat it as missing. A field without a key is
//! dropped. A negative length of all fields means none.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::command::{CURRENT_VERSION, Command, Language, SerializeType};
use crate::error::WireError;
use crate::fields::{self, Entry, Fields, Front, Span};
use crate::header::Head;
use crate::header::codec::pairs::{PAIR, push_pairs, put};

const FIXED: usize = 21;

/// The unread part of a header.
struct Remaining<'a>(&'a [u8]);

impl<'a> Remaining<'a> {
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(WireError::Truncated {
            what,
            needed: N,
            left: self.0.len(),
        })?;
        self.0 = tail;
        Ok(*head)
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.0.split_at_checked(length).ok_or(WireError::Truncated {
            what,
            needed: length,
            left: self.0.len(),
        })?;
        self.0 = tail;
        Ok(head)
    }

    fn i16(&mut self, what: &'static str) -> Result<i16, WireError> {
        self.array(what).map(i16::from_be_bytes)
    }

    fn i32(&mut self, what: &'static str) -> Result<i32, WireError> {
        self.array(what).map(i32::from_be_bytes)
    }

    fn text(&mut self, length: i32, what: &'static str) -> Result<&'a str, WireError> {
        let bytes = usize::try_from(length).map_err(|_| WireError::Length {
            what,
            length: i64::from(length),
        })?;
        std::str::from_utf8(self.take(bytes, what)?).map_err(|_| WireError::Utf8 { what })
    }
}

/// Reads a binary header into a command without a body.
pub fn decode(bytes: &[u8], max_fields: usize) -> Result<Command, WireError> {
    let mut rest = Remaining(bytes);
    let code = i32::from(rest.i16("code")?);
    let [language] = rest.array("language")?;
    let version = i32::from(rest.i16("version")?);
    let opaque = rest.i32("opaque")?;
    let flag = rest.i32("flag")?;
    let remark = rest.i32("remark length")?;
    let remark = rest.text(remark, "remark")?;
    let fields = rest.i32("fields length")?;
    let fields = rest.take(usize::try_from(fields).unwrap_or(0), "fields")?;
    Ok(Command {
        code,
        language: Language::from_number(language),
        version,
        opaque,
        flag,
        remark: (!remark.is_empty()).then(|| remark.to_owned()),
        fields: decode_fields(fields, max_fields)?,
        serialize_type: SerializeType::RocketMq,
        body: None,
    })
}

/// Decodes the fields. Their copy becomes the arena, with zeros in place of the lengths, so one check validates all
/// keys and values as UTF-8: no character extends across a zero.
fn decode_fields(bytes: &[u8], max_fields: usize) -> Result<Fields, WireError> {
    if bytes.is_empty() {
        return Ok(Fields::new());
    }
    let (text, mut entries) = fields::arena();
    let mut arena = text.into_bytes();
    arena.extend_from_slice(bytes);
    // A pair takes six bytes plus its text.
    entries.reserve(bytes.len().div_euclid(6).min(16));
    let mut at = 0;
    while at < arena.len() {
        let key = span(&mut arena, &mut at, "field key", |word: [u8; 2]| {
            i16::from_be_bytes(word).into()
        })?;
        let value = span(&mut arena, &mut at, "field value", i32::from_be_bytes)?;
        if entries.len() >= max_fields {
            return Err(WireError::TooManyFields { limit: max_fields });
        }
        if key.start < key.end {
            entries.push(Entry { key, value });
        }
    }
    let text = String::from_utf8(arena).map_err(|_| WireError::Utf8 { what: "fields" })?;
    Ok(Fields::from_parts(text, entries))
}

/// Reads a length of `N` bytes, zeroes it, and skips that many bytes.
fn span<const N: usize>(
    arena: &mut [u8],
    at: &mut usize,
    what: &'static str,
    length: impl Fn([u8; N]) -> i32,
) -> Result<Span, WireError> {
    let rest = arena.get_mut(*at..).unwrap_or_default();
    let left = rest.len();
    let word = rest.first_chunk_mut::<N>().ok_or(WireError::Truncated {
        what,
        needed: N,
        left,
    })?;
    let length = length(*word);
    *word = [0; N];
    let needed = usize::try_from(length).map_err(|_| WireError::Length {
        what,
        length: length.into(),
    })?;
    let left = left.saturating_sub(N);
    if needed > left {
        return Err(WireError::Truncated { what, needed, left });
    }
    let start = at.saturating_add(N);
    *at = start.saturating_add(needed);
    Span::new(start, *at).ok_or(WireError::TooLarge {
        what,
        length: *at,
        limit: u32::MAX as usize,
    })
}

/// Appends the binary header of a command.
pub fn encode(command: &Command, out: &mut Vec<u8>) -> Result<(), WireError> {
    let remark = command.remark.as_deref().unwrap_or_default();
    out.reserve(
        command
            .fields
            .len()
            .saturating_mul(6)
            .saturating_add(command.fields.text_len())
            .saturating_add(remark.len())
            .saturating_add(FIXED),
    );
    out.extend_from_slice(&short(command.code, "code")?);
    out.push(command.language.number());
    out.extend_from_slice(&short(command.version, "version")?);
    out.extend_from_slice(&command.opaque.to_be_bytes());
    out.extend_from_slice(&command.flag.to_be_bytes());
    out.extend_from_slice(&word(remark.len(), "remark")?);
    out.extend_from_slice(remark.as_bytes());
    out.extend_from_slice(&[0; 4]);
    let fields = out.len();
    push_pairs(&command.fields, out, short_pair, long_pair)?;
    close(fields, out)
}

/// Appends the part before the fields, with our version and language.
pub(super) fn open(head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
    let remark = head.remark.unwrap_or_default();
    out.extend_from_slice(&short(head.code, "code")?);
    out.push(Language::default().number());
    out.extend_from_slice(&short(CURRENT_VERSION, "version")?);
    out.extend_from_slice(&head.opaque.to_be_bytes());
    out.extend_from_slice(&head.flag.to_be_bytes());
    out.extend_from_slice(&word(remark.len(), "remark")?);
    out.extend_from_slice(remark.as_bytes());
    out.extend_from_slice(&[0; 4]);
    Ok(())
}

/// Appends one pair.
pub(super) fn push_pair(
    key: &str,
    write: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    out.extend_from_slice(&key_length(key.as_bytes())?);
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(&[0; 4]);
    let value = out.len();
    write(out);
    fill_length(value, "field value", out)
}

/// Fills in the length of the fields that begin at `fields`.
pub(super) fn close(fields: usize, out: &mut [u8]) -> Result<(), WireError> {
    fill_length(fields, "fields", out)
}

/// Fills in the length before the bytes that begin at `start`.
fn fill_length(start: usize, what: &'static str, out: &mut [u8]) -> Result<(), WireError> {
    let length = word(out.len().saturating_sub(start), what)?;
    let place = out.get_mut(start.saturating_sub(4)..);
    if let Some(place) = place.and_then(|tail| tail.first_chunk_mut::<4>()) {
        *place = length;
    }
    Ok(())
}

fn short(value: i32, what: &'static str) -> Result<[u8; 2], WireError> {
    i16::try_from(value)
        .map(i16::to_be_bytes)
        .map_err(|_| WireError::OutOfRange {
            what,
            value: i64::from(value),
            limit: i64::from(i16::MAX),
        })
}

fn word(length: usize, what: &'static str) -> Result<[u8; 4], WireError> {
    i32::try_from(length)
        .map(i32::to_be_bytes)
        .map_err(|_| WireError::TooLarge {
            what,
            length,
            limit: i32::MAX.unsigned_abs() as usize,
        })
}

/// Writes a pair whose lengths each fit their lowest byte.
#[inline]
fn short_pair(pair: &mut [u8; PAIR], key: Front<'_>, value: Front<'_>) -> Option<usize> {
    let ((key, key_length), (value, value_length)) = (key.short()?, value.short()?);
    let [low, ..] = key_length.to_le_bytes();
    put(pair, 0, &[0, low]);
    put(pair, 2, key);
    let at = key_length.wrapping_add(2);
    let [low, ..] = value_length.to_le_bytes();
    put(pair, at, &[0, 0, 0, low]);
    put(pair, at.wrapping_add(4), value);
    Some(at.wrapping_add(4).wrapping_add(value_length))
}

/// Appends any pair.
fn long_pair(out: &mut Vec<u8>, key: Front<'_>, value: Front<'_>) -> Result<(), WireError> {
    let (key, value) = (key.text(), value.text());
    out.extend_from_slice(&key_length(key)?);
    out.extend_from_slice(key);
    out.extend_from_slice(&word(value.len(), "field value")?);
    out.extend_from_slice(value);
    Ok(())
}

fn key_length(key: &[u8]) -> Result<[u8; 2], WireError> {
    let length = i16::try_from(key.len()).map_err(|_| WireError::TooLarge {
        what: "field key",
        length: key.len(),
        limit: i16::MAX.unsigned_abs().into(),
    })?;
    Ok(length.to_be_bytes())
}
