//! A quick hash for maps by topic, address or code, in which something is looked up for each message. Seeded, so that nobody
//! who has his wish in names can make them collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map by such keys.
pub type NameMap<K, V> = HashMap<K, V, NameState>;

/// An odd number whose bits are half set, far apart.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Makes hashers that agree with each other, not with those of other maps.
#[derive(Debug, Clone, Copy)]
pub struct NameState {
    seed: u64,
}

impl Default for NameState {
    fn default() -> Self {
        Self {
            seed: RandomState::new().hash_one(SPREAD),
        }
    }
}

impl BuildHasher for NameState {
    type Hasher = NameHasher;

    fn build_hasher(&self) -> NameHasher {
        NameHasher { state: self.seed }
    }
}

/// Multiplies eight bytes at a time and folds both halves of the product.
#[derive(Debug)]
pub struct NameHasher {
    state: u64,
}

impl NameHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.state ^ word).wrapping_mul(u128::from(SPREAD));
        let (low, high) = (product & u128::from(u64::MAX), product >> 64);
        // Both halves fit.
        self.state = u64::try_from(low ^ high).unwrap_or(0).rotate_left(23);
    }
}

impl Hasher for NameHasher {
    #[inline]
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

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    #[inline]
    fn write_i32(&mut self, number: i32) {
        self.mix(u64::from(number.cast_unsigned()));
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.mix(number.cast_unsigned() as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn spread(names: impl Iterator<Item = String>) -> (usize, usize, usize) {
        let build = NameState::default();
        let (mut count, mut low, mut high) = (0, HashSet::new(), HashSet::new());
        for name in names {
            let hash = build.hash_one(name.as_str());
            count += 1;
            low.insert(hash & 0xFFF);
            high.insert(hash >> 52);
        }
        (count, low.len(), high.len())
    }

    #[test]
    fn names_that_are_alike_are_spread_over_both_ends() {
        let ports = (0..4096).map(|port| format!("10.0.0.1:{}", 10_000 + port));
        let topics = (0..4096).map(|number| format!("orders-of-some-customer-{number:04}"));
        for (count, low, high) in [spread(ports), spread(topics)] {
            assert_eq!(count, 4096);
            // By chance 63 % of the places are taken.
            assert!(low > 2000 && high > 2000, "{low} {high}");
        }
    }

    #[test]
    fn equal_names_are_equal_and_prefixes_are_not() {
        let build = NameState::default();
        let hash = |name: &str| build.hash_one(name);
        let hashes: HashSet<u64> = (0..40).map(|length| hash(&"a".repeat(length))).collect();
        assert_eq!(hashes.len(), 40);
        assert_eq!(hash("topic"), hash(&["to", "pic"].concat()));
    }
}
