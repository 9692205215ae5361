//! Stopping: the token, the tracker, and options that are refused.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use pyrmq_remoting::net::{
    Client, ClientOptions, ConnectionOptions, NetError, ProcessorTable, ServerOptions, Shutdown, Tracker,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

struct Dropped(Arc<AtomicUsize>);
impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(10, Ordering::SeqCst);
    }
}

const LONG: Duration = Duration::from_mins(10);

#[tokio::test]
async fn a_stop_is_seen_by_clones_before_and_after_it_was_asked_for() {
    let shutdown = Shutdown::new();
    let waiting = shutdown.clone();
    let (stopped, ()) = tokio::join!(waiting.sleep_or_stop(LONG), async { shutdown.stop() });
    assert!(stopped && waiting.is_stopped());
    shutdown.stop();
    assert!(shutdown.sleep_or_stop(LONG).await);
    assert!(!Shutdown::new().sleep_or_stop(Duration::from_millis(1)).await);
}

#[tokio::test]
async fn stopping_now_is_more_than_stopping_and_cannot_be_taken_back() {
    let shutdown = Shutdown::new();
    shutdown.stop_now();
    shutdown.stop();
    shutdown.stopped_now().await;
    shutdown.stopped().await;
}

#[tokio::test]
async fn a_tracker_waits_for_its_tasks_and_drops_those_that_do_not_end() {
    let tracker = Tracker::current();
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    tracker.spawn(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        count.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(tracker.wait(LONG).await, 0);
    assert_eq!(ended.load(Ordering::SeqCst), 1);

    let guard = Dropped(ended.clone());
    tracker.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    let start = Instant::now();
    assert_eq!(tracker.wait(Duration::from_millis(20)).await, 1);
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!((ended.load(Ordering::SeqCst), tracker.running()), (11, 0));
}

#[tokio::test]
async fn a_task_that_panics_is_counted_out() {
    let tracker = Tracker::current();
    tracker.spawn(async { panic!("on purpose") });
    tracker.idle().await;
    assert_eq!(tracker.wait(LONG).await, 0);
}

#[tokio::test]
async fn connection_options_are_refused_by_name() {
    type Break = fn(&mut ConnectionOptions);
    let cases: [(&str, Break); 8] = [
        ("idle", |options| options.idle = Duration::ZERO),
        ("write_timeout", |options| options.write_timeout = Duration::ZERO),
        ("outgoing_bytes", |options| options.outgoing_bytes = 0),
        ("in_flight", |options| options.in_flight = 0),
        ("pending", |options| options.pending = 0),
        ("limits.frame_bytes", |options| {
            options.limits.frame_bytes = usize::MAX;
        }),
        ("limits.header_bytes", |options| {
            options.limits.header_bytes = 1 << 24;
        }),
        ("limits.fields", |options| options.limits.fields = 0),
    ];
    for (name, set) in cases {
        let mut options = ClientOptions::default();
        set(&mut options.connection);
        let error = Client::new(
            &tokio::runtime::Handle::current(),
            options,
            Arc::new(ProcessorTable::new()),
        )
        .unwrap_err();
        assert!(
            matches!(error, NetError::Option { option, .. } if option == name),
            "{error}"
        );
    }
    ClientOptions::default().validate().unwrap();
    ServerOptions::default().validate().unwrap();
    let none = ServerOptions {
        backlog: 0,
        ..ServerOptions::default()
    };
    assert!(
        none.validate()
            .unwrap_err()
            .to_string()
            .contains("`backlog` is 0")
    );
}

#[test]
fn spawning_on_a_runtime_that_has_ended_drops_the_task_at_once() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tracker = Tracker::new(runtime.handle().clone());
    drop(runtime);
    let ended = Arc::new(AtomicUsize::new(0));
    let guard = Dropped(ended.clone());
    tracker.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    assert_eq!((ended.load(Ordering::SeqCst), tracker.running()), (10, 0));
}
