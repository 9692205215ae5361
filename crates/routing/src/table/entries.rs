//! What the route view has of one broker name and of one topic.

use super::encoded::{Encoded, Form};
use pyrmq_remoting::body::{BrokerData, QueueData};
use pyrmq_remoting::sync::{lock, read};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

/// One broker name as routes show it.
#[derive(Debug)]
pub(super) struct BrokerEntry {
    pub(super) name: Arc<str>,
    /// Counts changes of `route_data`.
    pub(super) version: AtomicU64,
    /// Counts all changes of its topics' queues.
    pub(super) queues_version: AtomicU64,
    /// Counts changes of their permissions by anything but a registration.
    pub(super) perms_version: AtomicU64,
    // Guards the swap only.
    pub(super) route_data: RwLock<Option<Arc<RouteData>>>,
}

/// The data of a broker name that routes contain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RouteData {
    pub(super) data: BrokerData,
    /// Filter servers by broker address.
    pub(super) filters: BTreeMap<String, Vec<String>>,
    /// Address sets by broker address.
    pub(super) advertised: BTreeMap<String, SetAddresses>,
}

/// Address set to the address in it.
pub(super) type SetAddresses = BTreeMap<String, String>;

impl BrokerEntry {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            version: AtomicU64::new(0),
            queues_version: AtomicU64::new(0),
            perms_version: AtomicU64::new(0),
            route_data: RwLock::new(None),
        }
    }

    pub(super) fn route_data(&self) -> Option<Arc<RouteData>> {
        read(&self.route_data).clone()
    }
}

/// A topic's queues on one broker.
#[derive(Debug, Clone)]
pub(super) struct TopicQueues {
    pub(super) broker_entry: Arc<BrokerEntry>,
    pub(super) perm: i32,
    pub(super) read_queues: i32,
    pub(super) write_queues: i32,
    pub(super) sys_flag: i32,
}

impl TopicQueues {
    fn same_queues(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.broker_entry, &other.broker_entry)
            && (self.perm, self.read_queues, self.write_queues, self.sys_flag)
                == (other.perm, other.read_queues, other.write_queues, other.sys_flag)
    }

    pub(super) fn queue_data(&self) -> QueueData {
        QueueData {
            broker_name: self.broker_entry.name.to_string(),
            perm: self.perm,
            read_queue_nums: self.read_queues,
            topic_sys_flag: self.sys_flag,
            write_queue_nums: self.write_queues,
        }
    }
}

/// One topic.
#[derive(Debug, Default)]
pub(super) struct TopicEntry {
    pub(super) version: AtomicU64,
    // Guards the queues of each broker, sorted by broker name.
    queues_by_broker: Mutex<Vec<TopicQueues>>,
    // Guard the cached answers: plain, standard.
    encoded: [Mutex<Option<Encoded>>; 2],
    // Guard the cached answers of address sets, which most name servers do not have.
    encoded_in_sets: OnceLock<Box<[Mutex<Option<Encoded>>]>>,
}

impl TopicEntry {
    pub(super) fn queues_by_broker(&self) -> MutexGuard<'_, Vec<TopicQueues>> {
        lock(&self.queues_by_broker)
    }

    pub(super) fn changed(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Adds or replaces a broker's queues. Returns whether anything changed, and whether the broker is new here.
    /// `expected_at` is the broker's index in the previous topic: checking it first avoids reading many broker names,
    /// scattered in memory, for each of thousands of topics.
    pub(super) fn put(&self, topic_queues: &TopicQueues, expected_at: &mut usize) -> (bool, bool) {
        let mut queues_by_broker = self.queues_by_broker();
        let is_there = queues_by_broker
            .get(*expected_at)
            .is_some_and(|held| Arc::ptr_eq(&held.broker_entry, &topic_queues.broker_entry));
        let found = if is_there {
            Ok(*expected_at)
        } else {
            queues_by_broker
                .binary_search_by(|held| held.broker_entry.name.cmp(&topic_queues.broker_entry.name))
        };
        let (Ok(at) | Err(at)) = found;
        *expected_at = at;
        let added = match found {
            Ok(at) if queues_by_broker[at].same_queues(topic_queues) => return (false, false),
            Ok(at) => {
                queues_by_broker[at] = topic_queues.clone();
                false
            }
            Err(at) => {
                queues_by_broker.insert(at, topic_queues.clone());
                true
            }
        };
        drop(queues_by_broker);
        self.changed();
        (true, added)
    }

    /// Returns whether the broker has queues here.
    pub(super) fn has(&self, name: &str) -> bool {
        let queues_by_broker = self.queues_by_broker();
        queues_by_broker
            .binary_search_by(|held| (*held.broker_entry.name).cmp(name))
            .is_ok()
    }

    pub(super) fn encoded(&self, form: Form) -> MutexGuard<'_, Option<Encoded>> {
        if let Some(slot) = self.encoded.get(form.at) {
            return lock(slot);
        }
        let in_sets = self
            .encoded_in_sets
            .get_or_init(|| (self.encoded.len()..form.all).map(|_| Mutex::default()).collect());
        lock(&in_sets[form.at - self.encoded.len()])
    }
}

/// Broker entries with their versions.
pub(super) type BrokerEntries = Box<[(Arc<BrokerEntry>, u64)]>;
