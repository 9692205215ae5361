//! What the tables are asked, and the small changes that an operator makes.

use super::{BrokerKey, Table};
use crate::route::{MASTER_ID, PERM_READ, PERM_WRITE};
use pyrmq_remoting::body::{BrokerData, ClusterInfo, DataVersion, QueueData, TopicRouteData};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Topics of this kind keep their slaves' synchronisation and are never moved to an acting master (Apache
/// `TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX`).
const SYNC_BROKER_MEMBER_GROUP_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";
/// Apache `TopicSysFlag.FLAG_UNIT`, `FLAG_UNIT_SUB`.
const FLAG_UNIT: i32 = 1;
const FLAG_UNIT_SUB: i32 = 2;

/// Which unit topics are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// Of a unit (311).
    Unit,
    /// Subscribed to by units (312).
    Subscribed,
    /// Subscribed to by units, of none themselves (313).
    SubscribedNotUnit,
}

impl Table {
    /// A broker lives. False: it is not known, and must register.
    pub fn heartbeat(&mut self, cluster: &str, address: &str, now_ms: i64) -> bool {
        let live = self.live.get_mut(&BrokerKey::new(cluster, address));
        live.is_some_and(|live| {
            live.updated_ms = now_ms;
            true
        })
    }

    /// The version of the topics that a broker registered last.
    pub fn version(&self, cluster: &str, address: &str) -> Option<&DataVersion> {
        self.live
            .get(&BrokerKey::new(cluster, address))
            .map(|live| &live.version)
    }

    /// The route of a topic. `None`: no broker has it. `zone`: leave out what has a master elsewhere.
    pub fn route(&self, topic: &str, zone: Option<&str>) -> Option<TopicRouteData> {
        let queues = self.topics.get(topic)?;
        let brokers: Vec<&BrokerData> = queues.keys().filter_map(|name| self.brokers.get(name)).collect();
        if brokers.is_empty() {
            return None;
        }
        let mut route = TopicRouteData {
            broker_datas: brokers.into_iter().cloned().collect(),
            queue_datas: queues.values().cloned().collect(),
            topic_queue_mapping_by_broker: self.mappings.get(topic).cloned(),
            ..TopicRouteData::default()
        };
        if self.settings.order_message_enable {
            route.order_topic_conf = self.order.get(topic).cloned();
        }
        if self.settings.support_acting_master && !topic.starts_with(SYNC_BROKER_MEMBER_GROUP_PREFIX) {
            act_as_master(&mut route);
        }
        if let Some(zone) = zone {
            keep_zone(&mut route, zone);
        }
        self.add_filter_servers(&mut route);
        Some(route)
    }

    fn add_filter_servers(&self, route: &mut TopicRouteData) {
        if self.filters.is_empty() {
            return;
        }
        for data in &route.broker_datas {
            for address in data.broker_addrs.values() {
                let servers = self.filters.get(&BrokerKey::new(&data.cluster, address));
                if let Some(servers) = servers {
                    route.filter_server_table.insert(address.clone(), servers.clone());
                }
            }
        }
    }

    /// All brokers and clusters.
    pub fn cluster_info(&self) -> ClusterInfo {
        let texts = |names: &BTreeSet<Arc<str>>| names.iter().map(ToString::to_string).collect();
        let brokers = self.brokers.iter();
        let clusters = self.clusters.iter();
        ClusterInfo {
            broker_addr_table: brokers
                .map(|(name, data)| (name.to_string(), data.clone()))
                .collect(),
            cluster_addr_table: clusters
                .map(|(cluster, names)| (cluster.clone(), texts(names)))
                .collect(),
        }
    }

    /// The brokers of a name: id to address. Empty when the name is unknown or of another cluster.
    pub fn members(&self, cluster: &str, name: &str) -> BTreeMap<i64, String> {
        let data = self.brokers.get(name).filter(|data| data.cluster == cluster);
        data.map(|data| data.broker_addrs.clone()).unwrap_or_default()
    }

    /// All topics, sorted.
    pub fn topics(&self) -> Vec<String> {
        self.topics_where(|_| true)
    }

    /// The topics of a cluster's brokers, sorted.
    pub fn topics_of_cluster(&self, cluster: &str) -> Vec<String> {
        let Some(names) = self.clusters.get(cluster) else {
            return Vec::new();
        };
        let topics: BTreeSet<&Arc<str>> = names
            .iter()
            .filter_map(|name| self.names.get(name))
            .flatten()
            .collect();
        topics.into_iter().map(ToString::to_string).collect()
    }

    /// Clusters and broker names, which are topics of their own, and the address of any broker.
    pub fn system_topics(&self) -> (Vec<String>, Option<String>) {
        let names: BTreeSet<String> = self
            .clusters
            .iter()
            .flat_map(|(cluster, names)| {
                std::iter::once(cluster.clone()).chain(names.iter().map(ToString::to_string))
            })
            .collect();
        let mut addresses = self.brokers.values().flat_map(|data| data.broker_addrs.values());
        (names.into_iter().collect(), addresses.next().cloned())
    }

    /// Topics by their unit flags, sorted.
    pub fn unit_topics(&self, which: Units) -> Vec<String> {
        let wanted = |flag: i32| match which {
            Units::Unit => flag & FLAG_UNIT != 0,
            Units::Subscribed => flag & FLAG_UNIT_SUB != 0,
            Units::SubscribedNotUnit => flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB,
        };
        self.topics_where(|queues| {
            queues
                .values()
                .next()
                .is_some_and(|data| wanted(data.topic_sys_flag))
        })
    }

    fn topics_where(&self, wanted: impl Fn(&BTreeMap<Arc<str>, QueueData>) -> bool) -> Vec<String> {
        let found = self.topics.iter().filter(|(_, queues)| wanted(queues));
        let mut topics: Vec<String> = found.map(|(topic, _)| topic.to_string()).collect();
        topics.sort_unstable();
        topics
    }

    /// Takes a topic out, everywhere or from one cluster's brokers. A broker that still has it brings it back with
    /// its next changed registration.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let queues = self.topics.get(topic).into_iter().flat_map(BTreeMap::keys);
        let names: Vec<Arc<str>> = match cluster {
            None => queues.cloned().collect(),
            Some(cluster) => {
                let of_cluster = self.clusters.get(cluster);
                let inside = |name: &&Arc<str>| of_cluster.is_some_and(|names| names.contains(*name));
                queues.filter(inside).cloned().collect()
            }
        };
        for name in names {
            self.drop_queues(topic, &name);
        }
    }

    /// Announces queues of one topic (217). False: a broker of it is not known; nothing was changed.
    pub fn register_topic(&mut self, topic: &str, queues: Vec<QueueData>) -> bool {
        let known = |data: &QueueData| self.brokers.contains_key(data.broker_name.as_str());
        if topic.is_empty() || !queues.iter().all(known) {
            return false;
        }
        for data in queues {
            let name: Arc<str> = data.broker_name.as_str().into();
            self.put_queues(topic, &name, data);
        }
        true
    }

    /// Stops writes to a broker until it registers with a changed version. Returns how many topics it has.
    pub fn wipe_write_perm(&mut self, name: &str) -> usize {
        self.change_perm(name, |perm| perm & !PERM_WRITE)
    }

    /// Allows reads and writes of a broker. Returns how many topics it has.
    pub fn add_write_perm(&mut self, name: &str) -> usize {
        self.change_perm(name, |_| PERM_READ | PERM_WRITE)
    }

    /// Broker processes that live, and topics.
    pub fn counts(&self) -> (usize, usize) {
        (self.live.len(), self.topics.len())
    }

    /// The order configuration, for the answer to a registration.
    pub fn order_config(&self) -> &BTreeMap<String, String> {
        &self.order
    }
}

/// Where a name has no master but stands in for it, its lowest id is told as the master, unless its queues may still
/// be written there.
fn act_as_master(route: &mut TopicRouteData) {
    let queues = &route.queue_datas;
    for data in &mut route.broker_datas {
        if data.broker_addrs.contains_key(&MASTER_ID) || !data.enable_acting_master {
            continue;
        }
        let writable = queues
            .iter()
            .find(|queues| queues.broker_name == data.broker_name)
            .is_none_or(|queues| queues.perm & PERM_WRITE != 0);
        if !writable && let Some((_, address)) = data.broker_addrs.pop_first() {
            data.broker_addrs.insert(MASTER_ID, address);
        }
    }
}

/// Leaves out brokers of other zones that still have a master, with their queues (Apache `ZoneRouteRPCHook`).
fn keep_zone(route: &mut TopicRouteData, zone: &str) {
    let other = |data: &BrokerData| {
        data.zone_name
            .as_deref()
            .is_none_or(|name| !name.eq_ignore_ascii_case(zone))
            && data.broker_addrs.contains_key(&MASTER_ID)
    };
    let (left_out, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut route.broker_datas)
        .into_iter()
        .partition(other);
    route.broker_datas = kept;
    route
        .queue_datas
        .retain(|queues| left_out.iter().all(|data| data.broker_name != queues.broker_name));
}
