//! How many log lines peers may cause: a number for each address and one in sum, in ten seconds, so that strangers
//! cannot fill the disk.

use crate::net::limits::address_map::AddressMap;
use crate::sync::lock;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Time in which a limited number of lines is written.
const INTERVAL: Duration = Duration::from_secs(10);
/// Addresses whose lines are counted.
const ADDRESSES: usize = 4096;

/// Limits the lines of one kind.
#[derive(Debug)]
pub(crate) struct LineLimit {
    per_address: u32,
    in_sum: u32,
    // Guards how many lines were written lately.
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    sum: Window,
    by_address: AddressMap<Window>,
}

/// Lines since the beginning of an interval.
#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    written: u32,
    omitted: u64,
}

impl Window {
    /// Whether one more may be written; the number of those that were not, if it is the first of an interval.
    fn take(&mut self, now: Instant, most: u32) -> Option<u64> {
        let mut omitted = 0;
        if self
            .since
            .is_none_or(|since| now.duration_since(since) >= INTERVAL)
        {
            omitted = std::mem::take(&mut self.omitted);
            (self.since, self.written) = (Some(now), 0);
        }
        if self.written >= most {
            self.omitted += 1;
            return None;
        }
        self.written += 1;
        Some(omitted)
    }
}

impl LineLimit {
    /// Allows this many lines in ten seconds, for one address and in sum.
    pub(crate) fn new(per_address: u32, in_sum: u32) -> Self {
        Self {
            per_address,
            in_sum,
            lines: Mutex::new(Lines {
                sum: Window::default(),
                by_address: AddressMap::new(ADDRESSES),
            }),
        }
    }

    /// Whether one more line about this address may be written: then the number of those that were not.
    pub(crate) fn take(&self, address: IpAddr) -> Option<u64> {
        let now = Instant::now();
        let mut lines = lock(&self.lines);
        let omitted = lines.by_address.entry(address).take(now, self.per_address)?;
        let omitted_in_sum = lines.sum.take(now, self.in_sum)?;
        Some(omitted.max(omitted_in_sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_so_many_lines_and_the_next_one_tells_of_the_rest() {
        let (mut window, begin) = (Window::default(), Instant::now());
        let written = (0..25).filter(|_| window.take(begin, 10) == Some(0)).count();
        assert_eq!(written, 10);
        assert_eq!(window.take(begin + INTERVAL, 10), Some(15));
        assert_eq!(window.take(begin + INTERVAL, 10), Some(0));
    }

    #[test]
    fn one_address_leaves_lines_for_the_others() {
        let limit = LineLimit::new(2, 5);
        let written = |address: [u8; 4]| (0..9).filter(|_| limit.take(address.into()).is_some()).count();
        assert_eq!(written([192, 0, 2, 1]), 2);
        assert_eq!(written([192, 0, 2, 2]), 2);
        assert_eq!(written([192, 0, 2, 3]), 1);
    }
}
