//! Requests of consumers that pop, and what their answers hold.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the test makes a stop look like a kill")]

use super::{Site, TempDir, number, options, send};
use pyrmq_broker::Options;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::{ReceiptHandle, record};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

/// A popped message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Popped {
    pub(crate) body: String,
    pub(crate) topic: String,
    pub(crate) reconsume_times: i32,
    pub(crate) handle: String,
    pub(crate) offset: i64,
    pub(crate) queue_id: i32,
}

pub(crate) fn with(code: i32, fields: &[(&str, &str)]) -> Command {
    let begin = Command::request(code);
    fields
        .iter()
        .fold(begin, |command, (key, value)| command.with_field(key, value))
}

/// Steps of 100 ms, so that messages come back soon.
pub(crate) fn short_intervals(mut options: Options) -> Options {
    options.store.timer.precision_ms = 100;
    options
}

/// A pop; -1 is every queue.
pub(crate) fn pop(
    group: &str,
    topic: &str,
    queue: i32,
    most: i32,
    invisible_ms: i64,
    wait_ms: i64,
) -> Command {
    with(
        request::POP_MESSAGE,
        &[
            ("consumerGroup", group),
            ("topic", topic),
            ("queueId", &queue.to_string()),
            ("maxMsgNums", &most.to_string()),
            ("invisibleTime", &invisible_ms.to_string()),
            ("pollTime", &wait_ms.to_string()),
            ("bornTime", "0"),
            ("initMode", "0"),
        ],
    )
}

pub(crate) fn ack(group: &str, message: &Popped) -> Command {
    let handle = ReceiptHandle::parse(&message.handle).unwrap();
    let topic = handle.source.topic(&message.topic, group);
    with(
        request::ACK_MESSAGE,
        &[
            ("consumerGroup", group),
            ("topic", &topic),
            ("queueId", &message.queue_id.to_string()),
            ("extraInfo", &message.handle),
            ("offset", &message.offset.to_string()),
        ],
    )
}

pub(crate) fn hide(group: &str, message: &Popped, invisible_ms: i64) -> Command {
    Command {
        code: request::CHANGE_MESSAGE_INVISIBLETIME,
        ..ack(group, message).with_field("invisibleTime", &invisible_ms.to_string())
    }
}

/// The messages of an answer, with the handles that clients make.
pub(crate) fn popped(answer: &Command) -> Vec<Popped> {
    if answer.code != response::SUCCESS {
        assert_eq!(answer.code, response::POLLING_TIMEOUT, "{:?}", answer.remark);
        return Vec::new();
    }
    let starts: BTreeMap<(String, String), String> = answer
        .fields
        .get("startOffsetInfo")
        .unwrap()
        .split(';')
        .map(|entry| {
            let mut words = entry.split(' ').map(str::to_owned);
            let mut next = || words.next().unwrap();
            ((next(), next()), next())
        })
        .collect();
    record::records(answer.body.as_deref().unwrap_or_default())
        .map(|record| {
            let record = record.unwrap();
            let own = record.properties.get("POP_CK").map(str::to_owned);
            let handle = own.unwrap_or_else(|| {
                let start = &starts[&("0".to_owned(), record.queue_id.to_string())];
                format!(
                    "{start} {} {} {} 0 broker-a {} {}",
                    number(answer, "popTime"),
                    number(answer, "invisibleTime"),
                    number(answer, "reviveQid"),
                    record.queue_id,
                    record.queue_offset
                )
            });
            Popped {
                body: String::from_utf8(record.body.to_vec()).unwrap(),
                topic: record.topic.to_owned(),
                reconsume_times: record.reconsume_times,
                handle,
                offset: record.queue_offset,
                queue_id: record.queue_id,
            }
        })
        .collect()
}

/// Pops until this many messages came, or for ten seconds.
pub(crate) async fn pop_until(
    site: &Site,
    group: &str,
    topic: &str,
    count: usize,
    invisible_ms: i64,
) -> Vec<Popped> {
    let deadline = tokio::time::Instant::now() + super::LIMIT;
    let mut all = Vec::new();
    while all.len() < count && tokio::time::Instant::now() < deadline {
        let answer = site.ask(pop(group, topic, -1, 32, invisible_ms, 500)).await;
        all.extend(popped(&answer));
    }
    all
}

pub(crate) fn bodies(messages: &[Popped]) -> Vec<&str> {
    let mut bodies: Vec<&str> = messages.iter().map(|message| message.body.as_str()).collect();
    bodies.sort_unstable();
    bodies
}

/// A broker with a topic `T` that has messages `m00`, `m01`, ...
pub(crate) async fn site(dir: &TempDir, queues: i32, count: usize) -> Site {
    let site = Site::start(short_intervals(options(dir)));
    site.create("T", queues).await;
    fill(&site, queues, 0..count).await;
    site
}

pub(crate) async fn fill(site: &Site, queues: i32, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let queue = i32::try_from(number).unwrap() % queues;
        let body = format!("m{number:02}");
        let answer = site.ask(send("T", queue, body.as_bytes(), "")).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    }
}

/// Starts a broker that was stopped as after a kill: its offsets may be older than its messages.
pub(crate) fn restart_as_killed(dir: &TempDir) -> Site {
    std::fs::write(dir.path().join("store/abort"), "").unwrap();
    Site::start(short_intervals(options(dir)))
}

/// Files of a stopped broker, to be put back later, as a kill leaves those that are written now and then.
pub(crate) struct OldFiles(Vec<(PathBuf, Vec<u8>, SystemTime)>);

impl OldFiles {
    /// Whether files below the store exist.
    pub(crate) fn are_there(dir: &TempDir, names: &[&str]) -> bool {
        let mut files = names.iter().map(|name| dir.path().join("store").join(name));
        files.all(|file| file.exists())
    }

    /// Reads files below the store.
    pub(crate) fn read(dir: &TempDir, names: &[&str]) -> Self {
        let files = names.iter().map(|name| {
            let file = dir.path().join("store").join(name);
            let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
            (file.clone(), std::fs::read(file).unwrap(), modified)
        });
        Self(files.collect())
    }

    pub(crate) fn put_back(self) {
        for (file, bytes, modified) in self.0 {
            std::fs::write(&file, bytes).unwrap();
            let handle = std::fs::File::options().write(true).open(&file).unwrap();
            handle.set_modified(modified).unwrap();
        }
    }
}

pub(crate) fn reset(group: &str, topic: &str) -> Command {
    with(
        request::INVOKE_BROKER_TO_RESET_OFFSET,
        &[
            ("topic", topic),
            ("group", group),
            ("timestamp", "0"),
            ("isForce", "true"),
        ],
    )
}

/// Deletes a topic, makes it again and fills it.
pub(crate) async fn make_again(site: &Site, numbers: std::ops::Range<usize>) {
    site.ask_ok(with(request::DELETE_TOPIC_IN_BROKER, &[("topic", "T")]))
        .await;
    site.create("T", 1).await;
    fill(site, 1, numbers).await;
}
