//! A quick hash for names that no stranger chooses: the addresses and topics that a client itself looks up for each
//! message. Whoever may choose many names could make them collide; tables of such names keep the standard library's.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Fibonacci hashing: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A map by such names.
pub type NameMap<K, V> = HashMap<K, V, BuildHasherDefault<NameHasher>>;

/// Eight bytes a step.
#[derive(Debug, Default, Clone, Copy)]
pub struct NameHasher(u64);

impl NameHasher {
    #[inline]
    fn step(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }
}

impl Hasher for NameHasher {
    #[inline]
    fn finish(&self) -> u64 {
        // A product's low bits depend on few bits; tables look at both ends.
        self.0.rotate_left(32) ^ self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.step(u64::from_le_bytes(*word));
        }
        let last = rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte));
        if !rest.is_empty() {
            self.step(last);
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.step(byte.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    fn spread(names: impl Iterator<Item = String>) -> (usize, usize, usize) {
        let build = BuildHasherDefault::<NameHasher>::default();
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
        let build = BuildHasherDefault::<NameHasher>::default();
        let hash = |name: &str| build.hash_one(name);
        let hashes: HashSet<u64> = (0..40).map(|length| hash(&"a".repeat(length))).collect();
        assert_eq!(hashes.len(), 40);
        assert_eq!(hash("topic"), hash(&["to", "pic"].concat()));
    }
}
