//! The header structures: typed views of [`Fields`](crate::Fields), one family per file. `codec/` reads and
//! writes them with the rest of a frame's head.
//!
//! A structure borrows its text from the fields that it was read from. Reading is as lenient as Apache: unknown keys
//! are ignored, and a missing required field is an error for the server to answer, never a crash.
//!
//! A structure that no other crate names belongs to a request that Python serves: its handlers read fields by name
//! (`docs/decisions/0010-fields-in-python-handlers.md`), and a test holds those names to the structures.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

pub mod admin;
pub mod auth;
pub mod back;
pub mod client;
pub(crate) mod codec;
pub mod group;
pub mod kv;
pub mod offset;
pub mod pop;
pub mod pull;
pub mod query;
pub mod registration;
pub mod reply;
pub mod route;
pub mod send;
pub mod topic;
pub mod transaction;
pub mod unserved;

pub use crate::fields::EncodeHeader;
pub use admin::*;
pub use auth::*;
pub use back::*;
pub use client::*;
pub use codec::address_sets::{
    ADVERTISED_ADDRESSES, MAX_SETS, SetAddress, SetAddressError, read_address_sets,
};
pub use codec::head::{Head, HeadWriter, SharedFields};
pub use codec::value::{FieldSink, FieldValue};
pub use codec::{binary, json};
pub use group::*;
pub use kv::*;
pub use offset::*;
pub use pop::*;
pub use pull::*;
pub use query::*;
pub use registration::*;
pub use reply::*;
pub use route::*;
pub use send::*;
pub use topic::*;
pub use transaction::*;

/// Bytes that a field's key and value usually take together.
#[doc(hidden)]
pub const USUAL_PAIR: usize = 24;

/// Combines a key's length, first two bytes and last byte into a number on which a reader branches, instead of
/// comparing the key with each name.
#[doc(hidden)]
#[inline]
pub const fn tag(key: &str) -> u32 {
    let bytes = key.as_bytes();
    let [length, ..] = bytes.len().to_le_bytes();
    match bytes {
        [] => 0,
        [only] => u32::from_le_bytes([length, *only, 0, 0]),
        [first, last] => u32::from_le_bytes([length, *first, 0, *last]),
        [first, second, .., last] => u32::from_le_bytes([length, *first, *second, *last]),
    }
}

/// Declares header structures: field name, type and wire key. Types: `&'a str`, `i32`, `i64` (required), `bool` (false
/// if missing, like a Java primitive) and `Option` of each, which is `None` if the text is missing or not of its type.
/// `or` after the key sets the value of a required field that is missing or not of its type, for requests that Apache's
/// servers accept without it. Reading takes one pass over the fields.
///
/// ```
/// pyrmq_remoting::header! {
///     /// Asks about a queue.
///     pub struct QueueRequestHeader<'a> {
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
        $($(#[$field_meta:meta])* pub $field:ident : $type:ty => $key:literal $(or $default:expr)?,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name $(<$life>)? {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// Reads the structure out of a header's fields.
            pub fn decode(fields: & $($life)? $crate::Fields) -> Result<Self, $crate::WireError> {
                struct Tag;
                #[expect(non_upper_case_globals, reason = "named as the fields are")]
                impl Tag {
                    $(const $field: u32 = $crate::header::tag($key);)*
                }
                $(let mut $field = None;)*
                for (key, value) in fields.iter() {
                    match $crate::header::tag(key) {
                        $(Tag::$field if key == $key => $field = Some(value),)*
                        _ => {}
                    }
                }
                Ok(Self {
                    $($field: $crate::header::FieldValue::read($field, $key)
                        $(.or(Ok::<_, $crate::WireError>($default)))? ?,)*
                })
            }
        }

        impl $(<$life>)? $crate::header::EncodeHeader for $name $(<$life>)? {
            fn encode(&self, fields: &mut $crate::Fields) {
                // Apache writes an empty object for a structure whose fields are all absent.
                fields.set_present();
                let count = [$($key),*].len();
                fields.reserve(count, count.saturating_mul($crate::header::USUAL_PAIR));
                $($crate::header::FieldValue::write(&self.$field, $key, fields);)*
            }
        }
    )*};
}
