//! How far a table of configuration has changed (Apache `DataVersion`): name servers compare all three fields.

use pyrmq_remoting::clock;

/// Counter, time and epoch of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataVersion {
    /// Epoch of the controller; 0 without one.
    pub state_version: i64,
    /// When the table last changed, in milliseconds.
    pub timestamp_ms: i64,
    /// Changes so far.
    pub counter: i64,
}

impl DataVersion {
    /// After one more change.
    #[must_use]
    pub fn next(self) -> Self {
        Self {
            timestamp_ms: clock::now_ms(),
            counter: self.counter + 1,
            ..self
        }
    }
}
