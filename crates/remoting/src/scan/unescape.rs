//! Strings with escapes, as fastjson reads them.

use crate::chunk::{CHUNK, first_quote, push_part};
use crate::error::WireError;
use crate::fields::Span;
use crate::scan::Scan;
use crate::text::hex4;

impl Scan<'_> {
    /// A string that began at `start`, from its first backslash on.
    pub(super) fn unescape(&mut self, start: usize, quote: u8) -> Result<Span, WireError> {
        let first = self.bytes.len().wrapping_add(self.unescaped.len());
        self.unescaped.reserve(CHUNK.wrapping_mul(8));
        let plain = self.bytes.get(start..self.at).unwrap_or_default();
        self.unescaped.extend_from_slice(plain);
        loop {
            match self.peek().ok_or_else(|| self.bad("a closing quote"))? {
                b'\\' => self.escape()?,
                byte => {
                    self.step(1);
                    self.unescaped.push(byte);
                    if byte == quote {
                        break;
                    }
                }
            }
            self.plain_chunks(quote);
        }
        let end = self.bytes.len().wrapping_add(self.unescaped.len());
        self.span(first, end.wrapping_sub(1))
    }

    /// Copies text that needs no unescaping, as far as whole chunks can be checked.
    #[inline]
    fn plain_chunks(&mut self, quote: u8) {
        while let Some(chunk) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<CHUNK>) {
            let plain = first_quote(chunk, quote);
            push_part(chunk, plain, &mut self.unescaped);
            self.step(plain);
            if plain < CHUNK {
                break;
            }
        }
    }

    /// Reads one escape, from its backslash on.
    #[inline]
    fn escape(&mut self) -> Result<(), WireError> {
        // The separators of properties, which occur in every message.
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let Some(&[b'\\', b'u', b'0', b'0', b'0', digit @ b'0'..=b'9']) = rest.first_chunk() {
            self.unescaped.push(digit & 0x0F);
            self.step(6);
            return Ok(());
        }
        self.any_escape()
    }

    fn any_escape(&mut self) -> Result<(), WireError> {
        self.step(1);
        let kind = self.peek().ok_or_else(|| self.bad("a closing quote"))?;
        self.step(1);
        let byte = match kind {
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 0x0C,
            b'r' => b'\r',
            b'v' => 0x0B,
            b'u' => return self.unicode(),
            b'x' => return self.hex2(),
            digit @ b'0'..=b'7' => digit.wrapping_sub(b'0'),
            b'"' | b'\'' | b'\\' | b'/' => kind,
            _ => return Err(self.bad("a known escape")),
        };
        self.unescaped.push(byte);
        Ok(())
    }

    /// Reads `\uXXXX`, two of them for a character beyond 16 bits. Half a pair becomes `?`, as in Java.
    fn unicode(&mut self) -> Result<(), WireError> {
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
        self.put_char(character.unwrap_or('?'));
        Ok(())
    }

    /// Reads `\xXX`, which fastjson accepts.
    fn hex2(&mut self) -> Result<(), WireError> {
        let Some(&[high, low]) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) else {
            return Err(self.bad("two hexadecimal digits"));
        };
        let unit = hex4([b'0', b'0', high, low]).ok_or_else(|| self.bad("two hexadecimal digits"))?;
        self.step(2);
        self.put_char(char::from_u32(unit).unwrap_or('?'));
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

    fn put_char(&mut self, character: char) {
        let mut utf8 = [0; 4];
        self.unescaped
            .extend_from_slice(character.encode_utf8(&mut utf8).as_bytes());
    }
}
