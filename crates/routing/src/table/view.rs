//! The tables as an operator sees them.

use super::RouteTable;
use crate::route::MASTER_ID;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A live broker process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerView {
    /// Cluster name.
    pub cluster: String,
    /// Broker name.
    pub name: String,
    /// 0 is the master.
    pub id: i64,
    /// `host:port` for clients.
    pub address: String,
    /// Address set to the `host:port` for its clients.
    pub advertised: BTreeMap<String, String>,
    /// `host:port` for slaves.
    pub ha_address: String,
    /// Zone, if it named one.
    pub zone: Option<String>,
    /// Apache's ordinal of its software version.
    pub software: i32,
    /// Milliseconds since its last heartbeat or registration.
    pub silent_ms: i64,
    /// Milliseconds of silence after which it expires.
    pub timeout_ms: i64,
    /// Topics of its name; the same for a master and its slaves.
    pub topics: usize,
    /// True if a slave of this name may act for its master.
    pub acting_master: bool,
    /// Counter of its last topic table's version.
    pub version: i64,
    /// The address that last had this name and id, if it was another one.
    pub replaced_address: Option<String>,
}

impl BrokerView {
    /// Returns true for the master.
    pub fn is_master(&self) -> bool {
        self.id == MASTER_ID
    }
}

impl RouteTable {
    /// Returns every live broker process, by cluster, name and id.
    pub fn brokers(&self, now_ms: i64) -> Vec<BrokerView> {
        let writer = self.writer();
        let live = self.view.live();
        let mut views: Vec<BrokerView> = live
            .iter()
            .filter_map(|(key, live)| {
                let broker = writer.brokers.get(&live.broker_entry.name)?;
                let data = &broker.data;
                let (id, _) = data.broker_addrs.iter().find(|(_, held)| **held == key.address)?;
                Some(BrokerView {
                    cluster: key.cluster.clone(),
                    name: live.broker_entry.name.to_string(),
                    id: *id,
                    address: key.address.clone(),
                    advertised: broker.advertised.get(&key.address).cloned().unwrap_or_default(),
                    ha_address: live.ha_address.clone(),
                    zone: data.zone_name.clone(),
                    software: live.software,
                    silent_ms: now_ms
                        .saturating_sub(live.updated_ms.load(Ordering::Relaxed))
                        .max(0),
                    timeout_ms: live.timeout_ms,
                    topics: writer
                        .topics
                        .get(&live.broker_entry.name)
                        .map_or(0, std::collections::HashSet::len),
                    acting_master: data.enable_acting_master,
                    version: live.version.counter,
                    replaced_address: broker
                        .replaced
                        .get(id)
                        .filter(|old| **old != key.address)
                        .cloned(),
                })
            })
            .collect();
        drop(live);
        drop(writer);
        views.sort_by(|left, right| {
            (&left.cluster, &left.name, left.id).cmp(&(&right.cluster, &right.name, right.id))
        });
        views
    }

    /// Returns the bytes that encoded routes use.
    pub fn cached_bytes(&self) -> usize {
        self.view.cached_bytes()
    }
}
