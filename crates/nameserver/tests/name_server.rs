//! The name server over real sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use pyrmq_nameserver::{Kind, NameServer, NameServerError, Options, rows};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{
    Body, ClusterInfo, DataVersion, KVTable, RegisterBrokerBody, TopicConfig, TopicRouteData,
};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::record::body_crc;
use pyrmq_remoting::net::{Client, ClientOptions, ProcessorTable, Requests};
use pyrmq_routing::table::UnitTopics;
use pyrmq_testkit::{RawPeer, eventually, frame};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

const WAIT: Duration = Duration::from_secs(5);
const V4_9_3: i32 = 399;
const V4_9_4: i32 = 401;
const V5_3_3: i32 = 479;

#[allow(clippy::needless_pass_by_value, reason = "call sites read better")]
fn start(options: Options) -> Arc<NameServer> {
    let options = Options {
        listen_port: 0,
        bind_address: "127.0.0.1".into(),
        ..options
    };
    NameServer::start(options, &Handle::current(), None, &[]).unwrap()
}

fn client() -> Client {
    Client::new(
        &Handle::current(),
        ClientOptions::default(),
        Arc::new(ProcessorTable::new()),
    )
    .unwrap()
}

async fn ask(client: &Client, server: &NameServer, command: Command) -> Command {
    client
        .request(&server.address().to_string(), command, WAIT)
        .await
        .unwrap()
}

fn topics(counter: i64, names: &[&str]) -> RegisterBrokerBody {
    let mut body = RegisterBrokerBody::default();
    let wrapper = &mut body.topic_config_serialize_wrapper;
    wrapper.data_version = DataVersion {
        counter,
        state_version: 0,
        timestamp: 7,
    };
    for name in names {
        wrapper
            .topic_config_table
            .insert((*name).to_owned(), TopicConfig::new(*name, 8, 6));
    }
    body
}

fn registration(name: &str, id: i64, address: &str, body: &[u8]) -> Command {
    Command::request(request::REGISTER_BROKER)
        .with_field("brokerName", name)
        .with_field("brokerAddr", address)
        .with_field("clusterName", "DefaultCluster")
        .with_field("haServerAddr", "10.0.0.1:10912")
        .with_field("brokerId", &id.to_string())
        .with_field("compressed", "false")
        .with_field("bodyCrc32", &body_crc(body).to_string())
        .with_body(body.to_vec())
}

async fn register(client: &Client, server: &NameServer, name: &str, id: i64, address: &str) -> Command {
    let body = topics(1, &["TBW102", "flights"]).encode();
    let answer = ask(client, server, registration(name, id, address, &body)).await;
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    answer
}

fn route_of(topic: &str) -> Command {
    Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_field("topic", topic)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registered_broker_is_in_routes_and_clusters_and_gone_after_unregistering() {
    let (server, client) = (start(Options::default()), client());
    register(&client, &server, "broker-a", 0, "10.0.0.1:10911").await;
    let answer = ask(&client, &server, route_of("flights")).await;
    let route = TopicRouteData::decode(&answer.body.unwrap()).unwrap();
    assert_eq!(
        route.broker_datas[0].broker_addrs,
        BTreeMap::from([(0, "10.0.0.1:10911".to_owned())])
    );
    assert_eq!(
        (route.queue_datas[0].write_queue_nums, route.queue_datas[0].perm),
        (8, 6)
    );
    let info = ask(
        &client,
        &server,
        Command::request(request::GET_BROKER_CLUSTER_INFO),
    )
    .await;
    let info = ClusterInfo::decode(&info.body.unwrap()).unwrap();
    assert!(info.cluster_addr_table["DefaultCluster"].contains("broker-a"));
    let leave = Command::request(request::UNREGISTER_BROKER)
        .with_field("brokerName", "broker-a")
        .with_field("brokerAddr", "10.0.0.1:10911")
        .with_field("clusterName", "DefaultCluster")
        .with_field("brokerId", "0");
    assert_eq!(ask(&client, &server, leave).await.code, response::SUCCESS);
    let answer = ask(&client, &server, route_of("flights")).await;
    assert_eq!(answer.code, response::TOPIC_NOT_EXIST);
    assert!(answer.remark.unwrap().contains("flights"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_gets_its_masters_address() {
    let (server, client) = (start(Options::default()), client());
    let master = register(&client, &server, "broker-a", 0, "10.0.0.1:10911").await;
    assert_eq!(master.fields.get("masterAddr"), None);
    let slave = register(&client, &server, "broker-a", 1, "10.0.0.2:10911").await;
    assert_eq!(slave.fields.get("masterAddr"), Some("10.0.0.1:10911"));
    assert_eq!(slave.fields.get("haServerAddr"), Some("10.0.0.1:10912"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_json_form_of_a_route_follows_version_and_wish() {
    let (server, client) = (start(Options::default()), client());
    register(&client, &server, "broker-a", 0, "10.0.0.1:10911").await;
    for (version, wish, standard) in [
        (V4_9_3, None, false),
        (V4_9_3, Some("true"), true),
        (V4_9_4, None, true),
        (0, None, false),
    ] {
        let mut command = route_of("flights");
        command.version = version;
        if let Some(wish) = wish {
            command.fields.push("acceptStandardJsonOnly", wish);
        }
        let body = ask(&client, &server, command).await.body.unwrap();
        let text = std::str::from_utf8(&body).unwrap();
        let key = if standard { r#""0":"# } else { "0:" };
        let expected = format!(
            "{{\"brokerDatas\":[{{\"brokerAddrs\":{{{key}\"10.0.0.1:10911\"}},\"brokerName\":\"broker-a\",\"cluster\":\"DefaultCluster\",\
             \"enableActingMaster\":false}}],\"filterServerTable\":{{}},\"queueDatas\":[{{\"brokerName\":\"broker-a\",\"perm\":6,\
             \"readQueueNums\":8,\"topicSysFlag\":0,\"writeQueueNums\":8}}]}}"
        );
        assert_eq!(text, expected, "{version} {wish:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_registrations_are_read_also_when_their_header_denies_it() {
    let body = topics(1, &["TBW102", "flights"]).encode_compressed().unwrap();
    for flag in ["true", "false"] {
        let (server, client) = (start(Options::default()), client());
        let mut command = registration("broker-a", 0, "10.0.0.1:10911", &body);
        command.fields.set("compressed", flag);
        assert_eq!(ask(&client, &server, command).await.code, response::SUCCESS);
        assert_eq!(server.topics(), ["TBW102", "flights"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_registrations_are_refused_and_leave_nothing() {
    let (server, client) = (start(Options::default()), client());
    let body = topics(1, &["TBW102", "flights"]).encode();
    let good = registration("broker-a", 0, "10.0.0.1:10911", &body);
    let with = |key: &str, value: &str| {
        let mut command = good.clone();
        command.fields.set(key, value);
        command
    };
    let mut missing = good.clone();
    missing.fields.remove("brokerName");
    let single = topics(1, &["flights"]).encode();
    let cases = [
        (with("brokerName", ""), "broker name"),
        (with("clusterName", ""), "cluster name"),
        (with("brokerAddr", ""), "broker address"),
        (with("brokerId", "zero"), "brokerId"),
        (with("bodyCrc32", "12345"), "crc32 not match"),
        (missing, "brokerName"),
        (registration("broker-a", 0, "10.0.0.1:10911", b"{broken"), "JSON"),
        (
            registration("broker-a", 0, "10.0.0.1:10911", &single),
            "register broker failed: broker broker-a with id 0 is not registered yet: send the whole topic table",
        ),
    ];
    for (command, remark) in cases {
        let answer = ask(&client, &server, command).await;
        assert_eq!(answer.code, response::SYSTEM_ERROR, "{remark}");
        let text = answer.remark.unwrap();
        assert!(text.contains(remark), "{text}");
        // Tools find these by how they begin, as Apache's do.
        assert!(!remark.starts_with("crc32") || text.starts_with(remark), "{text}");
        assert_eq!(
            (server.health().brokers, server.health().topics),
            (0, 0),
            "{remark}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_connection_takes_its_brokers_out_at_once() {
    let (server, asking, removal) = (start(Options::default()), client(), client());
    register(&removal, &server, "broker-a", 0, "10.0.0.1:10911").await;
    register(&removal, &server, "broker-b", 0, "10.0.0.2:10911").await;
    register(&asking, &server, "broker-c", 0, "10.0.0.3:10911").await;
    removal.close().await;
    assert!(eventually(|| server.health().brokers == 1).await);
    let body = ask(&asking, &server, route_of("flights")).await.body.unwrap();
    let route = TopicRouteData::decode(&body).unwrap();
    assert_eq!(route.broker_datas[0].broker_name, "broker-c");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_broker_expires_and_its_connection_is_closed() {
    let options = Options {
        scan_not_active_broker_interval: 20,
        ..Options::default()
    };
    let (server, client) = (start(options), client());
    let body = topics(1, &["TBW102", "flights"]).encode();
    let quick =
        registration("broker-a", 0, "10.0.0.1:10911", &body).with_field("heartbeatTimeoutMillis", "1000");
    assert_eq!(ask(&client, &server, quick).await.code, response::SUCCESS);
    let beat = Command::request(request::BROKER_HEARTBEAT)
        .with_field("clusterName", "DefaultCluster")
        .with_field("brokerAddr", "10.0.0.1:10911")
        .with_field("brokerName", "broker-a");
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(ask(&client, &server, beat.clone()).await.code, response::SUCCESS);
        assert_eq!(server.health().brokers, 1);
    }
    assert!(eventually(|| server.health().brokers == 0).await);
    assert!(eventually(|| client.connected().is_empty()).await);
    assert_eq!(
        server.stats().iter().find(|(name, _)| *name == "brokers_expired"),
        Some(&("brokers_expired", 1))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_learns_whether_it_must_register_again() {
    let (server, client) = (start(Options::default()), client());
    let query = |counter| {
        let version = DataVersion {
            counter,
            state_version: 0,
            timestamp: 7,
        };
        Command::request(request::QUERY_DATA_VERSION)
            .with_field("brokerName", "broker-a")
            .with_field("brokerAddr", "10.0.0.1:10911")
            .with_field("clusterName", "DefaultCluster")
            .with_field("brokerId", "0")
            .with_body(version.encode())
    };
    let unknown = ask(&client, &server, query(1)).await;
    assert_eq!(
        (unknown.fields.get("changed"), unknown.body),
        (Some("true"), None)
    );
    register(&client, &server, "broker-a", 0, "10.0.0.1:10911").await;
    assert_eq!(
        ask(&client, &server, query(1)).await.fields.get("changed"),
        Some("false")
    );
    let changed = ask(&client, &server, query(2)).await;
    assert_eq!(changed.fields.get("changed"), Some("true"));
    assert_eq!(DataVersion::decode(&changed.body.unwrap()).unwrap().counter, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_configuration_goes_to_brokers_and_into_routes_when_switched_on() {
    let (server, client) = (start(Options::default()), client());
    let order = BTreeMap::from([("flights".to_owned(), "broker-a:4".to_owned())]);
    server.set_order_config(Some(order.clone()));
    let answer = register(&client, &server, "broker-a", 0, "10.0.0.1:10911").await;
    assert_eq!(KVTable::decode(&answer.body.unwrap()).unwrap().table, order);
    let conf = async || {
        let body = ask(&client, &server, route_of("flights")).await.body.unwrap();
        TopicRouteData::decode(&body).unwrap().order_topic_conf
    };
    assert_eq!(conf().await, None);
    server
        .reconfigure(&[
            ("orderMessageEnable".into(), "true".into()),
            ("kvConfigPath".into(), "x".into()),
        ])
        .unwrap();
    assert_eq!(conf().await.as_deref(), Some("broker-a:4"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_young_name_server_waits_for_its_brokers_if_configured() {
    let options = Options {
        need_wait_for_service: true,
        wait_seconds_for_service: 3600,
        ..Options::default()
    };
    let (server, client) = (start(options), client());
    register(&client, &server, "broker-a", 0, "10.0.0.1:10911").await;
    let answer = ask(&client, &server, route_of("flights")).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    let remark = answer.remark.unwrap();
    assert!(remark.starts_with("name server not ready"), "{remark}");
    assert!(remark.contains("needWaitForService"), "{remark}");
    server
        .reconfigure(&[("waitSecondsForService".into(), "0".into())])
        .unwrap();
    assert_eq!(
        ask(&client, &server, route_of("flights")).await.code,
        response::SUCCESS
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_python_rows_ask_of_the_tables() {
    let (server, client) = (start(Options::default()), client());
    register(&client, &server, "broker-a", 0, "10.0.0.1:10911").await;
    register(&client, &server, "broker-a", 1, "10.0.0.2:10911").await;
    assert_eq!(server.topics(), ["TBW102", "flights"]);
    assert_eq!(server.topics_of_cluster("DefaultCluster").len(), 2);
    assert_eq!(server.topics_of_cluster("absent").len(), 0);
    let (names, address) = server.system_topics();
    assert_eq!(
        (names, address.as_deref()),
        (
            vec!["DefaultCluster".to_owned(), "broker-a".to_owned()],
            Some("10.0.0.1:10911")
        )
    );
    assert!(server.unit_topics(UnitTopics::Unit).is_empty());
    assert_eq!(server.wipe_write_perm("broker-a"), 2);
    assert_eq!(server.add_write_perm("broker-a"), 2);
    assert_eq!(server.brokers().len(), 2);
    server.delete_topic("flights", None);
    assert_eq!(server.topics(), ["TBW102"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_rows_go_to_the_queue_and_without_python_say_so() {
    let requests = Arc::new(Requests::new(10));
    let options = Options {
        listen_port: 0,
        bind_address: "127.0.0.1".into(),
        ..Options::default()
    };
    // A native row cannot be replaced.
    let codes = [request::GET_KV_CONFIG, request::GET_ROUTEINFO_BY_TOPIC];
    let server = NameServer::start(options, &Handle::current(), Some(&requests), &codes).unwrap();
    let client = client();
    let taking = requests.clone();
    let worker = tokio::task::spawn_blocking(move || {
        let request = taking.take(WAIT).unwrap();
        assert_eq!(request.command.code, request::GET_KV_CONFIG);
        request.reply.send(Command::response(0).with_field("value", "v"));
    });
    let answer = ask(&client, &server, Command::request(request::GET_KV_CONFIG)).await;
    assert_eq!(answer.fields.get("value"), Some("v"));
    worker.await.unwrap();
    assert_eq!(
        ask(&client, &server, route_of("absent")).await.code,
        response::TOPIC_NOT_EXIST
    );
    for (code, why) in [
        (request::PUT_KV_CONFIG, "Python part"),
        (request::CONTROLLER_ELECT_MASTER, "no controller"),
        (request::SEND_MESSAGE, "not supported"),
    ] {
        let answer = ask(&client, &server, Command::request(code)).await;
        assert_eq!(answer.code, response::REQUEST_CODE_NOT_SUPPORTED);
        assert!(answer.remark.unwrap().contains(why), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_broker_without_newer_fields_is_read() {
    let server = start(Options::default());
    let mut peer = RawPeer::connect(server.address()).await.unwrap();
    let header = r#"{"code":103,"extFields":{"brokerAddr":"1.2.3.4:10911","brokerId":"0","brokerName":"old","clusterName":"C","haServerAddr":"1.2.3.4:10912"},"flag":0,"language":"JAVA","opaque":3,"version":30}"#;
    let body = br#"{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"a":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"a","topicSysFlag":0,"writeQueueNums":4},"b":{"perm":4,"topicName":"b"}}}"#;
    let answer = peer.ask(&frame::raw(0, header.as_bytes(), body)).await.unwrap();
    assert_eq!(answer.code(), Some(0), "{}", answer.text());
    assert_eq!(server.topics(), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_closes_the_port_and_sends_new_clients_away() {
    let (server, client) = (start(Options::default()), client());
    let mut peer = RawPeer::connect(server.address()).await.unwrap();
    let cluster = frame::request(request::GET_BROKER_CLUSTER_INFO, 1, 0, V5_3_3, b"");
    assert_eq!(peer.ask(&cluster).await.unwrap().code(), Some(0));
    server.stop(Duration::from_secs(5)).await;
    server.stop(Duration::from_secs(5)).await;
    assert!(!server.health().running);
    assert_eq!(peer.closed().await.unwrap(), b"");
    assert!(
        client
            .request(&server.address().to_string(), Command::request(106), WAIT)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn wrong_options_are_refused_with_key_value_and_range() {
    let mut options = Options::default();
    for (key, value) in [("listenPort", "many"), ("orderMessageEnable", "perhaps")] {
        let error = options.set(key, value).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(key) && text.contains(value), "{text}");
    }
    assert!(!options.set("kvConfigPath", "x").unwrap());
    for (key, value) in [
        ("listenPort", "65536"),
        ("scanNotActiveBrokerInterval", "0"),
        ("maxTopicsPerBroker", "0"),
    ] {
        let mut options = Options::default();
        options.set(key, value).unwrap();
        let error = options.validate().unwrap_err();
        assert!(
            matches!(error, NameServerError::Option { key: named, .. } if named == key),
            "{error}"
        );
    }
    let server = start(Options::default());
    let error = server.reconfigure(&[
        ("orderMessageEnable".into(), "true".into()),
        ("listenPort".into(), "1".into()),
    ]);
    assert!(matches!(error, Err(NameServerError::NotLive { .. })));
    assert!(!server.options().order_message_enable, "all or none");
    assert_eq!(server.options().settings().len(), Options::KEYS.len());
}

#[test]
fn the_rows_are_sorted_and_say_each_code_once() {
    let rows = rows();
    assert!(rows.windows(2).all(|pair| pair[0].code < pair[1].code));
    let kind = |code| rows.iter().find(|row| row.code == code).unwrap().kind;
    assert_eq!(kind(request::REGISTER_BROKER), Kind::Native);
    assert_eq!(kind(request::GET_KV_CONFIG), Kind::Python);
    assert_eq!(kind(request::CONTROLLER_ELECT_MASTER), Kind::Refused);
}
