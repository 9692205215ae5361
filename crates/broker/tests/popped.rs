//! Checkpoints of popped messages that wait in the timer: the broker does not start, because it would not redeliver
//! them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Site, TempDir, options, properties, send};
use pyrmq_broker::{Broker, BrokerError, Options};
use pyrmq_remoting::clock;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::fs::RealFs;
use pyrmq_store::{Fs, Get, Message, Store, StoreError, TIMER_QUEUE, TagFilter, TimerStore, TimerUnit};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Handle;

const CHECK_POINTS: &str = "rmq_sys_REVIVE_LOG_DefaultCluster";

fn store_of(options: &Options) -> (Arc<Store>, Arc<dyn Fs>) {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    (Store::open(options.store.clone(), fs.clone()).unwrap(), fs)
}

fn get_first() -> Get<'static> {
    Get {
        topic: TIMER_TOPIC,
        queue_id: TIMER_QUEUE,
        offset: 0,
        max_count: 1,
        max_bytes: 1 << 20,
        tags: TagFilter::All,
    }
}

fn assert_refused(options: Options) {
    let error = Broker::start(options, &Handle::current(), None, &[]).unwrap_err();
    assert!(
        matches!(error, BrokerError::Store(StoreError::Foreign { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("POP messages in flight"), "{error}");
}

fn put_check_point(store: &Store) {
    let host = SocketAddr::from(([127, 0, 0, 1], 10911));
    let properties = properties(&[
        ("REAL_TOPIC", CHECK_POINTS),
        ("REAL_QID", "0"),
        ("TIMER_OUT_MS", &(clock::now_ms() + 3_600_000).to_string()),
    ]);
    store
        .put(&Message {
            topic: TIMER_TOPIC,
            queue_id: TIMER_QUEUE,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: clock::now_ms(),
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"{}",
            properties: &properties,
            tags_code: 0,
            unique_key: None,
            keys: None,
            tag: None,
        })
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn check_points_in_the_wheel_are_refused_by_name() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    put_check_point(&site.broker.state().store);
    site.stop().await;
    // Whether the broker accepted it before its stop: here the timer's files show it.
    let (store, fs) = store_of(&options(&dir));
    let mut timers = TimerStore::open(&store, &fs).unwrap();
    if timers.queue_offset() == 0 {
        let got = store.get(&get_first()).unwrap();
        let record = Record::decode(&got.body).unwrap();
        let now_ms = clock::now_ms();
        let unit = TimerUnit {
            previous: -1,
            magic: TimerUnit::DEFAULT,
            written_ms: now_ms,
            delay_ms: 3_600_000,
            position: record.physical_offset,
            size: i32::try_from(got.body.len()).unwrap(),
            topic_hash: java_hash::hash(CHECK_POINTS),
        };
        timers.add(&unit).unwrap();
        timers.set_queue_offset(1);
        timers.write_out().unwrap();
        timers.save(&timers.progress()).unwrap();
    }
    let hash = java_hash::hash(CHECK_POINTS);
    assert!(timers.has_waiting(|unit| unit.topic_hash == hash).unwrap());
    store.close().unwrap();
    assert_refused(options(&dir));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_points_on_their_way_into_the_wheel_are_refused_by_name() {
    let dir = TempDir::new();
    Site::start(options(&dir)).stop().await;
    let (store, _) = store_of(&options(&dir));
    put_check_point(&store);
    store.close().unwrap();
    assert_refused(options(&dir));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sends_to_the_topic_of_check_points() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    for topic in [CHECK_POINTS, "rmq_sys_REVIVE_LOG_elsewhere"] {
        let answer = site.ask(send(topic, 0, b"x", "")).await;
        assert_ne!(answer.code, response::SUCCESS, "{topic}");
    }
    site.stop().await;
    Site::start(options(&dir)).stop().await;
}
