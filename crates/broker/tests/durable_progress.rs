//! Progress reaches the disk only after the messages that it refers to.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, changes real files, and a process tells its parent how far it is"
)]

mod common;

use common::{Site, TempDir, eventually, number, options, options_in, properties};
use pyrmq_broker::Options;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_store::{Durability, FlushDiskType, GetMessage, TagFilter};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

/// Options under which the log is not fsynced on its own, and progress is written at once.
fn lazy(dir: &TempDir) -> Options {
    let mut options = Options {
        flush_consumer_offset_interval: 100,
        flush_delay_offset_interval: 100,
        message_delay_level: "1s 2s".to_owned(),
        ..options(dir)
    };
    options.store.flush_interval_ms = 60_000;
    options
}

fn config(dir: &TempDir, name: &str) -> String {
    std::fs::read_to_string(dir.path().join("store/config").join(name)).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_s_progress_is_written_after_the_messages_that_it_calls_delivered() {
    let dir = TempDir::new();
    let site = Site::start(lazy(&dir));
    site.send_ok("T", b"later", &properties(&[("DELAY", "1")])).await;
    let context = site.broker.context();
    eventually("it is delivered and noted", async || {
        config(&dir, "delayOffset.json").contains("1:1")
    })
    .await;
    assert_eq!(context.store.max_offset("T", 0), 1);
    let end = context.store.health().max_physical_offset;
    assert_eq!(context.store.durability(end), Durability::Local);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_s_progress_is_written_after_the_messages_that_it_passed() {
    let dir = TempDir::new();
    let site = Site::start(lazy(&dir));
    let sent = site.send_ok("T", b"read", "").await;
    assert_eq!(number(&sent, "queueOffset"), 0);
    let commit = Command::request(request::UPDATE_CONSUMER_OFFSET)
        .with_field("consumerGroup", "G")
        .with_field("topic", "T")
        .with_field("queueId", "0")
        .with_field("commitOffset", "1");
    site.ask_ok(commit).await;
    let context = site.broker.context();
    eventually("it is noted", async || {
        config(&dir, "consumerOffset.json").contains("T@G")
    })
    .await;
    let end = context.store.health().max_physical_offset;
    assert_eq!(context.store.durability(end), Durability::Local);
    site.stop().await;
}

const DIRECTORY: &str = "PYRMQ_DELAYED_DIRECTORY";
const DELAYED: usize = 1500;

/// Options under which progress is saved only at a stop.
fn unsaved(dir: &Path) -> Options {
    let mut options = Options {
        flush_delay_offset_interval: 3_600_000,
        flush_consumer_offset_interval: 3_600_000,
        message_delay_level: "1s".to_owned(),
        ..options_in(dir)
    };
    options.store.flush = FlushDiskType::Sync;
    options
}

/// Part of another test: a broker that is killed while it delivers. Without the variable it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn child_delivers_delayed_messages() {
    let Ok(dir) = std::env::var(DIRECTORY) else {
        return;
    };
    let site = Site::start(unsaved(Path::new(&dir)));
    let waiting: Vec<_> = (0..DELAYED)
        .map(|number| {
            let text = properties(&[("DELAY", "1"), ("UNIQ_KEY", &number.to_string())]);
            site.asking(common::send("T", 0, b"later", &text))
        })
        .collect();
    for answer in waiting {
        answer.await.unwrap().unwrap();
    }
    println!("\nsent");
    loop {
        println!("\ndelivered {}", site.broker.context().store.max_offset("T", 0));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_at_most_one_delayed_message_comes_again() {
    let again = copies_too_many_after_a_kill(|_| ()).await;
    assert!(again <= 1, "{again} of {DELAYED} came again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_of_copies_that_the_log_has_lost_is_not_believed() {
    copies_too_many_after_a_kill(|dir| {
        let note = std::fs::read(dir.join("config/delayProgress")).unwrap();
        let position = u64::from_be_bytes(note[8..16].try_into().unwrap());
        // The newest copies were only in the system's memory.
        let log = dir.join("commitlog/00000000000000000000");
        let length = std::fs::metadata(&log).unwrap().len();
        let file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
        file.set_len(position - position / 10).unwrap();
        file.set_len(length).unwrap();
    })
    .await;
}

/// Kills a broker that delivers, changes its store, and has another one deliver the rest; none may be missing.
async fn copies_too_many_after_a_kill(change: impl FnOnce(&Path)) -> usize {
    let dir = TempDir::new();
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_delivers_delayed_messages", "--nocapture"])
        .env(DIRECTORY, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let delivered = lines.find_map(|line| {
        let line = line.ok()?;
        let count: usize = line.strip_prefix("delivered ")?.parse().ok()?;
        (count > DELAYED / 5).then_some(count)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(delivered.is_some(), "it ended by itself");
    change(&unsaved(dir.path()).store.root);
    let site = Site::start(unsaved(dir.path()));
    let context = site.broker.context();
    eventually("all are delivered", async || {
        context.delays.offsets().get(&1) == Some(&i64::try_from(DELAYED).unwrap())
    })
    .await;
    // With SYNC_FLUSH only what was fsynced can be read.
    context.store.flush().unwrap();
    let mut copies = BTreeMap::<String, usize>::new();
    let mut offset = 0;
    while offset < context.store.max_offset("T", 0) {
        let got = context.store.get(&GetMessage {
            topic: "T",
            queue_id: 0,
            offset,
            max_count: 1000,
            max_bytes: 1 << 20,
            tags: TagFilter::All,
        });
        let got = got.unwrap();
        for record in pyrmq_remoting::message::record::records(&got.body) {
            let key = record.unwrap().properties.get("UNIQ_KEY").unwrap().to_owned();
            *copies.entry(key).or_default() += 1;
        }
        offset = got.next_offset;
    }
    assert_eq!(copies.len(), DELAYED, "some never came");
    site.stop().await;
    copies.values().map(|count| count - 1).sum()
}
