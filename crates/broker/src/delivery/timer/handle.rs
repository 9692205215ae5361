//! The handle with which a sender recalls a timer message (Apache `RecallMessageHandle`).
//!
//! URL-safe base64 with padding of `v1 topic brokerName timestamp uniqueKey`. The timestamp is one more than the
//! message's step, so that rounding it down gives the same step.

use crate::message::base64::{decode, encode};

/// The content of a handle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) topic: String,
    pub(crate) broker: String,
    pub(crate) time: String,
    pub(crate) unique_key: String,
}

impl Handle {
    /// Encodes the handle of a message that waits for a step.
    pub(crate) fn write(topic: &str, broker: &str, step_ms: i64, unique_key: &str) -> String {
        encode(format!("v1 {topic} {broker} {} {unique_key}", step_ms + 1).as_bytes())
    }

    /// Decodes a handle; `None` if it is invalid.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let text = String::from_utf8(decode(text)?).ok()?;
        let mut parts = text.split(' ').map(str::to_owned);
        if parts.next()? != "v1" {
            return None;
        }
        Some(Self {
            topic: parts.next()?,
            broker: parts.next()?,
            time: parts.next()?,
            unique_key: parts.next().filter(|key| !key.is_empty())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_comes_back_as_it_was_written() {
        let text = Handle::write("Orders", "broker-a", 1_893_456_000_000, "0A1B");
        assert_eq!(text, "djEgT3JkZXJzIGJyb2tlci1hIDE4OTM0NTYwMDAwMDEgMEExQg==");
        let handle = Handle {
            topic: "Orders".to_owned(),
            broker: "broker-a".to_owned(),
            time: "1893456000001".to_owned(),
            unique_key: "0A1B".to_owned(),
        };
        assert_eq!(Handle::read(&text).as_ref(), Some(&handle));
        assert_eq!(Handle::read(text.trim_end_matches('=')), Some(handle));
    }

    #[test]
    fn what_is_no_handle_is_none() {
        let short = encode(b"v1 a b 1");
        let other = encode(b"v2 a b 1 c");
        for text in [
            "",
            "=",
            "====",
            "A",
            "a b",
            "\u{e4}",
            &short,
            &other,
            &encode(b"v1 a b 1 "),
        ] {
            assert_eq!(Handle::read(text), None, "{text}");
        }
    }
}
