//! How a route is changed for the client that asks: the acting master, the zone, the addresses of a set.

use super::entries::SetAddresses;
use crate::route::MASTER_ID;
use pyrmq_remoting::body::{BrokerData, TopicRouteData};
use pyrmq_remoting::names::PERM_WRITE;
use std::collections::BTreeMap;

/// The addresses of one broker name's processes in a set.
pub(super) struct Addresses<'a> {
    advertised: &'a BTreeMap<String, SetAddresses>,
    set: Option<&'a str>,
}

impl<'a> Addresses<'a> {
    pub(super) fn new(advertised: &'a BTreeMap<String, SetAddresses>, set: Option<&'a str>) -> Self {
        Self { advertised, set }
    }

    /// Returns the address in the set of the broker that registered as `address`, or `address` if it has none there.
    pub(super) fn of<'b>(&'b self, address: &'b str) -> &'b str {
        self.set
            .and_then(|set| self.advertised.get(address)?.get(set))
            .map_or(address, String::as_str)
    }

    /// Returns a broker name as clients of the set see it.
    pub(super) fn shown(&self, data: &BrokerData) -> BrokerData {
        let mut shown = data.clone();
        if self.set.is_some() {
            for address in shown.broker_addrs.values_mut() {
                *address = self.of(address).to_owned();
            }
        }
        shown
    }
}

/// If a name has no master but an acting one, reports its lowest id as the master, unless its queues are still
/// writable.
pub(super) fn act_as_master(route: &mut TopicRouteData) {
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

/// Removes brokers of other zones that still have a master, with their queues and filter servers (Apache
/// `ZoneRouteRPCHook`).
pub(super) fn keep_zone(route: &mut TopicRouteData, zone: &str) {
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
    for address in left_out.iter().flat_map(|data| data.broker_addrs.values()) {
        route.filter_server_table.remove(address);
    }
}
