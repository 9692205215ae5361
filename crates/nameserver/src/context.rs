//! What the name server's rows share: tables, options and counters.

use crate::notify::Notifier;
use crate::options::Options;
use crate::registration_queue::{Job, RegistrationQueue};
use pyrmq_remoting::meter::{Latency, Meter};
use pyrmq_remoting::net::{CloseReason, Events, Peer};
use pyrmq_remoting::sync::{lock, read, write};
use pyrmq_routing::table::{RemovalReason, RemovedBroker, RouteTable};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use tokio::time::Instant;

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) registrations: AtomicU64,
    /// Registrations without changes.
    pub(crate) unchanged: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) unknown_topics: AtomicU64,
    pub(crate) unregistered: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) notices: AtomicU64,
}

/// A broker that ended without unregistering.
#[derive(Debug, Clone)]
pub struct LostBroker {
    /// Name of the broker.
    pub name: String,
    /// Cluster of the broker.
    pub cluster: String,
    /// Address of the broker.
    pub address: String,
    /// When the broker was removed, ms since the name server's start.
    pub at_ms: i64,
}

/// Lost brokers that are remembered: the newest.
const MAX_LOST: usize = 64;

macro_rules! meters {
    ($($name:ident),*) => {
        /// One meter for each native row.
        #[derive(Debug, Default)]
        pub(crate) struct Meters {
            $(pub(crate) $name: Meter,)*
        }

        impl Meters {
            pub(crate) fn read(&self) -> Vec<Latency> {
                vec![$(self.$name.read(stringify!($name)),)*]
            }
        }
    };
}

meters!(
    route,
    register,
    unregister,
    heartbeat,
    data_version,
    cluster_info,
    member_group,
    register_topic
);

/// What every row of the name server reads and changes.
#[derive(Debug)]
pub(crate) struct NameServerContext {
    pub(crate) table: RouteTable,
    pub(crate) queue: RegistrationQueue,
    options: RwLock<Options>,
    // Guards the connections that brokers registered on: an expired broker's connection is closed.
    peers: Mutex<HashMap<u64, Peer>>,
    // Guards the brokers that ended without unregistering, oldest first; for operators.
    lost: Mutex<VecDeque<LostBroker>>,
    started: Instant,
    pub(crate) notifier: Notifier,
    pub(crate) counters: Counters,
    pub(crate) meters: Meters,
}

impl NameServerContext {
    /// `sets` are the address sets that have a listener.
    pub(crate) fn new(options: Options, sets: Vec<String>, notifier: Notifier) -> Self {
        Self {
            table: RouteTable::with_sets(options.table(), sets),
            queue: RegistrationQueue::default(),
            options: RwLock::new(options),
            peers: Mutex::default(),
            lost: Mutex::default(),
            started: Instant::now(),
            notifier,
            counters: Counters::default(),
            meters: Meters::default(),
        }
    }

    /// Returns the milliseconds since the start: a monotonic clock.
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    pub(crate) fn options(&self) -> RwLockReadGuard<'_, Options> {
        read(&self.options)
    }

    pub(crate) fn set_options(&self, options: Options) {
        self.table.set_settings(options.table());
        *write(&self.options) = options;
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<u64, Peer>> {
        lock(&self.peers)
    }

    /// Records that a broker registered on this connection. If the connection has already closed, its brokers are
    /// removed at once: the notice of the close arrived before there was anything to remove.
    pub(crate) fn remember(&self, peer: &Peer) {
        self.peers().insert(peer.id(), peer.clone());
        if peer.is_closed() {
            self.queue.push(Job::Closed(peer.id()));
        }
    }

    /// Queues the removal of brokers that were silent for too long.
    pub(crate) fn expire_silent(&self) {
        if self.table.has_expired(self.now_ms()) {
            self.queue.push(Job::Expired);
        }
    }

    /// Removes every broker to which one of these reasons applies, logs it and notifies the brokers that must know.
    /// Called by the queue's thread.
    pub(crate) fn remove_brokers(&self, reasons: &[RemovalReason]) {
        let left = self.table.remove_brokers(reasons);
        for (reason, removed_brokers) in reasons.iter().zip(&left.removed_brokers) {
            let (counter, why) = match reason {
                RemovalReason::Unregister { .. } => (&self.counters.unregistered, "it unregistered"),
                RemovalReason::Closed(peer) => {
                    self.peers().remove(peer);
                    (&self.counters.lost, "its connection closed")
                }
                RemovalReason::Expired(_) => (&self.counters.expired, "it was silent for too long"),
            };
            counter.fetch_add(removed_brokers.len() as u64, Ordering::Relaxed);
            let expected = matches!(reason, RemovalReason::Unregister { .. });
            report(removed_brokers, why, expected);
            if !expected {
                self.remember_lost(removed_brokers);
            }
            if matches!(reason, RemovalReason::Expired(_)) {
                self.close_connections(removed_brokers);
            }
        }
        if self.options().notify_min_broker_id_changed {
            for notice in &left.notices {
                self.notify(notice);
            }
        }
    }

    fn remember_lost(&self, removed_brokers: &[RemovedBroker]) {
        let at_ms = self.now_ms();
        let mut lost = lock(&self.lost);
        for removed in removed_brokers {
            lost.retain(|one| one.address != removed.broker.address);
            lost.push_back(LostBroker {
                name: removed.name.clone(),
                cluster: removed.broker.cluster.clone(),
                address: removed.broker.address.clone(),
                at_ms,
            });
        }
        let excess = lost.len().saturating_sub(MAX_LOST);
        lost.drain(..excess);
    }

    /// The newest brokers that ended without unregistering, oldest first; some may have come back.
    pub(crate) fn lost_brokers(&self) -> Vec<LostBroker> {
        lock(&self.lost).iter().cloned().collect()
    }

    /// Closes the connections of expired brokers. The close removes other brokers that had registered on them.
    fn close_connections(&self, removed_brokers: &[RemovedBroker]) {
        for removed in removed_brokers {
            let peer = self.peers().get(&removed.peer).cloned();
            if let Some(peer) = peer {
                peer.close();
            }
        }
    }

    pub(crate) fn notify(&self, notice: &pyrmq_routing::table::MinIdChange) {
        let sent = self.notifier.send(notice);
        self.counters.notices.fetch_add(sent, Ordering::Relaxed);
    }
}

impl Events for NameServerContext {
    fn closed(&self, peer: &Peer, _reason: &CloseReason) {
        let known = self.peers().contains_key(&peer.id());
        if known {
            self.queue.push(Job::Closed(peer.id()));
        }
    }
}

fn report(removed_brokers: &[RemovedBroker], why: &str, expected: bool) {
    for removed in removed_brokers {
        let (broker, address, cluster) = (&removed.name, &removed.broker.address, &removed.broker.cluster);
        if expected {
            tracing::info!(broker, address, cluster, "broker removed: {why}");
        } else {
            tracing::warn!(broker, address, cluster, "broker removed: {why}");
        }
    }
}
