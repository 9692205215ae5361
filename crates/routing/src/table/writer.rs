//! Registering brokers in the tables (Apache `RouteInfoManager.registerBroker`), one registration at a time.

use super::entries::{BrokerEntry, RouteData, SetAddresses, TopicQueues};
use super::registered_topics::RegisteredTopic;
use super::route_view::{Live, RouteView};
use super::types::{
    BrokerKey, DEFAULT_TIMEOUT_MS, MinIdChange, RegisterError, Registered, Registration, RegistrationEvents,
};
use crate::route::MASTER_ID;
use pyrmq_remoting::body::{BrokerData, QueueData};
use pyrmq_remoting::names::PERM_WRITE;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Data that only writers and lists need.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) view: Arc<RouteView>,
    /// Broker name to its topics: the reverse index.
    pub(super) topics: HashMap<Arc<str>, HashSet<Arc<str>>>,
    pub(super) brokers: BTreeMap<Arc<str>, BrokerState>,
    pub(super) clusters: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// Connection to the brokers that registered on it.
    pub(super) peers: HashMap<u64, HashSet<BrokerKey>>,
}

/// One broker name, before it is published.
#[derive(Debug)]
pub(super) struct BrokerState {
    pub(super) broker_entry: Arc<BrokerEntry>,
    pub(super) data: BrokerData,
    pub(super) filters: BTreeMap<String, Vec<String>>,
    /// Address sets by broker address.
    pub(super) advertised: BTreeMap<String, SetAddresses>,
    /// The last address that lost its id to another one. A live broker there has the same identity by mistake.
    pub(super) replaced: BTreeMap<i64, String>,
}

impl Writer {
    pub(super) fn new(view: Arc<RouteView>) -> Self {
        Self {
            view,
            topics: HashMap::new(),
            brokers: BTreeMap::new(),
            clusters: BTreeMap::new(),
            peers: HashMap::new(),
        }
    }

    pub(super) fn register(
        &mut self,
        from: &Registration<'_>,
        now_ms: i64,
    ) -> Result<(Registered, RegistrationEvents), RegisterError> {
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
            return Ok((Registered::Stale, RegistrationEvents::default()));
        }
        let known = self.brokers.get(from.name);
        let addresses = known.map(|broker| &broker.data.broker_addrs);
        let had_id = addresses.is_some_and(|addresses| addresses.contains_key(&from.id));
        // Apache counts from 0 if there was no broker before.
        let lowest_before = addresses
            .and_then(|addresses| addresses.keys().next().copied())
            .unwrap_or(0);
        if !had_id && from.topics.count() == 1 {
            return Err(RegisterError::SingleTopic {
                name: from.name.to_owned(),
                id: from.id,
            });
        }
        self.refuse_too_many(from)?;
        let mut outcome = RegistrationEvents::default();
        let broker_entry = self.add_broker(from, &mut outcome);
        let broker = self.brokers.get(from.name);
        let lowest = broker.and_then(|broker| broker.data.broker_addrs.keys().next().copied());
        let is_master = from.id == MASTER_ID;
        // The header's presence alone makes a slave eligible, even if it says false; its topics then stay writable.
        let is_prime_slave = !is_master && from.acting_master.is_some() && lowest == Some(from.id);
        let mut in_force = true;
        if is_master || is_prime_slave {
            let read_only = is_prime_slave && from.acting_master == Some(true);
            in_force = self.apply_topics(&broker_entry, from, !had_id, read_only);
        }
        self.apply_filters(from);
        self.apply_sets(from);
        self.publish(from.name);
        self.mark_live(&broker_entry, from, now_ms, in_force);
        if from.id < lowest_before {
            outcome.notice = self.min_id_change(from);
        }
        let broker = self.brokers.get(from.name);
        let master = broker.and_then(|broker| self.view.master_for(&broker.data, from.id));
        Ok((Registered::Accepted { master }, outcome))
    }

    /// Returns true if another live address holds this name and id with a larger state version.
    fn is_stale(&self, from: &Registration<'_>) -> bool {
        let Some(data) = self.brokers.get(from.name).map(|broker| &broker.data) else {
            return false;
        };
        let holder = data
            .broker_addrs
            .get(&from.id)
            .filter(|held| *held != from.address);
        let key = holder.map(|address| BrokerKey::new(&data.cluster, address));
        let live = self.view.live();
        key.and_then(|key| live.get(&key))
            .is_some_and(|holder| holder.version.state_version > from.topics.version().state_version)
    }

    /// Adds the broker's name, cluster and address to the tables, and removes their previous entries.
    fn add_broker(&mut self, from: &Registration<'_>, outcome: &mut RegistrationEvents) -> Arc<BrokerEntry> {
        self.remove_other_name(from, outcome);
        self.change_cluster(from, outcome);
        let name: Arc<str> = match self.brokers.get_key_value(from.name) {
            Some((name, _)) => name.clone(),
            None => from.name.into(),
        };
        self.clusters
            .entry(from.cluster.to_owned())
            .or_default()
            .insert(name.clone());
        let broker = self.brokers.entry(name.clone()).or_insert_with(|| BrokerState {
            broker_entry: Arc::new(BrokerEntry::new(name)),
            data: BrokerData {
                broker_name: from.name.to_owned(),
                cluster: from.cluster.to_owned(),
                ..BrokerData::default()
            },
            filters: BTreeMap::new(),
            advertised: BTreeMap::new(),
            replaced: BTreeMap::new(),
        });
        let (broker_entry, data) = (broker.broker_entry.clone(), &mut broker.data);
        data.enable_acting_master = from.acting_master == Some(true);
        data.zone_name = from.zone.map(str::to_owned);
        // A slave that became master keeps one entry, not two.
        data.broker_addrs.retain(|id, address| {
            let stays = address != from.address || *id == from.id;
            if !stays {
                outcome
                    .events
                    .push(format!("its id changed from {id} to {}", from.id));
            }
            stays
        });
        let replaced = data.broker_addrs.insert(from.id, from.address.to_owned());
        match replaced {
            Some(old) if old != from.address => {
                outcome.events.push(format!("it takes the place of {old}"));
                let key = BrokerKey::new(from.cluster, &old);
                broker.replaced.insert(from.id, old);
                self.remove_live(&key);
            }
            None if outcome.events.is_empty() => outcome.events.push("new broker".to_owned()),
            _ => {}
        }
        broker_entry
    }

    /// Removes the previous name of the process at this address.
    fn remove_other_name(&mut self, from: &Registration<'_>, outcome: &mut RegistrationEvents) {
        let key = BrokerKey::new(from.cluster, from.address);
        let other = self
            .view
            .live()
            .get(&key)
            .map(|live| live.broker_entry.name.clone());
        if let Some(name) = other.filter(|name| **name != *from.name) {
            outcome.events.push(format!("its name was {name}"));
            self.drop_address(&name, from.address);
            self.remove_live(&key);
        }
    }

    /// Moves a name to another cluster: removes it from the old one, with all its addresses.
    fn change_cluster(&mut self, from: &Registration<'_>, outcome: &mut RegistrationEvents) {
        let Some(broker) = self
            .brokers
            .get_mut(from.name)
            .filter(|broker| broker.data.cluster != from.cluster)
        else {
            return;
        };
        let old = std::mem::replace(&mut broker.data.cluster, from.cluster.to_owned());
        outcome.events.push(format!("its cluster was {old}"));
        let addresses: Vec<String> = broker.data.broker_addrs.values().cloned().collect();
        self.remove_from_cluster(&old, from.name);
        for address in addresses {
            let before = BrokerKey::new(&old, &address);
            let after = BrokerKey::new(from.cluster, &address);
            if self.view.live().contains_key(&after) {
                // Another name has this address there, so the entry is no longer ours.
                self.remove_live(&before);
                if let Some(broker) = self.brokers.get_mut(from.name) {
                    broker.data.broker_addrs.retain(|_, held| *held != address);
                }
                continue;
            }
            let live = self.view.live_mut().remove(&before);
            if let Some(live) = live {
                let keys = self.peers.entry(live.peer).or_default();
                keys.remove(&before);
                keys.insert(after.clone());
                self.view.live_mut().insert(after, live);
            }
        }
    }

    pub(super) fn remove_from_cluster(&mut self, cluster: &str, name: &str) {
        if let Some(names) = self.clusters.get_mut(cluster) {
            names.remove(name);
            if names.is_empty() {
                self.clusters.remove(cluster);
            }
        }
    }

    /// Applies the topics. False: the version was known, so queues that others have changed stay unchanged.
    fn apply_topics(
        &mut self,
        broker_entry: &Arc<BrokerEntry>,
        from: &Registration<'_>,
        first: bool,
        read_only: bool,
    ) -> bool {
        let topics = from.topics;
        let delete = self.view.settings().delete_topic_with_broker_registration;
        if delete && topics.mappings().is_empty() {
            let known = self.topics.get(&broker_entry.name).into_iter().flatten();
            let lost: Vec<Arc<str>> = known.filter(|topic| !topics.has(topic)).cloned().collect();
            for topic in lost {
                self.drop_queues(&topic, &broker_entry.name);
            }
        }
        let key = BrokerKey::new(from.cluster, from.address);
        let same = self
            .view
            .live()
            .get(&key)
            .map(|live| live.version == *topics.version());
        let changed = first || same != Some(true);
        let mut expected_at = 0;
        topics.each(&mut |topic| {
            let has = || {
                self.view
                    .topic_entry(topic.name)
                    .is_some_and(|topic_entry| topic_entry.has(&broker_entry.name))
            };
            if !topic.name.is_empty() && (changed || !has()) {
                self.put_queues(
                    topic.name,
                    &topic_queues(broker_entry, topic, read_only),
                    &mut expected_at,
                );
            }
        });
        if changed {
            for (topic, info) in topics.mappings() {
                let broker = info.broker_name.as_deref().unwrap_or(&broker_entry.name);
                self.view.map(topic, broker, Some(info.clone()));
            }
        }
        changed
    }

    fn apply_filters(&mut self, from: &Registration<'_>) {
        let Some(broker) = self.brokers.get_mut(from.name) else {
            return;
        };
        match from.filter_servers {
            Some([]) => drop(broker.filters.remove(from.address)),
            Some(servers) => drop(broker.filters.insert(from.address.to_owned(), servers.to_vec())),
            None => {}
        }
    }

    fn apply_sets(&mut self, from: &Registration<'_>) {
        let Some(broker) = self.brokers.get_mut(from.name) else {
            return;
        };
        if from.advertised.is_empty() {
            broker.advertised.remove(from.address);
        } else {
            let sets = from.advertised.iter().cloned().collect();
            broker.advertised.insert(from.address.to_owned(), sets);
        }
    }

    /// Publishes the current state of a broker name, or its removal, to routes.
    pub(super) fn publish(&mut self, name: &str) {
        if let Some(broker) = self.brokers.get_mut(name) {
            let held = &broker.data.broker_addrs;
            broker
                .filters
                .retain(|address, _| held.values().any(|held| held == address));
            broker
                .advertised
                .retain(|address, _| held.values().any(|held| held == address));
            let route_data = RouteData {
                data: broker.data.clone(),
                filters: broker.filters.clone(),
                advertised: broker.advertised.clone(),
            };
            self.view.publish(&broker.broker_entry, Some(route_data));
        }
    }

    fn mark_live(
        &mut self,
        broker_entry: &Arc<BrokerEntry>,
        from: &Registration<'_>,
        now_ms: i64,
        in_force: bool,
    ) {
        let key = BrokerKey::new(from.cluster, from.address);
        self.remove_live(&key);
        self.peers.entry(from.peer).or_default().insert(key.clone());
        let live = Live {
            updated_ms: AtomicI64::new(now_ms),
            timeout_ms: from.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS),
            version: *from.topics.version(),
            ha_address: from.ha_address.to_owned(),
            peer: from.peer,
            broker_entry: broker_entry.clone(),
            software: from.software,
            registration: from
                .fingerprint
                .map(|fingerprint| self.view.registration_state(broker_entry, fingerprint)),
            content_fingerprint: from
                .content_fingerprint
                .filter(|_| in_force)
                .map(|content_fingerprint| {
                    (
                        content_fingerprint,
                        broker_entry.perms_version.load(Ordering::Acquire),
                    )
                }),
        };
        self.view.live_mut().insert(key, Arc::new(live));
    }

    /// Returns a notice to the other brokers if a broker with the lowest id joined (Apache
    /// `chooseBrokerAddrsToNotify`).
    fn min_id_change(&self, from: &Registration<'_>) -> Option<MinIdChange> {
        let addresses = &self.brokers.get(from.name)?.data.broker_addrs;
        let (id, address) = addresses.first_key_value()?;
        let others = addresses
            .iter()
            .filter(|(other, _)| addresses.len() == 1 || *other != id);
        Some(MinIdChange {
            name: from.name.to_owned(),
            id: *id,
            address: address.clone(),
            offline: None,
            ha_address: Some(from.ha_address.to_owned()),
            recipients: others.map(|(_, address)| address.clone()).collect(),
        })
    }

    /// Adds or replaces a broker's queues of a topic; for `expected_at` see
    /// [`TopicEntry::put`](super::entries::TopicEntry::put).
    pub(super) fn put_queues(&mut self, topic: &str, topic_queues: &TopicQueues, expected_at: &mut usize) {
        if let Some(topic) = self.view.put(topic, topic_queues, expected_at) {
            self.topics
                .entry(topic_queues.broker_entry.name.clone())
                .or_default()
                .insert(topic);
        }
    }

    /// Removes one broker's queues of a topic, and a topic without queues.
    pub(super) fn drop_queues(&mut self, topic: &str, name: &str) {
        self.view.change(topic, |queues_by_broker| {
            let before = queues_by_broker.len();
            queues_by_broker.retain(|topic_queues| {
                let stays = *topic_queues.broker_entry.name != *name;
                if !stays {
                    topic_queues
                        .broker_entry
                        .queues_version
                        .fetch_add(1, Ordering::AcqRel);
                }
                stays
            });
            queues_by_broker.len() != before
        });
        if let Some(topics) = self.topics.get_mut(name) {
            topics.remove(topic);
            if topics.is_empty() {
                self.topics.remove(name);
            }
        }
    }
}

fn topic_queues(broker_entry: &Arc<BrokerEntry>, topic: RegisteredTopic<'_>, read_only: bool) -> TopicQueues {
    TopicQueues {
        broker_entry: broker_entry.clone(),
        perm: if read_only {
            topic.perm & !PERM_WRITE
        } else {
            topic.perm
        },
        read_queues: topic.read_queues,
        write_queues: topic.write_queues,
        sys_flag: topic.sys_flag,
    }
}

/// Builds the queues of a broker from the data of request 217.
pub(super) fn announced(broker_entry: &Arc<BrokerEntry>, data: &QueueData) -> TopicQueues {
    TopicQueues {
        broker_entry: broker_entry.clone(),
        perm: data.perm,
        read_queues: data.read_queue_nums,
        write_queues: data.write_queue_nums,
        sys_flag: data.topic_sys_flag,
    }
}
