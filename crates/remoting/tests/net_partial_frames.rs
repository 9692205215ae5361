//! Unfinished frames of many peers use limited memory, and whole ones still arrive.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "each test awaits its own tasks")]

mod net_support;

use net_support::*;
use pyrmq_remoting::net::{CloseReason, NetError, ProcessorTable, Server, ServerOptions};
use pyrmq_testkit::{RawPeer, eventually, frame};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const KIB: usize = 1024;
/// Bytes of a frame that a connection may always hold.
const FLOOR: usize = 128 * KIB;
/// Number of connections that may exceed their share at a time.
const AT_ONCE: usize = 4;
const BODY: usize = 512 * KIB;

fn options(total: usize, time: Duration) -> ServerOptions {
    ServerOptions {
        unfinished_total_bytes: total,
        unfinished_time: time,
        ..ServerOptions::default()
    }
}

fn whole(opaque: i32) -> Vec<u8> {
    frame::request(ECHO, opaque, 0, 407, &vec![1; BODY])
}

async fn with_half(server: &Running, opaque: i32) -> RawPeer {
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.send(&whole(opaque)[..BODY * 3 / 4]).await.unwrap();
    peer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_of_many_peers_take_no_more_than_allowed_and_the_late_ones_are_closed() {
    const PEERS: usize = 24;
    const LARGE: usize = 4096 * KIB;
    let total = 1024 * KIB;
    let server = Running::start(options(total, Duration::from_millis(200)));
    // One read may exceed a share by its buffer.
    let bound = total + AT_ONCE * LARGE + PEERS * (FLOOR + 512 * KIB);
    assert!(bound < PEERS * LARGE / 2);
    let half = Arc::new(frame::request(ECHO, 1, 0, 407, &vec![1; LARGE])[..LARGE * 3 / 4].to_vec());
    let peers: Vec<_> = (0..PEERS)
        .map(|_| {
            let (address, half) = (server.address, Arc::clone(&half));
            tokio::spawn(async move {
                let mut peer = RawPeer::connect(address).await.unwrap();
                // Bytes that the server does not read may wait here until it closes the connection.
                drop(peer.send(&half).await);
                peer.closed().await
            })
        })
        .collect();
    let closed = || server.stats.unfinished.load(Ordering::Relaxed);
    assert!(
        eventually(|| {
            assert!(server.unfinished.bytes() <= bound);
            closed() >= 8
        })
        .await
    );
    assert_eq!(server.unfinished.limit(), total);
    let reasons = server.seen.closed.lock().unwrap().clone();
    assert!(
        reasons
            .iter()
            .all(|reason| matches!(reason, CloseReason::PartialFrame)),
        "{reasons:?}"
    );
    // Others are served, with small frames and large ones.
    let mut good = RawPeer::connect(server.address).await.unwrap();
    for opaque in 100..110 {
        let answer = good.ask(&whole(opaque)).await.unwrap();
        assert_eq!(answer.body.len(), BODY);
    }
    for peer in &peers {
        peer.abort();
    }
    assert!(eventually(|| server.unfinished.bytes() == 0).await);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_come_to_their_end_where_all_memory_is_taken() {
    let server = Running::start(options(1, Duration::from_mins(1)));
    let mut peers = Vec::new();
    for opaque in 0..12 {
        peers.push((opaque, with_half(&server, opaque).await));
    }
    assert!(eventually(|| server.unfinished.bytes() > AT_ONCE * BODY / 2).await);
    // In reverse order of arrival: a connection in line is answered once those before it are.
    for (opaque, peer) in peers.iter_mut().rev() {
        peer.send(&whole(*opaque)[BODY * 3 / 4..]).await.unwrap();
    }
    for (opaque, peer) in &mut peers {
        let answer = peer.receive().await.unwrap();
        assert_eq!(answer.number("opaque"), Some(i64::from(*opaque)));
        assert_eq!(answer.body.len(), BODY);
    }
    assert_eq!(server.stats.unfinished.load(Ordering::Relaxed), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_connection_releases_its_memory_and_its_place() {
    let server = Running::start(options(1, Duration::from_mins(1)));
    let mut gone = Vec::new();
    for opaque in 0..8 {
        gone.push(with_half(&server, opaque).await);
    }
    assert!(eventually(|| server.unfinished.bytes() > AT_ONCE * BODY / 2).await);
    drop(gone);
    assert!(eventually(|| server.unfinished.bytes() == 0).await);
    let mut good = RawPeer::connect(server.address).await.unwrap();
    assert_eq!(good.ask(&whole(9)).await.unwrap().body.len(), BODY);
    server.stop().await;
}

#[test]
fn no_memory_at_all_is_refused() {
    let table = Arc::new(ProcessorTable::new());
    let seen = Arc::new(Seen::default());
    let none = options(0, Duration::from_secs(1));
    let refused = Server::bind("127.0.0.1:0".parse().unwrap(), none, table, seen);
    assert!(matches!(refused, Err(NetError::Option { option, .. }) if option == "unfinished_total_bytes"));
}
