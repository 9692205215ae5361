//! Address sets: the addresses that clients of one network get, if brokers announced one for it.

use super::RouteTable;
use super::rewrite::{Addresses, keep_zone};
use bytes::Bytes;
use pyrmq_remoting::body::{ClusterInfo, Style, TopicRouteData};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables with the addresses of one set. A broker without an address in the set appears with its usual one.
#[derive(Debug, Clone, Copy)]
pub struct SetView<'a> {
    table: &'a RouteTable,
    set: Option<&'a str>,
}

impl RouteTable {
    /// Returns the tables with the addresses of one of the sets of [`RouteTable::with_sets`]; `None`: the usual
    /// addresses.
    pub fn in_set<'a>(&'a self, set: Option<&'a str>) -> SetView<'a> {
        SetView { table: self, set }
    }
}

impl SetView<'_> {
    /// Returns the route of a topic; `None` if no broker has it. With `zone`, it omits brokers of other zones that have
    /// a master.
    pub fn route(&self, topic: &str, zone: Option<&str>) -> Option<TopicRouteData> {
        let view = &self.table.view;
        let topic_entry = view.topic_entry(topic)?;
        let (mut route, _) = view.collect_route(topic, &topic_entry, self.set)?;
        if let Some(zone) = zone {
            keep_zone(&mut route, zone);
        }
        Some(route)
    }

    /// Returns the route of a topic as the body of an answer, encoded once for each change and form.
    pub fn route_body(&self, topic: &str, style: Style) -> Option<Bytes> {
        self.table.view.answer(topic, style, self.set)
    }

    /// Returns all brokers and clusters.
    pub fn cluster_info(&self) -> ClusterInfo {
        let writer = self.table.writer();
        let texts = |names: &BTreeSet<Arc<str>>| names.iter().map(ToString::to_string).collect();
        let brokers = writer.brokers.iter();
        let clusters = writer.clusters.iter();
        ClusterInfo {
            broker_addr_table: brokers
                .map(|(name, broker)| {
                    let addresses = Addresses::new(&broker.advertised, self.set);
                    (name.to_string(), addresses.shown(&broker.data))
                })
                .collect(),
            cluster_addr_table: clusters
                .map(|(cluster, names)| (cluster.clone(), texts(names)))
                .collect(),
        }
    }

    /// Returns the brokers of a name: id to address. As in Apache, the cluster is ignored.
    pub fn members(&self, name: &str) -> BTreeMap<i64, String> {
        let writer = self.table.writer();
        let broker = writer.brokers.get(name);
        broker
            .map(|broker| Addresses::new(&broker.advertised, self.set).shown(&broker.data))
            .map(|data| data.broker_addrs)
            .unwrap_or_default()
    }
}
