//! The ports that a broker listens on, and the address that it announces (Apache `BrokerController`, `NetworkUtil`).
//!
//! ```text
//! listenPort      everything
//! listenPort - 2  the fast port: everything but pulls
//! adminListenPort everything; if it is there, the two others refuse requests of administrators
//! ```

use crate::error::BrokerError;
use crate::options::Options;
use pyrmq_remoting::net::{Events, NetError, ProcessorTable, Security, Server, ServerOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Attempts to find two free ports at the right distance.
const PORT_TRIES: usize = 32;
/// The fast port is this far below the main one (Apache `MixAll.brokerVIPChannel`).
const FAST_DISTANCE: u16 = 2;
/// Maximum drain of a port; `Broker::stop` ends it earlier.
const DRAIN: Duration = Duration::from_hours(1);

/// Maximum bytes of incomplete frames on each port: some thirty of the largest usual messages.
const MAX_PARTIAL_BYTES: usize = 128 << 20;
/// Where memory is short, this part of it holds the incomplete frames of all ports, and twice as much their answers.
const PARTIAL_BYTES_SHARE: u64 = 16;
/// Minimum of both for each port: the largest frame.
const MIN_BYTES: usize = 16 << 20;

/// The settings of each of this many ports, on a machine or in a container with this many bytes of memory.
pub(crate) fn transport(memory: Option<u64>, ports: u64) -> ServerOptions {
    let usual = ServerOptions::default();
    let at_most = |whole: usize, share: u64| {
        let part = memory.and_then(|bytes| usize::try_from(bytes / share / ports.max(1)).ok());
        whole.min(part.unwrap_or(whole).max(MIN_BYTES))
    };
    ServerOptions {
        drain: DRAIN,
        unfinished_total_bytes: at_most(MAX_PARTIAL_BYTES, PARTIAL_BYTES_SHARE),
        outgoing_total_bytes: at_most(usual.outgoing_total_bytes, PARTIAL_BYTES_SHARE / 2),
        ..usual
    }
}

/// Opens both ports. Port 0 picks a free port whose second port below is free, too; if none is found, there is no fast
/// port.
pub(crate) fn listen(
    options: &Options,
    main: &Arc<ProcessorTable>,
    fast: &Arc<ProcessorTable>,
    (events, security, transport): (&Arc<dyn Events>, &Security, ServerOptions),
) -> Result<(Server, Option<Server>), NetError> {
    let ip = options.bind_ip();
    let bind = |port, table| bind(SocketAddr::new(ip, port), table, (events, security, transport));
    let port = u16::try_from(options.listen_port).unwrap_or_default();
    if port != 0 {
        return Ok((bind(port, main)?, Some(bind(port - FAST_DISTANCE, fast)?)));
    }
    let mut found = bind(0, main)?;
    for _ in 0..PORT_TRIES {
        let below = found
            .local_addr()
            .port()
            .checked_sub(FAST_DISTANCE)
            .filter(|port| *port > 0);
        if let Some(Ok(beside)) = below.map(|port| bind(port, fast)) {
            return Ok((found, Some(beside)));
        }
        found = bind(0, main)?;
    }
    tracing::warn!("found no free port two below a free port: the broker has no fast port");
    Ok((found, None))
}

/// Opens one port.
pub(crate) fn bind(
    address: SocketAddr,
    table: &Arc<ProcessorTable>,
    (events, security, options): (&Arc<dyn Events>, &Security, ServerOptions),
) -> Result<Server, NetError> {
    let server = Server::bind(address, options, table.clone(), events.clone());
    server.map(|server| server.secured(security))
}

/// The address for clients: the configured one, or the one from which this machine would reach others. A host name is
/// announced as a name, but records contain its address.
pub(crate) fn advertised(options: &Options, port: u16) -> Result<(SocketAddr, String), BrokerError> {
    let configured = options.broker_ip1.trim();
    if let Ok(ip) = configured.parse::<IpAddr>() {
        let address = SocketAddr::new(ip, port);
        return Ok((address, address.to_string()));
    }
    if !configured.is_empty() {
        let found = (configured, port)
            .to_socket_addrs()
            .ok()
            .and_then(|mut addresses| addresses.next());
        return found
            .map(|address| (address, format!("{configured}:{port}")))
            .ok_or_else(|| BrokerError::Option {
                key: "brokerIP1",
                value: configured.to_owned(),
                range: "an address of this machine, or a name that has one".to_owned(),
            });
    }
    // Connecting a datagram socket sends nothing; it only makes the system choose an address.
    let chosen = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    let ip = chosen.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip());
    let address = SocketAddr::new(ip, port);
    Ok((address, address.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_waiting_bytes_follow_the_memory() {
        let limits = |memory, ports| {
            let options = transport(memory, ports);
            (
                options.unfinished_total_bytes >> 20,
                options.outgoing_total_bytes >> 20,
            )
        };
        assert_eq!(limits(None, 3), (128, 256));
        assert_eq!(limits(Some(23 << 30), 3), (128, 256));
        assert_eq!(limits(Some(1 << 30), 1), (64, 128));
        assert_eq!(limits(Some(256 << 20), 1), (16, 32));
        assert_eq!(limits(Some(64 << 20), 1), (16, 16));
    }

    #[test]
    fn all_ports_together_take_their_part_of_a_small_memory() {
        for ports in 1..=3 {
            let options = transport(Some(1536 << 20), ports);
            let whole = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX) * ports;
            assert!(whole(options.unfinished_total_bytes) <= 96 << 20, "{ports}");
            assert!(whole(options.outgoing_total_bytes) <= 192 << 20, "{ports}");
        }
    }
}
