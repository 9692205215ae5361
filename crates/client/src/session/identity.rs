//! The identity of a client: client id, unique message ids, and the little randomness that spreading needs.
//!
//! ```text
//! 10.0.0.9@4711#1a2b3c[@unit]   client id: address @ instance name @ unit name (Apache ClientConfig.buildMQClientId)
//! ```

use pyrmq_remoting::message::id::UniqueIds;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// A random number below `limit`; 0 for a limit of 0.
pub fn random(limit: usize) -> usize {
    // RandomState is seeded by the system: all the randomness that spreading over servers needs.
    let word = RandomState::new().build_hasher().finish();
    usize::try_from(word % (limit.max(1) as u64)).unwrap_or(0)
}

/// The address that other machines probably see; loopback without a network.
fn local_ip() -> Ipv4Addr {
    // Connecting a datagram socket sends nothing: the system only looks up which address it would send from.
    let found = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    match found.map(|address| address.ip()) {
        Ok(IpAddr::V4(ip)) if !ip.is_unspecified() => ip,
        _ => Ipv4Addr::LOCALHOST,
    }
}

/// Apache's client id: one client in one process on one machine.
pub(crate) fn client_id(instance_name: &str, unit_name: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let ip = local_ip();
    let at = if unit_name.is_empty() { "" } else { "@" };
    if instance_name.is_empty() {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let salt = random(1 << 24);
        return format!("{ip}@{}#{salt:06x}{count}{at}{unit_name}", std::process::id());
    }
    format!("{ip}@{instance_name}{at}{unit_name}")
}

/// A separate source of unique ids: two in one process give the same id in one case of 2^32.
pub fn unique_ids() -> UniqueIds {
    let loader = u32::try_from(random(1 << 32)).unwrap_or(0);
    UniqueIds::new(IpAddr::V4(local_ip()), std::process::id(), loader)
}
