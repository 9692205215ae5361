//! The delay levels: how many there are, and how long each waits (Apache `messageDelayLevel`).

/// The delay of each level.
#[derive(Debug)]
pub(crate) struct DelayLevels(Vec<i64>);

impl DelayLevels {
    /// Creates the levels from their delays in milliseconds, level 1 first.
    pub(crate) fn new(levels_ms: Vec<i64>) -> Self {
        Self(levels_ms)
    }

    /// The nearest existing level: 0 for negative levels, the highest for higher ones.
    pub(crate) fn clamp(&self, level: i32) -> i32 {
        level.clamp(0, self.count())
    }

    /// Number of levels.
    pub(crate) fn count(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    /// The delay of a level; 0 for one that does not exist.
    pub(crate) fn delay_ms(&self, level: i32) -> i64 {
        let at = usize::try_from(level - 1).ok();
        at.and_then(|at| self.0.get(at)).copied().unwrap_or(0)
    }
}
