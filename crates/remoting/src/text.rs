//! Text as fastjson writes it: decimal numbers and escaped strings, shared by headers and bodies; and addresses,
//! `host:port`.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::chunk::{CHUNK, first_escaped, push_part};

/// The case of hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Case {
    Lower,
    Upper,
}

/// The two hexadecimal digits of a byte.
pub(crate) const fn hex(byte: u8, case: Case) -> [u8; 2] {
    [digit(byte >> 4, case), digit(byte & 15, case)]
}

/// The hexadecimal digit of a number below 16.
const fn digit(number: u8, case: Case) -> u8 {
    match (number, case) {
        (0..=9, _) => b'0'.wrapping_add(number),
        (_, Case::Lower) => b'a'.wrapping_add(number.wrapping_sub(10)),
        (_, Case::Upper) => b'A'.wrapping_add(number.wrapping_sub(10)),
    }
}

/// Appends a string's content, escaped, without the quotes around it.
pub(crate) fn push_escaped(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(chunk) = rest.first_chunk() {
        let plain = first_escaped(chunk);
        push_part(chunk, plain, out);
        rest = push_next_escape(rest.get(plain..), plain < CHUNK, out);
    }
    while !rest.is_empty() {
        let mut chunk = [b' '; CHUNK];
        if let Some(place) = chunk.get_mut(..rest.len()) {
            place.copy_from_slice(rest);
        }
        let plain = first_escaped(&chunk);
        push_part(&chunk, plain.min(rest.len()), out);
        rest = push_next_escape(rest.get(plain..), true, out);
    }
}

/// Appends the escape of the first byte if it needs one, and returns the rest.
#[inline]
fn push_next_escape<'a>(rest: Option<&'a [u8]>, escape: bool, out: &mut Vec<u8>) -> &'a [u8] {
    match rest {
        Some([byte, after @ ..]) if escape => {
            push_escape(*byte, out);
            after
        }
        rest => rest.unwrap_or_default(),
    }
}

/// Appends the escape of one byte below 0x80.
pub(crate) fn push_escape(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        0x08 => out.extend_from_slice(b"\\b"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\n' => out.extend_from_slice(b"\\n"),
        0x0C => out.extend_from_slice(b"\\f"),
        b'\r' => out.extend_from_slice(b"\\r"),
        _ => {
            let [high, low] = hex(byte, Case::Lower);
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
    }
}

/// The number that four hexadecimal digits stand for.
pub(crate) fn hex4(digits: [u8; 4]) -> Option<u32> {
    let mut value = 0;
    for digit in digits {
        value = value << 4 | char::from(digit).to_digit(16)?;
    }
    Some(value)
}

/// Appends a number in decimal.
#[inline]
pub(crate) fn push_i32(value: i32, out: &mut Vec<u8>) {
    push_i64(i64::from(value), out);
}

/// Appends a number in decimal.
#[inline]
pub(crate) fn push_i64(value: i64, out: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(digit @ 0..=9) => out.push(b'0' | digit),
        _ => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
    }
}

/// Splits `host:port` at its last colon. Returns the host, an IPv6 address without its brackets, and the port; `None`
/// if a part is missing, brackets do not match or the port is not a number below 65536. The host is not checked
/// further. Port 0 is valid.
pub fn split_host_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None => host,
    };
    if host.is_empty() || host.contains(['[', ']']) || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((host, port.parse().ok()?))
}

/// Writes what [`split_host_port`] reads: a host that has colons, an IPv6 address, gets brackets.
pub fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::{join_host_port, split_host_port};

    #[test]
    fn hosts_of_every_kind_are_split_from_their_port() {
        for (address, host, port) in [
            ("broker-a:10911", "broker-a", 10911),
            ("10.0.0.5:0", "10.0.0.5", 0),
            ("[2001:db8::1]:9876", "2001:db8::1", 9876),
            ("[fe80::1%3]:65535", "fe80::1%3", 65535),
            ("::1:9876", "::1", 9876),
        ] {
            assert_eq!(split_host_port(address), Some((host, port)), "{address}");
            assert_eq!(split_host_port(&join_host_port(host, port)), Some((host, port)));
        }
        for address in [
            "", "a", ":1", "a:", "a:+1", "a:65536", "a:b", "[]:1", "[::1]", "[::1:1", "::1]:1", "[a]b:1",
            "a]:1",
        ] {
            assert_eq!(split_host_port(address), None, "{address}");
        }
    }
}
