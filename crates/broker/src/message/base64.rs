//! Base64: the URL-safe form (recall handles) and the standard one (acknowledgements).

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes in the URL-safe form with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
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

/// Decodes both forms, with or without padding; `None` for invalid text.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if digits.len() % 4 == 1 || (padding > 0 && !text.len().is_multiple_of(4)) || padding > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in digits.bytes() {
        let byte = match byte {
            b'+' => b'-',
            b'/' => b'_',
            byte => byte,
        };
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
    fn every_length_and_byte_survives() {
        for length in 1..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|at| at.wrapping_mul(37) ^ length).collect();
            assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }

    #[test]
    fn the_standard_form_is_read_too() {
        assert_eq!(decode("+/8="), decode("-_8="));
        assert_eq!(decode("+/8="), Some(vec![0xfb, 0xff]));
        for text in ["A", "A B=", "AA=A", "AAA==", "\u{e4}"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
