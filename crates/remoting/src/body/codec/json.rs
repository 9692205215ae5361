//! A lenient JSON tree for bodies, which also reads what fastjson writes but standard parsers refuse.
//!
//! ```text
//! {0:"a"}                          bare integer member names
//! {{"brokerName":"b",...}:1}       objects as member names
//! {'a':1,}                         single quotes, trailing commas
//! {"$ref":"$.path"}                fastjson 1.x writes it for an object that came before; see [`Json::resolve`]
//! ```
//! Depth and number of values are capped, so that a small text cannot become a large tree.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::body::codec::write::{Style, Writer};
use crate::error::WireError;
use crate::scan::Scan;

/// Maximum nesting that the reader follows. Apache's own bodies stay below ten.
const DEPTH: usize = 64;
/// Maximum number of values in any body; a smaller body may have one for every three bytes.
const VALUES: usize = 2_000_000;

/// One JSON value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Json {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without fraction that fits 64 bits.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Str(String),
    /// Values in order.
    Array(Vec<Json>),
    /// Members in the order they came.
    Object(Vec<(Key, Json)>),
}

/// The name of a member.
#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    /// A quoted name.
    Str(String),
    /// A bare number, as fastjson writes integer map keys.
    Int(i64),
    /// An object, as fastjson writes maps whose keys are message queues.
    Object(Vec<(Key, Json)>),
}

impl Json {
    /// Reads one value with nothing after it.
    pub fn parse(text: &[u8]) -> Result<Self, WireError> {
        std::str::from_utf8(text).map_err(|_| WireError::Utf8 { what: "JSON" })?;
        let mut reader = Reader {
            scan: Scan::new(text),
            values: text.len().div_euclid(3).saturating_add(64).min(VALUES),
        };
        let value = reader.value(DEPTH)?;
        reader.scan.end()?;
        Ok(value)
    }

    /// The last member with this quoted name.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        members
            .iter()
            .rev()
            .find(|(key, _)| matches!(key, Key::Str(text) if text == name))
            .map(|(_, value)| value)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The number, also when it is written as text.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Str(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// An array's values.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }

    /// An object's members.
    pub fn as_object(&self) -> Option<&[(Key, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The text in a style.
    pub fn to_bytes(&self, style: Style) -> Vec<u8> {
        let mut writer = Writer::new(style);
        self.write(&mut writer);
        writer.finish()
    }

    /// Writes the value.
    pub fn write(&self, writer: &mut Writer) {
        match self {
            Self::Null => writer.null(),
            Self::Bool(value) => writer.bool(*value),
            Self::Int(value) => writer.int(*value),
            Self::Float(value) => writer.float(*value),
            Self::Str(value) => writer.string(value),
            Self::Array(values) => {
                writer.open_array();
                for value in values {
                    writer.element();
                    value.write(writer);
                }
                writer.close_array();
            }
            Self::Object(members) => write_members(members, writer),
        }
    }

    /// Replaces each `{"$ref":"$.a.b[0]"}` by a copy of what it points to. A reference to nothing, to itself or to
    /// another reference is kept, and so is every reference once the copies would hold more than `values` values.
    pub fn resolve(&mut self, values: usize) {
        if !self.has_reference() {
            return;
        }
        let root = self.clone();
        let mut left = values;
        self.replace_references(&root, &mut left);
    }

    fn reference(&self) -> Option<&str> {
        match self {
            Self::Object(members) => match members.as_slice() {
                [(Key::Str(name), Self::Str(path))] if name == "$ref" => Some(path),
                _ => None,
            },
            _ => None,
        }
    }

    fn children(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        match self {
            Self::Array(values) => Box::new(values.iter()),
            Self::Object(members) => Box::new(members.iter().map(|(_, value)| value)),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn has_reference(&self) -> bool {
        self.reference().is_some() || self.children().any(Self::has_reference)
    }

    fn count(&self) -> usize {
        self.children().map(Self::count).fold(1, usize::saturating_add)
    }

    fn replace_references(&mut self, root: &Self, left: &mut usize) {
        if let Some(target) = self.reference().and_then(|path| root.at(path)) {
            let count = target.count();
            if !target.has_reference() && count <= *left {
                *left = left.saturating_sub(count);
                *self = target.clone();
            }
            return;
        }
        match self {
            Self::Array(values) => values
                .iter_mut()
                .for_each(|value| value.replace_references(root, left)),
            Self::Object(members) => members
                .iter_mut()
                .for_each(|(_, value)| value.replace_references(root, left)),
            _ => {}
        }
    }

    /// Follows `$.name.name[0]`.
    fn at(&self, path: &str) -> Option<&Self> {
        let mut value = self;
        let steps = path.strip_prefix('$')?;
        for step in steps.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
            value = match value {
                Self::Array(values) => values.get(step.parse::<usize>().ok()?)?,
                _ => value.get(step)?,
            };
        }
        Some(value)
    }
}

fn write_members(members: &[(Key, Json)], writer: &mut Writer) {
    writer.open_object();
    for (key, value) in members {
        match key {
            Key::Str(name) => writer.name(name),
            Key::Int(number) => writer.int_name(*number),
            Key::Object(members) => {
                writer.element();
                write_members(members, writer);
                writer.colon();
            }
        }
        value.write(writer);
    }
    writer.close_object();
}

/// A scan that limits how many values it builds.
struct Reader<'a> {
    scan: Scan<'a>,
    values: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Json, WireError> {
        self.values = self
            .values
            .checked_sub(1)
            .ok_or_else(|| self.scan.bad("fewer values"))?;
        self.scan.space();
        match self.scan.peek() {
            Some(b'{') => self.members(depth).map(Json::Object),
            Some(b'[') => self.array(depth),
            Some(quote @ (b'"' | b'\'')) => {
                let span = self.scan.string(quote)?;
                self.scan.take(span).map(Json::Str)
            }
            _ => self.literal(),
        }
    }

    fn literal(&mut self) -> Result<Json, WireError> {
        let bad = self.scan.bad("a value");
        let token = self.scan.token()?;
        Ok(match token {
            b"null" => Json::Null,
            b"true" => Json::Bool(true),
            b"false" => Json::Bool(false),
            number => {
                let text = std::str::from_utf8(number).unwrap_or_default();
                // Words such as `inf` would read as numbers.
                if !text.starts_with(['-', '+', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
                    return Err(bad);
                }
                if let Ok(number) = text.parse() {
                    Json::Int(number)
                } else {
                    Json::Float(text.parse().map_err(|_| bad)?)
                }
            }
        })
    }

    fn array(&mut self, depth: usize) -> Result<Json, WireError> {
        let depth = self.deeper(depth)?;
        let mut values = Vec::new();
        loop {
            self.scan.space();
            match self.scan.peek() {
                Some(b',') => self.scan.step(1),
                Some(b']') => {
                    self.scan.step(1);
                    return Ok(Json::Array(values));
                }
                _ => values.push(self.value(depth)?),
            }
        }
    }

    fn members(&mut self, depth: usize) -> Result<Vec<(Key, Json)>, WireError> {
        let depth = self.deeper(depth)?;
        let mut members = Vec::new();
        loop {
            self.scan.space();
            let key = match self.scan.peek() {
                Some(b',') => {
                    self.scan.step(1);
                    continue;
                }
                Some(b'}') => {
                    self.scan.step(1);
                    return Ok(members);
                }
                Some(b'{') => Key::Object(self.members(depth)?),
                Some(quote @ (b'"' | b'\'')) => {
                    let span = self.scan.string(quote)?;
                    Key::Str(self.scan.take(span)?)
                }
                _ => match self.literal()? {
                    Json::Int(number) => Key::Int(number),
                    _ => return Err(self.scan.bad("a name")),
                },
            };
            self.scan.space();
            if self.scan.peek() != Some(b':') {
                return Err(self.scan.bad("a colon"));
            }
            self.scan.step(1);
            let value = self.value(depth)?;
            members.push((key, value));
        }
    }

    /// Reads an opening bracket and checks the depth below it.
    fn deeper(&mut self, depth: usize) -> Result<usize, WireError> {
        let left = depth
            .checked_sub(1)
            .ok_or_else(|| self.scan.bad("fewer levels"))?;
        self.scan.step(1);
        Ok(left)
    }
}
