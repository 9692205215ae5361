//! Queries of the tables, and the small changes that an operator makes.

use super::writer::announced;
use super::{BrokerKey, RouteTable};

use bytes::Bytes;
use pyrmq_remoting::body::{ClusterInfo, DataVersion, QueueData, Style, TopicRouteData};
use pyrmq_remoting::names::{PERM_READ, PERM_WRITE};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Apache `TopicSysFlag.FLAG_UNIT`, `FLAG_UNIT_SUB`.
const FLAG_UNIT: i32 = 1;
const FLAG_UNIT_SUB: i32 = 2;

/// A kind of unit topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitTopics {
    /// Topics of a unit (311).
    Unit,
    /// Topics to which units subscribe (312).
    Subscribed,
    /// Topics to which units subscribe and that belong to none (313).
    SubscribedNotUnit,
}

impl RouteTable {
    /// Records a heartbeat of a broker. False: it is not known and must register.
    pub fn heartbeat(&self, cluster: &str, address: &str, now_ms: i64) -> bool {
        let live = self.view.live();
        let live = live.get(&BrokerKey::new(cluster, address));
        live.is_some_and(|live| {
            live.updated_ms.store(now_ms, Ordering::Relaxed);
            true
        })
    }

    /// Returns the version of the topics that a broker last registered.
    pub fn version(&self, cluster: &str, address: &str) -> Option<DataVersion> {
        let live = self.view.live();
        live.get(&BrokerKey::new(cluster, address))
            .map(|live| live.version)
    }

    /// Returns the route of a topic; `None` if no broker has it. With `zone`, it omits brokers of other zones that have
    /// a master.
    pub fn route(&self, topic: &str, zone: Option<&str>) -> Option<TopicRouteData> {
        self.in_set(None).route(topic, zone)
    }

    /// Returns the route of a topic as the body of an answer, encoded once for each change and form.
    pub fn route_body(&self, topic: &str, style: Style) -> Option<Bytes> {
        self.in_set(None).route_body(topic, style)
    }

    /// Returns all brokers and clusters.
    pub fn cluster_info(&self) -> ClusterInfo {
        self.in_set(None).cluster_info()
    }

    /// Returns the brokers of a name: id to address. As in Apache, the cluster is ignored.
    pub fn members(&self, name: &str) -> BTreeMap<i64, String> {
        self.in_set(None).members(name)
    }

    /// Returns all topics, sorted.
    pub fn topics(&self) -> Vec<String> {
        self.topics_where(|_| true)
    }

    /// Returns the topics of a cluster's brokers, sorted.
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

    /// Returns cluster and broker names, which are also topics, and the address of any broker.
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

    /// Returns topics by their unit flags, sorted.
    pub fn unit_topics(&self, which: UnitTopics) -> Vec<String> {
        self.topics_where(|flag| match which {
            UnitTopics::Unit => flag & FLAG_UNIT != 0,
            UnitTopics::Subscribed => flag & FLAG_UNIT_SUB != 0,
            UnitTopics::SubscribedNotUnit => flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB,
        })
    }

    /// Returns the topics whose first broker's flags pass `wanted`, sorted.
    fn topics_where(&self, wanted: impl Fn(i32) -> bool) -> Vec<String> {
        let mut topics: Vec<Arc<str>> = Vec::new();
        self.view.each(|topic, topic_entry| {
            if topic_entry
                .queues_by_broker()
                .first()
                .is_some_and(|topic_queues| wanted(topic_queues.sys_flag))
            {
                topics.push(topic.clone());
            }
        });
        topics.sort_unstable();
        topics.iter().map(ToString::to_string).collect()
    }

    /// Removes a topic everywhere or from one cluster's brokers. If a broker still has it, its next registration adds
    /// it again.
    pub fn delete_topic(&self, topic: &str, cluster: Option<&str>) {
        let mut writer = self.writer();
        let Some(topic_entry) = self.view.topic_entry(topic) else {
            return;
        };
        let of_cluster = cluster.map(|cluster| writer.clusters.get(cluster));
        let inside =
            |name: &Arc<str>| of_cluster.is_none_or(|names| names.is_some_and(|names| names.contains(name)));
        let queues_by_broker = topic_entry.queues_by_broker().clone();
        let names = queues_by_broker
            .iter()
            .map(|topic_queues| topic_queues.broker_entry.name.clone());
        let names: Vec<Arc<str>> = names.filter(inside).collect();
        for name in names {
            writer.drop_queues(topic, &name);
        }
    }

    /// Adds queues of one topic (217). False: one of its brokers is not known, or the limit of topics is reached;
    /// nothing was changed.
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

    /// Stops writes to a broker until it registers with a changed version. Returns the number of its topics.
    pub fn wipe_write_perm(&self, name: &str) -> usize {
        self.writer().change_perm(name, |perm| perm & !PERM_WRITE)
    }

    /// Allows reads and writes of a broker. Returns the number of its topics.
    pub fn add_write_perm(&self, name: &str) -> usize {
        self.writer().change_perm(name, |_| PERM_READ | PERM_WRITE)
    }

    /// Returns the numbers of live broker processes and of topics.
    pub fn counts(&self) -> (usize, usize) {
        (self.view.live().len(), self.view.topics())
    }

    /// Returns the order configuration of all topics as the body of a registration's answer.
    pub fn order_body(&self) -> Option<Bytes> {
        self.view.order_body()
    }
}
