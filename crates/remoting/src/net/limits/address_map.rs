//! What a server remembers of client addresses, in bounded memory.

use crate::hash::NameMap;
use std::net::{IpAddr, Ipv6Addr};

/// State by address, of the newest addresses: at least `limit` of them, at most twice as many.
#[derive(Debug)]
pub(crate) struct AddressMap<T> {
    /// Addresses that were used since the last time that `limit` others were.
    young: NameMap<IpAddr, T>,
    old: NameMap<IpAddr, T>,
    limit: usize,
}

impl<T: Default> AddressMap<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            young: NameMap::default(),
            old: NameMap::default(),
            limit,
        }
    }

    /// Returns an address's state, a new one if it is forgotten.
    pub(crate) fn entry(&mut self, address: IpAddr) -> &mut T {
        let key = host(address);
        if !self.young.contains_key(&key) {
            let state = self.old.remove(&key).unwrap_or_default();
            if self.young.len() >= self.limit {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(key, state);
        }
        self.young.entry(key).or_default()
    }
}

/// The address by which a client's host is counted: for IPv6 its network of 64 bits, all of which one host may have.
pub(crate) fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_addresses_are_remembered_in_bounded_memory() {
        let mut map = AddressMap::<u32>::new(100);
        let own: IpAddr = "192.0.2.7".parse().unwrap();
        for at in 0..10_000_u32 {
            *map.entry(own) += 1;
            *map.entry(IpAddr::from((0x0a00_0000 + at).to_be_bytes())) += 1;
            assert!(map.young.len() <= 100 && map.old.len() <= 100);
        }
        assert_eq!(*map.entry(own), 10_000);
        assert_eq!(*map.entry("10.0.39.15".parse().unwrap()), 1);
        assert_eq!(*map.entry("10.0.0.1".parse().unwrap()), 0);
    }

    #[test]
    fn a_network_of_64_bits_is_one_host() {
        let host = |text: &str| super::host(text.parse().unwrap());
        assert_eq!(host("fd00:0:0:1::1"), host("fd00:0:0:1:9:9:9:9"));
        assert_ne!(host("fd00:0:0:1::1"), host("fd00:0:0:2::1"));
        assert_eq!(host("::ffff:192.0.2.7"), host("192.0.2.7"));
        assert_ne!(host("192.0.2.7"), host("192.0.2.8"));
    }
}
