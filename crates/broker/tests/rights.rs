//! What a broker does by itself while the rights of users are checked: things that requests touch without naming them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::pops::{pop, with};
use common::{LIMIT, Site, TempDir, eventually, hang, number, options, properties, pull, send, send_batch};
use pyrmq_broker::long_polling::deadline_ms;
use pyrmq_broker::tables::clients::MAX_NAMES_PER_CONNECTION;
use pyrmq_broker::{Broker, Options};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::net::{
    Client, ClientOptions, Peer, Processor, ProcessorTable, Refused, Reply, RequestCheck, RequestSigner,
    Security, SystemResolver,
};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::{Fs, RealFs};
use pyrmq_testkit::FaultyDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot::channel;

/// Which topics each user may send to; unknown users may do nothing, and known ones may do everything else.
#[derive(Debug, Default)]
struct Rights {
    topics: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl Rights {
    fn give(&self, user: &str, topics: &[&str]) {
        let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
        self.topics.lock().unwrap().insert(user.to_owned(), topics);
    }

    fn take(&self, user: &str) {
        self.topics.lock().unwrap().remove(user);
    }
}

impl RequestCheck for Rights {
    fn check(&self, request: &Command, _peer: &Peer) -> Option<Refused> {
        let user = self.user(request).unwrap_or_default();
        let is_known = self.topics.lock().unwrap().contains_key(user);
        (!is_known).then(|| Refused {
            answer: Command::error(response::NO_PERMISSION, "unknown user"),
            why: "unknown user".to_owned(),
            is_failed_login: false,
        })
    }

    fn user<'r>(&self, request: &'r Command) -> Option<&'r str> {
        request.fields.get("AccessKey")
    }

    fn may(&self, user: &str, request: &Command, _source: IpAddr) -> bool {
        let topics = self.topics.lock().unwrap();
        let topic = request.fields.get("topic").unwrap_or_default();
        topics.get(user).is_some_and(|topics| topics.contains(topic))
    }
}

/// Names a user in each request.
#[derive(Debug)]
struct As(&'static str);

impl RequestSigner for As {
    fn sign(&self, request: &mut Command) {
        request.fields.set("AccessKey", self.0);
    }
}

fn start(options: Options, rights: &Arc<Rights>) -> Site {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    start_on(&fs, options, rights)
}

fn start_on(fs: &Arc<dyn Fs>, options: Options, rights: &Arc<Rights>) -> Site {
    let security = Security {
        check: Some(rights.clone()),
        ..Security::default()
    };
    let broker = Broker::start_secured(fs, options, &Handle::current(), (None, &[]), &security).unwrap();
    Site::of(broker)
}

/// A client of a user, and the requests that it was sent.
struct User {
    client: Client,
    address: String,
    asked: Arc<Mutex<Vec<Command>>>,
}

struct Keep(Arc<Mutex<Vec<Command>>>);

impl Processor for Keep {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        self.0.lock().unwrap().push(request);
        reply.send(Command::response(response::SUCCESS));
    }
}

impl User {
    fn new(site: &Site, name: &'static str) -> Self {
        let asked = Arc::default();
        let keep: Arc<dyn Processor> = Arc::new(Keep(Arc::clone(&asked)));
        let mut table = ProcessorTable::new();
        let codes = [
            request::CHECK_TRANSACTION_STATE,
            request::PUSH_REPLY_MESSAGE_TO_CLIENT,
        ];
        table.native(&codes, &keep);
        let security = Security {
            signer: Some(Arc::new(As(name))),
            ..Security::default()
        };
        let client = Client::secured(
            &Handle::current(),
            ClientOptions::default(),
            Arc::new(table),
            Arc::new(()),
            (Arc::new(SystemResolver), security),
        );
        Self {
            client: client.unwrap(),
            address: site.address.clone(),
            asked,
        }
    }

    async fn ask(&self, command: Command) -> Command {
        self.client.request(&self.address, command, LIMIT).await.unwrap()
    }

    async fn ask_ok(&self, command: Command) -> Command {
        let answer = self.ask(command).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        answer
    }

    fn was_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn heartbeat(client: &str, groups: &[String]) -> Command {
    let groups: Vec<_> = groups
        .iter()
        .map(|group| format!(r#"{{"groupName":"{group}"}}"#))
        .collect();
    let groups = groups.join(",");
    let body = format!(r#"{{"clientID":"{client}","producerDataSet":[{groups}],"consumerDataSet":[]}}"#);
    Command::request(request::HEART_BEAT).with_body(body)
}

fn half(topic: &str) -> Command {
    let pairs = [("TRAN_MSG", "true"), ("PGROUP", "P"), ("UNIQ_KEY", "0A01")];
    let mut command = send(topic, 0, b"half", &properties(&pairs));
    command.fields.set("g", &clock::now_ms().to_string());
    command.fields.set("f", "4");
    command
}

fn end(sent: &Command, topic: Option<&str>) -> Command {
    let stored: OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
    let command = Command::request(request::END_TRANSACTION)
        .with_field("producerGroup", "P")
        .with_field("tranStateTableOffset", &number(sent, "queueOffset").to_string())
        .with_field("commitLogOffset", &stored.offset.to_string())
        .with_field("commitOrRollback", "12")
        .with_field("msgId", "0A01");
    match topic {
        Some(topic) => command.with_field("topic", topic),
        None => command,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_is_shown_to_and_ended_by_those_who_may_send_it() {
    let dir = TempDir::new();
    let rights = Arc::new(Rights::default());
    rights.give("victim", &["secret"]);
    rights.give("mallory", &["mine"]);
    let checks = Options {
        transaction_time_out: 1,
        transaction_check_interval: 10,
        transaction_check_max: 1_000_000,
        ..options(&dir)
    };
    let site = start(checks, &rights);
    let (victim, mallory) = (User::new(&site, "victim"), User::new(&site, "mallory"));
    mallory.ask_ok(heartbeat("m", &["P".to_owned()])).await;
    let sent = victim.ask_ok(half("secret")).await;
    victim.ask_ok(heartbeat("v", &["P".to_owned()])).await;
    eventually("the victim is asked often", async || victim.was_asked() > 3).await;
    assert_eq!(mallory.was_asked(), 0);
    for topic in [None, Some("mine"), Some("secret")] {
        let answer = mallory.ask(end(&sent, topic)).await;
        assert_eq!(
            answer.code,
            response::NO_PERMISSION,
            "{topic:?} {:?}",
            answer.remark
        );
    }
    victim.ask_ok(end(&sent, None)).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_id_belongs_to_its_first_user_while_connected() {
    let dir = TempDir::new();
    let rights = Arc::new(Rights::default());
    rights.give("victim", &["DefaultCluster_REPLY_TOPIC"]);
    rights.give("mallory", &[]);
    let site = start(options(&dir), &rights);
    let (victim, mallory) = (User::new(&site, "victim"), User::new(&site, "mallory"));
    let beat = || heartbeat("requester", &["P".to_owned()]);
    victim.ask_ok(beat()).await;
    let refused = mallory.ask(beat()).await;
    assert_eq!(refused.code, response::NO_PERMISSION);
    assert!(refused.remark.unwrap().contains("another user"));
    // Another connection of the same user may have it, too.
    let second = User::new(&site, "victim");
    second.ask_ok(beat()).await;
    second.client.close().await;
    let text = properties(&[("MSG_TYPE", "reply"), ("REPLY_TO_CLIENT", "requester")]);
    let mut reply = send("DefaultCluster_REPLY_TOPIC", 0, b"for the requester", &text);
    reply.code = request::SEND_REPLY_MESSAGE_V2;
    eventually("the second connection is gone", async || {
        victim.ask(reply.clone()).await.code == response::SUCCESS
    })
    .await;
    assert_eq!((victim.was_asked() > 0, mallory.was_asked()), (true, 0));
    victim.client.close().await;
    eventually("the id is free again", async || {
        mallory.ask(beat()).await.code == response::SUCCESS
    })
    .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_does_not_take_the_producer_groups_of_all() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let names: Vec<String> = (0..=MAX_NAMES_PER_CONNECTION)
        .map(|at| format!("P{at}"))
        .collect();
    site.ask_ok(heartbeat("c", &names[..MAX_NAMES_PER_CONNECTION]))
        .await;
    site.ask_ok(heartbeat("c", &names[..MAX_NAMES_PER_CONNECTION]))
        .await;
    let refused = site.ask(heartbeat("c", &names[MAX_NAMES_PER_CONNECTION..])).await;
    assert_eq!(refused.code, response::SYSTEM_BUSY);
    assert!(refused.remark.unwrap().contains("256 producer groups"));
    for (client, group, expected) in [
        ("c".repeat(1025), "P".to_owned(), "clientID has 1025 bytes"),
        ("c".to_owned(), "P".repeat(256), "producer group has 256 bytes"),
    ] {
        let refused = site.ask(heartbeat(&client, &[group])).await;
        assert_eq!(refused.code, response::INVALID_PARAMETER);
        assert!(refused.remark.unwrap().contains(expected));
    }
    let leave = Command::request(request::UNREGISTER_CLIENT)
        .with_field("clientID", "c")
        .with_field("producerGroup", "P0");
    site.ask_ok(leave).await;
    site.ask_ok(heartbeat("c", &names[MAX_NAMES_PER_CONNECTION..]))
        .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_requests_end_with_the_rights_of_their_user() {
    let dir = TempDir::new();
    let rights = Arc::new(Rights::default());
    rights.give("root", &[]);
    rights.give("mallory", &[]);
    let site = start(common::pops::short_intervals(options(&dir)), &rights);
    let (root, mallory) = (User::new(&site, "root"), User::new(&site, "mallory"));
    root.ask_ok(send("T", 0, b"before", "")).await;
    let long = Duration::from_mins(10);
    let ask = |command: Command| {
        let (sender, receiver) = channel();
        let (client, address) = (&mallory.client, &mallory.address);
        client.request_with(address, command, long, |answer| drop(sender.send(answer)));
        receiver
    };
    let pulled = ask(pull("G", "T", 1, "*", Some(long)));
    assert_eq!(
        mallory.ask(pop("H", "T", 0, 32, 60_000, 0)).await.code,
        response::SUCCESS
    );
    let popped = ask(pop("H", "T", 0, 32, 60_000, 600_000));
    let info = [("consumerGroup", "H"), ("topic", "T"), ("queueId", "0")];
    eventually("both wait", async || {
        let answer = root.ask_ok(with(request::POLLING_INFO, &info)).await;
        site.broker.health().waiting_pulls == 1 && number(&answer, "pollingNum") == 1
    })
    .await;
    rights.take("mallory");
    root.ask_ok(send("T", 0, b"after", "")).await;
    for held in [pulled, popped] {
        let answer = held.await.unwrap().unwrap();
        assert_eq!(answer.code, response::NO_PERMISSION, "{:?}", answer.remark);
        assert!(answer.body.is_none_or(|body| body.is_empty()));
    }
    site.stop().await;
}

#[test]
fn requests_wait_for_a_minute_at_most() {
    assert_eq!(deadline_ms(1_000, 30_000), 31_000);
    assert_eq!(deadline_ms(1_000, i64::MAX), 61_000);
    assert_eq!(deadline_ms(i64::MAX, 1), i64::MAX);
}

fn create(topic: &str) -> Command {
    Command::request(request::UPDATE_AND_CREATE_TOPIC)
        .with_field("topic", topic)
        .with_field("defaultTopic", "TBW102")
        .with_field("readQueueNums", "1")
        .with_field("writeQueueNums", "1")
        .with_field("perm", "6")
        .with_field("topicFilterType", "SINGLE_TAG")
        .with_field("order", "false")
}

fn limited(answer: &Command) {
    let remark = answer.remark.clone().unwrap_or_default();
    assert_eq!(answer.code, response::NO_PERMISSION, "{remark}");
    assert!(remark.contains("user bob has made 2 topics"), "{remark}");
    assert!(remark.contains("maxTopicsPerUser"), "{remark}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_makes_a_limited_number_of_topics_also_after_a_restart() {
    let (dir, rights) = (TempDir::new(), Arc::new(Rights::default()));
    rights.give("bob", &[]);
    rights.give("ann", &[]);
    // The name of no topic: the request that changes the broker's settings names none.
    rights.give("root", &[""]);
    let mut settings = options(&dir);
    settings.max_topics_per_user = 2;
    let site = start(settings.clone(), &rights);
    let (bob, ann, root) = (
        User::new(&site, "bob"),
        User::new(&site, "ann"),
        User::new(&site, "root"),
    );
    bob.ask_ok(send("by-send", 0, b"x", "")).await;
    bob.ask_ok(create("by-request")).await;
    limited(&bob.ask(send("third", 0, b"x", "")).await);
    limited(&bob.ask(create("third")).await);
    let both = r#"{"topicConfigList":[{"topicName":"by-send","perm":6},{"topicName":"third","perm":6}]}"#;
    let list = Command::request(request::UPDATE_AND_CREATE_TOPIC_LIST).with_body(both);
    limited(&bob.ask(list).await);
    assert!(site.broker.context().topics.get("third").is_none());
    bob.ask_ok(send("by-send", 0, b"known topics go on", "")).await;
    bob.ask_ok(create("by-request")).await;
    ann.ask_ok(create("hers")).await;
    for topic in ["r1", "r2", "r3"] {
        root.ask_ok(create(topic)).await;
    }
    site.stop().await;

    let site = start(settings.clone(), &rights);
    let (bob, root) = (User::new(&site, "bob"), User::new(&site, "root"));
    limited(&bob.ask(send("third", 0, b"x", "")).await);
    let delete = Command::request(request::DELETE_TOPIC_IN_BROKER).with_field("topic", "by-send");
    root.ask_ok(delete).await;
    bob.ask_ok(send("third", 0, b"a deleted topic does not count", ""))
        .await;
    limited(&bob.ask(send("fourth", 0, b"x", "")).await);
    settings.max_topics_per_user = 3;
    site.broker.reconfigure(&settings).unwrap();
    bob.ask_ok(send("fourth", 0, b"the option is live", "")).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_id_is_free_after_a_heartbeat_whose_connection_ended_while_it_waited() {
    let (dir, disk) = (TempDir::new(), FaultyDisk::default());
    let rights = Arc::new(Rights::default());
    rights.give("victim", &[]);
    rights.give("mallory", &[]);
    let fs: Arc<dyn Fs> = Arc::new(disk.clone());
    let site = start_on(&fs, options(&dir), &rights);
    let (victim, mallory) = (User::new(&site, "victim"), User::new(&site, "mallory"));
    let heartbeat_of = |client: &str, group: &str| {
        let body = format!(r#"{{"clientID":"{client}","consumerDataSet":[{{"groupName":"{group}"}}]}}"#);
        Command::request(request::HEART_BEAT).with_body(body)
    };
    let beat = |group: &str| heartbeat_of("id", group);
    let (_, writes, _) = disk.counts();
    hang(&disk);
    mallory.client.oneway(&mallory.address, beat("G")).unwrap();
    eventually("it waits for the disk", async || disk.counts().1 > writes).await;
    mallory.client.close().await;
    eventually("its connection has ended", async || {
        site.broker.health().descriptors.connections == 0
    })
    .await;
    disk.hang(false);
    eventually("its group is made", async || {
        site.broker.context().groups.contains("G")
    })
    .await;
    // Behind it in the list, so that it was served.
    victim.ask_ok(heartbeat_of("other", "H")).await;
    victim.ask_ok(beat("G")).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_of_users_are_written_together_and_counted() {
    const TOPICS: usize = 100;
    let (dir, disk) = (TempDir::new(), FaultyDisk::default());
    let rights = Arc::new(Rights::default());
    rights.give("bob", &[]);
    rights.give("ann", &[]);
    let mut settings = options(&dir);
    settings.max_topics_per_user = 60;
    let fs: Arc<dyn Fs> = Arc::new(disk.clone());
    let site = start_on(&fs, settings.clone(), &rights);
    let (bob, ann) = (User::new(&site, "bob"), User::new(&site, "ann"));
    let ask = |user: &User, topic: String| {
        let (sender, receiver) = channel();
        let answered = |answer| drop(sender.send(answer));
        user.client
            .request_with(&user.address, send(&topic, 0, b"x", ""), LIMIT, answered);
        receiver
    };
    let before = site.broker.context().topics.all().1.counter;
    let (_, writes, _) = disk.counts();
    hang(&disk);
    let first = ask(&ann, "first".to_owned());
    eventually("the first waits for the disk", async || disk.counts().1 > writes).await;
    let asked: Vec<_> = (0..TOPICS).map(|at| ask(&bob, format!("T{at}"))).collect();
    bob.ask_ok(Command::request(request::GET_BROKER_RUNTIME_INFO))
        .await;
    disk.hang(false);
    assert_eq!(first.await.unwrap().unwrap().code, response::SUCCESS);
    let mut codes = Vec::new();
    for answer in asked {
        codes.push(answer.await.unwrap().unwrap().code);
    }
    let made = codes.iter().filter(|code| **code == response::SUCCESS).count();
    let refused = codes.iter().filter(|code| **code == response::NO_PERMISSION);
    assert_eq!((made, refused.count()), (60, 40), "{codes:?}");
    assert_eq!(site.broker.context().topics.all().1.counter - before, 2);
    site.stop().await;

    let site = start(settings, &rights);
    let bob = User::new(&site, "bob");
    let answer = bob.ask(send("more", 0, b"x", "")).await;
    assert_eq!(answer.code, response::NO_PERMISSION, "the makers are in the file");
    bob.ask_ok(send("T0", 0, b"x", "")).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_the_disk_end_with_the_rights_of_their_user() {
    let (dir, disk) = (TempDir::new(), FaultyDisk::default());
    let rights = Arc::new(Rights::default());
    for user in ["root", "late", "mallory"] {
        rights.give(user, &[]);
    }
    let fs: Arc<dyn Fs> = Arc::new(disk.clone());
    let site = start_on(&fs, options(&dir), &rights);
    let [root, late, mallory] = ["root", "late", "mallory"].map(|name| User::new(&site, name));
    root.ask_ok(create("known")).await;
    let ask = |user: &User, command: Command| {
        let (sender, receiver) = channel();
        let answered = |answer| drop(sender.send(answer));
        user.client.request_with(&user.address, command, LIMIT, answered);
        receiver
    };
    let (_, writes, _) = disk.counts();
    hang(&disk);
    let mut refused = vec![ask(&late, send("made", 0, b"x", ""))];
    eventually("its topic waits for the disk", async || disk.counts().1 > writes).await;
    let body = r#"{"clientID":"m","consumerDataSet":[{"groupName":"beats"}]}"#;
    for command in [
        send("hers", 0, b"x", ""),
        pull("pulls", "known", 0, "*", None),
        Command::request(request::HEART_BEAT).with_body(body),
    ] {
        refused.push(ask(&mallory, command));
    }
    let served = ask(&root, send("roots", 0, b"x", ""));
    // Requests of a connection are served in their order: these are behind those that wait.
    for user in [&mallory, &root] {
        user.ask_ok(Command::request(request::GET_BROKER_RUNTIME_INFO))
            .await;
    }
    rights.take("late");
    rights.take("mallory");
    disk.hang(false);
    for answer in refused {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.code, response::NO_PERMISSION, "{:?}", answer.remark);
    }
    let answer = served.await.unwrap().unwrap();
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    let context = site.broker.context();
    assert!(context.topics.get("hers").is_none());
    assert!(!context.groups.contains("pulls") && !context.groups.contains("beats"));
    // This one was being made; its message was not stored.
    assert!(context.topics.get("made").is_some());
    let stored = Command::request(request::GET_MAX_OFFSET)
        .with_field("topic", "made")
        .with_field("queueId", "0");
    assert_eq!(number(&root.ask_ok(stored).await, "offset"), 0);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_that_wait_for_their_turn_end_with_the_rights_of_their_user() {
    let (dir, disk) = (TempDir::new(), FaultyDisk::default());
    disk.make_blind();
    let rights = Arc::new(Rights::default());
    rights.give("root", &[]);
    rights.give("mallory", &[]);
    let fs: Arc<dyn Fs> = Arc::new(disk.clone());
    let site = start_on(&fs, options(&dir), &rights);
    let [root, mallory] = ["root", "mallory"].map(|name| User::new(&site, name));
    for _ in 0..10 {
        root.ask_ok(send_batch("T", 500)).await;
    }
    let search = |user: &User| {
        let (sender, receiver) = channel();
        let command = Command::request(request::GET_TOPIC_STATS_INFO).with_field("topic", "T");
        let answered = |answer| drop(sender.send(answer));
        user.client.request_with(&user.address, command, LIMIT, answered);
        receiver
    };
    let (reads, _, _) = disk.counts();
    disk.hang_reads_for(Duration::from_secs(6));
    // As many as run at a time.
    let served = [search(&root), search(&root)];
    eventually("both read", async || disk.counts().0 >= reads + 2).await;
    let refused = search(&mallory);
    // Behind it on the same connection.
    mallory.ask_ok(send("T", 0, b"x", "")).await;
    rights.take("mallory");
    disk.hang_reads(false);
    assert_eq!(refused.await.unwrap().unwrap().code, response::NO_PERMISSION);
    for answer in served {
        assert_eq!(answer.await.unwrap().unwrap().code, response::SUCCESS);
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_beyond_the_limit_of_its_user_does_not_wait_for_topics_of_others() {
    let (dir, disk) = (TempDir::new(), FaultyDisk::default());
    let rights = Arc::new(Rights::default());
    rights.give("bob", &[]);
    rights.give("ann", &[]);
    let mut settings = options(&dir);
    settings.max_topics_per_user = 1;
    let fs: Arc<dyn Fs> = Arc::new(disk.clone());
    let site = start_on(&fs, settings, &rights);
    let (bob, ann) = (User::new(&site, "bob"), User::new(&site, "ann"));
    bob.ask_ok(send("his", 0, b"x", "")).await;
    let (_, writes, _) = disk.counts();
    hang(&disk);
    let (sender, mut waiting) = channel();
    let answered = |answer| drop(sender.send(answer));
    ann.client
        .request_with(&ann.address, send("hers", 0, b"x", ""), LIMIT, answered);
    eventually("it waits for the disk", async || disk.counts().1 > writes).await;
    let refused = bob.ask(send("more", 0, b"x", "")).await;
    assert_eq!(refused.code, response::NO_PERMISSION, "{:?}", refused.remark);
    assert!(waiting.try_recv().is_err(), "the disk hangs still");
    disk.hang(false);
    assert_eq!(waiting.await.unwrap().unwrap().code, response::SUCCESS);
    site.stop().await;
}
