//! Java's `String.hashCode`, which tag codes and the key index are made of.
//!
//! The hash runs over UTF-16 units with 32 bit overflow: `h = 31 * h + unit`.

/// 31 to the power of 8, with 32 bit overflow.
const POWER_8: i32 = 31_i32.wrapping_pow(8);
/// 31 to the power of 7 down to 0.
const POWERS: [i32; 8] = [
    31_i32.wrapping_pow(7),
    31_i32.wrapping_pow(6),
    31_i32.wrapping_pow(5),
    31_i32.wrapping_pow(4),
    31_i32.wrapping_pow(3),
    31_i32.wrapping_pow(2),
    31,
    1,
];

/// A running hash, so that `topic#key` is hashed without being put together.
#[derive(Debug, Clone, Copy, Default)]
pub struct JavaHash(i32);

impl JavaHash {
    /// The hash of the empty string.
    pub const fn new() -> Self {
        Self(0)
    }

    /// The hash of what came so far followed by `text`.
    #[must_use]
    pub fn then(self, text: &str) -> Self {
        let mut hash = self.0;
        if text.is_ascii() {
            // Eight at a time: their products do not wait for one another, as 31 times the hash so far would.
            let (eights, rest) = text.as_bytes().as_chunks::<8>();
            for eight in eights {
                let terms = eight.iter().zip(POWERS);
                let sum = terms.fold(0_i32, |sum, (byte, power)| {
                    sum.wrapping_add(i32::from(*byte).wrapping_mul(power))
                });
                hash = hash.wrapping_mul(POWER_8).wrapping_add(sum);
            }
            for byte in rest {
                hash = hash.wrapping_mul(31).wrapping_add(i32::from(*byte));
            }
        } else {
            for unit in text.encode_utf16() {
                hash = hash.wrapping_mul(31).wrapping_add(i32::from(unit));
            }
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

/// The consume queue's code of a message's `TAGS` property: 0 without tags, else the hash widened with its sign.
/// Taken of the text as it stands: Apache trims a consumer's expression, not a message's tag.
pub fn tags_code(tags: Option<&str>) -> i64 {
    match tags {
        Some(tags) if !tags.is_empty() => i64::from(hash(tags)),
        _ => 0,
    }
}
