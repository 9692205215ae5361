//! Numbers in texts, as Java's `Integer.valueOf`, `Long.valueOf` and `Double.valueOf` read them.

use std::cmp::Ordering;

/// The zeros of the scripts whose digits Java takes in integers (`Character.digit`); nine more follow each.
const ZEROS: [u32; 36] = [
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0DE6,
    0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0,
    0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10,
];

/// Reads an optional sign and digits, nothing else, as a 64-bit integer.
pub(super) fn long(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() {
        return None;
    }
    // The negative range has one more number.
    let below = digits.chars().try_fold(0_i64, |value, character| {
        value.checked_mul(10)?.checked_sub(digit(character)?)
    })?;
    if negative {
        Some(below)
    } else {
        below.checked_neg()
    }
}

/// Reads an integer that must fit 32 bits.
pub(super) fn int(text: &str) -> Option<i32> {
    i32::try_from(long(text)?).ok()
}

fn digit(character: char) -> Option<i64> {
    if let Some(digit) = character.to_digit(10) {
        return Some(digit.into());
    }
    let code = u32::from(character);
    let zero = ZEROS.iter().rev().find(|zero| **zero <= code)?;
    Some(i64::from(code - zero)).filter(|digit| *digit < 10)
}

/// Reads a decimal or hexadecimal floating point number, `NaN` or `Infinity`, with blanks around it.
pub(super) fn double(text: &str) -> Option<f64> {
    let text = text.trim_matches(|character| character <= ' ');
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match unsigned {
        "NaN" => return Some(f64::NAN),
        "Infinity" => f64::INFINITY,
        _ if unsigned.starts_with("0x") || unsigned.starts_with("0X") => hexadecimal(unsigned.get(2..)?)?,
        _ => decimal(unsigned)?,
    };
    Some(if negative { -value } else { value })
}

/// Compares doubles as Java does: negative zero is less than zero, NaN is greater than all others and equal to itself.
pub(super) fn compare(left: f64, right: f64) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => left.total_cmp(&right),
    }
}

fn decimal(text: &str) -> Option<f64> {
    let text = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let mantissa = text.split(['e', 'E']).next()?;
    let has_digit = mantissa.bytes().any(|byte| byte.is_ascii_digit());
    let is_plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    // Rust reads these numbers too, but also some words. A sign is allowed only before the exponent.
    if !has_digit || mantissa.contains(['+', '-']) || !text.bytes().all(is_plain) {
        return None;
    }
    text.parse().ok()
}

/// Reads `digits.digits p exponent`, without the `0x`.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let exponent = exponent.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(exponent);
    let power = exponent_of(exponent)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Keeps at least the highest 60 bits. Whether any lower bit is set decides how a half is rounded.
    let (mut bits, mut scale, mut below) = (0_u64, power, false);
    for (digits, is_whole) in [(whole, true), (fraction, false)] {
        for character in digits.chars() {
            let digit = character.to_digit(16)?;
            if bits >> 59 == 0 {
                bits = bits << 4 | u64::from(digit);
                scale -= if is_whole { 0 } else { 4 };
            } else {
                below |= digit != 0;
                scale += if is_whole { 4 } else { 0 };
            }
        }
    }
    Some(scaled(bits, scale, below))
}

/// Reads the exponent of a hexadecimal number. One that is out of range stays out of range.
fn exponent_of(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value = digits.bytes().fold(0_i64, |value, byte| {
        value
            .saturating_mul(10)
            .saturating_add(i64::from(byte - b'0'))
            .min(1 << 40)
    });
    Some(if negative { -value } else { value })
}

/// Returns `bits * 2^scale`, plus a little if `below` is set, rounded to the nearest double.
fn scaled(bits: u64, scale: i64, below: bool) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    let free = bits.leading_zeros();
    let (bits, scale) = (bits << free | u64::from(below), scale - i64::from(free));
    // The value is at least 2^top, and less than twice that.
    let top = scale + 63;
    if top > 1023 {
        return f64::INFINITY;
    }
    // Subnormal numbers have fewer than 53 digits.
    let kept = (top + 1075).min(53);
    let Ok(dropped) = u32::try_from(64 - kept.max(-1)) else {
        return 0.0;
    };
    let (bits, half) = (u128::from(bits), 1_u128 << (dropped - 1));
    let (mut value, rest) = (bits >> dropped, bits & ((half << 1) - 1));
    if rest > half || (rest == half && value & 1 == 1) {
        value += 1;
    }
    power_of_two(scale + i64::from(dropped)) * small(value)
}

/// Converts a number of at most 54 bits.
fn small(value: u128) -> f64 {
    let low = u32::try_from(value & 0xFFFF_FFFF).unwrap_or_default();
    let high = u32::try_from(value >> 32).unwrap_or_default();
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

/// Returns `2^power`; 0 below the smallest double.
fn power_of_two(power: i64) -> f64 {
    let bits = match power {
        -1022..=1023 => u64::try_from(power + 1023).unwrap_or_default() << 52,
        -1074..=-1023 => 1_u64 << (power + 1074),
        _ => 0,
    };
    f64::from_bits(bits)
}

/// Returns the double nearest to an integer.
#[expect(
    clippy::cast_precision_loss,
    reason = "Java's comparison of a long and a double loses the same digits"
)]
pub(super) fn nearest(value: i64) -> f64 {
    value as f64
}
