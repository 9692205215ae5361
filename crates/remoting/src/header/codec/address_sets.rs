//! Address sets: the networks that reach a broker, each with the address that its clients use.
//!
//! ```text
//! inside=10.0.0.5:10911;outside=203.0.113.7:30911
//! ```
//! A broker sends this text, its option `advertisedAddresses`, as a field of its registration (103). Apache has no such
//! field, and its name servers ignore it. Ours reads its own listeners from the option `addressSetListeners`, which has
//! this form, too.

use crate::text::{join_host_port, split_host_port};
use std::fmt;
use std::net::Ipv6Addr;
use thiserror::Error;

/// Field of request 103 and option of a broker.
pub const ADVERTISED_ADDRESSES: &str = "advertisedAddresses";
/// Maximum number of sets.
pub const MAX_SETS: usize = 8;
/// Maximum length of a set's name.
const MAX_NAME: usize = 64;
/// Maximum length of a host name (RFC 1035).
const MAX_HOST: usize = 253;

/// One set with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAddress {
    /// Name of the set.
    pub set: String,
    /// Host name, IPv4 address, or IPv6 address without brackets.
    pub host: String,
    /// Port; 0 only where `read` may take it.
    pub port: u16,
}

impl fmt::Display for SetAddress {
    /// Writes `host:port`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join_host_port(&self.host, self.port))
    }
}

/// A text that does not list address sets.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetAddressError {
    /// A part without `=`, or with an illegal name before it.
    #[error("`{0}` does not begin with a name of 1 to 64 characters of a-z A-Z 0-9 _ - and `=`")]
    Name(String),
    /// No address after the name.
    #[error("`{0}` is not host:port")]
    Address(String),
    /// A set occurs twice.
    #[error("set `{0}` is named twice")]
    Twice(String),
    /// More sets than there may be.
    #[error("there are more than {MAX_SETS} sets")]
    TooMany,
}

/// Reads `set=host:port;set=host:port`; an empty text has no sets. `free_port` allows port 0.
pub fn read_address_sets(text: &str, free_port: bool) -> Result<Vec<SetAddress>, SetAddressError> {
    let mut sets: Vec<SetAddress> = Vec::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        if sets.len() == MAX_SETS {
            return Err(SetAddressError::TooMany);
        }
        let (set, address) = part
            .split_once('=')
            .map(|(set, address)| (set.trim(), address.trim()))
            .filter(|(set, _)| is_set_name(set))
            .ok_or_else(|| SetAddressError::Name(part.to_owned()))?;
        if sets.iter().any(|one| one.set == set) {
            return Err(SetAddressError::Twice(set.to_owned()));
        }
        let (host, port) =
            read_address(address, free_port).ok_or_else(|| SetAddressError::Address(address.to_owned()))?;
        sets.push(SetAddress {
            set: set.to_owned(),
            host: host.to_owned(),
            port,
        });
    }
    Ok(sets)
}

fn is_set_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(legal)
}

fn read_address(address: &str, free_port: bool) -> Option<(&str, u16)> {
    let (host, port) = split_host_port(address)?;
    if address.starts_with('[') {
        host.parse::<Ipv6Addr>().ok()?;
        return Some((host, port)).filter(|_| free_port || port > 0);
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_host = (1..=MAX_HOST).contains(&host.len()) && host.bytes().all(legal);
    Some((host, port)).filter(|_| is_host && (free_port || port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let sets = read_address_sets(text, false).unwrap_or_default();
        sets.iter().map(|one| format!("{}={one}", one.set)).collect()
    }

    #[test]
    fn names_and_addresses_of_every_kind_are_read() {
        assert_eq!(shown(""), [""; 0]);
        assert_eq!(
            shown(" inside = 10.0.0.5:10911 ; out-1=broker.example.com:30911;six=[2001:db8::1]:1; "),
            [
                "inside=10.0.0.5:10911",
                "out-1=broker.example.com:30911",
                "six=[2001:db8::1]:1"
            ]
        );
        assert!(read_address_sets("a=0.0.0.0:0", true).is_ok());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let error = |text: &str| read_address_sets(text, false).map_err(|error| error.to_string());
        for (text, part) in [
            ("10.0.0.5:10911", "`10.0.0.5:10911` does not begin with a name"),
            ("a b=1.2.3.4:1", "does not begin with a name"),
            ("=1.2.3.4:1", "does not begin with a name"),
            ("a=1.2.3.4", "`1.2.3.4` is not host:port"),
            ("a=:1", "`:1` is not host:port"),
            ("a=h:0", "`h:0` is not host:port"),
            ("a=h:65536", "`h:65536` is not host:port"),
            ("a=h:+1", "`h:+1` is not host:port"),
            ("a=::1:1", "`::1:1` is not host:port"),
            ("a=[::g]:1", "is not host:port"),
            ("a=h,g:1", "is not host:port"),
            ("a=h:1;a=h:2", "set `a` is named twice"),
        ] {
            let refusal = error(text).err().unwrap_or_default();
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
        let nine: Vec<String> = (0..9).map(|number| format!("s{number}=h:1")).collect();
        assert_eq!(
            read_address_sets(&nine.join(";"), false),
            Err(SetAddressError::TooMany)
        );
        assert_eq!(
            read_address_sets(&nine[..8].join(";"), false).map(|sets| sets.len()),
            Ok(8)
        );
    }
}
