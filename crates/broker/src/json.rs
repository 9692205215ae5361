//! Bodies as trees: short names for building and reading them.
//!
//! The tables below `config/` keep members that this version does not know as trees, and admin bodies are built once
//! per question; both are clearer as trees than as one structure each.

use crate::error::Refusal;
use pyrmq_remoting::body::{Key, Style};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::{Command, WireError};
use std::borrow::Cow;

pub(crate) use pyrmq_remoting::body::Json;

/// Values that references in a body may bring in.
const REFERENCED: usize = 100_000;

/// Looking into a tree: what is not there, or of another kind, is `None` or empty.
pub(crate) trait Read {
    /// The text of a member.
    fn text(&self, key: &str) -> Option<&str>;
    /// The number of a member, also when it stands there as text.
    fn number(&self, key: &str) -> Option<i64>;
    /// The flag of a member.
    fn flag(&self, key: &str) -> Option<bool>;
    /// The values of a member that is an array.
    fn list(&self, key: &str) -> std::slice::Iter<'_, Json>;
    /// Names and values of an object; names that are objects are left out.
    fn members(&self) -> impl Iterator<Item = (Cow<'_, str>, &Json)>;
}

impl Read for Json {
    fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    fn number(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Self::Bool(flag) => Some(*flag),
            Self::Str(text) => Some(text.eq_ignore_ascii_case("true")),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> std::slice::Iter<'_, Json> {
        self.get(key).and_then(Json::as_array).unwrap_or_default().iter()
    }

    fn members(&self) -> impl Iterator<Item = (Cow<'_, str>, &Json)> {
        let members = self.as_object().unwrap_or_default();
        members.iter().filter_map(|(key, value)| match key {
            Key::Str(name) => Some((Cow::Borrowed(name.as_str()), value)),
            Key::Int(number) => Some((Cow::Owned(number.to_string()), value)),
            Key::Object(_) => None,
        })
    }
}

/// Reads a tree.
pub(crate) fn parse(text: &[u8]) -> Result<Json, WireError> {
    let mut tree = Json::parse(text)?;
    tree.resolve(REFERENCED);
    Ok(tree)
}

/// Reads a request's body, which must be there.
pub(crate) fn read_body(request: &Command) -> Result<Json, Refusal> {
    let missing = || Refusal::new(response::INVALID_PARAMETER, "the request has no body");
    Ok(parse(request.body.as_deref().ok_or_else(missing)?)?)
}

/// An object of a bean's members, which fastjson sorts: the caller names them in order.
pub(crate) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Json)>) -> Json {
    let named = fields
        .into_iter()
        .map(|(name, value)| (Key::Str(name.to_owned()), value));
    Json::Object(named.collect())
}

/// An object whose names are data.
pub(crate) fn table(entries: impl IntoIterator<Item = (String, Json)>) -> Json {
    Json::Object(
        entries
            .into_iter()
            .map(|(name, value)| (Key::Str(name), value))
            .collect(),
    )
}

/// An object whose names are objects, as fastjson writes maps of message queues.
pub(crate) fn keyed_by_objects(entries: impl IntoIterator<Item = (Json, Json)>) -> Json {
    let keyed = entries.into_iter().filter_map(|(name, value)| match name {
        Json::Object(members) => Some((Key::Object(members), value)),
        _ => None,
    });
    Json::Object(keyed.collect())
}

/// An object whose names are numbers, which fastjson writes bare.
pub(crate) fn keyed_by_numbers(entries: impl IntoIterator<Item = (i64, Json)>) -> Json {
    Json::Object(
        entries
            .into_iter()
            .map(|(name, value)| (Key::Int(name), value))
            .collect(),
    )
}

/// An array.
pub(crate) fn list(items: impl IntoIterator<Item = Json>) -> Json {
    Json::Array(items.into_iter().collect())
}

/// An array of texts.
pub(crate) fn texts(items: &[String]) -> Json {
    list(items.iter().map(|item| text(item)))
}

/// A text.
pub(crate) fn text(text: &str) -> Json {
    Json::Str(text.to_owned())
}

/// A whole number.
pub(crate) fn number(number: i64) -> Json {
    Json::Int(number)
}

/// A number as Java's double.
pub(crate) fn float(number: f64) -> Json {
    Json::Float(number)
}

/// A flag.
pub(crate) fn flag(flag: bool) -> Json {
    Json::Bool(flag)
}

/// Apache `MessageQueue`.
pub(crate) fn queue(topic: &str, broker: &str, id: i32) -> Json {
    object([
        ("brokerName", text(broker)),
        ("queueId", number(i64::from(id))),
        ("topic", text(topic)),
    ])
}

/// fastjson's compact form.
pub(crate) fn compact(tree: &Json) -> String {
    written(tree, Style::PLAIN)
}

/// The form of files.
pub(crate) fn pretty(tree: &Json) -> String {
    written(tree, Style::PRETTY)
}

fn written(tree: &Json, style: Style) -> String {
    // The writer is given text only, so what it writes is text.
    String::from_utf8(tree.to_bytes(style)).unwrap_or_default()
}

/// A successful answer with this body.
pub(crate) fn answer(tree: &Json) -> Command {
    Command::response(response::SUCCESS).with_body(compact(tree))
}
