//! The name server's tables: Apache's rules, our differences, and invariants after any history.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use pyrmq_remoting::body::{
    Body, ClusterInfo, DataVersion, QueueData, Style, TopicConfig, TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
};
use pyrmq_routing::table::{
    DEFAULT_TIMEOUT_MS, RegisterError, Registered, Registration, RouteTable, Settings, UnitTopics,
};
use std::collections::{BTreeMap, BTreeSet};

fn topics(counter: i64, names: &[&str]) -> TopicConfigAndMappingSerializeWrapper {
    TopicConfigAndMappingSerializeWrapper {
        data_version: DataVersion {
            counter,
            state_version: 0,
            timestamp: 1,
        },
        topic_config_table: names
            .iter()
            .map(|name| ((*name).to_owned(), TopicConfig::new(*name, 4, 6)))
            .collect(),
        ..TopicConfigAndMappingSerializeWrapper::default()
    }
}

fn from<'a>(
    name: &'a str,
    id: i64,
    address: &'a str,
    topics: &'a TopicConfigAndMappingSerializeWrapper,
) -> Registration<'a> {
    Registration {
        cluster: "C",
        address,
        name,
        id,
        ha_address: "ha",
        zone: None,
        timeout_ms: None,
        acting_master: None,
        topics,
        filter_servers: Some(&[]),
        peer: 1,
        software: 513,
        fingerprint: None,
        content_fingerprint: None,
        advertised: &[],
    }
}

fn addresses(table: &RouteTable, name: &str) -> Vec<(i64, String)> {
    table.members(name).into_iter().collect()
}

fn perm(table: &RouteTable, topic: &str) -> i32 {
    table.route(topic, None).unwrap().queue_datas[0].perm
}

#[test]
fn a_master_brings_its_topics_and_a_slave_only_its_address() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    let more = topics(2, &["t", "u", "slave-only"]);
    let slave = Registration {
        peer: 2,
        ..from("b", 1, "1:2", &more)
    };
    let master = Some(("1:1".to_owned(), "ha".to_owned()));
    assert_eq!(table.register(&slave, 0), Ok(Registered::Accepted { master }));
    assert_eq!(table.topics(), ["t", "u"]);
    assert_eq!(addresses(&table, "b"), [(0, "1:1".into()), (1, "1:2".into())]);
    let route = table.route("t", None).unwrap();
    assert_eq!((route.broker_datas.len(), route.queue_datas.len()), (1, 1));
    assert_eq!(
        route.queue_datas[0],
        QueueData {
            broker_name: "b".into(),
            perm: 6,
            read_queue_nums: 4,
            topic_sys_flag: 0,
            write_queue_nums: 4,
        }
    );
    assert_eq!(table.route("absent", None), None);
}

#[test]
fn names_clusters_and_addresses_must_not_be_empty() {
    let own = topics(1, &["t", "u"]);
    let good = from("b", 0, "1:1", &own);
    for bad in [
        Registration { cluster: "", ..good },
        Registration { address: "", ..good },
        Registration { name: "", ..good },
    ] {
        let table = RouteTable::default();
        assert!(matches!(table.register(&bad, 0), Err(RegisterError::Empty(_))));
        assert_eq!((table.counts(), table.system_topics()), ((0, 0), (vec![], None)));
    }
}

#[test]
fn one_topic_from_an_unknown_broker_is_refused_and_from_a_known_one_taken() {
    let table = RouteTable::default();
    let single = topics(2, &["new"]);
    let error = table.register(&from("b", 0, "1:1", &single), 0).unwrap_err();
    assert_eq!(
        error,
        RegisterError::SingleTopic {
            name: "b".into(),
            id: 0
        }
    );
    assert_eq!(table.counts(), (0, 0));
    table
        .register(&from("b", 0, "1:1", &topics(1, &["t", "u"])), 0)
        .unwrap();
    table.register(&from("b", 0, "1:1", &single), 0).unwrap();
    assert_eq!(table.topics(), ["new", "t", "u"]);
}

#[test]
fn unchanged_versions_leave_changed_permissions_and_changed_ones_overwrite_them() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    assert_eq!(table.wipe_write_perm("b"), 2);
    assert_eq!(table.wipe_write_perm("absent"), 0);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    assert_eq!(perm(&table, "t"), 4);
    table
        .register(&from("b", 0, "1:1", &topics(2, &["t", "u"])), 0)
        .unwrap();
    assert_eq!(perm(&table, "t"), 6);
    table.wipe_write_perm("b");
    assert_eq!((table.add_write_perm("b"), perm(&table, "u")), (2, 6));
}

#[test]
fn topics_that_a_registration_lacks_stay_unless_it_is_switched_on() {
    for (switched_on, left) in [(false, vec!["a", "t", "u"]), (true, vec!["a", "u"])] {
        let settings = Settings {
            delete_topic_with_broker_registration: switched_on,
            ..Settings::default()
        };
        let table = RouteTable::new(settings);
        table
            .register(&from("b", 0, "1:1", &topics(1, &["t", "u"])), 0)
            .unwrap();
        table
            .register(&from("b", 0, "1:1", &topics(2, &["u", "a"])), 0)
            .unwrap();
        assert_eq!(table.topics(), left);
    }
}

#[test]
fn a_deleted_topic_comes_back_when_its_broker_still_has_it() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    table.delete_topic("t", Some("another cluster"));
    assert_eq!(table.topics(), ["t", "u"]);
    table.delete_topic("t", Some("C"));
    table.delete_topic("u", None);
    assert!(table.topics().is_empty());
    // Also with the same version, because the topic lacks this broker.
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    assert_eq!(table.topics(), ["t", "u"]);
}

#[test]
fn a_slave_that_becomes_master_has_one_entry() {
    let table = RouteTable::default();
    table
        .register(&from("b", 1, "1:2", &topics(1, &["t", "u"])), 0)
        .unwrap();
    table
        .register(&from("b", 0, "1:2", &topics(1, &["t", "u"])), 0)
        .unwrap();
    assert_eq!(addresses(&table, "b"), [(0, "1:2".into())]);
}

#[test]
fn an_older_state_does_not_take_the_place_of_a_newer_one() {
    let table = RouteTable::default();
    let mut newer = topics(1, &["t", "u"]);
    newer.data_version.state_version = 5;
    table.register(&from("b", 0, "1:1", &newer), 0).unwrap();
    let older = topics(9, &["t", "u", "w"]);
    assert_eq!(
        table.register(
            &Registration {
                peer: 2,
                ..from("b", 0, "2:2", &older)
            },
            0
        ),
        Ok(Registered::Stale)
    );
    assert_eq!(addresses(&table, "b"), [(0, "1:1".into())]);
    newer.data_version.state_version = 6;
    table
        .register(
            &Registration {
                peer: 2,
                ..from("b", 0, "2:2", &newer)
            },
            0,
        )
        .unwrap();
    assert_eq!(
        (addresses(&table, "b"), table.counts().0),
        (vec![(0, "2:2".into())], 1)
    );
    // The replaced broker left nothing that the end of its connection could remove.
    assert!(table.close(1).is_empty());
    assert_eq!(table.counts().0, 1);
}

#[test]
fn silence_takes_a_broker_out_and_heartbeats_keep_it() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    table
        .register(
            &Registration {
                timeout_ms: Some(1000),
                peer: 2,
                ..from("c", 0, "2:2", &own)
            },
            0,
        )
        .unwrap();
    assert!(table.heartbeat("C", "2:2", 900));
    assert!(!table.heartbeat("C", "9:9", 900));
    assert!(table.expire(1900).is_empty());
    let removed_brokers = table.expire(1901);
    assert_eq!(
        (
            removed_brokers.len(),
            removed_brokers[0].name.as_str(),
            removed_brokers[0].peer
        ),
        (1, "c", 2)
    );
    assert!(table.expire(DEFAULT_TIMEOUT_MS).is_empty());
    assert_eq!(table.expire(DEFAULT_TIMEOUT_MS + 1).len(), 1);
    assert_eq!((table.counts(), table.system_topics().0.len()), ((0, 0), 0));
}

#[test]
fn a_closed_connection_takes_out_every_broker_on_it_and_no_other() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    for (name, address, peer) in [("a", "1:1", 7), ("b", "2:2", 7), ("c", "3:3", 8)] {
        table
            .register(
                &Registration {
                    peer,
                    ..from(name, 0, address, &own)
                },
                0,
            )
            .unwrap();
    }
    let removed_brokers: Vec<String> = table
        .close(7)
        .into_iter()
        .map(|removed_brokers| removed_brokers.name)
        .collect();
    assert_eq!(removed_brokers, ["a", "b"]);
    assert_eq!(table.route("t", None).unwrap().broker_datas.len(), 1);
    assert!(table.close(7).is_empty());
}

#[test]
fn a_broker_that_came_back_by_a_new_connection_survives_the_end_of_the_old_one() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    table
        .register(
            &Registration {
                peer: 2,
                ..from("b", 0, "1:1", &own)
            },
            0,
        )
        .unwrap();
    assert!(table.close(1).is_empty());
    assert_eq!(table.topics(), ["t", "u"]);
    assert_eq!(table.close(2).len(), 1);
}

#[test]
fn a_broker_that_moves_leaves_its_old_cluster_and_its_old_name() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    table
        .register(
            &Registration {
                cluster: "D",
                ..from("b", 0, "1:1", &own)
            },
            0,
        )
        .unwrap();
    assert_eq!(table.system_topics().0, ["D", "b"]);
    assert!(table.topics_of_cluster("C").is_empty());
    assert_eq!(table.topics_of_cluster("D"), ["t", "u"]);
    table
        .register(
            &Registration {
                cluster: "D",
                ..from("renamed", 0, "1:1", &own)
            },
            0,
        )
        .unwrap();
    assert_eq!(table.system_topics().0, ["D", "renamed"]);
    assert_eq!(table.counts().0, 1);
    table.unregister("D", "1:1", "renamed").unwrap();
    assert_eq!(table.counts(), (0, 0));
}

#[test]
fn unregistering_takes_the_address_then_the_name_with_its_topics() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    table
        .register(
            &Registration {
                peer: 2,
                ..from("b", 1, "1:2", &own)
            },
            0,
        )
        .unwrap();
    table.unregister("C", "1:1", "b").unwrap();
    assert_eq!(
        (addresses(&table, "b"), table.topics().len()),
        (vec![(1, "1:2".into())], 2)
    );
    table.unregister("C", "1:2", "b").unwrap();
    assert_eq!(
        (table.counts(), table.cluster_info()),
        ((0, 0), ClusterInfo::default())
    );
    assert_eq!(table.unregister("C", "1:2", "b"), None);
}

#[test]
fn a_slave_stands_in_for_its_master_where_both_sides_want_it() {
    let settings = Settings {
        support_acting_master: true,
        ..Settings::default()
    };
    let table = RouteTable::new(settings);
    let own = topics(1, &["t", "u"]);
    let member = |id, address, peer| Registration {
        acting_master: Some(true),
        peer,
        ..from("b", id, address, &own)
    };
    table.register(&member(0, "1:1", 1), 0).unwrap();
    table.register(&member(2, "1:3", 3), 0).unwrap();
    table.register(&member(1, "1:2", 2), 0).unwrap();
    table.close(1);
    let route = table.route("t", None).unwrap();
    assert_eq!(route.queue_datas[0].perm, 4);
    let listed: Vec<_> = route.broker_datas[0].broker_addrs.clone().into_iter().collect();
    assert_eq!(listed, [(0, "1:2".into()), (2, "1:3".into())]);
    assert_eq!(addresses(&table, "b"), [(1, "1:2".into()), (2, "1:3".into())]);
    table.set_settings(Settings::default());
    assert!(
        !table.route("t", None).unwrap().broker_datas[0]
            .broker_addrs
            .contains_key(&0)
    );
}

#[test]
fn the_lowest_slave_brings_topics_when_its_header_has_the_field() {
    for (acting, topics_seen, perm_seen) in [(None, 0, 0), (Some(false), 2, 6), (Some(true), 2, 4)] {
        let table = RouteTable::default();
        let own = topics(1, &["t", "u"]);
        table
            .register(
                &Registration {
                    acting_master: acting,
                    ..from("b", 3, "1:1", &own)
                },
                0,
            )
            .unwrap();
        assert_eq!(table.topics().len(), topics_seen, "{acting:?}");
        if topics_seen > 0 {
            assert_eq!(perm(&table, "t"), perm_seen, "{acting:?}");
        }
    }
}

#[test]
fn zones_leave_out_brokers_that_have_a_master_elsewhere() {
    let table = RouteTable::default();
    let own = topics(1, &["t", "u"]);
    for (name, id, address, zone) in [
        ("a", 0, "1:1", Some("East")),
        ("b", 0, "2:2", Some("west")),
        ("c", 0, "3:3", None),
    ] {
        table
            .register(
                &Registration {
                    zone,
                    ..from(name, id, address, &own)
                },
                0,
            )
            .unwrap();
    }
    let route = table.route("t", Some("east")).unwrap();
    assert_eq!(
        route
            .broker_datas
            .iter()
            .map(|data| &data.broker_name)
            .collect::<Vec<_>>(),
        ["a"]
    );
    assert_eq!(route.queue_datas.len(), 1);
    assert_eq!(table.route("t", None).unwrap().broker_datas.len(), 3);
}

#[test]
fn routes_carry_filter_servers_and_the_order_configuration() {
    let table = RouteTable::new(Settings {
        order_message_enable: true,
        ..Settings::default()
    });
    let own = topics(1, &["t", "u"]);
    let servers = ["9:1".to_owned()];
    table
        .register(
            &Registration {
                filter_servers: Some(&servers),
                ..from("b", 0, "1:1", &own)
            },
            0,
        )
        .unwrap();
    table.set_order_config(Some(BTreeMap::from([("t".into(), "b:2".into())])));
    let route = table.route("t", None).unwrap();
    assert_eq!(route.filter_server_table["1:1"], servers);
    assert_eq!(route.order_topic_conf.as_deref(), Some("b:2"));
    assert_eq!(table.route("u", None).unwrap().order_topic_conf, None);
    table.register(&from("b", 0, "1:1", &own), 0).unwrap();
    assert!(table.route("t", None).unwrap().filter_server_table.is_empty());
}

#[test]
fn static_topics_are_removed_with_their_broker() {
    let table = RouteTable::default();
    let mut own = topics(1, &["t", "u"]);
    let info = TopicQueueMappingInfo {
        broker_name: Some("a".into()),
        topic: Some("t".into()),
        ..TopicQueueMappingInfo::default()
    };
    own.topic_queue_mapping_info_map.insert("t".into(), info.clone());
    table.register(&from("a", 0, "1:1", &own), 0).unwrap();
    let plain = topics(1, &["t", "u"]);
    let other = Registration {
        peer: 2,
        ..from("b", 0, "2:2", &plain)
    };
    table.register(&other, 0).unwrap();
    let mapped = || table.route("t", None).unwrap().topic_queue_mapping_by_broker;
    assert_eq!(mapped(), Some(BTreeMap::from([("a".to_owned(), info)])));
    let encoded = table.route_body("t", Style::PLAIN).unwrap();
    assert!(String::from_utf8_lossy(&encoded).contains("topicQueueMappingByBroker"));
    table.close(1);
    assert_eq!(mapped(), None);
    let encoded = table.route_body("t", Style::PLAIN).unwrap();
    assert!(!String::from_utf8_lossy(&encoded).contains("topicQueueMappingByBroker"));
}

#[test]
fn an_ignored_registration_changes_nothing() {
    let table = RouteTable::default();
    let mut newer = topics(1, &["t", "u"]);
    newer.data_version.state_version = 5;
    let holder = Registration {
        zone: Some("east"),
        acting_master: Some(true),
        ..from("b", 0, "1:1", &newer)
    };
    table.register(&holder, 0).unwrap();
    let before = table.route("t", None);
    let older = topics(9, &["t", "w"]);
    let ignored = Registration {
        peer: 2,
        zone: Some("west"),
        ..from("b", 0, "2:2", &older)
    };
    assert_eq!(table.register(&ignored, 0), Ok(Registered::Stale));
    assert_eq!(table.route("t", None), before);
    assert_eq!((table.topics().len(), table.version("C", "2:2")), (2, None));
}

#[test]
fn one_topic_is_announced_only_for_known_brokers() {
    let table = RouteTable::default();
    table
        .register(&from("b", 0, "1:1", &topics(1, &["t", "u"])), 0)
        .unwrap();
    let queues = |broker: &str| QueueData {
        broker_name: broker.into(),
        perm: 6,
        read_queue_nums: 2,
        write_queue_nums: 2,
        topic_sys_flag: 2,
    };
    assert!(!table.register_topic("new", &[queues("b"), queues("absent")]));
    assert_eq!(table.topics(), ["t", "u"]);
    assert!(table.register_topic("new", &[queues("b")]));
    assert_eq!(table.unit_topics(UnitTopics::Subscribed), ["new"]);
    assert_eq!(table.unit_topics(UnitTopics::SubscribedNotUnit), ["new"]);
    assert!(table.unit_topics(UnitTopics::Unit).is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Register {
        name: usize,
        id: i64,
        address: usize,
        cluster: usize,
        counter: i64,
        topics: usize,
        peer: u64,
        timeout: i64,
        acting: Option<bool>,
    },
    Unregister {
        name: usize,
        address: usize,
        cluster: usize,
    },
    Close(u64),
    Expire(i64),
    Delete {
        topic: usize,
        cluster: Option<usize>,
    },
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const ADDRESSES: [&str; 4] = ["1:1", "2:2", "3:3", "4:4"];
const CLUSTERS: [&str; 2] = ["C", "D"];
const TOPICS: [&str; 4] = ["t", "u", "v", "w"];

fn step() -> impl Strategy<Value = Step> {
    let acting = prop_oneof![Just(None), Just(Some(false)), Just(Some(true))];
    prop_oneof![
        4 => (0_usize..3, 0_i64..3, 0_usize..4, 0_usize..2, 0_i64..3, 1_usize..5, 0_u64..4, 1_i64..1000, acting).prop_map(
            |(name, id, address, cluster, counter, topics, peer, timeout, acting)| Step::Register {
                name, id, address, cluster, counter, topics, peer, timeout, acting
            }
        ),
        1 => (0_usize..3, 0_usize..4, 0_usize..2).prop_map(|(name, address, cluster)| Step::Unregister { name, address, cluster }),
        1 => (0_u64..4).prop_map(Step::Close),
        1 => (0_i64..2000).prop_map(Step::Expire),
        1 => (0_usize..4, proptest::option::of(0_usize..2)).prop_map(|(topic, cluster)| Step::Delete { topic, cluster }),
    ]
}

fn apply(table: &RouteTable, step: &Step) {
    match step {
        Step::Register {
            name,
            id,
            address,
            cluster,
            counter,
            topics: count,
            peer,
            timeout,
            acting,
        } => {
            let own = topics(*counter, &TOPICS[..*count]);
            let registration = Registration {
                cluster: CLUSTERS[*cluster],
                peer: *peer,
                timeout_ms: Some(*timeout),
                acting_master: *acting,
                ..from(NAMES[*name], *id, ADDRESSES[*address], &own)
            };
            let taken = table.register(&registration, 0);
            if matches!(taken, Ok(Registered::Accepted { .. })) {
                let members = table.members(registration.name);
                assert_eq!(members.get(id).map(String::as_str), Some(registration.address));
                assert_eq!(
                    members
                        .values()
                        .filter(|held| *held == registration.address)
                        .count(),
                    1
                );
            }
        }
        Step::Unregister {
            name,
            address,
            cluster,
        } => {
            drop(table.unregister(CLUSTERS[*cluster], ADDRESSES[*address], NAMES[*name]));
        }
        Step::Close(peer) => drop(table.close(*peer)),
        Step::Expire(now) => drop(table.expire(*now)),
        Step::Delete { topic, cluster } => {
            table.delete_topic(TOPICS[*topic], cluster.map(|cluster| CLUSTERS[cluster]));
        }
    }
}

fn check(table: &RouteTable) {
    let info = table.cluster_info();
    let addresses: Vec<&String> = info
        .broker_addr_table
        .values()
        .flat_map(|data| data.broker_addrs.values())
        .collect();
    assert_eq!(
        addresses.len(),
        table.counts().0,
        "every address lives, everything that lives has an address"
    );
    for (name, data) in &info.broker_addr_table {
        assert!(!data.broker_addrs.is_empty());
        assert!(info.cluster_addr_table[&data.cluster].contains(name));
    }
    let members: Vec<&String> = info.cluster_addr_table.values().flatten().collect();
    assert_eq!(
        members.len(),
        info.broker_addr_table.len(),
        "a name is in one cluster"
    );
    assert!(info.cluster_addr_table.values().all(|names| !names.is_empty()));
    for topic in table.topics() {
        let route = table.route(&topic, None).unwrap();
        let brokers: BTreeSet<_> = route
            .broker_datas
            .iter()
            .map(|data| data.broker_name.clone())
            .collect();
        let queues: BTreeSet<_> = route
            .queue_datas
            .iter()
            .map(|queues| queues.broker_name.clone())
            .collect();
        assert_eq!(brokers, queues);
        for style in [Style::PLAIN, Style::STANDARD] {
            assert_eq!(table.route_body(&topic, style).unwrap(), route.encode_as(style));
        }
    }
    let by_cluster: BTreeSet<String> = CLUSTERS
        .iter()
        .flat_map(|cluster| table.topics_of_cluster(cluster))
        .collect();
    assert_eq!(by_cluster.into_iter().collect::<Vec<_>>(), table.topics());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn the_tables_agree_after_any_history(steps in proptest::collection::vec(step(), 1..40), acting in any::<bool>()) {
        let settings = Settings { support_acting_master: acting, delete_topic_with_broker_registration: acting, order_message_enable: false, max_topics_per_broker: None, max_topics: None, max_brokers: None };
        let table = RouteTable::new(settings);
        for step in &steps {
            apply(&table, step);
            check(&table);
        }
        for peer in 0..4 {
            table.close(peer);
        }
        prop_assert_eq!(table.counts(), (0, 0));
        prop_assert_eq!(table.cluster_info(), ClusterInfo::default());
    }
}
