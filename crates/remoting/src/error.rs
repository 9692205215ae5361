//! What can be wrong with a peer's bytes, or with a value that is to be sent. None of it is a reason to panic.

use thiserror::Error;

/// A frame, header, body or record that does not follow the format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The length field of a frame is negative or leaves no room for the header word.
    #[error("frame length out of range: {length}")]
    FrameLength {
        /// The length field as received.
        length: i32,
    },
    /// The frame is longer than the reader allows.
    #[error("frame of {length} bytes is over the limit of {limit} bytes")]
    FrameTooLarge {
        /// Bytes that the peer announced.
        length: usize,
        /// The reader's cap.
        limit: usize,
    },
    /// The header does not fit into its frame.
    #[error("header of {header} bytes is longer than its frame of {frame} bytes")]
    HeaderLength {
        /// Announced header length.
        header: usize,
        /// Bytes that the frame has.
        frame: usize,
    },
    /// The header is longer than the reader allows.
    #[error("header of {length} bytes is over the limit of {limit} bytes")]
    HeaderTooLarge {
        /// Announced header length.
        length: usize,
        /// The reader's cap.
        limit: usize,
    },
    /// The serialize type byte is neither JSON (0) nor ROCKETMQ (1).
    #[error("unknown serialize type: {0}")]
    SerializeType(u8),
    /// More header fields than the reader allows.
    #[error("header has more than {limit} fields")]
    TooManyFields {
        /// The reader's cap.
        limit: usize,
    },
    /// Bytes end before the value does.
    #[error("{what} is cut off: {needed} bytes needed, {left} left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes the value needs.
        needed: usize,
        /// Bytes there are.
        left: usize,
    },
    /// A length inside a value is negative or beyond what its container holds.
    #[error("{what} has an impossible length: {length}")]
    Length {
        /// What was being read.
        what: &'static str,
        /// The length as received.
        length: i64,
    },
    /// Text that is not UTF-8.
    #[error("{what} is not valid UTF-8")]
    Utf8 {
        /// What was being read.
        what: &'static str,
    },
    /// JSON that cannot be read, even leniently.
    #[error("bad JSON at byte {at}: {reason}")]
    Json {
        /// Byte offset into the text.
        at: usize,
        /// What was expected.
        reason: &'static str,
    },
    /// A required header or body field is missing.
    #[error("missing field: {0}")]
    MissingField(&'static str),
    /// A field's text cannot be read as its type.
    #[error("field `{field}` is not {expected}: {value}")]
    BadField {
        /// The field's wire name.
        field: &'static str,
        /// What it should be, such as "a 32 bit number".
        expected: &'static str,
        /// The text, cut to a readable length.
        value: String,
    },
    /// A record or batch item with a magic number that is not RocketMQ's.
    #[error("wrong magic number in {what}: {magic:#010x}")]
    Magic {
        /// What was being read.
        what: &'static str,
        /// The number as received.
        magic: u32,
    },
    /// A checksum that does not match.
    #[error("checksum of {what} is {actual:#010x}, expected {expected:#010x}")]
    Checksum {
        /// What was checked.
        what: &'static str,
        /// The stored checksum.
        expected: u32,
        /// The computed checksum.
        actual: u32,
    },
    /// A value that is too large for its field on the wire.
    #[error("{what} is too large for the wire: {length} bytes, limit {limit}")]
    TooLarge {
        /// What was being written.
        what: &'static str,
        /// Length of the value.
        length: usize,
        /// The maximum that the format can hold.
        limit: usize,
    },
    /// A number that does not fit its field on the wire.
    #[error("{what} does not fit the wire: {value}, limit {limit}")]
    OutOfRange {
        /// What was being written.
        what: &'static str,
        /// The number.
        value: i64,
        /// The maximum that the format can hold.
        limit: i64,
    },
    /// Compressed data that cannot be read, or expands beyond the limit.
    #[error("cannot decompress {what}: {reason}")]
    Compression {
        /// What was compressed.
        what: &'static str,
        /// The decompressor's reason.
        reason: String,
    },
}
