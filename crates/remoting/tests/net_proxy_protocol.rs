//! PROXY headers in front of connections: whose address counts, how bytes may be cut, and who is refused.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "each test awaits tasks of its own")]

mod net_support;

use net_support::*;
use proptest::prelude::*;
use pyrmq_remoting::net::{
    ClientAuth, CloseReason, Identity, Network, Pem, ProxySources, Security, ServerOptions, ServerTls,
    ServerTlsSettings,
};
use pyrmq_testkit::{RawPeer, eventually, frame};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

const TEXT: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 10911\r\n";
const CLIENT: &str = "192.0.2.7:40000";

fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, rest].concat()
}

/// Version 2 for `CLIENT`, with these bytes behind its addresses.
fn v4(tlvs: &[u8]) -> Vec<u8> {
    let addresses = [192, 0, 2, 7, 198, 51, 100, 1, 0x9c, 0x40, 0x2a, 0x9f];
    binary(0x21, 0x11, &[&addresses[..], tlvs].concat())
}

fn trusting(networks: &[&str]) -> Security {
    let networks = networks.iter().map(|text| Network::parse(text).unwrap());
    Security {
        proxy_sources: ProxySources::new(networks.collect()).map(Arc::new),
        ..Security::default()
    }
}

fn serve() -> Running {
    Running::start_secured(ServerOptions::default(), &trusting(&["127.0.0.1", "10.0.0.0/8"]))
}

fn echo_request() -> Vec<u8> {
    frame::request(ECHO, 7, 0, 407, b"served")
}

/// Sends a header and a request in these parts, and returns the address that the server sees.
async fn seen_by(server: &Running, parts: &[&[u8]]) -> io::Result<SocketAddr> {
    let before = server.seen.opened();
    let mut peer = RawPeer::connect(server.address).await?;
    for part in parts {
        peer.send(part).await?;
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.receive().await?.body, b"served");
    Ok(server.seen.peer(before).remote())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_sees_the_address_of_the_header() {
    let server = serve();
    let request = echo_request();
    let mut six = [0; 36];
    (six[0], six[15], six[33]) = (0xfd, 9, 80);
    let named: &[(Vec<u8>, &str)] = &[
        (TEXT.to_vec(), CLIENT),
        (b"PROXY TCP6 fd00::9 ::1 80 1\r\n".to_vec(), "[fd00::9]:80"),
        (v4(&[]), CLIENT),
        (v4(&[4, 0, 1, 0, 0x20, 0, 0]), CLIENT),
        (v4(&[[4, 0x0f, 0x00].as_slice(), &[0; 0x0f00]].concat()), CLIENT),
        (binary(0x21, 0x21, &six), "[fd00::9]:80"),
    ];
    for (header, client) in named {
        let seen = seen_by(&server, &[header, &request]).await.unwrap();
        assert_eq!(seen, client.parse().unwrap());
    }
    // The balancer's own connections, and those of which it says nothing.
    for header in [
        &b"PROXY UNKNOWN\r\n"[..],
        b"PROXY UNKNOWN 192.0.2.7 198.51.100.1 1 2\r\n",
        &binary(0x20, 0, &[]),
        &binary(0x20, 0x11, &[1; 12]),
        &binary(0x21, 0, &[]),
        &binary(0x21, 0x31, &[0; 216]),
        b"",
    ] {
        let seen = seen_by(&server, &[header, &request]).await.unwrap();
        assert!(seen.ip().is_loopback(), "{seen}");
    }
    let snapshot = server.stats.snapshot();
    assert_eq!((snapshot.refused, snapshot.malformed), (0, 0));
    assert_eq!(server.stop().await.cut, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_may_be_cut_at_every_byte() {
    let server = serve();
    let request = echo_request();
    for header in [TEXT.to_vec(), v4(&[4, 0, 1, 0])] {
        let whole = [header.as_slice(), &request].concat();
        for at in 0..header.len() + 9 {
            let (one, two) = whole.split_at(at);
            assert_eq!(
                seen_by(&server, &[one, two]).await.unwrap(),
                CLIENT.parse().unwrap()
            );
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(seen_by(&server, &bytes).await.unwrap(), CLIENT.parse().unwrap());
    }
}

fn header_and_cuts() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let text = (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| {
        format!(
            "PROXY TCP4 {} 127.0.0.1 {port} 1\r\n",
            std::net::Ipv4Addr::from(ip)
        )
        .into_bytes()
    });
    let padding = (0..2000u16).prop_map(|length| {
        let tlv = [&[4][..], &length.to_be_bytes(), &vec![9; length.into()]].concat();
        v4(&tlv)
    });
    (
        prop_oneof![text, padding],
        prop::collection::vec(1..80usize, 0..12),
    )
}

#[test]
fn headers_in_any_parts_are_read() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(async { serve() });
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(128));
    runner
        .run(&header_and_cuts(), |(header, cuts)| {
            let whole = [header.as_slice(), &echo_request()].concat();
            let (mut rest, mut parts) = (whole.as_slice(), Vec::new());
            for cut in cuts {
                let (part, after) = rest.split_at(cut.min(rest.len()));
                parts.push(part);
                rest = after;
            }
            parts.push(rest);
            let seen = runtime.block_on(seen_by(&server, &parts));
            prop_assert!(seen.is_ok(), "{seen:?}");
            Ok(())
        })
        .unwrap();
    assert_eq!(server.stats.snapshot().refused, 0);
}

/// Sends bytes and waits for the end of the connection.
async fn ends(server: &Running, bytes: &[u8]) {
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    // The server may close while the rest is on its way.
    drop(peer.send(bytes).await);
    assert_eq!(peer.closed().await.unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_header_closes_the_connection() {
    let server = serve();
    let long = [&b"PROXY UNKNOWN "[..], &[b'x'; 200], b"\r\n"].concat();
    let wrong: &[&[u8]] = &[
        &long,
        b"PROXY TCP4 192.0.2.7 198.51.100.1 40000\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 70000\r\n",
        b"PROXY TCP4 fd00::1 fd00::2 1 2\r\n",
        b"PROXY\n",
        b"P\0\0\0\0\0\0\0\0\0\0\n",
        b"\r\n\r\n\0\r\nQUIX\n\x21\x11\0\x0c",
        &binary(0x31, 0x11, &[0; 12]),
        &binary(0x21, 0x12, &[0; 12]),
        &binary(0x21, 0x11, &[0; 11]),
        &v4(&[4, 0, 9]),
        &v4(&[3, 0, 4, 1, 2, 3, 4]),
        &[&binary(0x21, 0x11, &[])[..14], &[0xff, 0xff]].concat(),
    ];
    for bytes in wrong {
        ends(&server, bytes).await;
    }
    let (stats, count) = (server.stats.clone(), wrong.len() as u64);
    assert!(eventually(|| stats.snapshot().refused == count).await);
    // Nothing was served, and no processor heard of a connection.
    assert_eq!((server.seen.opened(), server.seen.closed()), (0, 0));
    assert_eq!(server.stats.snapshot().requests, 0);
    seen_by(&server, &[TEXT, &echo_request()]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_from_elsewhere_is_refused() {
    for security in [Security::default(), trusting(&["192.0.2.0/24", "fd00::/8"])] {
        let server = Running::start_secured(ServerOptions::default(), &security);
        for header in [TEXT, &v4(&[])] {
            ends(&server, &[header, &echo_request()].concat()).await;
        }
        let seen = server.seen.clone();
        assert!(eventually(|| seen.closed() == 2).await);
        let refused = |reason: &CloseReason| matches!(reason, CloseReason::ProxyProtocol);
        assert!(seen.closed.lock().unwrap().iter().all(refused));
        assert_eq!(
            (server.stats.snapshot().refused, server.stats.snapshot().requests),
            (2, 0)
        );
        let own = seen_by(&server, &[&echo_request()]).await.unwrap();
        assert!(own.ip().is_loopback());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_the_rest_of_a_header() {
    let server = serve();
    let mut peers = Vec::new();
    for part in [&b""[..], b"P", &TEXT[..40], &v4(&[])[..15], &v4(&[])[..20]] {
        let mut peer = RawPeer::connect(server.address).await.unwrap();
        peer.send(part).await.unwrap();
        peers.push(peer);
    }
    let stats = server.stats.clone();
    assert!(eventually(|| stats.snapshot().opened == 5).await);
    let begun = Instant::now();
    server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

fn identity() -> Identity {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    Identity {
        certificate: Pem::Text(params.self_signed(&key).unwrap().pem().into_bytes()),
        key: Pem::Text(key.serialize_pem().into_bytes()),
        key_password: None,
    }
}

fn serve_tls(serves_plain: bool, limit: Duration) -> Running {
    let tls = ServerTls::new(ServerTlsSettings {
        serves_plain,
        identity: identity(),
        client_auth: ClientAuth::None,
        revoked: None,
        handshake_timeout: Some(limit),
    });
    let security = Security {
        server_tls: Some(Arc::new(tls.unwrap())),
        ..trusting(&["127.0.0.1"])
    };
    Running::start_secured(ServerOptions::default(), &security)
}

/// Relays one connection to a server, with a header in front, byte by byte.
async fn balancer(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut from, _) = listener.accept().await.unwrap();
        let mut to = TcpStream::connect(server).await.unwrap();
        to.set_nodelay(true).unwrap();
        for byte in v4(&[]) {
            to.write_all(&[byte]).await.unwrap();
        }
        drop(copy_bidirectional(&mut from, &mut to).await);
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_header_comes_before_the_handshake() {
    for serves_plain in [false, true] {
        let server = serve_tls(serves_plain, SECOND);
        let tls = pyrmq_remoting::net::ClientTls::new(pyrmq_remoting::net::ClientTlsSettings {
            trust_everybody: true,
            ..Default::default()
        });
        let security = Security {
            client_tls: Some(Arc::new(tls.unwrap())),
            ..Security::default()
        };
        let requests = Arc::new(pyrmq_remoting::net::Requests::new(2));
        let client = pyrmq_remoting::net::Client::secured(
            &tokio::runtime::Handle::current(),
            pyrmq_remoting::net::ClientOptions::default(),
            Arc::new(table(&Arc::default(), &requests)),
            Arc::new(()),
            (Arc::new(pyrmq_remoting::net::SystemResolver) as _, security),
        )
        .unwrap();
        let address = balancer(server.address).await.to_string();
        let answer = client.request(&address, ask(ECHO, b"tls"), SECOND).await.unwrap();
        assert_eq!(answer.body.as_deref(), Some(&b"tls"[..]));
        assert_eq!(server.seen.peer(0).remote(), CLIENT.parse().unwrap());
    }
    // Plain bytes behind a header: the mode decides, as without one.
    let permissive = serve_tls(true, SECOND);
    let seen = seen_by(&permissive, &[TEXT, &echo_request()]).await.unwrap();
    assert_eq!(seen, CLIENT.parse().unwrap());
    let enforcing = serve_tls(false, SECOND);
    ends(&enforcing, &[TEXT, &echo_request()].concat()).await;
    let seen = enforcing.seen.clone();
    assert!(eventually(|| seen.closed() == 1).await);
    assert!(matches!(
        seen.closed.lock().unwrap()[0],
        CloseReason::PlainRefused
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn header_and_handshake_share_one_time_limit() {
    let server = serve_tls(false, Duration::from_millis(600));
    let mut halves = Vec::new();
    let begun = Instant::now();
    for bytes in [
        &b""[..],
        b"PROXY TCP4 ",
        &v4(&[])[..20],
        TEXT,
        &[TEXT, &[0x16, 3, 1]].concat(),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        halves.push(stream);
    }
    // One that sends its header late and slowly has no more time for its handshake than the others.
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    for byte in TEXT {
        tokio::time::sleep(Duration::from_millis(8)).await;
        // On a busy machine its time is over before the header's end.
        drop(slow.write_all(&[*byte]).await);
    }
    drop(slow.write_all(&[0x16, 3, 1]).await);
    halves.push(slow);
    for mut half in halves {
        drop(half.read_to_end(&mut Vec::new()).await);
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let stats = server.stats.clone();
    assert!(eventually(|| stats.snapshot().refused == 6).await);
}
