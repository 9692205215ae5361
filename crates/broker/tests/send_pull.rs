//! Sends and pulls over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{LIMIT, Site, TempDir, eventually, number, options, properties, pull, records, send};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::batch;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_back_as_it_was_sent_with_the_brokers_properties() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let sent = properties(&[
        ("KEYS", "order-42"),
        ("UNIQ_KEY", "0A0000010001"),
        ("TAGS", "new"),
    ]);
    let answer = site.send_ok("orders", b"two coffees", &sent).await;
    assert_eq!(number(&answer, "queueId"), 0);
    assert_eq!(number(&answer, "queueOffset"), 0);
    assert_eq!(answer.fields.get("transactionId"), Some("0A0000010001"));
    assert_eq!(answer.fields.get("msgId").map(str::len), Some(32));
    assert_eq!(answer.fields.get("MSG_REGION"), Some("DefaultRegion"));
    assert_eq!(answer.fields.get("TRACE_ON"), Some("true"));
    eventually("the message is readable", async || {
        site.ask(pull("kitchen", "orders", 0, "*", None)).await.code == response::SUCCESS
    })
    .await;
    let got = site.ask_ok(pull("kitchen", "orders", 0, "*", None)).await;
    assert_eq!(number(&got, "nextBeginOffset"), 1);
    assert_eq!((number(&got, "minOffset"), number(&got, "maxOffset")), (0, 1));
    assert_eq!(got.fields.get("suggestWhichBrokerId"), Some("0"));
    let own = properties(&[
        ("MSG_REGION", "DefaultRegion"),
        ("TRACE_ON", "true"),
        ("CLUSTER", "DefaultCluster"),
    ]);
    assert_eq!(
        records(&got),
        [("orders".to_owned(), b"two coffees".to_vec(), sent + &own)]
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_unique_key_gets_one_and_reserved_pairs_are_replaced() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let sent = properties(&[("POP_CK", "x"), ("CLUSTER", "elsewhere"), ("a", "b")]);
    let answer = site.send_ok("T", b"x", &sent).await;
    let key = answer.fields.get("transactionId").unwrap().to_owned();
    let waited = site.ask_ok(pull("G", "T", 0, "*", Some(LIMIT))).await;
    let (_, _, stored) = records(&waited).remove(0);
    assert_eq!(
        stored,
        properties(&[
            ("a", "b"),
            ("MSG_REGION", "DefaultRegion"),
            ("TRACE_ON", "true"),
            ("CLUSTER", "DefaultCluster"),
            ("UNIQ_KEY", &key)
        ])
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_long_header_of_request_10_is_understood() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let command = [
        ("producerGroup", "p"),
        ("topic", "T"),
        ("defaultTopic", "TBW102"),
        ("defaultTopicQueueNums", "2"),
        ("queueId", "1"),
        ("sysFlag", "0"),
        ("bornTimestamp", "1"),
        ("flag", "0"),
    ]
    .into_iter()
    .fold(
        Command::request(request::SEND_MESSAGE),
        |command, (key, value)| command.with_field(key, value),
    )
    .with_body("old");
    let answer = site.ask_ok(command).await;
    assert_eq!(number(&answer, "queueId"), 1);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_becomes_consecutive_messages() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let mut body = Vec::new();
    for (text, key) in [("one", "K1"), ("two", "K2"), ("three", "K3")] {
        let own = properties(&[("KEYS", key)]);
        let item = batch::BatchItem {
            flag: 0,
            body: text.as_bytes(),
            // The last separator may be missing.
            properties: own.trim_end_matches('\u{2}').as_bytes(),
        };
        batch::encode(&item, &mut body).unwrap();
    }
    let mut command = send(
        "T",
        0,
        &body,
        &properties(&[("UNIQ_KEY", "BATCH"), ("WAIT", "true")]),
    );
    command.code = request::SEND_BATCH_MESSAGE;
    command.fields.set("m", "true");
    let answer = site.ask_ok(command).await;
    assert_eq!(number(&answer, "queueOffset"), 0);
    let ids: Vec<&str> = answer.fields.get("msgId").unwrap().split(',').collect();
    assert_eq!((ids.len(), ids[0].len()), (3, 32));
    let mut got = Vec::new();
    eventually("all three are readable", async || {
        got = records(&site.ask(pull("G", "T", 0, "*", None)).await);
        got.len() == 3
    })
    .await;
    assert_eq!(got[2].1, b"three");
    let own = properties(&[("KEYS", "K3")]);
    assert_eq!(
        got[2].2,
        own.trim_end_matches('\u{2}'),
        "the batch's and the broker's stay out"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_at_the_end_waits_for_the_next_message() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let waiting = site.asking(pull("G", "T", 0, "*", Some(LIMIT)));
    eventually("the pull waits", async || site.broker.health().waiting_pulls == 1).await;
    let sent = Instant::now();
    site.send_ok("T", b"wake", "").await;
    let got = waiting.await.unwrap().unwrap();
    assert_eq!(got.code, response::SUCCESS);
    assert_eq!(records(&got)[0].1, b"wake");
    assert!(
        sent.elapsed() < Duration::from_secs(4),
        "woken by the message, not by the sweep"
    );
    assert_eq!(site.broker.health().waiting_pulls, 0);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_pull_is_answered_when_its_time_is_up() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let asked = Instant::now();
    let got = site
        .ask(pull("G", "T", 0, "*", Some(Duration::from_millis(300))))
        .await;
    assert_eq!(got.code, response::PULL_NOT_FOUND);
    assert_eq!(number(&got, "nextBeginOffset"), 0);
    assert!(asked.elapsed() >= Duration::from_millis(300));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_filter_answers_with_its_messages_and_skips_the_rest() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    for (tag, body) in [("red", "1"), ("blue", "2"), ("red", "3")] {
        site.send_ok("T", body.as_bytes(), &properties(&[("TAGS", tag)]))
            .await;
    }
    eventually("all are readable", async || {
        records(&site.ask(pull("G", "T", 0, "*", None)).await).len() == 3
    })
    .await;
    let red = site.ask_ok(pull("G", "T", 0, "red", None)).await;
    let bodies: Vec<_> = records(&red).into_iter().map(|(_, body, _)| body).collect();
    assert_eq!(bodies, [b"1", b"3"]);
    let none = site.ask(pull("G", "T", 0, "green || yellow", None)).await;
    assert_eq!(none.code, response::PULL_RETRY_IMMEDIATELY);
    assert_eq!(number(&none, "nextBeginOffset"), 3);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_pull_sleeps_through_messages_of_other_tags() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let waiting = site.asking(pull("G", "T", 0, "red", Some(LIMIT)));
    eventually("the pull waits", async || site.broker.health().waiting_pulls == 1).await;
    site.send_ok("T", b"no", &properties(&[("TAGS", "blue")])).await;
    eventually("the other message is readable", async || {
        site.broker.context().store.max_offset("T", 0) == 1
    })
    .await;
    assert_eq!(site.broker.health().waiting_pulls, 1);
    site.send_ok("T", b"yes", &properties(&[("TAGS", "red")])).await;
    let got = waiting.await.unwrap().unwrap();
    assert_eq!(records(&got)[0].1, b"yes");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_outside_of_the_queue_are_moved_into_it() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let empty = site.ask(pull("G", "T", 5, "*", None)).await;
    assert_eq!(
        (empty.code, number(&empty, "nextBeginOffset")),
        (response::PULL_OFFSET_MOVED, 0)
    );
    site.send_ok("T", b"x", "").await;
    eventually("it is readable", async || {
        site.broker.context().store.max_offset("T", 0) == 1
    })
    .await;
    let far = site.ask(pull("G", "T", 7, "*", None)).await;
    assert_eq!(
        (far.code, number(&far, "nextBeginOffset")),
        (response::PULL_OFFSET_MOVED, 1)
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_flush_answers_after_the_disk() {
    let dir = TempDir::new();
    let mut options = options(&dir);
    options.store.set("flushDiskType", "SYNC_FLUSH").unwrap();
    let site = Site::start(options);
    site.send_ok("T", b"durable", "").await;
    let health = site.broker.health().store;
    assert_eq!(health.flushed_offset, health.max_physical_offset);
    // A sender that does not wait for the disk is answered at once.
    site.send_ok("T", b"fast", &properties(&[("WAIT", "false")]))
        .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_waiting_pulls_and_leaves_no_abort_file() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let waiting = site.asking(pull("G", "T", 0, "*", Some(LIMIT)));
    eventually("the pull waits", async || site.broker.health().waiting_pulls == 1).await;
    site.broker.stop(LIMIT).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().code, response::PULL_NOT_FOUND);
    assert!(!dir.path().join("store/abort").exists());
    // A second stop does nothing.
    site.broker.stop(LIMIT).await.unwrap();
}

/// Pulls queue 0 from its beginning with these limits.
fn pull_of(count: &str, bytes: Option<&str>) -> Command {
    let mut command = pull("G", "T", 0, "*", None);
    command.fields.set("maxMsgNums", count);
    if let Some(bytes) = bytes {
        command.fields.set("maxMsgBytes", bytes);
    }
    command
}

async fn fill(site: &Site, count: usize, body: &[u8]) {
    let mut bodies = Vec::new();
    let item = batch::BatchItem {
        flag: 0,
        body,
        properties: b"",
    };
    for _ in 0..count {
        batch::encode(&item, &mut bodies).unwrap();
    }
    let mut command = send("T", 0, &bodies, &properties(&[("UNIQ_KEY", "BATCH")]));
    command.code = request::SEND_BATCH_MESSAGE;
    command.fields.set("m", "true");
    site.ask_ok(command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_gets_as_many_messages_as_it_asks_for_up_to_what_the_operator_allows() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    fill(&site, 1500, b"x").await;
    for (asked, got) in [("32", 32), ("1000", 1000), ("65535", 1024)] {
        let answer = site.ask_ok(pull_of(asked, None)).await;
        assert_eq!(records(&answer).len(), got, "asked for {asked}");
    }
    site.stop().await;
    let mut bounded = options(&dir);
    bounded
        .store
        .set("maxTransferCountOnMessageInMemory", "100")
        .unwrap();
    let site = Site::start(bounded);
    let answer = site.ask_ok(pull_of("1024", Some("4194304"))).await;
    assert_eq!(records(&answer).len(), 100);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_gets_as_many_bytes_as_it_asks_for_up_to_what_the_operator_allows() {
    let dir = TempDir::new();
    let mut large = options(&dir);
    large.store.segment_bytes = 16 << 20;
    large.store.max_message_bytes = 8 << 20;
    let site = Site::start(large.clone());
    fill(&site, 60, &vec![1; 100_000]).await;
    // 2147483647 is what Apache's clients send for no limit.
    for (asked, got) in [
        (None, 2),
        (Some("2147483647"), 2),
        (Some("1050000"), 10),
        (Some("9000000"), 41),
    ] {
        let answer = site.ask_ok(pull_of("1024", asked)).await;
        assert_eq!(records(&answer).len(), got, "asked for {asked:?}");
    }
    site.stop().await;
    large
        .store
        .set("maxTransferBytesOnMessageInMemory", "550000")
        .unwrap();
    let site = Site::start(large);
    for asked in [None, Some("4194304")] {
        let answer = site.ask_ok(pull_of("1024", asked)).await;
        assert_eq!(records(&answer).len(), 5, "asked for {asked:?}");
    }
    site.stop().await;
}
