//! The server with peers that send raw bytes: rows, pipelining, invalid bytes, slow peers, the stop.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "each test awaits its own tasks")]

mod net_support;

use net_support::*;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{
    CloseReason, NetError, Peer, Processor, ProcessorTable, Reply, Requests, Retry, Security, Server,
    ServerOptions,
};
use pyrmq_testkit::{RawPeer, eventually, frame, in_time};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Pauses its connection.
const PAUSE: i32 = 9010;
const V5_3_1: i32 = 475;
const V5_3_2: i32 = 477;

fn options() -> ServerOptions {
    ServerOptions::default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_echo_comes_back_with_opaque_and_response_bit() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    let answer = peer
        .ask(&frame::request(ECHO, 42, 0, 407, b"hello"))
        .await
        .unwrap();
    assert_eq!(answer.code(), Some(0));
    assert_eq!(answer.number("opaque"), Some(42));
    assert_eq!(answer.number("flag"), Some(1));
    assert_eq!(answer.body, b"hello");
    assert_eq!(server.stop().await.cut, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pipelined_requests_are_answered_in_one_connection() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    let mut bytes = Vec::new();
    for opaque in 0..1000 {
        bytes.extend(frame::request(ECHO, opaque, 0, 407, &[1; 700]));
    }
    peer.send(&bytes).await.unwrap();
    for opaque in 0..1000 {
        let answer = peer.receive().await.unwrap();
        assert_eq!(answer.number("opaque"), Some(opaque));
        assert_eq!(answer.body.len(), 700);
    }
    assert!(
        server.stats.writes.load(Ordering::Relaxed) < 1000,
        "frames must share writes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_cut_at_every_byte_are_put_together_again() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    let bytes = frame::request(ECHO, 1, 0, 407, b"piecemeal");
    for byte in &bytes {
        peer.send(std::slice::from_ref(byte)).await.unwrap();
        peer.stream().flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.receive().await.unwrap().body, b"piecemeal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deferred_replies_go_out_in_any_order_from_another_thread() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    for opaque in 0..3 {
        peer.send(&frame::request(HOLD, opaque, 0, 407, b""))
            .await
            .unwrap();
    }
    let seen = server.seen.clone();
    assert!(eventually(|| seen.held() == 3).await);
    // A later request overtakes the held ones.
    let overtaking = peer.ask(&frame::request(ECHO, 9, 0, 407, b"")).await.unwrap();
    assert_eq!(overtaking.number("opaque"), Some(9));
    std::thread::spawn(move || {
        for (request, reply) in seen.take_held().into_iter().rev() {
            reply.send(Command::response(0).with_body(request.opaque.to_string()));
        }
    })
    .join()
    .unwrap();
    for opaque in [2, 1, 0] {
        let answer = peer.receive().await.unwrap();
        assert_eq!(answer.number("opaque"), Some(opaque));
        assert_eq!(answer.body, opaque.to_string().as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_connection_writes_and_is_read_on_once_every_pause_has_ended() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let here = server.seen.peer(0);
    let pauses = [here.pause(), here.pause()];
    for opaque in 0..3 {
        peer.send(&frame::request(HOLD, opaque, 2, 407, b""))
            .await
            .unwrap();
    }
    for pause in pauses {
        // Its task has run since the requests came.
        here.send(Command::request(ECHO));
        peer.receive().await.unwrap();
        assert_eq!(server.seen.held(), 0);
        drop(pause);
    }
    assert!(eventually(|| server.seen.held() == 3).await);
    server.seen.take_held();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_connection_ends_when_its_peer_closes_it() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let _pause = server.seen.peer(0).pause();
    drop(peer);
    assert!(eventually(|| server.seen.closed() == 1).await);
    assert!(matches!(
        server.seen.closed.lock().unwrap()[0],
        CloseReason::ByPeer
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_peer_sent_to_a_paused_connection_before_it_closed_it_is_served_in_its_order() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let here = server.seen.peer(0);
    let pause = here.pause();
    for opaque in 0..3 {
        peer.send(&frame::request(HOLD, opaque, 2, 407, b""))
            .await
            .unwrap();
    }
    // Its task has run since the requests came.
    here.send(Command::request(ECHO));
    peer.receive().await.unwrap();
    assert!(!here.is_closed());
    drop(peer);
    assert!(eventually(|| here.is_closed()).await);
    assert_eq!((server.seen.held(), server.seen.closed()), (0, 0));
    drop(pause);
    assert!(eventually(|| server.seen.closed() == 1).await);
    let held = server.seen.take_held();
    let opaques: Vec<i32> = held.iter().map(|(request, _)| request.opaque).collect();
    assert_eq!(opaques, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_before_the_peer_of_a_paused_connection_resets_it_is_served() {
    let (seen, requests) = (Arc::new(Seen::default()), Arc::new(Requests::new(2)));
    let mut table = table(&seen, &requests);
    let pauses = Arc::new(Mutex::new(Vec::new()));
    let paused = pauses.clone();
    let pause: Arc<dyn Processor> = Arc::new(move |_: Command, peer: &Peer, reply: Reply| {
        paused.lock().unwrap().push(peer.pause());
        reply.silence();
    });
    table.native(&[PAUSE], &pause);
    let server = Running::start_with(options(), &Security::default(), table, seen, requests);
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    let bytes = [
        frame::request(ECHO, 1, 0, 407, b""),
        frame::request(PAUSE, 2, 2, 407, b""),
        frame::request(HOLD, 3, 2, 407, b""),
        frame::request(HOLD, 4, 2, 407, b""),
    ];
    peer.send(&bytes.concat()).await.unwrap();
    // The system resets a connection that is closed with an unread answer.
    in_time(peer.stream().readable()).await.unwrap();
    let here = server.seen.peer(0);
    drop(peer);
    assert!(eventually(|| here.is_closed()).await);
    assert_eq!((server.seen.held(), server.seen.closed()), (0, 0));
    pauses.lock().unwrap().clear();
    assert!(eventually(|| server.seen.closed() == 1).await);
    let held = server.seen.take_held();
    let opaques: Vec<i32> = held.iter().map(|(request, _)| request.opaque).collect();
    assert_eq!(opaques, [3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oneway_requests_are_never_answered_whatever_happens_to_them() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    for code in [ECHO, PANIC, FORGET, REFUSED, 4242, PYTHON, PYTHON, PYTHON] {
        peer.send(&frame::request(code, 1, 2, 407, b"")).await.unwrap();
    }
    let answer = peer.ask(&frame::request(ECHO, 7, 0, 407, b"")).await.unwrap();
    assert_eq!(answer.number("opaque"), Some(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_row_answers_as_its_kind_does() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    for (code, expected, remark) in [
        (4242, 3, "request type 4242 not supported"),
        (
            REFUSED,
            3,
            "request type 9005 not supported: its turn has not come",
        ),
        (FORGET, 1, "not set any response code"),
        (PANIC, 1, "the server failed while it handled this request"),
        (ECHO, 0, ""),
    ] {
        let answer = peer.ask(&frame::request(code, 1, 0, 407, b"")).await.unwrap();
        assert_eq!(answer.code(), Some(expected), "{code}");
        assert!(answer.text().contains(remark), "{code}: {}", answer.text());
    }
    let stats = server.stats.clone();
    assert!(eventually(|| stats.snapshot().unsupported == 2).await);
    assert_eq!(stats.snapshot().panics, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_python_queue_answers_busy_and_the_queue_still_serves() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    for opaque in 0..3 {
        peer.send(&frame::request(PYTHON, opaque, 0, 407, b""))
            .await
            .unwrap();
    }
    let busy = peer.receive().await.unwrap();
    assert_eq!((busy.code(), busy.number("opaque")), (Some(2), Some(2)));
    assert!(busy.text().contains("[OVERLOAD]"), "{}", busy.text());
    let requests = server.requests.clone();
    let first = tokio::task::spawn_blocking(move || requests.take(SECOND).unwrap());
    first.await.unwrap().reply.send(Command::response(0));
    assert_eq!(peer.receive().await.unwrap().number("opaque"), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_unanswered_requests_than_allowed_are_answered_busy() {
    let mut options = options();
    options.connection.in_flight = 2;
    let server = Running::start(options);
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    for opaque in 0..3 {
        peer.send(&frame::request(HOLD, opaque, 0, 407, b""))
            .await
            .unwrap();
    }
    let busy = peer.receive().await.unwrap();
    assert_eq!((busy.code(), busy.number("opaque")), (Some(2), Some(2)));
    drop(server.seen.take_held());
    for _ in 0..2 {
        assert_eq!(peer.receive().await.unwrap().code(), Some(1));
    }
    let silent = frame::request(SILENT, 5, 0, 407, b"");
    for _ in 0..5 {
        peer.send(&silent).await.unwrap();
    }
    assert_eq!(
        peer.ask(&frame::request(ECHO, 8, 0, 407, b""))
            .await
            .unwrap()
            .code(),
        Some(0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_take_the_header_form_of_their_request() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    // code, language, version, opaque, flag, no remark, no fields.
    let mut header = Vec::new();
    header.extend(9001_i16.to_be_bytes());
    header.push(0);
    header.extend(407_i16.to_be_bytes());
    header.extend(77_i32.to_be_bytes());
    header.extend([0; 12]);
    let answer = peer.ask(&frame::raw(1, &header, b"x")).await.unwrap();
    assert_eq!(answer.serialize_type, 1);
    assert_eq!(answer.header[5..9], 77_i32.to_be_bytes());
    assert_eq!(
        peer.ask(&frame::request(ECHO, 1, 0, 407, b""))
            .await
            .unwrap()
            .serialize_type,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_bytes_close_only_their_own_connection() {
    let server = Running::start(options());
    let mut other = RawPeer::connect(server.address).await.unwrap();
    let over_cap = (17_u32 * 1024 * 1024).to_be_bytes();
    let mut long_header = 20_u32.to_be_bytes().to_vec();
    long_header.extend(1000_u32.to_be_bytes());
    long_header.extend([0; 16]);
    let cases: [(&str, Vec<u8>); 7] = [
        ("length 0", [0; 12].to_vec()),
        ("negative length", [0xff; 12].to_vec()),
        ("over the cap", over_cap.to_vec()),
        ("unknown serialization", frame::raw(7, b"{}", b"")),
        ("header longer than its frame", long_header),
        ("no JSON", frame::raw(0, b"{code:105", b"")),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
    ];
    let count = cases.len();
    for (name, bytes) in cases {
        let mut peer = RawPeer::connect(server.address).await.unwrap();
        peer.send(&bytes).await.unwrap();
        assert_eq!(peer.closed().await.unwrap(), b"", "{name}");
        assert_eq!(
            other
                .ask(&frame::request(ECHO, 1, 0, 407, b""))
                .await
                .unwrap()
                .code(),
            Some(0),
            "{name}"
        );
    }
    let seen = server.seen.clone();
    assert!(eventually(|| seen.closed() == count).await);
    let stats = server.stats.clone();
    assert!(eventually(|| stats.snapshot().malformed == count as u64).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_proxy_headers_are_refused_and_counted() {
    let server = Running::start(options());
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01"[..],
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
        b"\r\n\r\n\0\r\nQUIT\n",
    ] {
        let mut peer = RawPeer::connect(server.address).await.unwrap();
        peer.send(bytes).await.unwrap();
        assert_eq!(peer.closed().await.unwrap(), b"");
    }
    let stats = server.stats.clone();
    assert!(eventually(|| stats.snapshot().refused == 3).await);
    let seen = server.seen.closed.lock().unwrap();
    assert!(matches!(seen[0], CloseReason::Tls), "{:?}", seen[0]);
    assert!(matches!(seen[1], CloseReason::ProxyProtocol), "{:?}", seen[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_and_half_a_frame_are_closed_after_the_idle_time() {
    let mut options = options();
    options.connection.idle = Duration::from_millis(600);
    let server = Running::start(options);
    let mut silent = RawPeer::connect(server.address).await.unwrap();
    let mut half = RawPeer::connect(server.address).await.unwrap();
    half.send(&frame::request(ECHO, 1, 0, 407, b"never whole")[..20])
        .await
        .unwrap();
    let mut dripping = RawPeer::connect(server.address).await.unwrap();
    let drip = async {
        let bytes = frame::request(ECHO, 1, 0, 407, &[0; 4000]);
        for byte in bytes {
            if dripping.send(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(drip).await;
    assert_eq!(silent.closed().await.unwrap(), b"");
    assert_eq!(half.closed().await.unwrap(), b"");
    let seen = server.seen.clone();
    assert!(eventually(|| seen.closed() == 3).await);
    let reasons = seen.closed.lock().unwrap();
    assert!(
        reasons
            .iter()
            .any(|reason| matches!(reason, CloseReason::PartialFrame)),
        "{reasons:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_connection_is_not_idle() {
    let mut options = options();
    options.connection.idle = Duration::from_secs(1);
    let server = Running::start(options);
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2200) {
        assert_eq!(
            peer.ask(&frame::request(ECHO, 1, 0, 407, b""))
                .await
                .unwrap()
                .code(),
            Some(0)
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.seen.opened(), 1);
}

fn big(bytes: usize) -> Vec<u8> {
    let header =
        format!(r#"{{"code":{BIG},"extFields":{{"bytes":"{bytes}"}},"flag":0,"opaque":1,"version":407}}"#);
    frame::raw(0, header.as_bytes(), b"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_does_not_read_is_no_longer_read_and_costs_bounded_memory() {
    let mut options = options();
    options.connection.outgoing_bytes = 1024 * 1024;
    options.connection.write_timeout = Duration::from_millis(300);
    let server = Running::start(options);
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    let mut other = RawPeer::connect(server.address).await.unwrap();
    let mut bytes = Vec::new();
    for _ in 0..10_000 {
        bytes.extend(big(100_000));
    }
    peer.send(&bytes).await.unwrap();
    let stats = server.stats.clone();
    // 10,000 answers would be 1 GB: far fewer are created before the peer is closed.
    assert!(eventually(|| stats.snapshot().stalled == 1).await);
    assert!(stats.snapshot().requests < 1000, "{:?}", stats.snapshot());
    assert_eq!(
        other
            .ask(&frame::request(ECHO, 1, 0, 407, b""))
            .await
            .unwrap()
            .code(),
        Some(0)
    );
    let seen = server.seen.closed.lock().unwrap();
    assert!(matches!(seen[0], CloseReason::Stalled), "{:?}", seen[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_do_not_read_share_the_memory_of_answers() {
    let mut options = options();
    options.outgoing_total_bytes = 1024 * 1024;
    options.connection.write_timeout = Duration::from_millis(500);
    let server = Running::start(options);
    let asked = big(100_000).repeat(300);
    let mut peers = Vec::new();
    for _ in 0..20 {
        let mut peer = RawPeer::connect(server.address).await.unwrap();
        peer.send(&asked).await.unwrap();
        peers.push(peer);
    }
    let stats = server.stats.clone();
    assert!(eventually(|| stats.snapshot().stalled == 20).await);
    // Each got some 128 KiB and what its socket holds. With 16 MiB for each, it would be 160 answers or more.
    let requests = stats.snapshot().requests;
    assert!((20..20 * 110).contains(&requests), "{requests}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_everything() {
    let mut options = options();
    options.connection.outgoing_bytes = 256 * 1024;
    let server = Running::start(options);
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    let (mut read, mut write) = peer.stream().split();
    let asking = async {
        for _ in 0..200 {
            write.write_all(&big(100_000)).await.unwrap();
        }
    };
    let reading = async {
        for _ in 0..200 {
            tokio::task::yield_now().await;
            assert_eq!(frame::read(&mut read).await.unwrap().body.len(), 100_000);
        }
    };
    in_time(async { tokio::join!(asking, reading) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_that_nobody_reads_close_the_connection_at_the_cap() {
    let mut options = options();
    options.connection.outgoing_bytes = 1024 * 1024;
    options.connection.outgoing_close_bytes = 8 * 1024 * 1024;
    let server = Running::start(options);
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let target = server.seen.peer(0);
    let pushed = (0..10_000).take_while(|_| !target.is_closed()).map(|_| {
        target.send(Command::request(40).with_body(vec![0; 64 * 1024]));
    });
    assert!(pushed.count() < 1000);
    let seen = server.seen.clone();
    assert!(eventually(|| seen.closed() == 1).await);
    assert!(matches!(
        seen.closed.lock().unwrap()[0],
        CloseReason::Overflow { .. }
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_asks_its_peer_on_the_same_connection() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let target = server.seen.peer(0);
    let asking = tokio::task::spawn(async move { target.request(ask(307, b"?"), SECOND).await });
    let question = peer.receive().await.unwrap();
    assert_eq!(question.code(), Some(307));
    let opaque = question.number("opaque").unwrap();
    let header = format!(r#"{{"code":0,"flag":1,"opaque":{opaque},"version":407}}"#);
    peer.send(&frame::raw(0, header.as_bytes(), b"!")).await.unwrap();
    assert_eq!(asking.await.unwrap().unwrap().body.as_deref(), Some(&b"!"[..]));
    // A response that nobody waits for is harmless.
    peer.send(&frame::raw(0, header.as_bytes(), b"again"))
        .await
        .unwrap();
    assert_eq!(
        peer.ask(&frame::request(ECHO, 1, 0, 407, b""))
            .await
            .unwrap()
            .code(),
        Some(0)
    );
    let stats = server.stats.clone();
    assert!(eventually(|| stats.snapshot().late == 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_peer_that_leaves_ends_at_once() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let target = server.seen.peer(0);
    let asking =
        tokio::task::spawn(async move { target.request(ask(307, b"?"), Duration::from_mins(10)).await });
    peer.receive().await.unwrap();
    drop(peer);
    let error = in_time(asking).await.unwrap().unwrap_err();
    assert_eq!(error.retry(), Retry::UnknownOutcome, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_over_the_cap_is_refused_until_another_leaves() {
    let server = Running::start(ServerOptions {
        max_connections: 2,
        ..options()
    });
    let mut first = RawPeer::connect(server.address).await.unwrap();
    first.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let mut second = RawPeer::connect(server.address).await.unwrap();
    second.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let mut third = RawPeer::connect(server.address).await.unwrap();
    assert_eq!(third.closed().await.unwrap(), b"");
    assert_eq!(server.stats.snapshot().refused, 1);
    drop(first);
    let stats = server.stats.clone();
    assert!(eventually(|| stats.snapshot().connections == 1).await);
    let mut fourth = RawPeer::connect(server.address).await.unwrap();
    assert_eq!(
        fourth
            .ask(&frame::request(ECHO, 1, 0, 407, b""))
            .await
            .unwrap()
            .code(),
        Some(0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_connections_live_side_by_side() {
    let server = Running::start(options());
    let mut peers = Vec::new();
    for _ in 0..500 {
        peers.push(RawPeer::connect(server.address).await.unwrap());
    }
    for (opaque, peer) in (0..).zip(&mut peers) {
        peer.send(&frame::request(ECHO, opaque, 0, 407, b"x"))
            .await
            .unwrap();
    }
    for (opaque, peer) in (0..).zip(&mut peers) {
        assert_eq!(peer.receive().await.unwrap().number("opaque"), Some(opaque));
    }
    let stats = server.stats.clone();
    assert_eq!(stats.snapshot().connections, 500);
    drop(peers);
    assert!(eventually(|| stats.snapshot().connections == 0).await);
    let seen = server.seen.clone();
    assert!(eventually(|| seen.closed() == 500).await);
}

#[tokio::test]
async fn a_taken_port_is_an_error_with_address_and_fix() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::bind(address, options(), Arc::new(ProcessorTable::new()), Arc::new(())).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, NetError::Bind { .. }), "{text}");
    assert!(
        text.contains(&address.to_string()) && text.contains("another port"),
        "{text}"
    );
}

#[tokio::test]
async fn options_out_of_range_are_refused_by_name() {
    let mut wrong = options();
    wrong.connection.outgoing_close_bytes = 1;
    let error = Server::bind(
        "127.0.0.1:0".parse().unwrap(),
        wrong,
        Arc::new(ProcessorTable::new()),
        Arc::new(()),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("`outgoing_close_bytes` is 1"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_lets_quiet_connections_go_at_once_and_frees_the_port() {
    let server = Running::start(options());
    let address = server.address;
    let mut peer = RawPeer::connect(address).await.unwrap();
    peer.ask(&frame::request(ECHO, 1, 0, 407, b"")).await.unwrap();
    let start = Instant::now();
    assert_eq!(server.stop().await.cut, 0);
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert_eq!(peer.closed().await.unwrap(), b"");
    drop(std::net::TcpListener::bind(address).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_waits_for_requests_in_flight() {
    let server = Running::start(options());
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.send(&frame::request(HOLD, 5, 0, 407, b"")).await.unwrap();
    let seen = server.seen.clone();
    assert!(eventually(|| seen.held() == 1).await);
    let stopping = tokio::task::spawn(server.stop());
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(!stopping.is_finished());
    let (_, reply) = seen.take_held().remove(0);
    reply.send(Command::response(0));
    assert_eq!(peer.receive().await.unwrap().number("opaque"), Some(5));
    assert_eq!(in_time(stopping).await.unwrap().cut, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_cuts_at_its_deadline_and_a_second_call_at_once() {
    for now in [false, true] {
        let drain = if now {
            Duration::from_mins(10)
        } else {
            Duration::from_millis(200)
        };
        let server = Running::start(ServerOptions { drain, ..options() });
        let mut peer = RawPeer::connect(server.address).await.unwrap();
        peer.send(&frame::request(HOLD, 5, 0, 407, b"")).await.unwrap();
        let seen = server.seen.clone();
        assert!(eventually(|| seen.held() == 1).await);
        server.shutdown.stop();
        if now {
            server.shutdown.stop_now();
        }
        assert_eq!(in_time(server.join()).await.cut, 1);
        assert_eq!(peer.closed().await.unwrap(), b"");
        // The late answer is dropped.
        for (_, reply) in seen.take_held() {
            assert!(reply.is_closed());
            reply.send(Command::response(0));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_stops_only_new_peers_get_go_away() {
    let server = Running::start(options());
    let mut old = RawPeer::connect(server.address).await.unwrap();
    let mut new = RawPeer::connect(server.address).await.unwrap();
    // One held request keeps each connection open.
    for peer in [&mut old, &mut new] {
        peer.send(&frame::request(HOLD, 1, 0, 407, b"")).await.unwrap();
    }
    let seen = server.seen.clone();
    assert!(eventually(|| seen.held() == 2).await);
    server.shutdown.stop();
    // The port is closed once draining has begun.
    let address = server.address;
    while RawPeer::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(
        old.ask(&frame::request(ECHO, 2, 0, V5_3_1, b""))
            .await
            .unwrap()
            .code(),
        Some(0)
    );
    assert_eq!(
        new.ask(&frame::request(ECHO, 2, 0, V5_3_2, b""))
            .await
            .unwrap()
            .code(),
        Some(1500)
    );
    new.send(&frame::request(ECHO, 3, 2, V5_3_2, b"")).await.unwrap();
    drop(seen.take_held());
    assert_eq!(old.receive().await.unwrap().code(), Some(1));
    assert_eq!(new.receive().await.unwrap().code(), Some(1));
    assert_eq!(in_time(server.join()).await.cut, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_on_one_connection_does_not_starve_another() {
    let server = Running::start(options());
    let mut flood = RawPeer::connect(server.address).await.unwrap();
    let (mut read, mut write) = flood.stream().split();
    let bytes: Vec<u8> = (0..1000)
        .flat_map(|n| frame::request(ECHO, n, 0, 407, b"flood"))
        .collect();
    let mut sink = vec![0; 1 << 20];
    let mut quiet = RawPeer::connect(server.address).await.unwrap();
    let writing = async { while write.write_all(&bytes).await.is_ok() {} };
    let reading = async { while read.read(&mut sink).await.is_ok_and(|read| read > 0) {} };
    let asking = async {
        for n in 0..50 {
            assert_eq!(
                quiet
                    .ask(&frame::request(ECHO, n, 0, 407, b""))
                    .await
                    .unwrap()
                    .code(),
                Some(0)
            );
        }
    };
    in_time(async {
        tokio::select! {
            () = writing => {}
            () = reading => {}
            () = asking => {}
        }
    })
    .await;
}

/// Linear congruential numbers (Knuth): the same bytes in each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_frames_end_at_most_their_own_connection() {
    let mut options = options();
    options.connection.idle = Duration::from_millis(100);
    let server = Running::start(options);
    let mut noise = Noise(7);
    for round in 0..300 {
        let mut bytes = Vec::new();
        for opaque in 0..3 {
            bytes.extend(frame::request(ECHO, opaque, 0, 407, b"body"));
        }
        for _ in 0..=noise.next(4) {
            let at = noise.next(bytes.len());
            bytes[at] = u8::try_from(noise.next(256)).unwrap();
        }
        let mut peer = RawPeer::connect(server.address).await.unwrap();
        // It may be closed before everything is written.
        drop(peer.send(&bytes).await);
        if round % 10 == 0 {
            let mut healthy = RawPeer::connect(server.address).await.unwrap();
            let answer = healthy.ask(&frame::request(ECHO, 9, 0, 407, b"")).await.unwrap();
            assert_eq!(answer.code(), Some(0), "round {round}");
        }
    }
    let stats = server.stats.clone();
    assert!(
        eventually(|| stats.snapshot().connections == 0).await,
        "{:?}",
        stats.snapshot()
    );
    assert_eq!(stats.snapshot().panics, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_server_does_not_read_is_not_idle() {
    let mut options = options();
    options.connection.idle = Duration::from_millis(300);
    let server = Running::start(options);
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.ask(&frame::request(ECHO, 0, 0, 407, b"")).await.unwrap();
    let pause = server.seen.peer(0).pause();
    for opaque in 1..=10 {
        peer.send(&frame::request(ECHO, opaque, 0, 407, b""))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(server.seen.peer(0).is_paused());
    drop(pause);
    for opaque in 1..=10 {
        let answer = peer.receive().await.unwrap();
        assert_eq!(answer.number("opaque"), Some(opaque));
    }
    assert!(!server.seen.peer(0).is_paused());
    // Nobody pauses it now, and its peer is silent.
    let closed = server.seen.clone();
    assert!(eventually(|| closed.closed() == 1).await);
}
