//! The header structures: typed views of [`Fields`], one family a file.
//!
//! A structure borrows its text from the fields it was read from. Reading is lenient as Apache's is: unknown keys are
//! ignored; a missing required field is an error that the server answers, never a crash.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

pub mod binary;
pub mod json;
mod scan;
mod value;

pub use value::FieldValue;

use crate::fields::Fields;

/// A header structure that can be written into fields.
pub trait EncodeHeader {
    /// Appends this structure's fields; absent options are left out.
    fn encode(&self, fields: &mut Fields);
}

/// Declares header structures: field name, type and wire key. Types: `&'a str`, `i32`, `i64`, `bool` (required) and
/// `Option` of each.
///
/// ```
/// pyrmq_remoting::header! {
///     /// Asks for the largest offset of a queue (Apache `GetMaxOffsetRequestHeader`).
///     pub struct MaxOffsetRequest<'a> {
///         /// Topic name.
///         pub topic: &'a str => "topic",
///         /// Queue number.
///         pub queue_id: i32 => "queueId",
///     }
/// }
/// ```
#[macro_export]
macro_rules! header {
    ($($(#[$meta:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_meta:meta])* pub $field:ident : $type:ty => $key:literal,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name $(<$life>)? {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// Reads the structure out of a header's fields.
            pub fn decode(fields: & $($life)? $crate::Fields) -> Result<Self, $crate::WireError> {
                Ok(Self { $($field: $crate::header::FieldValue::read(fields.get($key), $key)?,)* })
            }
        }

        impl $(<$life>)? $crate::header::EncodeHeader for $name $(<$life>)? {
            fn encode(&self, fields: &mut $crate::Fields) {
                $($crate::header::FieldValue::write(&self.$field, $key, fields);)*
            }
        }
    )*};
}
