//! A second unregistration at brokers that had not answered a heartbeat when they got the first one.
//!
//! Such a broker may have the heartbeat still. Apache's works on the two in different threads, so the member may be
//! registered last, although it has ended: nobody reads its share of the queues. While other clients keep the
//! connection open, only another unregistration ends that.

use crate::session::connections::Connections;
use crate::session::membership::Membership;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Client, NetError, ProcessorTable, Tracker};
use pyrmq_remoting::sync::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// Time after which a client that ends has closed the connections that no other client shares.
const UNTIL_LEFT: Duration = Duration::from_secs(2);
/// How long a broker that is silent is waited for.
const SILENCE: Duration = Duration::from_secs(30);
/// Time for a broker that answers again to work on heartbeats that came before.
const SETTLED: Duration = Duration::from_secs(1);

/// Brokers that have a heartbeat of this client which they have not answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Unanswered {
    // Guards their addresses. Nothing else is locked under it.
    addresses: Arc<Mutex<BTreeSet<String>>>,
}

impl Unanswered {
    /// A heartbeat leaves. The result takes its outcome.
    pub(super) fn begin(&self, address: &str) -> impl FnOnce(&Result<Command, NetError>) + Send + use<> {
        let (addresses, address) = (self.addresses.clone(), address.to_owned());
        lock(&addresses).insert(address.clone());
        move |outcome| {
            // A connection that has ended has taken the heartbeat along.
            if !matches!(outcome, Err(NetError::Timeout { sent: true, .. })) {
                lock(&addresses).remove(&address);
            }
        }
    }

    /// The brokers among these that have not answered yet.
    pub(super) fn of(&self, addresses: &[String]) -> Vec<String> {
        let known = lock(&self.addresses);
        let silent = addresses.iter().filter(|address| known.contains(*address));
        silent.cloned().collect()
    }
}

/// Unregisters from these brokers again once they answer, unless the member is back by then: it would be taken for its
/// own unregistration.
pub(super) fn unregister_later(
    client: &Client,
    connections: &Arc<Connections>,
    membership: &Arc<Membership>,
    silent: Vec<String>,
) {
    let (client, connections, membership) = (client.downgrade(), connections.clone(), membership.clone());
    Tracker::current().spawn(async move {
        tokio::time::sleep(UNTIL_LEFT).await;
        let Some(client) = client.join(Arc::new(ProcessorTable::new())) else {
            return;
        };
        let mut requests = JoinSet::new();
        for address in silent {
            let (client, connections) = (client.clone(), connections.clone());
            let membership = membership.clone();
            requests.spawn(async move {
                // The first answer says that the broker works on requests again.
                for time in [SILENCE, SETTLED] {
                    let is_connected = client.connected().contains(&address);
                    if !is_connected || membership.is_back(&connections) {
                        return;
                    }
                    let outcome = client.request(&address, membership.unregistration(), time).await;
                    if outcome.is_err() {
                        return;
                    }
                    tokio::time::sleep(SETTLED).await;
                }
                tracing::debug!(address, "unregistered again");
            });
        }
        while requests.join_next().await.is_some() {}
    });
}
