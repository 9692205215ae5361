//! Consumers: heartbeats, members, offsets, locks, retries, and their state after a restart.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays the damaged disk"
)]

mod common;

use common::{LIMIT, Site, TempDir, eventually, number, options, properties, pull, records, text};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, SubscriptionGroupWrapper};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Client, ClientOptions, Peer, Processor, ProcessorTable, Reply};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

fn heartbeat(client: &str, group: &str, topic: &str, expression: &str, version: i64) -> Command {
    let body = format!(
        r#"{{"clientID":"{client}","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"{group}","messageModel":"CLUSTERING","subscriptionDataSet":[{{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"{expression}","subVersion":{version},"tagsSet":[],"topic":"{topic}"}}],"unitMode":false}}],"heartbeatFingerprint":0,"producerDataSet":[{{"groupName":"P"}}],"withoutSub":false}}"#
    );
    Command::request(request::HEART_BEAT).with_body(body)
}

fn by_group(code: i32, group: &str) -> Command {
    Command::request(code).with_field("consumerGroup", group)
}

fn offset_request(code: i32, group: &str, topic: &str) -> Command {
    by_group(code, group)
        .with_field("topic", topic)
        .with_field("queueId", "0")
}

/// Returns the groups of the notices that a client received.
#[derive(Clone, Default)]
struct Notices(Arc<Mutex<Vec<String>>>);

impl Notices {
    fn client(&self) -> Client {
        let seen = self.0.clone();
        let note: Arc<dyn Processor> = Arc::new(move |notice: Command, _: &Peer, reply: Reply| {
            seen.lock()
                .unwrap()
                .push(notice.fields.get("consumerGroup").unwrap().to_owned());
            drop(reply);
        });
        let mut table = ProcessorTable::new();
        table.native(&[request::NOTIFY_CONSUMER_IDS_CHANGED], &note);
        Client::new(&Handle::current(), ClientOptions::default(), Arc::new(table)).unwrap()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_listed_and_notified_when_another_joins_or_leaves() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let notices = Notices::default();
    let first = notices.client();
    let answer = first
        .request(&site.address, heartbeat("one", "G", "T", "*", 1), LIMIT)
        .await
        .unwrap();
    assert_eq!(answer.code, response::SUCCESS);
    assert_eq!(answer.fields.get("IS_SUPPORT_HEART_BEAT_V2"), Some("true"));
    assert_eq!(answer.fields.get("IS_SUB_CHANGE"), Some("true"));
    assert!(answer.version >= 232, "clients refuse SQL below 4.1");
    eventually("the first member hears of itself", async || notices.count() == 1).await;
    let second = common::client();
    second
        .request(&site.address, heartbeat("two", "G", "T", "*", 1), LIMIT)
        .await
        .unwrap();
    eventually("the first member hears of the second", async || {
        notices.count() == 2
    })
    .await;
    let list = site
        .ask_ok(by_group(request::GET_CONSUMER_LIST_BY_GROUP, "G"))
        .await;
    assert_eq!(text(&list), r#"{"consumerIdList":["one","two"]}"#);
    // A heartbeat that changes nothing notifies nobody.
    first
        .request(&site.address, heartbeat("one", "G", "T", "*", 1), LIMIT)
        .await
        .unwrap();
    let connections = site
        .ask_ok(by_group(request::GET_CONSUMER_CONNECTION_LIST, "G"))
        .await;
    assert!(text(&connections).contains(r#""subString":"*""#));
    second.close().await;
    eventually("a lost connection is told of", async || notices.count() == 3).await;
    let list = site
        .ask_ok(by_group(request::GET_CONSUMER_LIST_BY_GROUP, "G"))
        .await;
    assert_eq!(text(&list), r#"{"consumerIdList":["one"]}"#);
    let leave = Command::request(request::UNREGISTER_CLIENT).with_field("clientID", "one");
    let leave = leave
        .with_field("consumerGroup", "G")
        .with_field("producerGroup", "P");
    first.request(&site.address, leave, LIMIT).await.unwrap();
    let nobody = site.ask(by_group(request::GET_CONSUMER_LIST_BY_GROUP, "G")).await;
    assert_eq!(nobody.code, response::SYSTEM_ERROR);
    let offline = site
        .ask(by_group(request::GET_CONSUMER_CONNECTION_LIST, "G"))
        .await;
    assert_eq!(offline.code, response::CONSUMER_NOT_ONLINE);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_without_subscription_uses_the_heartbeats() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    for (tag, body) in [("red", "1"), ("blue", "2")] {
        site.send_ok("T", body.as_bytes(), &properties(&[("TAGS", tag)]))
            .await;
    }
    eventually("both are readable", async || {
        site.broker.context().store.max_offset("T", 0) == 2
    })
    .await;
    site.ask_ok(heartbeat("me", "G", "T", "blue", 5)).await;
    let mut bare = pull("G", "T", 0, "", None);
    bare.fields.set("sysFlag", "0");
    bare.fields.set("subVersion", "5");
    let got = site.ask_ok(bare.clone()).await;
    assert_eq!(records(&got)[0].1, b"2");
    bare.fields.set("subVersion", "6");
    assert_eq!(
        site.ask(bare.clone()).await.code,
        response::SUBSCRIPTION_NOT_LATEST
    );
    bare.fields.set("topic", "%RETRY%G");
    assert_eq!(site.ask(bare).await.code, response::SUBSCRIPTION_NOT_EXIST);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_heartbeat_asks_for_the_whole_when_it_is_unknown() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let short = |fingerprint: i32, without: bool| {
        let mut command = heartbeat("me", "G", "T", "*", 1);
        let body = text(&command)
            .replace(
                r#""heartbeatFingerprint":0"#,
                &format!(r#""heartbeatFingerprint":{fingerprint}"#),
            )
            .replace(r#""withoutSub":false"#, &format!(r#""withoutSub":{without}"#));
        command.body = Some(body.into());
        command
    };
    let changed = |answer: Command| answer.fields.get("IS_SUB_CHANGE").unwrap().to_owned();
    assert_eq!(changed(site.ask_ok(short(7, false)).await), "false");
    assert_eq!(changed(site.ask_ok(short(7, true)).await), "false");
    assert_eq!(changed(site.ask_ok(short(8, true)).await), "true");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_starts_at_0_on_a_young_queue_unless_it_says_no() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.send_ok("T", b"x", "").await;
    let ask = offset_request(request::QUERY_CONSUMER_OFFSET, "G", "T");
    assert_eq!(number(&site.ask_ok(ask.clone()).await, "offset"), 0);
    let no = ask.clone().with_field("setZeroIfNotFound", "false");
    assert_eq!(site.ask(no).await.code, response::QUERY_NOT_FOUND);
    let commit = offset_request(request::UPDATE_CONSUMER_OFFSET, "G", "T").with_field("commitOffset", "1");
    site.ask_ok(commit).await;
    assert_eq!(number(&site.ask_ok(ask).await, "offset"), 1);
    let nowhere = offset_request(request::UPDATE_CONSUMER_OFFSET, "G", "no").with_field("commitOffset", "1");
    assert_eq!(site.ask(nowhere).await.code, response::TOPIC_NOT_EXIST);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_locks_are_given_to_one_client() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 4).await;
    let queue = r#"{"brokerName":"broker-a","queueId":0,"topic":"T"}"#;
    let body = |client: &str| format!(r#"{{"clientId":"{client}","consumerGroup":"G","mqSet":[{queue}]}}"#);
    let lock = |client: &str| Command::request(request::LOCK_BATCH_MQ).with_body(body(client));
    let won = format!(r#"{{"lockOKMQSet":[{queue}]}}"#);
    assert_eq!(text(&site.ask_ok(lock("one")).await), won);
    assert_eq!(text(&site.ask_ok(lock("two")).await), r#"{"lockOKMQSet":[]}"#);
    let unlock = |client: &str| Command::request(request::UNLOCK_BATCH_MQ).with_body(body(client));
    // Only its owner gives a lock back.
    site.ask_ok(unlock("two")).await;
    assert_eq!(text(&site.ask_ok(lock("two")).await), r#"{"lockOKMQSet":[]}"#);
    site.ask_ok(unlock("one")).await;
    assert_eq!(text(&site.ask_ok(lock("two")).await), won);
    site.stop().await;
}

fn back(offset: i64, level: i32, max: i32) -> Command {
    Command::request(request::CONSUMER_SEND_MSG_BACK)
        .with_field("offset", &offset.to_string())
        .with_field("group", "G")
        .with_field("delayLevel", &level.to_string())
        .with_field("originMsgId", "origin")
        .with_field("originTopic", "T")
        .with_field("unitMode", "false")
        .with_field("maxReconsumeTimes", &max.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_given_back_is_tried_again_and_then_dead() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.message_delay_level = "0s 0s 0s 0s 1h".to_owned();
    let site = Site::start(settings);
    let sent = properties(&[("TAGS", "red"), ("UNIQ_KEY", "ABC")]);
    site.send_ok("T", b"hard", &sent).await;
    site.ask_ok(back(0, 0, 1)).await;
    let mut retry = Command::default();
    eventually("the retry arrives", async || {
        retry = site.ask(pull("G", "%RETRY%G", 0, "*", None)).await;
        retry.code == response::SUCCESS
    })
    .await;
    let body = retry.body.clone().unwrap();
    let record = pyrmq_remoting::message::Record::decode(&body).unwrap();
    let property = |name| record.properties.get(name);
    assert_eq!(
        (record.body, record.reconsume_times, record.flag),
        (&b"hard"[..], 1, 7)
    );
    assert_eq!(record.born_timestamp_ms, 1_700_000_000_000);
    assert_eq!(property("RETRY_TOPIC"), Some("T"));
    assert_eq!(property("UNIQ_KEY"), Some("ABC"));
    assert_eq!(property("TAGS"), Some("red"));
    assert_eq!(property("DELAY"), None);
    assert_eq!(property("REAL_TOPIC"), Some("%RETRY%G"));
    assert_eq!(property("ORIGIN_MESSAGE_ID").map(str::len), Some(32));
    // The one try is used up: the next time it is dead.
    site.ask_ok(back(record.physical_offset, 0, 1)).await;
    let mut dead = Vec::new();
    eventually("it is dead", async || {
        dead = records(&site.ask(pull("G", "%DLQ%G", 0, "*", None)).await);
        !dead.is_empty()
    })
    .await;
    assert_eq!(dead[0].1, b"hard");
    assert!(dead[0].2.contains("RETRY_TOPIC\u{1}T\u{2}"), "{}", dead[0].2);
    assert!(dead[0].2.contains("DELAY\u{1}0\u{2}"), "{}", dead[0].2);
    // -1 sends it there at once.
    site.ask_ok(back(0, -1, 16)).await;
    eventually("the second is dead", async || {
        site.broker.context().store.max_offset("%DLQ%G", 0) == 2
    })
    .await;
    let missing = site.ask(back(3, 0, 16)).await;
    assert_eq!(missing.code, response::SYSTEM_ERROR);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_level_holds_a_message_and_a_restart_does_not_lose_it() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.message_delay_level = "1s 1h".to_owned();
    let site = Site::start(settings.clone());
    let started = std::time::Instant::now();
    site.send_ok("T", b"later", &properties(&[("DELAY", "1"), ("TAGS", "red")]))
        .await;
    site.send_ok("T", b"much later", &properties(&[("DELAY", "9")]))
        .await;
    assert_eq!(site.broker.context().store.max_offset("T", 0), 0);
    site.stop().await;
    let site = Site::start(settings);
    let got = site.ask_ok(pull("G", "T", 0, "red", Some(LIMIT))).await;
    assert!(started.elapsed().as_millis() >= 1000);
    let (topic, body, stored) = records(&got).remove(0);
    assert_eq!((topic.as_str(), body.as_slice()), ("T", &b"later"[..]));
    assert!(!stored.contains("DELAY\u{1}"), "{stored}");
    assert_eq!(
        site.broker.context().store.max_offset("SCHEDULE_TOPIC_XXXX", 1),
        1,
        "the highest level"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_groups_and_offsets_survive_a_restart() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 3).await;
    site.send_ok("T", b"kept", "").await;
    let group = r#"{"groupName":"G","retryMaxTimes":3,"consumeEnable":true}"#;
    site.ask_ok(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group))
        .await;
    let commit = offset_request(request::UPDATE_CONSUMER_OFFSET, "G", "T").with_field("commitOffset", "1");
    site.ask_ok(commit).await;
    site.stop().await;
    let site = Site::start(options(&dir));
    let context = site.broker.context();
    assert_eq!(context.topics.get("T").unwrap().read_queue_nums, 3);
    assert_eq!(context.groups.get("G").unwrap().retry_max_times, 3);
    assert_eq!(context.groups.get("G").unwrap().retry_queue_nums, 1);
    assert_eq!(context.offsets.get("G", "T", 0), Some(1));
    let got = site.ask_ok(pull("G", "T", 0, "*", None)).await;
    assert_eq!(records(&got)[0].1, b"kept");
    let file = std::fs::read_to_string(dir.path().join("store/config/consumerOffset.json")).unwrap();
    assert!(
        file.contains("\t\t\"T@G\":{0:1\n\t\t}") || file.contains("0:1"),
        "{file}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_topics_file_is_replaced_by_its_backup() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("kept", 2).await;
    site.create("last", 2).await;
    site.stop().await;
    let path = dir.path().join("store/config/topics.json");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let site = Site::start(options(&dir));
    // The backup is one change older.
    assert!(site.broker.context().topics.get("kept").is_some());
    site.stop().await;
    std::fs::write(&path, "{").unwrap();
    std::fs::write(path.with_extension("json.bak"), "").unwrap();
    let error = pyrmq_broker::Broker::start(options(&dir), &Handle::current(), None, &[]).unwrap_err();
    assert!(error.to_string().contains("topics.json"), "{error}");
    // The store is free again: once the file is mended, the broker starts.
    std::fs::write(&path, whole).unwrap();
    let site = Site::start(options(&dir));
    assert!(site.broker.context().topics.get("last").is_some());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_4_9_are_read_with_apaches_defaults() {
    let dir = TempDir::new();
    let config = dir.path().join("store/config");
    std::fs::create_dir_all(&config).unwrap();
    let write = |name: &str, text: &str| std::fs::write(config.join(name), text).unwrap();
    write(
        "topics.json",
        "{\n\t\"dataVersion\":{\n\t\t\"counter\":2,\n\t\t\"timestamp\":1\n\t},\n\t\"topicConfigTable\":{\n\t\t\"T\":{\n\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n\t\t\t\"readQueueNums\":5,\n\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n\t\t\t\"topicName\":\"T\",\n\t\t\t\"topicSysFlag\":0,\n\t\t\t\"writeQueueNums\":4\n\t\t}\n\t}\n}",
    );
    write(
        "subscriptionGroup.json",
        r#"{"dataVersion":{"counter":1,"timestamp":1},"subscriptionGroupTable":{"G":{"brokerId":0,"consumeBroadcastEnable":false,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"G","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":4,"retryQueueNums":2,"whichBrokerWhenConsumeSlowly":1}}}"#,
    );
    write(
        "consumerOffset.json",
        r#"{"offsetTable":{"T@G":{0:12,1:9},"%RETRY%G@G":{0:0}}}"#,
    );
    write("delayOffset.json", r#"{"offsetTable":{1:30,3:7}}"#);
    let site = Site::start(options(&dir));
    let context = site.broker.context();
    let topic = context.topics.get("T").unwrap();
    assert_eq!((topic.read_queue_nums, topic.write_queue_nums), (5, 4));
    let group = context.groups.get("G").unwrap();
    assert_eq!(
        (
            group.retry_max_times,
            group.retry_queue_nums,
            group.consume_timeout_minute
        ),
        (4, 2, 15)
    );
    assert!(!group.consume_broadcast_enable);
    assert_eq!(context.offsets.get("G", "T", 1), Some(9));
    assert_eq!(context.offsets.get("G", "%RETRY%G", 0), Some(0));
    site.stop().await;
}

fn copy(from: &str, to: &str, topic: Option<&str>) -> Command {
    let command = Command::request(request::CLONE_GROUP_OFFSET)
        .with_field("srcGroup", from)
        .with_field("destGroup", to);
    match topic {
        Some(topic) => command.with_field("topic", topic),
        None => command,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_314_gives_a_group_the_offsets_of_another() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    for topic in ["T", "U"] {
        site.ask_ok(common::create(topic, 2)).await;
    }
    let context = site.broker.context();
    for (topic, queue, offset) in [("T", 0, 7), ("T", 1, 9), ("U", 0, 3), ("gone", 0, 5)] {
        context.offsets.commit("G", topic, queue, offset);
    }
    context.offsets.commit("H", "T", 1, 100);
    site.ask_ok(copy("G", "H", Some("T"))).await;
    assert_eq!(
        context.offsets.of_topic("H", "T"),
        [(0, 7), (1, 9)].into(),
        "H's own are replaced"
    );
    assert_eq!(context.offsets.get("H", "U", 0), None, "only this topic");
    // All topics that there are.
    site.ask_ok(copy("G", "I", None)).await;
    assert_eq!(context.offsets.topics_of("I"), ["T", "U"]);
    // While members are connected, what they do not subscribe to is left out, unless the caller says otherwise.
    site.ask_ok(heartbeat("one", "G", "T", "*", 1)).await;
    site.ask_ok(copy("G", "J", None)).await;
    assert_eq!(context.offsets.topics_of("J"), ["T"]);
    site.ask_ok(copy("G", "J", None).with_field("offline", "true"))
        .await;
    assert_eq!(context.offsets.topics_of("J"), ["T", "U"]);
    site.stop().await;
    let site = Site::start(options(&dir));
    assert_eq!(
        site.broker.context().offsets.get("H", "T", 1),
        Some(9),
        "it is in the file"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_314_refuses_groups_that_get_no_offsets() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.auto_create_subscription_group = false;
    let site = Site::start(settings);
    site.broker.context().offsets.commit("G", "T", 0, 7);
    let brokers_own = site.ask(copy("G", "CID_RMQ_SYS_TRANS", Some("T"))).await;
    assert_eq!(brokers_own.code, response::NO_PERMISSION);
    let unknown = site.ask(copy("G", "H", Some("T"))).await;
    assert_eq!(unknown.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
    let nameless = Command::request(request::CLONE_GROUP_OFFSET).with_field("srcGroup", "G");
    assert_eq!(site.ask(nameless).await.code, response::INVALID_PARAMETER);
    assert_eq!(site.broker.context().offsets.get("H", "T", 0), None);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_does_not_bring_offsets_of_a_deleted_topic_back() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let context = site.broker.context();
    site.ask_ok(common::create("T", 1)).await;
    let deleted = context.topics.get("T").unwrap();
    site.ask_ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_field("topic", "T"))
        .await;
    // The rest of a commit that found the topic before it was deleted.
    context.commit("G", &deleted, 0, 5);
    assert_eq!(context.offsets.get("G", "T", 0), None);
    // Neither where a topic of the same name was made meanwhile, which keeps the offsets of its own.
    site.ask_ok(common::create("T", 2)).await;
    let made_again = context.topics.get("T").unwrap();
    context.commit("G", &made_again, 1, 3);
    context.commit("G", &deleted, 0, 5);
    assert_eq!(context.offsets.get("G", "T", 0), None);
    assert_eq!(context.offsets.get("G", "T", 1), Some(3));
    // A change of the topic leaves it the same topic.
    site.ask_ok(common::create("T", 4)).await;
    context.commit("G", &made_again, 0, 1);
    assert_eq!(context.offsets.get("G", "T", 0), Some(1));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_null_row_of_a_file_and_an_ordinal_filter_type_are_read() {
    let dir = TempDir::new();
    let config = dir.path().join("store/config");
    std::fs::create_dir_all(&config).unwrap();
    let text = r#"{"topicConfigTable":{"gone":null,"T":{"topicName":"T","readQueueNums":1,"writeQueueNums":1,"perm":6,"topicFilterType":1}}}"#;
    std::fs::write(config.join("topics.json"), text).unwrap();
    let site = Site::start(options(&dir));
    let topics = &site.broker.context().topics;
    assert!(topics.get("gone").is_none());
    assert_eq!(topics.get("T").unwrap().topic_filter_type.name(), "MULTI_TAG");
    site.create("U", 1).await;
    let written = std::fs::read_to_string(config.join("topics.json")).unwrap();
    assert!(written.contains(r#""topicFilterType":"MULTI_TAG""#), "{written}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_group_without_a_name_is_not_registered() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let body = r#"{"clientID":"me","producerDataSet":[{"groupName":""},{"groupName":"P"}]}"#;
    site.ask_ok(Command::request(request::HEART_BEAT).with_body(body))
        .await;
    let known: Vec<String> = site
        .broker
        .context()
        .clients
        .all_producers()
        .into_iter()
        .map(|(group, _)| group)
        .collect();
    assert_eq!(known, ["P"]);
    site.stop().await;
}

/// How often the file of the groups was written: its version counts.
async fn group_writes(site: &Site) -> i64 {
    let all = site
        .ask_ok(Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        .await;
    let body = SubscriptionGroupWrapper::decode(all.body.as_deref().unwrap()).unwrap();
    body.data_version.counter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_are_used_at_once_are_written_together_and_sends_go_on() {
    const GROUPS: i64 = 200;
    let dir = TempDir::new();
    let site = Arc::new(Site::start(options(&dir)));
    site.create("T", 1).await;
    let before = group_writes(&site).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let sender = tokio::spawn({
        let (site, is_over) = (site.clone(), is_over.clone());
        async move {
            let mut slowest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                site.send_ok("T", b"x", "").await;
                slowest = slowest.max(began.elapsed());
            }
            slowest
        }
    });
    let mut members = JoinSet::new();
    for number in 0..GROUPS {
        let address = site.address.clone();
        members.spawn(async move {
            let client = common::client();
            let group = format!("G{number}");
            let beat = heartbeat(&format!("m{number}"), &group, "T", "*", 1);
            let first = if number % 2 == 0 {
                pull(&group, "T", 0, "*", None)
            } else {
                beat
            };
            let answer = client.request(&address, first, LIMIT).await.unwrap();
            client.close().await;
            (number, answer)
        });
    }
    while let Some(answered) = members.join_next().await {
        let (number, answer) = answered.unwrap();
        let is_served = matches!(
            answer.code,
            response::SUCCESS | response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY
        );
        assert!(is_served, "{number}: {answer:?}");
    }
    is_over.store(true, Ordering::Relaxed);
    let slowest = sender.await.unwrap();
    let writes = group_writes(&site).await - before;
    assert!(writes < GROUPS / 4, "{writes} writes for {GROUPS} groups");
    assert!(slowest < Duration::from_secs(5), "a send took {slowest:?}");
    for number in 0..GROUPS {
        let config =
            by_group(request::GET_SUBSCRIPTIONGROUP_CONFIG, "").with_field("group", &format!("G{number}"));
        site.ask_ok(config).await;
    }
    let site = Arc::into_inner(site).unwrap();
    site.stop().await;
    // They are in the file, not only in memory.
    let site = Site::start(options(&dir));
    let all = site
        .ask_ok(Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        .await;
    let body = SubscriptionGroupWrapper::decode(all.body.as_deref().unwrap()).unwrap();
    assert!((0..GROUPS).all(|number| body.subscription_group_table.contains_key(&format!("G{number}"))));
    let topics = text(&site.ask_ok(Command::request(request::GET_ALL_TOPIC_CONFIG)).await);
    assert!(topics.contains("%RETRY%G1\"") && !topics.contains("%RETRY%G2\""));
}
