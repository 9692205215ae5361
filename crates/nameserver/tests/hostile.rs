//! Hostile or broken peers: others are still served, and the tables stay consistent.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::Bytes;
use pyrmq_nameserver::{NameServer, Options};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, DataVersion, RegisterBrokerBody, TopicConfig};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Client, ClientOptions, NetError, ProcessorTable};
use pyrmq_testkit::{RawPeer, eventually, frame};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(30);
const MIB: usize = 1024 * 1024;

fn start() -> Arc<NameServer> {
    let options = Options {
        listen_port: 0,
        bind_address: "127.0.0.1".into(),
        ..Options::default()
    };
    NameServer::start(options, &Handle::current(), None, &[]).unwrap()
}

fn client() -> Client {
    let (handle, options) = (Handle::current(), ClientOptions::default());
    Client::new(&handle, options, Arc::new(ProcessorTable::new())).unwrap()
}

async fn ask(client: &Client, server: &NameServer, command: Command) -> Result<Command, NetError> {
    client.request(&server.address().to_string(), command, WAIT).await
}

fn body(topics: usize) -> RegisterBrokerBody {
    let mut body = RegisterBrokerBody::default();
    let wrapper = &mut body.topic_config_serialize_wrapper;
    wrapper.data_version = DataVersion {
        counter: 1,
        state_version: 0,
        timestamp: 7,
    };
    let names = (0..topics).map(|number| format!("topic-{number}"));
    wrapper.topic_config_table = names
        .map(|name| (name.clone(), TopicConfig::new(name, 8, 6)))
        .collect();
    body
}

fn registration(name: &str, address: &str, body: impl Into<Bytes>) -> Command {
    Command::request(request::REGISTER_BROKER)
        .with_field("brokerName", name)
        .with_field("brokerAddr", address)
        .with_field("clusterName", "C")
        .with_field("haServerAddr", "10.0.0.1:10912")
        .with_field("brokerId", "0")
        .with_field("compressed", "false")
        .with_body(body)
}

/// Registers a good broker and checks the answer for its route.
async fn serves(server: &NameServer, client: &Client) {
    let command = registration("good", "10.0.0.9:10911", body(2).encode());
    let taken = ask(client, server, command).await.unwrap();
    assert_eq!(taken.code, response::SUCCESS, "{:?}", taken.remark);
    let asked = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_field("topic", "topic-1");
    let route = ask(client, server, asked).await.unwrap();
    assert_eq!(route.code, response::SUCCESS);
    assert_eq!(server.topics(), ["topic-0", "topic-1"]);
    assert_eq!(server.health().brokers, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_frames_on_many_connections_hold_up_nobody() {
    let (server, good) = (start(), client());
    let mut peers = Vec::new();
    for number in 0..400_usize {
        let mut peer = RawPeer::connect(server.address()).await.unwrap();
        let whole = frame::request(request::GET_BROKER_CLUSTER_INFO, 1, 0, 513, b"");
        peer.send(&whole[..number % whole.len()]).await.unwrap();
        peers.push(peer);
    }
    assert!(eventually(|| server.health().connections == 400).await);
    serves(&server, &good).await;
    drop(peers);
    assert!(eventually(|| server.health().connections == 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_asks_and_never_reads_is_not_read_any_more() {
    let (server, good) = (start(), client());
    let own = client();
    let mut clients = Vec::new();
    for number in 0..50 {
        let client = client();
        let address = format!("10.0.0.{number}:10911");
        let command = registration(&format!("broker-{number}"), &address, body(2).encode());
        assert_eq!(
            ask(&client, &server, command).await.unwrap().code,
            response::SUCCESS
        );
        clients.push(client);
    }
    let mut slow = RawPeer::connect(server.address()).await.unwrap();
    let mut asked = Vec::new();
    for opaque in 0..100_i32 {
        let header = format!(
            r#"{{"code":105,"extFields":{{"topic":"topic-0"}},"flag":0,"language":"JAVA","opaque":{opaque},"version":513}}"#
        );
        asked.extend(frame::raw(0, header.as_bytes(), b""));
    }
    // Each answer is some 15 KiB: the waiting bytes reach their limit long before all of these are written.
    let flood = async {
        for _ in 0..2000 {
            slow.send(&asked).await.unwrap();
        }
    };
    assert!(
        timeout(Duration::from_secs(3), flood).await.is_err(),
        "it was read without an end"
    );
    let asked = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_field("topic", "topic-1");
    for _ in 0..100 {
        assert_eq!(
            ask(&own, &server, asked.clone()).await.unwrap().code,
            response::SUCCESS
        );
    }
    drop(slow);
    for client in &clients {
        client.shut();
    }
    assert!(eventually(|| server.health().brokers == 0).await);
    serves(&server, &good).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registrations_as_large_as_a_frame_are_taken_or_refused_and_larger_ones_close() {
    let (server, good) = (start(), client());
    let nested = [vec![b'['; 15 * MIB], vec![b']'; MIB / 2]].concat();
    let zeros = vec![0; 15 * MIB];
    let text = format!("\"{}\"", "x".repeat(15 * MIB)).into_bytes();
    for bytes in [nested, zeros, text] {
        let bad = client();
        let answer = ask(&bad, &server, registration("bad", "10.0.0.1:10911", bytes))
            .await
            .unwrap();
        assert_eq!(answer.code, response::SYSTEM_ERROR);
    }
    let many = client();
    let compressed = body(250_000).encode_compressed().unwrap();
    let mut command = registration("bad", "10.0.0.1:10911", compressed);
    command.fields.set("compressed", "true");
    let answer = ask(&many, &server, command).await.unwrap();
    assert!(answer.remark.unwrap().contains("maxTopicsPerBroker"));
    let mut large = RawPeer::connect(server.address()).await.unwrap();
    let length = i32::try_from(17 * MIB).unwrap();
    large.send(&length.to_be_bytes()).await.unwrap();
    large.send(&[0; 8]).await.unwrap();
    assert_eq!(large.closed().await.unwrap(), b"");
    serves(&server, &good).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_bodies_and_missing_fields_are_answered_on_every_native_code() {
    let (server, good, bad) = (start(), client(), client());
    let whole = body(3).encode();
    let compressed = body(3).encode_compressed().unwrap();
    let mut bodies: Vec<Vec<u8>> = vec![
        vec![],
        b"null".to_vec(),
        b"[]".to_vec(),
        b"{\"topicConfigSerializeWrapper\":7}".to_vec(),
        b"\xff\xfe{}".to_vec(),
        b"{\"queueDatas\":[{\"brokerName\":\"absent\"}]}".to_vec(),
    ];
    for cut in [1, 7, whole.len() / 2, whole.len() - 1] {
        bodies.push(whole[..cut].to_vec());
    }
    for cut in [1, 2, compressed.len() / 2, compressed.len() - 1] {
        bodies.push(compressed[..cut].to_vec());
    }
    let codes = [
        request::REGISTER_BROKER,
        request::UNREGISTER_BROKER,
        request::GET_ROUTEINFO_BY_TOPIC,
        request::REGISTER_TOPIC_IN_NAMESRV,
        request::QUERY_DATA_VERSION,
        request::BROKER_HEARTBEAT,
    ];
    for code in codes {
        for bytes in &bodies {
            let bare = ask(&bad, &server, Command::request(code).with_body(bytes.clone()))
                .await
                .unwrap();
            // As in the real name server, unregistering an unknown broker is no error.
            let expected = match code {
                request::UNREGISTER_BROKER => response::SUCCESS,
                request::GET_ROUTEINFO_BY_TOPIC => response::TOPIC_NOT_EXIST,
                _ => response::SYSTEM_ERROR,
            };
            assert_eq!(bare.code, expected, "{code} without fields");
            assert_eq!(bare.remark.is_some(), expected != response::SUCCESS);
            let mut named = registration("bad", "10.0.0.1:10911", bytes.clone()).with_field("topic", "t");
            named.code = code;
            named.fields.set("brokerId", "9223372036854775807");
            let answer = ask(&bad, &server, named).await.unwrap();
            assert!(
                answer.code == response::SUCCESS || answer.remark.is_some(),
                "{code}"
            );
            assert!(server.health().topics == 0, "{code} {bytes:?}");
        }
    }
    bad.shut();
    assert!(eventually(|| server.health().brokers == 0).await);
    serves(&server, &good).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_any_text_stay_what_they_are() {
    let (server, client) = (start(), client());
    let name = "a b\"c\\d;e,f:g\u{0}\n\u{1F600}<&>";
    let taken = ask(
        &client,
        &server,
        registration(name, "[::1]:10911", body(2).encode()),
    )
    .await
    .unwrap();
    assert_eq!(taken.code, response::SUCCESS);
    let route = server.route("topic-1").unwrap();
    assert_eq!(route.queue_datas[0].broker_name, name);
    for standard in ["true", "false"] {
        let asked = Command::request(request::GET_ROUTEINFO_BY_TOPIC)
            .with_field("topic", "topic-1")
            .with_field("acceptStandardJsonOnly", standard);
        let answer = ask(&client, &server, asked).await.unwrap();
        let decoded = pyrmq_remoting::body::TopicRouteData::decode(&answer.body.unwrap()).unwrap();
        assert_eq!(decoded, route);
    }
}
