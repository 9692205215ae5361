//! Slows down failed logins: each failure of an address makes its next one wait longer.
//!
//! Only the connection that failed waits, for its answer and with what it sent after it: other addresses, and others
//! at the same address, are served as before. Memory is bounded: the newest addresses are remembered.

use crate::net::limits::address_map::AddressMap;
use crate::sync::lock;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Failures that cost nothing: a typing error is not an attack.
const FREE: u32 = 3;
/// Wait of the first failure that costs something; each further one doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// An address without a failure for this time is forgiven.
const FORGIVEN_AFTER: Duration = Duration::from_mins(10);
/// Addresses that are remembered.
const ADDRESSES: usize = 8192;

#[derive(Debug)]
pub(crate) struct FailedLogins {
    max_delay: Duration,
    // Guards the failures of each address.
    addresses: Mutex<AddressMap<Failures>>,
}

#[derive(Debug, Default)]
struct Failures {
    count: u32,
    last: Option<Instant>,
}

impl FailedLogins {
    pub(super) fn new(max_delay: Duration) -> Self {
        Self {
            max_delay,
            addresses: Mutex::new(AddressMap::new(ADDRESSES)),
        }
    }

    /// Counts a failure, and returns how long its connection must wait.
    pub(super) fn failed(&self, address: IpAddr, now: Instant) -> Duration {
        if self.max_delay.is_zero() {
            return Duration::ZERO;
        }
        let mut addresses = lock(&self.addresses);
        let failures = addresses.entry(address);
        let is_forgiven = |last: Instant| now.saturating_duration_since(last) >= FORGIVEN_AFTER;
        if failures.last.is_some_and(is_forgiven) {
            failures.count = 0;
        }
        failures.last = Some(now);
        failures.count = failures.count.saturating_add(1);
        let Some(doublings) = failures.count.checked_sub(FREE + 1) else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        FIRST_DELAY.saturating_mul(factor).min(self.max_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(5);

    fn millis(failed: &FailedLogins, address: &str, now: Instant) -> u128 {
        failed.failed(address.parse().unwrap(), now).as_millis()
    }

    #[test]
    fn waits_grow_to_a_bound_for_one_address_alone_and_are_forgotten() {
        let (failed, now) = (FailedLogins::new(MAX), Instant::now());
        let waits: Vec<_> = (0..12).map(|_| millis(&failed, "192.0.2.7", now)).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        assert_eq!(millis(&failed, "192.0.2.8", now), 0);
        for _ in 0..100 {
            assert_eq!(millis(&failed, "192.0.2.7", now), 5000);
        }
        let before = now + FORGIVEN_AFTER - Duration::from_millis(1);
        assert_eq!(millis(&failed, "192.0.2.7", before), 5000);
        assert_eq!(millis(&failed, "192.0.2.7", before + FORGIVEN_AFTER), 0);
    }

    #[test]
    fn many_addresses_do_not_make_a_recent_one_forgotten() {
        let (failed, now) = (FailedLogins::new(MAX), Instant::now());
        for _ in 0..20 {
            millis(&failed, "192.0.2.7", now);
        }
        for at in 0..8000_u32 {
            failed.failed(IpAddr::from((0x0a00_0000 + at).to_be_bytes()), now);
        }
        assert_eq!(millis(&failed, "192.0.2.7", now), 5000);
    }

    #[test]
    fn a_bound_of_zero_turns_it_off() {
        let failed = FailedLogins::new(Duration::ZERO);
        assert!((0..20).all(|_| millis(&failed, "192.0.2.7", Instant::now()) == 0));
    }
}
