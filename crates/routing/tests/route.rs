//! The queues of a route that a client writes and reads.

use pyrmq_routing::route::{MAX_QUEUES, MAX_QUEUES_IN_ALL, PublishedQueue, Route, RouteBroker, RouteQueues};

fn broker(name: &str, addresses: &[(i64, &str)]) -> RouteBroker {
    RouteBroker {
        name: name.into(),
        cluster: "C".into(),
        addresses: addresses
            .iter()
            .map(|(id, address)| (*id, (*address).into()))
            .collect(),
    }
}

fn queues(broker: &str, read_queues: i32, write_queues: i32, perm: i32) -> RouteQueues {
    RouteQueues {
        broker: broker.into(),
        read_queues,
        write_queues,
        perm,
        sys_flag: 0,
    }
}

fn route() -> Route {
    Route {
        brokers: vec![
            broker("b", &[(0, "2:1"), (1, "2:2")]),
            broker("a", &[(0, "1:1")]),
            broker("slave-only", &[(3, "3:3"), (7, "3:7")]),
        ],
        queues: vec![
            queues("b", 2, 1, 6),
            queues("a", 1, 2, 6),
            queues("slave-only", 1, 4, 6),
            queues("gone", 4, 4, 6),
        ],
        order: None,
    }
}

fn listed(queues: &[PublishedQueue]) -> Vec<(&str, i32, &str)> {
    queues
        .iter()
        .map(|queue| (&*queue.broker, queue.queue_id, &*queue.address))
        .collect()
}

#[test]
fn producers_get_writable_queues_of_masters_by_broker_and_number() {
    let published = route().published();
    assert!(!published.ordered);
    assert_eq!(
        listed(&published.queues),
        [("a", 0, "1:1"), ("a", 1, "1:1"), ("b", 0, "2:1")]
    );
}

#[test]
fn consumers_get_readable_queues_also_of_brokers_without_master() {
    let expected = [
        ("a", 0, "1:1"),
        ("b", 0, "2:1"),
        ("b", 1, "2:1"),
        ("slave-only", 0, "3:3"),
    ];
    assert_eq!(listed(&route().subscribed()), expected);
}

#[test]
fn permissions_are_kept() {
    let mut route = route();
    route.queues[0].perm = 4;
    route.queues[1].perm = 2;
    assert_eq!(
        listed(&route.published().queues),
        [("a", 0, "1:1"), ("a", 1, "1:1")]
    );
    let read = route.subscribed();
    assert!(read.iter().all(|queue| &*queue.broker != "a"));
}

#[test]
fn an_order_configuration_holds_word_for_word() {
    let mut route = route();
    route.order = Some("b:2;gone:3;a:1;nonsense".into());
    let published = route.published();
    assert!(published.ordered);
    assert_eq!(
        listed(&published.queues),
        [("b", 0, "2:1"), ("b", 1, "2:1"), ("a", 0, "1:1")]
    );
    route.order = Some(String::new());
    assert!(!route.published().ordered);
}

#[test]
fn negative_counts_are_no_queues() {
    let mut route = route();
    for queues in &mut route.queues {
        (queues.read_queues, queues.write_queues) = (-1, i32::MIN);
    }
    assert!(route.published().queues.is_empty() && route.subscribed().is_empty());
}

#[test]
fn a_route_of_any_size_makes_no_more_queues_than_the_memory_holds() {
    let most = usize::try_from(MAX_QUEUES).unwrap_or_default();
    let mut one = Route {
        brokers: vec![broker("a", &[(0, "1:1")])],
        queues: vec![queues("a", i32::MAX, i32::MAX, 6)],
        order: None,
    };
    assert_eq!(
        (one.published().queues.len(), one.subscribed().len()),
        (most, most)
    );
    one.queues = vec![queues("a", i32::MAX, i32::MIN, 6); 5];
    assert_eq!(
        (one.published().queues.len(), one.subscribed().len()),
        (0, MAX_QUEUES_IN_ALL)
    );
    one.order = Some("a:2147483647;".repeat(5));
    assert_eq!(one.published().queues.len(), MAX_QUEUES_IN_ALL);
}
