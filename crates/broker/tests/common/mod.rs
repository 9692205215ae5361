//! A broker on free ports with a temporary store, and the requests that clients make.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod crashes;
pub(crate) mod pops;
pub(crate) mod transactions;

use pyrmq_broker::{Broker, Options};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::batch::{self, BatchItem};
use pyrmq_remoting::net::{Client, ClientOptions, NetError, ProcessorTable};
use pyrmq_testkit::FaultyDisk;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot::{Receiver, channel};

/// A timeout longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// A directory that is deleted with its owner.
pub(crate) struct TempDir(pyrmq_testkit::TempDir);

impl TempDir {
    pub(crate) fn new() -> Self {
        Self(pyrmq_testkit::TempDir::new().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Settings for a small broker in this directory.
pub(crate) fn options(dir: &TempDir) -> Options {
    options_in(dir.path())
}

/// Options for a broker whose store is in a given directory.
pub(crate) fn options_in(dir: &Path) -> Options {
    let mut options = Options {
        listen_port: 0,
        bind_address: "127.0.0.1".to_owned(),
        broker_ip1: "127.0.0.1".to_owned(),
        broker_name: "broker-a".to_owned(),
        ..Options::default()
    };
    options.store.root = dir.join("store");
    options.store.segment_bytes = 4 << 20;
    options.store.queue_file_bytes = 20 * 1000;
    options.store.max_message_bytes = 1 << 20;
    options.store.index_slots = 1000;
    options.store.index_entries = 4000;
    options
}

/// A running broker and a client of it.
pub(crate) struct Site {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client: Client,
    pub(crate) address: String,
}

impl Site {
    pub(crate) fn start(options: Options) -> Self {
        let broker = Broker::start(options, &Handle::current(), None, &[]).unwrap();
        Self::of(broker)
    }

    pub(crate) fn of(broker: Arc<Broker>) -> Self {
        Self {
            address: broker.address(),
            client: client(),
            broker,
        }
    }

    pub(crate) async fn stop(self) {
        self.broker.stop(LIMIT).await.unwrap();
        self.client.close().await;
    }

    pub(crate) async fn ask(&self, command: Command) -> Command {
        self.client.request(&self.address, command, LIMIT).await.unwrap()
    }

    /// Sends a request without waiting; the channel receives the answer.
    pub(crate) fn asking(&self, command: Command) -> Receiver<Result<Command, NetError>> {
        let (sender, receiver) = channel();
        self.client
            .request_with(&self.address, command, LIMIT, |answer| drop(sender.send(answer)));
        receiver
    }

    pub(crate) async fn ask_ok(&self, command: Command) -> Command {
        let answer = self.ask(command).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        answer
    }

    pub(crate) async fn send(&self, topic: &str, body: &[u8], properties: &str) -> Command {
        self.ask(send(topic, 0, body, properties)).await
    }

    /// Creates a topic with this many queues.
    pub(crate) async fn create(&self, topic: &str, queues: i32) -> Command {
        self.ask(create(topic, queues)).await
    }

    /// Sends a message and checks that it was stored.
    pub(crate) async fn send_ok(&self, topic: &str, body: &[u8], properties: &str) -> Command {
        let answer = self.send(topic, body, properties).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        answer
    }
}

pub(crate) fn client() -> Client {
    Client::new(
        &Handle::current(),
        ClientOptions::default(),
        Arc::new(ProcessorTable::new()),
    )
    .unwrap()
}

pub(crate) fn send(topic: &str, queue: i32, body: &[u8], properties: &str) -> Command {
    let queue = queue.to_string();
    [
        ("a", "producers"),
        ("b", topic),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", &queue),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "7"),
        ("i", properties),
        ("j", "0"),
        ("k", "false"),
        ("m", "false"),
    ]
    .into_iter()
    .fold(
        Command::request(request::SEND_MESSAGE_V2),
        |command, (key, value)| command.with_field(key, value),
    )
    .with_body(body.to_vec())
}

/// A batch of this many messages.
pub(crate) fn send_batch(topic: &str, count: usize) -> Command {
    let mut body = Vec::new();
    for _ in 0..count {
        let item = BatchItem {
            flag: 0,
            body: b"old",
            properties: b"",
        };
        batch::encode(&item, &mut body).unwrap();
    }
    let mut command = send(topic, 0, &body, "");
    command.code = request::SEND_BATCH_MESSAGE;
    command
}

pub(crate) fn create(topic: &str, queues: i32) -> Command {
    let queues = queues.to_string();
    [
        ("topic", topic),
        ("defaultTopic", "TBW102"),
        ("readQueueNums", &queues),
        ("writeQueueNums", &queues),
        ("perm", "6"),
        ("topicFilterType", "SINGLE_TAG"),
        ("topicSysFlag", "0"),
        ("order", "false"),
    ]
    .into_iter()
    .fold(
        Command::request(request::UPDATE_AND_CREATE_TOPIC),
        |command, (key, value)| command.with_field(key, value),
    )
}

/// A pull of queue 0 that carries its subscription.
pub(crate) fn pull(
    group: &str,
    topic: &str,
    offset: i64,
    expression: &str,
    wait: Option<Duration>,
) -> Command {
    pull_queue(group, topic, 0, offset, expression, wait)
}

pub(crate) fn pull_queue(
    group: &str,
    topic: &str,
    queue: i32,
    offset: i64,
    expression: &str,
    wait: Option<Duration>,
) -> Command {
    let (offset, queue) = (offset.to_string(), queue.to_string());
    let flag = if wait.is_some() { "6" } else { "4" };
    let wait = wait.unwrap_or_default().as_millis().to_string();
    [
        ("consumerGroup", group),
        ("topic", topic),
        ("queueId", &queue),
        ("queueOffset", &offset),
        ("maxMsgNums", "32"),
        ("sysFlag", flag),
        ("commitOffset", "0"),
        ("suspendTimeoutMillis", &wait),
        ("subscription", expression),
        ("subVersion", "0"),
        ("expressionType", "TAG"),
    ]
    .into_iter()
    .fold(
        Command::request(request::PULL_MESSAGE),
        |command, (key, value)| command.with_field(key, value),
    )
}

/// The wire form of properties.
pub(crate) fn properties(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        text.extend([*name, "\u{1}", *value, "\u{2}"]);
    }
    text
}

/// A number field of an answer.
pub(crate) fn number(command: &Command, key: &str) -> i64 {
    command
        .fields
        .get(key)
        .unwrap_or_else(|| panic!("no {key}"))
        .parse()
        .unwrap()
}

/// The body as text.
pub(crate) fn text(command: &Command) -> String {
    String::from_utf8(command.body.as_deref().unwrap_or_default().to_vec()).unwrap()
}

/// Topic, body and properties of the records of an answer.
pub(crate) fn records(command: &Command) -> Vec<(String, Vec<u8>, String)> {
    let body = command.body.as_deref().unwrap_or_default();
    pyrmq_remoting::message::record::records(body)
        .map(|record| {
            let record = record.unwrap();
            let properties = record.properties.as_str().unwrap().to_owned();
            (record.topic.to_owned(), record.body.to_vec(), properties)
        })
        .collect()
}

/// Waits until `done`, polling; the condition is what the test is about.
pub(crate) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !done().await {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Makes the disk hang, until the test ends that or 9 s are over: a broker whose only thread waits would hang for
/// ever, with the test.
pub(crate) fn hang(disk: &FaultyDisk) {
    disk.hang(true);
    let disk = disk.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(9));
        disk.hang(false);
    });
}
