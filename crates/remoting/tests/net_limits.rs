//! How much one client may use, and how failed logins are slowed; a balancer's header gives clients their addresses.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "each test awaits tasks of its own")]

mod net_support;

use net_support::*;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response::{NO_PERMISSION, SYSTEM_BUSY};
use pyrmq_remoting::net::{
    AdminPort, ClientLimits, Limits, Network, Peer, ProxySources, RateLimits, Refused, RequestCheck,
    Requests, Security, Server, ServerOptions, Shutdown,
};
use pyrmq_testkit::{RawPeer, eventually, frame};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(400);
const BUSY: Option<i64> = Some(SYSTEM_BUSY as i64);
const REFUSAL: Option<i64> = Some(NO_PERMISSION as i64);

/// Believes a request if its body begins with `good`; its user is the body.
#[derive(Debug)]
struct GoodBodies;

impl RequestCheck for GoodBodies {
    fn check(&self, request: &Command, _: &Peer) -> Option<Refused> {
        let body = request.body.as_deref().unwrap_or_default();
        (!body.starts_with(b"good")).then(|| Refused {
            answer: Command::error(NO_PERMISSION, "authentication failed"),
            why: "a bad body".to_owned(),
            is_failed_login: true,
        })
    }

    fn user<'r>(&self, request: &'r Command) -> Option<&'r str> {
        std::str::from_utf8(request.body.as_deref()?).ok()
    }

    fn may(&self, _: &str, _: &Command, _: IpAddr) -> bool {
        true
    }
}

fn security(limits: ClientLimits) -> Security {
    let balancer = vec![Network::parse("127.0.0.1").unwrap()];
    Security {
        limits: Limits::new(limits),
        proxy_sources: ProxySources::new(balancer).map(Arc::new),
        ..Security::default()
    }
}

fn serve(limits: ClientLimits) -> Running {
    Running::start_secured(ServerOptions::default(), &security(limits))
}

/// A connection of the client with this address.
async fn client_at(server: &Running, address: &str) -> RawPeer {
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    let header = format!("PROXY TCP4 {address} 127.0.0.1 1 2\r\n");
    peer.send(header.as_bytes()).await.unwrap();
    peer
}

async fn echo(peer: &mut RawPeer, body: &[u8]) -> Option<i64> {
    let request = frame::request(ECHO, 1, 0, 407, body);
    peer.ask(&request).await.unwrap().code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_so_many_connections_and_others_theirs() {
    let server = serve(ClientLimits {
        connections_per_address: 2,
        ..ClientLimits::default()
    });
    let mut first = client_at(&server, "192.0.2.7").await;
    let mut second = client_at(&server, "192.0.2.7").await;
    for peer in [&mut first, &mut second] {
        assert_eq!(echo(peer, b"x").await, Some(0));
    }
    let mut third = client_at(&server, "192.0.2.7").await;
    assert_eq!(third.closed().await.unwrap(), b"");
    let mut other = client_at(&server, "192.0.2.8").await;
    assert_eq!(echo(&mut other, b"x").await, Some(0));
    assert_eq!(server.stats.snapshot().refused, 1);
    drop(first);
    let seen = server.seen.clone();
    assert!(eventually(|| seen.closed() == 1).await);
    let mut next = client_at(&server, "192.0.2.7").await;
    assert_eq!(echo(&mut next, b"x").await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_a_rate_are_answered_busy_on_all_connections_of_an_address() {
    let server = serve(ClientLimits {
        address: RateLimits {
            requests: 20,
            bytes: 0,
        },
        ..ClientLimits::default()
    });
    let mut peers = [
        client_at(&server, "192.0.2.7").await,
        client_at(&server, "192.0.2.7").await,
    ];
    let begun = Instant::now();
    let mut answers = Vec::new();
    for at in 0..60 {
        answers.push(echo(&mut peers[at % 2], b"x").await);
    }
    let served = answers.iter().filter(|code| **code == Some(0)).count();
    let most = 20 + usize::try_from(begun.elapsed().as_millis()).unwrap() / 50 + 1;
    assert!((20..=most).contains(&served), "{served} of at most {most}");
    assert_eq!(answers.iter().filter(|code| **code == BUSY).count(), 60 - served);
    let mut other = client_at(&server, "192.0.2.8").await;
    assert_eq!(echo(&mut other, b"x").await, Some(0));
    // A second later the bucket has filled again, on a new connection, too.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut again = client_at(&server, "192.0.2.7").await;
    assert_eq!(echo(&mut again, b"x").await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_beyond_a_rate_refuse_requests_until_they_are_paid() {
    let server = serve(ClientLimits {
        address: RateLimits {
            requests: 0,
            bytes: 100_000,
        },
        ..ClientLimits::default()
    });
    let mut peer = client_at(&server, "192.0.2.7").await;
    // The bytes of an answer count as well: 60,000 in and 60,000 out.
    assert_eq!(echo(&mut peer, &vec![7; 60_000]).await, Some(0));
    assert_eq!(echo(&mut peer, b"x").await, BUSY);
    drop(peer);
    let mut again = client_at(&server, "192.0.2.7").await;
    assert_eq!(echo(&mut again, b"x").await, BUSY);
    let mut other = client_at(&server, "192.0.2.8").await;
    assert_eq!(echo(&mut other, b"x").await, Some(0));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(echo(&mut again, b"x").await, Some(0));
}

fn checked(limits: ClientLimits) -> Running {
    let seen = Arc::new(Seen::default());
    let requests = Arc::new(Requests::new(2));
    let security = Security {
        check: Some(Arc::new(GoodBodies)),
        ..security(limits)
    };
    let mut table = table(&seen, &requests);
    table.secured_by(&security);
    Running::start_with(ServerOptions::default(), &security, table, seen, requests)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_has_one_rate_from_all_addresses() {
    let server = checked(ClientLimits {
        user: RateLimits {
            requests: 5,
            bytes: 0,
        },
        ..ClientLimits::default()
    });
    let mut here = client_at(&server, "192.0.2.7").await;
    let mut there = client_at(&server, "192.0.2.8").await;
    let (begun, mut served) = (Instant::now(), 0);
    for _ in 0..10 {
        served += u128::from(echo(&mut here, b"good-bob").await == Some(0));
        served += u128::from(echo(&mut there, b"good-bob").await == Some(0));
    }
    let most = 5 + begun.elapsed().as_millis() / 200 + 1;
    assert!((5..=most).contains(&served), "{served} of at most {most}");
    assert_eq!(echo(&mut here, b"good-eve").await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_logins_wait_longer_and_longer_and_nobody_else_does() {
    let server = checked(ClientLimits {
        failed_login_delay: DELAY,
        ..ClientLimits::default()
    });
    let mut guesser = client_at(&server, "192.0.2.7").await;
    let mut waits = Vec::new();
    for _ in 0..8 {
        let begun = Instant::now();
        assert_eq!(echo(&mut guesser, b"bad").await, REFUSAL);
        waits.push(begun.elapsed());
    }
    for (wait, least) in waits.iter().zip([0, 0, 0, 100, 200, 400, 400, 400]) {
        assert!(*wait >= Duration::from_millis(least), "{waits:?}");
    }
    // One of three: a busy machine adds to any of them.
    for (some, most) in [(&waits[..3], 350), (&waits[5..], 750)] {
        let shortest = some.iter().min().unwrap();
        assert!(*shortest < Duration::from_millis(most), "{waits:?}");
    }
    // Many guesses at once on one connection are checked one after the other.
    let guesses = frame::request(ECHO, 1, 0, 407, b"bad").repeat(50);
    guesser.send(&guesses).await.unwrap();
    let begun = Instant::now();
    let mut same_host = client_at(&server, "192.0.2.7").await;
    let mut other = client_at(&server, "192.0.2.8").await;
    for _ in 0..20 {
        assert_eq!(echo(&mut same_host, b"good").await, Some(0));
        assert_eq!(echo(&mut other, b"good").await, Some(0));
    }
    // Forty of their delays would be 16 s.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(server.stats.snapshot().requests < 60);
    // A stop does not wait for them.
    let begun = Instant::now();
    drop((same_host, other));
    let stop = tokio::spawn(server.stop());
    guesser.receive().await.unwrap();
    drop(guesser);
    stop.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_administrators_are_refused_where_another_port_serves_them() {
    let security = Security {
        admin: Some(Arc::new(AdminPort {
            address: "127.0.0.1:10918".parse().unwrap(),
            codes: [ECHO].into_iter().collect(),
        })),
        ..Security::default()
    };
    let (seen, requests) = (Arc::new(Seen::default()), Arc::new(Requests::new(2)));
    let mut table = table(&seen, &requests);
    table.secured_by(&security).without_administration(&security);
    let server = Server::bind(
        "127.0.0.1:0".parse().unwrap(),
        ServerOptions::default(),
        Arc::new(table),
        seen,
    );
    let server = server.unwrap().secured(&security);
    let (address, shutdown) = (server.local_addr(), Shutdown::new());
    let run = tokio::spawn(server.run(shutdown.clone()));
    let mut peer = RawPeer::connect(address).await.unwrap();
    let answer = peer.ask(&frame::request(ECHO, 1, 0, 407, b"x")).await.unwrap();
    assert_eq!(answer.code(), REFUSAL);
    assert!(answer.text().contains("127.0.0.1:10918"), "{}", answer.text());
    let big = frame::request(SILENT, 2, 1, 407, b"x");
    peer.send(&big).await.unwrap();
    shutdown.stop();
    run.await.unwrap().unwrap();
}
