//! Brokers register, change, leave and are notified of each other, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use pyrmq_nameserver::{NameServer, Options};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, DataVersion, RegisterBrokerBody, TopicConfig};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{
    Client, ClientOptions, Peer, Processor, ProcessorTable, Reply, Server, ServerOptions, Shutdown, Tracker,
};
use pyrmq_testkit::eventually;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

const WAIT: Duration = Duration::from_secs(20);

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
    let (handle, options) = (Handle::current(), ClientOptions::default());
    Client::new(&handle, options, Arc::new(ProcessorTable::new())).unwrap()
}

async fn ask(client: &Client, server: &NameServer, command: Command) -> Command {
    let address = server.address().to_string();
    client.request(&address, command, WAIT).await.unwrap()
}

fn body(counter: i64, topics: usize) -> RegisterBrokerBody {
    let mut body = RegisterBrokerBody::default();
    let wrapper = &mut body.topic_config_serialize_wrapper;
    wrapper.data_version = DataVersion {
        counter,
        state_version: 0,
        timestamp: 7,
    };
    let names = (0..topics).map(|number| format!("topic-{number}"));
    wrapper.topic_config_table = names
        .map(|name| (name.clone(), TopicConfig::new(name, 8, 6)))
        .collect();
    body
}

fn registration(name: &str, id: i64, address: &str, body: impl Into<bytes::Bytes>) -> Command {
    Command::request(request::REGISTER_BROKER)
        .with_field("brokerName", name)
        .with_field("brokerAddr", address)
        .with_field("clusterName", "C")
        .with_field("haServerAddr", "10.0.0.1:10912")
        .with_field("brokerId", &id.to_string())
        .with_field("compressed", "false")
        .with_field("bodyCrc32", "0")
        .with_body(body)
}

fn counter(server: &NameServer, name: &str) -> u64 {
    let stats = server.stats();
    stats.iter().find(|(key, _)| *key == name).unwrap().1
}

/// A broker's port that records the notices that it receives.
struct ReportedChange {
    address: String,
    notices: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    shutdown: Shutdown,
}

fn broker_port() -> ReportedChange {
    let notices: Arc<Mutex<Vec<_>>> = Arc::default();
    let keep = notices.clone();
    let row: Arc<dyn Processor> = Arc::new(move |request: Command, _: &Peer, _: Reply| {
        assert!(request.is_oneway());
        let fields = request
            .fields
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        keep.lock().unwrap().push(fields.collect());
    });
    let mut table = ProcessorTable::new();
    table.native(&[request::NOTIFY_MIN_BROKER_ID_CHANGE], &row);
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(any, ServerOptions::default(), Arc::new(table), Arc::new(())).unwrap();
    let (address, shutdown) = (server.local_addr().to_string(), Shutdown::new());
    let stop = shutdown.clone();
    Tracker::current().spawn(async move {
        server.run(stop).await.unwrap();
    });
    ReportedChange {
        address,
        notices,
        shutdown,
    }
}

impl ReportedChange {
    async fn next(&self) -> BTreeMap<String, String> {
        assert!(eventually(|| !self.notices.lock().unwrap().is_empty()).await);
        self.notices.lock().unwrap().remove(0)
    }
}

fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_are_notified_when_the_lowest_id_of_their_name_changes() {
    let options = Options {
        notify_min_broker_id_changed: true,
        ..Options::default()
    };
    let server = start(options);
    let (slave, master) = (broker_port(), broker_port());
    let (first, second) = (client(), client());
    let with = |id, broker: &ReportedChange| {
        registration("broker-a", id, &broker.address, body(1, 2).encode())
            .with_field("enableActingMaster", "true")
    };
    assert_eq!(
        ask(&first, &server, with(1, &slave)).await.code,
        response::SUCCESS
    );
    assert_eq!(
        ask(&second, &server, with(0, &master)).await.code,
        response::SUCCESS
    );
    let came = [
        ("minBrokerId", "0"),
        ("minBrokerAddr", &*master.address),
        ("haBrokerAddr", "10.0.0.1:10912"),
    ];
    assert_eq!(slave.next().await, pairs(&came));
    second.close().await;
    let went = [
        ("minBrokerId", "1"),
        ("minBrokerAddr", &*slave.address),
        ("offlineBrokerAddr", &*master.address),
    ];
    assert_eq!(slave.next().await, pairs(&went));
    // It is counted after it is sent, so the notice can arrive a moment earlier.
    assert!(eventually(|| counter(&server, "min_id_notices") == 2).await);
    assert!(master.notices.lock().unwrap().is_empty());
    server
        .reconfigure(&[("notifyMinBrokerIdChanged".into(), "false".into())])
        .unwrap();
    let third = client();
    assert_eq!(
        ask(&third, &server, with(0, &master)).await.code,
        response::SUCCESS
    );
    assert_eq!(counter(&server, "min_id_notices"), 2);
    slave.shutdown.stop_now();
    master.shutdown.stop_now();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_broker_may_not_bring_more_topics_than_allowed() {
    let options = Options {
        max_topics_per_broker: 10,
        ..Options::default()
    };
    let (server, client) = (start(options), client());
    let address = "10.0.0.1:10911";
    let taken = registration("broker-a", 0, address, body(1, 10).encode());
    assert_eq!(ask(&client, &server, taken).await.code, response::SUCCESS);
    let more = ask(
        &client,
        &server,
        registration("broker-a", 0, address, body(2, 11).encode()),
    )
    .await;
    assert_eq!(more.code, response::SYSTEM_ERROR);
    assert!(more.remark.unwrap().contains("maxTopicsPerBroker"));
    assert_eq!(server.topics().len(), 10);
    assert_eq!(counter(&server, "registrations_refused"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_brokers_together_may_not_bring_more_topics_than_allowed() {
    let options = Options {
        max_topics: 25,
        ..Options::default()
    };
    let (server, client) = (start(options), client());
    let of = |name: &str, version, topics| {
        registration(
            name,
            0,
            &format!("10.0.0.1:{name}"),
            body(version, topics).encode(),
        )
    };
    for (name, version, topics, code) in [
        ("a", 1, 10, response::SUCCESS),
        ("b", 1, 10, response::SUCCESS),
        ("c", 1, 6, response::SYSTEM_ERROR),
        ("c", 1, 5, response::SUCCESS),
        // It brings nothing new, although all limits are reached.
        ("a", 2, 10, response::SUCCESS),
        ("a", 3, 11, response::SYSTEM_ERROR),
    ] {
        let answer = ask(&client, &server, of(name, version, topics)).await;
        assert_eq!(answer.code, code, "{name} {topics}: {:?}", answer.remark);
        assert!(code == response::SUCCESS || answer.remark.unwrap().contains("(maxTopics)"));
    }
    // A single topic by 217 is limited too.
    let single = |topic: &str| {
        Command::request(request::REGISTER_TOPIC_IN_NAMESRV)
            .with_field("topic", topic)
            .with_body(r#"{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}"#)
    };
    assert_eq!(
        ask(&client, &server, single("new")).await.code,
        response::SYSTEM_ERROR
    );
    assert!(server.topics().iter().all(|topic| topic != "new"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_broker_names_are_taken_than_allowed() {
    let options = Options {
        max_brokers: 2,
        ..Options::default()
    };
    let (server, client) = (start(options), client());
    let of = |name: &str, id| registration(name, id, &format!("10.0.0.{id}:{name}"), body(1, 3).encode());
    for (name, id, code) in [
        ("a", 0, response::SUCCESS),
        ("b", 0, response::SUCCESS),
        ("c", 0, response::SYSTEM_ERROR),
        ("b", 1, response::SUCCESS),
    ] {
        let answer = ask(&client, &server, of(name, id)).await;
        assert_eq!(answer.code, code, "{name} {id}: {:?}", answer.remark);
        assert!(code == response::SUCCESS || answer.remark.unwrap().contains("maxBrokers"));
    }
    assert_eq!(server.health().brokers, 3);
    // A broker that leaves frees its place.
    let removed_brokers = Command::request(request::UNREGISTER_BROKER)
        .with_field("brokerName", "a")
        .with_field("brokerAddr", "10.0.0.0:a")
        .with_field("clusterName", "C")
        .with_field("brokerId", "0");
    assert_eq!(
        ask(&client, &server, removed_brokers).await.code,
        response::SUCCESS
    );
    assert_eq!(ask(&client, &server, of("c", 0)).await.code, response::SUCCESS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_ids_of_one_name_or_of_all_names_are_taken_than_allowed() {
    let (server, client) = (start(Options::default()), client());
    let of =
        |name: &str, id: i64| registration(name, id, &format!("10.0.0.1:{name}{id}"), body(1, 2).encode());
    for id in 0..1000 {
        assert_eq!(
            ask(&client, &server, of("a", id)).await.code,
            response::SUCCESS,
            "{id}"
        );
    }
    let refused = ask(&client, &server, of("a", 1000)).await;
    let remark = refused.remark.unwrap();
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    assert!(
        remark.contains("broker a has 1000 ids already, so 1000 is refused"),
        "{remark}"
    );
    // Known brokers may register again, also from another address or with another id.
    assert_eq!(ask(&client, &server, of("a", 7)).await.code, response::SUCCESS);
    let moved = registration("a", 7, "10.0.0.2:1", body(2, 2).encode());
    assert_eq!(ask(&client, &server, moved).await.code, response::SUCCESS);
    let renumbered = registration("a", 5000, "10.0.0.1:a8", body(2, 2).encode());
    assert_eq!(ask(&client, &server, renumbered).await.code, response::SUCCESS);
    assert_eq!(ask(&client, &server, of("b", 1000)).await.code, response::SUCCESS);
    assert_eq!(server.health().brokers, 1001);

    let few = start(Options {
        max_brokers: 2,
        ..Options::default()
    });
    for id in 0..20 {
        assert_eq!(
            ask(&client, &few, of("a", id)).await.code,
            response::SUCCESS,
            "{id}"
        );
    }
    for name in ["a", "b"] {
        let refused = ask(&client, &few, of(name, 20)).await;
        let remark = refused.remark.unwrap();
        assert!(
            remark.contains("all names together have 20 ids already"),
            "{remark}"
        );
    }
    assert_eq!(few.health().brokers, 20);
}

/// A compressed body of few bytes that would expand to gigabytes.
fn bomb() -> Vec<u8> {
    let mut body = body(1, 2);
    let servers = vec!["0".repeat(1 << 20); 64];
    body.filter_server_list = servers;
    body.encode_compressed().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compressed_registration_cannot_grow_without_bound() {
    let (server, client) = (start(Options::default()), client());
    let bomb = bomb();
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let mut command = registration("broker-a", 0, "10.0.0.1:10911", bomb);
    command.fields.set("compressed", "true");
    let answer = ask(&client, &server, command).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    assert_eq!(server.health().brokers, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_brokers_that_register_and_leave_together_leave_nothing_behind() {
    let server = start(Options::default());
    let bytes = bytes::Bytes::from(body(1, 200).encode());
    let mut clients = Vec::new();
    for number in 0..40 {
        let client = client();
        let (name, address) = (format!("broker-{number}"), format!("10.0.0.{number}:10911"));
        let answer = ask(&client, &server, registration(&name, 0, &address, bytes.clone())).await;
        assert_eq!(answer.code, response::SUCCESS);
        clients.push(client);
    }
    assert_eq!((server.health().brokers, server.health().topics), (40, 200));
    assert_eq!(server.route("topic-7").unwrap().queue_datas.len(), 40);
    for client in &clients {
        client.shut();
    }
    assert!(eventually(|| server.health().brokers == 0).await);
    assert!(eventually(|| server.health().topics == 0).await);
    // It is counted after the tables change, so a moment after they show it.
    assert!(eventually(|| counter(&server, "brokers_lost") == 40).await);
    assert_eq!(counter(&server, "table_changes_waiting"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_topics_with_a_newer_version_are_not_read_again_unless_somebody_changed_them() {
    let (server, client) = (start(Options::default()), client());
    let of = |counter| registration("a", 0, "10.0.0.1:10911", body(counter, 3).encode());
    let known = |counter: i64| {
        let live = server.brokers().into_iter().next().unwrap();
        (
            live.version == counter,
            self::counter(&server, "registrations_unchanged"),
        )
    };
    let perm = || server.route("topic-1").unwrap().queue_datas[0].perm;
    assert_eq!(ask(&client, &server, of(1)).await.code, response::SUCCESS);
    assert_eq!(known(1), (true, 0));
    assert_eq!(ask(&client, &server, of(2)).await.code, response::SUCCESS);
    assert_eq!(known(2), (true, 1));
    assert_eq!(server.wipe_write_perm("a"), 3);
    assert_eq!(perm(), 4);
    assert_eq!(ask(&client, &server, of(3)).await.code, response::SUCCESS);
    assert_eq!(
        (known(3), perm()),
        ((true, 1), 6),
        "a newer version writes all again"
    );
    let more = registration("a", 0, "10.0.0.1:10911", body(4, 5).encode());
    assert_eq!(ask(&client, &server, more).await.code, response::SUCCESS);
    assert_eq!((known(4), server.topics().len()), ((true, 1), 5));
}

/// Brokers with the same topics register, then all their connections close at once, during route queries.
async fn leave_at_once(brokers: usize, topics: usize) {
    let server = start(Options::default());
    let bytes = bytes::Bytes::from(body(1, topics).encode());
    let mut clients = Vec::new();
    for number in 0..brokers {
        let client = client();
        let (name, address) = (
            format!("broker-{number}"),
            format!("10.0.{}.{}:10911", number / 250, number % 250),
        );
        let answer = ask(&client, &server, registration(&name, 0, &address, bytes.clone())).await;
        assert_eq!(answer.code, response::SUCCESS);
        clients.push(client);
    }
    assert_eq!(server.health().topics, topics);
    let asking = client();
    let asked = || {
        let topic = format!("topic-{}", topics / 2);
        Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_field("topic", &topic)
    };
    assert_eq!(ask(&asking, &server, asked()).await.code, response::SUCCESS);
    let tasks = Tracker::new(Handle::current());
    tasks.spawn(async move {
        for client in clients {
            client.close().await;
        }
    });
    let (mut answers, mut longest) = (0, Duration::ZERO);
    while server.health().brokers > 0 || server.health().topics > 0 {
        let began = std::time::Instant::now();
        let answer = ask(&asking, &server, asked()).await;
        longest = longest.max(began.elapsed());
        answers += 1;
        assert!([response::SUCCESS, response::TOPIC_NOT_EXIST].contains(&answer.code));
        assert!(answers < 1_000_000, "they never leave");
    }
    assert!(
        longest < Duration::from_secs(5),
        "the longest of {answers} answers took {longest:?}"
    );
    assert_eq!(
        ask(&asking, &server, asked()).await.code,
        response::TOPIC_NOT_EXIST
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_are_answered_while_brokers_leave_at_once() {
    leave_at_once(20, 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: 100 registrations of 10,000 topics take a minute in a debug build"]
async fn routes_are_answered_while_a_hundred_brokers_of_ten_thousand_topics_leave_at_once() {
    leave_at_once(100, 10_000).await;
}
