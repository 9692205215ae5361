//! Frames built and read by hand, without the codec under test.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Builds a frame with this header text and body; type 0 is JSON, 1 is ROCKETMQ.
pub fn raw(serialize_type: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let header_length = u32::try_from(header.len()).unwrap_or(u32::MAX) & 0x00ff_ffff;
    let total = u32::try_from(4 + header.len() + body.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(8 + header.len() + body.len());
    frame.extend_from_slice(&total.to_be_bytes());
    frame.extend_from_slice(&((u32::from(serialize_type) << 24) | header_length).to_be_bytes());
    frame.extend_from_slice(header);
    frame.extend_from_slice(body);
    frame
}

/// Builds a JSON request as a Java client of this version writes it.
pub fn request(code: i32, opaque: i32, flag: i32, version: i32, body: &[u8]) -> Vec<u8> {
    let header = format!(
        r#"{{"code":{code},"flag":{flag},"language":"JAVA","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{version}}}"#
    );
    raw(0, header.as_bytes(), body)
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// Serialize type byte.
    pub serialize_type: u8,
    /// Header bytes.
    pub header: Vec<u8>,
    /// Body bytes.
    pub body: Vec<u8>,
}

impl Raw {
    /// Returns a number member of a JSON header; `None` if it is missing.
    pub fn number(&self, key: &str) -> Option<i64> {
        let text = String::from_utf8_lossy(&self.header);
        let (_, after) = text.split_once(&format!("\"{key}\":"))?;
        let end = after
            .find(|c: char| !(c.is_ascii_digit() || c == '-'))
            .unwrap_or(after.len());
        after.get(..end)?.parse().ok()
    }

    /// Returns the response code (or request code).
    pub fn code(&self) -> Option<i64> {
        self.number("code")
    }

    /// Returns the header as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.header).into_owned()
    }
}

/// Reads one frame.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Raw> {
    let total = stream.read_u32().await? as usize;
    let word = stream.read_u32().await?;
    let header_length = (word & 0x00ff_ffff) as usize;
    let short = || io::Error::new(io::ErrorKind::InvalidData, "header longer than its frame");
    let body_length = total.checked_sub(4 + header_length).ok_or_else(short)?;
    let mut header = vec![0; header_length];
    stream.read_exact(&mut header).await?;
    let mut body = vec![0; body_length];
    stream.read_exact(&mut body).await?;
    let [serialize_type, ..] = word.to_be_bytes();
    Ok(Raw {
        serialize_type,
        header,
        body,
    })
}
