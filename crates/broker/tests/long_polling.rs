//! Waiting pulls, without a broker.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_broker::long_polling::{Held, LongPolling};
use pyrmq_broker::tables::subscription::MessageFilter;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Outbox, Peer, Reply};
use pyrmq_store::Arrival;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::UnboundedReceiver;

#[derive(Default)]
struct Line {
    closed: AtomicBool,
}

impl Outbox for Line {
    fn push(&self, _command: Command) {}
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

fn held(line: &Arc<Line>, opaque: i32, from_offset: i64, filter: MessageFilter, deadline_ms: i64) -> Held {
    let address = ([127, 0, 0, 1], 1).into();
    let request = Command {
        opaque,
        ..Command::request(11)
    };
    Held {
        reply: Reply::new(Peer::new(1, address, address, line.clone()), &request),
        request,
        from_offset,
        filter,
        deadline_ms,
    }
}

fn arrival(queue_id: i32, next_offset: i64, tags_code: Option<i64>) -> Arrival<'static> {
    Arrival {
        topic: "T",
        queue_id,
        next_offset,
        count: 1,
        tags_code,
        store_timestamp_ms: 0,
    }
}

fn woken(ready: &mut UnboundedReceiver<Held>) -> Vec<i32> {
    std::iter::from_fn(|| ready.try_recv().ok())
        .map(|held| held.request.opaque)
        .collect()
}

#[test]
fn an_arrival_wakes_those_that_want_it_and_no_others() {
    let (long_polling, mut ready) = LongPolling::new(10);
    let line = Arc::new(Line::default());
    let codes = |codes: &[i32]| MessageFilter::Codes(codes.into());
    long_polling
        .insert("T", 0, held(&line, 1, 5, MessageFilter::All, 100))
        .unwrap();
    long_polling
        .insert("T", 0, held(&line, 2, 5, codes(&[7]), 100))
        .unwrap();
    long_polling
        .insert("T", 0, held(&line, 3, 5, codes(&[8]), 100))
        .unwrap();
    long_polling
        .insert("T", 0, held(&line, 4, 9, MessageFilter::All, 100))
        .unwrap();
    long_polling
        .insert("T", 1, held(&line, 5, 5, MessageFilter::All, 100))
        .unwrap();
    long_polling.arrived(&arrival(0, 6, Some(7)));
    assert_eq!(woken(&mut ready), [1, 2]);
    assert_eq!(long_polling.len(), 3);
    long_polling.arrived(&arrival(0, 10, None));
    assert_eq!(woken(&mut ready), [3, 4]);
}

#[test]
fn ended_time_wakes_and_a_lost_connection_is_dropped() {
    let (long_polling, mut ready) = LongPolling::new(10);
    let (line, lost) = (Arc::new(Line::default()), Arc::new(Line::default()));
    long_polling
        .insert("T", 0, held(&line, 1, 0, MessageFilter::All, 100))
        .unwrap();
    long_polling
        .insert("T", 0, held(&line, 2, 0, MessageFilter::All, 200))
        .unwrap();
    long_polling
        .insert("T", 0, held(&lost, 3, 0, MessageFilter::All, 200))
        .unwrap();
    lost.close();
    long_polling.sweep(99, None);
    assert_eq!((woken(&mut ready), long_polling.len()), (vec![], 2));
    long_polling.sweep(100, None);
    assert_eq!((woken(&mut ready), long_polling.len()), (vec![1], 1));
}

#[test]
fn a_check_finds_messages_without_a_notice() {
    let (long_polling, mut ready) = LongPolling::new(10);
    let line = Arc::new(Line::default());
    long_polling
        .insert("T", 0, held(&line, 1, 3, MessageFilter::Codes([1].into()), 100))
        .unwrap();
    long_polling.sweep(0, Some(&|_, _| 3));
    assert_eq!(long_polling.len(), 1);
    long_polling.sweep(0, Some(&|_, _| 4));
    assert_eq!(woken(&mut ready), [1]);
}

#[test]
fn more_than_the_limit_are_given_back() {
    let (long_polling, mut ready) = LongPolling::new(1);
    let line = Arc::new(Line::default());
    long_polling
        .insert("T", 0, held(&line, 1, 0, MessageFilter::All, 100))
        .unwrap();
    assert_eq!(
        long_polling
            .insert("U", 0, held(&line, 2, 0, MessageFilter::All, 100))
            .unwrap_err()
            .request
            .opaque,
        2
    );
    long_polling.close();
    assert_eq!(woken(&mut ready), [1]);
    assert!(
        long_polling
            .insert("T", 0, held(&line, 3, 0, MessageFilter::All, 100))
            .is_err()
    );
}
