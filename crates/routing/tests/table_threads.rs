//! Readers beside a writer: every answer was true at some moment, and the last one is still true.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use pyrmq_remoting::body::{
    Body, DataVersion, Style, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicRouteData,
};
use pyrmq_routing::table::{Registration, RemovalReason, RouteTable};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const BROKERS: u64 = 8;
const ROUNDS: i64 = 60;

fn topics(counter: i64) -> TopicConfigAndMappingSerializeWrapper {
    let queues = i32::try_from(counter).unwrap() + 1;
    let named = (0..20).map(|number| format!("t{number}"));
    TopicConfigAndMappingSerializeWrapper {
        data_version: DataVersion {
            counter,
            state_version: 0,
            timestamp: 1,
        },
        topic_config_table: named
            .map(|name| (name.clone(), TopicConfig::new(name, queues, 6)))
            .collect(),
        ..TopicConfigAndMappingSerializeWrapper::default()
    }
}

fn register(table: &RouteTable, broker: u64, counter: i64) {
    let own = topics(counter);
    let (name, address) = (format!("b{broker}"), format!("10.0.0.{broker}:1"));
    let registration = Registration {
        cluster: "C",
        address: &address,
        name: &name,
        id: 0,
        ha_address: "ha",
        zone: None,
        timeout_ms: None,
        acting_master: None,
        topics: &own,
        filter_servers: None,
        peer: broker,
        software: 513,
        fingerprint: None,
        content_fingerprint: None,
        advertised: &[],
    };
    table.register(&registration, 0).unwrap();
}

/// A reader never sees an older state after a newer one, and every queue has its broker.
fn look(table: &RouteTable, topic: &str, newest: &mut i32) {
    let Some(body) = table.route_body(topic, Style::STANDARD) else {
        return;
    };
    let route = TopicRouteData::decode(&body).unwrap();
    assert_eq!(route.broker_datas.len(), route.queue_datas.len());
    for (broker, queues) in route.broker_datas.iter().zip(&route.queue_datas) {
        assert_eq!(broker.broker_name, queues.broker_name);
        assert_eq!(broker.broker_addrs.len(), 1);
    }
    let of_first = route.queue_datas.iter().find(|queues| queues.broker_name == "b0");
    if let Some(queues) = of_first {
        assert!(
            queues.read_queue_nums >= *newest,
            "an older answer came after a newer one"
        );
        *newest = queues.read_queue_nums;
    }
}

#[test]
fn answers_are_whole_and_never_go_back_while_brokers_come_change_and_go() {
    let table = RouteTable::default();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..3 {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                let topic = format!("t{reader}");
                let mut newest = 0;
                while !done.load(Ordering::Acquire) {
                    look(table, &topic, &mut newest);
                }
            });
        }
        for round in 0..ROUNDS {
            for broker in 0..BROKERS {
                register(&table, broker, round);
            }
            let removal: Vec<RemovalReason> = (1..BROKERS)
                .filter(|broker| broker % 2 == 1)
                .map(RemovalReason::Closed)
                .collect();
            table.remove_brokers(&removal);
        }
        done.store(true, Ordering::Release);
    });
    for number in 0..20 {
        let topic = format!("t{number}");
        let body = table.route_body(&topic, Style::PLAIN).unwrap();
        let route = table.route(&topic, None).unwrap();
        assert_eq!(body, route.encode_as(Style::PLAIN));
        assert_eq!(route.queue_datas.len(), 4);
        assert!(
            route
                .queue_datas
                .iter()
                .all(|queues| i64::from(queues.read_queue_nums) == ROUNDS)
        );
    }
}
