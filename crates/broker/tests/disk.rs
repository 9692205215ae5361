//! A failing disk: the broker acknowledges only what the disk holds, and gives the reason.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::pops::{pop, with};
use common::{
    LIMIT, Site, TempDir, client, eventually, number, options, properties, pull, records, send, send_batch,
};
use pyrmq_broker::Broker;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::DURABILITY;
use pyrmq_store::Busy;
use pyrmq_testkit::FaultyDisk;
use pyrmq_testkit::disk::{Fault, Operation};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

fn start(dir: &TempDir, disk: &FaultyDisk, flush: &str) -> Site {
    let mut options = options(dir);
    options.store.set("flushDiskType", flush).unwrap();
    Site::of(Broker::start_on(Arc::new(disk.clone()), options, &Handle::current(), None, &[]).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_flush_is_never_answered_with_success() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(&dir, &disk, "SYNC_FLUSH");
    site.send_ok("T", b"good", "").await;
    disk.fail(Operation::Sync, "commitlog", 0, Fault::Error(ErrorKind::Other));
    let lost = site.send("T", b"lost", "").await;
    assert_eq!(lost.code, response::SERVICE_NOT_AVAILABLE, "{:?}", lost.remark);
    assert_eq!(
        lost.fields.get("queueOffset"),
        Some("1"),
        "a producer is told that it is in the log"
    );
    // The log stays closed even if the disk seems well again: the data of the failed flush is gone.
    disk.heal();
    let next = site.send("T", b"next", &properties(&[("WAIT", "false")])).await;
    assert_eq!(next.code, response::SERVICE_NOT_AVAILABLE);
    assert_eq!(next.fields.get("queueOffset"), None, "this one is not");
    assert!(next.remark.unwrap().contains("read-only"));
    assert!(site.broker.health().store.read_only.is_some());
    // Reading continues.
    let got = site.ask_ok(pull("G", "T", 0, "*", None)).await;
    assert_eq!(records(&got)[0].1, b"good");
    drop(site.broker.stop(common::LIMIT).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_whose_flush_failed_is_reported_as_stored_so_that_no_producer_stores_it_again() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(&dir, &disk, "SYNC_FLUSH");
    site.send_ok("T", b"good", "").await;
    disk.fail(Operation::Sync, "commitlog", 0, Fault::Error(ErrorKind::Other));
    let half = properties(&[("TRAN_MSG", "true"), ("PGROUP", "G"), ("UNIQ_KEY", "0A01")]);
    let lost = site.send("T", b"half", &half).await;
    assert_eq!(lost.code, response::FLUSH_DISK_TIMEOUT, "{:?}", lost.remark);
    assert!(lost.remark.unwrap().contains("injected"));
    assert!(lost.fields.get("queueOffset").is_some());
    disk.heal();
    drop(site.broker.stop(common::LIMIT).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_is_refused_with_its_reason() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(&dir, &disk, "ASYNC_FLUSH");
    site.send_ok("T", b"good", "").await;
    eventually("it is readable", async || {
        site.broker.context().store.max_offset("T", 0) == 1
    })
    .await;
    disk.fail(
        Operation::Write,
        "commitlog",
        0,
        Fault::Torn(10, ErrorKind::Other),
    );
    let torn = site.send("T", b"torn", "").await;
    assert_ne!(torn.code, response::SUCCESS);
    assert!(torn.remark.unwrap().contains("injected"));
    let got = site.ask_ok(pull("G", "T", 0, "*", None)).await;
    assert_eq!(records(&got).len(), 1);
    drop(site.broker.stop(common::LIMIT).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_cannot_be_written_is_not_made() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(&dir, &disk, "ASYNC_FLUSH");
    disk.fail(
        Operation::Sync,
        "topics.json",
        0,
        Fault::Error(ErrorKind::StorageFull),
    );
    let refused = site.create("T", 1).await;
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    assert!(refused.remark.unwrap().contains("topics.json"));
    assert!(site.broker.context().topics.get("T").is_none());
    disk.heal();
    site.ask_ok(common::create("T", 1)).await;
    site.stop().await;
}

/// A broker with more messages in a queue than count as fresh.
async fn with_old_messages(dir: &TempDir, disk: &FaultyDisk) -> Site {
    let site = start(dir, disk, "ASYNC_FLUSH");
    for _ in 0..10 {
        site.ask_ok(send_batch("T", 500)).await;
    }
    site
}

/// There is one thread: a pull that waited for the disk on it would block the send.
async fn holds_up_no_one_else(site: Site, disk: &FaultyDisk) {
    disk.hang_reads(true);
    let mut waiting: Vec<_> = (0..6)
        .map(|at| site.asking(pull("G", "T", at * 32, "*", None)))
        .collect();
    site.send_ok("T", b"meanwhile", "").await;
    assert!(waiting.iter_mut().all(|answer| answer.try_recv().is_err()));
    disk.hang_reads(false);
    for answer in waiting {
        assert_eq!(records(&answer.await.unwrap().unwrap()).len(), 32);
    }
    drop(site.broker.stop(LIMIT).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_slow_disk_under_old_messages_holds_up_no_one_else() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = with_old_messages(&dir, &disk).await;
    holds_up_no_one_else(site, &disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn if_the_system_cannot_tell_what_is_in_memory_one_slow_read_does() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    disk.make_blind();
    let site = with_old_messages(&dir, &disk).await;
    // The first slow read is on the only thread: nothing may be awaited meanwhile.
    let (reads, _, _) = disk.counts();
    disk.hang_reads(true);
    let first = site.asking(pull("G", "T", 0, "*", None));
    for _ in 0..10_000 {
        if disk.counts().0 > reads {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // Longer than a read from memory ever takes.
    std::thread::sleep(Duration::from_millis(5));
    disk.hang_reads(false);
    assert_eq!(records(&first.await.unwrap().unwrap()).len(), 32);
    holds_up_no_one_else(site, &disk).await;
}

/// Pops of some groups wait at the end of a queue. Then their groups are set back, and a message wakes all of them.
#[tokio::test(flavor = "multi_thread")]
async fn pops_that_waited_and_need_the_disk_hold_up_no_request_that_waited_behind_them() {
    // More than there are threads for requests that waited.
    const GROUPS: usize = 20;
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = with_old_messages(&dir, &disk).await;
    site.create("U", 1).await;
    let groups: Vec<String> = (0..GROUPS).map(|number| format!("P{number}")).collect();
    let set = |group: &str, offset: &str| {
        let fields = [
            ("consumerGroup", group),
            ("topic", "T"),
            ("queueId", "0"),
            ("commitOffset", offset),
        ];
        with(request::UPDATE_CONSUMER_OFFSET, &fields)
    };
    let waiting = async |group: &str, topic: &str| {
        let fields = [("consumerGroup", group), ("topic", topic), ("queueId", "0")];
        let info = site.ask_ok(with(request::POLLING_INFO, &fields)).await;
        number(&info, "pollingNum")
    };
    let mut held = Vec::new();
    for group in &groups {
        // This creates the group.
        site.ask_ok(pop(group, "T", 0, 1, 60_000, 0)).await;
        site.ask_ok(set(group, "5000")).await;
        held.push(site.asking(pop(group, "T", 0, 8, 60_000, 9_000)));
        eventually("the pop waits", async || waiting(group, "T").await == 1).await;
    }
    // It reads nothing.
    let of_other = [
        ("consumerGroup", "Q"),
        ("topic", "U"),
        ("queueId", "0"),
        ("pollTime", "9000"),
        ("bornTime", "0"),
    ];
    let noticing = site.asking(with(request::NOTIFICATION, &of_other));
    for group in &groups {
        site.ask_ok(set(group, "0")).await;
        assert_eq!(waiting(group, "T").await, 1);
    }
    disk.hang_reads_for(Duration::from_secs(20));
    site.send_ok("T", b"wakes", "").await;
    eventually("some wait for the disk", async || disk.waiting_reads() > 1).await;
    site.send_ok("U", b"new", "").await;
    let noticed = noticing.await.unwrap().expect("while reads hang");
    assert_eq!(noticed.fields.get("hasMsg"), Some("true"));
    assert!(disk.waiting_reads() > 1, "they still hang");
    disk.hang_reads(false);
    for answer in held {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        assert_eq!(records(&answer).len(), 8);
    }
    drop(site.broker.stop(LIMIT).await);
}

/// There is one thread again. Each connection's own requests are answered in order, so each has a client.
async fn pops_and_peeks_hold_up_no_one_else(disk: &FaultyDisk) {
    let dir = TempDir::new();
    let site = with_old_messages(&dir, disk).await;
    let look = [
        ("consumerGroup", "Q"),
        ("topic", "T"),
        ("queueId", "0"),
        ("maxMsgNums", "8"),
    ];
    let asked = || [pop("P", "T", 0, 8, 60_000, 0), with(request::PEEK_MESSAGE, &look)];
    // These create the groups.
    for command in asked() {
        site.ask_ok(command).await;
    }
    let began = std::time::Instant::now();
    disk.hang_reads_for(Duration::from_secs(20));
    let clients = [client(), client()];
    let mut answers = Vec::new();
    for (client, command) in clients.iter().zip(asked()) {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let limit = Duration::from_secs(30);
        client.request_with(&site.address, command, limit, |answer| drop(sender.send(answer)));
        answers.push(receiver);
    }
    eventually("both wait for the disk", async || disk.waiting_reads() == 2).await;
    site.send_ok("T", b"meanwhile", "").await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    disk.hang_reads(false);
    for answer in answers {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        assert_eq!(records(&answer).len(), 8);
    }
    for client in clients {
        client.close().await;
    }
    drop(site.broker.stop(LIMIT).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pops_and_peeks_of_old_messages_on_a_slow_disk_hold_up_no_one_else() {
    pops_and_peeks_hold_up_no_one_else(&FaultyDisk::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn so_do_pops_and_peeks_if_the_system_cannot_tell_what_is_in_memory() {
    let disk = FaultyDisk::default();
    disk.make_blind();
    pops_and_peeks_hold_up_no_one_else(&disk).await;
}

/// Hangs the disk under one connection's send, three times, and pulls on another connection meanwhile.
fn a_pull_goes_on(flush: &str, hang: fn(&FaultyDisk, bool), hangs: fn(&Busy) -> bool) {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = options(&dir);
    options.store.set("flushDiskType", flush).unwrap();
    options.store.set("syncFlushTimeout", "600000").unwrap();
    // The connection's task fsyncs, however long that takes.
    options.store.flush_inline_below_us = u64::MAX;
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    };
    // Runtimes of their own: nothing that the clients do wakes a thread of the broker.
    let (of_broker, of_clients) = (runtime(), runtime());
    let broker = Broker::start_on(Arc::new(disk.clone()), options, of_broker.handle(), None, &[]).unwrap();
    of_clients.block_on(async {
        let (site, other) = (Site::of(broker), client());
        let look = async || {
            let look = pull("G", "T", 0, "*", None);
            other.request(&site.address, look, LIMIT).await
        };
        site.send_ok("T", b"good", "").await;
        look().await.unwrap();
        for _ in 0..3 {
            hang(&disk, true);
            let slow = site.asking(send("T", 0, b"slow", ""));
            eventually("a sender waits for the disk", async || {
                hangs(&site.broker.health().store.busy)
            })
            .await;
            let looked = look().await;
            hang(&disk, false);
            assert_eq!(records(&looked.unwrap())[0].1, b"good");
            assert_eq!(slow.await.unwrap().unwrap().code, response::SUCCESS);
        }
        other.close().await;
        site.stop().await;
    });
}

#[test]
fn a_disk_that_hangs_under_a_connections_own_fsync_holds_up_no_other_connection() {
    a_pull_goes_on("SYNC_FLUSH", FaultyDisk::hang, |busy| busy.waiting_for_disk == 1);
}

#[test]
fn a_disk_that_hangs_under_a_connections_own_write_holds_up_no_other_connection() {
    a_pull_goes_on("ASYNC_FLUSH", FaultyDisk::hang_writes, |busy| {
        busy.held_now_ms > 0
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_makes_sends_busy_with_the_measured_wait() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = options(&dir);
    for (key, value) in [
        ("flushDiskType", "SYNC_FLUSH"),
        ("osPageCacheBusyTimeOutMills", "100"),
        ("syncFlushTimeout", "600000"),
    ] {
        options.store.set(key, value).unwrap();
    }
    let broker = Broker::start_on(Arc::new(disk.clone()), options, &Handle::current(), None, &[]);
    let site = Site::of(broker.unwrap());
    site.send_ok("T", b"good", "").await;
    disk.hang(true);
    let next = async {
        eventually("a sender has waited", async || {
            site.broker.health().store.busy.oldest_ms > 100
        })
        .await;
        let busy = site.send("T", b"next", "").await;
        disk.hang(false);
        busy
    };
    let (slow, busy) = tokio::join!(site.send("T", b"slow", ""), next);
    assert_eq!(slow.code, response::SUCCESS, "{:?}", slow.remark);
    assert_eq!(busy.code, response::SYSTEM_BUSY);
    let remark = busy.remark.unwrap();
    assert!(
        remark.starts_with("[PC_SYNCHRONIZED]broker busy, start flow control for a while, period in queue: "),
        "{remark}"
    );
    site.send_ok("T", b"again", "").await;
    let stats = site.broker.stats();
    let counted = stats.iter().find(|(key, _)| key == "busyPageCacheTimes");
    assert_eq!(counted.unwrap().1, "1");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_come_once_although_the_disk_gets_full_between_them() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = options(&dir);
    options.message_delay_level = "1s".to_owned();
    let broker = Broker::start_on(Arc::new(disk.clone()), options, &Handle::current(), None, &[]);
    let site = Site::of(broker.unwrap());
    let later = properties(&[("DELAY", "1")]);
    for body in [b"one", b"two", b"six"] {
        site.send_ok("T", body, &later).await;
    }
    disk.fail(
        Operation::Write,
        "commitlog",
        2,
        Fault::Error(ErrorKind::StorageFull),
    );
    let store = &site.broker.context().store;
    eventually("the first two are delivered", async || {
        store.max_offset("T", 0) == 2
    })
    .await;
    eventually("progress stands behind them, in front of the third", async || {
        site.broker.context().delays.offsets().get(&1) == Some(&2)
    })
    .await;
    disk.heal();
    eventually("the rest is delivered", async || {
        site.broker.context().delays.offsets().get(&1) == Some(&3)
    })
    .await;
    let got = site.ask_ok(pull("G", "T", 0, "*", None)).await;
    let bodies: Vec<_> = records(&got).into_iter().map(|(_, body, _)| body).collect();
    assert_eq!(bodies, [b"one", b"two", b"six"]);
    site.stop().await;
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test damages a file behind the broker's back"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_delayed_message_blocks_neither_later_ones_nor_the_stop() {
    let dir = TempDir::new();
    let mut options = options(&dir);
    options.message_delay_level = "2s".to_owned();
    let log = options.store.root.join("commitlog/00000000000000000000");
    let site = Site::start(options);
    let later = properties(&[("DELAY", "1")]);
    site.send_ok("T", b"damaged", &later).await;
    site.send_ok("T", b"behind", &later).await;
    // The length of the topic follows the body.
    let bytes = std::fs::read(&log).unwrap();
    let at = bytes.windows(7).position(|part| part == b"damaged").unwrap() + 7;
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.write_all_at(&[bytes[at] ^ 0x80], at as u64).unwrap();
    let store = &site.broker.context().store;
    eventually("the one behind it", async || store.max_offset("T", 0) == 1).await;
    let got = site.ask_ok(pull("G", "T", 0, "*", None)).await;
    assert_eq!(records(&got)[0].1, b"behind");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_change_all_or_none_where_the_topics_file_cannot_be_written() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(&dir, &disk, "ASYNC_FLUSH");
    let context = site.broker.context();
    let mut wanted = site.broker.options().clone();
    wanted.broker_permission = 4;
    wanted.auto_create_topic_enable = false;
    wanted.trace_topic_enable = true;
    wanted.transaction_check_max = 7;
    wanted.store.set("maxMessageSize", "1000").unwrap();
    disk.fail(
        Operation::Rename,
        "topics.json",
        0,
        Fault::Error(ErrorKind::Other),
    );
    let error = site.broker.reconfigure(&wanted).unwrap_err().to_string();
    assert!(error.contains("the options stay as they are"), "{error}");
    let holds = || {
        (
            context.live.broker_permission(),
            context.live.auto_create_topic_enable(),
            context.live.transaction_check_max(),
            context.store.live().max_message_bytes(),
            context.topics.get("RMQ_SYS_TRACE_TOPIC").is_some(),
        )
    };
    assert_eq!(holds(), (6, true, 15, 1 << 20, false));
    disk.heal();
    site.send_ok("made-by-a-send", b"x", "").await;
    site.broker.reconfigure(&wanted).unwrap();
    assert_eq!(holds(), (4, false, 7, 1000, true));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_async_flush_only_senders_that_ask_for_the_disk_are_refused_when_too_many_wait_for_it() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = options(&dir);
    for (key, value) in [
        ("flushDiskType", "ASYNC_FLUSH"),
        ("sendThreadPoolQueueCapacity", "2"),
        ("osPageCacheBusyTimeOutMills", "600000"),
        ("syncFlushTimeout", "600000"),
    ] {
        options.store.set(key, value).unwrap();
    }
    // The connection's task must not wait for the disk itself.
    options.store.flush_inline_below_us = 0;
    let broker = Broker::start_on(Arc::new(disk.clone()), options, &Handle::current(), None, &[]);
    let site = Site::of(broker.unwrap());
    site.send_ok("T", b"good", "").await;
    let local = |body: &[u8]| send("T", 0, body, "").with_field(DURABILITY, "local");
    disk.hang(true);
    let waiting = [site.asking(local(b"first")), site.asking(local(b"second"))];
    eventually("both wait", async || {
        site.broker.health().store.busy.waiting_for_disk == 2
    })
    .await;
    let refused = site.ask(local(b"third")).await;
    assert_eq!(refused.code, response::SYSTEM_BUSY, "{:?}", refused.remark);
    let remark = refused.remark.unwrap();
    assert!(
        remark.starts_with("[OVERLOAD]") && remark.contains("sendThreadPoolQueueCapacity=2"),
        "{remark}"
    );
    site.send_ok("T", b"memory", "").await;
    disk.hang(false);
    for answer in waiting {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        assert_eq!(answer.fields.get(DURABILITY), Some("local"));
    }
    assert_eq!(site.ask(local(b"again")).await.code, response::SUCCESS);
    let got = site.ask_ok(pull("G", "T", 0, "*", None)).await;
    let bodies: Vec<_> = records(&got).into_iter().map(|(_, body, _)| body).collect();
    assert_eq!(bodies, [&b"good"[..], b"first", b"second", b"memory", b"again"]);
    site.stop().await;
}

/// Counts the log lines that begin with a text.
#[derive(Clone, Default)]
struct Lines {
    text: &'static str,
    count: Arc<AtomicUsize>,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" && format!("{value:?}").starts_with(self.text) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_disk_is_full_ordered_groups_cost_few_attempts_and_one_line() {
    let lines = Lines {
        text: "cannot write the state of ordered groups",
        ..Lines::default()
    };
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let site = start(&dir, &disk, "ASYNC_FLUSH");
    site.send_ok("T", b"x", "").await;
    let file = "consumerOrderInfo";
    disk.fail(Operation::Open, file, 0, Fault::Error(ErrorKind::StorageFull));
    let ordered = pop("O", "T", 0, 1, 60_000, 10_000).with_field("order", "true");
    site.ask_ok(ordered).await;
    eventually("an attempt fails", async || disk.injected() > 0).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let attempts = disk.injected();
    assert!(attempts <= 5, "{attempts} attempts");
    assert_eq!(lines.count.load(Ordering::Relaxed), 1);
    disk.heal();
    let written = dir.path().join("store/config/consumerOrderInfo.json");
    eventually("it is written", async || written.exists()).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_whose_write_panics_is_written_later() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut options = options(&dir);
    options.flush_consumer_offset_interval = 100;
    let fs = Arc::new(disk.clone());
    let site = Site::of(Broker::start_on(fs, options, &Handle::current(), None, &[]).unwrap());
    site.send_ok("T", b"x", "").await;
    disk.panic(Operation::Open, "consumerOffset");
    let commit = [
        ("consumerGroup", "G"),
        ("topic", "T"),
        ("queueId", "0"),
        ("commitOffset", "1"),
    ];
    site.ask_ok(with(request::UPDATE_CONSUMER_OFFSET, &commit)).await;
    let panics = || site.broker.context().stats.panics.load(Ordering::Relaxed);
    eventually("the write panics", async || panics() > 0).await;
    disk.heal();
    let file = dir.path().join("store/config/consumerOffset.json");
    eventually("the offset is written", async || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("T@G"))
    })
    .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_transactions_go_on_after_one_that_panics() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    disk.make_blind();
    let mut options = options(&dir);
    options.transaction_check_interval = 10;
    let fs = Arc::new(disk.clone());
    let site = Site::of(Broker::start_on(fs, options, &Handle::current(), None, &[]).unwrap());
    let half = properties(&[("TRAN_MSG", "true"), ("PGROUP", "P"), ("UNIQ_KEY", "0A01")]);
    site.send_ok("T", b"half", &half).await;
    disk.panic(Operation::Read, "commitlog");
    let panics = || site.broker.context().stats.panics.load(Ordering::Relaxed);
    eventually("two checks panic", async || panics() > 1).await;
    disk.heal();
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn statistics_of_topics_that_read_a_slow_disk_hold_up_no_one_else() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    disk.make_blind();
    let site = with_old_messages(&dir, &disk).await;
    let began = std::time::Instant::now();
    let (reads, _, _) = disk.counts();
    disk.hang_reads_for(Duration::from_secs(20));
    let asked = Command::request(request::GET_TOPIC_STATS_INFO).with_field("topic", "T");
    let answer = site.asking(asked);
    eventually("it waits for the disk", async || disk.counts().0 > reads).await;
    site.send_ok("T", b"meanwhile", "").await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    disk.hang_reads(false);
    assert_eq!(answer.await.unwrap().unwrap().code, response::SUCCESS);
    drop(site.broker.stop(LIMIT).await);
}

fn statistics() -> Command {
    Command::request(request::GET_TOPIC_STATS_INFO).with_field("topic", "T")
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_that_wait_for_a_slow_disk_do_not_hold_up_sends_of_their_connection() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    disk.make_blind();
    let site = with_old_messages(&dir, &disk).await;
    disk.hang_reads_for(Duration::from_secs(20));
    let waiting: Vec<_> = (0..20).map(|_| site.asking(statistics())).collect();
    let sent = site.asking(send("T", 0, b"meanwhile", ""));
    let refused = site.asking(statistics());
    assert_eq!(sent.await.unwrap().unwrap().code, response::SUCCESS);
    let refused = refused.await.unwrap().unwrap();
    assert_eq!(refused.code, response::SYSTEM_BUSY);
    let remark = refused.remark.unwrap();
    assert!(
        remark.starts_with("[OVERLOAD] 20 searches of this connection with "),
        "{remark}"
    );
    disk.hang_reads(false);
    for answer in waiting {
        assert_eq!(answer.await.unwrap().unwrap().code, response::SUCCESS);
    }
    drop(site.broker.stop(LIMIT).await);
}

#[test]
fn changes_that_wait_for_the_disk_leave_threads_to_searches() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let few = builder.worker_threads(2).max_blocking_threads(8).enable_all();
    let (of_broker, of_clients) = (few.build().unwrap(), tokio::runtime::Runtime::new().unwrap());
    let on_disk = Arc::new(disk.clone());
    let broker = Broker::start_on(on_disk, options(&dir), of_broker.handle(), None, &[]).unwrap();
    of_clients.block_on(async {
        let site = Site::of(broker);
        site.ask_ok(common::create("T", 1)).await;
        common::hang(&disk);
        let clients: Vec<_> = (0..12).map(|_| client()).collect();
        let changing = clients.iter().enumerate().map(|(at, client)| {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let create = common::create(&format!("T{at}"), 1);
            client.request_with(&site.address, create, LIMIT, |answer| drop(sender.send(answer)));
            receiver
        });
        let changing: Vec<_> = changing.collect();
        // All of them have come.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let began = std::time::Instant::now();
        site.ask_ok(statistics()).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        disk.hang(false);
        for answer in changing {
            assert_eq!(answer.await.unwrap().unwrap().code, response::SUCCESS);
        }
        for client in clients {
            client.close().await;
        }
        site.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_search_the_log_on_a_slow_disk_do_not_hold_up_others() {
    let dir = TempDir::new();
    let disk = FaultyDisk::default();
    disk.make_blind();
    let site = start(&dir, &disk, "ASYNC_FLUSH");
    let sent = site.send_ok("T", b"x", "").await;
    let id = sent.fields.get("msgId").unwrap();
    let (reads, _, _) = disk.counts();
    disk.hang_reads_for(Duration::from_secs(20));
    let clients: Vec<_> = (0..4).map(|_| client()).collect();
    let resuming = clients.iter().map(|client| {
        let resume = Command::request(request::RESUME_CHECK_HALF_MESSAGE).with_field("msgId", id);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let limit = Duration::from_secs(30);
        client.request_with(&site.address, resume, limit, |answer| drop(sender.send(answer)));
        receiver
    });
    let resuming: Vec<_> = resuming.collect();
    eventually("they wait for the disk", async || disk.counts().0 >= reads + 4).await;
    let created = site.create("U", 1).await;
    disk.hang_reads(false);
    assert_eq!(created.code, response::SUCCESS, "{:?}", created.remark);
    for answer in resuming {
        assert_eq!(answer.await.unwrap().unwrap().code, response::QUERY_NOT_FOUND);
    }
    for client in clients {
        client.close().await;
    }
    site.stop().await;
}
