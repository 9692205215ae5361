//! Batches: work that requests of one read share is done once, before their answers are written.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "each test awaits its own tasks")]

use pyrmq_remoting::Command;
use pyrmq_remoting::net::{
    BatchProcessor, Peer, Processor, ProcessorTable, Reply, RequestBatch, Server, ServerOptions, Shutdown,
};
use pyrmq_testkit::{RawPeer, frame};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SHARED: i32 = 9001;
const PLAIN: i32 = 9002;

/// Keeps its replies until the batch ends.
#[derive(Default)]
struct Sharing {
    kept: Mutex<Vec<Reply>>,
    ends: AtomicU64,
}

impl Sharing {
    fn end(&self) {
        self.ends.fetch_add(1, Ordering::Relaxed);
        for reply in std::mem::take(&mut *self.kept.lock().unwrap()) {
            reply.send(Command::response(0));
        }
    }
}

type End = Arc<dyn Fn(&Sharing) + Send + Sync>;

/// All connections share what is kept, and what ends their batches.
#[derive(Clone)]
struct Rows(Arc<Sharing>, End);

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rows")
    }
}

impl BatchProcessor for Rows {
    fn batch(&self) -> Box<dyn RequestBatch> {
        Box::new(self.clone())
    }
}

impl RequestBatch for Rows {
    fn process(&mut self, _request: Command, _peer: &Peer, reply: Reply) {
        self.0.kept.lock().unwrap().push(reply);
    }

    fn end(&mut self) {
        (self.1)(&self.0);
    }
}

fn start(end: impl Fn(&Sharing) + Send + Sync + 'static) -> (SocketAddr, Arc<Sharing>, Shutdown) {
    start_with(ServerOptions::default(), end)
}

fn start_with(
    options: ServerOptions,
    end: impl Fn(&Sharing) + Send + Sync + 'static,
) -> (SocketAddr, Arc<Sharing>, Shutdown) {
    let sharing = Arc::new(Sharing::default());
    let mut table = ProcessorTable::new();
    let plain: Arc<dyn Processor> = Arc::new(|_: Command, _: &Peer, reply: Reply| {
        reply.send(Command::response(0));
    });
    table
        .batched(&[SHARED], Arc::new(Rows(sharing.clone(), Arc::new(end))))
        .native(&[PLAIN], &plain);
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(address, options, Arc::new(table), Arc::new(())).unwrap();
    let (address, shutdown) = (server.local_addr(), Shutdown::new());
    tokio::task::spawn(server.run(shutdown.clone()));
    (address, sharing, shutdown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_together_share_their_end() {
    let (address, sharing, shutdown) = start(Sharing::end);
    let mut peer = RawPeer::connect(address).await.unwrap();
    let mut bytes = Vec::new();
    for opaque in 0..100 {
        bytes.extend(frame::request(SHARED, opaque, 0, 407, &[1; 300]));
    }
    peer.send(&bytes).await.unwrap();
    for opaque in 0..100 {
        assert_eq!(peer.receive().await.unwrap().number("opaque"), Some(opaque));
    }
    let ends = sharing.ends.load(Ordering::Relaxed);
    assert!((1..100).contains(&ends), "{ends} ends for 100 requests");
    let answer = peer.ask(&frame::request(PLAIN, 1, 0, 407, b"")).await.unwrap();
    assert_eq!(answer.code(), Some(0));
    assert_eq!(
        sharing.ends.load(Ordering::Relaxed),
        ends,
        "a batch without such a row has no end"
    );
    shutdown.stop_now();
}

/// More than one poll handles: each poll ends its own batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_batch_ends_with_each_poll() {
    let (address, sharing, shutdown) = start(Sharing::end);
    let mut peer = RawPeer::connect(address).await.unwrap();
    let mut bytes = Vec::new();
    for opaque in 0..3000 {
        bytes.extend(frame::request(SHARED, opaque, 0, 407, b""));
    }
    peer.send(&bytes).await.unwrap();
    for opaque in 0..3000 {
        assert_eq!(peer.receive().await.unwrap().number("opaque"), Some(opaque));
    }
    assert!(sharing.ends.load(Ordering::Relaxed) > 1);
    shutdown.stop_now();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_batch_took_longer_to_end_than_it_may_be_idle_stays_open() {
    let idle = Duration::from_secs(1);
    let mut options = ServerOptions::default();
    options.connection.idle = idle;
    let (address, _, shutdown) = start_with(options, move |sharing| {
        std::thread::sleep(idle + idle / 5);
        sharing.end();
    });
    let mut peer = RawPeer::connect(address).await.unwrap();
    for code in [SHARED, PLAIN] {
        let answer = peer.ask(&frame::request(code, 1, 0, 407, b"")).await.unwrap();
        assert_eq!(answer.code(), Some(0));
        tokio::time::sleep(idle / 5).await;
    }
    shutdown.stop_now();
}

/// Invalid bytes after valid requests: the batch of the valid ones is still ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ends_ends_its_batch() {
    let (address, sharing, shutdown) = start(Sharing::end);
    let mut peer = RawPeer::connect(address).await.unwrap();
    let mut bytes = frame::request(SHARED, 1, 0, 407, b"");
    bytes.extend([0xff; 64]);
    peer.send(&bytes).await.unwrap();
    assert!(pyrmq_testkit::eventually(|| sharing.ends.load(Ordering::Relaxed) == 1).await);
    assert!(sharing.kept.lock().unwrap().is_empty());
    shutdown.stop_now();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_panics_leaves_the_connection_alive() {
    let (address, sharing, shutdown) = start(|sharing| {
        sharing.end();
        panic!("an end that panics on purpose");
    });
    let mut peer = RawPeer::connect(address).await.unwrap();
    for opaque in 0..3 {
        let answer = peer
            .ask(&frame::request(SHARED, opaque, 0, 407, b""))
            .await
            .unwrap();
        assert_eq!(answer.number("opaque"), Some(i64::from(opaque)));
    }
    assert_eq!(sharing.ends.load(Ordering::Relaxed), 3);
    shutdown.stop_now();
}
