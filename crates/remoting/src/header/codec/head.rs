//! Writes a frame's head in one pass, without building a command, with the same bytes that a command would give.
//!
//! ```text
//! JSON    {"code":310,"extFields":{"a":"group", .. },"flag":0,"language":"PYTHON","opaque":7,
//!          "serializeTypeCurrentRPC":"JSON","version":513}
//! binary  as `binary.rs` says
//! ```
//! Used for frames that are sent for each message: no field is built before it is written, and nothing is allocated.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::command::{CURRENT_VERSION, Language, SerializeType};
use crate::error::WireError;
use crate::header::codec::{binary, prefix};
use crate::text::{push_escaped, push_i32, push_i64};

/// Capacity that a head without long texts needs.
const USUAL_HEAD: usize = 512;

/// A frame's header without its fields.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head<'a> {
    /// The encoding of the header.
    pub serialize_type: SerializeType,
    /// Request or response code.
    pub code: i32,
    /// The flag's bits.
    pub flag: i32,
    /// Request number.
    pub opaque: i32,
    /// Error text of a response.
    pub remark: Option<&'a str>,
}

/// Writes the head of one frame with our version and language. Its header has fields, though there may be none.
#[derive(Debug)]
pub struct HeadWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    head: Head<'o>,
    /// In the binary form, the position of the length of all fields.
    fields_at: usize,
    error: Option<WireError>,
}

/// Fields that many headers share, encoded once in each form.
#[derive(Debug, Clone, Default)]
pub struct SharedFields {
    json: Vec<u8>,
    binary: Vec<u8>,
}

impl SharedFields {
    /// Encodes the fields that `write` adds.
    pub fn new(write: impl Fn(&mut HeadWriter<'_>)) -> Result<Self, WireError> {
        let written = |serialize_type| {
            let mut out = Vec::new();
            let start = Head {
                serialize_type,
                ..Head::default()
            };
            let mut head = HeadWriter::new(&mut out, start);
            write(&mut head);
            head.into_fields()
        };
        Ok(Self {
            json: written(SerializeType::Json)?,
            binary: written(SerializeType::RocketMq)?,
        })
    }
}

impl<'o> HeadWriter<'o> {
    /// Begins a head after the bytes that are in `out`.
    pub fn new(out: &'o mut Vec<u8>, head: Head<'o>) -> Self {
        out.reserve(USUAL_HEAD);
        let start = prefix::open(out);
        let mut error = None;
        match head.serialize_type {
            SerializeType::Json => {
                out.extend_from_slice(b"{\"code\":");
                push_i32(head.code, out);
                out.extend_from_slice(b",\"extFields\":{");
            }
            SerializeType::RocketMq => {
                error = binary::open(&head, out).err();
            }
        }
        Self {
            fields_at: out.len(),
            out,
            start,
            head,
            error,
        }
    }

    /// Adds a field.
    #[inline]
    pub fn text(&mut self, key: &str, value: &str) {
        match self.head.serialize_type {
            SerializeType::Json => {
                self.open_json(key);
                push_escaped(value.as_bytes(), self.out);
                self.out.extend_from_slice(b"\",");
            }
            SerializeType::RocketMq => self.binary(key, |out| out.extend_from_slice(value.as_bytes())),
        }
    }

    /// Adds a number.
    #[inline]
    pub fn number(&mut self, key: &str, value: i64) {
        self.plain(key, |out| push_i64(value, out));
    }

    /// Adds a truth value.
    #[inline]
    pub fn truth(&mut self, key: &str, value: bool) {
        self.plain(key, |out| {
            out.extend_from_slice(if value { b"true" } else { b"false" });
        });
    }

    /// Adds a field whose value is written by `write`: ASCII that needs no escapes.
    #[inline]
    pub fn plain(&mut self, key: &str, write: impl FnOnce(&mut Vec<u8>)) {
        match self.head.serialize_type {
            SerializeType::Json => {
                self.open_json(key);
                write(self.out);
                self.out.extend_from_slice(b"\",");
            }
            SerializeType::RocketMq => self.binary(key, write),
        }
    }

    /// Adds fields that [`Self::into_fields`] returned for a header in the same form.
    #[inline]
    pub fn fields(&mut self, written: &[u8]) {
        self.out.extend_from_slice(written);
    }

    /// Adds shared fields.
    #[inline]
    pub fn shared(&mut self, fields: &SharedFields) {
        self.fields(match self.head.serialize_type {
            SerializeType::Json => &fields.json,
            SerializeType::RocketMq => &fields.binary,
        });
    }

    /// Removes the added fields from the buffer and returns them, for use in many headers of the same form.
    pub fn into_fields(self) -> Result<Vec<u8>, WireError> {
        let fields = self.out.get(self.fields_at..).unwrap_or_default().to_vec();
        self.out.truncate(self.start);
        self.error.map_or(Ok(fields), Err)
    }

    /// Starts a field. Names written here never need escapes.
    #[inline]
    fn open_json(&mut self, key: &str) {
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":\"");
    }

    fn binary(&mut self, key: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if let Err(error) = binary::push_pair(key, write, self.out) {
            self.error.get_or_insert(error);
        }
    }

    /// Completes the head of a frame whose body has `body` bytes. An error leaves the buffer unchanged.
    pub fn finish(self, body: usize) -> Result<(), WireError> {
        let Self {
            out,
            start,
            head,
            fields_at,
            error,
        } = self;
        let kind = match head.serialize_type {
            SerializeType::Json => {
                if out.len() > fields_at {
                    // Every pair ends with a comma.
                    out.pop();
                }
                out.extend_from_slice(b"},\"flag\":");
                push_i32(head.flag, out);
                out.extend_from_slice(b",\"language\":\"");
                out.extend_from_slice(Language::default().name().as_bytes());
                out.extend_from_slice(b"\",\"opaque\":");
                push_i32(head.opaque, out);
                if let Some(remark) = head.remark {
                    out.extend_from_slice(b",\"remark\":\"");
                    push_escaped(remark.as_bytes(), out);
                    out.push(b'"');
                }
                out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
                push_i32(CURRENT_VERSION, out);
                out.push(b'}');
                0
            }
            SerializeType::RocketMq => 1,
        };
        let closed = match (error, kind) {
            (Some(error), _) => Err(error),
            (None, 1) => binary::close(fields_at, out),
            (None, _) => Ok(()),
        };
        closed
            .and_then(|()| prefix::seal(out, start, kind, body))
            .inspect_err(|_| out.truncate(start))
    }
}
