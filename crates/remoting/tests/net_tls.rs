//! TLS between our client and server: modes, certificates, broken handshakes, reload.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(
    clippy::disallowed_methods,
    reason = "each test writes files and awaits tasks of its own"
)]

mod net_support;

use net_support::*;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{
    Client, ClientAuth, ClientCheck, ClientOptions, ClientTls, ClientTlsSettings, CloseReason, Identity,
    NetError, Pem, Security, Server, ServerOptions, ServerTls, ServerTlsSettings, Shutdown, SystemResolver,
    TlsError,
};
use pyrmq_testkit::{RawPeer, eventually, frame};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn trust(authority: &Authority) -> Pem {
    Pem::Text(authority.pem().into_bytes())
}

/// PEM of a certificate for these hosts, valid until this year, and of its key.
fn issued(authority: &Authority, hosts: &[&str], until: i32) -> (String, String) {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn text((certificate, key): (String, String)) -> Identity {
    Identity {
        certificate: Pem::Text(certificate.into_bytes()),
        key: Pem::Text(key.into_bytes()),
        key_password: None,
    }
}

fn local(authority: &Authority) -> Identity {
    text(issued(authority, &["localhost", "127.0.0.1"], 2999))
}

fn settings(identity: Identity) -> ServerTlsSettings {
    ServerTlsSettings {
        serves_plain: false,
        identity,
        client_auth: ClientAuth::None,
        revoked: None,
        handshake_timeout: None,
    }
}

fn secure(settings: ServerTlsSettings) -> Security {
    Security {
        server_tls: Some(Arc::new(ServerTls::new(settings).unwrap())),
        ..Security::default()
    }
}

fn serve(settings: ServerTlsSettings) -> Running {
    Running::start_secured(ServerOptions::default(), &secure(settings))
}

fn tls_client(settings: ClientTlsSettings) -> Client {
    let security = Security {
        client_tls: Some(Arc::new(ClientTls::new(settings).unwrap())),
        ..Security::default()
    };
    let handle = tokio::runtime::Handle::current();
    let table = Arc::new(table(
        &Arc::default(),
        &Arc::new(pyrmq_remoting::net::Requests::new(2)),
    ));
    let way = (Arc::new(SystemResolver) as _, security);
    Client::secured(&handle, ClientOptions::default(), table, Arc::new(()), way).unwrap()
}

fn trusting(authority: &Authority) -> Client {
    tls_client(ClientTlsSettings {
        trust: Some(trust(authority)),
        ..ClientTlsSettings::default()
    })
}

async fn echo_by(client: &Client, address: &str, body: &[u8]) -> Result<Command, NetError> {
    client.request(address, ask(ECHO, body), SECOND).await
}

/// The text of a connection that could not be opened.
async fn refusal(client: &Client, address: &str) -> String {
    match echo_by(client, address, b"x").await {
        Err(error @ NetError::Connect { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pyrmq-tls-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn write(path: &Path, text: &str) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, path).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_and_large_requests_are_answered_through_tls() {
    let authority = authority();
    let server = serve(settings(local(&authority)));
    let client = trusting(&authority);
    for size in [0, 1, 700, 16_384, 100_000, 3_000_000] {
        let body: Vec<u8> = (0..=250).cycle().take(size).collect();
        let answer = echo_by(&client, &server.at(), &body).await.unwrap();
        assert_eq!(answer.body.as_deref().unwrap_or_default(), body);
    }
    let named = format!("localhost:{}", server.address.port());
    echo_by(&client, &named, b"by name").await.unwrap();
    // Many at once: frames share records, and answers that the socket does not take at once are sent later.
    let waits: Vec<_> = (0..2000)
        .map(|_| client.call(&server.at(), ask(ECHO, &[7; 5000]), SECOND * 4))
        .collect();
    for wait in waits {
        let answer = tokio::task::block_in_place(|| wait.wait(SECOND * 4)).unwrap();
        assert_eq!(answer.unwrap().body.unwrap().len(), 5000);
    }
    assert_eq!(server.stop().await.cut, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permissive_port_serves_both_kinds() {
    let authority = authority();
    let server = serve(ServerTlsSettings {
        serves_plain: true,
        ..settings(local(&authority))
    });
    echo_by(&trusting(&authority), &server.at(), b"tls")
        .await
        .unwrap();
    echo_by(&client(ClientOptions::default()), &server.at(), b"plain")
        .await
        .unwrap();
    // A connection that has sent nothing yet does not delay a stop.
    let _silent = RawPeer::connect(server.address).await.unwrap();
    let begun = Instant::now();
    server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enforcing_port_closes_plain_connections() {
    let server = serve(settings(local(&authority())));
    let mut peer = RawPeer::connect(server.address).await.unwrap();
    peer.send(&frame::request(ECHO, 1, 0, 407, b"plain"))
        .await
        .unwrap();
    assert_eq!(peer.closed().await.unwrap(), b"");
    let seen = server.seen.clone();
    assert!(eventually(|| seen.closed() == 1).await);
    assert!(matches!(
        server.seen.closed.lock().unwrap()[0],
        CloseReason::PlainRefused
    ));
    assert_eq!(server.stats.snapshot().refused, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tls_client_never_falls_back_to_plain() {
    let server = Running::start(ServerOptions::default());
    let error = refusal(&trusting(&authority()), &server.at()).await;
    assert!(error.contains("does this port speak TLS?"), "{error}");
    assert_eq!(server.stats.snapshot().requests, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_host_or_authority_is_refused() {
    let authority = authority();
    let elsewhere = serve(settings(text(issued(&authority, &["other.example"], 2999))));
    let error = refusal(&trusting(&authority), &elsewhere.at()).await;
    assert!(error.contains("is for another host"), "{error}");
    let by_name = tls_client(ClientTlsSettings {
        trust: Some(trust(&authority)),
        server_name: Some("other.example".to_owned()),
        ..ClientTlsSettings::default()
    });
    echo_by(&by_name, &elsewhere.at(), b"x").await.unwrap();
    let error = refusal(&trusting(&self::authority()), &elsewhere.at()).await;
    assert!(error.contains("authority that is not trusted"), "{error}");
    let anybody = tls_client(ClientTlsSettings {
        trust_everybody: true,
        ..ClientTlsSettings::default()
    });
    echo_by(&anybody, &elsewhere.at(), b"x").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_show_a_certificate_where_one_is_required() {
    let authority = authority();
    let required = serve(ServerTlsSettings {
        client_auth: ClientAuth::Required(trust(&authority)),
        ..settings(local(&authority))
    });
    let optional = serve(ServerTlsSettings {
        client_auth: ClientAuth::Optional(trust(&authority)),
        ..settings(local(&authority))
    });
    let with = |identity| {
        tls_client(ClientTlsSettings {
            trust: Some(trust(&authority)),
            identity,
            ..ClientTlsSettings::default()
        })
    };
    let known = with(Some(local(&authority)));
    let unknown = with(Some(local(&self::authority())));
    let none = with(None);
    for server in [&required, &optional] {
        echo_by(&known, &server.at(), b"known").await.unwrap();
        echo_by(&unknown, &server.at(), b"unknown").await.unwrap_err();
    }
    echo_by(&none, &optional.at(), b"none").await.unwrap();
    echo_by(&none, &required.at(), b"none").await.unwrap_err();
    let seen = required.seen.clone();
    let refused = |reason: &CloseReason| matches!(reason, CloseReason::Handshake(_));
    assert!(
        eventually(|| seen
            .closed
            .lock()
            .unwrap()
            .iter()
            .filter(|reason| refused(reason))
            .count()
            >= 2)
        .await
    );
    assert_eq!(required.stats.snapshot().requests, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_handshake_ends_in_time_and_others_are_served() {
    let authority = authority();
    let server = serve(ServerTlsSettings {
        handshake_timeout: Some(Duration::from_secs(4)),
        ..settings(local(&authority))
    });
    let mut halves = Vec::new();
    for at in 0..300 {
        let mut peer = RawPeer::connect(server.address).await.unwrap();
        // The head of a record of 512 bytes, then as little as nothing.
        let bytes = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
        peer.send(&bytes[..at % 10]).await.unwrap();
        halves.push(peer);
    }
    let begun = Instant::now();
    let client = trusting(&authority);
    echo_by(&client, &server.at(), b"served").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // Some are closed in the midst of their handshake by the peer.
    halves.truncate(250);
    let seen = server.seen.clone();
    assert!(eventually(|| seen.closed() == 300).await);
    echo_by(&client, &server.at(), b"still").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_gives_up_a_handshake_that_nobody_answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client = trusting(&authority());
    let begun = Instant::now();
    let call = client.request(&address, ask(ECHO, b"x"), Duration::from_millis(300));
    assert!(matches!(call.await, Err(NetError::Timeout { sent: false, .. })));
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_files_are_read_again_under_load() {
    let folder = directory("reload");
    let file = |name: &str| folder.join(name);
    let first = authority();
    let (certificate, key) = issued(&first, &["127.0.0.1"], 2999);
    write(&file("cert.pem"), &certificate);
    write(&file("key.pem"), &key);
    write(&file("ca.pem"), &first.pem());
    let server = serve(settings(Identity {
        certificate: Pem::File(file("cert.pem")),
        key: Pem::File(file("key.pem")),
        key_password: None,
    }));
    let stays = trusting(&first);
    let follows = tls_client(ClientTlsSettings {
        trust: Some(Pem::File(file("ca.pem"))),
        ..ClientTlsSettings::default()
    });
    echo_by(&follows, &server.at(), b"x").await.unwrap();
    let (stop, address) = (Arc::new(AtomicBool::new(false)), server.at());
    let (ends, load) = (stop.clone(), stays.clone());
    let sending = tokio::spawn(async move {
        let mut sent = 0;
        while !ends.load(Ordering::Relaxed) {
            echo_by(&load, &address, &[1; 2000]).await.unwrap();
            sent += 1;
        }
        sent
    });
    // A key that does not belong to the certificate: what was in force stays.
    let second = authority();
    let (certificate, key) = issued(&second, &["127.0.0.1"], 2999);
    write(&file("cert.pem"), &certificate);
    tokio::time::sleep(Duration::from_millis(600)).await;
    echo_by(&trusting(&first), &server.at(), b"old").await.unwrap();
    // Both.
    write(&file("key.pem"), &key);
    let begun = Instant::now();
    while echo_by(&trusting(&second), &server.at(), b"new").await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(8), "not read again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The client's list of authorities.
    follows.disconnect(&server.at());
    write(&file("ca.pem"), &second.pem());
    let begun = Instant::now();
    while echo_by(&follows, &server.at(), b"new").await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(8), "not read again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    assert!(sending.await.unwrap() > 10);
    // The connection under load is still the one from before.
    echo_by(&stays, &server.at(), b"open").await.unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_ends_its_connections_cleanly() {
    let authority = authority();
    let security = secure(settings(local(&authority)));
    let table = Arc::new(table(
        &Arc::default(),
        &Arc::new(pyrmq_remoting::net::Requests::new(2)),
    ));
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(any, ServerOptions::default(), table, Arc::new(())).unwrap();
    let server = server.secured(&security);
    let (address, shutdown) = (server.local_addr().to_string(), Shutdown::new());
    let run = tokio::spawn(server.run(shutdown.clone()));
    let client = trusting(&authority);
    let mut big = Command::request(BIG);
    big.fields = std::iter::once(("bytes", "4000000")).collect();
    let answer = client.request(&address, big, SECOND).await.unwrap();
    assert_eq!(answer.body.unwrap().len(), 4_000_000);
    shutdown.stop();
    assert_eq!(run.await.unwrap().unwrap().cut, 0);
}

#[test]
fn certificates_and_keys_that_cannot_be_used_are_refused() {
    let authority = authority();
    let (certificate, key) = issued(&authority, &["localhost"], 2999);
    let other = KeyPair::generate().unwrap().serialize_pem();
    let error = |identity: Identity| ServerTls::new(settings(identity)).unwrap_err();
    let said =
        |certificate: &str, key: &str| error(text((certificate.to_owned(), key.to_owned()))).to_string();
    let expired = issued(&authority, &["localhost"], 2020);
    assert!(
        error(text(expired))
            .to_string()
            .contains("it expired at 2020-01-01")
    );
    assert!(said(&certificate, &other).contains("does not belong to the certificate"));
    assert!(said(&certificate, "nothing").contains("it has no private key"));
    assert!(said("nothing", &key).contains("it has no certificate"));
    let missing = Identity {
        certificate: Pem::File("/nowhere/cert.pem".into()),
        ..text((certificate, key))
    };
    let missing = error(missing);
    assert!(matches!(missing, TlsError::Read { .. }), "{missing:?}");
    assert!(missing.to_string().contains("/nowhere/cert.pem"), "{missing}");
}

/// A P-256 key as `openssl pkcs8 -topk8 -v2 aes-256-cbc` writes it; its password is `open sesame`.
const ENCRYPTED_KEY: &str = include_str!("golden/tls/encrypted-key.pem");
const ITS_CERTIFICATE: &str = include_str!("golden/tls/certificate.pem");

#[test]
fn an_encrypted_key_needs_its_password() {
    let with = |password: Option<&str>| {
        ServerTls::new(settings(Identity {
            certificate: Pem::Text(ITS_CERTIFICATE.into()),
            key: Pem::Text(ENCRYPTED_KEY.into()),
            key_password: password.map(str::to_owned),
        }))
    };
    with(Some("open sesame")).unwrap();
    let text = with(None).unwrap_err().to_string();
    assert!(text.contains("it is encrypted"), "{text}");
    let text = with(Some("wrong secret")).unwrap_err().to_string();
    assert!(text.contains("its password is wrong"), "{text}");
    assert!(!text.contains("wrong secret"), "{text}");
}

/// A certificate of this number.
fn numbered(authority: &Authority, number: u64) -> Identity {
    let (certificate, key) = certificate_of(authority, number);
    text((certificate.pem(), key.serialize_pem()))
}

fn numbered_der(authority: &Authority, number: u64) -> Vec<u8> {
    certificate_of(authority, number).0.der().to_vec()
}

fn certificate_of(authority: &Authority, number: u64) -> (rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(number));
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate, key)
}

fn revoking(authority: &Authority, numbers: &[u64]) -> String {
    revoking_until(authority, numbers, 2999)
}

/// A list that is out of date from this year on.
fn revoking_until(authority: &Authority, numbers: &[u64], year: i32) -> String {
    let revoked = |number: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*number),
        revocation_time: date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(year, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: numbers.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(authority).unwrap().pem().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_certificates_are_refused_on_both_sides_and_lists_are_read_again() {
    let (authority, folder) = (authority(), directory("revoked"));
    let file = |name: &str| folder.join(name);
    write(&file("clients.crl"), &revoking(&authority, &[2]));
    write(&file("servers.crl"), &revoking(&authority, &[3]));
    let server = serve(ServerTlsSettings {
        client_auth: ClientAuth::Required(trust(&authority)),
        revoked: Some(Pem::File(file("clients.crl"))),
        ..settings(numbered(&authority, 1))
    });
    let by = |number: u64| {
        tls_client(ClientTlsSettings {
            trust: Some(trust(&authority)),
            revoked: Some(Pem::File(file("servers.crl"))),
            identity: Some(numbered(&authority, number)),
            ..ClientTlsSettings::default()
        })
    };
    let good = by(4);
    echo_by(&good, &server.at(), b"good").await.unwrap();
    echo_by(&by(2), &server.at(), b"revoked").await.unwrap_err();
    // The list changes: new connections of the client are refused, its open one stays.
    write(&file("clients.crl"), &revoking(&authority, &[2, 4]));
    let begun = Instant::now();
    while echo_by(&by(4), &server.at(), b"x").await.is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(8), "not read again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    echo_by(&good, &server.at(), b"open").await.unwrap();

    let revoked = serve(settings(numbered(&authority, 3)));
    let error = refusal(&by(5), &revoked.at()).await;
    assert!(error.contains("was revoked"), "{error}");
    // An authority without a list could revoke nothing.
    let other = self::authority();
    let unlisted = tls_client(ClientTlsSettings {
        trust: Some(trust(&other)),
        revoked: Some(Pem::Text(revoking(&authority, &[]).into_bytes())),
        ..ClientTlsSettings::default()
    });
    let elsewhere = serve(settings(numbered(&other, 1)));
    refusal(&unlisted, &elsewhere.at()).await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_out_of_date_refuses_whom_it_names_and_nobody_else() {
    let authority = authority();
    let old = Pem::Text(revoking_until(&authority, &[2], 2025).into_bytes());
    let server = serve(ServerTlsSettings {
        client_auth: ClientAuth::Required(trust(&authority)),
        revoked: Some(old.clone()),
        ..settings(numbered(&authority, 1))
    });
    let by = |number: u64| {
        tls_client(ClientTlsSettings {
            trust: Some(trust(&authority)),
            revoked: Some(old.clone()),
            identity: Some(numbered(&authority, number)),
            ..ClientTlsSettings::default()
        })
    };
    echo_by(&by(4), &server.at(), b"good").await.unwrap();
    echo_by(&by(2), &server.at(), b"revoked").await.unwrap_err();
    let check = ClientCheck::new(trust(&authority), old).unwrap();
    let refusal = |number| check.refusal(&[numbered_der(&authority, number)]);
    assert_eq!(refusal(4), None);
    assert!(refusal(2).unwrap().contains("Revoked"));
    assert!(check.refusal(&[]).is_some());
    let other = self::authority();
    assert!(check.refusal(&[numbered_der(&other, 4)]).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_off_by_a_day_is_named_as_the_cause() {
    let authority = authority();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2998, 1, 1);
    params.not_after = date_time_ymd(2999, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let early = text((certificate.pem(), key.serialize_pem()));
    let error = ServerTls::new(settings(early)).unwrap_err().to_string();
    assert!(error.contains("it is not valid before 2998-01-01"), "{error}");
    assert!(error.contains("check the clock"), "{error}");
}

#[test]
fn a_chain_out_of_order_and_a_list_that_is_none_are_refused() {
    let named = |name: &str, issuer: Option<&Authority>| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        match issuer {
            Some(issuer) => CertifiedIssuer::signed_by(params, key, issuer).unwrap(),
            None => CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    };
    let root = named("root", None);
    let middle = named("middle", Some(&root));
    let (own, key) = issued(&middle, &["localhost"], 2999);
    let with = |parts: &[&str]| ServerTls::new(settings(text((parts.concat(), key.clone()))));
    with(&[&own, &middle.pem(), &root.pem()]).unwrap();
    with(&[&own, &middle.pem()]).unwrap();
    for parts in [
        [&own, &root.pem(), &middle.pem()],
        [&middle.pem(), &own, &root.pem()],
    ] {
        let parts: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
        let error = with(&parts).unwrap_err().to_string();
        assert!(error.contains("chain is out of order"), "{error}");
    }
    let error = ServerTls::new(ServerTlsSettings {
        client_auth: ClientAuth::Required(trust(&root)),
        revoked: Some(Pem::Text(b"nothing".to_vec())),
        ..settings(text((own, key.clone())))
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("it has no list in PEM form"), "{error}");
}
