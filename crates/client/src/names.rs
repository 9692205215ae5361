//! The name servers of a client: a list that is given, or told by an HTTP address server.
//!
//! A client sticks to one name server until it fails, then goes round. The list is made at the first question, again
//! every two minutes, and at once when none of it answered: the address server is asked (Apache `DefaultTopAddressing`),
//! and a host name that has several addresses stands for each of them. A name with one address stays a name, which is
//! resolved with each connection.

use crate::address_server::AddressServer;
use crate::error::ClientError;
use crate::options::ClientOptions;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Client, NetError};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How old a list may be (Apache `MQClientInstance.startScheduledTask`: 2 min).
const FRESH: Duration = Duration::from_mins(2);

/// The name servers of a client.
#[derive(Debug)]
pub struct NameServers {
    client: Client,
    given: Arc<[String]>,
    address_server: Option<AddressServer>,
    // Guards the list as it is now.
    list: Mutex<List>,
    current: AtomicUsize,
    timeout: Duration,
}

#[derive(Debug)]
struct List {
    addresses: Arc<[String]>,
    made: Option<Instant>,
    // Why the address server gave none.
    missing: Option<String>,
}

/// What became of a round of questions.
enum Round {
    Answered(Box<Command>, String),
    Failed { tried: String, unresolved: bool },
}

impl NameServers {
    /// Starts at a random one, so that many clients spread.
    pub fn new(client: Client, options: &ClientOptions) -> Self {
        let given: Arc<[String]> = options.name_servers.clone().into();
        Self {
            client,
            list: Mutex::new(List {
                addresses: given.clone(),
                made: None,
                missing: None,
            }),
            current: AtomicUsize::new(crate::random(1 << 16)),
            given,
            address_server: options.address_server.clone(),
            timeout: options.request_timeout,
        }
    }

    /// The list as it is now.
    pub fn addresses(&self) -> Arc<[String]> {
        self.list().addresses.clone()
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the list again when it is old.
    pub(crate) async fn keep_fresh(&self) {
        let made = self.list().made;
        if made.is_none_or(|made| made.elapsed() >= FRESH) {
            self.renew().await;
        }
    }

    /// Asks the current name server, and the others when it cannot be reached. The answer may be an error code.
    pub async fn ask(&self, what: &'static str, command: Command) -> Result<(Command, String), ClientError> {
        let mut renewed = self.list().made.is_none();
        if renewed {
            self.renew().await;
        }
        loop {
            let addresses = self.addresses();
            let (tried, unresolved) = match self.go_round(&addresses, what, &command).await {
                Round::Answered(answer, address) => return Ok((*answer, address)),
                Round::Failed { tried, unresolved } => (tried, unresolved),
            };
            if !renewed {
                renewed = true;
                self.renew().await;
                if self.addresses() != addresses {
                    continue;
                }
            }
            return Err(ClientError::NameServers {
                addresses: addresses.join(";"),
                tried: self.list().missing.clone().unwrap_or(tried),
                unresolved,
            });
        }
    }

    /// Each gets its share of what is left of the time, so that one silent server cannot use up the time of all.
    async fn go_round(&self, addresses: &[String], what: &'static str, command: &Command) -> Round {
        let count = addresses.len();
        let first = self.current.load(Ordering::Relaxed);
        let (mut tried, mut unresolved) = (String::new(), 0);
        let by = Instant::now() + self.timeout;
        for at in first..first + count {
            let Some(address) = addresses.get(at % count) else {
                break;
            };
            let others = u32::try_from(first + count - at).unwrap_or(u32::MAX);
            let share = by.saturating_duration_since(Instant::now()) / others;
            match self.client.request(address, command.clone(), share).await {
                Ok(answer) => {
                    if at > first {
                        self.current.store(at % count, Ordering::Relaxed);
                    }
                    return Round::Answered(Box::new(answer), address.clone());
                }
                Err(error) => {
                    tracing::warn!(address, what, %error, "name server did not answer");
                    unresolved += usize::from(is_unresolved(&error));
                    if !tried.is_empty() {
                        tried.push_str("; ");
                    }
                    tried.push_str(&error.to_string());
                }
            }
        }
        Round::Failed {
            tried,
            unresolved: count > 0 && unresolved == count,
        }
    }

    /// Asks the address server, if there is one, and looks up the hosts. What cannot be learned stays as it was.
    async fn renew(&self) {
        let mut missing = None;
        let told = match &self.address_server {
            None => self.given.clone(),
            Some(server) => match server.ask(self.timeout).await {
                Ok(told) => told.into(),
                Err(error) => {
                    tracing::warn!(%server, error, "address server gave no name servers");
                    let old = self.addresses();
                    missing = old
                        .is_empty()
                        .then(|| format!("the address server {server}: {error}"));
                    old
                }
            },
        };
        let mut addresses = Vec::with_capacity(told.len());
        for address in told.iter() {
            match tokio::time::timeout(self.timeout, tokio::net::lookup_host(address)).await {
                Ok(Ok(found)) => spread(address, found, &mut addresses),
                // Connecting tells what is wrong with it.
                _ => addresses.push(address.clone()),
            }
        }
        let mut list = self.list();
        if *list.addresses != *addresses {
            tracing::info!(?addresses, "name servers");
        }
        *list = List {
            addresses: addresses.into(),
            made: Some(Instant::now()),
            missing,
        };
    }
}

/// A name with several addresses of one kind is as many name servers.
fn spread(name: &str, found: impl Iterator<Item = SocketAddr>, into: &mut Vec<String>) {
    let (mut old, new): (Vec<_>, Vec<_>) = found.partition(SocketAddr::is_ipv4);
    if old.is_empty() {
        old = new;
    }
    old.sort_unstable();
    old.dedup();
    if old.len() < 2 {
        into.push(name.to_owned());
    } else {
        into.extend(old.iter().map(SocketAddr::to_string));
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
    use super::spread;

    fn spreads(name: &str, found: &[&str]) -> Vec<String> {
        let mut into = Vec::new();
        let found = found.iter().map(|address| address.parse().unwrap());
        spread(name, found, &mut into);
        into
    }

    #[test]
    fn a_name_with_several_addresses_is_as_many_name_servers() {
        let two = ["10.0.0.2:9876", "10.0.0.1:9876", "10.0.0.2:9876"];
        assert_eq!(spreads("names:9876", &two), ["10.0.0.1:9876", "10.0.0.2:9876"]);
        assert_eq!(
            spreads("names:9876", &["[::2]:9876", "[::1]:9876"]),
            ["[::1]:9876", "[::2]:9876"]
        );
    }

    #[test]
    fn a_name_with_one_address_of_a_kind_stays_a_name() {
        assert_eq!(
            spreads("localhost:9876", &["[::1]:9876", "127.0.0.1:9876"]),
            ["localhost:9876"]
        );
        assert_eq!(spreads("10.0.0.1:9876", &["10.0.0.1:9876"]), ["10.0.0.1:9876"]);
    }
}
