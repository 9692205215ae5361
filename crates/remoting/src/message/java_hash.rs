//! Java's `String.hashCode`, on which tag codes and the key index are based.
//!
//! The hash runs over UTF-16 units with 32-bit overflow: `h = 31 * h + unit`.

/// 31 to the power of 0 to 8, with 32-bit overflow.
const POWERS: [i32; 9] = [
    1,
    31,
    31_i32.wrapping_pow(2),
    31_i32.wrapping_pow(3),
    31_i32.wrapping_pow(4),
    31_i32.wrapping_pow(5),
    31_i32.wrapping_pow(6),
    31_i32.wrapping_pow(7),
    31_i32.wrapping_pow(8),
];
/// Texts below this length are hashed byte by byte.
const FEW: usize = 4;
/// The high bit of each byte: ASCII has none.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The hash of eight ASCII characters, the first in the lowest byte. One multiplication combines all neighbouring
/// pairs, first to 16 and then to 32 bits, which no sum exceeds. A leading zero byte adds nothing, so fewer characters
/// are placed in the upper bytes.
const fn of_eight(eight: u64) -> i32 {
    const EVEN_8: u64 = 0x00FF_00FF_00FF_00FF;
    const EVEN_16: u64 = 0x0000_FFFF_0000_FFFF;
    let pairs = (eight & EVEN_8) * 31 + (eight >> 8 & EVEN_8);
    let fours = (pairs & EVEN_16) * (31 * 31) + (pairs >> 16 & EVEN_16);
    let [f0, f1, f2, f3, s0, s1, s2, s3] = fours.to_le_bytes();
    let (first, second) = (
        i32::from_le_bytes([f0, f1, f2, f3]),
        i32::from_le_bytes([s0, s1, s2, s3]),
    );
    first.wrapping_mul(POWERS[4]).wrapping_add(second)
}

/// A running hash, so that `topic#key` is hashed without building that string.
#[derive(Debug, Clone, Copy, Default)]
pub struct JavaHash(i32);

impl JavaHash {
    /// The hash of the empty string.
    pub const fn new() -> Self {
        Self(0)
    }

    /// The hash of the text so far, followed by `text`.
    #[inline]
    #[must_use]
    pub fn then(self, text: &str) -> Self {
        // Tags, and the text between topic and key, are so short that single steps are faster than building a block.
        if text.len() < FEW && text.is_ascii() {
            return Self(text.bytes().fold(self.0, |hash, byte| {
                hash.wrapping_mul(31).wrapping_add(i32::from(byte))
            }));
        }
        self.then_many(text)
    }

    fn then_many(self, text: &str) -> Self {
        let (eights, rest) = text.as_bytes().as_chunks::<8>();
        let (mut hash, mut seen) = (self.0, 0);
        for eight in eights {
            let eight = u64::from_le_bytes(*eight);
            seen |= eight;
            hash = hash.wrapping_mul(POWERS[8]).wrapping_add(of_eight(eight));
        }
        if !rest.is_empty() {
            let last = rest
                .iter()
                .fold(0, |last, byte| last >> 8 | u64::from(*byte) << 56);
            seen |= last;
            let power = POWERS.get(rest.len()).copied().unwrap_or_default();
            hash = hash.wrapping_mul(power).wrapping_add(of_eight(last));
        }
        if seen & HIGH_BITS != 0 {
            hash = text.encode_utf16().fold(self.0, |hash, unit| {
                hash.wrapping_mul(31).wrapping_add(i32::from(unit))
            });
        }
        Self(hash)
    }

    /// The number.
    pub const fn value(self) -> i32 {
        self.0
    }
}

/// `text.hashCode()`.
pub fn hash(text: &str) -> i32 {
    JavaHash::new().then(text).value()
}

/// The consume queue's code of a message's `TAGS` property: 0 without tags, otherwise the sign-extended hash. The text
/// is not trimmed: Apache trims a consumer's expression, but not a message's tag.
pub fn tags_code(tags: Option<&str>) -> i64 {
    match tags {
        Some(tags) if !tags.is_empty() => i64::from(hash(tags)),
        _ => 0,
    }
}
