//! Message properties in their wire form (Apache `MessageDecoder.string2messageProperties`).
//!
//! ```text
//! name 0x01 value 0x02 name 0x01 value 0x02 ...
//! ```
//! The reader is as lenient as Apache's: the last 0x02 may be missing; a piece is dropped if it is shorter than three
//! bytes, or has no 0x01, no name or no value. A pair that is not UTF-8 is dropped, too. Nothing here builds a map:
//! look-ups, appends and removals work on the encoded text.

use crate::error::WireError;
use std::borrow::Cow;

/// Ends a name.
pub const NAME_END: u8 = 1;
/// Ends a value.
pub const VALUE_END: u8 = 2;
/// Separates the keys in `KEYS`.
pub const KEY_SEPARATOR: char = ' ';
/// Maximum bytes of properties in a record (a signed 16-bit length).
pub const MAX_BYTES: usize = 32767;

/// The names that RocketMQ itself uses; a user's property must have another name.
pub mod names {
    macro_rules! reserved {
        ($($constant:ident = $text:literal,)*) => {
            $(#[doc = concat!("`", $text, "`")] pub const $constant: &str = $text;)*
            /// All names.
            pub const ALL: &[&str] = &[$($text),*];
        };
    }
    reserved! {
        KEYS = "KEYS",
        TAGS = "TAGS",
        WAIT = "WAIT",
        DELAY = "DELAY",
        RETRY_TOPIC = "RETRY_TOPIC",
        REAL_TOPIC = "REAL_TOPIC",
        REAL_QID = "REAL_QID",
        TRAN_MSG = "TRAN_MSG",
        PGROUP = "PGROUP",
        MIN_OFFSET = "MIN_OFFSET",
        MAX_OFFSET = "MAX_OFFSET",
        BUYER_ID = "BUYER_ID",
        ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID",
        ORIGIN_GROUP = "ORIGIN_GROUP",
        TRANSFER_FLAG = "TRANSFER_FLAG",
        CORRECTION_FLAG = "CORRECTION_FLAG",
        MQ2_FLAG = "MQ2_FLAG",
        RECONSUME_TIME = "RECONSUME_TIME",
        MSG_REGION = "MSG_REGION",
        TRACE_ON = "TRACE_ON",
        UNIQ_KEY = "UNIQ_KEY",
        EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO",
        MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES",
        CONSUME_START_TIME = "CONSUME_START_TIME",
        INNER_NUM = "INNER_NUM",
        INNER_BASE = "INNER_BASE",
        DUP_INFO = "DUP_INFO",
        CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS",
        TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET",
        TRANSACTION_ID = "__transactionId__",
        TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES",
        INSTANCE_ID = "INSTANCE_ID",
        CORRELATION_ID = "CORRELATION_ID",
        REPLY_TO_CLIENT = "REPLY_TO_CLIENT",
        TTL = "TTL",
        ARRIVE_TIME = "ARRIVE_TIME",
        PUSH_REPLY_TIME = "PUSH_REPLY_TIME",
        CLUSTER = "CLUSTER",
        MSG_TYPE = "MSG_TYPE",
        POP_CK = "POP_CK",
        POP_CK_OFFSET = "POP_CK_OFFSET",
        FIRST_POP_TIME = "1ST_POP_TIME",
        SHARDINGKEY = "__SHARDINGKEY",
        REDIRECT = "REDIRECT",
        INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH",
        INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET",
        TRACE_CONTEXT = "TRACE_CONTEXT",
        TIMER_DELAY_SEC = "TIMER_DELAY_SEC",
        TIMER_DELAY_MS = "TIMER_DELAY_MS",
        TIMER_DELIVER_MS = "TIMER_DELIVER_MS",
        TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS",
        TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS",
        TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES",
        TIMER_OUT_MS = "TIMER_OUT_MS",
        TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY",
        TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL",
        BORN_HOST = "__BORNHOST",
        BORN_TIMESTAMP = "BORN_TIMESTAMP",
        DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC",
        DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID",
        CRC32 = "__CRC32#",
    }
}

/// The bytes before a unique id that is the first property of a message.
pub const BEFORE_ID: &str = "UNIQ_KEY\u{1}";
/// The byte after a unique id that is the first property. `WAIT=true`, which Java's clients write next, says nothing: a
/// message without it waits for the store, too (Apache `Message.isWaitStoreMsgOK`).
pub const AFTER_ID: &str = "\u{2}";
/// The property by which a sender does not wait for the disk.
pub const WAIT_FALSE: &str = "WAIT\u{1}false\u{2}";

/// Whether `name` belongs to RocketMQ.
pub fn is_reserved(name: &str) -> bool {
    names::ALL.contains(&name)
}

/// A view of properties in wire form. Reading never fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct Properties<'a> {
    bytes: &'a [u8],
}

impl<'a> Properties<'a> {
    /// A view of text.
    pub const fn new(text: &'a str) -> Self {
        Self {
            bytes: text.as_bytes(),
        }
    }

    /// A view of received bytes.
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The bytes as received.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The text as received; an error if it is not UTF-8.
    pub fn as_str(&self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes).map_err(|_| WireError::Utf8 { what: "properties" })
    }

    /// All pairs that a reader keeps, in order.
    pub fn iter(&self) -> Iter<'a> {
        Iter { left: self.bytes }
    }

    /// The value of a name. If a name occurs twice, the last value counts, as in Apache's map.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let mut found = None;
        for piece in (Pieces { left: self.bytes }) {
            let Some((key, value)) = pair(piece) else { continue };
            if key == name.as_bytes() {
                found = std::str::from_utf8(value).ok().or(found);
            }
        }
        found
    }

    /// Several values in one pass: `found[i]` is the value of `wanted[i]`.
    pub fn get_many<const N: usize>(&self, wanted: [&str; N]) -> [Option<&'a str>; N] {
        let mut found = [None; N];
        for piece in (Pieces { left: self.bytes }) {
            let Some((key, value)) = pair(piece) else { continue };
            for (name, slot) in wanted.iter().zip(found.iter_mut()) {
                if key == name.as_bytes() {
                    *slot = std::str::from_utf8(value).ok().or(*slot);
                }
            }
        }
        found
    }
}

impl<'a> IntoIterator for Properties<'a> {
    type Item = (&'a str, &'a str);
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Properties<'a> {
    type Item = (&'a str, &'a str);
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterator over the pairs.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);
    fn next(&mut self) -> Option<Self::Item> {
        let mut pieces = Pieces { left: self.left };
        let found = pieces.find_map(|piece| {
            let (name, value) = pair(piece)?;
            Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
        });
        self.left = pieces.left;
        found
    }
}

/// The pieces between the ends of values.
struct Pieces<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left.is_empty() {
            return None;
        }
        let at = self.left.iter().position(|byte| *byte == VALUE_END);
        let (piece, left) = match at.and_then(|at| self.left.split_at_checked(at)) {
            Some((piece, rest)) => (piece, rest.get(1..).unwrap_or_default()),
            None => (self.left, [].as_slice()),
        };
        self.left = left;
        Some(piece)
    }
}

/// Name and value of a valid piece.
fn pair(piece: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = piece.iter().position(|byte| *byte == NAME_END)?;
    let (name, rest) = piece.split_at_checked(at)?;
    let value = rest.get(1..)?;
    if name.is_empty() || value.is_empty() {
        return None;
    }
    Some((name, value))
}

/// Appends one pair. A pair with an empty value is omitted, since readers would drop it.
pub fn append(text: &mut String, name: &str, value: &str) {
    if value.is_empty() || name.is_empty() {
        return;
    }
    if !text.is_empty() && !text.ends_with(char::from(VALUE_END)) {
        text.push(char::from(VALUE_END));
    }
    text.reserve(name.len() + value.len() + 2);
    text.push_str(name);
    text.push(char::from(NAME_END));
    text.push_str(value);
    text.push(char::from(VALUE_END));
}

/// The text without pairs of this name; borrowed if there are none.
pub fn remove<'a>(text: &'a str, name: &str) -> Cow<'a, str> {
    remove_all(text, &[name])
}

/// The text without pairs of these names; borrowed if there are none.
pub fn remove_all<'a>(text: &'a str, unwanted: &[&str]) -> Cow<'a, str> {
    let is_unwanted = |piece: &str| {
        piece
            .split_once(char::from(NAME_END))
            .is_some_and(|(key, _)| unwanted.contains(&key))
    };
    if !text.split(char::from(VALUE_END)).any(is_unwanted) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    for piece in text.split_inclusive(char::from(VALUE_END)) {
        if !is_unwanted(piece) {
            kept.push_str(piece);
        }
    }
    Cow::Owned(kept)
}

/// Sets a name to one value, replacing all its pairs.
pub fn set(text: &mut String, name: &str, value: &str) {
    if let Cow::Owned(kept) = remove(text, name) {
        *text = kept;
    }
    append(text, name, value);
}
