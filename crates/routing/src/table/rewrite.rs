//! How a route is changed for the client that asks: the acting master, the zone.

use crate::route::MASTER_ID;
use pyrmq_remoting::body::{BrokerData, TopicRouteData};
use pyrmq_remoting::names::PERM_WRITE;

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
