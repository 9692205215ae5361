//! The part of the tables that is queried all the time, readable during writes: routes and heartbeats.
//!
//! ```text
//! shards    topic -> topic entry             a look-up under a shard's lock, then the entry alone
//! topic     entries: (broker entry, queues, perm) by broker name; a version; the encoded answer in each JSON form
//! broker    one broker name: its addresses and filter servers, swapped whole; `None` once removed; a version
//! live      (cluster, address) -> last heartbeat (atomic), timeout, data version, connection
//! ```
//! An encoded answer is valid while its topic's version, the versions of its broker entries and the version of the
//! settings are what they were before its parts were read. `brokers_version` grows with every change of a broker: while
//! it is unchanged, no broker entry is checked. Writers first change data, then increment versions, so an answer may be
//! discarded too early, never too late. No lock is held while an answer is encoded; every lock here is held for one
//! look-up or one change.

use super::encoded::{Cache, Encoded, Form};
use super::entries::{BrokerEntries, BrokerEntry, RouteData, TopicEntry, TopicQueues};
use super::rewrite::{Addresses, act_as_master};
use super::types::{BrokerKey, Settings};
use crate::route::MASTER_ID;
use bytes::Bytes;
use pyrmq_remoting::body::{
    Body, BrokerData, DataVersion, KVTable, Style, TopicQueueMappingInfo, TopicRouteData,
};
use pyrmq_remoting::names::SYNC_BROKER_MEMBER_PREFIX;
use pyrmq_remoting::sync::{read, write};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

const SHARDS: usize = 64;

/// A registered broker process.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) updated_ms: AtomicI64,
    pub(super) timeout_ms: i64,
    pub(super) version: DataVersion,
    pub(super) ha_address: String,
    pub(super) peer: u64,
    pub(super) broker_entry: Arc<BrokerEntry>,
    /// Version ordinal of the broker's software.
    pub(super) software: i32,
    /// State after the broker's last registration; see [`RouteView::is_unchanged`].
    pub(super) registration: Option<RegistrationState>,
    /// Fingerprint of the last registration without its version, and the `perms_version` then; see
    /// [`super::RouteTable::refresh_version`].
    pub(super) content_fingerprint: Option<(u64, u64)>,
}

/// Identifies a registration and the versions of what it wrote. While they are unchanged, repeating it changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegistrationState {
    pub(super) fingerprint: u64,
    pub(super) version: u64,
    pub(super) queues_version: u64,
    pub(super) settings_version: u64,
}

#[derive(Debug, Default)]
struct Order {
    table: Option<BTreeMap<String, String>>,
    encoded: Option<Bytes>,
}

type Mapping = BTreeMap<String, TopicQueueMappingInfo>;
type Shard = RwLock<HashMap<Arc<str>, Arc<TopicEntry>>>;

/// The name server's tables as readers see them; the module's documentation has the rules of their locks.
#[derive(Debug)]
pub(super) struct RouteView {
    hasher: RandomState,
    // Each guards which topics there are.
    shards: Vec<Shard>,
    // Guards the live brokers.
    live: RwLock<HashMap<BrokerKey, Arc<Live>>>,
    settings: RwLock<Settings>,
    order: RwLock<Order>,
    // Guards the mappings of static topics.
    mappings: RwLock<HashMap<String, Arc<Mapping>>>,
    settings_version: AtomicU64,
    brokers_version: AtomicU64,
    cache: Cache,
    /// Names of the address sets whose routes are cached.
    sets: Vec<String>,
}

impl RouteView {
    pub(super) fn new(settings: Settings, sets: Vec<String>) -> Self {
        Self {
            sets,
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            live: RwLock::default(),
            settings: RwLock::new(settings),
            order: RwLock::default(),
            mappings: RwLock::default(),
            settings_version: AtomicU64::new(0),
            brokers_version: AtomicU64::new(0),
            cache: Cache::default(),
        }
    }

    fn shard(&self, topic: &str) -> &Shard {
        let hash = usize::try_from(self.hasher.hash_one(topic) % SHARDS as u64).unwrap_or(0);
        &self.shards[hash]
    }

    pub(super) fn topic_entry(&self, topic: &str) -> Option<Arc<TopicEntry>> {
        read(self.shard(topic)).get(topic).cloned()
    }

    /// Visits every topic with its entry, in no order.
    pub(super) fn each(&self, mut visit: impl FnMut(&Arc<str>, &TopicEntry)) {
        for shard in &self.shards {
            for (topic, topic_entry) in read(shard).iter() {
                visit(topic, topic_entry);
            }
        }
    }

    /// Returns the number of topics.
    pub(super) fn topics(&self) -> usize {
        self.shards.iter().map(|shard| read(shard).len()).sum()
    }

    /// Adds or replaces a broker's queues of a topic. Returns the topic's shared name if the broker did not have it.
    pub(super) fn put(
        &self,
        topic: &str,
        topic_queues: &TopicQueues,
        expected_at: &mut usize,
    ) -> Option<Arc<str>> {
        let shard = self.shard(topic);
        let put = |name: &Arc<str>, topic_entry: &TopicEntry, expected_at: &mut usize| {
            let (changed, added) = topic_entry.put(topic_queues, expected_at);
            if changed {
                topic_queues
                    .broker_entry
                    .queues_version
                    .fetch_add(1, Ordering::AcqRel);
            }
            added.then(|| name.clone())
        };
        if let Some((name, topic_entry)) = read(shard).get_key_value(topic) {
            return put(name, topic_entry, expected_at);
        }
        let (name, topic_entry): (Arc<str>, Arc<TopicEntry>) = (topic.into(), Arc::default());
        let added = put(&name, &topic_entry, expected_at);
        write(shard).insert(name, topic_entry);
        added
    }

    /// Changes a topic's queues and removes a topic that has none left. `change` returns false if nothing changed.
    pub(super) fn change(&self, topic: &str, change: impl FnOnce(&mut Vec<TopicQueues>) -> bool) {
        let Some(topic_entry) = self.topic_entry(topic) else {
            return;
        };
        let mut queues_by_broker = topic_entry.queues_by_broker();
        let changed = change(&mut queues_by_broker);
        let empty = queues_by_broker.is_empty();
        drop(queues_by_broker);
        if changed {
            topic_entry.changed();
        }
        if empty {
            write(self.shard(topic)).remove(topic);
        }
    }

    /// Replaces the data of a broker name that routes contain.
    pub(super) fn publish(&self, broker_entry: &BrokerEntry, route_data: Option<RouteData>) {
        if broker_entry.route_data().as_deref() == route_data.as_ref() {
            return;
        }
        *write(&broker_entry.route_data) = route_data.map(Arc::new);
        broker_entry.version.fetch_add(1, Ordering::AcqRel);
        self.brokers_version.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn live(&self) -> RwLockReadGuard<'_, HashMap<BrokerKey, Arc<Live>>> {
        read(&self.live)
    }

    pub(super) fn live_mut(&self) -> RwLockWriteGuard<'_, HashMap<BrokerKey, Arc<Live>>> {
        write(&self.live)
    }

    /// The address and the HA address of the master that the broker with this id follows, if it lives. A slave learns
    /// them from the answer to its registration; a master needs none.
    pub(super) fn master_for(&self, data: &BrokerData, id: i64) -> Option<(String, String)> {
        if id == MASTER_ID {
            return None;
        }
        let address = data.broker_addrs.get(&MASTER_ID)?;
        let live = self.live();
        let master = live.get(&BrokerKey::new(&data.cluster, address))?;
        Some((address.clone(), master.ha_address.clone()))
    }

    pub(super) fn settings(&self) -> Settings {
        *read(&self.settings)
    }

    pub(super) fn set_settings(&self, settings: Settings) {
        *write(&self.settings) = settings;
        self.settings_version.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn set_order(&self, table: Option<BTreeMap<String, String>>) {
        let encoded = table.clone().map(|table| KVTable { table }.encode().into());
        let before = std::mem::replace(
            &mut *write(&self.order),
            Order {
                table: table.clone(),
                encoded,
            },
        );
        let (before, after) = (before.table.unwrap_or_default(), table.unwrap_or_default());
        for topic in before.keys().chain(after.keys()) {
            if before.get(topic) != after.get(topic)
                && let Some(topic_entry) = self.topic_entry(topic)
            {
                topic_entry.changed();
            }
        }
    }

    /// The order configuration of all topics as the body of a registration's answer.
    pub(super) fn order_body(&self) -> Option<Bytes> {
        read(&self.order).encoded.clone()
    }

    /// Replaces a broker's data on a static topic; `None` removes it.
    pub(super) fn map(&self, topic: &str, broker: &str, info: Option<TopicQueueMappingInfo>) {
        let mut mappings = write(&self.mappings);
        let entry = mappings.entry(topic.to_owned()).or_default();
        let mapping = Arc::make_mut(entry);
        match info {
            Some(info) => drop(mapping.insert(broker.to_owned(), info)),
            None => drop(mapping.remove(broker)),
        }
        if mapping.is_empty() {
            mappings.remove(topic);
        }
        drop(mappings);
        if let Some(topic_entry) = self.topic_entry(topic) {
            topic_entry.changed();
        }
    }

    /// Returns the static topics for which a broker has data.
    pub(super) fn mapped_by(&self, broker: &str) -> Vec<String> {
        let mappings = read(&self.mappings);
        let of = mappings.iter().filter(|(_, by)| by.contains_key(broker));
        of.map(|(topic, _)| topic.clone()).collect()
    }

    /// Returns the versions of the settings and of a broker entry, for [`RegistrationState`].
    pub(super) fn registration_state(
        &self,
        broker_entry: &BrokerEntry,
        fingerprint: u64,
    ) -> RegistrationState {
        RegistrationState {
            fingerprint,
            version: broker_entry.version.load(Ordering::Acquire),
            queues_version: broker_entry.queues_version.load(Ordering::Acquire),
            settings_version: self.settings_version.load(Ordering::Acquire),
        }
    }

    /// Returns true if this registration equals the previous one on the same connection, and what it wrote is
    /// unchanged.
    pub(super) fn is_unchanged(&self, live: &Live, fingerprint: u64, peer: u64) -> bool {
        live.peer == peer
            && live.registration == Some(self.registration_state(&live.broker_entry, fingerprint))
    }

    /// Returns the encoded route of a topic, with the addresses of a set.
    pub(super) fn answer(&self, topic: &str, style: Style, set: Option<&str>) -> Option<Bytes> {
        let topic_entry = self.topic_entry(topic)?;
        let at = set.and_then(|set| self.sets.iter().position(|known| known == set));
        let form = Form::new(style.quote_integers, at, self.sets.len());
        // Without a slot of its own, a set would share the slot of the usual addresses.
        let set = set.filter(|_| at.is_some());
        let brokers_version = self.brokers_version.load(Ordering::Acquire);
        let settings_version = self.settings_version.load(Ordering::Acquire);
        let version = topic_entry.version.load(Ordering::Acquire);
        if let Some(encoded) = &*topic_entry.encoded(form)
            && encoded.holds(version, settings_version, brokers_version)
        {
            return Some(encoded.body());
        }
        let (route, broker_entries) = self.collect_route(topic, &topic_entry, set)?;
        let body = Bytes::from(route.encode_as(style));
        self.cache.store(
            &topic_entry,
            form,
            body.len() + broker_entries.len() * size_of::<(Arc<BrokerEntry>, u64)>(),
            |charge| {
                Encoded::new(
                    body.clone(),
                    version,
                    settings_version,
                    brokers_version,
                    broker_entries,
                    charge,
                )
            },
        );
        Some(body)
    }

    /// Returns the route of a topic with the addresses of a set, and the broker entries that it was read from with
    /// their versions before the read.
    pub(super) fn collect_route(
        &self,
        topic: &str,
        topic_entry: &TopicEntry,
        set: Option<&str>,
    ) -> Option<(TopicRouteData, BrokerEntries)> {
        let queues_by_broker = topic_entry.queues_by_broker().clone();
        let broker_entries: BrokerEntries = queues_by_broker
            .iter()
            .map(|topic_queues| {
                (
                    topic_queues.broker_entry.clone(),
                    topic_queues.broker_entry.version.load(Ordering::Acquire),
                )
            })
            .collect();
        let mut route = TopicRouteData {
            broker_datas: Vec::with_capacity(queues_by_broker.len()),
            queue_datas: Vec::with_capacity(queues_by_broker.len()),
            topic_queue_mapping_by_broker: read(&self.mappings).get(topic).map(|mapping| (**mapping).clone()),
            ..TopicRouteData::default()
        };
        for topic_queues in &queues_by_broker {
            if let Some(route_data) = topic_queues.broker_entry.route_data() {
                route.queue_datas.push(topic_queues.queue_data());
                let addresses = Addresses::new(&route_data.advertised, set);
                route.broker_datas.push(addresses.shown(&route_data.data));
                let filters = route_data.filters.iter();
                let filters =
                    filters.map(|(address, servers)| (addresses.of(address).to_owned(), servers.clone()));
                route.filter_server_table.extend(filters);
            }
        }
        if route.broker_datas.is_empty() {
            return None;
        }
        let settings = self.settings();
        if settings.order_message_enable {
            let order = read(&self.order);
            route.order_topic_conf = order.table.as_ref().and_then(|table| table.get(topic)).cloned();
        }
        if settings.support_acting_master && !topic.starts_with(SYNC_BROKER_MEMBER_PREFIX) {
            act_as_master(&mut route);
        }
        Some((route, broker_entries))
    }

    /// Returns the bytes of cached answers.
    pub(super) fn cached_bytes(&self) -> usize {
        self.cache.bytes()
    }
}
