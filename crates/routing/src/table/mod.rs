//! The name server's tables (Apache `RouteInfoManager`): who the brokers are, which are alive, which topics they have.
//!
//! ```text
//! topics    topic -> broker name -> queues, perm         (names: broker name -> its topics, the way back)
//! brokers   broker name -> cluster, id -> address        clusters: cluster -> broker names
//! live      (cluster, address) -> last heartbeat, timeout, data version, connection
//! peers     connection -> the (cluster, address) that registered by it
//! ```
//! Invariants: every address of `brokers` has an entry in `live` and the reverse; a cluster without brokers and a
//! topic without queues do not exist; no name, cluster or address is empty. Time is an argument, in milliseconds of
//! any clock that only goes forward; connections are numbers.

mod ask;
mod leave;

use crate::route::{MASTER_ID, PERM_WRITE};
use pyrmq_remoting::body::{
    BrokerData, DataVersion, QueueData, TopicConfig, TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use thiserror::Error;

pub use ask::Units;
pub use leave::Gone;

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
}

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
    pub topics: &'a TopicConfigAndMappingSerializeWrapper,
    /// Its filter servers; `None` when the body did not say.
    pub filter_servers: Option<&'a [String]>,
    /// The connection that it came by.
    pub peer: u64,
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

#[derive(Debug, Clone)]
struct Live {
    updated_ms: i64,
    timeout_ms: i64,
    version: DataVersion,
    ha_address: String,
    peer: u64,
    name: Arc<str>,
}

/// The tables. One writer at a time; the owner locks.
#[derive(Debug, Default)]
pub struct Table {
    settings: Settings,
    topics: HashMap<Arc<str>, BTreeMap<Arc<str>, QueueData>>,
    names: HashMap<Arc<str>, HashSet<Arc<str>>>,
    brokers: BTreeMap<Arc<str>, BrokerData>,
    clusters: BTreeMap<String, BTreeSet<Arc<str>>>,
    live: HashMap<BrokerKey, Live>,
    peers: HashMap<u64, HashSet<BrokerKey>>,
    filters: HashMap<BrokerKey, Vec<String>>,
    mappings: HashMap<String, BTreeMap<String, TopicQueueMappingInfo>>,
    order: BTreeMap<String, String>,
}

impl Table {
    /// Empty tables.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Changes what is switched on, for what comes from now on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Replaces the order configuration (namespace `ORDER_TOPIC_CONFIG`): topic to `broker:count;broker:count`.
    pub fn set_order_config(&mut self, order: BTreeMap<String, String>) {
        self.order = order;
    }

    /// Takes a broker in, or takes news of one that is known.
    pub fn register(&mut self, from: &Registration<'_>, now_ms: i64) -> Result<Registered, RegisterError> {
        for (what, text) in [
            ("cluster name", from.cluster),
            ("broker name", from.name),
            ("broker address", from.address),
        ] {
            if text.is_empty() {
                return Err(RegisterError::Empty(what));
            }
        }
        if self.is_stale(from) {
            return Ok(Registered::Stale);
        }
        let known = self.brokers.get(from.name);
        let had_id = known.is_some_and(|data| data.broker_addrs.contains_key(&from.id));
        if !had_id && from.topics.topic_config_table.len() == 1 {
            return Err(RegisterError::SingleTopic {
                name: from.name.to_owned(),
                id: from.id,
            });
        }
        let name = self.enter(from);
        let lowest = self
            .brokers
            .get(&name)
            .and_then(|data| data.broker_addrs.keys().min());
        let is_master = from.id == MASTER_ID;
        // The header alone makes a slave take part, even when it says false; its topics then stay writable.
        let is_prime_slave = !is_master && from.acting_master.is_some() && lowest == Some(&from.id);
        if is_master || is_prime_slave {
            let read_only = is_prime_slave && from.acting_master == Some(true);
            self.take_topics(&name, from, !had_id, read_only);
        }
        self.enliven(&name, from, now_ms);
        let master = if is_master { None } else { self.master_of(&name) };
        Ok(Registered::Taken { master })
    }

    /// Another address holds this name and id, lives, and has a larger state version.
    fn is_stale(&self, from: &Registration<'_>) -> bool {
        self.brokers
            .get(from.name)
            .and_then(|data| {
                let address = data
                    .broker_addrs
                    .get(&from.id)
                    .filter(|held| *held != from.address)?;
                self.live.get(&BrokerKey::new(&data.cluster, address))
            })
            .is_some_and(|holder| holder.version.state_version > from.topics.data_version.state_version)
    }

    /// Puts the broker's name, cluster and address into the tables, and out where they stood before.
    fn enter(&mut self, from: &Registration<'_>) -> Arc<str> {
        self.leave_other_name(from);
        self.change_cluster(from);
        let name: Arc<str> = match self.brokers.get_key_value(from.name) {
            Some((name, _)) => name.clone(),
            None => from.name.into(),
        };
        self.clusters
            .entry(from.cluster.to_owned())
            .or_default()
            .insert(name.clone());
        let data = self.brokers.entry(name.clone()).or_insert_with(|| BrokerData {
            broker_name: from.name.to_owned(),
            cluster: from.cluster.to_owned(),
            ..BrokerData::default()
        });
        data.enable_acting_master = from.acting_master == Some(true);
        data.zone_name = from.zone.map(str::to_owned);
        // A slave that became master has one entry, not two.
        data.broker_addrs
            .retain(|id, address| address != from.address || *id == from.id);
        let replaced = data
            .broker_addrs
            .insert(from.id, from.address.to_owned())
            .filter(|old| old != from.address);
        if let Some(old) = replaced {
            self.forget_live(&BrokerKey::new(from.cluster, &old));
        }
        name
    }

    /// The process at this address had another name before.
    fn leave_other_name(&mut self, from: &Registration<'_>) {
        let key = BrokerKey::new(from.cluster, from.address);
        let other = self.live.get(&key).filter(|live| *live.name != *from.name);
        if let Some(name) = other.map(|live| live.name.clone()) {
            self.remove_address(&name, from.address);
            self.forget_live(&key);
        }
    }

    /// The name moved to another cluster: it leaves the old one, with every address that came along.
    fn change_cluster(&mut self, from: &Registration<'_>) {
        let Some(data) = self
            .brokers
            .get_mut(from.name)
            .filter(|data| data.cluster != from.cluster)
        else {
            return;
        };
        let old = std::mem::replace(&mut data.cluster, from.cluster.to_owned());
        let addresses: Vec<String> = data.broker_addrs.values().cloned().collect();
        self.leave_cluster(&old, from.name);
        for address in addresses {
            let before = BrokerKey::new(&old, &address);
            let after = BrokerKey::new(from.cluster, &address);
            if self.live.contains_key(&after) {
                // Another name has this address there: it is not ours any more.
                self.forget_live(&before);
                if let Some(data) = self.brokers.get_mut(from.name) {
                    data.broker_addrs.retain(|_, held| *held != address);
                }
                continue;
            }
            if let Some(servers) = self.filters.remove(&before) {
                self.filters.insert(after.clone(), servers);
            }
            if let Some(live) = self.live.remove(&before) {
                let keys = self.peers.entry(live.peer).or_default();
                keys.remove(&before);
                keys.insert(after.clone());
                self.live.insert(after, live);
            }
        }
    }

    fn leave_cluster(&mut self, cluster: &str, name: &str) {
        if let Some(names) = self.clusters.get_mut(cluster) {
            names.remove(name);
            if names.is_empty() {
                self.clusters.remove(cluster);
            }
        }
    }

    fn take_topics(&mut self, name: &Arc<str>, from: &Registration<'_>, first: bool, read_only: bool) {
        let wrapper = from.topics;
        if self.settings.delete_topic_with_broker_registration
            && wrapper.topic_queue_mapping_info_map.is_empty()
        {
            let known = self.names.get(name).into_iter().flatten();
            let lost: Vec<Arc<str>> = known
                .filter(|topic| !wrapper.topic_config_table.contains_key(&***topic))
                .cloned()
                .collect();
            for topic in lost {
                self.drop_queues(&topic, name);
            }
        }
        let changed = first || self.version(from.cluster, from.address) != Some(&wrapper.data_version);
        for (topic, config) in &wrapper.topic_config_table {
            let has = |queues: &BTreeMap<Arc<str>, QueueData>| queues.contains_key(name);
            if !topic.is_empty() && (changed || !self.topics.get(&**topic).is_some_and(has)) {
                self.put_queues(topic, name, queue_data(name, config, read_only));
            }
        }
        if changed {
            for (topic, info) in &wrapper.topic_queue_mapping_info_map {
                let broker = info.broker_name.clone().unwrap_or_else(|| name.to_string());
                self.mappings
                    .entry(topic.clone())
                    .or_default()
                    .insert(broker, info.clone());
            }
        }
    }

    fn enliven(&mut self, name: &Arc<str>, from: &Registration<'_>, now_ms: i64) {
        let key = BrokerKey::new(from.cluster, from.address);
        self.forget_live_only(&key);
        self.peers.entry(from.peer).or_default().insert(key.clone());
        match from.filter_servers {
            Some([]) => drop(self.filters.remove(&key)),
            Some(servers) => drop(self.filters.insert(key.clone(), servers.to_vec())),
            None => {}
        }
        self.live.insert(
            key,
            Live {
                updated_ms: now_ms,
                timeout_ms: from.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS),
                version: from.topics.data_version.clone(),
                ha_address: from.ha_address.to_owned(),
                peer: from.peer,
                name: name.clone(),
            },
        );
    }

    fn master_of(&self, name: &str) -> Option<(String, String)> {
        let data = self.brokers.get(name)?;
        let address = data.broker_addrs.get(&MASTER_ID)?;
        let live = self.live.get(&BrokerKey::new(&data.cluster, address))?;
        Some((address.clone(), live.ha_address.clone()))
    }

    fn put_queues(&mut self, topic: &str, name: &Arc<str>, queues: QueueData) {
        let topic: Arc<str> = match self.topics.get_key_value(topic) {
            Some((topic, _)) => topic.clone(),
            None => topic.into(),
        };
        self.names.entry(name.clone()).or_default().insert(topic.clone());
        self.topics.entry(topic).or_default().insert(name.clone(), queues);
    }

    /// Takes one broker's queues of a topic out; a topic without queues goes.
    fn drop_queues(&mut self, topic: &str, name: &str) {
        if let Some(queues) = self.topics.get_mut(topic) {
            queues.remove(name);
            if queues.is_empty() {
                self.topics.remove(topic);
            }
        }
        if let Some(topics) = self.names.get_mut(name) {
            topics.remove(topic);
            if topics.is_empty() {
                self.names.remove(name);
            }
        }
    }
}

fn queue_data(name: &str, config: &TopicConfig, read_only: bool) -> QueueData {
    QueueData {
        broker_name: name.to_owned(),
        perm: if read_only {
            config.perm & !PERM_WRITE
        } else {
            config.perm
        },
        read_queue_nums: config.read_queue_nums,
        topic_sys_flag: config.topic_sys_flag,
        write_queue_nums: config.write_queue_nums,
    }
}
