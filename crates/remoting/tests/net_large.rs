//! Large frames take turns: no peer can keep its turn by stalling, and small requests never wait for them.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod net_support;

use net_support::*;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{CloseReason, LargeFrames, NetError, ProcessorTable, Server, ServerOptions};
use pyrmq_testkit::{RawPeer, eventually, frame};
use std::sync::Arc;
use std::time::Duration;

const LARGE: usize = 64 * 1024;

fn options(at_once: usize) -> ServerOptions {
    ServerOptions {
        large_frames: Some(LargeFrames {
            bytes: LARGE,
            at_once,
        }),
        ..ServerOptions::default()
    }
}

fn large(code: i32, opaque: i32) -> Vec<u8> {
    frame::request(code, opaque, 0, 407, &vec![1; 4 * LARGE])
}

async fn sent(server: &Running, bytes: &[u8]) -> RawPeer {
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.send(bytes).await.unwrap();
    peer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_are_worked_on_a_few_at_a_time_and_all_of_them() {
    let server = Running::start(options(2));
    let mut peers = Vec::new();
    for opaque in 0..6 {
        peers.push(sent(&server, &large(HOLD, opaque)).await);
    }
    for _ in 0..3 {
        assert!(eventually(|| server.seen.held() == 2).await);
        // A small request is not delayed, and gives those in line time to be answered out of order.
        let mut small = RawPeer::connect(server.address).await.unwrap();
        let answer = small
            .ask(&frame::request(ECHO, 7, 0, 407, b"small"))
            .await
            .unwrap();
        assert_eq!(answer.body, b"small");
        assert_eq!(server.seen.held(), 2);
        for (request, reply) in server.seen.take_held() {
            assert_eq!(request.body.as_ref().unwrap().len(), 4 * LARGE);
            reply.send(Command::response(0));
        }
    }
    for (opaque, peer) in peers.iter_mut().enumerate() {
        let answer = peer.receive().await.unwrap();
        assert_eq!(answer.number("opaque"), Some(i64::try_from(opaque).unwrap()));
    }
    assert_eq!(server.stop().await.cut, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_stalls_in_a_large_frame_keeps_no_permit() {
    let server = Running::start(options(1));
    let whole = large(ECHO, 1);
    let (half, rest) = whole.split_at(whole.len() / 2);
    let mut stalled = sent(&server, half).await;
    let mut other = sent(&server, &whole).await;
    assert_eq!(other.receive().await.unwrap().body.len(), 4 * LARGE);
    stalled.send(rest).await.unwrap();
    assert_eq!(stalled.receive().await.unwrap().body.len(), 4 * LARGE);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_is_released_by_a_closed_connection_and_by_a_dropped_request() {
    let server = Running::start(options(1));
    let whole = large(FORGET, 1);
    drop(sent(&server, &whole[..whole.len() / 2]).await);
    let mut forgotten = sent(&server, &whole).await;
    assert_eq!(forgotten.receive().await.unwrap().code(), Some(1));
    drop(sent(&server, &large(HOLD, 2)).await);
    let mut last = sent(&server, &large(ECHO, 3)).await;
    assert!(eventually(|| server.seen.held() == 1).await);
    server.seen.take_held();
    assert_eq!(last.receive().await.unwrap().number("opaque"), Some(3));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_in_the_line_is_not_closed_for_a_frame_that_stays_cut_off() {
    let mut options = options(1);
    options.connection.idle = Duration::from_millis(300);
    let server = Running::start(options);
    let mut holder = sent(&server, &large(HOLD, 1)).await;
    assert!(eventually(|| server.seen.held() == 1).await);
    let mut waiting = sent(&server, &large(ECHO, 2)).await;
    // The holder and the one in line both fall silent, so only the idle time may close them.
    assert!(eventually(|| server.seen.closed() == 2).await);
    let reasons = server.seen.closed.lock().unwrap().clone();
    assert!(
        reasons.iter().all(|reason| matches!(reason, CloseReason::Idle)),
        "{reasons:?}"
    );
    assert!(holder.receive().await.is_err());
    assert!(waiting.receive().await.is_err());
    server.stop().await;
}

#[test]
fn an_option_of_no_permits_at_all_is_refused() {
    let table = Arc::new(ProcessorTable::new());
    let seen = Arc::new(Seen::default());
    let refused = Server::bind("127.0.0.1:0".parse().unwrap(), options(0), table, seen);
    assert!(matches!(refused, Err(NetError::Option { option, .. }) if option == "large_frames.at_once"));
}
