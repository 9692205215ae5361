//! How brokers leave the tables: by their own word, by a closed connection, by silence.

use super::{BrokerKey, Table};
use crate::route::{MASTER_ID, PERM_WRITE};
use std::sync::Arc;

/// A broker that left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Which.
    pub broker: BrokerKey,
    /// Its name.
    pub name: String,
    /// The connection that it had registered by.
    pub peer: u64,
}

impl Table {
    /// A broker says that it stops. `None`: it was not known. The name that has the address decides over the cluster
    /// that is told, as in Apache.
    pub fn unregister(&mut self, cluster: &str, address: &str, name: &str) -> Option<Gone> {
        let holder = self
            .brokers
            .get(name)
            .filter(|data| data.broker_addrs.values().any(|held| held == address));
        let key = BrokerKey::new(holder.map_or(cluster, |data| &data.cluster), address);
        self.remove_all([key]).pop()
    }

    /// A connection closed: every broker that had registered by it is gone.
    pub fn close(&mut self, peer: u64) -> Vec<Gone> {
        let keys = self.peers.get(&peer).cloned().unwrap_or_default();
        self.remove_all(keys)
    }

    /// Takes out every broker whose time is over. The caller closes their connections.
    pub fn expire(&mut self, now_ms: i64) -> Vec<Gone> {
        let over = self
            .live
            .iter()
            .filter(|(_, live)| live.updated_ms.saturating_add(live.timeout_ms) < now_ms)
            .map(|(key, _)| key.clone());
        let over: Vec<BrokerKey> = over.collect();
        self.remove_all(over)
    }

    fn remove_all(&mut self, keys: impl IntoIterator<Item = BrokerKey>) -> Vec<Gone> {
        let mut gone: Vec<Gone> = keys
            .into_iter()
            .filter_map(|key| self.forget_live(&key))
            .collect();
        for gone in &gone {
            self.remove_address(&gone.name, &gone.broker.address);
        }
        gone.sort_by(|left, right| left.broker.cmp(&right.broker));
        gone
    }

    /// Takes an address out of its name; a name without addresses goes with its topics.
    pub(super) fn remove_address(&mut self, name: &str, address: &str) {
        let Some(data) = self.brokers.get_mut(name) else {
            return;
        };
        let before = data.broker_addrs.len();
        data.broker_addrs.retain(|_, held| held != address);
        if data.broker_addrs.is_empty() {
            let cluster = data.cluster.clone();
            self.brokers.remove(name);
            self.leave_cluster(&cluster, name);
            let topics: Vec<Arc<str>> = self.names.get(name).into_iter().flatten().cloned().collect();
            for topic in topics {
                self.drop_queues(&topic, name);
            }
            self.mappings.retain(|_, by_broker| {
                by_broker.remove(name);
                !by_broker.is_empty()
            });
        } else if before != data.broker_addrs.len()
            && data.enable_acting_master
            && !data.broker_addrs.contains_key(&MASTER_ID)
        {
            self.clear_perm(name, PERM_WRITE);
        }
    }

    /// Takes bits out of the permission of every topic of a broker.
    fn clear_perm(&mut self, name: &str, bits: i32) {
        self.change_perm(name, |perm| perm & !bits);
    }

    /// Changes the permission of every topic of a broker; returns how many there are.
    pub(super) fn change_perm(&mut self, name: &str, change: impl Fn(i32) -> i32) -> usize {
        let topics = self.names.get(name).into_iter().flatten();
        let mut count = 0;
        for topic in topics {
            if let Some(queues) = self.topics.get_mut(topic).and_then(|queues| queues.get_mut(name)) {
                queues.perm = change(queues.perm);
                count += 1;
            }
        }
        count
    }

    pub(super) fn forget_live(&mut self, key: &BrokerKey) -> Option<Gone> {
        self.filters.remove(key);
        self.forget_live_only(key)
    }

    pub(super) fn forget_live_only(&mut self, key: &BrokerKey) -> Option<Gone> {
        let live = self.live.remove(key)?;
        if let Some(keys) = self.peers.get_mut(&live.peer) {
            keys.remove(key);
            if keys.is_empty() {
                self.peers.remove(&live.peer);
            }
        }
        Some(Gone {
            broker: key.clone(),
            name: live.name.to_string(),
            peer: live.peer,
        })
    }
}
