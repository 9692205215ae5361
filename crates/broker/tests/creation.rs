//! Topics and groups that requests create by using them, on a disk that hangs: only what needs the disk waits for it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{LIMIT, Site, TempDir, create, eventually, hang, number, options, pull, send};
use pyrmq_broker::{Broker, Options};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_testkit::FaultyDisk;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Longer than anything takes that does not wait for the disk.
const SOON: Duration = Duration::from_secs(5);

fn start(options: Options, disk: &FaultyDisk) -> Site {
    Site::of(Broker::start_on(Arc::new(disk.clone()), options, &Handle::current(), None, &[]).unwrap())
}

fn of_group(code: i32, group: &str) -> Command {
    Command::request(code).with_field("consumerGroup", group)
}

fn heartbeat(client: &str, group: &str, more: &str) -> Command {
    let body = format!(
        r#"{{"clientID":"{client}","consumerDataSet":[{{"groupName":"{group}","subscriptionDataSet":[{{"subString":"*","topic":"known"}}]{more}}}],"producerDataSet":[]}}"#
    );
    Command::request(request::HEART_BEAT).with_body(body)
}

fn commit(group: &str, offset: i64) -> Command {
    of_group(request::UPDATE_CONSUMER_OFFSET, group)
        .with_field("topic", "known")
        .with_field("queueId", "0")
        .with_field("commitOffset", &offset.to_string())
}

fn retried(group: &str, tries: i32) -> Command {
    let mut command = send(&format!("%RETRY%{group}"), 0, b"again", "");
    command.fields.set("j", &tries.to_string());
    command
}

fn back(group: &str, level: i32) -> Command {
    Command::request(request::CONSUMER_SEND_MSG_BACK)
        .with_field("offset", "0")
        .with_field("group", group)
        .with_field("delayLevel", &level.to_string())
        .with_field("originMsgId", "origin")
        .with_field("originTopic", "known")
        .with_field("unitMode", "false")
        .with_field("maxReconsumeTimes", "16")
}

fn lock(group: &str) -> Command {
    let queue = r#"{"brokerName":"broker-a","queueId":0,"topic":"known"}"#;
    let body = format!(r#"{{"clientId":"me","consumerGroup":"{group}","mqSet":[{queue}]}}"#);
    Command::request(request::LOCK_BATCH_MQ).with_body(body)
}

/// Every request that makes a topic or a group by using it.
fn requests_that_create() -> Vec<(&'static str, Command)> {
    let peek = of_group(request::PEEK_MESSAGE, "peeks")
        .with_field("topic", "known")
        .with_field("queueId", "0")
        .with_field("maxMsgNums", "1");
    let mut reply = send("replies", 0, b"x", "");
    reply.code = request::SEND_REPLY_MESSAGE_V2;
    vec![
        ("a send", send("new", 0, b"x", "")),
        ("a send to a retry topic", retried("unknown", 1)),
        ("a send to the dead letters", retried("known", 17)),
        ("a reply", reply),
        ("a heartbeat", heartbeat("me", "beats", "")),
        (
            "a heartbeat of a unit",
            heartbeat("me", "units", r#","unitMode":true"#),
        ),
        ("a pull", pull("pulls", "known", 0, "*", None)),
        ("a peek", peek),
        ("a commit", commit("commits", 0)),
        ("a lock", lock("locks")),
        ("a message given back", back("backs", 3)),
        ("a message given back to the dead letters", back("dead", -1)),
    ]
}

/// Every request that changes the file of topics, of groups or of request modes.
fn changes() -> Vec<(&'static str, Command)> {
    let group = r#"{"groupName":"tools"}"#;
    let groups = r#"{"groupConfigList":[{"groupName":"listed"}]}"#;
    let topics = r#"{"topicConfigList":[{"topicName":"listed","perm":6}]}"#;
    let mode = r#"{"topic":"known","consumerGroup":"known","mode":"POP","popShareQueueNum":0}"#;
    let forbid = Command::request(request::UPDATE_AND_GET_GROUP_FORBIDDEN)
        .with_field("group", "known")
        .with_field("topic", "known")
        .with_field("readable", "false");
    vec![
        ("a topic", create("tools", 1)),
        (
            "topics",
            Command::request(request::UPDATE_AND_CREATE_TOPIC_LIST).with_body(topics),
        ),
        (
            "a topic that goes",
            Command::request(request::DELETE_TOPIC_IN_BROKER).with_field("topic", "tools"),
        ),
        (
            "a group",
            Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group),
        ),
        (
            "groups",
            Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST).with_body(groups),
        ),
        (
            "a group that goes",
            Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_field("groupName", "tools"),
        ),
        ("a rule of a group", forbid),
        (
            "a mode",
            Command::request(request::SET_MESSAGE_REQUEST_MODE).with_body(mode),
        ),
    ]
}

/// There is one thread: a request that waited for the disk on it would block all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_makes_a_topic_or_a_group_holds_up_no_send_to_a_known_topic() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(options(&dir), &disk);
    site.ask_ok(create("known", 1)).await;
    site.send_ok("known", b"first", "").await;
    for group in ["known", "dead"] {
        site.ask_ok(heartbeat("me", group, "")).await;
    }
    let other = common::client();
    for (what, first) in requests_that_create().into_iter().chain(changes()) {
        let began = Instant::now();
        let (_, writes, _) = disk.counts();
        hang(&disk);
        let waiting = site.asking(first);
        eventually("it waits for the disk", async || disk.counts().1 > writes).await;
        for table in [
            request::GET_ALL_TOPIC_CONFIG,
            request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            request::GET_ALL_MESSAGE_REQUEST_MODE,
        ] {
            let listed = other.request(&site.address, Command::request(table), LIMIT).await;
            assert_eq!(listed.unwrap().code, response::SUCCESS);
        }
        for _ in 0..3 {
            let sent = other
                .request(&site.address, send("known", 0, b"x", ""), LIMIT)
                .await;
            assert_eq!(sent.unwrap().code, response::SUCCESS);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(began.elapsed() < SOON, "{what}: they took {:?}", began.elapsed());
        disk.hang(false);
        let answer = waiting.await.unwrap().unwrap();
        let is_served = matches!(
            answer.code,
            response::SUCCESS | response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY
        );
        // Nobody is there to get the reply.
        assert!(is_served || what == "a reply", "{what}: {answer:?}");
    }
    let context = site.broker.context();
    for group in [
        "unknown", "beats", "units", "pulls", "peeks", "commits", "locks", "backs",
    ] {
        assert!(context.groups.contains(group), "{group}");
    }
    for topic in [
        "new",
        "replies",
        "%RETRY%unknown",
        "%RETRY%beats",
        "%DLQ%known",
        "%DLQ%dead",
    ] {
        assert!(context.topics.get(topic).is_some(), "{topic}");
    }
    assert_eq!(context.topics.get("%RETRY%units").unwrap().topic_sys_flag, 2);
    other.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_that_are_used_at_once_are_written_together() {
    const TOPICS: usize = 200;
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(options(&dir), &disk);
    let versions = || site.broker.context().topics.all().1.counter;
    let (before, (_, writes, _)) = (versions(), disk.counts());
    hang(&disk);
    let first = site.asking(send("first", 0, b"x", ""));
    eventually("the first one waits for the disk", async || {
        disk.counts().1 > writes
    })
    .await;
    let sends = (0..TOPICS).map(|at| site.asking(send(&format!("T{at}"), 0, b"x", "")));
    let waiting: Vec<_> = sends.collect();
    // The connection's requests are served in their order: this one is behind them.
    site.ask(Command::request(request::GET_BROKER_RUNTIME_INFO)).await;
    disk.hang(false);
    for answer in std::iter::once(first).chain(waiting) {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    }
    assert_eq!(versions() - before, 2);
    site.stop().await;
    // They are in the file, not only in memory.
    let site = Site::start(options(&dir));
    let context = site.broker.context();
    assert!((0..TOPICS).all(|at| context.topics.get(&format!("T{at}")).is_some()));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_of_a_connection_to_a_new_topic_keep_their_order() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let client = common::client();
    let mut asked = Vec::new();
    for at in 0..30 {
        // Some while the topic is made, some when it was just made.
        for number in 0..40 {
            let command = send(&format!("T{at}"), 0, b"x", "");
            let (sender, receiver) = tokio::sync::oneshot::channel();
            client.request_with(&site.address, command, LIMIT, |answer| drop(sender.send(answer)));
            asked.push((at, number, receiver));
            if number % 8 == 0 {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        }
    }
    for (at, expected, receiver) in asked {
        let answer = receiver.await.unwrap().unwrap();
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        assert_eq!(number(&answer, "queueOffset"), expected, "topic {at}");
    }
    client.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_does_not_overtake_the_one_that_makes_the_group() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(options(&dir), &disk);
    site.ask_ok(create("known", 1)).await;
    hang(&disk);
    let commits: Vec<_> = (0..50).map(|offset| site.asking(commit("G", offset))).collect();
    disk.hang(false);
    for answer in commits {
        assert_eq!(answer.await.unwrap().unwrap().code, response::SUCCESS);
    }
    assert_eq!(site.broker.context().offsets.get("G", "known", 0), Some(49));
    site.stop().await;
}

/// Waits until the broker has made a group, and served all that waited for it and for what came before.
async fn made(site: &Site, group: &str) {
    eventually("the group is made", async || {
        site.broker.context().groups.contains(group)
    })
    .await;
    site.ask_ok(heartbeat("next", &format!("{group}-next"), "")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_whose_connection_ends_while_it_waits_leaves_no_member() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(options(&dir), &disk);
    site.ask_ok(create("known", 1)).await;
    let member = common::client();
    let (_, writes, _) = disk.counts();
    hang(&disk);
    member.oneway(&site.address, heartbeat("gone", "G", "")).unwrap();
    eventually("it waits for the disk", async || disk.counts().1 > writes).await;
    member.close().await;
    let connections = || site.broker.health().descriptors.connections;
    eventually("its connection has ended", async || connections() == 1).await;
    disk.hang(false);
    made(&site, "G").await;
    let answer = site
        .ask(of_group(request::GET_CONSUMER_CONNECTION_LIST, "G"))
        .await;
    assert_eq!(answer.code, response::CONSUMER_NOT_ONLINE);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_behind_a_heartbeat_that_waits_has_left() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(options(&dir), &disk);
    site.ask_ok(create("known", 1)).await;
    hang(&disk);
    let joins = site.asking(heartbeat("me", "G", ""));
    let leaves = Command::request(request::UNREGISTER_CLIENT).with_field("clientID", "me");
    let leaves = site.asking(leaves.with_field("consumerGroup", "G"));
    disk.hang(false);
    for answer in [joins, leaves] {
        assert_eq!(answer.await.unwrap().unwrap().code, response::SUCCESS);
    }
    let answer = site
        .ask(of_group(request::GET_CONSUMER_CONNECTION_LIST, "G"))
        .await;
    assert_eq!(answer.code, response::CONSUMER_NOT_ONLINE);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_the_disk_take_a_limited_memory() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(options(&dir), &disk);
    site.ask_ok(create("known", 1)).await;
    site.ask_ok(heartbeat("me", "known", "")).await;
    hang(&disk);
    let large = format!(r#","pad":"{}""#, "x".repeat(1 << 20));
    let clients: Vec<_> = (0..16).map(|_| common::client()).collect();
    for at in 0..80 {
        let beat = heartbeat("large", &format!("G{at}"), &large);
        clients[at % 16].oneway(&site.address, beat).unwrap();
    }
    let began = Instant::now();
    let mut refused = None;
    eventually("one more is refused", async || {
        let beat = heartbeat("another", "another", &large);
        let answer = tokio::time::timeout(Duration::from_millis(300), site.ask(beat)).await;
        refused = answer.ok();
        refused.is_some()
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let refused = refused.unwrap();
    assert_eq!(refused.code, response::SYSTEM_BUSY, "{:?}", refused.remark);
    let remark = refused.remark.unwrap();
    for part in [
        "[OVERLOAD]",
        "first time",
        "10000",
        "67108864 bytes",
        "create topics",
    ] {
        assert!(remark.contains(part), "{remark} lacks {part}");
    }
    site.ask_ok(heartbeat("me", "known", "")).await;
    disk.hang(false);
    eventually("there is room again", async || {
        site.ask(heartbeat("another", "another", &large)).await.code == response::SUCCESS
    })
    .await;
    for client in clients {
        client.close().await;
    }
    site.stop().await;
}

/// Far more than may wait.
const BURST: usize = 12_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_sends_more_than_may_wait_is_slowed_down_and_others_have_room() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(options(&dir), &disk);
    site.ask_ok(create("known", 1)).await;
    let (_, writes, _) = disk.counts();
    hang(&disk);
    let first = site.asking(send("T0", 0, b"x", ""));
    eventually("it waits for the disk", async || disk.counts().1 > writes).await;
    let busy = common::client();
    let (sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for at in 0..BURST {
        let (sender, limit) = (sender.clone(), LIMIT * 6);
        let command = send(&format!("T{}", at % 2), 0, b"x", "");
        busy.request_with(&site.address, command, limit, move |answer| {
            drop(sender.send(answer));
        });
    }
    drop(sender);
    // Whatever does not fit is answered at once.
    let refused = tokio::time::timeout(Duration::from_millis(500), answers.recv()).await;
    assert!(refused.is_err(), "{refused:?}");
    let mut other = site.asking(heartbeat("other", "G", ""));
    // The connection's requests are served in their order: this one is behind it.
    site.ask(Command::request(request::GET_BROKER_RUNTIME_INFO)).await;
    assert!(other.try_recv().is_err(), "the disk hangs still");
    disk.hang(false);
    for answer in [first.await, other.await] {
        assert_eq!(answer.unwrap().unwrap().code, response::SUCCESS);
    }
    for at in 0..BURST {
        let answer = answers.recv().await.unwrap().unwrap();
        assert_eq!(answer.code, response::SUCCESS, "{at}: {:?}", answer.remark);
    }
    busy.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_of_groups_that_are_used_at_once_are_written_together() {
    const GROUPS: usize = 40;
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(options(&dir), &disk);
    site.ask_ok(create("known", 1)).await;
    site.send_ok("known", b"first", "").await;
    // Its members have retries, and nothing has failed yet.
    for at in 0..GROUPS {
        site.ask_ok(heartbeat("me", &format!("R{at}"), "")).await;
        let group = format!(r#"{{"groupName":"G{at}"}}"#);
        site.ask_ok(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group))
            .await;
    }
    let versions = || site.broker.context().topics.all().1.counter;
    let (before, (_, writes, _)) = (versions(), disk.counts());
    hang(&disk);
    let first = site.asking(send("first", 0, b"x", ""));
    eventually("it waits for the disk", async || disk.counts().1 > writes).await;
    let mut waiting = vec![first];
    for at in 0..GROUPS {
        waiting.push(site.asking(back(&format!("G{at}"), 3)));
        waiting.push(site.asking(back(&format!("new{at}"), -1)));
        waiting.push(site.asking(retried(&format!("R{at}"), 17)));
        waiting.push(site.asking(heartbeat("me", &format!("U{at}"), r#","unitMode":true"#)));
    }
    // The connection's requests are served in their order: this one is behind them.
    site.ask(Command::request(request::GET_BROKER_RUNTIME_INFO)).await;
    disk.hang(false);
    for answer in waiting {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    }
    assert_eq!(versions() - before, 2);
    let context = site.broker.context();
    for at in 0..GROUPS {
        for topic in [
            format!("%RETRY%G{at}"),
            format!("%RETRY%new{at}"),
            format!("%DLQ%new{at}"),
            format!("%DLQ%R{at}"),
        ] {
            assert_eq!(context.topics.get(&topic).unwrap().topic_sys_flag, 0, "{topic}");
        }
        assert!(context.topics.get(&format!("%DLQ%G{at}")).is_none());
        let unit = context.topics.get(&format!("%RETRY%U{at}"));
        assert_eq!(unit.unwrap().topic_sys_flag, 2);
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_may_not_be_made_is_refused_although_the_disk_hangs() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut settings = options(&dir);
    settings.auto_create_group_limit = 8 + 1;
    let site = start(settings, &disk);
    site.ask_ok(create("known", 1)).await;
    // It is there, and its retry topic is not.
    let group =
        Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(r#"{"groupName":"G"}"#);
    site.ask_ok(group).await;
    let (_, writes, _) = disk.counts();
    hang(&disk);
    let waiting = site.asking(heartbeat("me", "G", ""));
    eventually("it waits for the disk", async || disk.counts().1 > writes).await;
    let began = Instant::now();
    let refused = site.ask(pull("H", "known", 0, "*", None)).await;
    assert_eq!(refused.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
    assert!(refused.remark.unwrap().contains("autoCreateGroupLimit"));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    disk.hang(false);
    assert_eq!(waiting.await.unwrap().unwrap().code, response::SUCCESS);
    site.stop().await;
}
