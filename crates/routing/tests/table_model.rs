//! Compares the tables with a plain model of their rules: one random history, and equal answers after each step.
//!
//! The model keeps flat maps and walks them; it has no shards, versions, cached answers or batches.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use pyrmq_remoting::body::{
    Body, DataVersion, QueueData, Style, TopicConfig, TopicConfigAndMappingSerializeWrapper,
};
use pyrmq_routing::table::{RegisterError, Registered, Registration, RemovalReason, RouteTable, Settings};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

type Key = (&'static str, &'static str);

const NAMES: [&str; 3] = ["a", "b", "c"];
const ADDRESSES: [&str; 4] = ["1:1", "2:2", "3:3", "4:4"];
const CLUSTERS: [&str; 2] = ["C", "D"];
const TOPICS: [&str; 4] = ["t", "u", "v", "w"];
const WRITE: i32 = 2;

#[derive(Debug, Clone, PartialEq)]
struct Register {
    name: &'static str,
    id: i64,
    key: Key,
    counter: i64,
    state: i64,
    topics: usize,
    perm: i32,
    peer: u64,
    timeout: i64,
    acting: Option<bool>,
}

#[derive(Debug, Clone)]
enum Step {
    Register(Register),
    /// The previous registration, byte for byte.
    Again,
    /// The previous registration, with a newer version.
    Renewed,
    Leave(Vec<RemovalReason>),
    Delete(&'static str, Option<&'static str>),
    Announce(&'static str, &'static str),
    Perm(&'static str, bool),
    Heartbeat(Key, i64),
}

#[derive(Debug, Default)]
struct Broker {
    cluster: &'static str,
    acting: bool,
    addresses: BTreeMap<i64, &'static str>,
}

#[derive(Debug)]
struct Live {
    name: &'static str,
    peer: u64,
    updated: i64,
    timeout: i64,
    version: DataVersion,
}

#[derive(Debug, Default)]
struct Model {
    delete: bool,
    brokers: BTreeMap<&'static str, Broker>,
    live: BTreeMap<Key, Live>,
    /// (topic, broker) to permission and queues.
    rows: BTreeMap<(&'static str, &'static str), (i32, i32)>,
}

fn version(of: &Register) -> DataVersion {
    DataVersion {
        counter: of.counter,
        state_version: of.state,
        timestamp: 1,
    }
}

/// The topics of a registration depend on its counter, so that a change is visible.
fn queues(of: &Register) -> i32 {
    4 + i32::try_from(of.counter).unwrap()
}

impl Model {
    fn register(&mut self, from: &Register, now: i64) -> Result<bool, ()> {
        let (cluster, address) = from.key;
        let held = self.brokers.get(from.name);
        let holder = held.and_then(|broker| Some((broker.cluster, *broker.addresses.get(&from.id)?)));
        let other = holder.filter(|(_, held)| *held != address);
        if other.is_some_and(|key| self.live[&key].version.state_version > from.state) {
            return Ok(false);
        }
        if holder.is_none() && from.topics == 1 {
            return Err(());
        }
        if let Some(live) = self.live.get(&from.key).filter(|live| live.name != from.name) {
            let name = live.name;
            self.live.remove(&from.key);
            self.drop_address(name, address);
        }
        self.move_cluster(from.name, cluster);
        let broker = self.brokers.entry(from.name).or_default();
        broker.cluster = cluster;
        broker.acting = from.acting == Some(true);
        broker
            .addresses
            .retain(|id, held| *held != address || *id == from.id);
        let replaced = broker
            .addresses
            .insert(from.id, address)
            .filter(|old| *old != address);
        let lowest = *broker.addresses.keys().next().unwrap();
        if let Some(old) = replaced {
            self.live.remove(&(cluster, old));
        }
        let prime = from.id != 0 && from.acting.is_some() && lowest == from.id;
        if from.id == 0 || prime {
            self.take_topics(from, holder.is_none(), prime && from.acting == Some(true));
        }
        let live = Live {
            name: from.name,
            peer: from.peer,
            updated: now,
            timeout: from.timeout,
            version: version(from),
        };
        self.live.insert(from.key, live);
        Ok(true)
    }

    fn take_topics(&mut self, from: &Register, first: bool, read_only: bool) {
        let sent = &TOPICS[..from.topics];
        if self.delete {
            self.rows
                .retain(|(topic, name), _| *name != from.name || sent.contains(topic));
        }
        let before = self.live.get(&from.key).map(|live| &live.version);
        let changed = first || before != Some(&version(from));
        let perm = if read_only { from.perm & !WRITE } else { from.perm };
        for topic in sent {
            if changed || !self.rows.contains_key(&(*topic, from.name)) {
                self.rows.insert((topic, from.name), (perm, queues(from)));
            }
        }
    }

    fn move_cluster(&mut self, name: &'static str, cluster: &'static str) {
        let Some(broker) = self
            .brokers
            .get_mut(name)
            .filter(|broker| broker.cluster != cluster)
        else {
            return;
        };
        let old = std::mem::replace(&mut broker.cluster, cluster);
        for (id, address) in broker.addresses.clone() {
            let live = self.live.remove(&(old, address)).unwrap();
            match self.live.entry((cluster, address)) {
                Entry::Occupied(_) => drop(broker.addresses.remove(&id)),
                Entry::Vacant(free) => drop(free.insert(live)),
            }
        }
    }

    fn drop_address(&mut self, name: &'static str, address: &str) {
        let broker = self.brokers.get_mut(name).unwrap();
        broker.addresses.retain(|_, held| *held != address);
        if broker.addresses.is_empty() {
            self.brokers.remove(name);
            self.rows.retain(|(_, holder), _| *holder != name);
        } else if broker.acting && !broker.addresses.contains_key(&0) {
            for (_, (perm, _)) in self.rows.iter_mut().filter(|((_, holder), _)| *holder == name) {
                *perm &= !WRITE;
            }
        }
    }

    fn remove_brokers(&mut self, reason: &RemovalReason) -> usize {
        let keys: Vec<Key> = match reason {
            RemovalReason::Unregister {
                cluster,
                address,
                name,
            } => {
                let holder = self.brokers.get(name.as_str());
                let holds = |broker: &&Broker| broker.addresses.values().any(|held| held == address);
                let cluster = holder
                    .filter(holds)
                    .map_or(cluster.as_str(), |broker| broker.cluster);
                let meant = |key: &&Key| key.0 == cluster && key.1 == address;
                self.live.keys().filter(meant).copied().collect()
            }
            RemovalReason::Closed(peer) => self.by(|live| live.peer == *peer),
            RemovalReason::Expired(now) => self.by(|live| live.updated + live.timeout < *now),
        };
        for key in &keys {
            let name = self.live.remove(key).unwrap().name;
            self.drop_address(name, key.1);
        }
        keys.len()
    }

    fn by(&self, wanted: impl Fn(&Live) -> bool) -> Vec<Key> {
        let found = self.live.iter().filter(|(_, live)| wanted(live));
        found.map(|(key, _)| *key).collect()
    }
}

fn registering(
    table: &RouteTable,
    from: &Register,
    (fingerprint, content_fingerprint): (u64, u64),
    now: i64,
) -> Result<bool, ()> {
    let who = (from.key.0, from.key.1, from.id);
    let same = table.refresh(who.0, who.1, who.2, from.peer, fingerprint, now);
    let said = (content_fingerprint, &version(from), fingerprint);
    if let Some(taken) = same.or_else(|| table.refresh_version(who, from.peer, said, now)) {
        assert!(matches!(taken, Registered::Accepted { .. }));
        return Ok(true);
    }
    let named = TOPICS[..from.topics].iter();
    let topics = TopicConfigAndMappingSerializeWrapper {
        data_version: version(from),
        topic_config_table: named
            .map(|topic| {
                (
                    (*topic).to_owned(),
                    TopicConfig::new(*topic, queues(from), from.perm),
                )
            })
            .collect(),
        ..TopicConfigAndMappingSerializeWrapper::default()
    };
    let registration = Registration {
        cluster: from.key.0,
        address: from.key.1,
        name: from.name,
        id: from.id,
        ha_address: "ha",
        zone: None,
        timeout_ms: Some(from.timeout),
        acting_master: from.acting,
        topics: &topics,
        filter_servers: Some(&[]),
        peer: from.peer,
        software: 513,
        fingerprint: Some(fingerprint),
        content_fingerprint: Some(content_fingerprint),
        advertised: &[],
    };
    match table.register(&registration, now) {
        Ok(Registered::Accepted { .. }) => Ok(true),
        Ok(Registered::Stale) => Ok(false),
        Err(RegisterError::SingleTopic { .. }) => Err(()),
        Err(other) => panic!("{other}"),
    }
}

/// Two registrations have the same number only if they have the same content.
fn fingerprint(known: &mut Vec<Register>, of: &Register) -> u64 {
    let at = known.iter().position(|held| held == of).unwrap_or_else(|| {
        known.push(of.clone());
        known.len() - 1
    });
    at as u64
}

fn check(model: &Model, table: &RouteTable) {
    let info = table.cluster_info();
    let actual: BTreeMap<String, (String, BTreeMap<i64, String>)> = info
        .broker_addr_table
        .into_iter()
        .map(|(name, data)| (name, (data.cluster, data.broker_addrs)))
        .collect();
    let owned = |addresses: &BTreeMap<i64, &str>| {
        addresses
            .iter()
            .map(|(id, address)| (*id, (*address).to_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    let meant = model.brokers.iter();
    let meant: BTreeMap<String, (String, BTreeMap<i64, String>)> = meant
        .map(|(name, broker)| {
            (
                (*name).to_owned(),
                (broker.cluster.to_owned(), owned(&broker.addresses)),
            )
        })
        .collect();
    assert_eq!(actual, meant);
    let topics: BTreeSet<&str> = model.rows.keys().map(|(topic, _)| *topic).collect();
    assert_eq!(table.counts(), (model.live.len(), topics.len()));
    assert_eq!(table.topics(), topics.iter().copied().collect::<Vec<_>>());
    for (key, live) in &model.live {
        assert_eq!(table.version(key.0, key.1).as_ref(), Some(&live.version));
    }
    for topic in TOPICS {
        let route = table.route(topic, None);
        let rows = model.rows.iter().filter(|((held, _), _)| *held == topic);
        let rows: Vec<(&str, i32, i32)> = rows
            .map(|((_, name), (perm, queues))| (*name, *perm, *queues))
            .collect();
        let queues = route.iter().flat_map(|route| &route.queue_datas);
        let actual: Vec<(&str, i32, i32)> = queues
            .map(|data: &QueueData| (data.broker_name.as_str(), data.perm, data.read_queue_nums))
            .collect();
        assert_eq!(actual, rows, "{topic}");
        for style in [Style::PLAIN, Style::STANDARD] {
            let encoded = route.as_ref().map(|route| route.encode_as(style));
            assert_eq!(table.route_body(topic, style).map(|body| body.to_vec()), encoded);
        }
    }
    for name in NAMES {
        assert_eq!(
            table.brokers(0).iter().filter(|view| view.name == name).count(),
            model.brokers.get(name).map_or(0, |broker| broker.addresses.len())
        );
    }
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(of: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(of)
}

fn key() -> impl Strategy<Value = Key> {
    (one_of(&CLUSTERS), one_of(&ADDRESSES))
}

fn register() -> impl Strategy<Value = Register> {
    let acting = prop_oneof![Just(None), Just(Some(false)), Just(Some(true))];
    let who = (one_of(&NAMES), 0_i64..3, key(), 0_u64..4, acting);
    let what = (0_i64..3, 0_i64..2, 1_usize..5, one_of(&[2, 4, 6]), 1_i64..1000);
    (who, what).prop_map(
        |((name, id, key, peer, acting), (counter, state, topics, perm, timeout))| Register {
            name,
            id,
            key,
            counter,
            state,
            topics,
            perm,
            peer,
            timeout,
            acting,
        },
    )
}

fn removal() -> impl Strategy<Value = RemovalReason> {
    prop_oneof![
        (key(), one_of(&NAMES)).prop_map(|((cluster, address), name)| RemovalReason::Unregister {
            cluster: cluster.to_owned(),
            address: address.to_owned(),
            name: name.to_owned(),
        }),
        (0_u64..4).prop_map(RemovalReason::Closed),
        (0_i64..3000).prop_map(RemovalReason::Expired),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => register().prop_map(Step::Register),
        3 => Just(Step::Again),
        3 => Just(Step::Renewed),
        2 => proptest::collection::vec(removal(), 1..4).prop_map(Step::Leave),
        1 => (one_of(&TOPICS), proptest::option::of(one_of(&CLUSTERS))).prop_map(|(topic, cluster)| Step::Delete(topic, cluster)),
        1 => (one_of(&TOPICS), one_of(&NAMES)).prop_map(|(topic, name)| Step::Announce(topic, name)),
        1 => (one_of(&NAMES), any::<bool>()).prop_map(|(name, on)| Step::Perm(name, on)),
        1 => (key(), 0_i64..2000).prop_map(|(key, now)| Step::Heartbeat(key, now)),
    ]
}

fn change(model: &mut Model, table: &RouteTable, step: &Step) {
    match step {
        Step::Delete(topic, cluster) => {
            table.delete_topic(topic, *cluster);
            let brokers = &model.brokers;
            let stays = |name: &str| cluster.is_some_and(|cluster| brokers[name].cluster != cluster);
            model.rows.retain(|(held, name), _| held != topic || stays(name));
        }
        Step::Announce(topic, name) => {
            let data = QueueData {
                broker_name: (*name).to_owned(),
                perm: 6,
                read_queue_nums: 9,
                write_queue_nums: 9,
                topic_sys_flag: 0,
            };
            let known = model.brokers.contains_key(name);
            assert_eq!(table.register_topic(topic, &[data]), known);
            if known {
                model.rows.insert((topic, name), (6, 9));
            }
        }
        Step::Perm(name, on) => {
            let rows = model.rows.iter_mut().filter(|((_, holder), _)| holder == name);
            let changed = rows
                .map(|(_, (perm, _))| *perm = if *on { 6 } else { *perm & !WRITE })
                .count();
            let actual = if *on {
                table.add_write_perm(name)
            } else {
                table.wipe_write_perm(name)
            };
            assert_eq!(actual, changed);
        }
        Step::Heartbeat(key, now) => {
            let live = model.live.get_mut(key).map(|live| live.updated = *now);
            assert_eq!(table.heartbeat(key.0, key.1, *now), live.is_some());
        }
        Step::Register(_) | Step::Again | Step::Renewed | Step::Leave(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn the_tables_do_what_the_model_does(steps in proptest::collection::vec(step(), 1..50), delete in any::<bool>()) {
        let table = RouteTable::new(Settings { delete_topic_with_broker_registration: delete, ..Settings::default() });
        let mut model = Model { delete, ..Model::default() };
        let (mut known, mut contents, mut last) = (Vec::new(), Vec::new(), None);
        for (at, step) in steps.iter().enumerate() {
            let now = i64::try_from(at).unwrap();
            let from = match step {
                Step::Register(from) => Some(from.clone()),
                Step::Again => last.clone(),
                Step::Renewed => last.clone().map(|last: Register| Register { state: last.state + 1, ..last }),
                _ => None,
            };
            if let Some(from) = from {
                let content_fingerprint = fingerprint(&mut contents, &Register { state: 0, ..from.clone() });
                let numbers = (fingerprint(&mut known, &from), content_fingerprint);
                prop_assert_eq!(registering(&table, &from, numbers, now), model.register(&from, now));
                last = Some(from);
            }
            if let Step::Leave(reasons) = step {
                let actual: Vec<usize> = table.remove_brokers(reasons).removed_brokers.iter().map(Vec::len).collect();
                let meant: Vec<usize> = reasons.iter().map(|reason| model.remove_brokers(reason)).collect();
                prop_assert_eq!(actual, meant);
            }
            change(&mut model, &table, step);
            check(&model, &table);
        }
    }
}
