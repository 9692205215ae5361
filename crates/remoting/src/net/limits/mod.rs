//! How much one client may use: connections, requests and bytes, by address and by user.
//!
//! A rate is a bucket that holds one second's worth and refills steadily; it is one atomic number, the moment at which
//! the bucket is full again. Requests beyond a rate are answered SYSTEM_BUSY, which clients take to another broker or
//! try again. Bytes count in both directions; they are known when they have passed, so they may put a client into debt,
//! and its requests are refused until the debt is paid. A limit of 0 is off, and a server without limits has none of
//! this on the path of a request.

pub(super) mod address_map;
pub(super) mod descriptors;
mod failed_logins;
pub(super) mod large_frames;
pub(super) mod line_limit;
pub(super) mod memory_budget;
pub(super) mod partial_frames;
pub(super) mod refusal_log;

use crate::hash::NameMap;
use crate::net::limits::address_map::host;
use crate::net::limits::failed_logins::FailedLogins;
use crate::sync::lock;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Users whose rates are remembered before those without a connection are forgotten.
const USERS: usize = 4096;
/// Addresses that are remembered before those without connection and debt are forgotten.
const ADDRESSES: usize = 4096;
const SECOND: u64 = 1_000_000_000;

/// What a server allows one client. 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Connections of one address.
    pub connections_per_address: usize,
    /// For all connections of one address together.
    pub address: RateLimits,
    /// For all connections of one user together; needs users that are checked.
    pub user: RateLimits,
    /// Longest wait of a connection after a failed login; 0: none.
    pub failed_login_delay: Duration,
}

/// What a server allows in a second. 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests.
    pub requests: u64,
    /// Bytes in both directions.
    pub bytes: u64,
}

impl RateLimits {
    fn is_off(self) -> bool {
        self == Self::default()
    }
}

/// The limits of a server, and what its clients have used. Its ports share one.
#[derive(Debug)]
pub struct Limits {
    settings: ClientLimits,
    begin: Instant,
    pub(super) failed_logins: FailedLogins,
    // Guards what each address uses.
    addresses: Mutex<Addresses>,
    // Guards what each user uses.
    users: Mutex<NameMap<Box<str>, Arc<Rates>>>,
}

#[derive(Debug, Default)]
struct Addresses {
    used: NameMap<IpAddr, Arc<AddressUse>>,
    /// Number of addresses at which those without connection and debt are forgotten.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct AddressUse {
    connections: AtomicUsize,
    rates: Rates,
}

/// What an address or a user has used: the moments at which its buckets are full again, in ns since the begin.
#[derive(Debug, Default)]
struct Rates {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Rates {
    /// Takes one request. The text says what is over its limit.
    fn take(&self, now: u64, limits: RateLimits) -> Result<(), &'static str> {
        if limits.bytes > 0 && self.bytes.load(Ordering::Relaxed) > now + SECOND {
            return Err("bytes");
        }
        let Some(cost) = SECOND.checked_div(limits.requests) else {
            return Ok(());
        };
        let take = |full: u64| (full + cost <= now + SECOND).then(|| full.max(now) + cost);
        match self
            .requests
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            Ok(_) => Ok(()),
            Err(_) => Err("requests"),
        }
    }

    /// Counts bytes that have passed.
    fn pass(&self, now: u64, bytes: u64, limits: RateLimits) {
        let Some(cost) = bytes.saturating_mul(SECOND).checked_div(limits.bytes) else {
            return;
        };
        let add = |full: u64| Some(full.max(now).saturating_add(cost));
        let _before = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn is_full(&self, now: u64) -> bool {
        self.requests.load(Ordering::Relaxed) <= now && self.bytes.load(Ordering::Relaxed) <= now
    }
}

impl Limits {
    /// Creates the limits of a server; `None` if all are off.
    pub fn new(settings: ClientLimits) -> Option<Arc<Self>> {
        if settings == ClientLimits::default() {
            return None;
        }
        Some(Arc::new(Self {
            settings,
            begin: Instant::now(),
            failed_logins: FailedLogins::new(settings.failed_login_delay),
            addresses: Mutex::default(),
            users: Mutex::default(),
        }))
    }

    /// Admits a connection of an address; `None`: the address has as many as it may.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ClientUse> {
        let most = self.settings.connections_per_address;
        let counts = most > 0 || !self.settings.address.is_off();
        let address = if counts {
            Some(self.address_use(host(address), most)?)
        } else {
            None
        };
        Some(ClientUse {
            limits: self.clone(),
            address,
            user: None,
        })
    }

    fn address_use(&self, address: IpAddr, most: usize) -> Option<Arc<AddressUse>> {
        let now = self.at(Instant::now());
        let mut addresses = lock(&self.addresses);
        if addresses.used.len() >= addresses.sweep_at.max(ADDRESSES) {
            addresses
                .used
                .retain(|_, used| used.connections.load(Ordering::Relaxed) > 0 || !used.rates.is_full(now));
            addresses.sweep_at = 2 * addresses.used.len();
        }
        let used = addresses.used.entry(address).or_default();
        if most > 0 && used.connections.load(Ordering::Relaxed) >= most {
            return None;
        }
        used.connections.fetch_add(1, Ordering::Relaxed);
        Some(used.clone())
    }

    fn user_rates(&self, user: &str) -> Arc<Rates> {
        let mut users = lock(&self.users);
        if let Some(rates) = users.get(user) {
            return rates.clone();
        }
        if users.len() >= USERS {
            users.retain(|_, rates| Arc::strong_count(rates) > 1);
        }
        users.entry(user.into()).or_default().clone()
    }

    fn at(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.begin).as_nanos();
        // 500 years.
        u64::try_from(since).unwrap_or(u64::MAX / 2)
    }
}

/// What one connection uses.
#[derive(Debug)]
pub(super) struct ClientUse {
    limits: Arc<Limits>,
    /// `None` if addresses have no limits.
    address: Option<Arc<AddressUse>>,
    /// The user of the connection's last request, if users have limits.
    user: Option<(Box<str>, Arc<Rates>)>,
}

impl ClientUse {
    /// Takes a request of the connection's address. An error: it is over a limit, and which.
    pub(super) fn take(&self, now: Instant) -> Result<(), String> {
        let limits = self.limits.settings.address;
        let Some(used) = self.address.as_ref().filter(|_| !limits.is_off()) else {
            return Ok(());
        };
        (used.rates.take(self.limits.at(now), limits)).map_err(|what| text("address", what, limits))
    }

    /// Whether users have limits.
    pub(super) fn limits_users(&self) -> bool {
        !self.limits.settings.user.is_off()
    }

    /// Takes a request of a user who has been checked.
    pub(super) fn take_of_user(&mut self, user: &str, now: Instant) -> Result<(), String> {
        let limits = self.limits.settings.user;
        let rates = match &self.user {
            Some((known, rates)) if **known == *user => rates,
            _ => &self.user.insert((user.into(), self.limits.user_rates(user))).1,
        };
        (rates.take(self.limits.at(now), limits)).map_err(|what| text("user", what, limits))
    }

    /// Counts bytes that were read or written.
    pub(super) fn pass(&self, bytes: usize, now: Instant) {
        if self.address.is_none() && self.user.is_none() {
            return;
        }
        let (now, settings) = (self.limits.at(now), &self.limits.settings);
        if let Some(used) = &self.address {
            used.rates.pass(now, bytes as u64, settings.address);
        }
        if let Some((_, rates)) = &self.user {
            rates.pass(now, bytes as u64, settings.user);
        }
    }

    /// Counts a failed login, and returns how long the connection must wait.
    pub(super) fn failed_login(&self, address: IpAddr, now: Instant) -> Duration {
        self.limits.failed_logins.failed(address, now)
    }
}

impl Drop for ClientUse {
    fn drop(&mut self) {
        if let Some(used) = &self.address {
            used.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn text(of: &str, what: &str, limits: RateLimits) -> String {
    let most = if what == "bytes" {
        limits.bytes
    } else {
        limits.requests
    };
    format!("this {of} may use {most} {what} a second")
}
