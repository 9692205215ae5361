//! A topic's route as a client uses it: which queues may be written to and read from (Apache `TopicRouteData`,
//! `MQClientInstance.topicRouteData2TopicPublishInfo`).

use crate::fault::OnBroker;
use pyrmq_remoting::WireError;
use pyrmq_remoting::body::{Body, TopicRouteData};
use pyrmq_remoting::names::{PERM_READ, PERM_WRITE};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The broker id of a master (Apache `MixAll.MASTER_ID`).
pub const MASTER_ID: i64 = 0;

/// A topic's route as a name server returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// The brokers that have the topic.
    pub brokers: Vec<RouteBroker>,
    /// The topic's queues on each broker.
    pub queues: Vec<RouteQueues>,
    /// `broker:count;broker:count` when the topic is ordered by configuration.
    pub order: Option<String>,
}

/// One broker of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteBroker {
    /// Broker name.
    pub name: String,
    /// Cluster name.
    pub cluster: String,
    /// Broker id to `host:port`; id 0 is the master.
    pub addresses: BTreeMap<i64, String>,
}

/// Maximum number of queues of a topic on one broker: a route must fit the memory, whatever a name server sends.
pub const MAX_QUEUES: i32 = 65_536;
/// Maximum number of queues of a topic on all brokers.
pub const MAX_QUEUES_IN_ALL: usize = 1 << 18;

/// The queues of a topic on one broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteQueues {
    /// Broker name.
    pub broker: String,
    /// Number of readable queues, counted from 0.
    pub read_queues: i32,
    /// Number of writable queues, counted from 0.
    pub write_queues: i32,
    /// [`PERM_READ`], [`PERM_WRITE`], [`PERM_INHERIT`](pyrmq_remoting::names::PERM_INHERIT).
    pub perm: i32,
    /// Unit flags.
    pub sys_flag: i32,
}

/// One queue with the address of its broker. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedQueue {
    /// Broker name.
    pub broker: Arc<str>,
    /// Queue number on that broker.
    pub queue_id: i32,
    /// `host:port`.
    pub address: Arc<str>,
}

impl OnBroker for PublishedQueue {
    fn broker(&self) -> &str {
        &self.broker
    }
}

/// The queues of a topic in Apache's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicPublishInfo {
    /// The queues.
    pub queues: Vec<PublishedQueue>,
    /// True if the queues come from the topic's order configuration.
    pub ordered: bool,
}

impl From<TopicRouteData> for Route {
    fn from(data: TopicRouteData) -> Self {
        let brokers = data.broker_datas.into_iter().map(|broker| RouteBroker {
            name: broker.broker_name,
            cluster: broker.cluster,
            addresses: broker.broker_addrs,
        });
        let queues = data.queue_datas.into_iter().map(|queues| RouteQueues {
            broker: queues.broker_name,
            read_queues: queues.read_queue_nums,
            write_queues: queues.write_queue_nums,
            perm: queues.perm,
            sys_flag: queues.topic_sys_flag,
        });
        Self {
            brokers: brokers.collect(),
            queues: queues.collect(),
            order: data.order_topic_conf,
        }
    }
}

impl Route {
    /// Reads the body of an answer to request 105, in either JSON form.
    pub fn from_body(body: &[u8]) -> Result<Self, WireError> {
        TopicRouteData::decode(body).map(Self::from)
    }

    /// Returns the queues that a producer may write: those of brokers with a master, by broker name and number. If the
    /// topic has an order configuration, its queues are returned in its order instead.
    pub fn published(&self) -> TopicPublishInfo {
        if let Some(order) = self.order.as_deref().filter(|order| !order.is_empty()) {
            return TopicPublishInfo {
                queues: self.ordered(order),
                ordered: true,
            };
        }
        let mut writable: Vec<&RouteQueues> = self
            .queues
            .iter()
            .filter(|queues| queues.perm & PERM_WRITE != 0)
            .collect();
        writable.sort_by(|left, right| left.broker.cmp(&right.broker));
        let queues = writable
            .into_iter()
            .filter_map(|queues| Some((self.master(&queues.broker)?, queues)))
            .flat_map(|(address, queues)| numbered(&queues.broker, address, queues.write_queues))
            .take(MAX_QUEUES_IN_ALL)
            .collect();
        TopicPublishInfo {
            queues,
            ordered: false,
        }
    }

    /// Returns the queues that a consumer may read, sorted by broker name and number as Apache sorts them for
    /// allocation. The address is the master's, or that of the lowest id if there is no master.
    pub fn subscribed(&self) -> Vec<PublishedQueue> {
        let mut queues: Vec<PublishedQueue> = self
            .queues
            .iter()
            .filter(|queues| queues.perm & PERM_READ != 0)
            .filter_map(|queues| Some((self.any(&queues.broker)?, queues)))
            .flat_map(|(address, queues)| numbered(&queues.broker, address, queues.read_queues))
            .take(MAX_QUEUES_IN_ALL)
            .collect();
        queues.sort_unstable();
        queues
    }

    /// Returns a broker of this route.
    pub fn broker(&self, name: &str) -> Option<&RouteBroker> {
        self.brokers.iter().find(|broker| broker.name == name)
    }

    fn master(&self, name: &str) -> Option<&str> {
        let address = self.broker(name)?.addresses.get(&MASTER_ID)?;
        Some(address)
    }

    fn any(&self, name: &str) -> Option<&str> {
        let (_, address) = self.broker(name)?.addresses.first_key_value()?;
        Some(address)
    }

    fn ordered(&self, order: &str) -> Vec<PublishedQueue> {
        order
            .split(';')
            .filter_map(|part| part.split_once(':'))
            .filter_map(|(broker, count)| Some((broker, self.master(broker)?, count.trim().parse().ok()?)))
            .flat_map(|(broker, address, count)| numbered(broker, address, count))
            .take(MAX_QUEUES_IN_ALL)
            .collect()
    }
}

fn numbered(broker: &str, address: &str, count: i32) -> impl Iterator<Item = PublishedQueue> {
    let (broker, address): (Arc<str>, Arc<str>) = (broker.into(), address.into());
    (0..count.clamp(0, MAX_QUEUES)).map(move |queue_id| PublishedQueue {
        broker: broker.clone(),
        queue_id,
        address: address.clone(),
    })
}
