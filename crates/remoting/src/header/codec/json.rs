//! The JSON header (Apache `RemotingSerializable` over `RemotingCommand`): lenient reader, exact writer.
//!
//! ```text
//! {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,"remark":"...",
//!  "serializeTypeCurrentRPC":"JSON","version":479}
//! ```
//! Members are written in this order. `remark` is omitted if there is none, `extFields` if the command never had any.
//! The reader accepts any order, white space, unknown members, nulls, single quotes, trailing commas, bare integer
//! names, and numbers and literals as field values. It refuses bare word names, as 5.5.0 does.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::chunk::first_escaped;
use crate::command::{Command, Language, SerializeType};
use crate::error::WireError;
use crate::fields::{self, Entry, Fields, Front};
use crate::header::codec::pairs::{PAIR, push_pairs, put};
use crate::scan::Scan;
use crate::text::{push_escaped, push_i32};
use std::convert::Infallible;

/// Capacity in pairs of the first allocation: enough for a send, pull or route header.
const USUAL_FIELDS: usize = 16;

/// The members of a header.
#[derive(Default)]
struct Members {
    code: i32,
    flag: i32,
    opaque: i32,
    version: i32,
    language: Language,
    remark: Option<String>,
    fields: Option<Pairs>,
}

/// The pairs of `extFields`, with positions counted from the start of that member.
struct Pairs {
    base: usize,
    /// The arena for their texts.
    text: String,
    entries: Vec<Entry>,
}

/// Reads a JSON header into a command without a body. Only the fields' texts are copied, once, into their arena.
pub fn decode(text: &[u8], max_fields: usize) -> Result<Command, WireError> {
    let mut scan = Scan::new(text);
    let members = scan.members(max_fields)?;
    let fields = match members.fields {
        Some(pairs) => Fields::from_parts(scan.arena(pairs.base, pairs.text)?, pairs.entries),
        None => Fields::new(),
    };
    Ok(Command {
        code: members.code,
        language: members.language,
        version: members.version,
        opaque: members.opaque,
        flag: members.flag,
        remark: members.remark,
        fields,
        serialize_type: SerializeType::Json,
        body: None,
    })
}

impl Scan<'_> {
    fn members(&mut self, max_fields: usize) -> Result<Members, WireError> {
        // A peer that does not name its language counts as Java, Apache's own default.
        let mut members = Members {
            language: Language::Java,
            ..Members::default()
        };
        if self.literal(b"{\"code\":") {
            self.usual_members(&mut members, max_fields)?;
        } else {
            self.open(b'{', "an object")?;
        }
        while let Some(name) = self.member()? {
            match self.bytes(name) {
                b"code" => members.code = self.int()?,
                b"flag" => members.flag = self.int()?,
                b"opaque" => members.opaque = self.int()?,
                b"version" => members.version = self.int()?,
                b"language" => members.language = self.language()?,
                b"remark" => members.remark = self.remark()?,
                b"extFields" => members.fields = self.fields(max_fields)?,
                _ => self.skip()?,
            }
        }
        self.end()?;
        Ok(members)
    }

    /// Reads members in Apache's order for as long as they come in it: names are compared whole, not looked up.
    fn usual_members(&mut self, members: &mut Members, max_fields: usize) -> Result<(), WireError> {
        members.code = self.int()?;
        if self.literal(b",\"extFields\":") {
            members.fields = self.fields(max_fields)?;
        }
        if self.literal(b",\"flag\":") {
            members.flag = self.int()?;
        }
        // Java is the default already.
        if self.literal(b",\"language\":\"PYTHON\"") {
            members.language = Language::Python;
        } else if !self.literal(b",\"language\":\"JAVA\"") && self.literal(b",\"language\":") {
            members.language = self.language()?;
        }
        if self.literal(b",\"opaque\":") {
            members.opaque = self.int()?;
        }
        if self.literal(b",\"remark\":") {
            members.remark = self.remark()?;
        }
        self.literal(b",\"serializeTypeCurrentRPC\":\"JSON\"");
        if self.literal(b",\"version\":") {
            members.version = self.int()?;
        }
        Ok(())
    }

    fn remark(&mut self) -> Result<Option<String>, WireError> {
        let text = self.text()?;
        text.map(|text| self.take(text)).transpose()
    }

    /// Reads a language as a name or as the binary form's number. Null is an unknown language.
    fn language(&mut self) -> Result<Language, WireError> {
        let Some(name) = self.text()? else {
            return Ok(Language::Unknown);
        };
        let name = std::str::from_utf8(self.bytes(name)).unwrap_or_default();
        Ok(name
            .parse()
            .map_or_else(|_| Language::from_name(name), Language::from_number))
    }

    fn fields(&mut self, max_fields: usize) -> Result<Option<Pairs>, WireError> {
        if self.null() {
            return Ok(None);
        }
        self.open(b'{', "an object")?;
        let base = self.at();
        let (text, mut entries) = fields::arena();
        if self.peek() != Some(b'}') {
            entries.reserve(USUAL_FIELDS);
        }
        self.usual_pairs(base, max_fields, &mut entries)?;
        while let Some(key) = self.member()? {
            let Some(value) = self.text()? else { continue };
            if entries.len() >= max_fields {
                return Err(WireError::TooManyFields { limit: max_fields });
            }
            entries.push(Entry {
                key: key.since(base),
                value: value.since(base),
            });
        }
        Ok(Some(Pairs { base, text, entries }))
    }
}

/// Appends the JSON header of a command, byte for byte as Apache writes it.
pub fn encode(command: &Command, out: &mut Vec<u8>) {
    let remark = command.remark.as_deref();
    let pairs = command.fields.len().saturating_mul(6);
    out.reserve(
        pairs
            .saturating_add(command.fields.text_len())
            .saturating_add(remark.map_or(0, str::len))
            .saturating_add(160),
    );
    out.extend_from_slice(b"{\"code\":");
    push_i32(command.code, out);
    if command.fields.is_present() {
        out.extend_from_slice(b",\"extFields\":{");
        if !command.fields.is_empty() {
            out.push(b'"');
            let Ok(()) = push_pairs(&command.fields, out, short_pair, |out, key, value| {
                long_pair(out, key, value);
                Ok::<(), Infallible>(())
            });
            // Every pair ends with a comma.
            out.truncate(out.len().wrapping_sub(2));
        }
        out.push(b'}');
    }
    out.extend_from_slice(b",\"flag\":");
    push_i32(command.flag, out);
    out.extend_from_slice(b",\"language\":\"");
    out.extend_from_slice(command.language.name().as_bytes());
    out.extend_from_slice(b"\",\"opaque\":");
    push_i32(command.opaque, out);
    if let Some(remark) = remark {
        out.extend_from_slice(b",\"remark\":\"");
        push_escaped(remark.as_bytes(), out);
        out.push(b'"');
    }
    out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    push_i32(command.version, out);
    out.push(b'}');
}

/// Writes `name":"value","` if nothing in it needs escapes.
#[inline]
fn short_pair(pair: &mut [u8; PAIR], key: Front<'_>, value: Front<'_>) -> Option<usize> {
    let ((key, key_length), (value, value_length)) = (key.short()?, value.short()?);
    if first_escaped(key) < key_length || first_escaped(value) < value_length {
        return None;
    }
    put(pair, 0, key);
    put(pair, key_length, b"\":\"");
    let at = key_length.wrapping_add(3);
    put(pair, at, value);
    let at = at.wrapping_add(value_length);
    put(pair, at, b"\",\"");
    Some(at.wrapping_add(3))
}

/// Appends any pair.
fn long_pair(out: &mut Vec<u8>, key: Front<'_>, value: Front<'_>) {
    push_escaped(key.text(), out);
    out.extend_from_slice(b"\":\"");
    push_escaped(value.text(), out);
    out.extend_from_slice(b"\",\"");
}
