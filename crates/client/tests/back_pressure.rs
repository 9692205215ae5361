//! Back pressure with several senders: waiting senders get capacity, and all of it is released.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use pyrmq_client::producer::back_pressure::{BackPressure, BorrowedPermit, Candidates, Condition, Permit};
use pyrmq_remoting::sync::wakeup::Wakeup;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

fn notifying(wakeup: &Arc<Wakeup>) -> Box<dyn FnOnce() + Send> {
    let wakeup = wakeup.clone();
    Box::new(move || wakeup.notify())
}

#[test]
fn every_thread_gets_through_a_window_of_two() {
    let back_pressure = BackPressure::new(2, 1000);
    let most = AtomicUsize::new(0);
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let wakeup: Arc<Wakeup> = Arc::default();
                    let mut place =
                        back_pressure.enqueue_acquire(1, 1, Candidates::default(), notifying(&wakeup));
                    let permit = loop {
                        if let Some(permit) = place.try_acquire() {
                            break permit;
                        }
                        assert!(wakeup.notified_within(LONG), "a wake-up is lost");
                    };
                    drop(place);
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!(
        (
            back_pressure.in_flight(),
            back_pressure.bytes(),
            back_pressure.waiter_count()
        ),
        (0, 0, 0)
    );
    assert!(most.load(Ordering::SeqCst) <= 2);
}

#[test]
fn a_sender_gets_its_capacity_before_it_wakes_and_nobody_takes_it() {
    let back_pressure = BackPressure::new(1, 100);
    let before = back_pressure.try_acquire(1, 10).unwrap();
    let wakeup: Arc<Wakeup> = Arc::default();
    let mut place = back_pressure.enqueue_acquire(1, 20, Candidates::default(), notifying(&wakeup));
    assert!(place.try_acquire().is_none());
    drop(before);
    assert!(
        back_pressure.try_acquire(1, 1).is_none(),
        "the room is taken already"
    );
    assert!(wakeup.notified_within(Duration::ZERO));
    let permit = place.try_acquire();
    assert!(permit.is_some());
    drop(place);
    assert_eq!((back_pressure.in_flight(), back_pressure.bytes()), (1, 20));
}

#[test]
fn a_sender_that_gets_capacity_and_leaves_passes_it_on() {
    let back_pressure = BackPressure::new(1, 100);
    let before = back_pressure.try_acquire(1, 10).unwrap();
    let (first, second): (Arc<Wakeup>, Arc<Wakeup>) = Default::default();
    let gone = back_pressure.enqueue_acquire(1, 20, Candidates::default(), notifying(&first));
    let mut next = back_pressure.enqueue_acquire(1, 30, Candidates::default(), notifying(&second));
    drop(before);
    assert!(first.notified_within(Duration::ZERO));
    assert!(!second.notified_within(Duration::ZERO));
    drop(gone);
    assert!(second.notified_within(Duration::ZERO));
    let permit = next.try_acquire();
    assert!(permit.is_some());
    assert_eq!(
        (
            back_pressure.in_flight(),
            back_pressure.bytes(),
            back_pressure.waiter_count()
        ),
        (1, 30, 0)
    );
}

#[test]
fn a_large_entry_that_does_not_fit_holds_up_no_small_one() {
    let back_pressure = BackPressure::new(8, 1000);
    let mut before = back_pressure.try_acquire(7, 70).unwrap();
    let (large, small): (Arc<Wakeup>, Arc<Wakeup>) = Default::default();
    let mut all = back_pressure.enqueue_acquire(8, 80, Candidates::default(), notifying(&large));
    let mut one = back_pressure.enqueue_acquire(1, 10, Candidates::default(), notifying(&small));
    drop(before.split(2, 20));
    let permit = one.try_acquire();
    assert!(permit.is_some());
    assert!(all.try_acquire().is_none());
    drop((before, permit));
    assert!(all.try_acquire().is_some());
}

#[test]
fn watches_that_were_dropped_are_not_kept() {
    let back_pressure = BackPressure::new(4, 100);
    let sent = back_pressure.try_acquire(1, 1).unwrap();
    let wakeup: Arc<Wakeup> = Arc::default();
    for _ in 0..100 {
        let watch = back_pressure.watch(Condition::Empty, notifying(&wakeup));
        assert!(!watch.is_satisfied());
        assert!(!back_pressure.empty(Duration::ZERO));
        assert!(back_pressure.acquire(4, 1, Duration::ZERO).is_none());
    }
    assert_eq!(back_pressure.waiter_count(), 0);
    assert_eq!(Arc::strong_count(&wakeup), 1);
    let watch = back_pressure.watch(Condition::Empty, notifying(&wakeup));
    drop(sent);
    assert!(watch.is_satisfied());
    assert!(wakeup.notified_within(Duration::ZERO));
}

#[test]
fn every_thread_gets_through_the_windows_of_two_brokers() {
    let back_pressure = BackPressure::new(8, 1000);
    back_pressure.share_among_brokers();
    let brokers: Arc<[Arc<str>]> = ["b0", "b1"].map(Arc::from).into();
    thread::scope(|scope| {
        for number in 0..16_usize {
            let (back_pressure, brokers) = (&back_pressure, &brokers);
            scope.spawn(move || {
                let name = &brokers[number % 2];
                let candidates = match number % 3 {
                    0 => Candidates::default(),
                    1 => Candidates::only(brokers, name),
                    _ => Candidates::all(brokers.clone()),
                };
                for _ in 0..500 {
                    let wakeup: Arc<Wakeup> = Arc::default();
                    let mut place = back_pressure.enqueue_acquire(
                        1 + number % 5,
                        1,
                        candidates.clone(),
                        notifying(&wakeup),
                    );
                    let mut permit = loop {
                        if let Some(permit) = place.try_acquire() {
                            break permit;
                        }
                        assert!(wakeup.notified_within(LONG), "a wake-up is lost");
                    };
                    drop(place);
                    permit.dispatch(name);
                    back_pressure.confirm(name, permit.messages());
                }
            });
        }
    });
    assert_eq!((back_pressure.in_flight(), back_pressure.waiter_count()), (0, 0));
    assert_eq!(back_pressure.in_flight_of_brokers(), (0, 0));
    assert!(!back_pressure.is_guarded());
}

fn two_brokers() -> (Arc<BackPressure>, Arc<[Arc<str>]>, [Candidates; 2]) {
    let back_pressure = BackPressure::new(64, 64_000);
    back_pressure.share_among_brokers();
    let brokers: Arc<[Arc<str>]> = ["b0", "b1"].map(Arc::from).into();
    let only = ["b0", "b1"].map(|name| Candidates::only(&brokers, name));
    (back_pressure, brokers, only)
}

/// Acquires one message at a time for as long as there is capacity.
fn fill<'a>(
    back_pressure: &'a Arc<BackPressure>,
    brokers: &Candidates,
    size: usize,
) -> Vec<BorrowedPermit<'a>> {
    std::iter::from_fn(|| back_pressure.try_acquire_at(1, size, brokers)).collect()
}

#[test]
fn the_only_broker_in_use_earns_the_share_of_the_other() {
    let (back_pressure, _, [b0, b1]) = two_brokers();
    let mut permits = fill(&back_pressure, &b0, 1);
    assert_eq!(permits.len(), 32);
    back_pressure.confirm("b0", 16);
    permits.extend(fill(&back_pressure, &b0, 1));
    assert_eq!(
        permits.len(),
        48,
        "half of a share of answers earns half of the rest"
    );
    back_pressure.confirm("b0", 48);
    permits.extend(fill(&back_pressure, &b0, 1));
    assert_eq!(permits.len(), 64);
    drop(permits);
    // After a pause it need not be earned again.
    let permits = fill(&back_pressure, &b0, 1);
    assert_eq!(permits.len(), 64);
    drop(permits);
    assert_eq!(
        fill(&back_pressure, &b1, 1).len(),
        32,
        "the other has earned nothing"
    );
}

#[test]
fn bytes_beyond_the_share_are_earned_like_messages() {
    let (back_pressure, _, [b0, _]) = two_brokers();
    let mut permits = fill(&back_pressure, &b0, 8_000);
    assert_eq!(permits.len(), 4);
    back_pressure.confirm("b0", 4);
    permits.extend(fill(&back_pressure, &b0, 8_000));
    assert_eq!(permits.len(), 8);
}

#[test]
fn a_silent_broker_gets_its_share_and_no_more() {
    let (back_pressure, _, [b0, b1]) = two_brokers();
    // An answer that finds the share not used up earns nothing.
    let permit = back_pressure.try_acquire_at(1, 1, &b0).unwrap();
    back_pressure.confirm("b0", 1);
    drop(permit);
    let silent = fill(&back_pressure, &b0, 1);
    assert_eq!(silent.len(), 32);
    assert_eq!(fill(&back_pressure, &b1, 1).len(), 32);
    // One that stops to answer has what it had earned until an attempt fails.
    back_pressure.confirm("b0", 32);
    drop(silent);
    let silent = fill(&back_pressure, &b0, 1);
    assert_eq!(silent.len(), 64);
    back_pressure.reset_allowance("b0");
    drop(silent);
    assert_eq!(fill(&back_pressure, &b0, 1).len(), 32);
}

#[test]
fn a_broker_that_others_wait_beside_goes_back_to_its_share() {
    let (back_pressure, _, [b0, b1]) = two_brokers();
    let earning = fill(&back_pressure, &b0, 1);
    back_pressure.confirm("b0", 32);
    drop(earning);
    let mut busy = fill(&back_pressure, &b0, 1);
    assert_eq!(busy.len(), 64);
    let wakeup: Arc<Wakeup> = Arc::default();
    let mut other = back_pressure.enqueue_acquire(1, 1, b1.clone(), notifying(&wakeup));
    for _ in 0..16 {
        busy.pop();
        assert!(
            back_pressure.try_acquire_at(1, 1, &b0).is_none(),
            "the other waits"
        );
    }
    assert!(
        wakeup.notified_within(Duration::ZERO),
        "a quarter of the capacity is free"
    );
    let permit = other.try_acquire().unwrap();
    drop(other);
    assert!(
        back_pressure.try_acquire_at(1, 1, &b0).is_none(),
        "the other is in use"
    );
    drop(permit);
    assert_eq!(fill(&back_pressure, &b0, 1).len(), 16);
}

/// What is done to the permits of one back pressure; the numbers say which permit, and how much of it.
#[derive(Debug, Clone)]
enum Step {
    Acquire(usize, usize),
    Split(usize, usize, usize),
    Merge(usize, usize),
    Dispatch(usize, usize),
    Response(usize),
    Shrink(usize, usize),
    Drop(usize),
    Panic(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = 0..64_usize;
    let count = 0..20_usize;
    prop::collection::vec(
        prop_oneof![
            4 => (1..20_usize, 0..500_usize).prop_map(|(messages, bytes)| Step::Acquire(messages, bytes)),
            3 => (index.clone(), count.clone(), 0..500_usize).prop_map(|(at, messages, bytes)| Step::Split(at, messages, bytes)),
            2 => (index.clone(), index.clone()).prop_map(|(into, from)| Step::Merge(into, from)),
            3 => (index.clone(), 0..80_usize).prop_map(|(at, broker)| Step::Dispatch(at, broker)),
            1 => index.clone().prop_map(Step::Response),
            2 => (index.clone(), count).prop_map(|(at, messages)| Step::Shrink(at, messages)),
            2 => index.clone().prop_map(Step::Drop),
            1 => index.prop_map(Step::Panic),
        ],
        0..200,
    )
}

proptest! {
    /// What the permits hold is what is on its way, whatever becomes of them, and in the end nothing is.
    #[test]
    fn permits_hold_what_is_on_its_way(steps in steps()) {
        let back_pressure = BackPressure::new(100, 5000);
        let mut permits: Vec<Permit> = Vec::new();
        for step in steps {
            let place = |at: usize| (!permits.is_empty()).then(|| at % permits.len());
            match step {
                Step::Acquire(messages, bytes) => {
                    permits.extend(back_pressure.try_acquire(messages, bytes).map(BorrowedPermit::into_owned));
                }
                Step::Split(at, messages, bytes) => {
                    if let Some(at) = place(at) {
                        let part = permits[at].split(messages, bytes);
                        permits.push(part);
                    }
                }
                Step::Merge(into, from) => {
                    if let Some(from) = place(from) {
                        let other = permits.swap_remove(from);
                        if permits.is_empty() {
                            permits.push(other);
                        } else {
                            let into = into % permits.len();
                            permits[into].merge(other);
                        }
                    }
                }
                Step::Dispatch(at, broker) => {
                    if let Some(at) = place(at) {
                        permits[at].dispatch(&format!("b{broker}").into());
                    }
                }
                Step::Response(at) => {
                    if let Some(at) = place(at) {
                        permits[at].on_response();
                    }
                }
                Step::Shrink(at, messages) => {
                    if let Some(at) = place(at) {
                        let before = permits[at].messages();
                        permits[at].keep_for(&vec![(); messages]);
                        prop_assert_eq!((permits[at].messages(), permits[at].bytes()), (before.min(messages), 0));
                    }
                }
                Step::Drop(at) => {
                    if let Some(at) = place(at) {
                        drop(permits.swap_remove(at));
                    }
                }
                Step::Panic(at) => {
                    if let Some(at) = place(at) {
                        let permit = permits.swap_remove(at);
                        let unwound = thread::spawn(move || {
                            let _held = permit;
                            std::panic::resume_unwind(Box::new(()));
                        });
                        prop_assert!(unwound.join().is_err());
                    }
                }
            }
            let held = permits.iter().fold((0, 0), |(messages, bytes), permit| {
                (messages + permit.messages(), bytes + permit.bytes())
            });
            prop_assert_eq!(held, (back_pressure.in_flight(), back_pressure.bytes()));
            prop_assert!(back_pressure.in_flight_of_brokers() <= held);
        }
        drop(permits);
        prop_assert_eq!((back_pressure.in_flight(), back_pressure.bytes()), (0, 0));
        prop_assert_eq!(back_pressure.in_flight_of_brokers(), (0, 0));
    }
}

#[test]
fn brokers_that_come_and_go_do_not_add_up() {
    let back_pressure = BackPressure::new(1000, 1 << 20);
    let mut stays = back_pressure.try_acquire(7, 70).unwrap();
    stays.dispatch(&"stays".into());
    for number in 0..10_000 {
        let mut permit = back_pressure.try_acquire(1, 1).unwrap();
        permit.dispatch(&format!("b{number}").into());
    }
    assert!(
        back_pressure.broker_count() <= 64,
        "{}",
        back_pressure.broker_count()
    );
    assert_eq!(back_pressure.in_flight_of_brokers(), (7, 70));
}
