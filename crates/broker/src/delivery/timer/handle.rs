//! The handle by which a sender takes a timer message back (Apache `RecallMessageHandle`).
//!
//! URL-safe base64 with padding of `v1 topic brokerName timestamp uniqueKey`; the timestamp is one more than the step
//! that the message waits for, so that it means the same step again.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What a handle says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) topic: String,
    pub(crate) broker: String,
    pub(crate) time: String,
    pub(crate) unique_key: String,
}

impl Handle {
    /// The handle of a message that waits for a step.
    pub(crate) fn write(topic: &str, broker: &str, step_ms: i64, unique_key: &str) -> String {
        encode(format!("v1 {topic} {broker} {} {unique_key}", step_ms + 1).as_bytes())
    }

    /// Reads a handle.
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

fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = (bits >> (18 - 6 * at)) & 63;
            let digit = DIGITS.get(digit as usize).copied().unwrap_or(b'A');
            out.push(if at > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if digits.is_empty()
        || digits.len() % 4 == 1
        || (padding > 0 && !text.len().is_multiple_of(4))
        || padding > 2
    {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in digits.bytes() {
        let digit = DIGITS.iter().position(|digit| *digit == byte)?;
        bits = bits << 6 | u32::try_from(digit).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xFF).ok()?);
        }
    }
    Some(out)
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
    fn every_length_and_byte_survives() {
        for length in 1..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|at| at.wrapping_mul(37) ^ length).collect();
            assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
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
            "djEg+",
            "\u{e4}",
            &short,
            &other,
            &encode(b"v1 a b 1 "),
        ] {
            assert_eq!(Handle::read(text), None, "{text}");
        }
    }
}
