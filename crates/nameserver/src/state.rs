//! What the name server's rows share.

use crate::options::Options;
use pyrmq_remoting::net::{CloseReason, Events, Peer};
use pyrmq_routing::table::{Gone, Table};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::Instant;

/// Things counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) registrations: AtomicU64,
    pub(crate) routes: AtomicU64,
    pub(crate) unknown_topics: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) expired: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct State {
    // Read by every route query, written by registrations and departures; no I/O under it.
    table: RwLock<Table>,
    options: RwLock<Options>,
    // Guards the connections that brokers registered by: an expired broker's connection is closed.
    peers: Mutex<HashMap<u64, Peer>>,
    started: Instant,
    pub(crate) counters: Counters,
}

impl State {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            table: RwLock::new(Table::new(options.table())),
            options: RwLock::new(options),
            peers: Mutex::default(),
            started: Instant::now(),
            counters: Counters::default(),
        }
    }

    /// Milliseconds since the start: a clock that only goes forward.
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    pub(crate) fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn options(&self) -> RwLockReadGuard<'_, Options> {
        self.options.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_options(&self, options: Options) {
        self.table_mut().set_settings(options.table());
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<u64, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A broker registered by this connection. If it has closed meanwhile, its brokers go at once: the notice of the
    /// close came before there was anything to take out.
    pub(crate) fn remember(&self, peer: &Peer) {
        self.peers().insert(peer.id(), peer.clone());
        if peer.is_closed() {
            self.lose(peer.id());
        }
    }

    fn lose(&self, peer: u64) {
        if self.peers().remove(&peer).is_none() {
            return;
        }
        let gone = self.table_mut().close(peer);
        self.counters.lost.fetch_add(gone.len() as u64, Ordering::Relaxed);
        report(&gone, "its connection closed");
    }

    /// Takes out brokers that were silent for too long, and closes their connections.
    pub(crate) fn expire(&self) {
        let gone = self.table_mut().expire(self.now_ms());
        self.counters
            .expired
            .fetch_add(gone.len() as u64, Ordering::Relaxed);
        report(&gone, "it was silent for too long");
        for gone in gone {
            let peer = self.peers().remove(&gone.peer);
            if let Some(peer) = peer {
                peer.close();
                // Others that had registered by it cannot be heard any more either.
                let others = self.table_mut().close(gone.peer);
                report(
                    &others,
                    "its connection was closed because another broker on it was silent",
                );
            }
        }
    }
}

impl Events for State {
    fn closed(&self, peer: &Peer, _reason: &CloseReason) {
        self.lose(peer.id());
    }
}

fn report(gone: &[Gone], why: &str) {
    for gone in gone {
        tracing::warn!(
            broker = gone.name,
            address = gone.broker.address,
            cluster = gone.broker.cluster,
            "broker taken out: {why}"
        );
    }
}
