//! An address, or a network as `address/bits` (Apache `IPAddressUtils`): sources that policies and options name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address or network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    // The first one, so that two texts of one network are equal.
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads `10.0.0.1`, `10.0.0.0/8` or the IPv6 forms.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
            None => most,
        };
        Some(match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = bits.min(32);
                let address = IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask_v4(bits)));
                Self { address, bits }
            }
            IpAddr::V6(address) => {
                let address = IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask_v6(bits)));
                Self { address, bits }
            }
        })
    }

    /// Whether the network contains an address. An IPv4 address that came over an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => own.to_bits() == other.to_bits() & mask_v4(self.bits),
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() == other.to_bits() & mask_v6(self.bits),
            _ => false,
        }
    }
}

fn mask_v4(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

fn mask_v6(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_one_network_are_equal_and_contain_alike() {
        for (one, other, is_equal) in [
            ("10.0.0.0/8", "10.0.0.1/8", true),
            ("10.0.0.0/8", "10.0.0.0/9", false),
            ("10.0.0.0/8", "11.0.0.0/8", false),
            ("1.2.3.4/0", "0.0.0.0/0", true),
            ("10.0.0.1", "10.0.0.1/32", true),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("2001:db8::1/32", "2001:db8:0:9::/32", true),
            ("2001:db8::1/128", "2001:db8::2/128", false),
            ("::1/0", "::/0", true),
            ("0.0.0.0/0", "::/0", false),
        ] {
            let networks = [one, other].map(Network::parse);
            assert!(networks.iter().all(Option::is_some), "{one} {other}");
            assert_eq!(networks[0] == networks[1], is_equal, "{one} {other}");
        }
        for (network, address, expected) in [
            ("10.0.0.1/8", "10.255.0.0", true),
            ("10.0.0.1/8", "::ffff:10.255.0.0", true),
            ("10.0.0.1/8", "11.0.0.0", false),
            ("1.2.3.4/0", "255.0.0.1", true),
            ("2001:db8::1/32", "2001:db8:ffff::", true),
            ("2001:db8::1/32", "2001:db9::", false),
            ("::/0", "10.0.0.1", false),
        ] {
            let contains = Network::parse(network)
                .zip(address.parse().ok())
                .map(|(network, address)| network.contains(address));
            assert_eq!(contains, Some(expected), "{network} {address}");
        }
    }
}
