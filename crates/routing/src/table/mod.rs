//! The name server's tables (Apache `RouteInfoManager`): who the brokers are, which are alive, which topics they have.
//!
//! ```text
//! writer     one at a time: broker name -> cluster, id -> address; its topics; cluster -> names; connection -> brokers
//! published  what is asked all the time, read without the writer: topic -> queues, encoded routes, signs of life
//! ```
//! Invariants: every address of a broker name lives and the reverse; a cluster without brokers and a topic without
//! queues do not exist; no name, cluster or address is empty. Time is an argument, in milliseconds of any clock that
//! only goes forward; connections are numbers. Routes, heartbeats and version questions never wait for a registration.

mod announced;
mod encoded;
mod queries;
mod removal;
mod route_view;
mod view;
mod writer;

use pyrmq_remoting::body::DataVersion;
use route_view::{RouteView, lock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use thiserror::Error;
use writer::Writer;

pub use announced::{Announced, AnnouncedTopic};
pub use queries::UnitTopics;
pub use removal::{Departures, RemovalReason, RemovedBroker};
pub use view::BrokerView;

/// How long a broker that names no time lives without a heartbeat (Apache `DEFAULT_BROKER_CHANNEL_EXPIRED_TIME`).
pub const DEFAULT_TIMEOUT_MS: i64 = 120_000;

/// One broker process: (cluster, address).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrokerKey {
    /// Cluster name.
    pub cluster: String,
    /// `host:port`.
    pub address: String,
}

impl BrokerKey {
    /// From borrowed text.
    pub fn new(cluster: &str, address: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            address: address.to_owned(),
        }
    }
}

/// What is switched on (Apache `NamesrvConfig`). All off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// `supportActingMaster`.
    pub support_acting_master: bool,
    /// `deleteTopicWithBrokerRegistration`.
    pub delete_topic_with_broker_registration: bool,
    /// `orderMessageEnable`.
    pub order_message_enable: bool,
    /// Topics that one broker name may have; `None` for any number.
    pub max_topics_per_broker: Option<usize>,
    /// Topics of all broker names together, counted once for each name that has it; `None` for any number.
    pub max_topics: Option<usize>,
    /// Broker names that there may be, with [`IDS_PER_NAME`] ids each and [`IDS_FOR_EACH_NAME`] on average; `None` for
    /// any number.
    pub max_brokers: Option<usize>,
}

/// Ids, a master's and its slaves', that one broker name may have where names are limited.
pub const IDS_PER_NAME: usize = 1000;
/// Ids that there may be for each of the names allowed.
pub const IDS_FOR_EACH_NAME: usize = 10;

/// A broker's announcement.
#[derive(Debug, Clone, Copy)]
pub struct Registration<'a> {
    /// Cluster name.
    pub cluster: &'a str,
    /// `host:port` that clients are told.
    pub address: &'a str,
    /// Broker name.
    pub name: &'a str,
    /// 0 is the master.
    pub id: i64,
    /// `host:port` that slaves are told.
    pub ha_address: &'a str,
    /// Zone, if it names one.
    pub zone: Option<&'a str>,
    /// How long it lives without a heartbeat; `None`: [`DEFAULT_TIMEOUT_MS`].
    pub timeout_ms: Option<i64>,
    /// `None` when the header did not have it: a broker before 5.0.
    pub acting_master: Option<bool>,
    /// Its topics.
    pub topics: &'a dyn Announced,
    /// Its filter servers; `None` when the body did not say.
    pub filter_servers: Option<&'a [String]>,
    /// The connection that it came by.
    pub peer: u64,
    /// Version ordinal of its software.
    pub software: i32,
    /// A number that only the same registration has, so that [`Table::refresh`] can tell; `None`: it is not kept.
    pub fingerprint: Option<u64>,
    /// A number that only registrations have which say the same but for their version, and name no static topics, so
    /// that [`Table::refresh_version`] can tell; `None`: it is not kept.
    pub content_fingerprint: Option<u64>,
}

/// Why a registration is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// Without it the broker could not be told from others, or never be removed.
    #[error("a registration needs a {0}")]
    Empty(&'static str),
    /// A broker that is not known pushes one topic: its whole table must come first.
    #[error("broker {name} with id {id} is not registered yet: send the whole topic table first")]
    SingleTopic {
        /// Broker name.
        name: String,
        /// Broker id.
        id: i64,
    },
    /// More topics than one broker name may have.
    #[error("broker {name} would have {count} topics: at most {limit} are taken (maxTopicsPerBroker)")]
    TooManyTopics {
        /// Broker name.
        name: String,
        /// With those that it has already.
        count: usize,
        /// What is allowed.
        limit: usize,
    },
    /// More topics than all broker names together may have.
    #[error(
        "broker {name} would bring {more} new topics, and all brokers together have {has} already: at most {limit} are taken (maxTopics)"
    )]
    TooManyTopicsOfAll {
        /// Broker name.
        name: String,
        /// Topics that it has not yet.
        more: usize,
        /// Topics of all broker names.
        has: usize,
        /// What is allowed.
        limit: usize,
    },
    /// More broker names than there may be.
    #[error(
        "broker {name} is not known, and there are {limit} brokers already: no more are taken (maxBrokers)"
    )]
    TooManyBrokers {
        /// Broker name.
        name: String,
        /// What is allowed.
        limit: usize,
    },
    /// More ids than one name may have.
    #[error(
        "broker {name} has {limit} ids already, {id} is not taken: a name is for a master and its slaves, other masters need \
         names of their own"
    )]
    TooManyIds {
        /// Broker name.
        name: String,
        /// Broker id.
        id: i64,
        /// What is allowed.
        limit: usize,
    },
    /// More ids than all names may have together.
    #[error(
        "broker {name} with id {id} is not taken: all names together have {limit} ids already, {IDS_FOR_EACH_NAME} for each \
         name that there may be (maxBrokers)"
    )]
    TooManyIdsOfAll {
        /// Broker name.
        name: String,
        /// Broker id.
        id: i64,
        /// What is allowed.
        limit: usize,
    },
}

/// What a registration made of the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// It holds. `master` is the master of a slave, if there is one: its address and its replication address.
    Taken {
        /// (address, replication address).
        master: Option<(String, String)>,
    },
    /// Another process with this name and id has a newer state: nothing was changed.
    Stale,
}

/// What a registration changed beside topics: for the operator, and for the brokers that must be told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistrationEvents {
    /// What happened to the broker, in words.
    pub events: Vec<String>,
    /// The lowest id of its name is another one now.
    pub notice: Option<MinIdChange>,
}

/// The lowest broker id of a name changed (Apache `NotifyMinBrokerIdChangeRequestHeader`, request 905).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinIdChange {
    /// Broker name.
    pub name: String,
    /// The lowest id now.
    pub id: i64,
    /// Its address.
    pub address: String,
    /// Who left, if somebody did.
    pub offline: Option<String>,
    /// The replication address of who came, if somebody did.
    pub ha_address: Option<String>,
    /// Addresses of the brokers that are told.
    pub tell: Vec<String>,
}

/// The tables. Readers never wait for a writer's work; writers take turns.
#[derive(Debug)]
pub struct Table {
    view: Arc<RouteView>,
    // Guards everything that only registrations, departures and lists need.
    writer: Mutex<Writer>,
}

impl Default for Table {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Table {
    /// Empty tables.
    pub fn new(settings: Settings) -> Self {
        let view = Arc::new(RouteView::new(settings));
        Self {
            writer: Mutex::new(Writer::new(view.clone())),
            view,
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    /// Changes what is switched on, for what comes from now on.
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

    /// Takes a broker in, or takes news of one that is known.
    pub fn register(&self, from: &Registration<'_>, now_ms: i64) -> Result<Registered, RegisterError> {
        self.register_with_events(from, now_ms)
            .map(|(registered, _)| registered)
    }

    /// As [`Self::register`]; also says what else it changed.
    pub fn register_with_events(
        &self,
        from: &Registration<'_>,
        now_ms: i64,
    ) -> Result<(Registered, RegistrationEvents), RegisterError> {
        self.writer().register(from, now_ms)
    }

    /// The registration with this fingerprint came again by the same connection. `Some`: nothing that it said has
    /// been touched since, so it is taken as a sign of life and need not be read.
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
        let master = self.master_for(&live.broker_entry, id);
        Some(Registered::Taken { master })
    }

    /// A registration with this content came again by the same connection, with another version. `Some`: nothing that
    /// it said has been touched since, so the version is all that changes and the topics need not be read.
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
            version: version.clone(),
            ha_address: live.ha_address.clone(),
            broker_entry: broker_entry.clone(),
            registration: Some(self.view.registration_state(broker_entry, fingerprint)),
            ..*live
        };
        let master = self.master_for(broker_entry, id);
        self.view.live_mut().insert(key, Arc::new(refreshed));
        drop(writer);
        Some(Registered::Taken { master })
    }

    fn master_for(&self, broker_entry: &route_view::BrokerEntry, id: i64) -> Option<(String, String)> {
        use crate::route::MASTER_ID;
        let route_data = broker_entry.route_data().filter(|_| id != MASTER_ID)?;
        let address = route_data.data.broker_addrs.get(&MASTER_ID)?;
        let live = self.view.live();
        let master = live.get(&BrokerKey::new(&route_data.data.cluster, address))?;
        Some((address.clone(), master.ha_address.clone()))
    }
}
