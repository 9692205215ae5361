//! Half messages, their ends, and checks of those without an end.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays the damaged disk"
)]

mod common;

use common::transactions::{COMMIT, ROLLBACK, end, end_at, producer};
use common::{
    LIMIT, Site, TempDir, client, create, eventually, number, options, properties, pull, records, send,
};
use pyrmq_broker::{Broker, Options};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::Durability;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::record;
use pyrmq_remoting::names::{HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::{FlushDiskType, NewMessage};
use pyrmq_testkit::FaultyDisk;
use pyrmq_testkit::disk::{Fault, Operation};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;

fn half(topic: &str, id: &str, more: &[(&str, &str)]) -> Command {
    let mut pairs = vec![
        ("TRAN_MSG", "true"),
        ("PGROUP", "producers"),
        ("UNIQ_KEY", id),
        ("TAGS", "t"),
    ];
    pairs.extend(more);
    let mut command = send(topic, 0, id.as_bytes(), &properties(&pairs));
    command.fields.set("g", &clock::now_ms().to_string());
    command.fields.set("f", "4");
    command
}

async fn stored(site: &Site, topic: &str) -> Vec<(String, Vec<u8>, String)> {
    let answer = site.ask(pull("G", topic, 0, "*", None)).await;
    if answer.code == response::SUCCESS {
        records(&answer)
    } else {
        Vec::new()
    }
}

fn short_intervals(dir: &TempDir) -> Options {
    Options {
        transaction_time_out: 1,
        transaction_check_interval: 10,
        transaction_check_max: 1_000_000,
        ..options(dir)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_is_seen_once_it_is_committed_and_never_when_rolled_back() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let one = site.ask_ok(half("T", "0A01", &[])).await;
    let two = site.ask_ok(half("T", "0A02", &[])).await;
    assert_eq!((number(&one, "queueOffset"), number(&two, "queueOffset")), (0, 1));
    assert_eq!(one.fields.get("transactionId"), Some("0A01"));
    assert!(stored(&site, "T").await.is_empty());
    site.ask_ok(end(&two, "0A02", ROLLBACK)).await;
    site.ask_ok(end(&one, "0A01", COMMIT)).await;
    let found = stored(&site, "T").await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1, b"0A01");
    let text = &found[0].2;
    assert!(
        text.contains("__transactionId__\u{1}0A01") && text.contains("PGROUP"),
        "{text}"
    );
    assert!(text.contains("TRAN_MSG") && !text.contains("REAL_"), "{text}");
    let answer = site.ask_ok(pull("G", "T", 0, "*", None)).await;
    let body = answer.body.unwrap();
    let message = record::records(&body).next().unwrap().unwrap();
    let first: OffsetId = one.fields.get("msgId").unwrap().parse().unwrap();
    assert_eq!(message.prepared_transaction_offset, first.offset);
    assert_eq!(message.sys_flag & 0xC, 0x8);
    for (sent, id) in [(&one, "0A01"), (&two, "0A02")] {
        for how in [COMMIT, ROLLBACK] {
            let again = site.ask(end(sent, id, how)).await;
            assert_eq!(again.remark.as_deref(), Some("the transaction has ended already"));
        }
    }
    assert_eq!(stored(&site, "T").await.len(), 1);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_ends_are_refused() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let sent = site.ask_ok(half("T", "0A01", &[])).await;
    let plain = site.send_ok("T", b"x", "").await;
    let at: OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
    let mut stranger = end(&sent, "0A01", COMMIT);
    stranger.fields.set("producerGroup", "strangers");
    for (command, text) in [
        (end_at("0A01", COMMIT, 7, at.offset), "table offset wrong"),
        (end(&plain, "0A01", COMMIT), "Find prepared"),
        (end_at("0A01", COMMIT, 0, 1 << 40), "Find prepared"),
        (end_at("0A01", "9", 0, at.offset), "must be 8, 12 or 0"),
        (stranger, "producer group wrong"),
    ] {
        let answer = site.ask(command).await;
        assert!(answer.remark.unwrap().contains(text), "{text}");
    }
    site.ask_ok(end(&sent, "0A01", "0")).await;
    assert_eq!(stored(&site, "T").await.len(), 1, "only the plain one");
    site.ask_ok(end(&sent, "0A01", COMMIT)).await;
    assert_eq!(stored(&site, "T").await.len(), 2);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transactions_survive_a_restart_and_ended_ones_stay_ended() {
    is_stored_once_over_a_restart(Index::Kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_index_a_committed_transaction_is_stored_once_too() {
    is_stored_once_over_a_restart(Index::Off).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_key_index_is_made_again_a_committed_transaction_is_stored_once_too() {
    is_stored_once_over_a_restart(Index::Lost).await;
}

/// The key index, by which the end of a transaction finds a message that is in the log already.
#[derive(Clone, Copy, PartialEq)]
enum Index {
    Kept,
    Off,
    /// Its files are gone at the restart, which makes it again from the log, behind the first requests.
    Lost,
}

async fn is_stored_once_over_a_restart(index: Index) {
    let dir = TempDir::new();
    let options = |dir: &TempDir| {
        let mut options = options(dir);
        options.store.index = index != Index::Off;
        options
    };
    let site = Site::start(options(&dir));
    let mut sent = Vec::new();
    for id in ["0A01", "0A02", "0A03", "0A04"] {
        sent.push(site.ask_ok(half("T", id, &[])).await);
    }
    site.ask_ok(end(&sent[0], "0A01", COMMIT)).await;
    site.ask_ok(end(&sent[1], "0A02", ROLLBACK)).await;
    commit_without_op(&site, &sent[3], "0A04", ("T", 0));
    if index == Index::Lost {
        // So that the index is not made in a moment.
        for _ in 0..2000 {
            site.send_ok("others", b"x", "").await;
        }
    }
    site.stop().await;
    if index == Index::Lost {
        std::fs::remove_dir_all(dir.path().join("store/index")).unwrap();
    }
    let site = Site::start(options(&dir));
    for (at, id) in [(0, "0A01"), (1, "0A02")] {
        assert_ne!(
            site.ask(end(&sent[at], id, COMMIT)).await.code,
            response::SUCCESS,
            "{id}"
        );
    }
    site.ask_ok(end(&sent[2], "0A03", COMMIT)).await;
    site.ask_ok(end(&sent[3], "0A04", COMMIT)).await;
    let bodies: Vec<Vec<u8>> = stored(&site, "T")
        .await
        .into_iter()
        .map(|(_, body, _)| body)
        .collect();
    assert_eq!(
        bodies,
        [b"0A01".to_vec(), b"0A04".to_vec(), b"0A03".to_vec()],
        "each once"
    );
    site.stop().await;
}

/// Stores what a broker that dies between the message of a transaction and its op message leaves behind.
fn commit_without_op(site: &Site, half: &Command, id: &str, (topic, queue_id): (&str, i32)) {
    let half: OffsetId = half.fields.get("msgId").unwrap().parse().unwrap();
    let mut pairs = vec![("UNIQ_KEY", id)];
    if topic == SCHEDULE_TOPIC {
        pairs.extend([("REAL_TOPIC", "T"), ("REAL_QID", "0")]);
    }
    let text = properties(&pairs);
    let message = NewMessage {
        sys_flag: 8,
        born_timestamp_ms: born_ms(site, half.offset),
        prepared_transaction_offset: half.offset,
        properties: text.as_str().into(),
        tags_code: match topic {
            // When it is delivered.
            SCHEDULE_TOPIC => clock::now_ms() + 3_600_000,
            _ => 0,
        },
        ..message_of(topic, queue_id, id)
    };
    site.broker.context().store.put(&message).unwrap();
}

/// The time of birth of the record at a position: a half's copies and its message have it, too.
fn born_ms(site: &Site, position: i64) -> i64 {
    let bytes = site.broker.context().store.record_at(position).unwrap().unwrap();
    record::Record::decode(&bytes).unwrap().born_timestamp_ms
}

fn message_of<'a>(topic: &'a str, queue_id: i32, id: &'a str) -> NewMessage<'a> {
    let host = "127.0.0.1:1".parse().unwrap();
    NewMessage {
        body: id.as_bytes(),
        unique_key: Some(id),
        ..NewMessage::new(topic, queue_id, host)
    }
}

/// How a topic with four queues comes to another number of them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    MadeAgainWithOne,
    ReducedToTwo,
    MadeAgainWithOneThenEnlarged,
}

/// Ends a transaction by a request, or by the check.
#[derive(Debug, Clone, Copy, PartialEq)]
enum EndBy {
    Request,
    Check,
}

/// A transaction for queue 3 whose message is in another queue, without an op message, is stored once.
async fn is_found_in_whatever_queue(index: Index, end_by: EndBy) {
    for (change, stored_in, own_has_messages) in [
        (Change::MadeAgainWithOne, 0, false),
        (Change::ReducedToTwo, 1, true),
        (Change::MadeAgainWithOneThenEnlarged, 0, true),
    ] {
        let dir = TempDir::new();
        let with_index = |mut options: Options| {
            options.store.index = index != Index::Off;
            options
        };
        let site = Site::start(with_index(options(&dir)));
        let to_own = |mut command: Command| {
            command.fields.set("e", "3");
            command
        };
        site.ask_ok(create("T", 4)).await;
        let sent = site.ask_ok(to_own(half("T", "0A01", &[]))).await;
        if change == Change::ReducedToTwo {
            site.ask_ok(to_own(send("T", 0, b"plain", ""))).await;
            site.ask_ok(create("T", 2)).await;
        } else {
            site.ask_ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_field("topic", "T"))
                .await;
            site.ask_ok(create("T", 1)).await;
        }
        commit_without_op(&site, &sent, "0A01", ("T", stored_in));
        if change == Change::MadeAgainWithOneThenEnlarged {
            site.ask_ok(create("T", 4)).await;
            site.ask_ok(to_own(send("T", 0, b"plain", ""))).await;
        }
        let what = format!("{change:?}");
        let count = |site: &Site| -> i64 {
            let store = &site.broker.context().store;
            (0..4).map(|queue| store.max_offset("T", queue)).sum()
        };
        eventually("all is readable", async || {
            count(&site) == 1 + i64::from(own_has_messages)
        })
        .await;
        site.stop().await;

        let disk = FaultyDisk::default();
        if index == Index::Lost {
            std::fs::remove_dir_all(dir.path().join("store/index")).unwrap();
            // It is not made again before the end: too many files are open (EMFILE).
            disk.fail(Operation::Open, "/index/", 0, Fault::System(24));
        }
        let site = start_on(
            &disk,
            with_index(match end_by {
                EndBy::Request => options(&dir),
                EndBy::Check => short_intervals(&dir),
            }),
        );
        let (client, asked) = producer(&site).await;
        if end_by == EndBy::Request {
            site.ask_ok(end(&sent, "0A01", COMMIT)).await;
        }
        let is_asked = || !asked.questions.lock().unwrap().is_empty();
        eventually("it ends", async || {
            is_asked() || site.broker.context().store.max_offset(OP_HALF_TOPIC, 0) == 1
        })
        .await;
        assert!(!is_asked(), "{what}: it was taken for open");
        assert_eq!(
            count(&site),
            1 + i64::from(own_has_messages),
            "{what}: stored twice"
        );
        client.close().await;
        disk.heal();
        site.stop().await;
    }
}

fn start_on(disk: &FaultyDisk, options: Options) -> Site {
    let disk = Arc::new(disk.clone());
    Site::of(Broker::start_on(disk, options, &Handle::current(), None, &[]).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_a_queue_of_another_number_is_found_without_an_index() {
    is_found_in_whatever_queue(Index::Off, EndBy::Request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_a_queue_of_another_number_is_found_by_the_check_without_an_index() {
    is_found_in_whatever_queue(Index::Off, EndBy::Check).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_a_queue_of_another_number_is_found_while_the_index_is_made_again() {
    is_found_in_whatever_queue(Index::Lost, EndBy::Request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_a_queue_of_another_number_is_found_by_the_check_while_the_index_is_made_again() {
    is_found_in_whatever_queue(Index::Lost, EndBy::Check).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_delay_level_was_lowered_to_the_highest_is_stored_once() {
    let dir = TempDir::new();
    let mut options = options(&dir);
    options.store.index = false;
    let site = Site::start(options.clone());
    let sent = site.ask_ok(half("T", "0A01", &[("DELAY", "99")])).await;
    commit_without_op(&site, &sent, "0A01", (SCHEDULE_TOPIC, 17));
    site.stop().await;
    let site = Site::start(options);
    site.ask_ok(end(&sent, "0A01", COMMIT)).await;
    let store = &site.broker.context().store;
    assert_eq!(store.max_offset(OP_HALF_TOPIC, 0), 1);
    assert_eq!(store.max_offset(SCHEDULE_TOPIC, 17), 1, "stored twice");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_transaction_is_not_given_up() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let checked = [("TRANSACTION_CHECK_TIMES", "20")];
    let sent = site.ask_ok(half("T", "0A01", &checked)).await;
    commit_without_op(&site, &sent, "0A01", ("T", 0));
    site.stop().await;
    let site = Site::start(Options {
        transaction_check_max: 3,
        ..short_intervals(&dir)
    });
    let store = &site.broker.context().store;
    let given_up = || store.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0);
    eventually("it ends", async || {
        store.max_offset(OP_HALF_TOPIC, 0) + given_up() == 1
    })
    .await;
    assert_eq!(given_up(), 0);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_transaction_opens_no_index_file_from_before_its_half() {
    let dir = TempDir::new();
    let mut options = options(&dir);
    options.store.index_entries = 20;
    let site = Site::start(options.clone());
    for number in 0..1000 {
        let text = properties(&[("UNIQ_KEY", &format!("0B{number}")), ("TAGS", "t")]);
        site.send_ok("others", b"x", &text).await;
    }
    let sent = site.ask_ok(half("T", "0A01", &[])).await;
    site.stop().await;
    let disk = FaultyDisk::default();
    let site = start_on(&disk, options);
    let files = std::fs::read_dir(dir.path().join("store/index"));
    assert!(files.unwrap().count() > 90, "more than stay open");
    let before = disk.opens("/index/");
    site.ask_ok(end(&sent, "0A01", COMMIT)).await;
    let opened = disk.opens("/index/") - before;
    assert!(opened <= 3, "{opened} files were opened");
    assert_eq!(stored(&site, "T").await.len(), 1);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_is_checked_and_its_answer_counts_once() {
    let dir = TempDir::new();
    let site = Site::start(short_intervals(&dir));
    let (client, asked) = producer(&site).await;
    let sent = site.ask_ok(half("T", "0A01", &[])).await;
    eventually("the question comes", async || {
        !asked.questions.lock().unwrap().is_empty()
    })
    .await;
    let question = asked.questions.lock().unwrap()[0].clone();
    assert_eq!(question.fields.get("transactionId"), Some("0A01"));
    assert_eq!(question.fields.get("msgId"), Some("0A01"));
    let body = question.body.as_ref().unwrap();
    let shown = record::records(body).next().unwrap().unwrap();
    assert_eq!((shown.topic, shown.body), ("T", &b"0A01"[..]));
    assert_eq!(shown.properties.get("TRANSACTION_CHECK_TIMES"), Some("1"));
    let mut answer = end_at(
        "0A01",
        COMMIT,
        number(&question, "tranStateTableOffset"),
        number(&question, "commitLogOffset"),
    );
    answer.fields.set("fromTransactionCheck", "true");
    client.request(&site.address, answer, LIMIT).await.unwrap();
    // An end of the original half message, which was in flight all the time.
    assert_ne!(site.ask(end(&sent, "0A01", COMMIT)).await.code, response::SUCCESS);
    assert_eq!(stored(&site, "T").await.len(), 1);
    client.close().await;
    site.stop().await;
}

/// Settings with which every send waits for the disk.
fn sync_flush(mut options: Options) -> Options {
    options.store.flush = FlushDiskType::Sync;
    options.store.flush_inline_below_us = 0;
    options.store.busy_ms = 600_000;
    options.store.sync_flush_timeout_ms = 600_000;
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_commit_whose_op_message_is_refused_while_the_disk_hangs_is_stored_once() {
    let dir = TempDir::new();
    let mut settings = sync_flush(short_intervals(&dir));
    settings.transaction_time_out = 3_600_000;
    let disk = FaultyDisk::default();
    let site = start_on(&disk, settings.clone());
    let (client, asked) = producer(&site).await;
    site.send_ok("others", b"x", "").await;
    let sent = site.ask_ok(half("T", "0A01", &[])).await;
    disk.hang(true);
    let _waiting = site.asking(send("others", 0, b"x", ""));
    let busy = || site.broker.health().store.busy;
    eventually("it waits for the disk", async || busy().waiting_for_disk == 1).await;
    disk.hang_writes(true);
    let ending = site.asking(end(&sent, "0A01", COMMIT));
    eventually("its message is being written", async || busy().held_now_ms > 0).await;
    // One sender waits already, and no more may: the op message is refused.
    let mut narrow = settings.clone();
    narrow.store.send_capacity = 1;
    site.broker.reconfigure(&narrow).unwrap();
    disk.hang_writes(false);
    assert_ne!(ending.await.unwrap().unwrap().code, response::SUCCESS);
    let written = || site.broker.context().store.stats().messages_put;
    let before = written();
    settings.transaction_time_out = 1;
    site.broker.reconfigure(&settings).unwrap();
    eventually("the check has come to it", async || written() > before).await;
    disk.hang(false);
    let question = || asked.questions.lock().unwrap().first().cloned();
    eventually("it ends", async || {
        question().is_some() || site.broker.context().store.max_offset(OP_HALF_TOPIC, 0) == 1
    })
    .await;
    if let Some(question) = question() {
        let place = number(&question, "tranStateTableOffset");
        let offset = number(&question, "commitLogOffset");
        site.ask(end_at("0A01", COMMIT, place, offset)).await;
    }
    // What was written before it is readable now, too.
    site.send_ok("others", b"x", "").await;
    assert_eq!(stored(&site, "T").await.len(), 1);
    assert!(question().is_none(), "it was taken for open");
    client.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_message_is_found_although_its_object_was_sent_many_times_since() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let sent = site.ask_ok(half("T", "0A01", &[])).await;
    commit_without_op(&site, &sent, "0A01", ("T", 0));
    let again = properties(&[("UNIQ_KEY", "0A01")]);
    for _ in 0..40 {
        site.send_ok("T", b"plain", &again).await;
    }
    site.stop().await;
    let site = Site::start(options(&dir));
    site.ask_ok(end(&sent, "0A01", COMMIT)).await;
    assert_eq!(site.broker.context().store.max_offset("T", 0), 41, "once");
    site.stop().await;
}

/// An earlier version, and Apache's broker, may have written a half again behind its message.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_front_of_the_copy_of_its_half_is_stored_once() {
    for end_by in [EndBy::Request, EndBy::Check] {
        let dir = TempDir::new();
        let site = Site::start(options(&dir));
        let sent = site.ask_ok(half("T", "0A01", &[])).await;
        commit_without_op(&site, &sent, "0A01", ("T", 0));
        let text = properties(&[
            ("TRAN_MSG", "true"),
            ("PGROUP", "producers"),
            ("UNIQ_KEY", "0A01"),
            ("REAL_TOPIC", "T"),
            ("REAL_QID", "0"),
            ("TRANSACTION_CHECK_TIMES", "1"),
        ]);
        let first: OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
        let again = NewMessage {
            born_timestamp_ms: born_ms(&site, first.offset),
            properties: text.as_str().into(),
            ..message_of(HALF_TOPIC, 0, "0A01")
        };
        let again = site.broker.context().store.put(&again).unwrap();
        site.stop().await;
        let site = Site::start(match end_by {
            EndBy::Request => options(&dir),
            EndBy::Check => short_intervals(&dir),
        });
        let (client, asked) = producer(&site).await;
        if end_by == EndBy::Request {
            site.ask_ok(end_at("0A01", COMMIT, again.queue_offset, again.physical_offset))
                .await;
        }
        let is_asked = || !asked.questions.lock().unwrap().is_empty();
        eventually("it ends", async || {
            is_asked() || site.broker.context().store.max_offset(OP_HALF_TOPIC, 0) == 1
        })
        .await;
        assert!(!is_asked(), "it was taken for open");
        assert_eq!(stored(&site, "T").await.len(), 1, "{end_by:?}");
        client.close().await;
        site.stop().await;
    }
}

/// With SYNC_FLUSH only what is durable is found, and a copy of a running store is one that a kill has left.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_broker_left_is_durable_before_its_transactions_end() {
    let (dir, left) = (TempDir::new(), TempDir::new());
    let site = Site::start(sync_flush(options(&dir)));
    let sent = site.ask_ok(half("T", "0A01", &[])).await;
    commit_without_op(&site, &sent, "0A01", ("T", 0));
    site.send_ok("others", b"x", "").await;
    copy(&dir.path().join("store"), &left.path().join("store"));
    site.stop().await;
    let site = Site::start(sync_flush(options(&left)));
    let store = &site.broker.context().store;
    assert_eq!(store.durability(store.end_position()), Durability::Local);
    site.ask_ok(end(&sent, "0A01", COMMIT)).await;
    site.send_ok("others", b"x", "").await;
    assert_eq!(stored(&site, "T").await.len(), 1);
    site.stop().await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_half_that_was_written_again_still_counts() {
    let dir = TempDir::new();
    let site = Site::start(short_intervals(&dir));
    let (client, asked) = producer(&site).await;
    let sent = site.ask_ok(half("T", "0A01", &[])).await;
    eventually("the question comes", async || {
        !asked.questions.lock().unwrap().is_empty()
    })
    .await;
    site.ask_ok(end(&sent, "0A01", COMMIT)).await;
    assert_eq!(stored(&site, "T").await.len(), 1);
    client.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_nobody_ends_is_given_up_after_its_checks() {
    let dir = TempDir::new();
    let site = Site::start(Options {
        transaction_check_max: 3,
        ..short_intervals(&dir)
    });
    let (client, asked) = producer(&site).await;
    let sent = site.ask_ok(half("T", "0A01", &[])).await;
    eventually("it is given up", async || {
        stored(&site, "TRANS_CHECK_MAX_TIME_TOPIC").await.len() == 1
    })
    .await;
    assert_eq!(asked.questions.lock().unwrap().len(), 3);
    assert_ne!(site.ask(end(&sent, "0A01", COMMIT)).await.code, response::SUCCESS);
    assert!(stored(&site, "T").await.is_empty());
    client.close().await;
    site.stop().await;
}

fn resume(id: &str) -> Command {
    Command::request(request::RESUME_CHECK_HALF_MESSAGE).with_field("msgId", id)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_transaction_is_checked_again_on_request() {
    let dir = TempDir::new();
    let site = Site::start(Options {
        transaction_check_max: 2,
        ..short_intervals(&dir)
    });
    let (client, asked) = producer(&site).await;
    let plain = site.send_ok("T", b"x", "").await;
    for (id, text) in [
        (plain.fields.get("msgId").unwrap(), "no message of TRANS_CHECK"),
        ("rubbish", "msgId"),
    ] {
        let answer = site.ask(resume(id)).await;
        assert!(answer.remark.unwrap().contains(text), "{id}");
    }
    site.ask_ok(half("T", "0A01", &[])).await;
    eventually("it is given up", async || {
        stored(&site, "TRANS_CHECK_MAX_TIME_TOPIC").await.len() == 1
    })
    .await;
    let answer = site
        .ask_ok(pull("G", "TRANS_CHECK_MAX_TIME_TOPIC", 0, "*", None))
        .await;
    let body = answer.body.unwrap();
    let message = record::records(&body).next().unwrap().unwrap();
    let id = OffsetId {
        host: message.store_host,
        offset: message.physical_offset,
    };
    site.ask_ok(resume(&id.to_string())).await;
    eventually("it is given up again", async || {
        stored(&site, "TRANS_CHECK_MAX_TIME_TOPIC").await.len() == 2
    })
    .await;
    assert_eq!(asked.questions.lock().unwrap().len(), 4, "asked twice each time");
    client.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_resumed_and_committed_is_not_resumed_again() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.ask_ok(create("T", 1)).await;
    let store = &site.broker.context().store;
    let text = properties(&[
        ("UNIQ_KEY", "0A01"),
        ("PGROUP", "producers"),
        ("TRAN_MSG", "true"),
        ("REAL_TOPIC", "T"),
        ("REAL_QID", "0"),
    ]);
    let given_up = NewMessage {
        properties: text.as_str().into(),
        ..message_of("TRANS_CHECK_MAX_TIME_TOPIC", 0, "0A01")
    };
    let id = OffsetId {
        host: given_up.store_host,
        offset: store.put(&given_up).unwrap().physical_offset,
    };
    site.ask_ok(resume(&id.to_string())).await;
    let half = store.queue_entries(HALF_TOPIC, 0, 0, 1).unwrap().unwrap();
    site.ask_ok(end_at("0A01", COMMIT, 0, half[0].position)).await;
    let again = site.ask(resume(&id.to_string())).await;
    assert_eq!(
        again.remark.as_deref(),
        Some("the transaction was committed already")
    );
    assert_eq!(stored(&site, "T").await.len(), 1);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_of_its_own_is_kept_and_a_late_end_is_left_to_the_check() {
    let dir = TempDir::new();
    let site = Site::start(short_intervals(&dir));
    let (client, asked) = producer(&site).await;
    let immune = site
        .ask_ok(half("T", "0A01", &[("CHECK_IMMUNITY_TIME_IN_SECONDS", "600")]))
        .await;
    site.ask_ok(half("T", "0A02", &[])).await;
    eventually("the other is asked about", async || {
        !asked.questions.lock().unwrap().is_empty()
    })
    .await;
    let asked_for = |id| {
        let questions = asked.questions.lock().unwrap();
        questions
            .iter()
            .any(|question| question.fields.get("msgId") == Some(id))
    };
    assert!(asked_for("0A02") && !asked_for("0A01"));
    site.ask_ok(end(&immune, "0A01", COMMIT)).await;
    let late = site
        .ask_ok(half("T", "0A03", &[("CHECK_IMMUNITY_TIME_IN_SECONDS", "0")]))
        .await;
    eventually("its time is over", async || asked_for("0A03")).await;
    let refused = site.ask(end(&late, "0A03", COMMIT)).await;
    assert_eq!(refused.code, response::ILLEGAL_OPERATION);
    client.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_refused_when_they_are_not_wanted() {
    let dir = TempDir::new();
    let mut options = options(&dir);
    options.reject_transaction_message = true;
    let site = Site::start(options);
    assert_eq!(
        site.ask(half("T", "0A01", &[])).await.code,
        response::NO_PERMISSION
    );
    drop(client());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_messages_are_delivered_although_max_message_size_is_smaller_now() {
    let dir = TempDir::new();
    let delayed = |options: Options| Options {
        message_delay_level: "2s".to_owned(),
        ..options
    };
    let site = Site::start(delayed(options(&dir)));
    let large = vec![b'x'; 5000];
    let body = |mut command: Command| {
        command.body = Some(large.clone().into());
        command
    };
    let half = site.ask_ok(body(half("Half", "0A01", &[]))).await;
    let by_level = properties(&[("DELAY", "1"), ("UNIQ_KEY", "0A02")]);
    site.ask_ok(body(send("Level", 0, b"", &by_level))).await;
    let by_timer = properties(&[("TIMER_DELAY_MS", "2000"), ("UNIQ_KEY", "0A03")]);
    site.ask_ok(body(send("Timer", 0, b"", &by_timer))).await;
    site.stop().await;

    let mut less = delayed(options(&dir));
    less.store.max_message_bytes = 4000;
    let site = Site::start(less);
    let refused = site.ask(body(send("Plain", 0, b"", ""))).await;
    assert_eq!(refused.code, response::MESSAGE_ILLEGAL, "{:?}", refused.remark);
    site.ask_ok(end(&half, "0A01", COMMIT)).await;
    for topic in ["Half", "Level", "Timer"] {
        let store = &site.broker.context().store;
        eventually(topic, async || store.max_offset(topic, 0) == 1).await;
        assert_eq!(stored(&site, topic).await[0].1, large, "{topic}");
    }
    site.stop().await;
}
