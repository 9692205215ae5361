//! Sends to scripted brokers: which failures are retried, where, and for how long.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use bytes::Bytes;
use common::{Act, WAIT, World};
use pyrmq_client::producer::back_pressure::BackPressure;
use pyrmq_client::producer::outgoing::{Properties, Target};
use pyrmq_client::producer::{Producer, SendOutcome, SendResult, SendStatus};
use pyrmq_client::{ClientError, ProducerOptions};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::sys_flag;
use pyrmq_routing::fault::Schedule;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

fn send(
    producer: &Producer,
    body: &'static str,
    target: Target,
    timeout: Duration,
) -> Receiver<Result<SendResult, ClientError>> {
    launch(producer, body, target, timeout, false)
}

fn launch(
    producer: &Producer,
    body: &'static str,
    target: Target,
    timeout: Duration,
    half: bool,
) -> Receiver<Result<SendResult, ClientError>> {
    let topic: Arc<str> = "orders".into();
    let properties = Properties::new("orders", producer.ids());
    let id = properties.message_id().to_owned();
    let text = properties.finish().unwrap();
    let mut outgoing = producer
        .prepare(&topic, Bytes::from_static(body.as_bytes()), text, id, 0, target)
        .unwrap();
    if half {
        outgoing.sys_flag |= sys_flag::TRANSACTION_PREPARED;
    }
    let back_pressure = producer.back_pressure();
    let permit = back_pressure.acquire(1, outgoing.body.len(), WAIT).unwrap();
    let (sender, receiver) = channel();
    producer.send(
        outgoing,
        permit,
        timeout,
        Box::new(move |outcome: SendOutcome| sender.send(outcome).unwrap()),
    );
    receiver
}

fn bound() -> Target {
    Target::Queue {
        broker: "b0".into(),
        id: 1,
    }
}

#[test]
fn issue_8990_a_silent_broker_does_not_use_up_the_time_of_all() {
    // The last of three attempts must be answered in a third of it, also on a busy machine.
    let time = Duration::from_millis(2400);
    let world = World::new(2);
    world.script(0, &[Act::Silent]);
    world.script(1, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let begin = Instant::now();
    let result = send(&producer, "x", Target::Any, time).recv_timeout(WAIT);
    let result = result.unwrap().unwrap();
    assert_eq!(result.attempts, 3, "each attempt had its share");
    let failed_attempts: Vec<u32> = result
        .failed_attempts
        .iter()
        .map(|attempt| attempt.number)
        .collect();
    assert_eq!(failed_attempts, [1, 2], "the failed attempts are in the result");
    assert!(result.may_be_duplicate, "two attempts left and were not answered");
    assert!(begin.elapsed() < time);
    assert_eq!(world.stored(), 1);
}

#[test]
fn a_silent_name_server_does_not_use_up_the_time_of_the_send() {
    let world = World::new(1);
    // The system accepts the connection, but nobody reads from it.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let short = Duration::from_millis(300);
    let alone = world.producer(|options| options.client.name_servers = vec![address.clone()]);
    let begin = Instant::now();
    let error = send(&alone, "x", Target::Any, short).recv_timeout(WAIT).unwrap();
    assert!(begin.elapsed() >= short);
    assert!(
        matches!(
            error.as_ref().unwrap_err().cause(),
            ClientError::NameServers { .. }
        ),
        "fails before the name server's own 3 s are over: {error:?}"
    );
    let names = vec![address, world.names.to_string()];
    for _ in 0..4 {
        // Each starts at a random one of the two.
        let both = world.producer(|options| {
            options.client.name_servers.clone_from(&names);
            options.client.request_timeout = Duration::from_millis(600);
        });
        let sent = send(&both, "x", Target::Any, WAIT).recv_timeout(WAIT);
        sent.unwrap().unwrap();
    }
}

#[test]
fn a_busy_broker_is_retried_until_it_accepts_the_message() {
    let world = World::new(1);
    world.script(0, &[Act::Say(response::SYSTEM_BUSY); 6]);
    let producer = world.producer(|_| ());
    for target in [bound(), Target::Any] {
        let result = send(&producer, "x", target, WAIT)
            .recv_timeout(WAIT)
            .unwrap()
            .unwrap();
        assert!(!result.may_be_duplicate);
    }
    assert_eq!(world.stored(), 2);
}

#[test]
fn a_refused_message_is_not_sent_again() {
    let world = World::new(2);
    for broker in [0, 1] {
        world.script(broker, &[Act::Say(response::MESSAGE_ILLEGAL); 2]);
    }
    let producer = world.producer(|_| ());
    let error = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(error.cause(), ClientError::Refused { code: 13, .. }),
        "{error}"
    );
    assert_eq!(world.stored(), 0);
}

#[test]
fn an_answer_with_a_retry_code_is_retried_as_often_as_configured() {
    let world = World::new(2);
    for broker in [0, 1] {
        world.script(broker, &[Act::Say(response::SYSTEM_ERROR); 9]);
    }
    let producer = world.producer(|options| options.retries = 3);
    let error = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    let failure = error.failure().unwrap();
    let summary = (failure.attempts, failure.may_exist, failure.in_time);
    assert_eq!(summary, (4, false, false));
}

#[test]
fn a_send_to_a_queue_that_the_topic_does_not_have_waits_for_the_new_route() {
    // Apache's brokers answer with the first code up to 5.3.0, newer ones and ours with the second.
    for code in [response::SYSTEM_ERROR, response::INVALID_PARAMETER] {
        let world = World::new(1);
        world.script(0, &[Act::MissQueue(code); 5]);
        let producer = world.producer(|_| ());
        let result = send(&producer, "x", Target::Any, WAIT).recv_timeout(WAIT);
        let result = result.unwrap().unwrap();
        assert_eq!((result.attempts, result.may_be_duplicate), (6, false));
        assert!(*world.asked.lock().unwrap() > 1, "the route is asked for again");
        world.script(0, &[Act::MissQueue(code)]);
        let error = send(&producer, "x", bound(), WAIT).recv_timeout(WAIT);
        let error = error.unwrap().unwrap_err();
        assert_eq!(
            error.failure().unwrap().attempts,
            1,
            "the queue was chosen: {error}"
        );
    }
}

#[test]
fn without_retries_there_is_one_attempt() {
    let world = World::new(1);
    world.script(0, &[Act::Say(response::SYSTEM_BUSY)]);
    let producer = world.producer(|options| options.retries = 0);
    let error = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    assert_eq!(error.failure().unwrap().attempts, 1, "{error}");
    assert_eq!(world.stored(), 0);
}

#[test]
fn a_chosen_queue_that_does_not_answer_leaves_the_outcome_unknown() {
    let world = World::new(2);
    world.script(0, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let begin = Instant::now();
    let timeout = Duration::from_millis(300);
    let error = send(&producer, "x", bound(), timeout)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("the outcome is unknown"), "{error}");
    let failure = error.failure().unwrap();
    assert_eq!((failure.attempts, failure.may_exist), (1, true));
    assert!(begin.elapsed() >= timeout);
    assert_eq!(world.stored(), 0, "no other queue was tried");
}

#[test]
fn messages_keep_their_order_from_the_first_on_and_ask_for_the_route_once() {
    let world = World::new(1);
    let producer = world.producer(|_| ());
    let bodies = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let outcomes: Vec<_> = bodies
        .iter()
        .map(|body| send(&producer, body, bound(), WAIT))
        .collect();
    for (offset, outcome) in (0..).zip(outcomes) {
        let result = outcome.recv_timeout(WAIT).unwrap().unwrap();
        assert_eq!((result.queue_id, result.queue_offset), (1, offset));
    }
    assert_eq!(*world.brokers[0].bodies.lock().unwrap(), bodies);
    assert_eq!(*world.asked.lock().unwrap(), 1);
}

#[test]
fn a_closed_producer_refuses_and_frees_its_capacity() {
    let world = World::new(1);
    let producer = world.producer(|_| ());
    producer.close();
    let error = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    assert!(matches!(error.cause(), ClientError::Closed { .. }), "{error}");
    assert_eq!(producer.back_pressure().in_flight(), 0);
}

#[test]
fn shutting_down_fails_requests_in_flight() {
    let world = World::new(1);
    world.script(0, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let outcome = send(&producer, "x", bound(), WAIT);
    let held = || !world.brokers[0].held.lock().unwrap().is_empty();
    let begin = Instant::now();
    while !held() {
        assert!(begin.elapsed() < WAIT);
        std::thread::yield_now();
    }
    world.runtime.block_on(producer.shut());
    let error = outcome.recv_timeout(WAIT).unwrap().unwrap_err();
    assert!(error.to_string().contains("the outcome is unknown"), "{error}");
    assert_eq!(producer.back_pressure().in_flight(), 0);
}

#[test]
fn an_end_that_is_interrupted_goes_on_and_a_second_call_waits_for_it() {
    let world = World::new(1);
    world.script(0, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let outcome = send(&producer, "x", bound(), Duration::from_mins(1));
    let begin = Instant::now();
    while world.brokers[0].held.lock().unwrap().is_empty() {
        assert!(begin.elapsed() < WAIT);
        std::thread::yield_now();
    }
    world.runtime.block_on(async {
        drop(tokio::time::timeout(Duration::ZERO, producer.shut()).await);
        producer.shut().await;
    });
    // Its connection has ended.
    let error = outcome.recv_timeout(WAIT).unwrap().unwrap_err();
    assert!(error.to_string().contains("the outcome is unknown"), "{error}");
}

#[test]
fn back_pressure_counts_messages_and_bytes_and_lets_a_large_one_go_alone() {
    let back_pressure = BackPressure::new(2, 100);
    let large = back_pressure.try_acquire(1, 500).unwrap();
    assert!(back_pressure.try_acquire(1, 1).is_none());
    drop(large);
    let first = back_pressure.try_acquire(1, 60).unwrap();
    assert!(back_pressure.acquire(1, 60, Duration::from_millis(5)).is_none());
    let second = back_pressure.try_acquire(1, 40).unwrap();
    assert!(back_pressure.try_acquire(1, 0).is_none());
    assert!(!back_pressure.empty(Duration::from_millis(5)));
    drop((first, second));
    assert!(back_pressure.empty(Duration::ZERO));
}

#[test]
fn illegal_properties_and_topics_are_named() {
    let ids = pyrmq_client::unique_ids();
    let mut properties = Properties::new("orders", &ids);
    assert_eq!(properties.message_id().len(), 32);
    properties.push_user("table", "7").unwrap();
    for (name, value) in [
        ("", "x"),
        ("a", ""),
        ("KEYS", "x"),
        ("a\u{2}", "x"),
        ("a", "\u{1}"),
    ] {
        let error = properties.push_user(name, value).unwrap_err();
        assert!(matches!(error, ClientError::Property { .. }), "{name}={value}");
    }
    let text = properties.finish().unwrap();
    assert!(text.ends_with("table\u{1}7\u{2}"), "{text}");
    for topic in ["", "two words", &"t".repeat(128), "RMQ_SYS_TRANS_HALF_TOPIC"] {
        assert!(
            pyrmq_client::session::topic_name::check_topic(topic).is_err(),
            "{topic}"
        );
    }
}

#[test]
fn a_broker_that_failed_comes_last_until_it_answers_a_probe() {
    let world = World::new(2);
    world.script(0, &[Act::Say(response::SYSTEM_ERROR)]);
    let producer = world.producer(|options| {
        options.latency_fault = true;
        options.detect = true;
        options.detect_interval = Duration::from_millis(20);
        options.fault_schedule = Schedule::new(&[(5000, 1)]).unwrap();
    });
    let sent = |_| {
        send(&producer, "x", Target::Any, WAIT)
            .recv_timeout(WAIT)
            .unwrap()
            .unwrap()
    };
    let mut results = (0..8).map(sent);
    assert!(results.all(|result| &*result.broker == "b1" || result.attempts == 1));
    let begin = Instant::now();
    while producer.brokers().iter().any(|(_, _, _, reachable)| !reachable) {
        assert!(begin.elapsed() < WAIT, "the probe was answered");
        std::thread::yield_now();
    }
    assert_eq!(producer.brokers()[0].0, "b0");
    assert!(
        (0..8).map(sent).any(|result| &*result.broker == "b0"),
        "it is back"
    );
}

#[test]
fn which_codes_are_tried_again_is_the_callers_choice() {
    let world = World::new(2);
    for broker in [0, 1] {
        world.script(broker, &[Act::Say(response::MESSAGE_ILLEGAL)]);
    }
    let producer = world.producer(|options| options.retry_codes = vec![response::MESSAGE_ILLEGAL]);
    let result = send(&producer, "x", Target::Any, WAIT)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap();
    assert_eq!(result.attempts, 3);
}

#[test]
fn stored_but_not_flushed_is_a_result_and_retried_only_on_request() {
    let late = [
        (response::FLUSH_DISK_TIMEOUT, SendStatus::FlushDiskTimeout),
        (response::FLUSH_SLAVE_TIMEOUT, SendStatus::FlushSlaveTimeout),
        (response::SLAVE_NOT_AVAILABLE, SendStatus::SlaveNotAvailable),
    ];
    for (code, status) in late {
        let world = World::new(1);
        world.script(0, &[Act::StoreSaying(code)]);
        let producer = world.producer(|_| ());
        let outcome = send(&producer, "x", Target::Any, WAIT).recv_timeout(WAIT);
        let result = outcome.unwrap().unwrap();
        assert_eq!((result.status, result.attempts), (status, 1));
        assert!(!result.may_be_duplicate);
        assert_eq!(world.stored(), 1);

        world.script(0, &[Act::StoreSaying(code)]);
        let producer = world.producer(|options| options.retry_not_stored_ok = true);
        let outcome = send(&producer, "y", Target::Any, WAIT).recv_timeout(WAIT);
        let result = outcome.unwrap().unwrap();
        assert_eq!((result.status, result.attempts), (SendStatus::Ok, 2));
        assert!(result.may_be_duplicate, "the first attempt was stored, too");
        assert_eq!(world.stored(), 3);

        world.script(0, &[Act::StoreSaying(code); 3]);
        let outcome = send(&producer, "z", Target::Any, WAIT).recv_timeout(WAIT);
        let result = outcome.unwrap().unwrap();
        assert_eq!(
            (result.status, result.attempts),
            (status, 3),
            "stored all the same"
        );
    }
}

#[test]
fn an_unanswered_attempt_followed_by_a_refusal_leaves_the_outcome_unknown() {
    for code in [
        response::SYSTEM_ERROR,
        response::NO_PERMISSION,
        response::MESSAGE_ILLEGAL,
        response::SYSTEM_BUSY,
    ] {
        let world = World::new(2);
        world.script(0, &[Act::Silent]);
        world.script(1, &[Act::Silent]);
        let producer = world.producer(|options| options.retries = 1);
        let short = Duration::from_millis(400);
        let outcome = send(&producer, "x", Target::Any, short);
        let held = || {
            world
                .brokers
                .iter()
                .any(|one| !one.held.lock().unwrap().is_empty())
        };
        let begin = Instant::now();
        while !held() {
            assert!(begin.elapsed() < WAIT);
            std::thread::yield_now();
        }
        for broker in &world.brokers {
            let mut acts = broker.acts.lock().unwrap();
            acts.clear();
            acts.extend([Act::Say(code); 100]);
        }
        let error = outcome.recv_timeout(WAIT).unwrap().unwrap_err();
        let failure = error.failure().unwrap();
        assert!(failure.may_exist, "{error}");
        assert!(error.to_string().contains("the outcome is unknown"), "{error}");
        let unknown: Vec<bool> = failure
            .failed_attempts
            .iter()
            .map(|attempt| attempt.may_exist)
            .collect();
        assert_eq!(unknown[..2], [true, false], "{error}");
        assert_eq!(failure.message_ids.len(), 32);
    }
}

#[test]
fn an_unanswered_attempt_whose_topic_then_has_no_queue_leaves_the_outcome_unknown() {
    let world = World::new(1);
    world.script(0, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let outcome = send(&producer, "x", Target::Any, WAIT);
    let begin = Instant::now();
    while world.brokers[0].held.lock().unwrap().is_empty() {
        assert!(begin.elapsed() < WAIT);
        std::thread::yield_now();
    }
    // Its broker leaves the route, then the connection is lost.
    world.leave(0);
    let topic: Arc<str> = "orders".into();
    world.runtime.block_on(producer.routes().refresh(&topic)).unwrap();
    world.shutdown.stop_now();
    let error = outcome.recv_timeout(WAIT).unwrap().unwrap_err();
    assert!(matches!(error.cause(), ClientError::NoQueue { .. }), "{error}");
    let failure = error.failure().unwrap();
    assert_eq!((failure.attempts, failure.may_exist), (1, true), "{error}");
    assert_eq!(failure.failed_attempts.len(), 1, "{error}");
}

#[test]
fn a_result_below_the_requested_level_is_kept_if_no_later_attempt_is_better() {
    let late = response::FLUSH_DISK_TIMEOUT;
    let keep = |options: &mut ProducerOptions| options.retry_not_stored_ok = true;
    for then in [
        Act::Silent,
        Act::Say(response::SYSTEM_ERROR),
        Act::Say(response::MESSAGE_ILLEGAL),
    ] {
        let world = World::new(1);
        world.script(0, &[Act::StoreSaying(late), then, then]);
        let producer = world.producer(keep);
        let outcome = send(&producer, "x", Target::Any, Duration::from_millis(300)).recv_timeout(WAIT);
        let result = outcome.unwrap().unwrap();
        assert_eq!(result.status, SendStatus::FlushDiskTimeout);
        assert_eq!(result.may_be_duplicate, matches!(then, Act::Silent));
        assert!(result.attempts > 1);
        assert_eq!(result.failed_attempts.len(), result.attempts as usize);
        assert_eq!(world.stored(), 1);
    }
    // If it must not be stored twice, there is no second attempt.
    let world = World::new(2);
    for target in [bound(), Target::Hash(0)] {
        world.script(0, &[Act::StoreSaying(late)]);
        let producer = world.producer(keep);
        let outcome = send(&producer, "x", target, WAIT).recv_timeout(WAIT);
        let result = outcome.unwrap().unwrap();
        assert_eq!(
            (result.status, result.attempts),
            (SendStatus::FlushDiskTimeout, 1)
        );
    }
    assert_eq!(world.stored(), 2);
}

#[test]
fn a_refusal_that_says_where_the_message_lies_leaves_the_outcome_unknown() {
    let failed = Act::StoreSaying(response::SERVICE_NOT_AVAILABLE);
    let world = World::new(2);
    world.script(0, &[failed]);
    world.script(1, &[failed]);
    let producer = world.producer(|_| ());
    let result = send(&producer, "x", Target::Any, WAIT).recv_timeout(WAIT);
    assert!(result.unwrap().unwrap().may_be_duplicate);
    assert_eq!(world.stored(), 3, "two logs have it, and the third attempt");
    for (target, half) in [(bound(), false), (Target::Hash(0), false), (Target::Any, true)] {
        let world = World::new(2);
        world.script(0, &[failed; 3]);
        world.script(1, &[failed; 3]);
        let producer = world.producer(|_| ());
        let error = launch(&producer, "x", target, WAIT, half)
            .recv_timeout(WAIT)
            .unwrap()
            .unwrap_err();
        let failure = error.failure().unwrap();
        assert_eq!((failure.attempts, failure.may_exist), (1, true), "{error}");
        assert_eq!(world.stored(), 1, "neither an order nor a half is doubled");
    }
}

#[test]
fn a_half_that_went_unanswered_is_not_sent_to_another_broker() {
    let world = World::new(2);
    world.script(0, &[Act::Silent]);
    world.script(1, &[Act::Silent]);
    let producer = world.producer(|_| ());
    let short = Duration::from_millis(300);
    let error = launch(&producer, "x", Target::Any, short, true)
        .recv_timeout(WAIT)
        .unwrap()
        .unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.attempts, failure.may_exist), (1, true), "{error}");
    assert_eq!(world.stored(), 0);
}

#[test]
fn brokers_that_are_away_do_not_make_a_question_to_the_name_server_of_each_send() {
    let world = World::new(1);
    world.script(0, &[Act::Say(response::SERVICE_NOT_AVAILABLE); 500]);
    let producer = world.producer(|options| options.retries = 0);
    let begin = Instant::now();
    for _ in 0..500 {
        let outcome = send(&producer, "x", Target::Any, WAIT).recv_timeout(WAIT);
        assert!(outcome.unwrap().is_err());
    }
    let asked = u128::from(*world.asked.lock().unwrap());
    let most = 3 + begin.elapsed().as_millis() / 100;
    assert!(asked <= most, "{asked} questions, {most} at most");
    let begin = Instant::now();
    while u128::from(*world.asked.lock().unwrap()) == asked {
        assert!(
            begin.elapsed() < WAIT,
            "the last failure is followed by a question, too"
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_namespace_goes_before_topics_and_comes_off_again() {
    let mut options = ProducerOptions::new(vec!["127.0.0.1:1".to_owned()], "group");
    options.client.namespace = "ns".to_owned();
    assert_eq!(options.client.wrap("orders"), "ns%orders");
    assert_eq!(options.client.wrap("ns%orders"), "ns%orders");
    assert_eq!(options.client.wrap("nsorders"), "ns%nsorders");
    assert_eq!(&*options.client.unwrap_name(&"ns%orders".into()), "orders");
    assert_eq!(options.client.wrap("RMQ_SYS_TRACE_TOPIC"), "RMQ_SYS_TRACE_TOPIC");
    assert_eq!(options.client.wrap("%RETRY%group"), "%RETRY%ns%group");
    assert_eq!(options.client.wrap("%RETRY%ns%group"), "%RETRY%ns%group");
    assert_eq!(&*options.client.unwrap_name(&"else%orders".into()), "else%orders");
    options.client.namespace = "a b".to_owned();
    assert!(options.validate().unwrap_err().to_string().contains("namespace"));
}

#[test]
fn a_busy_broker_narrows_the_window_and_confirmations_widen_it_again() {
    let back_pressure = BackPressure::new(1000, 1 << 20);
    let mut sent = back_pressure.try_acquire(800, 800).unwrap().into_owned();
    let broker: Arc<str> = "b0".into();
    sent.dispatch(&broker);
    let now = Instant::now();
    back_pressure.shrink_window(&broker, now);
    back_pressure.shrink_window(&broker, now + Duration::from_millis(199));
    assert_eq!(
        back_pressure.window(),
        200,
        "a quarter of what was on its way, once"
    );
    assert!(back_pressure.try_acquire(1, 1).is_none());
    drop(sent.split(700, 700));
    let next = back_pressure.try_acquire(1, 1);
    assert!(next.is_some());
    for step in 1..30 {
        back_pressure.shrink_window(&broker, now + step * Duration::from_secs(1));
    }
    assert_eq!(back_pressure.window(), 64, "there is always some room");
    let mut confirmed = 0;
    while back_pressure.window() < 1000 {
        back_pressure.confirm(&broker, 16);
        confirmed += 16;
    }
    assert!(confirmed > 1000, "it widens slowly: {confirmed}");
}

#[test]
fn the_window_widens_more_slowly_where_the_broker_had_too_much() {
    let back_pressure = BackPressure::new(16_000, 1 << 20);
    let mut sent = back_pressure.try_acquire(16_000, 16_000).unwrap().into_owned();
    let broker: Arc<str> = "b0".into();
    sent.dispatch(&broker);
    let now = Instant::now();
    back_pressure.shrink_window(&broker, now);
    assert_eq!(back_pressure.window(), 4000);
    drop(sent.split(12_000, 12_000));
    back_pressure.shrink_window(&broker, now + Duration::from_secs(1));
    assert_eq!(back_pressure.window(), 2000, "half after the first time");
    back_pressure.confirm(&broker, 500);
    assert_eq!(back_pressure.window(), 2251, "an eighth for a quarter confirmed");
    while back_pressure.window() < 3000 {
        back_pressure.confirm(&broker, 1000);
    }
    let near = back_pressure.window();
    back_pressure.confirm(&broker, near);
    assert_eq!(
        back_pressure.window(),
        near + near / 64 + 1,
        "near 4000, where it was too wide"
    );
}

#[test]
fn a_busy_broker_narrows_no_other_brokers_window() {
    let back_pressure = BackPressure::new(1000, 1 << 20);
    let (busy, idle): (Arc<str>, Arc<str>) = ("b0".into(), "b1".into());
    let mut sent = Vec::new();
    for (broker, messages) in [(&busy, 300), (&idle, 100)] {
        let mut permit = back_pressure.try_acquire(messages, messages).unwrap();
        permit.dispatch(broker);
        sent.push(permit);
    }
    assert_eq!(back_pressure.instead_of(&busy, [&busy, &idle].into_iter()), None);
    back_pressure.shrink_window(&busy, Instant::now());
    assert_eq!(back_pressure.window(), 1000, "the other takes as much as before");
    let more = back_pressure.try_acquire(500, 500);
    assert!(more.is_some());
    assert_eq!(
        back_pressure.instead_of(&busy, [&busy, &idle].into_iter()),
        Some(&idle)
    );
    assert_eq!(back_pressure.instead_of(&idle, [&busy, &idle].into_iter()), None);
    back_pressure.shrink_window(&idle, Instant::now());
    assert_eq!(back_pressure.window(), 75 + 64, "the sum of both");
}

#[test]
fn a_broker_added_after_a_busy_one_has_its_own_window() {
    let back_pressure = BackPressure::new(1000, 1 << 20);
    let (busy, next): (Arc<str>, Arc<str>) = ("b0".into(), "b1".into());
    let mut permit = back_pressure.try_acquire(1, 1).unwrap();
    permit.dispatch(&busy);
    back_pressure.shrink_window(&busy, Instant::now());
    assert_eq!(back_pressure.window(), 64);
    permit.on_response();
    permit.dispatch(&next);
    assert_eq!(back_pressure.window(), 1000);
}

#[test]
fn a_silent_broker_holds_half_of_the_in_flight_limit() {
    let world = World::new(2);
    world.script(0, &[Act::Silent; 500]);
    let producer = world.producer(|options| {
        options.max_in_flight = 100;
        options.retries = 0;
    });
    // Far longer than the test: a request to the silent broker stays there.
    let sends = || send(&producer, "x", Target::Any, 30 * WAIT);
    let outcomes: Vec<_> = std::iter::repeat_with(sends).take(400).collect();
    let deadline = Instant::now() + WAIT;
    let held = || world.brokers[0].held.lock().unwrap().len();
    while world.stored() + held() < 400 || producer.back_pressure().in_flight() > held() {
        assert!(Instant::now() < deadline, "{} are stored", world.stored());
        std::thread::sleep(Duration::from_millis(5));
    }
    let held = held();
    assert!(held <= 51, "the silent broker holds {held}");
    world.runtime.block_on(producer.shut());
    let failed = outcomes
        .iter()
        .filter(|outcome| outcome.recv_timeout(WAIT).unwrap().is_err());
    assert_eq!(failed.count(), held);
}

/// Sends as a caller does that waits for room up to `timeout`; false when it found none.
fn send_if_room(producer: &Producer, topic: &str, target: Target, timeout: Duration) -> bool {
    let topic: Arc<str> = topic.into();
    let brokers = producer.candidates(&topic, target.to_ref());
    let Some(permit) = producer.back_pressure().acquire_at(1, 1, &brokers, timeout) else {
        return false;
    };
    let properties = Properties::new(&topic, producer.ids());
    let id = properties.message_id().to_owned();
    let text = properties.finish().unwrap();
    let outgoing = producer
        .prepare(&topic, Bytes::from_static(b"x"), text, id, 0, target)
        .unwrap();
    producer.send(outgoing, permit, 30 * WAIT, Box::new(|_: SendOutcome| ()));
    true
}

fn queue_of(broker: &str) -> Target {
    Target::Queue {
        broker: broker.into(),
        id: 1,
    }
}

/// A producer that has sent to both brokers.
fn producer_of_both(world: &World, max_in_flight: usize) -> Producer {
    let producer = world.producer(|options| options.max_in_flight = max_in_flight);
    for broker in ["b0", "b1"] {
        let outcome = send(&producer, "x", queue_of(broker), WAIT).recv_timeout(WAIT);
        outcome.unwrap().unwrap();
    }
    producer
}

#[test]
fn a_busy_broker_slows_the_senders_of_a_topic_that_is_on_no_other() {
    let world = World::new(2);
    world.restrict("lonely", 1);
    let producer = producer_of_both(&world, 1000);
    let brief = Duration::from_millis(20);
    world.script(0, &[Act::Say(response::SYSTEM_BUSY)]);
    world.script(0, &[Act::Silent; 2000]);
    assert!(send_if_room(&producer, "lonely", Target::Any, brief));
    let deadline = Instant::now() + WAIT;
    while !producer.back_pressure().is_guarded() {
        assert!(Instant::now() < deadline, "the broker has said that it is busy");
        std::thread::yield_now();
    }
    for target in [Target::Any, queue_of("b0"), Target::Hash(0)] {
        let sent = (0..1000).take_while(|_| send_if_room(&producer, "lonely", target.clone(), brief));
        let sent = sent.count();
        assert!(sent <= 64, "{sent} more are on their way to a busy broker");
    }
    assert_eq!(producer.back_pressure().in_flight(), 64);
    // The other broker's sends go on, also those that may go to either.
    let before = world.brokers[1].bodies.lock().unwrap().len();
    for target in [Target::Any, queue_of("b1"), Target::Hash(2)] {
        for _ in 0..200 {
            assert!(send_if_room(&producer, "orders", target.clone(), WAIT));
        }
    }
    while world.brokers[1].bodies.lock().unwrap().len() < before + 600 {
        assert!(Instant::now() < deadline + WAIT);
        std::thread::yield_now();
    }
    // What the broker answers makes room again.
    assert!(!send_if_room(&producer, "lonely", Target::Any, Duration::ZERO));
    let held = std::mem::take(&mut *world.brokers[0].held.lock().unwrap());
    world.brokers[0].acts.lock().unwrap().clear();
    for reply in held {
        reply.send(common::stored_answer("1", "0"));
    }
    assert!(send_if_room(&producer, "lonely", Target::Any, WAIT));
}

#[test]
fn messages_for_the_queue_of_a_silent_broker_leave_room_for_the_other() {
    let world = World::new(2);
    let producer = producer_of_both(&world, 100);
    world.script(0, &[Act::Silent; 500]);
    let brief = Duration::from_millis(20);
    let sent = (0..200).take_while(|_| send_if_room(&producer, "orders", queue_of("b0"), brief));
    assert_eq!(sent.count(), 50, "half of the room");
    assert!(!send_if_room(&producer, "orders", Target::Hash(1), brief));
    for number in 0..200 {
        let target = if number % 2 == 0 {
            queue_of("b1")
        } else {
            Target::Hash(3)
        };
        assert!(send_if_room(&producer, "orders", target, WAIT));
    }
    // The other broker's answers come a little later; until then all of the room may be taken.
    let deadline = Instant::now() + WAIT;
    loop {
        let error = producer.back_pressure().full(
            Duration::ZERO,
            &producer.candidates("orders", queue_of("b0").to_ref()),
        );
        if error.to_string().contains("for broker `b0`") {
            break;
        }
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn routes_that_nobody_uses_are_forgotten_but_for_the_last_to_a_broker() {
    let world = World::new(2);
    let producer = world.producer(|options| {
        options.client.route_interval = Duration::from_millis(50);
        // Far longer than a busy machine keeps this test from its processor.
        options.client.route_idle = Duration::from_secs(3);
    });
    let routes = producer.routes().clone();
    let topics: Vec<Arc<str>> = (0..1200).map(|number| format!("t{number}").into()).collect();
    for topic in &topics {
        world.runtime.block_on(routes.get(topic)).unwrap();
        // This one is used.
        assert!(routes.cached(&topics[0]).is_some());
    }
    let deadline = Instant::now() + 3 * WAIT;
    while routes.count() > 1024 {
        assert!(routes.cached(&topics[0]).is_some());
        assert!(Instant::now() < deadline, "{} routes are known", routes.count());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(routes.cached(&topics[0]).is_some());
    assert_eq!(routes.brokers().len(), 2);
    let again = topics
        .iter()
        .find(|topic| routes.cached(topic).is_none())
        .unwrap();
    world.runtime.block_on(routes.get(again)).unwrap();
}
