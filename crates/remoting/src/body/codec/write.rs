//! Writes JSON as fastjson does: compact, or indented by tabs for files; with bare or quoted integer member names; with
//! raw UTF-8 or escaped for browsers.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::text::{push_escape, push_escaped, push_i64};

/// How JSON is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Whether integer member names are quoted (`{"0":1}`), as strict parsers require; fastjson's own form is bare
    /// (`{0:1}`).
    pub quote_integers: bool,
    /// Escape everything beyond ASCII, and the slash (fastjson `BrowserCompatible`).
    pub escape_browser: bool,
    /// Whether each member has its own line, indented by tabs.
    pub pretty: bool,
}

impl Style {
    /// fastjson's compact form, which every RocketMQ peer reads.
    pub const PLAIN: Self = Self {
        quote_integers: false,
        escape_browser: false,
        pretty: false,
    };
    /// Standard JSON in raw UTF-8, as 5.5.0 writes it.
    pub const STANDARD: Self = Self {
        quote_integers: true,
        ..Self::PLAIN
    };
    /// Standard JSON in ASCII, as 4.9.4 to 5.4 write it.
    pub const BROWSER: Self = Self {
        quote_integers: true,
        escape_browser: true,
        pretty: false,
    };
    /// The form of configuration files.
    pub const PRETTY: Self = Self {
        pretty: true,
        ..Self::PLAIN
    };
}

/// Appends JSON tokens to a buffer and adds commas, colons and indentation itself.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    style: Style,
    depth: usize,
    /// Whether the last token is an opening bracket.
    fresh: bool,
}

impl Writer {
    /// An empty buffer.
    pub fn new(style: Style) -> Self {
        Self {
            out: Vec::new(),
            style,
            depth: 0,
            fresh: true,
        }
    }

    /// The text.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }

    /// `{`
    pub fn open_object(&mut self) {
        self.open(b'{');
    }

    /// `}`
    pub fn close_object(&mut self) {
        self.close(b'}');
    }

    /// `[`
    pub fn open_array(&mut self) {
        self.open(b'[');
    }

    /// `]`
    pub fn close_array(&mut self) {
        self.close(b']');
    }

    /// Separates the next element from the previous one of the same object or array.
    pub fn element(&mut self) {
        if !self.fresh {
            self.out.push(b',');
        }
        self.fresh = false;
        self.line();
    }

    /// A member's quoted name with its colon.
    pub fn name(&mut self, name: &str) {
        self.element();
        self.string(name);
        self.colon();
    }

    /// A member's integer name with its colon, quoted if the style says so.
    pub fn int_name(&mut self, name: i64) {
        self.element();
        if self.style.quote_integers {
            self.out.push(b'"');
            self.int(name);
            self.out.push(b'"');
        } else {
            self.int(name);
        }
        self.colon();
    }

    /// Writes the `:` after a name that the caller wrote as a value.
    pub fn colon(&mut self) {
        self.out.push(b':');
    }

    /// Quoted text.
    pub fn string(&mut self, text: &str) {
        self.out.push(b'"');
        if self.style.escape_browser {
            self.push_browser(text);
        } else {
            push_escaped(text.as_bytes(), &mut self.out);
        }
        self.out.push(b'"');
    }

    /// A whole number.
    pub fn int(&mut self, value: i64) {
        push_i64(value, &mut self.out);
    }

    /// A number as Java's `Double.toString` writes it; null for a value that is not a number.
    pub fn float(&mut self, value: f64) {
        if value.is_finite() {
            self.out.extend_from_slice(java_double(value).as_bytes());
        } else {
            self.null();
        }
    }

    /// `true` or `false`.
    pub fn bool(&mut self, value: bool) {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// `null`
    pub fn null(&mut self) {
        self.out.extend_from_slice(b"null");
    }

    fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.depth = self.depth.saturating_add(1);
        self.fresh = true;
    }

    fn close(&mut self, bracket: u8) {
        self.depth = self.depth.saturating_sub(1);
        if !self.fresh {
            self.line();
        }
        self.fresh = false;
        self.out.push(bracket);
    }

    fn line(&mut self) {
        if self.style.pretty {
            self.out.push(b'\n');
            self.out.extend(std::iter::repeat_n(b'\t', self.depth));
        }
    }

    fn push_browser(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '/' => self.out.extend_from_slice(b"\\/"),
                '"' | '\\' | '\0'..='\u{1f}' => {
                    push_escape(
                        u8::try_from(u32::from(character)).unwrap_or_default(),
                        &mut self.out,
                    );
                }
                ' '..='~' => self
                    .out
                    .push(u8::try_from(u32::from(character)).unwrap_or_default()),
                _ => {
                    let mut units = [0; 2];
                    for unit in character.encode_utf16(&mut units) {
                        self.out.extend_from_slice(format!("\\u{unit:04X}").as_bytes());
                    }
                }
            }
        }
    }
}

/// Plain digits from a thousandth up to ten million, else `1.0E10`; always with a fraction.
fn java_double(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{value:?}");
    }
    let text = format!("{value:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}
