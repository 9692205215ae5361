//! The one place that reads the wall clock, and the clock of leases.

#[cfg(feature = "net")]
use std::time::Duration;
use std::time::UNIX_EPOCH;

/// Milliseconds since the Unix epoch; 0 if the machine's clock is set before it.
#[expect(clippy::disallowed_methods, reason = "this is the one clock file")]
pub fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Time since the machine was booted. Unlike `Instant` on Linux it includes suspended time, during which a lease that
/// another machine granted also expires.
#[cfg(feature = "net")]
pub fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}
