//! Threads that wait for outcomes that arrive together.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_client::producer::send_waiter::SendWaiter;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Longer than the test may take: no thread may get its outcome from a timeout.
const LONG: Duration = Duration::from_mins(10);
const WAIT: Duration = Duration::from_mins(1);

#[test]
fn each_gets_its_own_outcome_although_some_stopped_waiting() {
    for round in 0..200 {
        let waiters: Vec<Arc<SendWaiter<usize>>> = (0..32).map(|_| Arc::default()).collect();
        let (sender, receiver) = channel();
        let mut threads = Vec::new();
        let mut waiting = Vec::new();
        for (number, waiter) in waiters.into_iter().enumerate() {
            waiting.push((waiter.clone(), number));
            // Some stop waiting before their outcome arrives, among them the first and neighbours.
            if number % 5 == round % 5 || number % 7 == 0 {
                continue;
            }
            let sender = sender.clone();
            threads.push(thread::spawn(move || {
                sender.send((number, waiter.wait(LONG))).unwrap();
            }));
        }
        SendWaiter::set_all(waiting);
        for _ in &threads {
            let (number, outcome) = receiver.recv_timeout(WAIT).unwrap();
            assert_eq!(outcome, Some(number));
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn many_departed_waiters_end_without_recursion() {
    let waiting = (0..1_000_000).map(|number| (Arc::default(), number)).collect();
    SendWaiter::set_all(waiting);
}

#[test]
fn without_an_outcome_the_slice_ends_and_the_next_call_goes_on_waiting() {
    let waiter = Arc::new(SendWaiter::default());
    assert_eq!(waiter.wait(Duration::from_millis(1)), None);
    let other = waiter.clone();
    let thread = thread::spawn(move || other.wait(LONG));
    waiter.set(5);
    assert_eq!(thread.join().unwrap(), Some(5));
    assert_eq!(waiter.wait(Duration::ZERO), None, "it is given once");
}
