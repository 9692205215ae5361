//! Reads JSON tokens. A string without escapes is a range of the text itself; one with escapes is written once to a
//! second buffer, whose positions continue after the text's end.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

mod unescape;

use crate::chunk::{CHUNK, first_quote};
use crate::error::WireError;
use crate::fields::{Entry, Span};

/// A position in JSON text.
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Strings that had escapes, each followed by a quote, so that no character extends from one into the next.
    unescaped: Vec<u8>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            unescaped: Vec::new(),
        }
    }

    /// The bytes of a string that was read.
    #[inline]
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        let length = self.bytes.len();
        let (start, end) = (span.start as usize, span.end as usize);
        let found = match start.checked_sub(length) {
            None => self.bytes.get(start..end),
            Some(start) => self.unescaped.get(start..end.wrapping_sub(length)),
        };
        found.unwrap_or_default()
    }

    /// The text of the last string that was read. The scan does not keep it.
    pub(crate) fn take(&mut self, span: Span) -> Result<String, WireError> {
        let text = std::str::from_utf8(self.bytes(span))
            .map(str::to_owned)
            .map_err(|_| WireError::Utf8 { what: "JSON string" })?;
        if let Some(start) = (span.start as usize).checked_sub(self.bytes.len()) {
            self.unescaped.truncate(start);
        }
        Ok(text)
    }

    /// One text with all strings that were read from position `start` on; their spans are counted from there. It is
    /// written into `arena`, which must be empty.
    pub(crate) fn arena(&self, start: usize, arena: String) -> Result<String, WireError> {
        let text = self.bytes.get(start..).unwrap_or_default();
        let mut bytes = arena.into_bytes();
        bytes.reserve(text.len().saturating_add(self.unescaped.len()));
        bytes.extend_from_slice(text);
        bytes.extend_from_slice(&self.unescaped);
        String::from_utf8(bytes).map_err(|_| WireError::Utf8 { what: "JSON string" })
    }

    /// The current position.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Reads a character that opens an object or array.
    pub(crate) fn open(&mut self, character: u8, reason: &'static str) -> Result<(), WireError> {
        self.space();
        if self.peek() == Some(character) {
            self.step(1);
            Ok(())
        } else {
            Err(self.bad(reason))
        }
    }

    /// The next member's name, after reading its colon; `None` at the object's end. A trailing comma is accepted.
    #[inline]
    pub(crate) fn member(&mut self) -> Result<Option<Span>, WireError> {
        if self.peek() == Some(b',') {
            self.step(1);
        }
        if self.peek() == Some(b'"') {
            let name = self.string(b'"')?;
            if self.peek() == Some(b':') {
                self.step(1);
                return Ok(Some(name));
            }
            return self.colon(name);
        }
        self.any_member()
    }

    fn any_member(&mut self) -> Result<Option<Span>, WireError> {
        loop {
            self.space();
            match self.peek() {
                Some(b',') => self.step(1),
                Some(b'}') => {
                    self.step(1);
                    return Ok(None);
                }
                _ => break,
            }
        }
        let name = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote)?,
            Some(b'0'..=b'9' | b'-') => {
                let start = self.at;
                self.token()?;
                self.span(start, self.at)?
            }
            _ => return Err(self.bad("a quoted name")),
        };
        self.colon(name)
    }

    fn colon(&mut self, name: Span) -> Result<Option<Span>, WireError> {
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.bad("a colon"));
        }
        self.step(1);
        Ok(Some(name))
    }

    /// Skips exactly these bytes if they come next.
    #[inline]
    pub(crate) fn literal<const N: usize>(&mut self, text: &[u8; N]) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let here = rest.first_chunk::<N>() == Some(text);
        if here {
            self.step(N);
        }
        here
    }

    /// A value as text: a string's content, anything else as it is written. `None` for null.
    pub(crate) fn text(&mut self) -> Result<Option<Span>, WireError> {
        self.space();
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote).map(Some),
            Some(b'{' | b'[') => {
                let start = self.at;
                self.skip()?;
                self.span(start, self.at).map(Some)
            }
            _ => {
                let start = self.at;
                let null = self.token()? == b"null";
                let span = self.span(start, self.at)?;
                Ok((!null).then_some(span))
            }
        }
    }

    /// A 32-bit number, quoted or not. Null, objects and literals count as 0, as in Apache.
    pub(crate) fn int(&mut self) -> Result<i32, WireError> {
        self.space();
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (negative, digits) = match rest.split_first() {
            Some((b'-', digits)) => (true, digits),
            _ => (false, rest),
        };
        let mut value = 0_i64;
        let mut count = 0_usize;
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(digit.into());
            count = count.wrapping_add(1);
        }
        // Up to eighteen digits cannot overflow. More digits, and anything but a plain number, take the slow path.
        if matches!(count, 1..=18) && matches!(digits.get(count), Some(b',' | b'}')) {
            let value = if negative { value.wrapping_neg() } else { value };
            if let Ok(value) = i32::try_from(value) {
                self.step(count.wrapping_add(usize::from(negative)));
                return Ok(value);
            }
        }
        self.any_int()
    }

    #[cold]
    fn any_int(&mut self) -> Result<i32, WireError> {
        let at = self.at;
        let Some(span) = self.text()? else { return Ok(0) };
        match self.bytes(span) {
            [] | [b'{' | b'[', ..] | b"true" | b"false" => Ok(0),
            digits => std::str::from_utf8(digits)
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .ok_or(WireError::Json {
                    at,
                    reason: "a 32 bit number",
                }),
        }
    }

    /// Skips `null` if it comes next.
    pub(crate) fn null(&mut self) -> bool {
        self.space();
        self.literal(b"null")
    }

    /// Skips any value without looking into it. There is no recursion, so deep nesting does no harm.
    pub(crate) fn skip(&mut self) -> Result<(), WireError> {
        self.space();
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                None => return Err(self.bad("a value")),
                Some(quote @ (b'"' | b'\'')) => self.skip_string(quote)?,
                Some(b'{' | b'[') => {
                    depth = depth.saturating_add(1);
                    self.step(1);
                }
                Some(b'}' | b']') => {
                    depth = depth.saturating_sub(1);
                    self.step(1);
                }
                Some(_) if depth == 0 => {
                    self.token()?;
                }
                Some(_) => self.step(1),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), WireError> {
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.bad("the end")),
        }
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    pub(crate) fn step(&mut self, count: usize) {
        self.at = self.at.wrapping_add(count);
    }

    #[inline]
    pub(crate) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r' | 0)) {
            self.step(1);
        }
    }

    #[cold]
    pub(crate) fn bad(&self, reason: &'static str) -> WireError {
        WireError::Json { at: self.at, reason }
    }

    #[inline]
    pub(crate) fn span(&self, start: usize, end: usize) -> Result<Span, WireError> {
        Span::new(start, end).ok_or_else(|| self.bad("less than 4 GiB"))
    }

    /// A number or a literal: everything up to the next separator, at least one byte.
    pub(crate) fn token(&mut self) -> Result<&'a [u8], WireError> {
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let length = rest
            .iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'+' | b'.'))
            .unwrap_or(rest.len());
        if length == 0 {
            return Err(self.bad("a value"));
        }
        self.step(length);
        Ok(rest.get(..length).unwrap_or_default())
    }

    fn skip_string(&mut self, quote: u8) -> Result<(), WireError> {
        self.step(1);
        loop {
            match self.peek() {
                None => return Err(self.bad("a closing quote")),
                Some(b'\\') => self.step(2),
                Some(byte) => {
                    self.step(1);
                    if byte == quote {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// A quoted string, including both quotes.
    #[inline]
    pub(crate) fn string(&mut self, quote: u8) -> Result<Span, WireError> {
        let start = self.at.wrapping_add(1);
        self.at = special(self.bytes, start, quote);
        let end = self.at;
        if self.peek() == Some(quote) {
            self.step(1);
            self.span(start, end)
        } else {
            self.unescape(start, quote)
        }
    }

    /// Pairs of strings as every known client writes them, without optional white space: `"a":"b","c":"d"`. Ends before
    /// the first pair that is written otherwise, or after the last. Spans are counted from `base`.
    #[inline]
    pub(crate) fn usual_pairs(
        &mut self,
        base: usize,
        limit: usize,
        entries: &mut Vec<Entry>,
    ) -> Result<(), WireError> {
        let bytes = self.bytes;
        let mut at = self.at;
        while entries.len() < limit && bytes.get(at) == Some(&b'"') {
            let key = at.wrapping_add(1);
            let key_end = special(bytes, key, b'"');
            let value = key_end.wrapping_add(3);
            if bytes.get(key_end..value) != Some(b"\":\"") {
                break;
            }
            let mut value_end = special(bytes, value, b'"');
            let value = if bytes.get(value_end) == Some(&b'"') {
                Span::saturated(value.wrapping_sub(base), value_end.wrapping_sub(base))
            } else {
                self.at = value_end;
                let span = self.unescape(value, b'"')?;
                value_end = self.at.wrapping_sub(1);
                span.since(base)
            };
            entries.push(Entry {
                key: Span::saturated(key.wrapping_sub(base), key_end.wrapping_sub(base)),
                value,
            });
            at = value_end.wrapping_add(1);
            if bytes.get(at..at.wrapping_add(2)) != Some(b",\"") {
                break;
            }
            at = at.wrapping_add(1);
        }
        self.at = at;
        Ok(())
    }
}

/// Position of the first quote or backslash from `at` on; the end if there is none.
#[inline]
fn special(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let plain = first_quote(chunk, quote);
        at = at.wrapping_add(plain);
        if plain < CHUNK {
            return at;
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let plain = rest.iter().position(|byte| *byte == quote || *byte == b'\\');
    at.wrapping_add(plain.unwrap_or(rest.len()))
}
