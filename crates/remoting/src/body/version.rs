//! The version of a table that several processes hold.

use crate::body::codec::value::body;
use std::cmp::Ordering;

body! {
    /// Version of a table (Apache `DataVersion`).
    #[derive(Copy)]
    pub struct DataVersion {
        /// How often the table changed.
        pub counter: i64 => "counter",
        /// The master's epoch; 0 outside controller mode.
        pub state_version: i64 => "stateVersion",
        /// When the table last changed, ms since the epoch.
        pub timestamp: i64 => "timestamp",
    }
}

impl DataVersion {
    /// The version after one more change.
    #[must_use]
    pub fn next(&self, now_ms: i64, state_version: i64) -> Self {
        Self {
            counter: self.counter.wrapping_add(1),
            state_version,
            timestamp: now_ms,
        }
    }
}

/// The larger version is the newer one: compared by state version, then counter, then timestamp.
impl PartialOrd for DataVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DataVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |version: &Self| (version.state_version, version.counter, version.timestamp);
        rank(self).cmp(&rank(other))
    }
}

impl Eq for DataVersion {}
