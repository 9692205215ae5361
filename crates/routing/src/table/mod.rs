//! The name server's tables (Apache `RouteInfoManager`): the brokers, whether they are alive, and their topics.
//!
//! ```text
//! writer      one at a time: broker name -> cluster, id -> address; its topics; cluster -> names; connection -> brokers
//! route view  queried all the time, read without the writer: topic -> queues, encoded routes, heartbeats
//! ```
//! Invariants: every address of a broker name is live, and every live address has a broker name; there is no cluster
//! without brokers and no topic without queues; no name, cluster or address is empty. Time is an argument, in
//! milliseconds of any monotonic clock; connections are numbers. Queries of routes and versions, and heartbeats, never
//! wait for a registration.

mod encoded;
mod entries;
mod limits;
mod queries;
mod registered_topics;
mod removal;
mod rewrite;
mod route_view;
mod sets;
mod types;
mod view;
mod writer;

use pyrmq_remoting::body::DataVersion;
use pyrmq_remoting::sync::lock;
use route_view::RouteView;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use writer::Writer;

pub use queries::UnitTopics;
pub use registered_topics::{RegisteredTopic, RegisteredTopics};
pub use removal::{Departures, RemovalReason, RemovedBroker};
pub use sets::SetView;
pub use types::{
    BrokerKey, DEFAULT_TIMEOUT_MS, MAX_IDS_PER_NAME, MEAN_IDS_PER_NAME, MinIdChange, RegisterError,
    Registered, Registration, RegistrationEvents, Settings,
};
pub use view::BrokerView;

/// The tables. Readers never wait for a writer's work; writers take turns.
#[derive(Debug)]
pub struct RouteTable {
    view: Arc<RouteView>,
    // Guards the data that only registrations, departures and lists need.
    writer: Mutex<Writer>,
}

impl Default for RouteTable {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl RouteTable {
    /// Creates empty tables.
    pub fn new(settings: Settings) -> Self {
        Self::with_sets(settings, Vec::new())
    }

    /// Creates empty tables that can also answer with the addresses of these sets: see [`Self::in_set`].
    pub fn with_sets(settings: Settings, sets: Vec<String>) -> Self {
        let view = Arc::new(RouteView::new(settings, sets));
        Self {
            writer: Mutex::new(Writer::new(view.clone())),
            view,
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    /// Changes the settings for later calls.
    pub fn set_settings(&self, settings: Settings) {
        let writer = self.writer();
        self.view.set_settings(settings);
        drop(writer);
    }

    /// Replaces the order configuration (namespace `ORDER_TOPIC_CONFIG`): topic to `broker:count;broker:count`.
    /// `None`: there is no such namespace.
    pub fn set_order_config(&self, order: Option<BTreeMap<String, String>>) {
        self.view.set_order(order);
    }

    /// Registers a broker, or updates a known one.
    pub fn register(&self, from: &Registration<'_>, now_ms: i64) -> Result<Registered, RegisterError> {
        self.register_with_events(from, now_ms)
            .map(|(registered, _)| registered)
    }

    /// Registers like [`Self::register`], and returns what else it changed.
    pub fn register_with_events(
        &self,
        from: &Registration<'_>,
        now_ms: i64,
    ) -> Result<(Registered, RegistrationEvents), RegisterError> {
        self.writer().register(from, now_ms)
    }

    /// Handles a registration by its fingerprint. `Some`: it equals the previous one on this connection and nothing
    /// that it wrote has changed since, so it counts as a heartbeat and need not be parsed.
    pub fn refresh(
        &self,
        cluster: &str,
        address: &str,
        id: i64,
        peer: u64,
        fingerprint: u64,
        now_ms: i64,
    ) -> Option<Registered> {
        let live = self.view.live().get(&BrokerKey::new(cluster, address))?.clone();
        if !self.view.is_unchanged(&live, fingerprint, peer) {
            return None;
        }
        live.updated_ms.store(now_ms, Ordering::Relaxed);
        let route_data = live.broker_entry.route_data();
        let master = route_data.and_then(|route_data| self.view.master_for(&route_data.data, id));
        Some(Registered::Accepted { master })
    }

    /// Handles a registration by its content fingerprint. `Some`: it differs from the previous one on this connection
    /// only in its version, and nothing that it wrote has changed since, so only the version is updated and the topics
    /// need not be parsed.
    pub fn refresh_version(
        &self,
        (cluster, address, id): (&str, &str, i64),
        peer: u64,
        (content_fingerprint, version, fingerprint): (u64, &DataVersion, u64),
        now_ms: i64,
    ) -> Option<Registered> {
        let writer = self.writer();
        let key = BrokerKey::new(cluster, address);
        let live = self.view.live().get(&key)?.clone();
        let (broker_entry, known) = (&live.broker_entry, live.registration?);
        let same = live.peer == peer
            && live.content_fingerprint
                == Some((
                    content_fingerprint,
                    broker_entry.perms_version.load(Ordering::Acquire),
                ))
            && known == self.view.registration_state(broker_entry, known.fingerprint);
        if !same {
            return None;
        }
        let refreshed = route_view::Live {
            updated_ms: AtomicI64::new(now_ms),
            version: *version,
            ha_address: live.ha_address.clone(),
            broker_entry: broker_entry.clone(),
            registration: Some(self.view.registration_state(broker_entry, fingerprint)),
            ..*live
        };
        let route_data = broker_entry.route_data();
        let master = route_data.and_then(|route_data| self.view.master_for(&route_data.data, id));
        self.view.live_mut().insert(key, Arc::new(refreshed));
        drop(writer);
        Some(Registered::Accepted { master })
    }
}
