//! Queue selection and latency fault tolerance.

use proptest::prelude::*;
use pyrmq_remoting::message::java_hash::hash as java_hash;
use pyrmq_routing::fault::{LatencyFaultTolerance, Schedule};
use pyrmq_routing::select::{QueueSelector, by_hash, by_number};
use std::collections::HashMap;

const QUEUES: [&str; 6] = ["a", "a", "a", "b", "b", "b"];

#[test]
fn round_robin_visits_every_queue_in_turn() {
    let selector = QueueSelector::new(usize::MAX - 2);
    let queues = [0, 1, 2, 3];
    let first: Vec<i32> = (0..8)
        .map(|_| *selector.select_where(&queues, |_| true).unwrap())
        .collect();
    let start = usize::try_from(first[0]).unwrap();
    let expected: Vec<i32> = (start..start + 8).map(|at| queues[at % 4]).collect();
    assert_eq!(first, expected);
    assert!(selector.select::<&str>(&[], None).is_none());
}

#[test]
fn the_failed_broker_is_avoided_while_there_is_another() {
    let selector = QueueSelector::new(0);
    for _ in 0..20 {
        assert_eq!(selector.select(&QUEUES, Some("a")), Some(&"b"));
    }
    assert_eq!(selector.select(&["a", "a"], Some("a")), Some(&"a"));
}

#[test]
fn leaving_a_broker_out_does_not_burden_its_neighbour() {
    let selector = QueueSelector::new(0);
    let queues = [("a", 0), ("b", 0), ("b", 1), ("b", 2)];
    let mut counts = HashMap::new();
    for _ in 0..300 {
        *counts
            .entry(selector.select_where(&queues, |queue| queue.0 != "a").unwrap().1)
            .or_insert(0) += 1;
    }
    assert_eq!(counts, HashMap::from([(0, 100), (1, 100), (2, 100)]));
}

#[test]
fn the_schedule_is_apaches() {
    let schedule = Schedule::default();
    let table = [
        (0, 0),
        (50, 0),
        (549, 0),
        (550, 2000),
        (1799, 2000),
        (1800, 5000),
        (3000, 6000),
        (5000, 10_000),
        (10_000, 10_000),
        (15_000, 30_000),
        (u64::MAX, 30_000),
    ];
    for (latency, out) in table {
        assert_eq!(schedule.not_available_ms(latency), out, "{latency}");
    }
    assert!(Schedule::new(&[(100, 0), (50, 0)]).is_none());
}

#[test]
fn a_slow_broker_is_avoided_and_becomes_available_again() {
    let faults = LatencyFaultTolerance::default();
    let selector = QueueSelector::new(0);
    faults.update("a", 600, false, true, 1000);
    assert!(!faults.is_available("a", 2999));
    for _ in 0..6 {
        assert_eq!(
            selector.select_available(&QUEUES, None, &faults, 2999),
            Some(&"b")
        );
    }
    assert!(faults.is_available("a", 3000));
    let both = (0..6).filter(|_| selector.select_available(&QUEUES, None, &faults, 3000) == Some(&"a"));
    assert_eq!(both.count(), 3);
}

#[test]
fn failure_counts_as_ten_seconds_and_good_news_does_not_shorten_it() {
    let faults = LatencyFaultTolerance::default();
    faults.update("a", 3, true, true, 0);
    faults.update("a", 1, false, true, 1);
    assert!(!faults.is_available("a", 9_999));
    assert!(faults.is_available("a", 10_000));
}

#[test]
fn with_every_broker_out_one_is_taken_all_the_same() {
    let faults = LatencyFaultTolerance::default();
    for broker in ["a", "b"] {
        faults.update(broker, 0, true, false, 0);
    }
    assert_eq!(faults.unreachable(), ["a", "b"]);
    let selector = QueueSelector::new(0);
    assert!(
        selector
            .select_available(&QUEUES, Some("a"), &faults, 1)
            .is_some()
    );
    // Once a broker is reachable again it comes first, although it is still avoided for its latency.
    faults.update("b", 1, false, true, 2);
    assert_eq!(selector.select_available(&QUEUES, None, &faults, 3), Some(&"b"));
    faults.remove("b");
    assert!(faults.get("b").is_none());
}

#[test]
fn quick_answers_of_healthy_brokers_leave_no_record() {
    let faults = LatencyFaultTolerance::default();
    faults.update("a", 3, false, true, 0);
    assert!(faults.get("a").is_none());
}

#[test]
fn a_route_keeps_the_state_of_a_broker_that_left_and_came_back() {
    let faults = LatencyFaultTolerance::default();
    let healths = faults.healths(&QUEUES);
    faults.update("a", 600, false, false, 0);
    assert!(!healths.get(0).unwrap().is_available(0));
    assert!(!healths.get(2).unwrap().is_reachable());
    assert!(healths.get(3).unwrap().is_available(0));
    assert!(healths.get(6).is_none());
    faults.remove("a");
    assert!(faults.get("a").is_none());
    assert!(healths.get(0).unwrap().is_available(0) && healths.get(0).unwrap().is_reachable());
    faults.update("a", 600, false, true, 0);
    assert!(!healths.get(0).unwrap().is_available(0));
    assert!(!faults.healths(&QUEUES).get(0).unwrap().is_available(0));
}

#[test]
fn hashes_are_javas() {
    assert_eq!(java_hash(""), 0);
    assert_eq!(java_hash("hello"), 99_162_322);
    assert_eq!(java_hash("polygenelubricants"), i32::MIN);
    assert_eq!(by_hash("polygenelubricants", 7), Some(2));
    assert_eq!(by_number(-7, 4), Some(3));
    assert_eq!(by_hash("any", 0), None);
}

proptest! {
    #[test]
    fn a_hash_is_always_a_place(key in ".*", count in 1_usize..64) {
        prop_assert!(by_hash(&key, count).unwrap() < count);
        prop_assert_eq!(by_hash(&key, count), by_hash(&key, count));
    }

    /// Looking up a broker by name and reading the health that a route points to select the same queues.
    #[test]
    fn a_route_chooses_as_names_do(
        updates in proptest::collection::vec((0_usize..4, 0_u64..20_000, any::<bool>(), any::<bool>(), 0_i64..20_000), 0..12),
        choices in proptest::collection::vec((proptest::option::of(0_usize..4), 0_i64..60_000), 1..40),
    ) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let queues = ["a", "a", "b", "b", "c", "d", "d", "d"];
        let faults = LatencyFaultTolerance::default();
        let healths = faults.healths(&queues);
        let (by_name, by_health) = (QueueSelector::new(3), QueueSelector::new(3));
        let place = |queue: &&str| (std::ptr::from_ref(queue).addr() - queues.as_ptr().addr()) / size_of::<&str>();
        for (broker, latency, isolate, reachable, now) in updates {
            faults.update(NAMES[broker], latency, isolate, reachable, now);
            for (last, now) in &choices {
                let last = last.map(|at| NAMES[at]);
                let named = by_name.select_available(&queues, last, &faults, *now).map(place);
                let healthy = by_health.select_healthy(&queues, &healths, last, *now).map(place);
                prop_assert_eq!(named, healthy);
            }
        }
    }

    /// A model of availability: after any updates, it begins at the latest end of any of them.
    #[test]
    fn availability_is_the_latest_end(updates in proptest::collection::vec((0_u64..20_000, any::<bool>(), 0_i64..50_000), 0..30)) {
        let faults = LatencyFaultTolerance::default();
        let schedule = Schedule::default();
        let mut until = i64::MIN;
        for (latency, isolate, now) in updates {
            faults.update("a", latency, isolate, true, now);
            let out = schedule.not_available_ms(if isolate { 10_000 } else { latency });
            if out > 0 {
                until = until.max(now + i64::try_from(out).unwrap());
            }
        }
        prop_assert!(faults.is_available("a", until.max(0)));
        prop_assert_eq!(faults.is_available("a", 0), until <= 0);
    }
}

#[test]
fn threads_that_choose_at_once_leave_no_queue_behind() {
    const CHOICES: usize = 20_000;
    let (selector, queues) = (QueueSelector::new(0), ["a", "b", "c", "d", "e"]);
    let mut chosen = [0; 5];
    std::thread::scope(|scope| {
        let choose = || {
            let mut mine = [0; 5];
            for _ in 0..CHOICES {
                let queue = selector.select(&queues, None).unwrap();
                mine[queues.iter().position(|name| name == queue).unwrap()] += 1;
            }
            mine
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(choose)).collect();
        for thread in threads {
            for (sum, mine) in chosen.iter_mut().zip(thread.join().unwrap()) {
                *sum += mine;
            }
        }
    });
    let share = 4 * CHOICES / queues.len();
    assert!(
        chosen.iter().all(|count| (share / 2..share * 2).contains(count)),
        "{chosen:?}"
    );
}
