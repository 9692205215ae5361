//! Back pressure with several senders: who waits is let in, and leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_client::producer::back_pressure::{BackPressure, Condition};
use pyrmq_client::session::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

fn setting(signal: &Arc<Signal>) -> Box<dyn FnOnce() + Send> {
    let signal = signal.clone();
    Box::new(move || signal.set())
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
                    let signal: Arc<Signal> = Arc::default();
                    let mut place = back_pressure.enqueue_acquire(1, 1, setting(&signal));
                    while !place.try_acquire() {
                        assert!(signal.wait(LONG), "a wake-up is lost");
                    }
                    drop(place);
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    back_pressure.release(1, 1);
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
fn a_sender_is_let_in_before_it_wakes_and_nobody_takes_its_room() {
    let back_pressure = BackPressure::new(1, 100);
    assert!(back_pressure.try_acquire(1, 10));
    let signal: Arc<Signal> = Arc::default();
    let mut place = back_pressure.enqueue_acquire(1, 20, setting(&signal));
    assert!(!place.try_acquire());
    back_pressure.release(1, 10);
    assert!(!back_pressure.try_acquire(1, 1), "the room is taken already");
    assert!(signal.wait(Duration::ZERO));
    assert!(place.try_acquire());
    drop(place);
    assert_eq!((back_pressure.in_flight(), back_pressure.bytes()), (1, 20));
}

#[test]
fn whoever_is_let_in_and_goes_makes_way_for_the_next() {
    let back_pressure = BackPressure::new(1, 100);
    assert!(back_pressure.try_acquire(1, 10));
    let (first, second): (Arc<Signal>, Arc<Signal>) = Default::default();
    let gone = back_pressure.enqueue_acquire(1, 20, setting(&first));
    let mut next = back_pressure.enqueue_acquire(1, 30, setting(&second));
    back_pressure.release(1, 10);
    assert!(first.wait(Duration::ZERO));
    assert!(!second.wait(Duration::ZERO));
    drop(gone);
    assert!(second.wait(Duration::ZERO));
    assert!(next.try_acquire());
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
    assert!(back_pressure.try_acquire(7, 70));
    let (large, small): (Arc<Signal>, Arc<Signal>) = Default::default();
    let mut all = back_pressure.enqueue_acquire(8, 80, setting(&large));
    let mut one = back_pressure.enqueue_acquire(1, 10, setting(&small));
    back_pressure.release(2, 20);
    assert!(one.try_acquire());
    assert!(!all.try_acquire());
    back_pressure.release(6, 60);
    assert!(all.try_acquire());
}

#[test]
fn watches_that_were_dropped_are_not_kept() {
    let back_pressure = BackPressure::new(4, 100);
    assert!(back_pressure.try_acquire(1, 1));
    let signal: Arc<Signal> = Arc::default();
    for _ in 0..100 {
        let watch = back_pressure.watch(Condition::Empty, setting(&signal));
        assert!(!watch.is_satisfied());
        assert!(!back_pressure.empty(Duration::ZERO));
        assert!(!back_pressure.acquire(4, 1, Duration::ZERO));
    }
    assert_eq!(back_pressure.waiter_count(), 0);
    assert_eq!(Arc::strong_count(&signal), 1);
    let watch = back_pressure.watch(Condition::Empty, setting(&signal));
    back_pressure.release(1, 1);
    assert!(watch.is_satisfied());
    assert!(signal.wait(Duration::ZERO));
}
