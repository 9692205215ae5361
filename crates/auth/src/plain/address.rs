//! Addresses of a white list (Apache `RemoteAddressStrategyFactory`).
//!
//! ```text
//! *   *.*.*.*   *:*:*:*:*:*:*:*     every address
//! 192.168.1.7   2001:db8::7         one
//! 192.168.1.7,2001:db8::7           several
//! 192.168.1.{7,9}   2001:db8::{7,9} several that differ in the last part
//! 192.168.1.*   192.168.10-20.*     a range in one part; every later part is `*`
//! 2001:db8:*    2001:db8:1-2ff:*    a prefix, a range in the next part, and whatever follows
//! ```
//! In a range of IPv6, `::` stands for zeros, so that the range is in the last part, or the one before the final `*`.

use std::net::{IpAddr, Ipv6Addr};

/// What makes a pattern wrong, as an error says it.
pub(crate) const EXPECTED: &str = "give an address, a list such as `192.168.1.{7,9}`, or a range such as `192.168.1-5.*`; \
     after the part with the range there may only be `*`";

/// Groups of an IPv6 address.
const GROUPS: usize = 8;

/// Addresses that need no signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddressPattern {
    Every,
    Listed(Vec<IpAddr>),
    /// First bytes, and the range of the next one.
    Four(Vec<u8>, (u8, u8)),
    /// First groups, and the range of the next one.
    Six(Vec<u16>, (u16, u16)),
}

impl AddressPattern {
    /// Reads a pattern; a blank one means no address. `None`: it is wrong.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            text if text.trim().is_empty() => Self::Listed(Vec::new()),
            "*" | "*.*.*.*" | "*:*:*:*:*:*:*:*" => Self::Every,
            text if text.ends_with('}') => {
                let (head, items) = text.strip_suffix('}')?.split_once('{')?;
                if !head.ends_with(['.', ':']) {
                    return None;
                }
                listed(items, head)?
            }
            text if text.contains(',') => listed(text, "")?,
            text if text.contains(['*', '-']) && text.contains(':') => six(text)?,
            text if text.contains(['*', '-']) => four(text)?,
            text => Self::Listed(vec![text.parse::<IpAddr>().ok()?.to_canonical()]),
        })
    }

    /// Whether the pattern covers an address. An IPv4 address that came over an IPv6 socket counts as IPv4.
    pub(crate) fn matches(&self, address: IpAddr) -> bool {
        match (self, address.to_canonical()) {
            (Self::Every, _) => true,
            (Self::Listed(all), address) => all.contains(&address),
            (Self::Four(head, range), IpAddr::V4(address)) => begins(&address.octets(), head, *range),
            (Self::Six(head, range), IpAddr::V6(address)) => begins(&address.segments(), head, *range),
            _ => false,
        }
    }
}

fn begins<T: PartialOrd + Copy>(parts: &[T], head: &[T], (from, to): (T, T)) -> bool {
    let next = parts.get(head.len()).copied();
    parts.starts_with(head) && next.is_some_and(|part| from <= part && part <= to)
}

fn listed(items: &str, head: &str) -> Option<AddressPattern> {
    let items = items.split(',').filter(|item| !item.is_empty());
    let addresses = items.map(|item| Some([head, item].concat().parse::<IpAddr>().ok()?.to_canonical()));
    let addresses: Vec<IpAddr> = addresses.collect::<Option<_>>()?;
    (!addresses.is_empty()).then_some(AddressPattern::Listed(addresses))
}

/// The bounds of `from-to`, or those of `*`.
fn range<T: PartialOrd>(text: &str, every: (T, T), number: impl Fn(&str) -> Option<T>) -> Option<(T, T)> {
    if text == "*" {
        return Some(every);
    }
    let (from, to) = text.split_once('-')?;
    let (from, to) = (number(from)?, number(to)?);
    (from <= to).then_some((from, to))
}

fn four(text: &str) -> Option<AddressPattern> {
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() != 4 {
        return None;
    }
    let at = parts.iter().position(|part| part.contains(['*', '-']))?;
    let (head, rest) = parts.split_at_checked(at)?;
    let (ranged, after) = rest.split_first()?;
    // Apache ignores what follows a range: `192.168.*.5` would admit all of 192.168.
    if head.is_empty() || after.iter().any(|part| *part != "*") {
        return None;
    }
    let head = head.iter().map(|part| part.parse().ok());
    let bounds = range(ranged, (0, u8::MAX), |text| text.parse().ok())?;
    Some(AddressPattern::Four(head.collect::<Option<_>>()?, bounds))
}

fn six(text: &str) -> Option<AddressPattern> {
    let (head, last) = text.rsplit_once(':')?;
    let (head, ranged, groups) = match head.rsplit_once(':') {
        Some((head, ranged)) if ranged.contains('-') && last == "*" => (head, ranged, GROUPS - 2),
        _ => (head, last, GROUPS - 1),
    };
    let group = |text: &str| match text.len() {
        1..=4 => u16::from_str_radix(text, 16).ok(),
        _ => None,
    };
    let bounds = range(ranged, (0, u16::MAX), group)?;
    let head = expanded(head, groups)?;
    (!head.is_empty() && head.len() < GROUPS).then_some(AddressPattern::Six(head, bounds))
}

/// The groups of the beginning of an address, in which `::` stands for as many zeros as `groups` needs. A single colon
/// at the end is an empty group, as in Apache: `1::*` begins with 1 and 0.
fn expanded(head: &str, groups: usize) -> Option<Vec<u16>> {
    if let Some((before, after)) = head.split_once("::") {
        if after.ends_with(':') {
            return None;
        }
        let missing = groups.checked_sub(usize::from(!before.is_empty()) + usize::from(!after.is_empty()))?;
        let given = before.matches(':').count() + after.matches(':').count();
        let zeros = vec!["0"; missing.checked_sub(given)?].join(":");
        let parts = [before, &zeros, after];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        // The standard parser knows what a group may look like; the rest of the address is filled up.
        return whole(&parts.join(":"), groups);
    }
    let head = match head.strip_suffix(':') {
        Some("") => return None,
        Some(head) => [head, ":0"].concat(),
        None => head.to_owned(),
    };
    whole(&head, head.matches(':').count() + 1)
}

fn whole(head: &str, groups: usize) -> Option<Vec<u16>> {
    let rest = ":0".repeat(GROUPS.checked_sub(groups)?);
    let address: Ipv6Addr = [head, &rest].concat().parse().ok()?;
    address.segments().get(..groups).map(<[u16]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrmq_remoting::body::Json;

    fn is_in(pattern: &str, address: &str) -> bool {
        let pattern = AddressPattern::parse(pattern).expect(pattern);
        pattern.matches(address.parse().expect(address))
    }

    #[test]
    fn patterns_mean_what_apache_makes_of_them() {
        let within = [
            ("*", "10.0.0.1"),
            ("*", "::1"),
            ("*.*.*.*", "::1"),
            ("192.168.1.7", "192.168.1.7"),
            ("192.168.1.7", "::ffff:192.168.1.7"),
            ("10.0.0.1,2001:DB8::7", "2001:db8:0::7"),
            ("192.168.1.{7,9}", "192.168.1.9"),
            ("2001:db8::{7,9}", "2001:db8::9"),
            ("192.168.1.*", "192.168.1.255"),
            ("192.168.*.*", "192.168.1.255"),
            ("192.168.10-20.*", "192.168.20.1"),
            ("192.168.1.0-0", "192.168.1.0"),
            ("fe80:*", "fe80::1"),
            ("5::7:6:1-200:*", "5::7:6:200:1"),
            ("5::7:6:1-200", "5::7:6:1"),
            ("1::*", "1:0:7:8::"),
            ("::1:0:*", "0:0:0:0:0:1:0:9"),
        ];
        for (pattern, address) in within {
            assert!(is_in(pattern, address), "{pattern} {address}");
        }
        let without = [
            ("", "10.0.0.1"),
            ("  ", "10.0.0.1"),
            ("192.168.1.7", "192.168.1.8"),
            ("192.168.1.{7,9}", "192.168.1.8"),
            ("192.168.10-20.*", "192.168.21.1"),
            ("192.168.1.*", "fe80::1"),
            ("fe80:*", "fe81::1"),
            ("fe80:*", "10.0.0.1"),
            ("5::7:6:1-200", "5::7:6:201"),
            ("5::7:6:1-200:*", "5::7:6:0:1"),
        ];
        for (pattern, address) in without {
            assert!(!is_in(pattern, address), "{pattern} {address}");
        }
    }

    /// What the classes of Apache 4.9.7 answer (`tests/interop/record_white_addresses.py`).
    #[test]
    fn recorded_answers_of_apache_are_ours() {
        let recorded = include_str!("../../../../tests/golden/white_addresses.json");
        let recorded = Json::parse(recorded.as_bytes()).expect("JSON");
        let mut counts = [0; 3];
        for row in recorded.get("rows").and_then(Json::as_array).expect("rows") {
            let [pattern, address, answer] = row.as_array().expect("a row") else {
                panic!("a row has three items");
            };
            let (pattern, address) = (pattern.as_str().expect("text"), address.as_str().expect("text"));
            let ours = AddressPattern::parse(pattern);
            match answer {
                Json::Null => {
                    counts[2] += 1;
                    assert_eq!(ours, None, "{pattern}");
                }
                Json::Bool(answer) => {
                    counts[usize::from(*answer)] += 1;
                    assert_eq!(is_in(pattern, address), *answer, "{pattern} {address}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for pattern in [
            "192.168.*.5",
            "192.168.*",
            "*.168.1.1",
            "1-5.*.*.*",
            "192.168.1.-5",
            "192.168.1.9-5",
            "192.168.1.1-256",
            "192.168.1.1-2-3",
            "192.168.1.7{1,2}",
            "192.168.{1,2}.3",
            "192.168.1.{}",
            "192.168.1.{a}",
            "192.168.1.1,192.168.1.*",
            "300.1.1.1",
            "host.example",
            "fe80:*:1",
            "fe80:*:*",
            "fe80:1-2:3",
            "::*",
            "::1-5",
            "fe80:1-2g",
            "1:2:3:4:5:6:7:8:*",
            "fe80::1::*",
        ] {
            assert_eq!(AddressPattern::parse(pattern), None, "{pattern}");
        }
    }
}
