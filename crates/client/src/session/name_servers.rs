//! The name servers of a client: a configured list, or one from an HTTP address server.
//!
//! A client uses one name server until it fails, then tries the next. The list is built at the first request, again
//! every two minutes, and at once if no server of it has answered. It comes from the address server, if there is one
//! (Apache `DefaultTopAddressing`). A host name with several addresses stands for each of them. A name with one address
//! stays a name, which is resolved with each connection; when its address changes, the old connection ends after the
//! requests in progress. What cannot be refreshed stays as it was.

use crate::error::ClientError;
use crate::session::address_server::AddressServer;
use crate::session::options::ClientOptions;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Client, CloseReason, NetError};
use pyrmq_remoting::sync::lock;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The name servers of a client.
#[derive(Debug)]
pub struct NameServers {
    client: Client,
    given: Arc<[String]>,
    address_server: Option<AddressServer>,
    // Guards the list as it is now.
    list: Mutex<NameServerList>,
    // Held by the refresh in flight. Those that wait for it use its result.
    refreshing: tokio::sync::Mutex<()>,
    current: AtomicUsize,
    timeout: Duration,
    fresh: Duration,
}

#[derive(Debug)]
struct NameServerList {
    addresses: Arc<[String]>,
    made: Option<Instant>,
    // Why the address server gave none.
    missing: Option<String>,
    // What each name stood for when it was last looked up.
    found: HashMap<String, Vec<SocketAddr>>,
    // How often it was refreshed, and how often that has changed an address.
    refreshes: u64,
    changes: u64,
}

/// Why a round of requests gave no result.
struct RoundFailed {
    /// What each server that gave no answer failed with.
    failed_attempts: String,
    /// No server's name could be resolved.
    unresolved: bool,
    /// Why the last of the answers was of no use.
    unusable: Option<ClientError>,
}

impl NameServers {
    /// Starts at a random server, so that many clients spread.
    pub fn new(client: Client, options: &ClientOptions) -> Self {
        let given: Arc<[String]> = options.name_servers.clone().into();
        Self {
            client,
            list: Mutex::new(NameServerList {
                addresses: given.clone(),
                made: None,
                missing: None,
                found: HashMap::new(),
                refreshes: 0,
                changes: 0,
            }),
            refreshing: tokio::sync::Mutex::default(),
            current: AtomicUsize::new(crate::random(1 << 16)),
            given,
            address_server: options.address_server.clone(),
            timeout: options.request_timeout,
            fresh: options.name_server_interval,
        }
    }

    /// The list as it is now.
    pub fn addresses(&self) -> Arc<[String]> {
        self.list().addresses.clone()
    }

    fn list(&self) -> MutexGuard<'_, NameServerList> {
        lock(&self.list)
    }

    /// Refreshes the list when it is old.
    pub(crate) async fn keep_fresh(&self) {
        let made = self.list().made;
        if made.is_none_or(|made| made.elapsed() >= self.fresh) {
            self.refresh().await;
        }
    }

    /// Asks the current name server, and the others when it cannot be reached or `read` makes nothing of its answer.
    pub async fn request<T>(
        &self,
        what: &'static str,
        command: Command,
        read: impl Fn(Command, &str) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut renewed = self.list().made.is_none();
        if renewed {
            self.refresh().await;
        }
        loop {
            let (addresses, changes) = {
                let list = self.list();
                (list.addresses.clone(), list.changes)
            };
            let failed = match self.request_in_turn(&addresses, what, &command, &read).await {
                Ok(found) => return Ok(found),
                Err(failed) => failed,
            };
            // A server's error says more than the silence of others.
            if let Some(error) = failed.unusable {
                return Err(error);
            }
            if !renewed {
                renewed = true;
                self.refresh().await;
                // Another request may have made the change since the attempt.
                if self.list().changes != changes {
                    continue;
                }
            }
            return Err(ClientError::NameServers {
                addresses: addresses.join(";"),
                failed_attempts: self.list().missing.clone().unwrap_or(failed.failed_attempts),
                unresolved: failed.unresolved,
            });
        }
    }

    /// Sends a request to one name server after the other until one answers. Each gets its share of what is left of the
    /// time, so that one silent server cannot use up the time of all.
    async fn request_in_turn<T>(
        &self,
        addresses: &[String],
        what: &'static str,
        command: &Command,
        read: &impl Fn(Command, &str) -> Result<T, ClientError>,
    ) -> Result<T, RoundFailed> {
        let count = addresses.len();
        let first = self.current.load(Ordering::Relaxed);
        let (mut failed_attempts, mut unresolved, mut unusable) = (String::new(), 0, None);
        let by = Instant::now() + self.timeout;
        for at in first..first + count {
            let Some(address) = addresses.get(at % count) else {
                break;
            };
            let others = u32::try_from(first + count - at).unwrap_or(u32::MAX);
            let share = by.saturating_duration_since(Instant::now()) / others;
            match self.request_one(address, command, share).await {
                Ok(answer) => match read(answer, address) {
                    Ok(found) => {
                        if at > first {
                            self.current.store(at % count, Ordering::Relaxed);
                        }
                        return Ok(found);
                    }
                    Err(error) => {
                        tracing::warn!(address, what, %error, "the answer of a name server is of no use");
                        unusable = Some(error);
                    }
                },
                Err(NetError::Closed) => {
                    // This client ends: no server is to blame.
                    return Err(RoundFailed {
                        failed_attempts,
                        unresolved: false,
                        unusable: Some(ClientError::Closed { what: "client" }),
                    });
                }
                Err(error) => {
                    tracing::warn!(address, what, %error, "name server did not answer");
                    unresolved += usize::from(is_unresolved(&error));
                    if !failed_attempts.is_empty() {
                        failed_attempts.push_str("; ");
                    }
                    failed_attempts.push_str(&error.to_string());
                }
            }
        }
        Err(RoundFailed {
            failed_attempts,
            unresolved: count > 0 && unresolved == count,
            unusable,
        })
    }

    /// Sends a request to one server, and again if its connection was closed here: because the client ends, which the
    /// second request reports, or because the server has another address now.
    async fn request_one(
        &self,
        address: &str,
        command: &Command,
        time: Duration,
    ) -> Result<Command, NetError> {
        match self.client.request(address, command.clone(), time).await {
            Err(NetError::ConnectionLost {
                reason: CloseReason::Here,
                ..
            }) => self.client.request(address, command.clone(), time).await,
            outcome => outcome,
        }
    }

    /// Refreshes the list. If that is already in progress, waits for its end.
    async fn refresh(&self) {
        let before = self.list().refreshes;
        let _in_flight = self.refreshing.lock().await;
        if self.list().refreshes == before {
            self.refresh_now().await;
        }
    }

    /// Queries the address server, if there is one, and resolves the host names.
    async fn refresh_now(&self) {
        let (names, missing) = self.resolve_list().await;
        let mut addresses = Vec::with_capacity(names.len());
        let mut found = HashMap::with_capacity(names.len());
        for name in names.iter() {
            let resolved = tokio::time::timeout(self.timeout, self.client.resolve(name)).await;
            let now = match resolved {
                Ok(Ok(mut all)) => {
                    all.sort_unstable();
                    all
                }
                // Without an earlier address, connecting reports what is wrong with the name.
                _ => self.list().found.get(name).cloned().unwrap_or_default(),
            };
            expand(name, &of_one_kind(&now), &mut addresses);
            found.insert(name.clone(), now);
        }
        let made = NameServerList {
            addresses: addresses.into(),
            made: Some(Instant::now()),
            missing,
            found,
            refreshes: 0,
            changes: 0,
        };
        for address in &self.take(made) {
            self.client.retire(address);
        }
    }

    /// The list, or why there is none.
    async fn resolve_list(&self) -> (Arc<[String]>, Option<String>) {
        let Some(server) = &self.address_server else {
            return (self.given.clone(), None);
        };
        match server.request(self.timeout).await {
            Ok(names) => (names.into(), None),
            Err(error) => {
                tracing::warn!(%server, error, "address server gave no name servers");
                let old = self.addresses();
                let missing = old
                    .is_empty()
                    .then(|| format!("the address server {server}: {error}"));
                (old, missing)
            }
        }
    }

    /// Replaces the list. Returns the addresses whose connections are no longer needed.
    fn take(&self, mut new: NameServerList) -> Vec<String> {
        let mut list = self.list();
        let is_other = list.addresses != new.addresses;
        if is_other {
            tracing::info!(addresses = ?new.addresses, "name servers");
        }
        let gone = list.addresses.iter().filter(|old| !new.addresses.contains(*old));
        let moved = list
            .found
            .iter()
            .filter(|(name, old)| new.found.get(*name).is_some_and(|now| now != *old));
        let left: Vec<String> = gone.chain(moved.map(|(name, _)| name)).cloned().collect();
        new.refreshes = list.refreshes + 1;
        new.changes = list.changes + u64::from(is_other || !left.is_empty());
        *list = new;
        left
    }
}

/// Addresses of one kind, sorted: those of IPv4 where there are any.
fn of_one_kind(found: &[SocketAddr]) -> Vec<SocketAddr> {
    let (mut old, new): (Vec<_>, Vec<_>) = found.iter().copied().partition(SocketAddr::is_ipv4);
    if old.is_empty() {
        old = new;
    }
    old.sort_unstable();
    old.dedup();
    old
}

/// A name with several addresses of one kind is as many name servers.
fn expand(name: &str, found: &[SocketAddr], into: &mut Vec<String>) {
    if found.len() < 2 {
        into.push(name.to_owned());
    } else {
        into.extend(found.iter().map(SocketAddr::to_string));
    }
}

/// The address has a name that the system does not know.
fn is_unresolved(error: &NetError) -> bool {
    // The standard library has no kind for it: the resolver's failures alone are neither of the system nor of a kind.
    matches!(error, NetError::Connect { source, .. }
        if source.raw_os_error().is_none() && source.to_string().contains("lookup address"))
}

#[cfg(test)]
mod tests {
    use super::{expand, of_one_kind};

    fn expands(name: &str, found: &[&str]) -> Vec<String> {
        let mut into = Vec::new();
        let found: Vec<_> = found.iter().map(|address| address.parse().unwrap()).collect();
        expand(name, &of_one_kind(&found), &mut into);
        into
    }

    #[test]
    fn a_name_with_several_addresses_is_as_many_name_servers() {
        let two = ["10.0.0.2:9876", "10.0.0.1:9876", "10.0.0.2:9876"];
        assert_eq!(expands("names:9876", &two), ["10.0.0.1:9876", "10.0.0.2:9876"]);
        assert_eq!(
            expands("names:9876", &["[::2]:9876", "[::1]:9876"]),
            ["[::1]:9876", "[::2]:9876"]
        );
    }

    #[test]
    fn a_name_with_one_address_of_a_kind_stays_a_name() {
        assert_eq!(
            expands("localhost:9876", &["[::1]:9876", "127.0.0.1:9876"]),
            ["localhost:9876"]
        );
        assert_eq!(expands("10.0.0.1:9876", &["10.0.0.1:9876"]), ["10.0.0.1:9876"]);
    }
}
