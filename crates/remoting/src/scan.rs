//! Reads JSON tokens in place: a string's escapes are resolved inside the buffer, so that its text can be borrowed.
//! The bytes that an escape leaves over are overwritten with spaces, so that the buffer stays valid UTF-8.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::error::WireError;
use crate::fields::Span;
use crate::text::{before_quote, hex4};

/// A position in a buffer of JSON text.
pub(crate) struct Scan<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The bytes of a span that was read.
    #[inline]
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        self.bytes
            .get(span.start as usize..span.end as usize)
            .unwrap_or_default()
    }

    /// A copy of a span's text.
    pub(crate) fn owned(&self, span: Span) -> Result<String, WireError> {
        std::str::from_utf8(self.bytes(span))
            .map(str::to_owned)
            .map_err(|_| WireError::Utf8 { what: "JSON string" })
    }

    /// Steps over a character that opens an object or array.
    pub(crate) fn open(&mut self, character: u8, reason: &'static str) -> Result<(), WireError> {
        self.space();
        if self.peek() == Some(character) {
            self.step(1);
            Ok(())
        } else {
            Err(self.bad(reason))
        }
    }

    /// The next member's name and the colon behind it; `None` at the object's end. Commas may trail.
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
            Some(b'0'..=b'9' | b'-') => self.token()?,
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

    /// Steps over these very bytes if they stand here.
    #[inline]
    pub(crate) fn literal<const N: usize>(&mut self, text: &[u8; N]) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let here = rest.first_chunk::<N>() == Some(text);
        if here {
            self.step(N);
        }
        here
    }

    /// Where the scan stands.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// A value as text: a string's content, a number or literal as it is written, an object or array as it is
    /// written; `None` for null.
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
                let token = self.token()?;
                Ok((self.bytes(token) != b"null").then_some(token))
            }
        }
    }

    /// A 32 bit number, quoted or not. Null, objects and literals count as 0, as Apache reads them.
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
        // Up to eighteen digits cannot overflow; more, and anything that is no plain number, takes the long way.
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

    /// Steps over `null`.
    pub(crate) fn null(&mut self) -> bool {
        self.space();
        let null = self
            .bytes
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(b"null"));
        if null {
            self.step(4);
        }
        null
    }

    /// Steps over any value without looking into it: no recursion, so no depth that could hurt.
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

    /// Nothing but white space is left.
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
    pub(crate) fn token(&mut self) -> Result<Span, WireError> {
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
        self.span(start, self.at)
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

    #[inline]
    pub(crate) fn string(&mut self, quote: u8) -> Result<Span, WireError> {
        let start = self.at.wrapping_add(1);
        let rest = self.bytes.get(start..).unwrap_or_default();
        let length = before_quote(rest, quote);
        let mut end = start.wrapping_add(length);
        if rest.get(length) == Some(&quote) {
            self.at = end.wrapping_add(1);
        } else {
            self.at = end;
            end = self.unescape(quote)?;
            self.step(1);
        }
        self.span(start, end)
    }

    /// From the first backslash on: moves the text together. Ends at the closing quote; returns the text's end.
    #[cold]
    fn unescape(&mut self, quote: u8) -> Result<usize, WireError> {
        let mut write = self.at;
        loop {
            let byte = self.peek().ok_or_else(|| self.bad("a closing quote"))?;
            if byte == quote {
                break;
            }
            self.step(1);
            self.escape(&mut write)?;
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let end = self.at.wrapping_add(before_quote(rest, quote));
            let plain = end.wrapping_sub(self.at);
            if let Some(span) = self.bytes.get_mut(write..end) {
                // Never panics: the part to move is the end of this very slice.
                let from = span.len().wrapping_sub(plain);
                span.copy_within(from.., 0);
            }
            write = write.wrapping_add(plain);
            self.at = end;
        }
        // What is left over may begin in the middle of a character.
        if let Some(gap) = self.bytes.get_mut(write..self.at) {
            gap.fill(b' ');
        }
        Ok(write)
    }

    fn put(&mut self, write: &mut usize, byte: u8) {
        if let Some(place) = self.bytes.get_mut(*write) {
            *place = byte;
        }
        *write = write.wrapping_add(1);
    }

    fn escape(&mut self, write: &mut usize) -> Result<(), WireError> {
        let kind = self.peek().ok_or_else(|| self.bad("a closing quote"))?;
        self.step(1);
        let byte = match kind {
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 0x0C,
            b'r' => b'\r',
            b'v' => 0x0B,
            b'u' => return self.unicode(write),
            b'x' => return self.hex2(write),
            digit @ b'0'..=b'7' => digit.wrapping_sub(b'0'),
            b'"' | b'\'' | b'\\' | b'/' => kind,
            _ => return Err(self.bad("a known escape")),
        };
        self.put(write, byte);
        Ok(())
    }

    /// `\uXXXX`, two of them for a character beyond 16 bits. Half a pair becomes `?`, as Java writes it.
    fn unicode(&mut self, write: &mut usize) -> Result<(), WireError> {
        let unit = self.unit()?;
        let mut character = char::from_u32(unit);
        if (0xD800..0xDC00).contains(&unit)
            && self.peek() == Some(b'\\')
            && self.bytes.get(self.at.wrapping_add(1)) == Some(&b'u')
        {
            let back = self.at;
            self.step(2);
            let low = self.unit()?;
            character = char::decode_utf16([unit, low].map(|unit| u16::try_from(unit).unwrap_or_default()))
                .next()
                .and_then(Result::ok);
            if character.is_none() {
                self.at = back;
            }
        }
        self.put_char(write, character.unwrap_or('?'));
        Ok(())
    }

    /// `\xXX`, which fastjson reads.
    fn hex2(&mut self, write: &mut usize) -> Result<(), WireError> {
        let Some(&[high, low]) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) else {
            return Err(self.bad("two hexadecimal digits"));
        };
        let unit = hex4([b'0', b'0', high, low]).ok_or_else(|| self.bad("two hexadecimal digits"))?;
        self.step(2);
        self.put_char(write, char::from_u32(unit).unwrap_or('?'));
        Ok(())
    }

    fn unit(&mut self) -> Result<u32, WireError> {
        let unit = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk().copied())
            .and_then(hex4)
            .ok_or_else(|| self.bad("four hexadecimal digits"))?;
        self.step(4);
        Ok(unit)
    }

    /// An escape is at least as long as the character it stands for, so this never overtakes the reader.
    fn put_char(&mut self, write: &mut usize, character: char) {
        let mut utf8 = [0; 4];
        for byte in character.encode_utf8(&mut utf8).bytes() {
            self.put(write, byte);
        }
    }
}
