//! A topic as a client knows it: its queues, and the state for selecting one.

use crate::error::ClientError;
use pyrmq_auth::BegunSignature;
use pyrmq_remoting::names::PERM_WRITE;
use pyrmq_routing::fault::{Healths, LatencyFaultTolerance};
use pyrmq_routing::route::{MASTER_ID, Route, TopicPublishInfo};
use pyrmq_routing::select::QueueSelector;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

/// A topic as a client knows it.
#[derive(Debug, Clone)]
pub struct TopicRoute {
    /// The route as the name server sent it. If `guessed`, it is the route of the template topic (`TBW102`).
    pub route: Arc<Route>,
    /// The queues that may be written to, in Apache's order.
    pub published: Arc<TopicPublishInfo>,
    /// The brokers of the published queues.
    pub brokers: Arc<[Arc<str>]>,
    /// What is known of the broker of each published queue.
    pub healths: Healths,
    /// True when the topic does not exist yet: the first send creates it.
    pub guessed: bool,
    /// Chooses the next queue. A refreshed route keeps it.
    pub selector: Arc<QueueSelector>,
    /// How often the route was refreshed since it was last used. A refreshed route keeps it.
    pub(super) idle: Arc<AtomicU32>,
    /// The beginning of the headers of all messages to this topic, written for the first of them.
    pub(crate) head_start: OnceLock<HeadStart>,
}

/// The first fields of the headers of all messages to a topic.
#[derive(Debug, Clone)]
pub(crate) struct HeadStart {
    /// The fields as they travel.
    pub(crate) fields: Vec<u8>,
    /// Their signature, if the client signs.
    pub(crate) signature: Option<BegunSignature>,
}

impl TopicRoute {
    pub(super) fn new(route: Route, guessed: bool, faults: &LatencyFaultTolerance) -> Self {
        let published = Arc::new(route.published());
        let mut brokers: Vec<Arc<str>> = published
            .queues
            .iter()
            .map(|queue| queue.broker.clone())
            .collect();
        brokers.sort_unstable();
        brokers.dedup();
        Self {
            brokers: brokers.into(),
            healths: faults.healths(&published.queues),
            published,
            route: Arc::new(route),
            guessed,
            selector: Arc::new(QueueSelector::new(crate::random(1 << 16))),
            idle: Arc::default(),
            head_start: OnceLock::new(),
        }
    }

    /// Whether its messages may go to more than one broker.
    pub(crate) fn has_several_brokers(&self) -> bool {
        self.brokers.len() > 1
    }

    /// Why no queue of the topic can be written.
    pub fn no_queue(&self, topic: &str) -> ClientError {
        let queues = &self.route.queues;
        ClientError::NoQueue {
            topic: topic.to_owned(),
            what: "write to",
            reason: if !self.published.queues.is_empty() {
                "the queue that was asked for is not among its writable queues (its broker may be away)"
            } else if queues.is_empty() {
                "its route is empty"
            } else if queues.iter().all(|queues| queues.perm & PERM_WRITE == 0) {
                "writing is not permitted (perm without 2)"
            } else {
                "no broker that has it is alive as a master"
            },
        }
    }

    /// The address at which to read a broker's queues: the master's, or else that of the lowest id.
    pub fn reader_of(&self, broker: &str) -> Option<String> {
        self.reader_at(broker, MASTER_ID).map(|(_, address)| address)
    }

    /// The address of a broker's master.
    pub(crate) fn master_for(&self, broker: &str) -> Option<String> {
        self.route.broker(broker)?.addresses.get(&MASTER_ID).cloned()
    }

    /// Id and address of the replica at which to read a broker's queues: the one with this id, which the broker has
    /// suggested, or for a slave's id the next one (Apache `MQClientInstance#findBrokerAddressInSubscribe`); otherwise
    /// as [`Self::reader_of`].
    pub fn reader_at(&self, broker: &str, id: i64) -> Option<(i64, String)> {
        let replicas = &self.route.broker(broker)?.addresses;
        let at = |id: i64| replicas.get_key_value(&id);
        let next = || (id != MASTER_ID).then(|| at(id + 1)).flatten();
        let found = at(id).or_else(next).or_else(|| replicas.first_key_value());
        found.map(|(id, address)| (*id, address.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrmq_routing::route::RouteBroker;
    use std::collections::BTreeMap;

    fn topic(replicas: &[(i64, &str)]) -> TopicRoute {
        let addresses = replicas.iter().map(|(id, address)| (*id, (*address).to_owned()));
        let broker = RouteBroker {
            name: "a".into(),
            addresses: addresses.collect::<BTreeMap<_, _>>(),
            ..RouteBroker::default()
        };
        let route = Route {
            brokers: vec![broker],
            ..Route::default()
        };
        TopicRoute::new(route, false, &LatencyFaultTolerance::default())
    }

    #[test]
    fn the_replica_that_was_suggested_is_read_and_another_one_when_it_is_gone() {
        let all = topic(&[(0, "master"), (1, "one"), (2, "two")]);
        for (id, found, address) in [(0, 0, "master"), (1, 1, "one"), (2, 2, "two"), (9, 0, "master")] {
            assert_eq!(all.reader_at("a", id), Some((found, address.to_owned())));
        }
        let without_master = topic(&[(1, "one"), (3, "three")]);
        for (id, found, address) in [(0, 1, "one"), (1, 1, "one"), (2, 3, "three")] {
            assert_eq!(
                without_master.reader_at("a", id),
                Some((found, address.to_owned()))
            );
        }
        assert_eq!(
            (without_master.master_for("a"), all.master_for("a")),
            (None, Some("master".to_owned()))
        );
        assert_eq!(without_master.reader_of("b"), None);
    }
}
