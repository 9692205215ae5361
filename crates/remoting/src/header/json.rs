//! The JSON header (Apache `RemotingSerializable` over `RemotingCommand`): lenient reader, exact writer.
//!
//! ```text
//! {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,"remark":"...",
//!  "serializeTypeCurrentRPC":"JSON","version":479}
//! ```
//! Members are written in this order; `remark` is left out when there is none, `extFields` when the command never had
//! any. Read in any order, with white space, unknown members, nulls, single quotes, trailing commas, bare integer names,
//! numbers and literals as field values. Bare word names are refused, as 5.5.0 refuses them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::command::{Command, Language, SerializeType};
use crate::error::WireError;
use crate::fields::{Entry, Fields, Span};
use crate::scan::Scan;
use crate::text::{push_escaped, push_i32};

/// Pairs that a first allocation has room for: a send, pull or route header fits.
const USUAL_FIELDS: usize = 16;

/// What a header's text says, as positions in it.
#[derive(Default)]
struct Members {
    code: i32,
    flag: i32,
    opaque: i32,
    version: i32,
    language: Language,
    remark: Option<Span>,
    fields: Option<Pairs>,
}

/// Where the member `extFields` lies, and its pairs counted from there.
struct Pairs {
    span: Span,
    entries: Vec<Entry>,
}

/// Reads a JSON header into a command without a body.
pub fn decode(text: &[u8], max_fields: usize) -> Result<Command, WireError> {
    decode_in_place(&mut text.to_vec(), max_fields)
}

/// The same in the reader's own buffer, where strings are unescaped: what is copied are the fields, once, as a whole.
pub(crate) fn decode_in_place(bytes: &mut [u8], max_fields: usize) -> Result<Command, WireError> {
    let mut scan = Scan::new(bytes);
    let members = scan.members(max_fields)?;
    let remark = members.remark.map(|span| scan.owned(span)).transpose()?;
    let fields = match members.fields {
        Some(pairs) => Fields::from_parts(scan.owned(pairs.span)?, pairs.entries),
        None => Fields::new(),
    };
    Ok(Command {
        code: members.code,
        language: members.language,
        version: members.version,
        opaque: members.opaque,
        flag: members.flag,
        remark,
        fields,
        serialize_type: SerializeType::Json,
        body: None,
    })
}

impl Scan<'_> {
    fn members(&mut self, max_fields: usize) -> Result<Members, WireError> {
        // A peer that does not name its language is taken for Java, as Apache's own default is.
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
                b"remark" => members.remark = self.text()?,
                b"extFields" => members.fields = self.fields(max_fields)?,
                _ => self.skip()?,
            }
        }
        self.end()?;
        Ok(members)
    }

    /// The members as Apache writes them, as far as they come so: names are compared whole, not looked up.
    fn usual_members(&mut self, members: &mut Members, max_fields: usize) -> Result<(), WireError> {
        members.code = self.int()?;
        if self.literal(b",\"extFields\":") {
            members.fields = self.fields(max_fields)?;
        }
        if self.literal(b",\"flag\":") {
            members.flag = self.int()?;
        }
        // Java, which is there already.
        self.literal(b",\"language\":\"JAVA\"");
        if self.literal(b",\"opaque\":") {
            members.opaque = self.int()?;
        }
        if self.literal(b",\"remark\":") {
            members.remark = self.text()?;
        }
        self.literal(b",\"serializeTypeCurrentRPC\":\"JSON\"");
        if self.literal(b",\"version\":") {
            members.version = self.int()?;
        }
        Ok(())
    }

    /// A name, or the number that the binary form would carry; null is no known language.
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
        self.space();
        let start = self.at();
        self.open(b'{', "an object")?;
        let mut entries = Vec::new();
        while let Some(key) = self.member()? {
            let value = if self.peek() == Some(b'"') {
                self.string(b'"')?
            } else if let Some(value) = self.text()? {
                value
            } else {
                continue;
            };
            if entries.is_empty() {
                entries.reserve(USUAL_FIELDS);
            }
            if entries.len() >= max_fields {
                return Err(WireError::TooManyFields { limit: max_fields });
            }
            entries.push(Entry {
                key: key.since(start),
                value: value.since(start),
            });
        }
        let span = self.span(start, self.at())?;
        Ok(Some(Pairs { span, entries }))
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
        let mut separator: &[u8] = b"\"";
        for (key, value) in command.fields.iter() {
            out.extend_from_slice(separator);
            push_escaped(key, out);
            out.extend_from_slice(b"\":\"");
            push_escaped(value, out);
            separator = b"\",\"";
        }
        out.extend_from_slice(if command.fields.is_empty() { b"}" } else { b"\"}" });
    }
    out.extend_from_slice(b",\"flag\":");
    push_i32(command.flag, out);
    out.extend_from_slice(b",\"language\":\"");
    out.extend_from_slice(command.language.name().as_bytes());
    out.extend_from_slice(b"\",\"opaque\":");
    push_i32(command.opaque, out);
    if let Some(remark) = remark {
        out.extend_from_slice(b",\"remark\":\"");
        push_escaped(remark, out);
        out.push(b'"');
    }
    out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    push_i32(command.version, out);
    out.push(b'}');
}
