//! Removing brokers: on their request, because their connection closed, or because they were silent. Brokers that leave
//! together cost one walk over their topics; routes omit them before that walk begins.

use super::route_view::Live;
use super::writer::Writer;
use super::{BrokerKey, MinIdChange, RouteTable};
use crate::route::MASTER_ID;
use pyrmq_remoting::names::PERM_WRITE;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A removed broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedBroker {
    /// Cluster and address of the broker.
    pub broker: BrokerKey,
    /// Name of the broker.
    pub name: String,
    /// The connection on which it had registered.
    pub peer: u64,
}

/// Why brokers are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovalReason {
    /// The broker says that it stops. The cluster of the name that has the address counts, not the cluster in the
    /// request, as in Apache.
    Unregister {
        /// Cluster name.
        cluster: String,
        /// `host:port`.
        address: String,
        /// Broker name.
        name: String,
    },
    /// A connection closed: every broker that had registered on it is removed.
    Closed(u64),
    /// Every broker whose timeout has passed at this time is removed. The caller closes their connections.
    Expired(i64),
}

/// The removed brokers, and the brokers to notify.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Departures {
    /// The removed brokers for each reason, sorted.
    pub removed_brokers: Vec<Vec<RemovedBroker>>,
    /// Names whose lowest id changed, if a slave acts for its master.
    pub notices: Vec<MinIdChange>,
}

impl RouteTable {
    /// Removes a broker that stops; `None` if it was not known.
    pub fn unregister(&self, cluster: &str, address: &str, name: &str) -> Option<RemovedBroker> {
        let removal = RemovalReason::Unregister {
            cluster: cluster.to_owned(),
            address: address.to_owned(),
            name: name.to_owned(),
        };
        self.remove_brokers(&[removal]).removed_brokers.pop()?.pop()
    }

    /// Removes every broker that had registered on a connection that closed.
    pub fn close(&self, peer: u64) -> Vec<RemovedBroker> {
        self.remove_brokers(&[RemovalReason::Closed(peer)])
            .removed_brokers
            .pop()
            .unwrap_or_default()
    }

    /// Removes every broker whose timeout has passed. The caller closes their connections.
    pub fn expire(&self, now_ms: i64) -> Vec<RemovedBroker> {
        self.remove_brokers(&[RemovalReason::Expired(now_ms)])
            .removed_brokers
            .pop()
            .unwrap_or_default()
    }

    /// Returns true if a broker's timeout has passed. Never waits.
    pub fn has_expired(&self, now_ms: i64) -> bool {
        self.view.live().values().any(|live| is_expired(live, now_ms))
    }

    /// Removes every broker to which one of the reasons applies.
    pub fn remove_brokers(&self, reasons: &[RemovalReason]) -> Departures {
        self.writer().remove_brokers(reasons)
    }
}

fn is_expired(live: &Live, now_ms: i64) -> bool {
    live.updated_ms
        .load(Ordering::Relaxed)
        .saturating_add(live.timeout_ms)
        < now_ms
}

/// The role of a removed address in its name.
#[derive(Debug, Clone, Copy)]
struct Removed {
    was_lowest: bool,
    /// The address was the name's last one.
    was_last: bool,
    /// The name has no master, so a slave may act for it.
    masterless: bool,
}

impl Writer {
    fn remove_brokers(&mut self, reasons: &[RemovalReason]) -> Departures {
        let mut departures = Departures::default();
        let (mut emptied, mut masterless) = (Vec::new(), Vec::new());
        for reason in reasons {
            let mut removed_brokers = Vec::new();
            for key in self.matching(reason) {
                let Some(live) = self.remove_live(&key) else {
                    continue;
                };
                let name = live.broker_entry.name.clone();
                if let Some(removed) = self.remove_address(&name, &key.address) {
                    if removed.was_lowest && !removed.was_last {
                        departures.notices.retain(|notice| *notice.name != *name);
                        departures
                            .notices
                            .extend(self.min_id_change_after(&name, &key.address));
                    }
                    if removed.was_last {
                        departures.notices.retain(|notice| *notice.name != *name);
                        emptied.push(name.clone());
                    } else if removed.masterless {
                        masterless.push(name.clone());
                    }
                }
                removed_brokers.push(RemovedBroker {
                    broker: key,
                    name: name.to_string(),
                    peer: live.peer,
                });
            }
            removed_brokers.sort_by(|departures, right| departures.broker.cmp(&right.broker));
            departures.removed_brokers.push(removed_brokers);
        }
        self.clear(&emptied);
        for name in masterless {
            self.change_perm(&name, |perm| perm & !PERM_WRITE);
        }
        departures
    }

    fn matching(&self, reason: &RemovalReason) -> Vec<BrokerKey> {
        match reason {
            RemovalReason::Unregister {
                cluster,
                address,
                name,
            } => {
                let data = self.brokers.get(name.as_str()).map(|broker| &broker.data);
                let holder = data.filter(|data| data.broker_addrs.values().any(|held| held == address));
                let cluster = holder.map_or(cluster, |data| &data.cluster);
                vec![BrokerKey::new(cluster, address)]
            }
            RemovalReason::Closed(peer) => {
                let mut keys: Vec<_> = self.peers.get(peer).into_iter().flatten().cloned().collect();
                keys.sort_unstable();
                keys
            }
            RemovalReason::Expired(now_ms) => {
                let live = self.view.live();
                let over = live.iter().filter(|(_, live)| is_expired(live, *now_ms));
                let mut keys: Vec<_> = over.map(|(key, _)| key.clone()).collect();
                keys.sort_unstable();
                keys
            }
        }
    }

    /// Returns the brokers to notify that the lowest id of a name has left (like Apache, only if a slave may act as
    /// master).
    fn min_id_change_after(&self, name: &str, offline: &str) -> Option<MinIdChange> {
        let data = &self.brokers.get(name)?.data;
        let (id, address) = data
            .broker_addrs
            .first_key_value()
            .filter(|_| data.enable_acting_master)?;
        Some(MinIdChange {
            name: name.to_owned(),
            id: *id,
            address: address.clone(),
            offline: Some(offline.to_owned()),
            ha_address: None,
            recipients: data.broker_addrs.values().cloned().collect(),
        })
    }

    /// Removes an address from its name, and everything that depends on it.
    pub(super) fn drop_address(&mut self, name: &Arc<str>, address: &str) {
        match self.remove_address(name, address) {
            Some(removed) if removed.was_last => self.clear(std::slice::from_ref(name)),
            Some(removed) if removed.masterless => {
                self.change_perm(name, |perm| perm & !PERM_WRITE);
            }
            _ => {}
        }
    }

    /// Removes an address from its name, and a name without addresses from its cluster. The caller removes its topics.
    fn remove_address(&mut self, name: &str, address: &str) -> Option<Removed> {
        let broker = self.brokers.get_mut(name)?;
        let held = &mut broker.data.broker_addrs;
        let lowest = held.first_key_value().is_some_and(|(_, held)| held == address);
        let before = held.len();
        held.retain(|_, held| held != address);
        if held.len() == before {
            return None;
        }
        let removed = Removed {
            was_lowest: lowest,
            was_last: held.is_empty(),
            masterless: broker.data.enable_acting_master && !held.contains_key(&MASTER_ID),
        };
        if removed.was_last {
            let cluster = broker.data.cluster.clone();
            self.view.publish(&broker.broker_entry, None);
            self.brokers.remove(name);
            self.remove_from_cluster(&cluster, name);
        } else {
            self.publish(name);
        }
        Some(removed)
    }

    /// Removes what remains of removed names, in one walk over all their topics.
    fn clear(&mut self, names: &[Arc<str>]) {
        let mut topics: HashSet<Arc<str>> = HashSet::new();
        for name in names {
            topics.extend(self.topics.remove(name).unwrap_or_default());
            for topic in self.view.mapped_by(name) {
                self.view.map(&topic, name, None);
            }
        }
        let removed_brokers: HashSet<&str> = names.iter().map(|name| &**name).collect();
        for topic in topics {
            self.view.change(&topic, |queues_by_broker| {
                let before = queues_by_broker.len();
                queues_by_broker
                    .retain(|topic_queues| !removed_brokers.contains(&*topic_queues.broker_entry.name));
                queues_by_broker.len() != before
            });
        }
    }

    /// Changes the permission of every topic of a broker and returns the number of topics.
    pub(super) fn change_perm(&mut self, name: &str, change: impl Fn(i32) -> i32) -> usize {
        let mut count = 0;
        for topic in self.topics.get(name).into_iter().flatten() {
            self.view.change(topic, |queues_by_broker| {
                let Some(topic_queues) = queues_by_broker
                    .iter_mut()
                    .find(|topic_queues| *topic_queues.broker_entry.name == *name)
                else {
                    return false;
                };
                count += 1;
                let before = topic_queues.perm;
                topic_queues.perm = change(before);
                if before != topic_queues.perm {
                    topic_queues
                        .broker_entry
                        .perms_version
                        .fetch_add(1, Ordering::AcqRel);
                }
                before != topic_queues.perm
            });
        }
        count
    }

    pub(super) fn remove_live(&mut self, key: &BrokerKey) -> Option<Arc<Live>> {
        let live = self.view.live_mut().remove(key)?;
        if let Some(keys) = self.peers.get_mut(&live.peer) {
            keys.remove(key);
            if keys.is_empty() {
                self.peers.remove(&live.peer);
            }
        }
        Some(live)
    }
}
