//! Routes, clusters and members with the addresses of a set.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use pyrmq_remoting::body::{
    Body, DataVersion, Style, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicRouteData,
};
use pyrmq_routing::table::{Registration, RouteTable, Settings};
use std::collections::BTreeMap;

fn topics(counter: i64) -> TopicConfigAndMappingSerializeWrapper {
    TopicConfigAndMappingSerializeWrapper {
        data_version: DataVersion {
            counter,
            state_version: 0,
            timestamp: 1,
        },
        topic_config_table: ["t", "u"]
            .map(|name| (name.to_owned(), TopicConfig::new(name, 4, 6)))
            .into(),
        ..TopicConfigAndMappingSerializeWrapper::default()
    }
}

fn register(
    table: &RouteTable,
    name: &str,
    (id, address): (i64, &str),
    sets: &[(&str, &str)],
    acting: Option<bool>,
) {
    let topics = topics(1);
    let advertised: Vec<(String, String)> = sets
        .iter()
        .map(|(set, address)| ((*set).to_owned(), (*address).to_owned()))
        .collect();
    let from = Registration {
        cluster: "C",
        address,
        name,
        id,
        ha_address: "",
        zone: Some(name),
        timeout_ms: None,
        acting_master: acting,
        topics: &topics,
        filter_servers: Some(&["filter:1".to_owned()]),
        advertised: &advertised,
        peer: u64::from(address.as_bytes()[0]),
        software: 513,
        fingerprint: None,
        content_fingerprint: None,
    };
    table.register(&from, 0).unwrap();
}

fn tables() -> RouteTable {
    RouteTable::with_sets(Settings::default(), vec!["inside".into(), "outside".into()])
}

fn addresses(route: &TopicRouteData) -> Vec<&str> {
    let names = route.broker_datas.iter();
    names
        .flat_map(|data| data.broker_addrs.values())
        .map(String::as_str)
        .collect()
}

fn addresses_in_set(table: &RouteTable, set: Option<&str>) -> Vec<String> {
    let body = table.in_set(set).route_body("t", Style::STANDARD);
    let route = body
        .map(|body| TopicRouteData::decode(&body).unwrap())
        .unwrap_or_default();
    addresses(&route).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_set_names_its_address_and_a_broker_without_it_its_usual_one() {
    let table = tables();
    register(
        &table,
        "a",
        (0, "1:1"),
        &[("inside", "10:1"), ("outside", "30:1")],
        None,
    );
    register(&table, "b", (0, "2:1"), &[("inside", "20:1")], None);
    for (set, all) in [
        (None, ["1:1", "2:1"]),
        (Some("inside"), ["10:1", "20:1"]),
        (Some("outside"), ["30:1", "2:1"]),
        (Some("unknown"), ["1:1", "2:1"]),
    ] {
        assert_eq!(addresses_in_set(&table, set), all, "{set:?}");
        let view = table.in_set(set);
        let route = view.route("t", None).unwrap();
        assert_eq!(addresses(&route), all);
        let filters: Vec<&str> = route.filter_server_table.keys().map(String::as_str).collect();
        let mut sorted = all;
        sorted.sort_unstable();
        assert_eq!(
            filters, sorted,
            "filter servers are found by the address that clients see"
        );
        let info = view.cluster_info().broker_addr_table;
        let listed: Vec<&String> = info
            .values()
            .flat_map(|data| data.broker_addrs.values())
            .collect();
        assert_eq!(listed, all.iter().collect::<Vec<_>>());
        assert_eq!(view.members("a"), BTreeMap::from([(0, all[0].to_owned())]));
        let zone = view.route("t", Some("b")).unwrap();
        assert_eq!(addresses(&zone), [all[1]]);
        assert_eq!(zone.filter_server_table.len(), 1);
    }
}

#[test]
fn a_changed_set_is_told_at_once_and_a_removed_broker_leaves_nothing() {
    let table = tables();
    register(&table, "a", (0, "1:1"), &[("outside", "30:1")], None);
    register(&table, "a", (1, "2:1"), &[("outside", "30:2")], None);
    assert_eq!(addresses_in_set(&table, Some("outside")), ["30:1", "30:2"]);
    register(&table, "a", (0, "1:1"), &[("outside", "30:9")], None);
    assert_eq!(addresses_in_set(&table, Some("outside")), ["30:9", "30:2"]);
    register(&table, "a", (0, "1:1"), &[], None);
    assert_eq!(addresses_in_set(&table, Some("outside")), ["1:1", "30:2"]);
    table.unregister("C", "2:1", "a").unwrap();
    assert_eq!(addresses_in_set(&table, Some("outside")), ["1:1"]);
    // The address comes back without a set: nothing is left of the old one.
    register(&table, "a", (1, "2:1"), &[], None);
    assert_eq!(addresses_in_set(&table, Some("outside")), ["1:1", "2:1"]);
    table.unregister("C", "1:1", "a").unwrap();
    table.unregister("C", "2:1", "a").unwrap();
    assert_eq!(addresses_in_set(&table, Some("outside")), [""; 0]);
}

#[test]
fn a_slave_that_acts_as_master_is_named_by_its_address_in_the_set() {
    let settings = Settings {
        support_acting_master: true,
        ..Settings::default()
    };
    let table = RouteTable::with_sets(settings, vec!["outside".into()]);
    register(&table, "a", (0, "1:1"), &[("outside", "30:1")], Some(true));
    register(&table, "a", (1, "2:1"), &[("outside", "30:2")], Some(true));
    table.unregister("C", "1:1", "a").unwrap();
    let route = table.in_set(Some("outside")).route("t", None).unwrap();
    let acting = BTreeMap::from([(0, "30:2".to_owned())]);
    assert_eq!(route.broker_datas[0].broker_addrs, acting);
}

#[test]
fn an_operator_sees_the_sets_of_each_broker() {
    let table = tables();
    register(&table, "a", (0, "1:1"), &[("outside", "30:1")], None);
    let expected = BTreeMap::from([("outside".to_owned(), "30:1".to_owned())]);
    assert_eq!(table.brokers(0)[0].advertised, expected);
}
