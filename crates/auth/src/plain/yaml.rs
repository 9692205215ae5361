//! A YAML file as a tree that keeps how each scalar is written, so that a change leaves the rest as it was.
//!
//! Apache reads these files by YAML 1.1, where `yes` is a boolean and `010` is 8. A key or secret that is written so is
//! refused: it would not be the one that the operator sees.

use crate::error::AuthError;
use crate::nearest::nearest;
use saphyr::{Mapping, Scalar, ScalarStyle, Yaml, YamlEmitter, YamlLoader};
use saphyr_parser::{Event, Parser, SpannedEventReceiver};
use std::borrow::Cow;

/// Maximum depth of nested sequences and mappings; a file of accounts has four.
const DEPTH_LIMIT: usize = 32;
/// Maximum size of a file in bytes: some 100,000 accounts.
const SIZE_LIMIT: usize = 16 << 20;

/// The mapping of a file; empty if the file is.
pub(crate) fn read(text: &[u8]) -> Result<Mapping<'_>, AuthError> {
    if text.len() > SIZE_LIMIT {
        return Err(AuthError::Yaml(format!("it has more than {SIZE_LIMIT} bytes")));
    }
    let text = std::str::from_utf8(text).map_err(|error| AuthError::Yaml(error.to_string()))?;
    let mut loader = YamlLoader::<Yaml<'_>>::default();
    loader.early_parse(false);
    let mut depth = 0_usize;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| AuthError::Yaml(error.to_string()))?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_LIMIT {
            return Err(AuthError::Yaml(format!("it is nested deeper than {DEPTH_LIMIT}")));
        }
        loader.on_event(event, span);
        if let Some(error) = loader.error() {
            return Err(AuthError::Yaml(error.to_string()));
        }
    }
    let mut documents = loader.into_documents();
    let document = documents.pop();
    match document {
        _ if !documents.is_empty() => Err(AuthError::Yaml("it has several documents".to_owned())),
        None => Ok(Mapping::new()),
        Some(node) if is_null(&node) => Ok(Mapping::new()),
        Some(Yaml::Mapping(mapping)) => Ok(mapping),
        Some(_) => Err(AuthError::Yaml("it does not begin with `key:`".to_owned())),
    }
}

/// The text of a file. Comments are gone, as after Apache's own changes.
pub(crate) fn write(mapping: Mapping<'_>) -> Vec<u8> {
    let mut text = String::new();
    let mut emitter = YamlEmitter::new(&mut text);
    // Apache's YAML 1.1 sees more words as something else than the emitter does.
    emitter.quoted_value(true);
    emitter.compact(true);
    // A string takes all that is written to it.
    let written = emitter.dump(&settled(Yaml::Mapping(mapping)));
    debug_assert!(written.is_ok(), "a tree without text that cannot be written");
    let mut text = text.strip_prefix("---\n").unwrap_or(&text).to_owned();
    text.push('\n');
    text.into_bytes()
}

/// Turns quoted scalars into strings, which the emitter quotes again; plain ones stay as they are written.
fn settled(node: Yaml<'_>) -> Yaml<'_> {
    match node {
        Yaml::Representation(text, style, _) if style != ScalarStyle::Plain => {
            Yaml::Value(Scalar::String(text))
        }
        Yaml::Sequence(items) => Yaml::Sequence(items.into_iter().map(settled).collect()),
        Yaml::Mapping(pairs) => {
            let pairs = pairs
                .into_iter()
                .map(|(key, value)| (settled(key), settled(value)));
            Yaml::Mapping(pairs.collect())
        }
        Yaml::Tagged(tag, node) => Yaml::Tagged(tag, Box::new(settled(*node))),
        other => other,
    }
}

/// A string to put into a tree.
pub(crate) fn string(text: &str) -> Yaml<'static> {
    Yaml::Value(Scalar::String(Cow::Owned(text.to_owned())))
}

/// A key as the file writes it.
fn key_text<'n>(key: &'n Yaml<'_>) -> &'n str {
    match key {
        Yaml::Representation(text, ..) | Yaml::Value(Scalar::String(text)) => text,
        _ => "",
    }
}

/// Returns the value of a key.
pub(crate) fn get<'n, 'y>(mapping: &'n Mapping<'y>, key: &str) -> Option<&'n Yaml<'y>> {
    mapping
        .iter()
        .find(|(known, _)| key_text(known) == key)
        .map(|(_, value)| value)
}

/// Returns the value of a key, which the caller may change.
pub(crate) fn get_mut<'n, 'y>(mapping: &'n mut Mapping<'y>, key: &str) -> Option<&'n mut Yaml<'y>> {
    mapping
        .iter_mut()
        .find(|(known, _)| key_text(known) == key)
        .map(|(_, value)| value)
}

/// Sets the value of a key; a new key comes last.
pub(crate) fn set<'y>(mapping: &mut Mapping<'y>, key: &str, value: Yaml<'y>) {
    if let Some(old) = get_mut(mapping, key) {
        *old = value;
    } else {
        let key = Yaml::Representation(Cow::Owned(key.to_owned()), ScalarStyle::Plain, None);
        mapping.insert(key, value);
    }
}

/// Whether a scalar is empty, `~` or `null`.
pub(crate) fn is_null(node: &Yaml<'_>) -> bool {
    match node {
        Yaml::Representation(text, ScalarStyle::Plain, None) => {
            matches!(&**text, "" | "~" | "null" | "Null" | "NULL")
        }
        Yaml::Value(Scalar::Null) => true,
        _ => false,
    }
}

/// The text of a scalar; `None`: there is none, or it is null.
pub(crate) fn text<'n>(
    mapping: &'n Mapping<'_>,
    key: &str,
    context: &str,
) -> Result<Option<&'n str>, AuthError> {
    get(mapping, key).map_or(Ok(None), |node| scalar(node, key, context))
}

/// Returns the text of an item; `None` if it is null.
pub(crate) fn scalar<'n>(node: &'n Yaml<'_>, key: &str, context: &str) -> Result<Option<&'n str>, AuthError> {
    match node {
        node if is_null(node) => Ok(None),
        Yaml::Representation(text, ..) | Yaml::Value(Scalar::String(text)) => Ok(Some(text)),
        _ => Err(wrong(key, context, "a list or mapping", "give one word")),
    }
}

/// Returns the text of a scalar that YAML 1.1 would not read as another value; `None` if it is missing or null.
pub(crate) fn literal<'n>(
    mapping: &'n Mapping<'_>,
    key: &str,
    context: &str,
) -> Result<Option<&'n str>, AuthError> {
    let node = get(mapping, key);
    match node {
        Some(node) if is_null(node) => Ok(None),
        Some(Yaml::Representation(text, ScalarStyle::Plain, None)) if is_something_else(text) => {
            let expected = "put it into quotes: without them it is a number, a date or a boolean to YAML";
            Err(wrong(key, context, "unquoted", expected))
        }
        _ => text(mapping, key, context),
    }
}

/// Whether YAML 1.1 reads a plain scalar as a value that is written differently.
fn is_something_else(text: &str) -> bool {
    const WORDS: [&str; 6] = ["true", "false", "yes", "no", "on", "off"];
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(text) && (text == "0" || !text.starts_with('0')) {
        return false;
    }
    let bare = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = bare.split_once(['e', 'E']).unwrap_or((bare, "0"));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let all = |text: &str, rest: &[u8]| {
        let mut bytes = text.bytes();
        text.contains(|letter: char| letter.is_ascii_hexdigit())
            && bytes.all(|byte| byte.is_ascii_digit() || rest.contains(&byte))
    };
    WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
        || [".inf", ".nan"]
            .iter()
            .any(|word| word.eq_ignore_ascii_case(bare))
        || (digits(exponent) && all(mantissa, b"_.:-"))
        || bare
            .strip_prefix("0x")
            .is_some_and(|hex| all(hex, b"_abcdefABCDEF"))
        || bare.strip_prefix("0b").is_some_and(|bits| all(bits, b"_"))
        || is_time(text)
}

/// `2026-01-31` and what may follow it.
fn is_time(text: &str) -> bool {
    let in_time = |byte: u8| byte.is_ascii_digit() || b"-:. TtZ+".contains(&byte);
    text.bytes().all(in_time)
        && text.split('-').next().is_some_and(|year| year.len() == 4)
        && text.contains('-')
}

/// A boolean, as YAML 1.1 writes it; false if there is none.
pub(crate) fn boolean(mapping: &Mapping<'_>, key: &str, context: &str) -> Result<bool, AuthError> {
    let text = text(mapping, key, context)?.unwrap_or("false");
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err(wrong(key, context, text, "give true or false")),
    }
}

/// The items of a list; none if there is none.
pub(crate) fn items<'n, 'y>(
    mapping: &'n Mapping<'y>,
    key: &str,
    context: &str,
) -> Result<&'n [Yaml<'y>], AuthError> {
    match get(mapping, key) {
        None => Ok(&[]),
        Some(node) if is_null(node) => Ok(&[]),
        Some(Yaml::Sequence(items)) => Ok(items),
        Some(_) => Err(wrong(
            key,
            context,
            "not a list",
            "give a list: each item in a line that begins with `- `",
        )),
    }
}

/// Refuses keys that resemble a known one. Others are returned: Apache ignores and keeps them, too.
pub(crate) fn unknown(
    mapping: &Mapping<'_>,
    known: &[&'static str],
    context: &str,
) -> Result<Vec<String>, AuthError> {
    let mut others = Vec::new();
    for (key, _) in mapping {
        let key = key_text(key);
        if known.contains(&key) {
            continue;
        }
        if let Some(nearest) = nearest(key, known) {
            return Err(AuthError::Misspelt {
                key: key.to_owned(),
                context: context.to_owned(),
                nearest,
            });
        }
        others.push(format!("`{key}` in {context}"));
    }
    Ok(others)
}

/// An error about a value.
pub(crate) fn wrong(key: &str, context: &str, value: &str, expected: &'static str) -> AuthError {
    AuthError::Value {
        what: format!("`{key}` in {context}"),
        value: value.to_owned(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_that_yaml_1_1_reads_differently_are_known() {
        for text in [
            "012345",
            "0x1f",
            "0b101",
            "1_000",
            "1.5",
            "1e3",
            "12:30:45",
            "2026-01-31",
            "yes",
            "Off",
            "true",
            ".inf",
            "-7",
            "+1.2e-3",
        ] {
            assert!(is_something_else(text), "{text}");
        }
        for text in [
            "12345678",
            "RocketMQ",
            "4f3a9c",
            "1e",
            "0xfoo",
            "yesterday",
            "a-b",
            "2026-key",
            "",
            "-",
            "e5",
            "0x",
            "0b",
            "12345678901234567890123",
        ] {
            assert!(!is_something_else(text), "{text}");
        }
    }

    #[test]
    fn deep_and_endless_files_are_refused() {
        let deep = "- ".repeat(100_000);
        assert!(matches!(read(deep.as_bytes()), Err(AuthError::Yaml(_))));
        let deep = "[".repeat(100_000);
        assert!(matches!(read(deep.as_bytes()), Err(AuthError::Yaml(_))));
        let doubled = (1..30).map(|at| format!("a{at}: &a{at} [*a{0}, *a{0}]\n", at - 1));
        let bomb = ["a0: &a0 [x, x]\n".to_owned()]
            .into_iter()
            .chain(doubled)
            .collect::<String>();
        assert!(matches!(read(bomb.as_bytes()), Err(AuthError::Yaml(_))));
    }
}
