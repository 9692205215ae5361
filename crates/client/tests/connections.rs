//! Which clients share connections.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::World;
use pyrmq_client::producer::Producer;
use pyrmq_client::session::connections::Connections;
use std::sync::Arc;

fn producer(world: &World, connections: &Arc<Connections>, group: &str, instance_name: &str) -> Producer {
    world.producer(|options| {
        options.client.group = group.into();
        options.client.instance_name = instance_name.into();
        options.client.connections = connections.clone();
    })
}

#[test]
fn clients_share_connections_unless_they_are_members_of_one_group() {
    let world = World::new(1);
    let connections = Connections::new();
    let make = |group, instance_name| producer(&world, &connections, group, instance_name);
    let first = make("a", "");
    let second = make("b", "");
    assert_eq!(connections.session_count(), 1);
    let again = make("a", "");
    assert_eq!(connections.session_count(), 2, "a second member of a group");
    let third = make("b", "");
    assert_eq!(
        connections.session_count(),
        2,
        "it shares those of the second member"
    );
    let named = make("c", "named");
    assert_eq!(connections.session_count(), 3, "another identity");

    // The place of a member that has left is free.
    drop(first);
    let replacement = make("a", "");
    assert_eq!(connections.session_count(), 3);
    drop((second, again, third));
    assert_eq!(connections.session_count(), 2);
    drop((named, replacement));
    assert_eq!(connections.session_count(), 0);
}

#[test]
fn clients_that_are_given_no_connections_share_none() {
    let world = World::new(1);
    let (first, second) = (world.producer(|_| {}), world.producer(|_| {}));
    let connections = [&first, &second].map(|producer| producer.options().client.connections.clone());
    assert_eq!(connections.map(|connections| connections.session_count()), [1, 1]);
}
