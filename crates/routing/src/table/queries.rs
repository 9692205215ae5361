//! What the tables are asked, and the small changes that an operator makes.

use super::route_view::keep_zone;
use super::writer::announced;
use super::{BrokerKey, Table};

use bytes::Bytes;
use pyrmq_remoting::body::{BrokerData, ClusterInfo, DataVersion, QueueData, Style, TopicRouteData};
use pyrmq_remoting::names::{PERM_READ, PERM_WRITE};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Apache `TopicSysFlag.FLAG_UNIT`, `FLAG_UNIT_SUB`.
const FLAG_UNIT: i32 = 1;
const FLAG_UNIT_SUB: i32 = 2;

/// Which unit topics are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitTopics {
    /// Of a unit (311).
    Unit,
    /// Subscribed to by units (312).
    Subscribed,
    /// Subscribed to by units, of none themselves (313).
    SubscribedNotUnit,
}

impl Table {
    /// A broker lives. False: it is not known, and must register.
    pub fn heartbeat(&self, cluster: &str, address: &str, now_ms: i64) -> bool {
        let live = self.view.live();
        let live = live.get(&BrokerKey::new(cluster, address));
        live.is_some_and(|live| {
            live.updated_ms.store(now_ms, Ordering::Relaxed);
            true
        })
    }

    /// The version of the topics that a broker registered last.
    pub fn version(&self, cluster: &str, address: &str) -> Option<DataVersion> {
        let live = self.view.live();
        live.get(&BrokerKey::new(cluster, address))
            .map(|live| live.version.clone())
    }

    /// The route of a topic. `None`: no broker has it. `zone`: leave out what has a master elsewhere.
    pub fn route(&self, topic: &str, zone: Option<&str>) -> Option<TopicRouteData> {
        let topic_entry = self.view.topic_entry(topic)?;
        let (mut route, _) = self.view.gather(topic, &topic_entry)?;
        if let Some(zone) = zone {
            keep_zone(&mut route, zone);
        }
        Some(route)
    }

    /// The route of a topic as the body of an answer: encoded once for each change and form.
    pub fn route_body(&self, topic: &str, style: Style) -> Option<Bytes> {
        self.view.answer(topic, style)
    }

    /// All brokers and clusters.
    pub fn cluster_info(&self) -> ClusterInfo {
        let writer = self.writer();
        let texts = |names: &BTreeSet<Arc<str>>| names.iter().map(ToString::to_string).collect();
        let brokers = writer.brokers.iter();
        let clusters = writer.clusters.iter();
        ClusterInfo {
            broker_addr_table: brokers
                .map(|(name, broker)| (name.to_string(), broker.data.clone()))
                .collect(),
            cluster_addr_table: clusters
                .map(|(cluster, names)| (cluster.clone(), texts(names)))
                .collect(),
        }
    }

    /// The brokers of a name: id to address. As in Apache the cluster is not looked at.
    pub fn members(&self, name: &str) -> BTreeMap<i64, String> {
        let writer = self.writer();
        let data = writer.brokers.get(name).map(|broker| &broker.data);
        data.map(|data: &BrokerData| data.broker_addrs.clone())
            .unwrap_or_default()
    }

    /// All topics, sorted.
    pub fn topics(&self) -> Vec<String> {
        self.topics_where(|_| true)
    }

    /// The topics of a cluster's brokers, sorted.
    pub fn topics_of_cluster(&self, cluster: &str) -> Vec<String> {
        let writer = self.writer();
        let names = writer.clusters.get(cluster).into_iter().flatten();
        let topics: HashSet<Arc<str>> = names
            .filter_map(|name| writer.topics.get(name))
            .flatten()
            .cloned()
            .collect();
        drop(writer);
        let mut topics: Vec<String> = topics.iter().map(ToString::to_string).collect();
        topics.sort_unstable();
        topics
    }

    /// Clusters and broker names, which are topics of their own, and the address of any broker.
    pub fn system_topics(&self) -> (Vec<String>, Option<String>) {
        let writer = self.writer();
        let names: BTreeSet<String> = writer
            .clusters
            .iter()
            .flat_map(|(cluster, names)| {
                std::iter::once(cluster.clone()).chain(names.iter().map(ToString::to_string))
            })
            .collect();
        let brokers = writer.brokers.values();
        let mut addresses = brokers.flat_map(|broker| broker.data.broker_addrs.values());
        (names.into_iter().collect(), addresses.next().cloned())
    }

    /// Topics by their unit flags, sorted.
    pub fn unit_topics(&self, which: UnitTopics) -> Vec<String> {
        self.topics_where(|flag| match which {
            UnitTopics::Unit => flag & FLAG_UNIT != 0,
            UnitTopics::Subscribed => flag & FLAG_UNIT_SUB != 0,
            UnitTopics::SubscribedNotUnit => flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB,
        })
    }

    /// Topics whose first broker's flags are wanted, sorted.
    fn topics_where(&self, wanted: impl Fn(i32) -> bool) -> Vec<String> {
        let mut topics: Vec<Arc<str>> = Vec::new();
        self.view.each(|topic, topic_entry| {
            if topic_entry
                .queue_rows()
                .first()
                .is_some_and(|topic_queues| wanted(topic_queues.sys_flag))
            {
                topics.push(topic.clone());
            }
        });
        topics.sort_unstable();
        topics.iter().map(ToString::to_string).collect()
    }

    /// Takes a topic out, everywhere or from one cluster's brokers. A broker that still has it brings it back with
    /// its next registration.
    pub fn delete_topic(&self, topic: &str, cluster: Option<&str>) {
        let mut writer = self.writer();
        let Some(topic_entry) = self.view.topic_entry(topic) else {
            return;
        };
        let of_cluster = cluster.map(|cluster| writer.clusters.get(cluster));
        let inside =
            |name: &Arc<str>| of_cluster.is_none_or(|names| names.is_some_and(|names| names.contains(name)));
        let queue_rows = topic_entry.queue_rows().clone();
        let names = queue_rows
            .iter()
            .map(|topic_queues| topic_queues.broker_entry.name.clone());
        let names: Vec<Arc<str>> = names.filter(inside).collect();
        for name in names {
            writer.drop_queues(topic, &name);
        }
    }

    /// Announces queues of one topic (217). False: a broker of it is not known, or there are as many topics as there
    /// may be; nothing was changed.
    pub fn register_topic(&self, topic: &str, queues: &[QueueData]) -> bool {
        let mut writer = self.writer();
        let settings = self.view.settings();
        let limit = settings.max_topics_per_broker.unwrap_or(usize::MAX);
        let limit_of_all = settings.max_topics.unwrap_or(usize::MAX);
        let is_full = writer.topics_of_all().saturating_add(queues.len()) > limit_of_all;
        let taken = |data: &QueueData| {
            let topics = writer.topics.get(data.broker_name.as_str());
            let has_room = !is_full && topics.is_none_or(|topics| topics.len() < limit);
            writer.brokers.contains_key(data.broker_name.as_str())
                && (has_room || topics.is_some_and(|topics| topics.contains(topic)))
        };
        if topic.is_empty() || !queues.iter().all(taken) {
            return false;
        }
        for data in queues {
            let broker = writer.brokers.get(data.broker_name.as_str());
            if let Some(broker_entry) = broker.map(|broker| broker.broker_entry.clone()) {
                writer.put_queues(topic, &announced(&broker_entry, data), &mut 0);
            }
        }
        true
    }

    /// Stops writes to a broker until it registers with a changed version. Returns how many topics it has.
    pub fn wipe_write_perm(&self, name: &str) -> usize {
        self.writer().change_perm(name, |perm| perm & !PERM_WRITE)
    }

    /// Allows reads and writes of a broker. Returns how many topics it has.
    pub fn add_write_perm(&self, name: &str) -> usize {
        self.writer().change_perm(name, |_| PERM_READ | PERM_WRITE)
    }

    /// Broker processes that live, and topics.
    pub fn counts(&self) -> (usize, usize) {
        (self.view.live().len(), self.view.topics())
    }

    /// The order configuration of all topics as the body of a registration's answer.
    pub fn order_body(&self) -> Option<Bytes> {
        self.view.order_body()
    }
}
