//! The basis of both servers' options: one table declares each key once; reading, showing and validating follow from
//! it. Nothing is corrected silently: a value out of its range is an error that names key, value and range.

use std::fmt::Display;

/// The current state of one key, for the runtime information and the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Apache's key.
    pub key: &'static str,
    /// The current value.
    pub value: String,
    /// The value if none is set.
    pub default: String,
    /// What the number counts, or the kind of text.
    pub unit: &'static str,
    /// The allowed values, in words.
    pub range: String,
}

/// A type that a key can have.
pub trait Value: Sized + Display {
    /// Reads text without blanks around it.
    fn read(text: &str) -> Option<Self>;
    /// The value as a number, if a range can apply to it.
    fn number(&self) -> Option<i64> {
        None
    }
}

impl Value for i32 {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn number(&self) -> Option<i64> {
        Some(i64::from(*self))
    }
}

impl Value for i64 {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn number(&self) -> Option<i64> {
        Some(*self)
    }
}

impl Value for bool {
    fn read(text: &str) -> Option<Self> {
        match text {
            _ if text.eq_ignore_ascii_case("true") => Some(true),
            _ if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        }
    }
}

impl Value for String {
    fn read(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

/// Describes the allowed values of a kind. `0..=0` stands for a kind without a numeric range.
pub fn words(unit: &str, low: i64, high: i64) -> String {
    match (low, high) {
        (0, 0) if unit == "switch" => "true or false".to_owned(),
        (0, 0) => unit.to_owned(),
        (low, i64::MAX) => format!("{low} or more"),
        (low, high) => format!("{low} to {high}"),
    }
}

/// Whether a number is within its range; true for other values.
pub fn is_within(value: &impl Value, low: i64, high: i64) -> bool {
    value.number().is_none_or(|number| (low..=high).contains(&number))
}

/// Declares the options of a server: the structure, its defaults, and the functions that read, show and validate them.
///
/// Each row is `field: type = default, "key", "unit", low..=high` with `, live` where a running server may change it.
/// The error enum needs a variant `Option { key, value, range }`.
#[macro_export]
macro_rules! options {
    (
        $(#[$about:meta])*
        pub struct $name:ident, $error:ident;
        also { $($(#[$extra_meta:meta])* $extra:ident : $extra_type:ty = $extra_default:expr;)* }
        $($(#[$meta:meta])* $field:ident : $type:ty = $default:expr, $key:literal, $unit:literal, $low:literal ..= $high:expr $(, $live:ident)?;)*
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$meta])* #[doc = concat!("\n\nKey `", $key, "`, ", $unit, ".")] pub $field: $type,)*
            $($(#[$extra_meta])* pub $extra: $extra_type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($extra: $extra_default,)* }
            }
        }

        impl $name {
            /// Every key of the table, in its order.
            pub const KEYS: &'static [&'static str] = &[$($key,)*];
            /// The keys that a running server may change.
            pub const LIVE: &'static [&'static str] = &[$($($crate::options!(@key $live $key),)?)*];

            /// Sets an option. `Ok(false)`: the table does not have this key.
            pub fn set(&mut self, key: &str, value: &str) -> Result<bool, $error> {
                match key {
                    $($key => {
                        self.$field = $crate::setting::Value::read(value.trim()).ok_or_else(|| $error::Option {
                            key: $key,
                            value: value.to_owned(),
                            range: $crate::setting::words($unit, $low, $high),
                        })?;
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// Every key with its current value.
            pub fn settings(&self) -> Vec<$crate::setting::Setting> {
                let defaults = Self::default();
                vec![$($crate::setting::Setting {
                    key: $key,
                    value: self.$field.to_string(),
                    default: defaults.$field.to_string(),
                    unit: $unit,
                    range: $crate::setting::words($unit, $low, $high),
                },)*]
            }

            fn check_ranges(&self) -> Result<(), $error> {
                $(if !$crate::setting::is_within(&self.$field, $low, $high) {
                    return Err($error::Option {
                        key: $key,
                        value: self.$field.to_string(),
                        range: $crate::setting::words($unit, $low, $high),
                    });
                })*
                Ok(())
            }
        }
    };
    (@key live $key:literal) => { $key };
}
