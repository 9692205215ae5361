//! Small reproducible random numbers (SplitMix64): one seed, one run.

/// A source of numbers that depends only on its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a source from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates a source from several numbers.
    pub fn of(numbers: &[u64]) -> Self {
        let mut random = Self(0x9E37_79B9_7F4A_7C15);
        for number in numbers {
            random.0 ^= *number;
            random.0 = random.next();
        }
        random
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "there is always a next one")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`; 0 for a limit of 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit as u64).max(1)).unwrap_or_default()
    }

    /// Returns true once in `times` calls on average.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of several choices.
    pub fn choose<'c, T>(&mut self, choices: &'c [T]) -> Option<&'c T> {
        choices.get(self.below(choices.len()))
    }
}
