//! The PROXY protocol, versions 1 and 2: a load balancer says before a connection's first byte whose it is
//! (<https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>).
//!
//! ```text
//! version 1: "PROXY TCP4 192.0.2.7 198.51.100.1 40000 10911\r\n", "PROXY UNKNOWN ...\r\n": at most 107 bytes
//! version 2: signature 12 | version and command 1 | family 1 | length 2 | addresses | (type 1 | length 2 | value)*
//! ```
//! A header is believed only if it comes from one of [`ProxySources`]. Neither first byte, `P` or CR, begins a frame or
//! a TLS handshake. Reading takes no byte after the header: those belong to TLS or to the first frame.

use crate::net::{CloseReason, Network};
use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Longest time for a PROXY header and a TLS handshake together, from the accepted connection on. There is no further
/// bound on them: each holds some 40 KiB of one of the server's connections, whose number is bounded, and a line of
/// waiting handshakes would let one host that begins many keep all others out.
pub(crate) const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest header of version 1.
const MAX_TEXT: usize = 107;
/// Longest rest of a header of version 2. Addresses take 36 bytes; TLVs with a certificate's names a few hundred.
const MAX_REST: usize = 4096;
/// Length of signature, command, family and length of version 2.
const HEAD: usize = 16;
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Type of the TLV that has the header's CRC32C.
const CHECKSUM: u8 = 3;

/// The peers whose PROXY headers are believed: load balancers, by address or network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySources {
    networks: Vec<Network>,
}

impl ProxySources {
    /// Believes headers from these networks; `None` if there are none.
    pub fn new(networks: Vec<Network>) -> Option<Self> {
        (!networks.is_empty()).then_some(Self { networks })
    }

    /// Whether headers from this address are believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }
}

/// Whether a connection that begins with this byte begins with a header.
pub(crate) fn begins_header(first: u8) -> bool {
    matches!(first, b'P' | b'\r')
}

/// Reads the header at the start of a connection, and not a byte more. `None`: the connection is the balancer's own, or
/// it does not say whose.
pub(crate) async fn read(stream: &mut TcpStream, first: u8) -> Result<Option<SocketAddr>, CloseReason> {
    let header = if first == b'P' {
        read_text(stream).await?
    } else {
        read_binary(stream).await?
    };
    client(&header).map_err(CloseReason::ProxyHeader)
}

async fn read_text(stream: &mut TcpStream) -> Result<Vec<u8>, CloseReason> {
    let mut header = Vec::with_capacity(MAX_TEXT);
    while header.last() != Some(&b'\n') {
        let mut seen = [0; MAX_TEXT];
        let room = seen.get_mut(header.len()..).filter(|room| !room.is_empty());
        let Some(room) = room else {
            return Err(CloseReason::ProxyHeader("version 1 has at most 107 bytes"));
        };
        let there = stream.peek(room).await?;
        if there == 0 {
            return Err(CloseReason::ByPeer);
        }
        let end = room.iter().take(there).position(|byte| *byte == b'\n');
        let Some(part) = room.get_mut(..end.map_or(there, |end| end + 1)) else {
            return Err(CloseReason::ByPeer);
        };
        stream.read_exact(part).await?;
        header.extend_from_slice(part);
    }
    Ok(header)
}

async fn read_binary(stream: &mut TcpStream) -> Result<Vec<u8>, CloseReason> {
    let mut header = vec![0; HEAD];
    stream.read_exact(&mut header).await?;
    let rest = match header.as_slice() {
        [.., high, low] if header.starts_with(SIGNATURE) => u16::from_be_bytes([*high, *low]).into(),
        _ => return Err(CloseReason::ProxyHeader("the signature is not that of version 2")),
    };
    if rest > MAX_REST {
        return Err(CloseReason::ProxyHeader("it is longer than 4112 bytes"));
    }
    let mut tail = vec![0; rest];
    stream.read_exact(&mut tail).await?;
    header.append(&mut tail);
    Ok(header)
}

/// The client that a whole header names.
fn client(header: &[u8]) -> Result<Option<SocketAddr>, &'static str> {
    if header.first() == Some(&b'P') && !header.starts_with(b"PROXY ") {
        return Err("version 1 begins with `PROXY `");
    }
    // The balancer's own connection, such as a health check: the rest does not count.
    if header.starts_with(SIGNATURE) && header.get(12) == Some(&0x20) {
        return Ok(None);
    }
    let settings = ParseConfig {
        include_tlvs: false,
        ..ParseConfig::default()
    };
    let parsed = ProxyHeader::parse(header, settings);
    let Ok((parsed, length)) = parsed else {
        return Err("its fields are malformed");
    };
    if length != header.len() {
        return Err("it continues after its end");
    }
    if header.starts_with(SIGNATURE) {
        check_tlvs(header)?;
    }
    match parsed.proxied_address() {
        Some(announced) if announced.protocol == Protocol::Datagram => Err("it tells of UDP"),
        Some(announced) => Ok(Some(SocketAddr::new(
            announced.source.ip().to_canonical(),
            announced.source.port(),
        ))),
        None => Ok(None),
    }
}

/// Goes through the type-length-values of version 2, and checks the checksum if one of them has it.
fn check_tlvs(header: &[u8]) -> Result<(), &'static str> {
    let addresses = match header.get(13).map(|family| family >> 4) {
        Some(1) => 12,
        Some(2) => 36,
        Some(3) => 216,
        // Without a family nobody knows what follows.
        _ => return Ok(()),
    };
    let mut at = HEAD + addresses;
    while at < header.len() {
        let Some([kind, high, low]) = header.get(at..at + 3) else {
            return Err("a type-length-value is cut off");
        };
        let start = at + 3;
        at = start + usize::from(u16::from_be_bytes([*high, *low]));
        let Some(value) = header.get(start..at) else {
            return Err("a type-length-value is longer than the header");
        };
        if *kind != CHECKSUM {
            continue;
        }
        let expected = <[u8; 4]>::try_from(value).map_err(|_| "its checksum does not have 4 bytes")?;
        let without = (header.iter().enumerate())
            .map(|(index, byte)| if (start..at).contains(&index) { 0 } else { *byte });
        if crc32c(without) != u32::from_be_bytes(expected) {
            return Err("its checksum does not match");
        }
    }
    Ok(())
}

/// CRC32C (RFC 4960, appendix B), bit by bit: a connection has one header of at most some kilobytes.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    const REVERSED: u32 = 0x82f6_3b78;
    let sum = bytes.fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (REVERSED & (sum & 1).wrapping_neg())
        })
    });
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0x9c, 0x40, 0x2a, 0x9f];

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn text_headers_name_the_client() {
        assert_eq!(
            client(b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 10911\r\n"),
            Ok(Some(at("192.0.2.7:40000")))
        );
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let header = format!("PROXY TCP6 {longest} {longest} 65535 65535\r\n");
        assert_eq!(
            client(header.as_bytes()),
            Ok(Some(at(&format!("[{longest}]:65535"))))
        );
        assert_eq!(
            client(b"PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n"),
            Ok(Some(at("192.0.2.7:1")))
        );
        assert_eq!(client(b"PROXY UNKNOWN\r\n"), Ok(None));
        assert_eq!(client(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"), Ok(None));
        for wrong in [
            "PROXY TCP4 192.0.2.7 198.51.100.1 40000\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 40000 65536\r\n",
            "PROXY TCP4 ::1 ::2 1 2\r\n",
            "PROXY TCP5 192.0.2.7 198.51.100.1 1 2\r\n",
            "PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n",
            "PROXY-TCP4 192.0.2.7 198.51.100.1 1 2\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 1 2 \r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\n",
            "POST / HTTP/1.1\r\n",
        ] {
            assert!(client(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn binary_headers_name_the_client() {
        assert_eq!(client(&binary(0x21, 0x11, &V4)), Ok(Some(at("192.0.2.7:40000"))));
        let mut six = [0; 36];
        (six[15], six[31], six[33]) = (1, 2, 80);
        assert_eq!(client(&binary(0x21, 0x21, &six)), Ok(Some(at("[::1]:80"))));
        let noop = [&V4[..], &[4, 0, 2, 9, 9, 0xe0, 0, 0]].concat();
        assert_eq!(
            client(&binary(0x21, 0x11, &noop)),
            Ok(Some(at("192.0.2.7:40000")))
        );
        // Connections of the balancer itself, one without addresses, one of a local socket.
        assert_eq!(client(&binary(0x20, 0x41, &[7])), Ok(None));
        assert_eq!(client(&binary(0x20, 0x11, &V4)), Ok(None));
        assert_eq!(client(&binary(0x20, 0, &[])), Ok(None));
        assert_eq!(client(&binary(0x21, 0, &[])), Ok(None));
        assert_eq!(client(&binary(0x21, 0x31, &[0; 216])), Ok(None));
        for wrong in [
            binary(0x11, 0x11, &V4),
            binary(0x22, 0x11, &V4),
            binary(0x21, 0x12, &V4),
            binary(0x21, 0x41, &V4),
            binary(0x21, 0x21, &V4),
            binary(0x21, 0x31, &V4),
            binary(0x21, 0x11, &V4[..11]),
            binary(0x21, 0x11, &[&V4[..], &[4, 0]].concat()),
            binary(0x21, 0x11, &[&V4[..], &[4, 0, 9, 1]].concat()),
        ] {
            assert!(client(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_checksum_must_match() {
        // The check value of CRC32C, and that of 32 zeros in RFC 3720.
        assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
        assert_eq!(crc32c([0; 32].into_iter()), 0x8a91_36aa);
        let with = |sum: [u8; 4]| binary(0x21, 0x11, &[&V4[..], &[CHECKSUM, 0, 4], &sum].concat());
        let right = crc32c(with([0; 4]).into_iter()).to_be_bytes();
        assert_eq!(client(&with(right)), Ok(Some(at("192.0.2.7:40000"))));
        assert_eq!(client(&with([0; 4])), Err("its checksum does not match"));
        let short = binary(0x21, 0x11, &[&V4[..], &[CHECKSUM, 0, 1, 7]].concat());
        assert_eq!(client(&short), Err("its checksum does not have 4 bytes"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            command in prop_oneof![Just(0x20u8), Just(0x21), any::<u8>()],
            family in prop_oneof![Just(0x11u8), Just(0x21), Just(0x31), any::<u8>()],
            rest in prop::collection::vec(any::<u8>(), 0..300),
            text in "PROXY (TCP4|TCP6|UNKNOWN)?[ -~\r]{0,90}\r?\n",
        ) {
            let _any = client(&binary(command, family, &rest));
            let _any = client(&rest);
            let _any = client(text.as_bytes());
        }

        #[test]
        fn every_client_is_read_from_both_forms(v4: [u8; 4], v6: [u8; 16], port: u16) {
            let four = IpAddr::from(v4);
            let text = format!("PROXY TCP4 {four} 127.0.0.1 {port} 1\r\n");
            prop_assert_eq!(client(text.as_bytes()), Ok(Some(SocketAddr::new(four, port))));
            let rest = [&v6[..], &[0; 16], &port.to_be_bytes(), &[0; 2]].concat();
            let six = SocketAddr::new(IpAddr::from(v6).to_canonical(), port);
            prop_assert_eq!(client(&binary(0x21, 0x21, &rest)), Ok(Some(six)));
        }
    }
}
