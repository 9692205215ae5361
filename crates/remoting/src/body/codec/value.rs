//! How Rust values are read from and written to JSON, and the macro that builds typed bodies from them. Reading is as
//! lenient as fastjson: missing and null members get the default, unknown ones are ignored or kept, numbers may be
//! quoted.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::body::codec::json::{Json, Key};
use crate::body::codec::write::Writer;
use crate::command::Language;
use crate::error::WireError;
use std::collections::{BTreeMap, BTreeSet};

/// A type that a JSON value can have.
pub trait BodyValue: Sized {
    /// Reads a value that is not null. `what` is the member's name, for errors.
    fn read(json: Json, what: &'static str) -> Result<Self, WireError>;
    /// Writes the value.
    fn write(&self, writer: &mut Writer);
    /// Whether the member is omitted.
    fn is_absent(&self) -> bool {
        false
    }
}

/// A type that a member's name can have.
pub trait BodyKey: Ord + Sized {
    /// Reads a name.
    fn read(key: Key, what: &'static str) -> Result<Self, WireError>;
    /// Writes the name and its colon.
    fn write(&self, writer: &mut Writer);
}

/// The error for a value of the wrong kind.
pub(crate) fn wrong(field: &'static str, expected: &'static str, json: &Json) -> WireError {
    let value = match json {
        Json::Array(_) => "an array".into(),
        Json::Object(_) => "an object".into(),
        Json::Str(text) => text.chars().take(64).collect(),
        other => String::from_utf8_lossy(&other.to_bytes(crate::body::Style::PLAIN)).into_owned(),
    };
    WireError::BadField {
        field,
        expected,
        value,
    }
}

impl BodyValue for String {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        match json {
            Json::Str(text) => Ok(text),
            Json::Int(number) => Ok(number.to_string()),
            Json::Bool(value) => Ok(value.to_string()),
            other => Err(wrong(what, "text", &other)),
        }
    }
    fn write(&self, writer: &mut Writer) {
        writer.string(self);
    }
}

impl BodyValue for bool {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        match json {
            Json::Bool(value) => Ok(value),
            Json::Int(number) => Ok(number != 0),
            Json::Str(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Json::Str(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            other => Err(wrong(what, "true or false", &other)),
        }
    }
    fn write(&self, writer: &mut Writer) {
        writer.bool(*self);
    }
}

impl BodyValue for i64 {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        json.as_i64().ok_or_else(|| wrong(what, "a 64 bit number", &json))
    }
    fn write(&self, writer: &mut Writer) {
        writer.int(*self);
    }
}

impl BodyValue for i32 {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        json.as_i64()
            .and_then(|number| Self::try_from(number).ok())
            .ok_or_else(|| wrong(what, "a 32 bit number", &json))
    }
    fn write(&self, writer: &mut Writer) {
        writer.int((*self).into());
    }
}

impl BodyValue for f64 {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        match json {
            Json::Float(number) => Ok(number),
            // Statistics are small; above 2^53 a whole number loses its last digits, as in Java.
            #[expect(clippy::cast_precision_loss, reason = "Java widens the same way")]
            Json::Int(number) => Ok(number as Self),
            other => Err(wrong(what, "a number", &other)),
        }
    }
    fn write(&self, writer: &mut Writer) {
        writer.float(*self);
    }
}

impl BodyValue for Json {
    fn read(json: Json, _what: &'static str) -> Result<Self, WireError> {
        Ok(json)
    }
    fn write(&self, writer: &mut Writer) {
        Self::write(self, writer);
    }
    fn is_absent(&self) -> bool {
        *self == Self::Null
    }
}

impl BodyValue for Language {
    fn read(json: Json, _what: &'static str) -> Result<Self, WireError> {
        Ok(json.as_str().map_or(Self::Unknown, Self::from_name))
    }
    fn write(&self, writer: &mut Writer) {
        writer.string(self.name());
    }
}

impl<T: BodyValue> BodyValue for Option<T> {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        match json {
            Json::Null => Ok(None),
            other => T::read(other, what).map(Some),
        }
    }
    fn write(&self, writer: &mut Writer) {
        match self {
            Some(value) => value.write(writer),
            None => writer.null(),
        }
    }
    fn is_absent(&self) -> bool {
        self.as_ref().is_none_or(BodyValue::is_absent)
    }
}

fn elements<T: BodyValue, C: FromIterator<T>>(json: Json, what: &'static str) -> Result<C, WireError> {
    match json {
        Json::Array(values) => values
            .into_iter()
            .filter(|value| *value != Json::Null)
            .map(|value| T::read(value, what))
            .collect(),
        other => Err(wrong(what, "an array", &other)),
    }
}

fn write_elements<'a, T: BodyValue + 'a>(values: impl Iterator<Item = &'a T>, writer: &mut Writer) {
    writer.open_array();
    for value in values {
        writer.element();
        value.write(writer);
    }
    writer.close_array();
}

impl<T: BodyValue> BodyValue for Vec<T> {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        elements(json, what)
    }
    fn write(&self, writer: &mut Writer) {
        write_elements(self.iter(), writer);
    }
}

impl<T: BodyValue + Ord> BodyValue for BTreeSet<T> {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        elements(json, what)
    }
    fn write(&self, writer: &mut Writer) {
        write_elements(self.iter(), writer);
    }
}

/// Members with null values are omitted, as in fastjson.
impl<K: BodyKey, V: BodyValue> BodyValue for BTreeMap<K, V> {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        match json {
            Json::Object(members) => members
                .into_iter()
                .filter(|(_, value)| *value != Json::Null)
                .map(|(key, value)| Ok((K::read(key, what)?, V::read(value, what)?)))
                .collect(),
            other => Err(wrong(what, "an object", &other)),
        }
    }
    fn write(&self, writer: &mut Writer) {
        writer.open_object();
        for (key, value) in self {
            if !value.is_absent() {
                key.write(writer);
                value.write(writer);
            }
        }
        writer.close_object();
    }
}

impl BodyKey for String {
    fn read(key: Key, what: &'static str) -> Result<Self, WireError> {
        match key {
            Key::Str(text) => Ok(text),
            Key::Int(number) => Ok(number.to_string()),
            Key::Object(members) => Err(wrong(what, "text", &Json::Object(members))),
        }
    }
    fn write(&self, writer: &mut Writer) {
        writer.name(self);
    }
}

macro_rules! integer_keys {
    ($($type:ty, $expected:literal;)*) => {$(
        impl BodyKey for $type {
            fn read(key: Key, what: &'static str) -> Result<Self, WireError> {
                let json = match key {
                    Key::Str(text) => Json::Str(text),
                    Key::Int(number) => Json::Int(number),
                    Key::Object(members) => Json::Object(members),
                };
                <$type as BodyValue>::read(json, what)
            }
            fn write(&self, writer: &mut Writer) {
                writer.int_name((*self).into());
            }
        }
    )*};
}

integer_keys! {
    i32, "a 32 bit number";
    i64, "a 64 bit number";
}

/// Declares typed bodies: field name, type, wire name and, unless it is the type's own, the default. Members are
/// written in the order of declaration, which for Apache's is alphabetical. After the wire name, other names from older
/// versions may follow; they are read but never written. `..name` at the end declares a field that keeps unnamed
/// members; without it they are ignored.
macro_rules! body {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident : $type:ty => $key:literal $(| $old:literal)* $(= $default:expr)?,)*
        $(..$unknown:ident)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
            $(
                /// Members that this version does not know.
                pub $unknown: $crate::body::UnknownMembers,
            )?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::body::codec::value::default_of!($($default)?),)*
                    $($unknown: $crate::body::UnknownMembers::default(),)?
                }
            }
        }

        impl $crate::body::BodyValue for $name {
            fn read(json: $crate::body::Json, what: &'static str) -> Result<Self, $crate::WireError> {
                let $crate::body::Json::Object(members) = json else {
                    return Err($crate::body::codec::value::wrong(what, "an object", &json));
                };
                let mut body = Self::default();
                for (key, value) in members {
                    let $crate::body::Key::Str(key) = key else { continue };
                    match key.as_str() {
                        $($key $(| $old)* => $crate::body::codec::value::set(&mut body.$field, value, $key)?,)*
                        _ => {
                            $(body.$unknown.push(key, value);)?
                        }
                    }
                }
                Ok(body)
            }
            fn write(&self, writer: &mut $crate::body::Writer) {
                writer.open_object();
                let unknown = $crate::body::codec::value::unknown_of!($(self.$unknown)?);
                $(
                    let unknown = $crate::body::codec::unknown::write_before(unknown, $key, writer);
                    if !$crate::body::BodyValue::is_absent(&self.$field) {
                        writer.name($key);
                        $crate::body::BodyValue::write(&self.$field, writer);
                    }
                )*
                $crate::body::codec::unknown::write_all(unknown, writer);
                writer.close_object();
            }
        }

        impl $crate::body::Body for $name {}
    )*};
}

/// Reads a member into its field. Null keeps the default.
pub(crate) fn set<T: BodyValue>(field: &mut T, json: Json, what: &'static str) -> Result<(), WireError> {
    if json != Json::Null {
        *field = T::read(json, what)?;
    }
    Ok(())
}

macro_rules! unknown_of {
    () => {
        &[]
    };
    ($members:expr) => {
        $members.as_slice()
    };
}

macro_rules! default_of {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default.into()
    };
}

/// Declares an enum with Apache's names. The first variant is the default and stands for unknown names.
macro_rules! names {
    ($($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident => $text:literal,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// Every variant, the default first.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Apache's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// From Apache's name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                let [first, ..] = [$(Self::$variant,)*];
                first
            }
        }

        impl $crate::body::BodyValue for $name {
            fn read(json: $crate::body::Json, _what: &'static str) -> Result<Self, $crate::WireError> {
                Ok(json.as_str().and_then(Self::from_name).unwrap_or_default())
            }
            fn write(&self, writer: &mut $crate::body::Writer) {
                writer.string(self.name());
            }
        }
    )*};
}

pub(crate) use {body, default_of, names, unknown_of};
