//! Frames (Apache `NettyDecoder`, `RemotingCommand.decode`).
//!
//! ```text
//! offset 0  4  total length, counts everything after itself
//! offset 4  1  serialize type: 0 JSON, 1 ROCKETMQ
//! offset 5  3  header length, unsigned
//! offset 8  h  header
//! 8 + h     .. body, to the end of the frame
//! ```

use crate::command::Command;
use crate::error::WireError;
use bytes::BytesMut;

/// Caps that the decoder holds; a peer can never make it allocate more.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one frame including the length word. Apache: 16 777 216.
    pub frame_bytes: usize,
    /// Bytes of one header.
    pub header_bytes: usize,
    /// Number of header fields.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 * 1024 * 1024,
            header_bytes: 1024 * 1024,
            fields: 1024,
        }
    }
}

/// Takes the next whole frame off the front of `input`. `Ok(None)`: more bytes are needed (and nothing is consumed).
/// The body is a slice of `input`'s own memory, not a copy.
pub fn decode(input: &mut BytesMut, limits: &Limits) -> Result<Option<Command>, WireError> {
    let _ = (input, limits);
    Err(WireError::FrameLength { length: 0 })
}

/// Appends everything of a frame but its body: length word, header word, header. The caller writes
/// `command.body` behind it, so that a body is never copied.
pub fn encode_head(command: &Command, out: &mut Vec<u8>) -> Result<(), WireError> {
    let _ = (command, out);
    Err(WireError::FrameLength { length: 0 })
}

/// The whole frame in one buffer: for tests, tools and small commands.
pub fn encode(command: &Command) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    encode_head(command, &mut out)?;
    out.extend_from_slice(command.body.as_deref().unwrap_or_default());
    Ok(out)
}
