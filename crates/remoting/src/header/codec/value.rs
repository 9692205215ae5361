//! How a Rust value is read from and written to one header field: text, decimal numbers, `true` and `false`.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::error::WireError;
use crate::fields::Fields;
use crate::header::HeadWriter;

/// Where fields are written: to a command's fields, or straight into a frame's head.
pub trait FieldSink {
    /// Adds a field.
    fn text(&mut self, key: &str, value: &str);
    /// Adds a field whose value is ASCII that needs no escapes.
    fn ascii(&mut self, key: &str, value: &str);
}

impl FieldSink for Fields {
    #[inline]
    fn text(&mut self, key: &str, value: &str) {
        self.push(key, value);
    }
    #[inline]
    fn ascii(&mut self, key: &str, value: &str) {
        self.push(key, value);
    }
}

impl FieldSink for HeadWriter<'_> {
    #[inline]
    fn text(&mut self, key: &str, value: &str) {
        HeadWriter::text(self, key, value);
    }
    #[inline]
    fn ascii(&mut self, key: &str, value: &str) {
        self.plain(key, |out| out.extend_from_slice(value.as_bytes()));
    }
}

/// A type that a header field can have.
pub trait FieldValue<'a>: Sized {
    /// Reads the field's text, or its absence.
    fn read(text: Option<&'a str>, key: &'static str) -> Result<Self, WireError>;
    /// Writes the value to the sink; an absent option writes nothing.
    fn write(&self, key: &'static str, sink: &mut impl FieldSink);
}

impl<'a> FieldValue<'a> for &'a str {
    #[inline]
    fn read(text: Option<&'a str>, key: &'static str) -> Result<Self, WireError> {
        text.ok_or(WireError::MissingField(key))
    }
    #[inline]
    fn write(&self, key: &'static str, sink: &mut impl FieldSink) {
        sink.text(key, self);
    }
}

impl<'a> FieldValue<'a> for Option<&'a str> {
    #[inline]
    fn read(text: Option<&'a str>, _key: &'static str) -> Result<Self, WireError> {
        Ok(text)
    }
    #[inline]
    fn write(&self, key: &'static str, sink: &mut impl FieldSink) {
        if let Some(text) = self {
            sink.text(key, text);
        }
    }
}

macro_rules! parsed {
    ($($type:ty, $expected:literal;)*) => {$(
        impl<'a> FieldValue<'a> for $type {
            #[inline]
            fn read(text: Option<&'a str>, key: &'static str) -> Result<Self, WireError> {
                let text = text.ok_or(WireError::MissingField(key))?;
                text.parse().map_err(|_| bad(key, $expected, text))
            }
            #[inline]
            fn write(&self, key: &'static str, sink: &mut impl FieldSink) {
                sink.ascii(key, itoa::Buffer::new().format(*self));
            }
        }

        /// Like Apache, ignores a text that is not of the type; Apache also logs it.
        impl<'a> FieldValue<'a> for Option<$type> {
            #[inline]
            fn read(text: Option<&'a str>, _key: &'static str) -> Result<Self, WireError> {
                Ok(text.and_then(|text| text.parse().ok()))
            }
            #[inline]
            fn write(&self, key: &'static str, sink: &mut impl FieldSink) {
                if let Some(value) = self {
                    value.write(key, sink);
                }
            }
        }
    )*};
}

parsed! {
    i32, "a 32 bit number";
    i64, "a 64 bit number";
}

/// Java's `Boolean.parseBoolean`: "true" in any case is true; everything else, and a missing text, is false.
impl<'a> FieldValue<'a> for bool {
    #[inline]
    fn read(text: Option<&'a str>, _key: &'static str) -> Result<Self, WireError> {
        Ok(text.is_some_and(|text| text.eq_ignore_ascii_case("true")))
    }
    #[inline]
    fn write(&self, key: &'static str, sink: &mut impl FieldSink) {
        sink.ascii(key, if *self { "true" } else { "false" });
    }
}

impl<'a> FieldValue<'a> for Option<bool> {
    #[inline]
    fn read(text: Option<&'a str>, _key: &'static str) -> Result<Self, WireError> {
        Ok(text.map(|text| text.eq_ignore_ascii_case("true")))
    }
    #[inline]
    fn write(&self, key: &'static str, sink: &mut impl FieldSink) {
        if let Some(value) = self {
            value.write(key, sink);
        }
    }
}

#[cold]
fn bad(field: &'static str, expected: &'static str, value: &str) -> WireError {
    WireError::BadField {
        field,
        expected,
        value: value.chars().take(64).collect(),
    }
}
