//! How refused requests are told: texts of bounded length, and a bounded number of lines for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Longest text of a stranger's that reasons and remarks repeat, in characters.
const LONGEST: usize = 100;

/// Lines a second for one address. More would let a stranger fill the disk.
const LINES: u32 = 10;

/// Addresses that are counted one by one in a second; all others share one count.
const ADDRESSES: usize = 1024;

const SECOND_MS: i64 = 1000;

/// A text, or its beginning if it is long.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Counts the lines of a second.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    // Guards the counts; held only to count.
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    second: i64,
    lines: HashMap<Option<IpAddr>, u32>,
    left_out: u64,
}

impl Lines {
    /// Whether a line about this address may be written now, and how many were left out since the last one.
    pub(crate) fn take(&self, address: IpAddr, now_ms: i64) -> Option<u64> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now_ms.div_euclid(SECOND_MS);
        if counts.second != second {
            counts.second = second;
            counts.lines.clear();
        }
        let is_counted = counts.lines.len() < ADDRESSES || counts.lines.contains_key(&Some(address));
        let lines = counts.lines.entry(is_counted.then_some(address)).or_default();
        if *lines >= LINES {
            counts.left_out += 1;
            return None;
        }
        *lines += 1;
        Some(std::mem::take(&mut counts.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::{ADDRESSES, LINES, Lines, short};
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("bob"), "bob");
        assert_eq!(short(&"ä".repeat(100)), "ä".repeat(100));
        assert_eq!(short(&"ä".repeat(1 << 20)), format!("{}...", "ä".repeat(100)));
    }

    #[test]
    fn an_address_has_ten_lines_a_second_and_the_rest_is_counted() {
        let lines = Lines::default();
        let one = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let written = (0..1000).filter(|_| lines.take(one, 5_000).is_some()).count();
        assert_eq!(written, LINES as usize);
        let other = IpAddr::V4(Ipv4Addr::BROADCAST);
        assert_eq!(lines.take(other, 5_999), Some(990));
        assert_eq!(lines.take(one, 6_000), Some(0));
    }

    #[test]
    fn many_addresses_share_a_bounded_table() {
        let lines = Lines::default();
        let all = (0..1_000_000).filter(|at| lines.take(IpAddr::V4(Ipv4Addr::from(*at)), 0).is_some());
        assert_eq!(all.count(), ADDRESSES + LINES as usize);
    }
}
