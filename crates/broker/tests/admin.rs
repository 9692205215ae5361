//! Topics, groups, offsets and statistics as an administrator sees them, and registration at name servers.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays the damaged disk"
)]

mod common;

use common::{LIMIT, Site, TempDir, eventually, number, options, properties, pull, records, text};
use pyrmq_broker::{Broker, Kind, Options, rows};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::Json;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Peer, Processor, ProcessorTable, Reply, Server, ServerOptions, Shutdown, Tracker};
use pyrmq_testkit::FaultyDisk;
use pyrmq_testkit::disk::{Fault, Operation};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;

fn topic(code: i32, topic: &str) -> Command {
    Command::request(code).with_field("topic", topic)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_made_changed_listed_and_deleted() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.ask_ok(common::create("T", 2)).await;
    let one = text(&site.ask_ok(topic(request::GET_TOPIC_CONFIG, "T")).await);
    assert_eq!(
        one,
        r#"{"attributes":{},"order":false,"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":2}"#
    );
    let before = site.broker.context().topics.all().1;
    site.ask_ok(common::create("T", 2)).await;
    assert_eq!(site.broker.context().topics.all().1, before, "nothing changed");
    site.ask_ok(common::create("T", 3)).await;
    assert_eq!(site.broker.context().topics.all().1.counter, before.counter + 1);
    site.send_ok("T", b"gone soon", "").await;
    let all = Json::parse(
        &site
            .ask_ok(Command::request(request::GET_ALL_TOPIC_CONFIG))
            .await
            .body
            .unwrap(),
    )
    .unwrap();
    assert!(all.get("topicConfigTable").unwrap().get("T").is_some());
    assert!(all.get("dataVersion").unwrap().get("counter").is_some());
    for bad in ["", "a b", "TBW102", "SCHEDULE_TOPIC_XXXX"] {
        assert_eq!(
            site.ask(common::create(bad, 1)).await.code,
            response::INVALID_PARAMETER,
            "{bad}"
        );
    }
    let mut many = common::create("T", 1);
    many.fields.set("readQueueNums", "-1");
    assert_eq!(site.ask(many).await.code, response::INVALID_PARAMETER);
    site.ask_ok(topic(request::DELETE_TOPIC_IN_BROKER, "T")).await;
    assert_eq!(
        site.ask(topic(request::GET_TOPIC_CONFIG, "T")).await.code,
        response::TOPIC_NOT_EXIST
    );
    assert_eq!(site.broker.context().store.max_offset("T", 0), 0);
    assert_eq!(
        site.ask(topic(request::DELETE_TOPIC_IN_BROKER, "TBW102"))
            .await
            .code,
        response::INVALID_PARAMETER
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_found_by_key_and_by_id() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.send_ok("T", b"other", "").await;
    let sent = site
        .send_ok("T", b"found", &properties(&[("KEYS", "a b"), ("UNIQ_KEY", "U1")]))
        .await;
    let query = |key: &str| {
        topic(request::QUERY_MESSAGE, "T")
            .with_field("key", key)
            .with_field("maxNum", "10")
            .with_field("beginTimestamp", "0")
            .with_field("endTimestamp", &i64::MAX.to_string())
    };
    for key in ["a", "b"] {
        eventually("the key is indexed", async || {
            site.ask(query(key)).await.code == 0
        })
        .await;
        assert_eq!(records(&site.ask_ok(query(key)).await)[0].1, b"found");
    }
    let unique = site
        .ask_ok(query("U1").with_field("_UNIQUE_KEY_QUERY", "true"))
        .await;
    assert_eq!(records(&unique)[0].1, b"found");
    assert_eq!(site.ask(query("nothing")).await.code, response::QUERY_NOT_FOUND);
    let id = sent.fields.get("msgId").unwrap();
    let offset = i64::from_str_radix(&id[16..], 16).unwrap();
    let view =
        |offset: i64| Command::request(request::VIEW_MESSAGE_BY_ID).with_field("offset", &offset.to_string());
    assert_eq!(records(&site.ask_ok(view(offset)).await)[0].1, b"found");
    assert_eq!(site.ask(view(offset + 1)).await.code, response::SYSTEM_ERROR);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ends_of_a_queue_are_returned() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    for body in [b"1", b"2"] {
        site.send_ok("T", body, "").await;
    }
    eventually("both are readable", async || {
        site.broker.context().store.max_offset("T", 0) == 2
    })
    .await;
    let ask = |code| topic(code, "T").with_field("queueId", "0");
    assert_eq!(
        number(&site.ask_ok(ask(request::GET_MAX_OFFSET)).await, "offset"),
        2
    );
    assert_eq!(
        number(&site.ask_ok(ask(request::GET_MIN_OFFSET)).await, "offset"),
        0
    );
    let earliest = number(
        &site.ask_ok(ask(request::GET_EARLIEST_MSG_STORETIME)).await,
        "timestamp",
    );
    let at = |time: i64| ask(request::SEARCH_OFFSET_BY_TIMESTAMP).with_field("timestamp", &time.to_string());
    assert_eq!(number(&site.ask_ok(at(earliest)).await, "offset"), 0);
    assert_eq!(number(&site.ask_ok(at(earliest + 1_000_000)).await, "offset"), 2);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_have_the_form_that_the_tools_read() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    site.send_ok("T", b"x", "").await;
    eventually("it is readable", async || {
        site.broker.context().store.max_offset("T", 0) == 1
    })
    .await;
    site.create("U", 2).await;
    let of_all = topic(request::GET_TOPIC_STATS_INFO, "T").with_body(r#"{"topics":["U","Nowhere"]}"#);
    let stats = text(&site.ask_ok(of_all).await);
    let queues: Vec<_> = stats
        .match_indices(r#""topic":""#)
        .map(|(at, key)| &stats[at + key.len()..][..1])
        .collect();
    assert_eq!(queues, ["T", "U", "U"], "{stats}");
    let names = vec![r#""U""#; 1001].join(",");
    let too_many = topic(request::GET_TOPIC_STATS_INFO, "T").with_body(format!(r#"{{"topics":[{names}]}}"#));
    let refused = site.ask(too_many).await;
    assert_eq!(refused.code, response::INVALID_PARAMETER, "{refused:?}");
    let queue = r#"{"brokerName":"broker-a","queueId":0,"topic":"T"}"#;
    let stats = text(&site.ask_ok(topic(request::GET_TOPIC_STATS_INFO, "T")).await);
    assert!(
        stats.starts_with(&format!("{{\"offsetTable\":{{{queue}:{{\"lastUpdateTimestamp\":")),
        "{stats}"
    );
    assert!(stats.contains(r#""maxOffset":1,"minOffset":0}}"#), "{stats}");
    site.broker.context().offsets.commit("G", "T", 0, 1);
    let ask = Command::request(request::GET_CONSUME_STATS).with_field("consumerGroup", "G");
    let progress = text(&site.ask_ok(ask).await);
    assert!(
        progress.contains(&format!("{queue}:{{\"brokerOffset\":1,\"consumerOffset\":1,")),
        "{progress}"
    );
    let span = topic(request::QUERY_CONSUME_TIME_SPAN, "T").with_field("group", "G");
    let span = Json::parse(&site.ask_ok(span).await.body.unwrap()).unwrap();
    let span = &span.get("consumeTimeSpanSet").and_then(Json::as_array).unwrap()[0];
    let time = |key: &str| span.get(key).and_then(Json::as_i64).unwrap();
    assert_eq!(
        (time("delayTime"), time("minTimeStamp")),
        (0, time("maxTimeStamp"))
    );
    assert!(time("minTimeStamp") > 0 && time("consumeTimeStamp") == time("minTimeStamp"));
    let who = text(&site.ask_ok(topic(request::QUERY_TOPIC_CONSUME_BY_WHO, "T")).await);
    assert_eq!(who, r#"{"groupList":["G"]}"#);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runtime_information_has_every_key_that_cluster_list_reads() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.send_ok("T", b"x", "").await;
    let body = site
        .ask_ok(Command::request(request::GET_BROKER_RUNTIME_INFO))
        .await
        .body
        .unwrap();
    let info = Json::parse(&body).unwrap();
    let table = info.get("table").unwrap();
    for key in [
        "brokerActive",
        "brokerVersionDesc",
        "putTps",
        "getTransferredTps",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "ackThreadPoolQueueHeadWaitTimeMills",
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "ackThreadPoolQueueSize",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "timerEnqueueTps",
        "timerDequeueTps",
        "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "bootTimestamp",
        "remainHowManyDataToFlush",
        "commitLogMaxOffset",
        "dispatchBehindBytes",
    ] {
        assert!(
            table.get(key).and_then(Json::as_str).is_some(),
            "{key} is missing"
        );
    }
    assert_eq!(table.get("msgPutTotalTodayNow").and_then(Json::as_i64), Some(1));
    assert_eq!(
        table
            .get("putTps")
            .and_then(Json::as_str)
            .unwrap()
            .split(' ')
            .count(),
        3
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_moves_the_next_pull() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    for body in [b"1", b"2"] {
        site.send_ok("T", body, "").await;
    }
    eventually("both are readable", async || {
        site.broker.context().store.max_offset("T", 0) == 2
    })
    .await;
    site.ask(pull("G", "T", 2, "*", None)).await;
    let reset = topic(request::INVOKE_BROKER_TO_RESET_OFFSET, "T")
        .with_field("group", "G")
        .with_field("timestamp", "0")
        .with_field("isForce", "true");
    let answer = text(&site.ask_ok(reset.clone()).await);
    assert!(
        answer.contains(r#"{"brokerName":"broker-a","queueId":0,"topic":"T"}:0"#),
        "{answer}"
    );
    let moved = site.ask(pull("G", "T", 2, "*", None)).await;
    assert_eq!(
        (moved.code, number(&moved, "nextBeginOffset")),
        (response::PULL_OFFSET_MOVED, 0)
    );
    assert_eq!(
        site.ask(pull("G", "T", 0, "*", None)).await.code,
        response::SUCCESS
    );
    let mut nobody = reset;
    nobody.fields.set("group", "nobody");
    assert_eq!(
        site.ask(nobody).await.code,
        response::SUBSCRIPTION_GROUP_NOT_EXIST
    );
    site.stop().await;
}

/// A name server that records what it receives.
struct NameServer {
    address: String,
    received: Arc<Mutex<Vec<Command>>>,
    shutdown: Shutdown,
    tracker: Tracker,
}

impl NameServer {
    fn start(port: u16) -> Self {
        let received: Arc<Mutex<Vec<Command>>> = Arc::default();
        let keep = received.clone();
        let processor: Arc<dyn Processor> = Arc::new(move |request: Command, _: &Peer, reply: Reply| {
            keep.lock().unwrap().push(request);
            reply.send(Command::response(response::SUCCESS));
        });
        let mut table = ProcessorTable::new();
        table.native(
            &[request::REGISTER_BROKER, request::UNREGISTER_BROKER],
            &processor,
        );
        let address = ([127, 0, 0, 1], port).into();
        let server = Server::bind(address, ServerOptions::default(), Arc::new(table), Arc::new(())).unwrap();
        let address = server.local_addr().to_string();
        let (shutdown, tracker) = (Shutdown::new(), Tracker::current());
        let until = shutdown.clone();
        tracker.spawn(async move { drop(server.run(until).await) });
        Self {
            address,
            received,
            shutdown,
            tracker,
        }
    }

    fn heard(&self, code: i32) -> usize {
        self.received
            .lock()
            .unwrap()
            .iter()
            .filter(|command| command.code == code)
            .count()
    }

    fn last_topics(&self) -> String {
        let received = self.received.lock().unwrap();
        received
            .iter()
            .rfind(|command| command.code == request::REGISTER_BROKER)
            .map(text)
            .unwrap_or_default()
    }

    async fn stop(self) {
        self.shutdown.stop_now();
        self.tracker.wait(LIMIT).await;
    }
}

fn with_name_servers(dir: &TempDir, addresses: &str) -> Options {
    Options {
        namesrv_addr: addresses.to_owned(),
        ..options(dir)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn name_servers_hear_of_start_changes_and_stop() {
    let dir = TempDir::new();
    let (one, two) = (NameServer::start(0), NameServer::start(0));
    let site = Site::start(with_name_servers(
        &dir,
        &format!("{};{}", one.address, two.address),
    ));
    eventually("both know it", async || site.broker.health().registered == 2).await;
    let first = one.received.lock().unwrap()[0].clone();
    for (key, value) in [
        ("brokerName", "broker-a"),
        ("clusterName", "DefaultCluster"),
        ("brokerAddr", site.address.as_str()),
        ("brokerId", "0"),
        ("compressed", "false"),
    ] {
        assert_eq!(first.fields.get(key), Some(value), "{key}");
    }
    let crc = pyrmq_remoting::message::record::body_crc(first.body.as_deref().unwrap());
    assert_eq!(number(&first, "bodyCrc32"), i64::from(crc));
    assert!(text(&first).contains(r#""TBW102":{"#));
    // A new topic is answered after the name servers have it.
    site.ask_ok(common::create("fresh", 2)).await;
    assert!(one.last_topics().contains(r#""fresh":{"#) && two.last_topics().contains(r#""fresh":{"#));
    site.send_ok("made-by-send", b"x", "").await;
    eventually("a topic made by a send is told", async || {
        one.last_topics().contains("made-by-send")
    })
    .await;
    site.stop().await;
    assert_eq!(
        (
            one.heard(request::UNREGISTER_BROKER),
            two.heard(request::UNREGISTER_BROKER)
        ),
        (1, 1)
    );
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_servers_hear_that_a_broken_disk_takes_nothing_more() {
    let dir = TempDir::new();
    let name_server = NameServer::start(0);
    let disk = FaultyDisk::default();
    let options = with_name_servers(&dir, &name_server.address);
    let broker = Broker::start_on(Arc::new(disk.clone()), options, &Handle::current(), None, &[]).unwrap();
    let site = Site::of(broker);
    site.ask_ok(common::create("T", 1)).await;
    assert!(name_server.last_topics().contains(r#""perm":6"#));
    disk.fail(Operation::Sync, "commitlog", 0, Fault::Error(ErrorKind::Other));
    let message = properties(&[("WAIT", "false")]);
    site.send("T", b"lost", &message).await;
    eventually("no topic may be written", async || {
        let topics = name_server.last_topics();
        topics.contains(r#""perm":4"#) && !topics.contains(r#""perm":6"#)
    })
    .await;
    assert!(site.broker.health().store.has_failed);
    drop(site.broker.stop(common::LIMIT).await);
    name_server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_server_that_is_away_is_tried_until_it_comes() {
    let dir = TempDir::new();
    let first = NameServer::start(0);
    let address = first.address.clone();
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    first.stop().await;
    let site = Site::start(with_name_servers(&dir, &address));
    site.send_ok("T", b"serves meanwhile", "").await;
    assert_eq!(site.broker.health().registered, 0);
    let back = NameServer::start(port);
    eventually("it is registered", async || site.broker.health().registered == 1).await;
    // A lost connection is a reason to register again at once.
    back.stop().await;
    eventually("it notices", async || site.broker.health().registered == 0).await;
    let again = NameServer::start(port);
    eventually("it is registered again", async || {
        site.broker.health().registered == 1
    })
    .await;
    site.stop().await;
    again.stop().await;
}

#[test]
fn every_known_code_has_one_row_and_every_refused_one_its_reason() {
    let rows = rows();
    assert!(rows.windows(2).all(|pair| pair[0].code < pair[1].code));
    let native = |code| {
        rows.iter()
            .any(|row| row.code == code && row.kind == Kind::Native)
    };
    for code in [
        10, 310, 320, 11, 361, 12, 14, 15, 17, 28, 29, 30, 31, 32, 33, 34, 35, 36, 38, 41, 42, 46, 200, 202,
        208,
    ] {
        assert!(native(code), "{code}");
    }
    let refused = rows.iter().filter(|row| row.kind == Kind::Refused);
    assert!(refused.clone().count() > 50 && refused.clone().all(|row| !row.note.is_empty()));
    let without_a_reason = refused.filter(|row| row.note == "this broker does not serve this request");
    let codes: Vec<i32> = without_a_reason.map(|row| row.code).collect();
    assert_eq!(
        codes,
        [],
        "add them to a list of rows.rs, or with a reason to refusals.rs"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn old_files_are_deleted_on_demand() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.store.segment_bytes = 1 << 16;
    settings.store.set("fileReservedTime", "0").unwrap();
    let site = Site::start(settings);
    for _ in 0..60 {
        site.send_ok("T", &[b'x'; 4000], "").await;
    }
    eventually("old messages go", async || {
        // The newest segments are not synced at once, and unsynced ones stay.
        site.ask_ok(Command::request(request::DELETE_EXPIRED_COMMITLOG))
            .await;
        site.broker.context().store.min_offset("T", 0) > 40
    })
    .await;
    site.stop().await;
}
