//! A quick hash for maps by topic: each message of `produce` looks its topic up twice. Seeded, so that nobody who has
//! his wish in names can make them collide.

use std::hash::{BuildHasher, Hasher, RandomState};

/// An odd number whose bits are half set, far apart.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Makes hashers that agree with each other, not with those of other maps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    seed: u64,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            seed: RandomState::new().hash_one(SPREAD),
        }
    }
}

impl BuildHasher for Names {
    type Hasher = NameHasher;

    fn build_hasher(&self) -> NameHasher {
        NameHasher { state: self.seed }
    }
}

/// Multiplies eight bytes at a time and folds both halves of the product.
#[derive(Debug)]
pub(super) struct NameHasher {
    state: u64,
}

impl NameHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.state ^ word).wrapping_mul(u128::from(SPREAD));
        let (low, high) = (product & u128::from(u64::MAX), product >> 64);
        // Both halves fit.
        self.state = u64::try_from(low ^ high).unwrap_or(0).rotate_left(23);
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        // The length tells a short name from one with zeros behind it.
        self.mix(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    fn write_i32(&mut self, number: i32) {
        self.mix(u64::from(number.cast_unsigned()));
    }

    fn write_isize(&mut self, number: isize) {
        self.mix(number.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}
