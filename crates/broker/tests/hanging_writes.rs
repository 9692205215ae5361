//! A write or an fsync of the log hangs: one thread of the runtime waits for it, all others go on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::pops::{pop, with};
use common::transactions::{COMMIT, end};
use common::{
    LIMIT, Site, TempDir, client, eventually, number, options, properties, pull, records, send, send_batch,
};
use pyrmq_broker::{Broker, Options, metrics};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::frame::encode;
use pyrmq_remoting::message::DURABILITY;
use pyrmq_remoting::net::{Client, NetError};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::MaintenanceTask;
use pyrmq_testkit::{FaultyDisk, RawPeer};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{Receiver, channel};

/// Writes to some files, those of the log or others, hang as long as this value lives.
struct Hang<'d>(&'d FaultyDisk, &'static str);

impl<'d> Hang<'d> {
    fn begin(disk: &'d FaultyDisk) -> Self {
        Self::of(disk, "/commitlog/")
    }

    fn of(disk: &'d FaultyDisk, path_part: &'static str) -> Self {
        disk.hang_writes_to(path_part, true);
        Self(disk, path_part)
    }
}

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        self.0.hang_writes_to(self.1, false);
    }
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().unwrap()
}

fn with_two_threads(options: Options, disk: &FaultyDisk, test: impl AsyncFnOnce(Site)) {
    with_threads(2, options, disk, test);
}

/// Runs a test with a broker of a few threads. The clients have others: nothing that they do wakes a thread of the
/// broker.
fn with_threads(threads: usize, options: Options, disk: &FaultyDisk, test: impl AsyncFnOnce(Site)) {
    let (of_broker, of_clients) = (runtime(threads), runtime(2));
    let broker = Broker::start_on(Arc::new(disk.clone()), options, of_broker.handle(), None, &[]);
    of_clients.block_on(async { test(Site::of(broker.unwrap())).await });
}

/// Options with which a connection's task does all that it may do itself, however long that takes.
fn options_with(dir: &TempDir, flush: &str) -> Options {
    let mut options = options(dir);
    options.store.set("flushDiskType", flush).unwrap();
    options.store.set("syncFlushTimeout", "600000").unwrap();
    options.store.flush_inline_below_us = u64::MAX;
    options
}

async fn ask(site: &Site, client: &Client, command: Command) -> Command {
    let asked = client.request(&site.address, command, LIMIT).await;
    asked.unwrap_or_else(|error| panic!("while writes hang: {error}"))
}

fn asking(site: &Site, client: &Client, command: Command) -> Receiver<Result<Command, NetError>> {
    let (sender, receiver) = channel();
    client.request_with(&site.address, command, LIMIT, |answer| drop(sender.send(answer)));
    receiver
}

fn heartbeat(id: &str) -> Command {
    let beat = format!(
        r#"{{"clientID":"{id}","producerDataSet":[{{"groupName":"producers"}}],"consumerDataSet":[]}}"#
    );
    Command::request(request::HEART_BEAT).with_body(beat.into_bytes())
}

/// A pull and a heartbeat are answered.
async fn goes_on(site: &Site, client: &Client) {
    let pulled = ask(site, client, pull("G", "T", 0, "*", None)).await;
    assert_eq!(records(&pulled)[0].1, b"good");
    let beat = ask(site, client, heartbeat("c")).await;
    assert_eq!(beat.code, response::SUCCESS);
}

/// A pull that waits for messages is answered at its end.
async fn timers_go_on(site: &Site, client: &Client) {
    let held = pull("G", "empty", 0, "*", Some(Duration::from_millis(50)));
    assert_eq!(ask(site, client, held).await.code, response::PULL_NOT_FOUND);
}

/// The number of pops of a group that wait for queue 0.
async fn waiting_pops(site: &Site, client: &Client, group: &str, topic: &str) -> i64 {
    let fields = [("consumerGroup", group), ("topic", topic), ("queueId", "0")];
    let info = ask(site, client, with(request::POLLING_INFO, &fields)).await;
    number(&info, "pollingNum")
}

/// The answer to a send that is refused while a write hangs.
fn refused(answer: &Command) {
    assert_eq!(answer.code, response::SYSTEM_BUSY, "{:?}", answer.remark);
    let remark = answer.remark.as_deref().unwrap();
    assert!(remark.contains("broker busy, start flow control"), "{remark}");
}

fn senders_hold_up_no_one_else(flush: &str) {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, flush), &disk, async |site| {
        let (senders, other) = ([(); 4].map(|()| client()), client());
        site.create("empty", 1).await;
        site.send_ok("T", b"good", "").await;
        for sender in &senders {
            let sent = ask(&site, sender, send("T", 0, b"good", "")).await;
            assert_eq!(sent.code, response::SUCCESS);
        }
        goes_on(&site, &other).await;
        for round in 1..=2 {
            let hang = Hang::begin(&disk);
            let busy = || site.broker.health().store.busy;
            let slow = asking(&site, &senders[0], send("T", 0, b"slow", ""));
            eventually("a write hangs", async || busy().held_now_ms > 0).await;
            let waiting = [1, 2, 3].map(|at| asking(&site, &senders[at], send("T", 0, b"next", "")));
            goes_on(&site, &other).await;
            timers_go_on(&site, &other).await;
            for answer in waiting {
                refused(&answer.await.unwrap().unwrap());
            }
            assert!(busy().held_now_ms > 0, "the write still hangs");
            goes_on(&site, &other).await;
            // So do the connections whose sends were refused, and the next send is refused at once.
            goes_on(&site, &senders[1]).await;
            refused(&ask(&site, &senders[1], send("T", 0, b"next", "")).await);
            drop(hang);
            assert_eq!(slow.await.unwrap().unwrap().code, response::SUCCESS);
            let sent = ask(&site, &senders[1], send("T", 0, b"good", "")).await;
            assert_eq!(sent.code, response::SUCCESS, "{:?}", sent.remark);
            let stored = site.broker.context().store.max_offset("T", 0);
            assert_eq!(stored, 5 + 2 * round, "no refused message is stored");
        }
        for client in senders.iter().chain([&other]) {
            client.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn with_async_flush_four_senders_hold_up_no_one_else() {
    senders_hold_up_no_one_else("ASYNC_FLUSH");
}

#[test]
fn with_sync_flush_four_senders_hold_up_no_one_else() {
    senders_hold_up_no_one_else("SYNC_FLUSH");
}

/// Fsyncs hang as long as this value lives.
struct FsyncHang<'d>(&'d FaultyDisk);

impl<'d> FsyncHang<'d> {
    fn begin(disk: &'d FaultyDisk) -> Self {
        disk.hang(true);
        Self(disk)
    }
}

impl Drop for FsyncHang<'_> {
    fn drop(&mut self) {
        self.0.hang(false);
    }
}

/// One connection's task stores the message and fsyncs: requests that wait for the message have become due on its
/// thread.
#[test]
fn requests_that_waited_are_answered_while_the_fsync_of_their_message_hangs() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        let ([sender, puller, popper], other) = ([(); 3].map(|()| client()), client());
        site.create("empty", 1).await;
        site.send_ok("T", b"good", "").await;
        let first = ask(&site, &popper, pop("P", "T", 0, 1, 60_000, 0)).await;
        assert_eq!(first.code, response::SUCCESS);
        let local = || send("T", 0, b"good", "").with_field(DURABILITY, "local");
        let waiting_pulls = || site.broker.health().waiting_pulls;
        for end in 1..=3 {
            let pulled = asking(&site, &puller, pull("G", "T", end, "*", Some(LIMIT)));
            eventually("the pull waits", async || waiting_pulls() == 1).await;
            let hang = FsyncHang::begin(&disk);
            let slow = asking(&site, &sender, local());
            let pulled = pulled.await.unwrap().expect("a pull that waited");
            assert_eq!(records(&pulled)[0].1, b"good");
            if end == 1 {
                timers_go_on(&site, &other).await;
            }
            drop(hang);
            assert_eq!(slow.await.unwrap().unwrap().code, response::SUCCESS);
        }
        // The group P has three to take.
        for _ in 0..3 {
            let taken = ask(&site, &popper, pop("P", "T", 0, 1, 60_000, 0)).await;
            assert_eq!(taken.code, response::SUCCESS);
        }
        for _ in 0..3 {
            let popped = asking(&site, &popper, pop("P", "T", 0, 1, 60_000, 10_000));
            eventually("the pop waits", async || {
                waiting_pops(&site, &other, "P", "T").await == 1
            })
            .await;
            let hang = FsyncHang::begin(&disk);
            let slow = asking(&site, &sender, local());
            let popped = popped.await.unwrap().expect("a pop that waited");
            assert_eq!(popped.code, response::SUCCESS, "{:?}", popped.remark);
            drop(hang);
            assert_eq!(slow.await.unwrap().unwrap().code, response::SUCCESS);
        }
        for client in [&sender, &puller, &popper, &other] {
            client.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn readers_of_a_queue_whose_file_hangs_wait_for_nothing() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        let (readers, other) = ([(); 3].map(|()| client()), client());
        for _ in 0..4 {
            site.ask_ok(send_batch("T", 500)).await;
        }
        // Then the first units are only in the file.
        let store = site.broker.context().store.clone();
        store.run(MaintenanceTask::WriteQueues).unwrap();
        let hang = Hang::of(&disk, "/consumequeue/T/");
        site.send_ok("T", b"next", "").await;
        eventually("the queue is being written", async || disk.waiting_writes() > 0).await;
        let pulls = [0, 1].map(|at| asking(&site, &readers[at], pull("G", "T", 0, "*", None)));
        let popped = asking(&site, &readers[2], pop("P", "T", 0, 1, 60_000, 0));
        let beat = ask(&site, &other, heartbeat("c")).await;
        assert_eq!(beat.code, response::SUCCESS);
        for pulled in pulls {
            assert_eq!(records(&pulled.await.unwrap().unwrap())[0].1, b"old");
        }
        let popped = popped.await.unwrap().unwrap();
        assert_eq!(popped.code, response::SUCCESS, "{:?}", popped.remark);
        assert!(disk.waiting_writes() > 0, "the write still hangs");
        drop(hang);
        for client in readers.iter().chain([&other]) {
            client.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn senders_to_queues_whose_files_hang_hold_up_no_one_else() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        let (senders, other) = ([client(), client()], client());
        for topic in ["T", "U"] {
            site.send_ok(topic, b"good", "").await;
        }
        let hang = Hang::of(&disk, "/consumequeue/");
        // More than a queue keeps in memory: it is written early.
        let sent = [("T", &senders[0]), ("U", &senders[1])]
            .map(|(topic, sender)| asking(&site, sender, send_batch(topic, 4000)));
        eventually("a queue is being written", async || disk.waiting_writes() > 0).await;
        goes_on(&site, &other).await;
        for sent in sent {
            let sent = sent.await.unwrap().unwrap();
            assert_eq!(sent.code, response::SUCCESS, "{:?}", sent.remark);
        }
        assert!(disk.waiting_writes() > 0, "the write still hangs");
        drop(hang);
        for client in senders.iter().chain([&other]) {
            client.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn senders_to_a_topic_whose_deletion_hangs_hold_up_no_one_else() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        let (senders, other) = ([client(), client()], client());
        site.create("empty", 1).await;
        for topic in ["T", "deleted"] {
            site.send_ok(topic, b"good", "").await;
        }
        let hang = Hang::of(&disk, "deletedTopics");
        let store = site.broker.context().store.clone();
        let deleting = std::thread::spawn(move || store.delete_topic("deleted"));
        eventually("the deletion is being noted", async || disk.waiting_writes() > 0).await;
        let send_new = || send("deleted", 0, b"new", "");
        let waiting = [0, 1].map(|at| asking(&site, &senders[at], send_new()));
        goes_on(&site, &other).await;
        timers_go_on(&site, &other).await;
        for answer in waiting {
            refused(&answer.await.unwrap().unwrap());
        }
        assert!(disk.waiting_writes() > 0, "the deletion still hangs");
        drop(hang);
        deleting.join().unwrap().unwrap();
        let sent = ask(&site, &senders[0], send_new()).await;
        assert_eq!(sent.code, response::SUCCESS, "{:?}", sent.remark);
        assert_eq!(site.broker.context().store.max_offset("deleted", 0), 1);
        for client in senders.iter().chain([&other]) {
            client.close().await;
        }
        site.stop().await;
    });
}

/// The removal of a directory hangs as long as this value lives.
struct RemovalHang<'d>(&'d FaultyDisk, &'static str);

impl<'d> RemovalHang<'d> {
    fn of(disk: &'d FaultyDisk, path_end: &'static str) -> Self {
        disk.hang_removal_of(path_end, true);
        Self(disk, path_end)
    }
}

impl Drop for RemovalHang<'_> {
    fn drop(&mut self) {
        self.0.hang_removal_of(self.1, false);
    }
}

#[test]
fn the_directory_of_a_deleted_topic_whose_removal_hangs_holds_up_no_one() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        let other = client();
        for topic in ["T", "deleted"] {
            site.send_ok(topic, b"good", "").await;
        }
        let store = site.broker.context().store.clone();
        store.run(MaintenanceTask::WriteQueues).unwrap();
        let hang = RemovalHang::of(&disk, "consumequeue/deleted");
        let deleting = std::thread::spawn(move || store.delete_topic("deleted"));
        eventually("the directory is being removed", async || {
            disk.waiting_removals() == 1
        })
        .await;
        goes_on(&site, &other).await;
        for topic in ["T", "deleted"] {
            let sent = ask(&site, &other, send(topic, 0, b"new", "")).await;
            assert_eq!(sent.code, response::SUCCESS, "{:?}", sent.remark);
        }
        assert_eq!(disk.waiting_removals(), 1, "it still hangs");
        drop(hang);
        deleting.join().unwrap().unwrap();
        let store = &site.broker.context().store;
        store.run(MaintenanceTask::WriteQueues).unwrap();
        let file = dir
            .path()
            .join("store/consumequeue/deleted/0/00000000000000000000");
        assert!(file.exists(), "the queue of the new topic is written");
        let pulled = ask(&site, &other, pull("G", "deleted", 0, "*", None)).await;
        assert_eq!(records(&pulled)[0].1, b"new");
        other.close().await;
        site.stop().await;
    });
}

fn a_write_that_hangs_behind_an_fsync_holds_up_no_one_else(flush: &str) {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = options_with(&dir, flush);
    options
        .store
        .set("osPageCacheBusyTimeOutMills", "600000")
        .unwrap();
    with_two_threads(options, &disk, async |site| {
        let (senders, other) = ([client(), client()], client());
        site.create("empty", 1).await;
        let durable = || send("T", 0, b"good", "").with_field(DURABILITY, "local");
        for sender in &senders {
            let sent = ask(&site, sender, durable()).await;
            assert_eq!(sent.code, response::SUCCESS, "{:?}", sent.remark);
        }
        goes_on(&site, &other).await;
        let busy = || site.broker.health().store.busy;
        let fsyncs_hang = FsyncHang::begin(&disk);
        let first = asking(&site, &senders[0], durable());
        eventually("an fsync is slow", async || busy().oldest_ms >= 20).await;
        let hang = Hang::begin(&disk);
        let second = asking(&site, &senders[1], durable());
        eventually("a write hangs", async || busy().held_now_ms > 0).await;
        goes_on(&site, &other).await;
        timers_go_on(&site, &other).await;
        assert!(busy().held_now_ms > 0, "the write still hangs");
        drop(hang);
        drop(fsyncs_hang);
        for sent in [first, second] {
            let sent = sent.await.unwrap().unwrap();
            assert_eq!(sent.code, response::SUCCESS, "{:?}", sent.remark);
        }
        for client in senders.iter().chain([&other]) {
            client.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn with_async_flush_a_write_that_hangs_behind_an_fsync_holds_up_no_one_else() {
    a_write_that_hangs_behind_an_fsync_holds_up_no_one_else("ASYNC_FLUSH");
}

#[test]
fn with_sync_flush_a_write_that_hangs_behind_an_fsync_holds_up_no_one_else() {
    a_write_that_hangs_behind_an_fsync_holds_up_no_one_else("SYNC_FLUSH");
}

/// The disk hangs for writes, too, as soon as one fsync hangs: a write that begins within 5 ms takes a second thread.
fn writes_and_fsyncs_that_hang_at_once_hold_up_no_one_else(flush: &str) {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = options_with(&dir, flush);
    options
        .store
        .set("osPageCacheBusyTimeOutMills", "600000")
        .unwrap();
    with_threads(3, options, &disk, async |site| {
        let (senders, late, other) = ([(); 8].map(|()| client()), client(), client());
        site.create("empty", 1).await;
        let durable = || send("T", 0, b"good", "").with_field(DURABILITY, "local");
        for sender in &senders {
            let sent = ask(&site, sender, durable()).await;
            assert_eq!(sent.code, response::SUCCESS, "{:?}", sent.remark);
        }
        goes_on(&site, &other).await;
        let busy = || site.broker.health().store.busy;
        for _ in 0..3 {
            let fsyncs_hang = FsyncHang::begin(&disk);
            let hanging = disk.clone();
            let watching = std::thread::spawn(move || {
                let begun = Instant::now();
                while hanging.waiting_syncs() == 0 && begun.elapsed() < LIMIT {
                    std::thread::yield_now();
                }
                hanging.hang_writes(true);
            });
            let sent: Vec<_> = senders
                .iter()
                .map(|sender| asking(&site, sender, durable()))
                .collect();
            watching.join().unwrap();
            let writes_hang = Hang(&disk, "/commitlog/");
            // Its connection is not one of those that may be in that fsync.
            let more = asking(&site, &late, durable());
            eventually("a write hangs", async || busy().held_now_ms > 0).await;
            goes_on(&site, &other).await;
            timers_go_on(&site, &other).await;
            assert!(busy().held_now_ms > 0, "the write still hangs");
            drop((writes_hang, fsyncs_hang));
            for sent in sent.into_iter().chain([more]) {
                let sent = sent.await.unwrap().unwrap();
                if sent.code != response::SUCCESS {
                    refused(&sent);
                }
            }
        }
        for client in senders.iter().chain([&late, &other]) {
            client.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn with_async_flush_writes_and_fsyncs_that_hang_at_once_hold_up_no_one_else() {
    writes_and_fsyncs_that_hang_at_once_hold_up_no_one_else("ASYNC_FLUSH");
}

#[test]
fn with_sync_flush_writes_and_fsyncs_that_hang_at_once_hold_up_no_one_else() {
    writes_and_fsyncs_that_hang_at_once_hold_up_no_one_else("SYNC_FLUSH");
}

/// Writes hang for as long as a usual fsync takes, again and again, and once for longer. Many large messages wait, and
/// fill segments.
#[test]
fn many_senders_that_wait_for_short_hangs_are_all_served() {
    const SENDERS: usize = 64;
    const SENDS: usize = 5;
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = options_with(&dir, "ASYNC_FLUSH");
    // Longer than a loaded machine takes for it.
    options.store.set("waitTimeMillsInSendQueue", "8000").unwrap();
    options.store.set("osPageCacheBusyTimeOutMills", "8000").unwrap();
    with_two_threads(options, &disk, async |site| {
        site.send_ok("T", b"good", "").await;
        let hanging = disk.clone();
        let hangs = std::thread::spawn(move || {
            for hang_ms in [50, 50, 400, 50, 50, 50] {
                hanging.hang_writes(true);
                std::thread::sleep(Duration::from_millis(hang_ms));
                hanging.hang_writes(false);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let senders: Vec<Client> = (0..SENDERS).map(|_| client()).collect();
        let body = vec![b'x'; 60_000];
        for _ in 0..SENDS {
            let sent = senders
                .iter()
                .map(|sender| asking(&site, sender, send("T", 0, &body, "")));
            for answer in sent.collect::<Vec<_>>() {
                let answer = answer.await.unwrap().unwrap();
                assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
            }
        }
        hangs.join().unwrap();
        let stored = site.broker.context().store.max_offset("T", 0);
        assert_eq!(stored, i64::try_from(1 + SENDERS * SENDS).unwrap());
        for sender in senders {
            sender.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn pops_of_the_queue_whose_check_point_is_being_written_hold_up_no_one_else() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        let (poppers, other) = ([(); 3].map(|()| client()), client());
        for _ in 0..4 {
            site.send_ok("T", b"good", "").await;
        }
        let one = || pop("P", "T", 0, 1, 60_000, 0);
        for popper in &poppers {
            assert_eq!(ask(&site, popper, one()).await.code, response::SUCCESS);
        }
        goes_on(&site, &other).await;
        let hang = Hang::begin(&disk);
        let first = asking(&site, &poppers[0], one());
        let busy = || site.broker.health().store.busy;
        eventually("its check point is being written", async || {
            busy().held_now_ms > 0
        })
        .await;
        let waiting = [1, 2].map(|at| asking(&site, &poppers[at], one()));
        goes_on(&site, &other).await;
        for answer in waiting {
            let answer = answer.await.unwrap().unwrap();
            assert_eq!(answer.code, response::SYSTEM_BUSY, "{:?}", answer.remark);
        }
        assert!(busy().held_now_ms > 0, "the write still hangs");
        goes_on(&site, &poppers[1]).await;
        drop(hang);
        assert_eq!(first.await.unwrap().unwrap().code, response::SUCCESS);
        for client in poppers.iter().chain([&other]) {
            client.close().await;
        }
        site.stop().await;
    });
}

/// Pops of a group wait for a queue that another pop of the group has, and one of another group waits behind them.
#[test]
fn pops_that_waited_are_not_held_up_by_the_queue_of_another_pop_that_hangs() {
    const WAIT_MS: i64 = 1500;
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        let ([first, waiting], other) = ([client(), client()], client());
        for topic in ["T", "empty"] {
            site.create(topic, 1).await;
        }
        let tag_b = properties(&[("TAGS", "B")]);
        site.send_ok("T", b"m0", &tag_b).await;
        let ordered = |wait_ms| pop("P", "T", 0, 1, 500, wait_ms).with_field("order", "true");
        assert_eq!(ask(&site, &first, ordered(0)).await.code, response::SUCCESS);
        // Its queue opens half a second later.
        let opening = asking(&site, &waiting, ordered(10_000));
        let of_tag_a = || {
            let any = pop("P", "T", 0, 1, 60_000, WAIT_MS);
            any.with_field("exp", "A").with_field("expType", "TAG")
        };
        let due = [(); 5].map(|()| asking(&site, &waiting, of_tag_a()));
        let behind = asking(&site, &waiting, pop("Q", "empty", 0, 1, 60_000, WAIT_MS));
        let begun = Instant::now();
        eventually("six pops of P wait", async || {
            waiting_pops(&site, &other, "P", "T").await == 6
        })
        .await;
        for body in [b"m1", b"m2"] {
            site.send_ok("T", body, &tag_b).await;
        }
        let hang = Hang::begin(&disk);
        let hanging = asking(&site, &first, pop("P", "T", 0, 1, 60_000, 0));
        let busy = || site.broker.health().store.busy;
        eventually("its check point is being written", async || {
            busy().held_now_ms > 0
        })
        .await;
        assert_eq!(behind.await.unwrap().unwrap().code, response::POLLING_TIMEOUT);
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        for answer in due {
            let answer = answer.await.unwrap().unwrap();
            assert_eq!(answer.code, response::POLLING_TIMEOUT, "{:?}", answer.remark);
        }
        assert!(busy().held_now_ms > 0, "the write still hangs");
        drop(hang);
        assert_eq!(hanging.await.unwrap().unwrap().code, response::SUCCESS);
        // The pop whose queue has opened was held on.
        let opened = opening.await.unwrap().unwrap();
        assert_eq!(opened.code, response::SUCCESS, "{:?}", opened.remark);
        assert_eq!(records(&opened)[0].1, b"m2");
        for client in [&first, &waiting, &other] {
            client.close().await;
        }
        site.stop().await;
    });
}

/// A new topic is asked for in the poll that then writes.
#[test]
fn new_topics_and_groups_are_created_while_the_write_of_a_poll_that_asked_for_one_hangs() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        let other = client();
        site.send_ok("T", b"good", "").await;
        goes_on(&site, &other).await;
        let mut frames = encode(&send("T", 0, b"good", "")).unwrap();
        frames.extend(encode(&send("new", 0, b"good", "")).unwrap());
        let mut sender = RawPeer::connect(site.address.parse().unwrap()).await.unwrap();
        let hang = Hang::begin(&disk);
        sender.send(&frames).await.unwrap();
        let busy = || site.broker.health().store.busy;
        eventually("a write hangs", async || busy().held_now_ms > 0).await;
        let member = concat!(
            r#"{"clientID":"d","producerDataSet":[],"consumerDataSet":[{"groupName":"new","unitMode":false,"#,
            r#""consumeType":"CONSUME_PASSIVELY","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","#,
            r#""messageModel":"CLUSTERING","subscriptionDataSet":[]}]}"#
        );
        let beat = Command::request(request::HEART_BEAT).with_body(member.as_bytes());
        let beat = ask(&site, &other, beat).await;
        assert_eq!(beat.code, response::SUCCESS, "{:?}", beat.remark);
        assert!(busy().held_now_ms > 0, "the write still hangs");
        drop(hang);
        // The one to the new topic may have been refused because of the write.
        let mut codes = [0; 2];
        for code in &mut codes {
            *code = sender.receive().await.unwrap().code().unwrap();
        }
        assert!(codes.contains(&response::SUCCESS.into()), "{codes:?}");
        other.close().await;
        site.stop().await;
    });
}

fn half(id: &str) -> Command {
    let pairs = [("TRAN_MSG", "true"), ("PGROUP", "producers"), ("UNIQ_KEY", id)];
    let now = clock::now_ms().to_string();
    send("T", 0, id.as_bytes(), &properties(&pairs))
        .with_field("g", &now)
        .with_field("f", "4")
}

/// Options with which halves are checked from their first millisecond on.
fn checked_soon(dir: &TempDir) -> Options {
    Options {
        transaction_time_out: 1,
        transaction_check_interval: 10,
        transaction_check_max: 1_000_000,
        ..options_with(dir, "ASYNC_FLUSH")
    }
}

fn open_halves(site: &Site) -> i64 {
    let held = metrics::held(site.broker.context());
    held.iter().find(|(name, _)| *name == "half").unwrap().1
}

#[test]
fn ends_of_transactions_hold_up_no_one_else_while_the_check_writes_a_half_again() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    with_two_threads(checked_soon(&dir), &disk, async |site| {
        let (enders, other) = ([client(), client()], client());
        site.send_ok("T", b"good", "").await;
        let ids = ["0A01", "0A02"];
        let mut sent = Vec::new();
        for (ender, id) in enders.iter().zip(ids) {
            sent.push(ask(&site, ender, half(id)).await);
        }
        goes_on(&site, &other).await;
        let busy = || site.broker.health().store.busy;
        let hang = Hang::begin(&disk);
        eventually("the check writes", async || busy().held_now_ms > 0).await;
        let ends: Vec<_> = (enders.iter().zip(&sent).zip(ids))
            .map(|((ender, sent), id)| asking(&site, ender, end(sent, id, COMMIT)))
            .collect();
        goes_on(&site, &other).await;
        for end in ends {
            refused(&end.await.unwrap().unwrap());
        }
        assert!(busy().held_now_ms > 0, "the write still hangs");
        assert_eq!(open_halves(&site), 2);
        goes_on(&site, &enders[0]).await;
        drop(hang);
        // Until then ends are still refused.
        eventually("the write ends", async || busy().held_now_ms == 0).await;
        for ((ender, sent), id) in enders.iter().zip(&sent).zip(ids) {
            let ended = ask(&site, ender, end(sent, id, COMMIT)).await;
            assert_eq!(ended.code, response::SUCCESS, "{:?}", ended.remark);
        }
        assert_eq!(open_halves(&site), 0);
        let stored = site.broker.context().store.max_offset("T", 0);
        assert_eq!(stored, 3, "each message once");
        for client in enders.iter().chain([&other]) {
            client.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn a_half_whose_end_comes_while_it_is_written_again_has_ended_after_a_restart_too() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = checked_soon(&dir);
    options.store.set("waitTimeMillsInSendQueue", "8000").unwrap();
    options.store.set("osPageCacheBusyTimeOutMills", "8000").unwrap();
    with_two_threads(options, &disk, async |site| {
        let sent = site.ask_ok(half("0A01")).await;
        let busy = || site.broker.health().store.busy;
        let hang = Hang::begin(&disk);
        eventually("the check writes it", async || busy().held_now_ms > 0).await;
        let ending = site.asking(end(&sent, "0A01", COMMIT));
        eventually("its end waits", async || busy().waiting_for_lock == 1).await;
        drop(hang);
        let ended = ending.await.unwrap().unwrap();
        assert_eq!(ended.code, response::SUCCESS, "{:?}", ended.remark);
        site.stop().await;
    });
    with_two_threads(options_with(&dir, "ASYNC_FLUSH"), &disk, async |site| {
        assert_eq!(open_halves(&site), 0);
        assert_eq!(site.broker.context().store.max_offset("T", 0), 1);
        site.stop().await;
    });
}
