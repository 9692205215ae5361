//! Allocation: Apache's numbers, and that every queue has exactly one reader.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

use proptest::prelude::*;
use pyrmq_routing::allocate::{
    AllocateError, AllocatedQueue, Share, average, average_by_circle, check, consistent_hash, machine_room,
    nearby, place,
};

#[test]
fn average_gives_apaches_blocks() {
    let blocks = |queues, clients| {
        (0..clients)
            .map(|client| average(queues, clients, client))
            .collect::<Vec<_>>()
    };
    assert_eq!(blocks(8, 3), [0..3, 3..6, 6..8]);
    assert_eq!(blocks(4, 4), [0..1, 1..2, 2..3, 3..4]);
    assert_eq!(blocks(2, 4), [0..1, 1..2, 2..2, 2..2]);
    assert_eq!(average(8, 3, 3), 0..0);
    assert_eq!(average(8, 0, 0), 0..0);
}

#[test]
fn circle_deals_like_cards() {
    assert_eq!(average_by_circle(8, 3, 1).collect::<Vec<_>>(), [1, 4, 7]);
    assert_eq!(average_by_circle(2, 4, 3).count(), 0);
    assert_eq!(average_by_circle(8, 0, 0).count(), 0);
}

#[test]
fn ids_sort_by_utf_16_unit_as_java_sorts_them() {
    // U+FF21 is one unit above the surrogates of U+1F600; by bytes it would come first.
    let mut ids = vec!["\u{ff21}", "\u{1f600}", "b", "b", "a"];
    assert_eq!(place(&mut ids, "b"), Some(1));
    assert_eq!(ids, ["a", "b", "\u{1f600}", "\u{ff21}"]);
    assert_eq!(place(&mut ids, "absent"), None);
}

proptest! {
    #[test]
    fn every_queue_has_one_reader_and_shares_differ_by_one(queues in 0_usize..200, clients in 1_usize..50) {
        for circle in [false, true] {
            let mut read = vec![0; queues];
            let mut shares = Vec::new();
            for client in 0..clients {
                let mine: Vec<usize> = if circle {
                    average_by_circle(queues, clients, client).collect()
                } else {
                    average(queues, clients, client).collect()
                };
                shares.push(mine.len());
                for queue in mine {
                    read[queue] += 1;
                }
            }
            prop_assert!(read.iter().all(|readers| *readers == 1));
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}

fn queues(count: usize) -> Vec<AllocatedQueue<'static>> {
    let queue = |at| AllocatedQueue {
        topic: "topic",
        broker: "broker",
        queue_id: i32::try_from(at).unwrap(),
    };
    (0..count).map(queue).collect()
}

#[test]
fn a_client_that_leaves_gives_up_only_its_own_queues() {
    let queues = queues(64);
    let owner = |clients: &[&'static str], queue: usize| -> &'static str {
        let has = |client: &&&'static str| {
            consistent_hash(&queues, clients, client, 10)
                .unwrap()
                .contains(&queue)
        };
        clients
            .iter()
            .find(has)
            .copied()
            .expect("every queue has a reader")
    };
    for queue in 0..queues.len() {
        let before = owner(&["a", "b", "c"], queue);
        let after = owner(&["a", "c"], queue);
        assert!(
            before == after || before == "b",
            "queue {queue} went from {before} to {after}"
        );
    }
}

#[test]
fn a_ring_needs_nodes() {
    for virtual_nodes in [0, 10_001] {
        let error = consistent_hash(&queues(1), &["a"], "a", virtual_nodes);
        assert_eq!(error, Err(AllocateError::VirtualNodes { virtual_nodes }));
    }
}

#[test]
fn a_machine_room_is_the_text_before_the_only_at() {
    let brokers = [
        "near@a", "far@b", "near@c@", "near", "near@", "near@d@e", "@f", "near@g",
    ];
    assert_eq!(machine_room(&brokers, &["near"], 1, 0), [0, 2, 7]);
    assert_eq!(machine_room(&brokers, &["near"], 2, 0), [0, 7]);
    assert_eq!(machine_room(&brokers, &["near"], 2, 1), [2]);
    assert_eq!(machine_room(&brokers, &[""], 1, 0), [6]);
    assert!(machine_room(&brokers, &["near"], 1, 1).is_empty());
}

#[test]
fn queues_of_a_room_without_clients_are_shared_by_all() {
    let share = |queues: &[usize], clients: &[usize]| Share {
        queues: queues.to_vec(),
        clients: clients.to_vec(),
    };
    let queues = ["south", "north", "west", "east", "north"];
    let clients = ["north", "south", "north"];
    assert_eq!(
        nearby(&queues, &clients, 2),
        Ok(vec![
            share(&[1, 4], &[0, 2]),
            share(&[3], &[0, 1, 2]),
            share(&[2], &[0, 1, 2])
        ])
    );
    assert_eq!(nearby(&queues, &clients, 3), Ok(Vec::new()));
    let what = "the queue at place 0".to_owned();
    assert_eq!(
        nearby(&["", "north"], &["north", "north"], 0),
        Err(AllocateError::NoRoom { what })
    );
}

#[test]
fn lists_that_cannot_be_shared_are_refused() {
    assert_eq!(check("b", 1, &["a", "b"]), Ok(Some(1)));
    assert_eq!(check("c", 1, &["a", "b"]), Ok(None));
    assert_eq!(check("", 1, &["a"]), Err(AllocateError::NoClient));
    assert_eq!(check("a", 0, &["a"]), Err(AllocateError::NoQueues));
    assert_eq!(check::<&str>("a", 1, &[]), Err(AllocateError::NoClients));
}
