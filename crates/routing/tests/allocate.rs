//! Allocation: Apache's numbers, and that every queue has exactly one reader.

use proptest::prelude::*;
use pyrmq_routing::allocate::{average, average_by_circle, place};

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
    // U+FF21 is one unit above the surrogates of U+1F600; by bytes it would stand before it.
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
