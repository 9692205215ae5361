//! Transactions that are open at a start: the search for their messages in the log.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::transactions::{COMMIT, end_at, producer};
use common::{
    LIMIT, Site, TempDir, client, eventually, number, options, properties, pull, records, send, send_batch,
};
use pyrmq_broker::{Broker, Options};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::{Record, record};
use pyrmq_remoting::names::{HALF_TOPIC, OP_HALF_TOPIC};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::NewMessage;
use pyrmq_testkit::FaultyDisk;
use std::sync::Arc;
use tokio::runtime::Handle;

const ID: &str = "0A01";

/// A half of a message with this text, born this long ago. All have the unique id of one message.
fn half(text: &str, age_ms: i64) -> Command {
    let pairs = [("TRAN_MSG", "true"), ("PGROUP", "producers"), ("UNIQ_KEY", ID)];
    let mut command = send("T", 0, text.as_bytes(), &properties(&pairs));
    let born_ms = clock::now_ms() - age_ms;
    command.fields.set("g", &born_ms.to_string());
    command.fields.set("f", "4");
    command
}

/// A half in its queue and in the log.
#[derive(Clone, Copy)]
struct Place {
    queue_offset: i64,
    position: i64,
}

impl Place {
    fn of(sent: &Command) -> Self {
        let id: OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
        Self {
            queue_offset: number(sent, "queueOffset"),
            position: id.offset,
        }
    }

    fn last(site: &Site) -> Self {
        let store = &site.broker.context().store;
        let queue_offset = store.max_offset(HALF_TOPIC, 0) - 1;
        let entries = store.queue_entries(HALF_TOPIC, 0, queue_offset, 1);
        Self {
            queue_offset,
            position: entries.unwrap().unwrap()[0].position,
        }
    }

    fn commit(self) -> Command {
        let mut command = end_at(ID, COMMIT, self.queue_offset, self.position);
        command.fields.set("fromTransactionCheck", "true");
        command
    }
}

fn short_intervals(options: Options) -> Options {
    Options {
        transaction_time_out: 1,
        transaction_check_interval: 10,
        transaction_check_max: 1_000_000,
        ..options
    }
}

/// The broker that writes a half again.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CopyBy {
    TheCheck,
    /// Apache's broker or an earlier version: the copy does not say where the first half is.
    Another,
}

/// Ends with a copy of the last half.
async fn write_again(by: CopyBy, options: Options) {
    if by == CopyBy::TheCheck {
        let site = Site::start(short_intervals(options));
        let before = site.broker.context().store.max_offset(HALF_TOPIC, 0);
        eventually("it is written again", async || {
            site.broker.context().store.max_offset(HALF_TOPIC, 0) > before
        })
        .await;
        return site.stop().await;
    }
    let site = Site::start(options);
    let store = &site.broker.context().store;
    let bytes = store.record_at(Place::last(&site).position).unwrap().unwrap();
    let half = Record::decode(&bytes).unwrap();
    let text = half.properties.as_str().unwrap();
    let text = format!("{text}{}", properties(&[("TRANSACTION_CHECK_TIMES", "1")]));
    let again = NewMessage {
        topic: HALF_TOPIC,
        queue_id: 0,
        flag: half.flag,
        sys_flag: half.sys_flag,
        born_timestamp_ms: half.born_timestamp_ms,
        born_host: half.born_host,
        store_host: half.store_host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: half.body,
        properties: text.as_str().into(),
        tags_code: 0,
        unique_key: Some(ID),
        keys: None,
        tag: None,
    };
    store.put(&again).unwrap();
    site.stop().await;
}

async fn bodies(site: &Site) -> Vec<Vec<u8>> {
    let answer = site.ask(pull("G", "T", 0, "*", None)).await;
    if answer.code != response::SUCCESS {
        return Vec::new();
    }
    records(&answer).into_iter().map(|(_, body, _)| body).collect()
}

/// Commits one message, then sends it in a second transaction, as an application may do with one object.
async fn commit_and_send_again(dir: &TempDir) {
    let site = Site::start(options(dir));
    let first = site.ask_ok(half("first", 2000)).await;
    site.ask_ok(Place::of(&first).commit()).await;
    site.ask_ok(half("second", 1000)).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_transaction_of_one_message_is_stored_when_its_copy_ends_after_a_restart() {
    for by in [CopyBy::TheCheck, CopyBy::Another] {
        let dir = TempDir::new();
        commit_and_send_again(&dir).await;
        write_again(by, options(&dir)).await;
        let site = Site::start(options(&dir));
        site.ask_ok(Place::last(&site).commit()).await;
        assert_eq!(
            bodies(&site).await,
            [b"first".to_vec(), b"second".to_vec()],
            "{by:?}"
        );
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_asks_about_a_second_transaction_of_one_message() {
    for by in [CopyBy::TheCheck, CopyBy::Another] {
        let dir = TempDir::new();
        commit_and_send_again(&dir).await;
        write_again(by, options(&dir)).await;
        let site = Site::start(short_intervals(options(&dir)));
        let (client, asked) = producer(&site).await;
        let ended = || site.broker.context().store.max_offset(OP_HALF_TOPIC, 0) > 1;
        eventually("the check comes to it", async || {
            asked.last().is_some() || ended()
        })
        .await;
        let question = asked
            .last()
            .unwrap_or_else(|| panic!("{by:?}: it was taken for committed"));
        let body = question.body.as_ref().unwrap();
        let shown = record::records(body).next().unwrap().unwrap();
        assert_eq!(
            shown.prepared_transaction_offset, 0,
            "as Apache's brokers show it"
        );
        let asked_about = Place {
            queue_offset: number(&question, "tranStateTableOffset"),
            position: number(&question, "commitLogOffset"),
        };
        site.ask_ok(asked_about.commit()).await;
        assert_eq!(
            bodies(&site).await,
            [b"first".to_vec(), b"second".to_vec()],
            "{by:?}"
        );
        client.close().await;
        site.stop().await;
    }
}

/// Waits until a transaction was given up. Returns the id by which it can be resumed.
async fn await_given_up(site: &Site) -> String {
    let given_up = async || {
        let look = pull("G", "TRANS_CHECK_MAX_TIME_TOPIC", 0, "*", None);
        site.ask(look).await
    };
    eventually("it is given up", async || {
        given_up().await.code == response::SUCCESS
    })
    .await;
    let body = given_up().await.body.unwrap();
    let message = record::records(&body).next().unwrap().unwrap();
    let id = OffsetId {
        host: message.store_host,
        offset: message.physical_offset,
    };
    id.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_transaction_of_one_message_is_resumed_after_it_was_given_up() {
    let dir = TempDir::new();
    commit_and_send_again(&dir).await;
    let site = Site::start(Options {
        transaction_check_max: 1,
        ..short_intervals(options(&dir))
    });
    let given_up = await_given_up(&site).await;
    let resume = Command::request(request::RESUME_CHECK_HALF_MESSAGE);
    site.ask_ok(resume.with_field("msgId", &given_up)).await;
    site.stop().await;
}

/// Two transactions of one message. Options without an index let each search read the queue.
const BOTH: [(&str, bool); 2] = [("with an index", true), ("without an index", false)];

/// Opens both, ends one of them and stops the broker.
async fn end_one_of_two(dir: &TempDir, ended: usize, has_index: bool) -> [Place; 2] {
    let site = Site::start(indexed(dir, has_index));
    // A message of a half at position 0 does not say that.
    site.send_ok("others", b"x", "").await;
    let mut halves = Vec::new();
    for (text, age_ms) in [("first", 2000), ("second", 1000)] {
        halves.push(Place::of(&site.ask_ok(half(text, age_ms)).await));
    }
    site.ask_ok(halves[ended].commit()).await;
    site.stop().await;
    [halves[0], halves[1]]
}

fn indexed(dir: &TempDir, has_index: bool) -> Options {
    let mut options = options(dir);
    options.store.index = has_index;
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_two_open_transactions_of_one_message_is_stored_whichever_ends_before_a_restart() {
    for (ended, (how, has_index)) in [0, 1]
        .into_iter()
        .flat_map(|ended| BOTH.map(|both| (ended, both)))
    {
        let dir = TempDir::new();
        let halves = end_one_of_two(&dir, ended, has_index).await;
        let site = Site::start(indexed(&dir, has_index));
        site.ask_ok(halves[1 - ended].commit()).await;
        let mut stored = bodies(&site).await;
        stored.sort();
        assert_eq!(
            stored,
            [b"first".to_vec(), b"second".to_vec()],
            "{ended} before, {how}"
        );
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_check_asks_about_the_last_transaction_of_one_message_alone() {
    for ended in [0, 1] {
        let dir = TempDir::new();
        let halves = end_one_of_two(&dir, ended, true).await;
        let site = Site::start(short_intervals(options(&dir)));
        let (client, asked) = producer(&site).await;
        let offsets = &site.broker.context().offsets;
        let done = || offsets.get("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0).unwrap_or(0);
        eventually("the check has passed both", async || done() >= 2).await;
        if ended == 0 {
            eventually("the question comes", async || asked.last().is_some()).await;
        } else {
            assert!(asked.last().is_none(), "the later one is committed");
        }
        // Its end counts all the same.
        site.ask_ok(halves[1 - ended].commit()).await;
        assert_eq!(bodies(&site).await.len(), 2);
        client.close().await;
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_given_up_is_resumed_although_a_later_one_of_its_message_is_committed() {
    let dir = TempDir::new();
    let site = Site::start(Options {
        transaction_check_max: 1,
        ..short_intervals(options(&dir))
    });
    site.ask_ok(half("first", 2000)).await;
    let given_up = await_given_up(&site).await;
    site.broker.reconfigure(&options(&dir)).unwrap();
    let second = site.ask_ok(half("second", 1000)).await;
    site.ask_ok(Place::of(&second).commit()).await;
    let resume = Command::request(request::RESUME_CHECK_HALF_MESSAGE);
    site.ask_ok(resume.with_field("msgId", &given_up)).await;
    site.ask_ok(Place::last(&site).commit()).await;
    assert_eq!(
        bodies(&site).await,
        [b"second".to_vec(), b"first".to_vec()],
        "each once"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_index_the_end_of_a_copy_reads_no_message_from_before_its_first_half() {
    let dir = TempDir::new();
    let without_index = || {
        let mut options = options(&dir);
        options.store.index = false;
        options
    };
    let site = Site::start(without_index());
    for _ in 0..40 {
        site.ask_ok(send_batch("T", 500)).await;
    }
    site.ask_ok(half("second", 1000)).await;
    site.stop().await;
    write_again(CopyBy::TheCheck, without_index()).await;
    let disk = FaultyDisk::default();
    let on_disk = Arc::new(disk.clone());
    let site = Site::of(Broker::start_on(on_disk, without_index(), &Handle::current(), None, &[]).unwrap());
    let commit = Place::last(&site).commit();
    let (before, _, _) = disk.counts();
    site.ask_ok(commit).await;
    let reads = disk.counts().0 - before;
    assert!(reads < 60, "{reads} reads");
    assert_eq!(site.broker.context().store.max_offset("T", 0), 20_001);
    site.stop().await;
}

#[test]
fn the_end_of_a_transaction_from_before_the_start_holds_up_no_other_connection() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let runtime = |threads| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads).enable_all().build().unwrap()
    };
    let (of_broker, of_clients) = (runtime(1), runtime(2));
    let sent = of_clients.block_on(async {
        let site = Site::start(options(&dir));
        let sent = site.ask_ok(half("first", 1000)).await;
        site.stop().await;
        sent
    });
    let on_disk = Arc::new(disk.clone());
    let broker = Broker::start_on(on_disk, options(&dir), of_broker.handle(), None, &[]).unwrap();
    of_clients.block_on(async {
        let (site, other) = (Site::of(broker), client());
        disk.hang_writes(true);
        let ending = site.asking(Place::of(&sent).commit());
        eventually("its message is being written", async || {
            site.broker.health().store.busy.held_now_ms > 0
        })
        .await;
        let looked = other
            .request(&site.address, pull("G", "T", 0, "*", None), LIMIT)
            .await;
        disk.hang_writes(false);
        assert_ne!(looked.unwrap().code, response::SUCCESS, "it was not waited for");
        assert_eq!(ending.await.unwrap().unwrap().code, response::SUCCESS);
        assert_eq!(bodies(&site).await, [b"first".to_vec()]);
        other.close().await;
        site.stop().await;
    });
}
