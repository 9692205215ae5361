//! The client against our server, scripted servers and links that fail.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "each test awaits its own tasks")]

mod net_support;

use net_support::*;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{
    Client, ClientOptions, FaultyLink, NetError, Peer, Processor, ProcessorTable, Reply, RequestHook,
    Requests, Resolve, ResolveFuture, Retry, ServerOptions,
};
use pyrmq_testkit::{RawPeer, ScriptedServer, eventually, frame, in_time};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn options() -> ClientOptions {
    ClientOptions::default()
}

async fn silent() -> ScriptedServer {
    let script = |mut peer: RawPeer, _| async move { while peer.receive().await.is_ok() {} };
    ScriptedServer::start(script).await.unwrap()
}

fn answer(opaque: i64, code: i32, body: &[u8]) -> Vec<u8> {
    let header = format!(r#"{{"code":{code},"flag":1,"language":"JAVA","opaque":{opaque},"version":407}}"#);
    frame::raw(0, header.as_bytes(), body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_share_one_connection_and_few_writes() {
    let server = Running::start(ServerOptions::default());
    let client = client(options());
    let (done, at) = (Arc::new(AtomicUsize::new(0)), server.at());
    for n in 0..5000_u32 {
        let done = done.clone();
        let body = n.to_be_bytes();
        client.request_with(&at, ask(ECHO, &body), SECOND, move |result| {
            assert_eq!(result.unwrap().body.as_deref(), Some(&body[..]));
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    assert!(eventually(|| done.load(Ordering::SeqCst) == 5000).await);
    assert_eq!(client.connected(), [at]);
    // Counters are added once per poll, after its callbacks.
    let stats = client.stats();
    assert!(eventually(|| stats.snapshot().responses == 5000).await);
    let stats = stats.snapshot();
    assert_eq!(stats.opened, 1);
    assert!(stats.writes < 1000, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_answer_that_is_kept_keeps_no_part_of_others() {
    let server = Running::start(ServerOptions::default());
    let (client, at) = (client(options()), server.at());
    let asking = (0..8_usize).map(|n| {
        let (client, at) = (client.clone(), at.clone());
        let body = vec![1; 100_000 + n];
        tokio::task::spawn(async move { client.request(&at, ask(ECHO, &body), SECOND).await })
    });
    let mut bodies = Vec::new();
    for task in asking.collect::<Vec<_>>() {
        bodies.push(in_time(task).await.unwrap().unwrap().body.unwrap());
    }
    // What is read next is behind the last of them in its buffer.
    client.request(&at, ask(ECHO, b"short"), SECOND).await.unwrap();
    let shared = bodies.iter().filter(|body| !body.is_unique()).count();
    assert!(shared <= 1, "{shared}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_out_of_order_find_their_requests() {
    let script = |mut peer: RawPeer, _| async move {
        let mut asked = Vec::new();
        for _ in 0..10 {
            asked.push(peer.receive().await.unwrap());
        }
        for request in asked.iter().rev() {
            let opaque = request.number("opaque").unwrap();
            peer.send(&answer(opaque, 0, &request.body)).await.unwrap();
        }
        peer.closed().await.unwrap();
    };
    let server = ScriptedServer::start(script).await.unwrap();
    let (client, at) = (client(options()), server.address().to_string());
    let asking = (0..10_u8).map(|n| {
        let (client, at) = (client.clone(), at.clone());
        tokio::task::spawn(async move { client.request(&at, ask(1, &[n]), SECOND).await })
    });
    let asking: Vec<_> = asking.collect();
    for (n, task) in (0..10_u8).zip(asking) {
        assert_eq!(
            in_time(task).await.unwrap().unwrap().body.as_deref(),
            Some(&[n][..])
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_ends_the_wait_and_frees_the_slot() {
    let server = silent().await;
    let mut options = options();
    options.connection.pending = 1;
    let (client, at) = (client(options), server.address().to_string());
    client.warm(&at).await.unwrap();
    let start = Instant::now();
    let error = client
        .request(&at, ask(1, b""), Duration::from_millis(60))
        .await
        .unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(60) && start.elapsed() < Duration::from_secs(8));
    assert!(matches!(error, NetError::Timeout { sent: true, .. }), "{error}");
    assert_eq!(error.retry(), Retry::UnknownOutcome);
    // The one slot is free again: the next request waits for its own timeout instead of being refused.
    let again = client
        .request(&at, ask(1, b""), Duration::from_millis(30))
        .await
        .unwrap_err();
    assert!(matches!(again, NetError::Timeout { .. }), "{again}");
    assert_eq!(server.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_shorter_timeout_is_not_held_up_by_an_earlier_longer_one() {
    let server = silent().await;
    let (client, at) = (client(options()), server.address().to_string());
    let slow = client.call(&at, ask(1, b""), Duration::from_mins(10));
    client.warm(&at).await.unwrap();
    let quick = in_time(client.request(&at, ask(1, b""), Duration::from_millis(20))).await;
    assert!(matches!(quick, Err(NetError::Timeout { .. })));
    assert!(slow.wait(Duration::ZERO).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_waits_than_allowed_are_refused_as_busy() {
    let server = silent().await;
    let mut options = options();
    options.connection.pending = 2;
    let (client, at) = (client(options), server.address().to_string());
    let _held = [
        client.call(&at, ask(1, b""), SECOND),
        client.call(&at, ask(1, b""), SECOND),
    ];
    let error = client.request(&at, ask(1, b""), SECOND).await.unwrap_err();
    assert!(
        matches!(
            error,
            NetError::Busy {
                unit: "requests",
                limit: 2,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.retry(), Retry::Temporary);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_the_server_does_not_take_are_bounded() {
    let script = |peer: RawPeer, _| async move {
        let _keep = peer;
        std::future::pending::<()>().await;
    };
    let server = ScriptedServer::start(script).await.unwrap();
    let mut options = options();
    options.connection.outgoing_bytes = 4 * 1024 * 1024;
    let (client, at) = (client(options), server.address().to_string());
    let body = vec![0; 256 * 1024];
    let mut queued = 0;
    let error = loop {
        let call = client.call(&at, Command::request(1).with_body(body.clone()), SECOND);
        if let Some(result) = call.wait(Duration::ZERO) {
            break result.unwrap_err();
        }
        queued += 1;
        assert!(queued < 1000);
        tokio::task::yield_now().await;
    };
    assert!(matches!(error, NetError::Busy { unit: "bytes", .. }), "{error}");
    let oneway = (0..1000).find_map(|_| {
        client
            .oneway(&at, Command::request(1).with_body(body.clone()))
            .err()
    });
    assert!(matches!(oneway, Some(NetError::Busy { .. })), "{oneway:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_wakes_every_wait_at_once() {
    let script = |mut peer: RawPeer, _| async move {
        for _ in 0..3 {
            peer.receive().await.unwrap();
        }
    };
    let server = ScriptedServer::start(script).await.unwrap();
    let (client, at) = (client(options()), server.address().to_string());
    let calls: Vec<_> = (0..3)
        .map(|_| client.call(&at, ask(1, b""), Duration::from_mins(10)))
        .collect();
    for call in calls {
        let outcome = tokio::task::spawn_blocking(move || call.wait(SECOND))
            .await
            .unwrap();
        let error = outcome.unwrap().unwrap_err();
        assert!(matches!(error, NetError::ConnectionLost { .. }), "{error}");
        assert_eq!(error.retry(), Retry::UnknownOutcome);
    }
    assert!(client.connected().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_replaced_by_the_next_request() {
    let server = Running::start(ServerOptions::default());
    let link = FaultyLink::start(server.address).await.unwrap();
    let (client, at) = (client(options()), link.address().to_string());
    for round in 0..5 {
        let answer = client.request(&at, ask(ECHO, b"x"), SECOND).await.unwrap();
        assert_eq!(answer.code, 0, "{round}");
        link.cut();
        let gone = client.clone();
        assert!(eventually(|| gone.connected().is_empty()).await);
    }
    assert_eq!(client.stats().snapshot().opened, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_answers_are_dropped_and_counted() {
    let server = Running::start(ServerOptions::default());
    let (client, at) = (client(options()), server.at());
    client.warm(&at).await.unwrap();
    let error = client
        .request(&at, ask(HOLD, b""), Duration::from_millis(30))
        .await
        .unwrap_err();
    assert!(matches!(error, NetError::Timeout { sent: true, .. }), "{error}");
    let seen = server.seen.clone();
    assert!(eventually(|| seen.held() == 1).await);
    for (_, reply) in server.seen.take_held() {
        reply.send(Command::response(0).with_body("late"));
    }
    let answer = client.request(&at, ask(ECHO, b"own"), SECOND).await.unwrap();
    assert_eq!(answer.body.as_deref(), Some(&b"own"[..]));
    let stats = client.stats();
    assert!(eventually(|| stats.snapshot().late == 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_connection_is_distinguished_from_a_lost_one() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let client = client(options());
    let error = client
        .request(&closed.to_string(), ask(1, b""), SECOND)
        .await
        .unwrap_err();
    assert!(matches!(error, NetError::Connect { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Temporary);
    assert!(error.to_string().contains(&closed.to_string()), "{error}");
    assert!(client.warm(&closed.to_string()).await.is_err());
    let nonsense = client
        .request("no address", ask(1, b""), SECOND)
        .await
        .unwrap_err();
    assert!(matches!(nonsense, NetError::Connect { .. }), "{nonsense}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oneway_requests_arrive_with_their_bit_and_wait_for_nothing() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let script = move |mut peer: RawPeer, _| {
        let sender = sender.clone();
        async move {
            while let Ok(request) = peer.receive().await {
                sender.send(request).unwrap();
            }
        }
    };
    let server = ScriptedServer::start(script).await.unwrap();
    let (client, at) = (client(options()), server.address().to_string());
    client.oneway(&at, ask(15, b"one")).unwrap();
    client.oneway(&at, ask(15, b"two")).unwrap();
    for body in [&b"one"[..], b"two"] {
        let request = in_time(receiver.recv()).await.unwrap();
        assert_eq!((request.number("flag"), &request.body[..]), (Some(2), body));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_ask_each_other_at_the_same_time() {
    let server = Running::start(ServerOptions::default());
    let (seen, requests) = (Arc::new(Seen::default()), Arc::new(Requests::new(1)));
    let client = client_with(options(), &seen, &requests);
    let at = server.at();
    client.warm(&at).await.unwrap();
    let server_seen = server.seen.clone();
    assert!(eventually(|| server_seen.opened() == 1).await);
    let peer = server.seen.peer(0);
    let up = async {
        for n in 0..500_u32 {
            let body = n.to_be_bytes();
            let answer = client.request(&at, ask(ECHO, &body), SECOND).await.unwrap();
            assert_eq!(answer.body.as_deref(), Some(&body[..]));
        }
    };
    let down = async {
        for n in 0..500_u32 {
            let body = n.to_be_bytes();
            let answer = peer.request(ask(ECHO, &body), SECOND).await.unwrap();
            assert_eq!(answer.body.as_deref(), Some(&body[..]));
        }
    };
    in_time(async { tokio::join!(up, down) }).await;
    let stats = client.stats();
    assert!(eventually(|| stats.snapshot().requests == 500).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_away_is_temporary_and_the_next_request_connects_anew() {
    let script = |mut peer: RawPeer, number| async move {
        while let Ok(request) = peer.receive().await {
            let code = if number == 0 { 1500 } else { 0 };
            let opaque = request.number("opaque").unwrap();
            peer.send(&answer(opaque, code, b"")).await.unwrap();
        }
    };
    let server = ScriptedServer::start(script).await.unwrap();
    let (client, at) = (client(options()), server.address().to_string());
    let error = client.request(&at, ask(1, b""), SECOND).await.unwrap_err();
    assert!(matches!(error, NetError::GoAway { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Temporary);
    assert_eq!(client.request(&at, ask(1, b""), SECOND).await.unwrap().code, 0);
    assert_eq!(server.accepted(), 2);
    let left = client.clone();
    assert!(eventually(|| left.stats().snapshot().connections == 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retired_connection_ends_after_the_awaited_answers() {
    let server = Running::start(ServerOptions::default());
    let (client, at) = (client(options()), server.at());
    let (asking, there) = (client.clone(), at.clone());
    let awaited = tokio::spawn(async move { asking.request(&there, ask(HOLD, b""), SECOND).await });
    let seen = server.seen.clone();
    assert!(eventually(|| seen.held() == 1).await);
    client.retire(&at);
    // The next request opens a new one meanwhile.
    assert_eq!(client.request(&at, ask(ECHO, b""), SECOND).await.unwrap().code, 0);
    assert_eq!((server.seen.opened(), server.seen.closed()), (2, 0));
    let (request, reply) = server.seen.take_held().pop().unwrap();
    reply.send(echo(request));
    assert_eq!(awaited.await.unwrap().unwrap().code, 0);
    assert!(eventually(|| seen.closed() == 1).await, "the one that was left");
    assert_eq!(client.connected(), std::slice::from_ref(&at));
    client.retire("127.0.0.1:1");
    assert_eq!(client.request(&at, ask(ECHO, b""), SECOND).await.unwrap().code, 0);
    server.stop().await;
}

#[derive(Debug)]
struct Nowhere;

impl Resolve for Nowhere {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolveFuture<'a> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_without_an_address_is_a_connect_error_with_the_name() {
    let handle = tokio::runtime::Handle::current();
    let table = Arc::new(ProcessorTable::new());
    let client = Client::with_resolver(&handle, options(), table, Arc::new(()), Arc::new(Nowhere)).unwrap();
    let error = client
        .request("names.test:9876", ask(ECHO, b""), SECOND)
        .await
        .unwrap_err();
    assert!(matches!(error, NetError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("names.test:9876"), "{error}");
    assert!(client.resolve("names.test:9876").await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_link_costs_its_timeout_and_flows_again() {
    let server = Running::start(ServerOptions::default());
    let link = FaultyLink::start(server.address).await.unwrap();
    let (client, at) = (client(options()), link.address().to_string());
    client.request(&at, ask(ECHO, b""), SECOND).await.unwrap();
    link.stall();
    let error = client
        .request(&at, ask(ECHO, b""), Duration::from_millis(50))
        .await
        .unwrap_err();
    assert!(matches!(error, NetError::Timeout { .. }), "{error}");
    link.flow();
    assert_eq!(client.request(&at, ask(ECHO, b""), SECOND).await.unwrap().code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sends_nonsense_is_left_and_every_wait_ends() {
    let script = |mut peer: RawPeer, _| async move {
        peer.receive().await.unwrap();
        peer.send(&[0; 12]).await.unwrap();
        peer.closed().await.unwrap();
    };
    let server = ScriptedServer::start(script).await.unwrap();
    let (client, at) = (client(options()), server.address().to_string());
    let error = client
        .request(&at, ask(1, b""), Duration::from_mins(10))
        .await
        .unwrap_err();
    assert!(matches!(error, NetError::ConnectionLost { .. }), "{error}");
    let stats = client.stats();
    assert!(eventually(|| stats.snapshot().malformed == 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_requests_work_from_threads_without_a_runtime() {
    let server = Running::start(ServerOptions::default());
    let (client, at) = (client(options()), server.at());
    let threads: Vec<_> = (0..8_u32)
        .map(|n| {
            let (client, at) = (client.clone(), at.clone());
            tokio::task::spawn_blocking(move || {
                for round in 0..100_u32 {
                    let body = (n * 1000 + round).to_be_bytes();
                    let answer = client.request_blocking(&at, ask(ECHO, &body), SECOND).unwrap();
                    assert_eq!(answer.body.as_deref(), Some(&body[..]));
                }
            })
        })
        .collect();
    for thread in threads {
        in_time(thread).await.unwrap();
    }
    assert_eq!(client.stats().snapshot().opened, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_ends_every_wait_and_refuses_later_requests() {
    let server = silent().await;
    let (client, at) = (client(options()), server.address().to_string());
    let waiting = client.call(&at, ask(1, b""), Duration::from_mins(10));
    client.warm(&at).await.unwrap();
    client.close().await;
    assert!(waiting.wait(SECOND).unwrap().is_err());
    let error = client.request(&at, ask(1, b""), SECOND).await.unwrap_err();
    assert!(matches!(error, NetError::Closed), "{error}");
    assert!(matches!(client.oneway(&at, ask(1, b"")), Err(NetError::Closed)));
    client.close().await;
    assert_eq!(client.stats().snapshot().connections, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_client_closes_its_connections() {
    let server = Running::start(ServerOptions::default());
    let first = client(options());
    let second = first.clone();
    first.warm(&server.at()).await.unwrap();
    drop(first);
    assert_eq!(
        second
            .request(&server.at(), ask(ECHO, b""), SECOND)
            .await
            .unwrap()
            .code,
        0
    );
    drop(second);
    let seen = server.seen.clone();
    assert!(eventually(|| seen.closed() == 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_no_frame_can_carry_is_the_callers_error() {
    let server = Running::start(ServerOptions::default());
    let (client, at) = (client(options()), server.at());
    let mut command = ask(ECHO, b"");
    command.serialize_type = pyrmq_remoting::SerializeType::RocketMq;
    command
        .fields
        .push(&"k".repeat(70_000), "longer than the 16 bits that its length has");
    let error = client.request(&at, command, SECOND).await.unwrap_err();
    assert!(matches!(error, NetError::Frame(_)), "{error}");
    assert_eq!(error.retry(), Retry::Permanent);
    assert_eq!(client.request(&at, ask(ECHO, b""), SECOND).await.unwrap().code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_that_hangs_ends_at_its_timeout_without_sending_later() {
    // A listener whose queue is full makes a connect hang.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into())
        .unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let _queue: Vec<_> = (0..3)
        .filter_map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok())
        .collect();
    let client = client(ClientOptions {
        connect_timeout: Duration::from_millis(300),
        ..options()
    });
    let at = address.to_string();
    let error = in_time(client.request(&at, ask(1, b""), Duration::from_millis(50)))
        .await
        .unwrap_err();
    assert!(matches!(error, NetError::Timeout { sent: false, .. }), "{error}");
    assert_eq!(error.retry(), Retry::Temporary);
    let error = in_time(client.request(&at, ask(1, b""), SECOND))
        .await
        .unwrap_err();
    assert!(matches!(error, NetError::Connect { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_callback_runs_exactly_once_whatever_the_link_does() {
    const REQUESTS: usize = 3000;
    let server = Running::start(ServerOptions::default());
    let link = FaultyLink::start(server.address).await.unwrap();
    let (client, at) = (client(options()), link.address().to_string());
    let calls: Arc<Vec<AtomicUsize>> = Arc::new((0..REQUESTS).map(|_| AtomicUsize::new(0)).collect());
    let answered = Arc::new(AtomicUsize::new(0));
    for n in 0..REQUESTS {
        let (calls, answered) = (calls.clone(), answered.clone());
        let body = n.to_string();
        client.request_with(&at, ask(ECHO, body.as_bytes()), SECOND, move |result| {
            calls[n].fetch_add(1, Ordering::SeqCst);
            if let Ok(answer) = result {
                assert_eq!(answer.body.as_deref(), Some(body.as_bytes()));
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
        match n % 100 {
            33 => link.cut(),
            66 => link.stall(),
            77 => link.flow(),
            // On a busy machine, everything may be queued before a connection is open. Here it is open, and the answer
            // to the second request follows those to all requests in between.
            50 | 90 if n < 300 => while client.request(&at, ask(ECHO, b""), SECOND).await.is_err() {},
            _ if n % 7 == 0 => tokio::task::yield_now().await,
            _ => {}
        }
    }
    link.flow();
    let all = || {
        calls
            .iter()
            .map(|calls| calls.load(Ordering::SeqCst))
            .sum::<usize>()
    };
    assert!(eventually(|| all() == REQUESTS).await, "{} of {REQUESTS}", all());
    assert!(calls.iter().all(|calls| calls.load(Ordering::SeqCst) == 1));
    assert!(answered.load(Ordering::SeqCst) > 0);
    assert_eq!(
        client
            .request(&at, ask(ECHO, b"after"), SECOND)
            .await
            .unwrap()
            .code,
        0
    );
}

#[test]
fn a_request_fails_at_once_when_the_runtime_is_gone() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = {
        let _inside = runtime.enter();
        client(options())
    };
    drop(runtime);
    let (sender, outcomes) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let request = client.request_blocking("127.0.0.1:1", ask(ECHO, b""), SECOND);
        let oneway = client.oneway("127.0.0.1:1", ask(ECHO, b""));
        drop(sender.send((request.unwrap_err(), oneway.unwrap_err())));
    });
    let (request, oneway) = outcomes.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(request, NetError::NotSent { .. }), "{request}");
    assert!(matches!(oneway, NetError::NotSent { .. }), "{oneway}");
}

/// The table of a client that answers requests whose field `group` is this.
fn table_of(group: &'static str, asked: &Arc<AtomicUsize>) -> Arc<ProcessorTable> {
    let asked = asked.clone();
    let count: Arc<dyn Processor> = Arc::new(move |_: Command, _: &Peer, reply: Reply| {
        asked.fetch_add(1, Ordering::SeqCst);
        reply.send(Command::response(0));
    });
    let mut table = ProcessorTable::new();
    table.native(&[ECHO], &count);
    table.only(move |request| request.fields.get("group") == Some(group));
    Arc::new(table)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_share_connections_have_waits_and_requests_of_their_own() {
    let server = Running::start(ServerOptions::default());
    let at = server.at();
    let (asked_a, asked_b): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
    let handle = tokio::runtime::Handle::current();
    let a = Client::new(&handle, options(), table_of("a", &asked_a)).unwrap();
    let b = a.downgrade().join(table_of("b", &asked_b)).unwrap();
    for client in [&a, &b] {
        assert_eq!(
            client.request(&at, ask(ECHO, b"x"), SECOND).await.unwrap().code,
            0
        );
    }
    assert_eq!(server.seen.opened(), 1, "one connection serves both");

    // The server asks each of them over the one connection.
    for (group, code) in [("a", 0), ("b", 0), ("b", 0), ("c", 3)] {
        let command = ask(ECHO, b"").with_field("group", group);
        let answer = server.seen.peer(0).request(command, SECOND).await;
        assert_eq!(answer.unwrap().code, code, "{group}");
    }
    assert_eq!(
        (asked_a.load(Ordering::SeqCst), asked_b.load(Ordering::SeqCst)),
        (1, 2)
    );

    // The end of one ends its waits only.
    let (ended_a, ended_b) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    for (client, ended) in [(&a, &ended_a), (&b, &ended_b)] {
        let ended = ended.clone();
        client.request_with(&at, ask(HOLD, b""), Duration::from_mins(1), move |outcome| {
            *ended.lock().unwrap() = Some(outcome.map(|answer| answer.code));
        });
    }
    assert!(eventually(|| server.seen.held() == 2).await);
    a.close().await;
    let outcome = ended_a.lock().unwrap().take().unwrap();
    assert!(
        matches!(outcome, Err(NetError::ConnectionLost { .. })),
        "{outcome:?}"
    );
    assert!(ended_b.lock().unwrap().is_none());
    let refused = a.request(&at, ask(ECHO, b""), SECOND).await.unwrap_err();
    assert!(matches!(refused, NetError::Closed), "{refused}");
    assert!(matches!(a.oneway(&at, ask(ECHO, b"")), Err(NetError::Closed)));
    for (_, reply) in server.seen.take_held() {
        reply.send(Command::response(7));
    }
    assert!(eventually(|| matches!(*ended_b.lock().unwrap(), Some(Ok(7)))).await);
    assert_eq!((server.seen.opened(), server.seen.closed()), (1, 0));

    // The last one ends the connections, and nobody joins any more.
    let weak = b.downgrade();
    assert!(weak.is_open());
    b.close().await;
    assert!(eventually(|| server.seen.closed() == 1).await);
    assert!(!weak.is_open() && weak.join(Arc::new(ProcessorTable::new())).is_none());
}

/// Adds its name to each request, and records what comes back.
#[derive(Debug)]
struct Named(&'static str, Mutex<Vec<(i32, Option<i32>)>>);

impl RequestHook for Named {
    fn before(&self, request: &mut Command) {
        request.fields.push("name", self.0);
    }

    fn after(&self, code: i32, outcome: &Result<Command, NetError>, took: Duration) {
        assert!(took < SECOND);
        let answer = outcome.as_ref().ok().map(|answer| answer.code);
        self.1.lock().unwrap().push((code, answer));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_client_of_shared_connections_has_a_hook_of_its_own() {
    let server = Running::start(ServerOptions::default());
    let at = server.at();
    let hooks = ["a", "b"].map(|name| Arc::new(Named(name, Mutex::default())));
    let [hook_a, hook_b] = hooks.clone().map(|hook| Some(hook as _));
    let none = client(options());
    let a = none.downgrade().join(Arc::new(ProcessorTable::new())).unwrap();
    let a = a.hooked(hook_a);
    let b = none.downgrade().join(Arc::new(ProcessorTable::new())).unwrap();
    let b = b.hooked(hook_b);
    // A client that is made of another one has its hook.
    let of_b = b.downgrade().join(Arc::new(ProcessorTable::new())).unwrap();
    for (client, name) in [
        (&none, None),
        (&a, Some("a")),
        (&b, Some("b")),
        (&of_b, Some("b")),
    ] {
        let answer = client.request(&at, ask(ECHO, b"x"), SECOND).await.unwrap();
        assert_eq!(answer.fields.get("name"), name);
    }
    assert_eq!(server.seen.opened(), 1);
    assert_eq!(a.request(&at, ask(REFUSED, b""), SECOND).await.unwrap().code, 3);
    a.oneway(&at, ask(HOLD, b"")).unwrap();
    assert!(eventually(|| server.seen.held() == 1).await);
    assert_eq!(server.seen.take_held()[0].0.fields.get("name"), Some("a"));
    a.shut();
    assert!(a.request(&at, ask(ECHO, b""), SECOND).await.is_err());
    let seen = hooks.map(|hook| hook.1.lock().unwrap().clone());
    assert_eq!(
        seen,
        [
            vec![(ECHO, Some(0)), (REFUSED, Some(3)), (ECHO, None)],
            vec![(ECHO, Some(0)); 2]
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_it_sends_leaves_no_wait_behind() {
    let server = silent().await;
    let at = server.address().to_string();
    let keeps = client(options());
    for _ in 0..50 {
        let leaves = keeps.downgrade().join(Arc::new(ProcessorTable::new())).unwrap();
        let ended = Arc::new(AtomicUsize::new(0));
        let sending = {
            let (client, ended, at) = (leaves.clone(), ended.clone(), at.clone());
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let ended = ended.clone();
                    client.request_with(&at, ask(ECHO, b"x"), Duration::from_mins(5), move |_| {
                        ended.fetch_add(1, Ordering::SeqCst);
                    });
                }
            })
        };
        leaves.shut();
        sending.join().unwrap();
        assert!(eventually(|| ended.load(Ordering::SeqCst) == 200).await);
    }
}
