//! The one place that reads the wall clock.

use std::time::UNIX_EPOCH;

/// Milliseconds since the Unix epoch; 0 if the machine's clock stands before it.
#[expect(clippy::disallowed_methods, reason = "this is the one clock file")]
pub fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
