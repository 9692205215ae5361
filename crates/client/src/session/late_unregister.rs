//! A second unregistration at brokers that had not answered a heartbeat when they got the first one.
//!
//! Such a broker may still have to process the heartbeat. Apache's brokers process the two in different threads, so the
//! member may be registered last, although it has ended. Then no member reads its share of the queues. While other
//! clients keep the connection open, only another unregistration ends that.

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
const DISCONNECT_DELAY: Duration = Duration::from_secs(2);
/// How long to wait for a silent broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a broker that answers again to process earlier heartbeats.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Brokers that have not answered a heartbeat of this client.
#[derive(Debug, Clone, Default)]
pub(super) struct Unanswered {
    // Guards their addresses. Nothing else is locked under it.
    addresses: Arc<Mutex<BTreeSet<String>>>,
}

impl Unanswered {
    /// Records that a heartbeat is sent. Call the result with its outcome.
    pub(super) fn begin(&self, address: &str) -> impl FnOnce(&Result<Command, NetError>) + Send + use<> {
        let (addresses, address) = (self.addresses.clone(), address.to_owned());
        lock(&addresses).insert(address.clone());
        move |outcome| {
            // A heartbeat is lost with a connection that has ended.
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
        tokio::time::sleep(DISCONNECT_DELAY).await;
        let Some(client) = client.join(Arc::new(ProcessorTable::new())) else {
            return;
        };
        let mut requests = JoinSet::new();
        for address in silent {
            let (client, connections) = (client.clone(), connections.clone());
            let membership = membership.clone();
            requests.spawn(async move {
                // The first answer shows that the broker processes requests again.
                for time in [ANSWER_TIMEOUT, SETTLE_TIME] {
                    let is_connected = client.connected().contains(&address);
                    if !is_connected || membership.is_back(&connections) {
                        return;
                    }
                    let outcome = client.request(&address, membership.unregistration(), time).await;
                    if outcome.is_err() {
                        return;
                    }
                    tokio::time::sleep(SETTLE_TIME).await;
                }
                tracing::debug!(address, "unregistered again");
            });
        }
        while requests.join_next().await.is_some() {}
    });
}
