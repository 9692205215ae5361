//! What operators and tools ask of a broker about counters, consumers, consume queues and replication.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{LIMIT, Site, TempDir, create, eventually, number, options, properties, pull, text};
use pyrmq_remoting::body::{
    Body, BrokerStatsData, ConsumeStats, ConsumeStatsList, GetConsumerStatusBody, HARuntimeInfo,
    MessageQueue, QueryConsumeQueueResponseBody, QueryCorrectionOffsetBody, ResetOffsetBody, TopicConfig,
    TopicStatsTable,
};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Client, ClientOptions, Peer, Processor, ProcessorTable, Reply};
use pyrmq_remoting::{Command, Language};
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;

fn body<T: Body>(answer: &Command) -> T {
    T::decode(answer.body.as_deref().unwrap()).unwrap()
}

fn counter(name: &str, key: &str) -> Command {
    Command::request(request::VIEW_BROKER_STATS_DATA)
        .with_field("statsName", name)
        .with_field("statsKey", key)
}

fn commit(group: &str, topic: &str, queue: i32, offset: i64) -> Command {
    Command::request(request::UPDATE_CONSUMER_OFFSET)
        .with_field("consumerGroup", group)
        .with_field("topic", topic)
        .with_field("queueId", &queue.to_string())
        .with_field("commitOffset", &offset.to_string())
}

fn heartbeat(group: &str, topic: &str) -> Command {
    let body = format!(
        r#"{{"clientID":"me","consumerDataSet":[{{"groupName":"{group}","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionDataSet":[{{"topic":"{topic}","subString":"*","expressionType":"TAG","subVersion":1}}]}}],"producerDataSet":[]}}"#
    );
    Command::request(request::HEART_BEAT).with_body(body)
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_and_gets_are_counted_by_topic_group_and_queue() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 2).await;
    let missing = site.ask(counter("TOPIC_PUT_NUMS", "T")).await;
    assert_eq!(missing.code, response::SYSTEM_ERROR);
    assert!(
        missing
            .remark
            .unwrap()
            .starts_with("The stats <TOPIC_PUT_NUMS> <T> not exist")
    );
    for _ in 0..5 {
        site.send_ok("T", b"x", "").await;
    }
    site.ask_ok(pull("G", "T", 0, "*", None)).await;
    let sums = |data: BrokerStatsData| [data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum];
    for (name, key) in [
        ("TOPIC_PUT_NUMS", "T"),
        ("GROUP_GET_NUMS", "T@G"),
        ("QUEUE_GET_NUMS", "T@0@G"),
        ("BROKER_PUT_NUMS", "DefaultCluster"),
        ("BROKER_GET_NUMS", "DefaultCluster"),
    ] {
        let data: BrokerStatsData = body(&site.ask_ok(counter(name, key)).await);
        assert!(data.stats_minute.tps > 0.0, "{name} {key}");
        assert_eq!(sums(data), [5, 5, 5], "{name} {key}");
    }
    for (name, key) in [
        ("TOPIC_PUT_SIZE", "T"),
        ("GROUP_GET_SIZE", "T@G"),
        ("QUEUE_GET_SIZE", "T@0@G"),
    ] {
        let data: BrokerStatsData = body(&site.ask_ok(counter(name, key)).await);
        assert!(data.stats_minute.sum > 5 * 80, "{name} {key}: {data:?}");
    }
    let stats = Command::request(request::GET_TOPIC_STATS_INFO).with_field("topic", "T");
    let stats: TopicStatsTable = body(&site.ask_ok(stats).await);
    assert!(stats.topic_put_tps > 0.0);
    // A change of the topic keeps its counters, a deletion does not.
    site.create("T", 4).await;
    site.ask_ok(counter("TOPIC_PUT_NUMS", "T")).await;
    site.ask_ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_field("topic", "T"))
        .await;
    site.create("T", 1).await;
    assert_eq!(
        site.ask(counter("TOPIC_PUT_NUMS", "T")).await.code,
        response::SYSTEM_ERROR
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_come_back_are_counted_by_topic_and_group() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let sent = site.send_ok("T", b"x", "").await;
    let id: pyrmq_remoting::message::id::OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
    let back = |level: &str| {
        Command::request(request::CONSUMER_SEND_MSG_BACK)
            .with_field("offset", &id.offset.to_string())
            .with_field("group", "G")
            .with_field("delayLevel", level)
            .with_field("originMsgId", "x")
            .with_field("originTopic", "T")
            .with_field("unitMode", "false")
    };
    site.ask_ok(back("1")).await;
    site.ask_ok(back("1")).await;
    site.ask_ok(back("-1")).await;
    let sum = async |name| -> i64 {
        let data: BrokerStatsData = body(&site.ask_ok(counter(name, "T@G")).await);
        data.stats_minute.sum
    };
    assert_eq!(sum("SNDBCK_PUT_NUMS").await, 2);
    assert_eq!(sum("DLQ_PUT_NUMS").await, 1);
    let retried = site.ask_ok(counter("TOPIC_PUT_NUMS", "%RETRY%G")).await;
    assert_eq!(body::<BrokerStatsData>(&retried).stats_minute.sum, 2);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn system_topics_count_the_messages_that_wait_in_them() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let sent = site.send_ok("T", b"plain", "").await;
    let half = properties(&[("TRAN_MSG", "true"), ("PGROUP", "P"), ("UNIQ_KEY", "half")]);
    site.send_ok("T", b"half", &half).await;
    site.send_ok("T", b"later", &properties(&[("DELAY", "1")])).await;
    site.send_ok("T", b"timed", &properties(&[("TIMER_DELAY_SEC", "60")]))
        .await;
    let id: pyrmq_remoting::message::id::OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
    let back = Command::request(request::CONSUMER_SEND_MSG_BACK)
        .with_field("offset", &id.offset.to_string())
        .with_field("group", "G")
        .with_field("delayLevel", "1")
        .with_field("originTopic", "T");
    site.ask_ok(back).await;
    for (topic, wanted) in [
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1),
        ("SCHEDULE_TOPIC_XXXX", 2),
        ("rmq_sys_wheel_timer", 1),
        // As when they are accepted; the half is not its topic's yet.
        ("T", 3),
    ] {
        let data: BrokerStatsData = body(&site.ask_ok(counter("TOPIC_PUT_NUMS", topic)).await);
        assert_eq!(data.stats_minute.sum, wanted, "{topic}");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_flight_are_those_pulled_and_not_committed() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    for _ in 0..7 {
        site.send_ok("T", b"x", "").await;
    }
    site.ask_ok(pull("G", "T", 0, "*", None)).await;
    site.ask_ok(commit("G", "T", 0, 3)).await;
    let asked = Command::request(request::GET_CONSUME_STATS).with_field("consumerGroup", "G");
    let stats: ConsumeStats = body(&site.ask_ok(asked).await);
    let offsets = &stats.offset_table[&MessageQueue::new("T", "broker-a", 0)];
    assert_eq!(
        (
            offsets.broker_offset,
            offsets.consumer_offset,
            offsets.pull_offset
        ),
        (7, 3, 7)
    );
    assert!(stats.consume_tps > 0.0);
    let all = Command::request(request::GET_BROKER_CONSUME_STATS).with_field("isOrder", "false");
    let all: ConsumeStatsList = body(&site.ask_ok(all).await);
    assert_eq!((all.total_diff, all.total_inflight_diff), (4, 4));
    assert_eq!(all.broker_addr.as_deref(), Some(site.address.as_str()));
    let of_group = all.consume_stats_list.iter().find_map(|groups| groups.get("G"));
    assert_eq!(of_group.unwrap()[0].offset_table.len(), 1);
    let orderly = Command::request(request::GET_BROKER_CONSUME_STATS).with_field("isOrder", "true");
    let orderly: ConsumeStatsList = body(&site.ask_ok(orderly).await);
    assert_eq!(orderly.total_diff, 0, "the topic is not an ordered one");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_consume_queue_are_shown() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    for _ in 0..5 {
        site.send_ok("T", b"x", &properties(&[("TAGS", "TagA")])).await;
    }
    let ask = |index: &str, count: &str| {
        Command::request(request::QUERY_CONSUME_QUEUE)
            .with_field("topic", "T")
            .with_field("queueId", "0")
            .with_field("index", index)
            .with_field("count", count)
    };
    let shown: QueryConsumeQueueResponseBody = body(&site.ask_ok(ask("1", "3")).await);
    assert_eq!((shown.min_queue_index, shown.max_queue_index), (0, 5));
    assert_eq!(shown.queue_data.len(), 3);
    let first = &shown.queue_data[0];
    assert_eq!(first.tags_code, 2_598_919);
    assert!(first.physic_offset > 0 && first.physic_size > 80);
    let end = site.ask_ok(ask("4", "9")).await;
    assert_eq!(body::<QueryConsumeQueueResponseBody>(&end).queue_data.len(), 1);
    let behind = site.ask_ok(ask("5", "9")).await;
    assert_eq!(behind.remark.as_deref(), Some("Index 5 of 0@T is not exist!"));
    let offline: QueryConsumeQueueResponseBody =
        body(&site.ask_ok(ask("0", "1").with_field("consumerGroup", "G")).await);
    assert_eq!(offline.filter_data.as_deref(), Some("G@T is not online!"));
    site.ask_ok(heartbeat("G", "T")).await;
    let online: QueryConsumeQueueResponseBody =
        body(&site.ask_ok(ask("0", "1").with_field("consumerGroup", "G")).await);
    assert_eq!(online.subscription_data.unwrap().sub_string, "*");
    let mut other = ask("0", "1");
    other.fields.set("queueId", "7");
    let missing = site.ask(other).await;
    assert_eq!(missing.remark.as_deref(), Some("7@T is not exist!"));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn corrections_are_the_smallest_offsets_of_other_groups() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 2).await;
    for (group, queue, offset) in [("A", 0, 5), ("B", 0, 3), ("A", 1, 4), ("C", 0, 1), ("D", 1, 2)] {
        site.ask_ok(commit(group, "T", queue, offset)).await;
    }
    let ask = Command::request(request::QUERY_CORRECTION_OFFSET)
        .with_field("topic", "T")
        .with_field("filterGroups", "C,D")
        .with_field("compareGroup", "D");
    let corrections: QueryCorrectionOffsetBody = body(&site.ask_ok(ask).await);
    let rows: Vec<_> = corrections.correction_offsets.into_iter().collect();
    assert_eq!(rows, [(0, 3), (1, i64::MAX)]);
    // The groups that were left out keep their offsets.
    assert_eq!(site.broker.context().offsets.get("C", "T", 0), Some(1));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_of_topics_that_are_in_no_table_are_cleaned() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    for topic in ["kept", "gone"] {
        site.send_ok(topic, b"x", "").await;
    }
    let context = site.broker.context();
    // A crash in the middle of a deletion leaves this.
    context.topics.remove("gone").unwrap();
    site.ask_ok(Command::request(request::CLEAN_UNUSED_TOPIC)).await;
    let names: Vec<String> = context.store.topics().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["kept"]);
    site.ask_ok(Command::request(request::CLEAN_EXPIRED_CONSUMEQUEUE))
        .await;
    assert_eq!(context.store.max_offset("kept", 0), 1);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_slaves_says_so() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.send_ok("T", b"x", "").await;
    let answer = site.ask_ok(Command::request(request::GET_BROKER_HA_STATUS)).await;
    let info: HARuntimeInfo = body(&answer);
    assert!(info.master);
    assert_eq!((info.in_sync_slave_nums, info.ha_connection_info.len()), (0, 0));
    let end = site.broker.context().store.health().max_physical_offset;
    assert_eq!(info.master_commit_log_max_offset, end);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_has_no_flush_offset_of_a_master_to_reset() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.send_ok("T", b"x", "").await;
    let end = site.broker.context().store.health().max_physical_offset;
    for offset in [None, Some("0"), Some("x1")] {
        let mut request = Command::request(request::RESET_MASTER_FLUSH_OFFSET);
        if let Some(offset) = offset {
            request.fields.set("masterFlushOffset", offset);
        }
        site.ask_ok(request).await;
    }
    assert_eq!(site.broker.context().store.health().max_physical_offset, end);
    site.stop().await;
}

/// A consumer that answers 221 and keeps the requests.
fn member() -> (Client, Arc<Mutex<Vec<Command>>>) {
    let received: Arc<Mutex<Vec<Command>>> = Arc::default();
    let keep = received.clone();
    let answer: Arc<dyn Processor> = Arc::new(move |request: Command, _: &Peer, reply: Reply| {
        keep.lock().unwrap().push(request);
        let mut body = GetConsumerStatusBody::default();
        let queue = MessageQueue::new("T", "broker-a", 0);
        body.message_queue_table.insert(queue, 42);
        reply.send(Command::response(response::SUCCESS).with_body(body.encode()));
    });
    let codes = [
        request::GET_CONSUMER_STATUS_FROM_CLIENT,
        request::RESET_CONSUMER_CLIENT_OFFSET,
    ];
    let mut table = ProcessorTable::new();
    table.native(&codes, &answer);
    let client = Client::new(&Handle::current(), ClientOptions::default(), Arc::new(table)).unwrap();
    (client, received)
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_asked_for_their_offsets() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let ask = Command::request(request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
        .with_field("topic", "T")
        .with_field("group", "G");
    let nobody = site.ask(ask.clone()).await;
    assert_eq!(nobody.code, response::SYSTEM_ERROR);
    assert_eq!(
        nobody.remark.as_deref(),
        Some("No Any Consumer online in the consumer group: [G]")
    );
    let (consumer, _) = member();
    consumer
        .request(&site.address, heartbeat("G", "T"), LIMIT)
        .await
        .unwrap();
    let table = body::<GetConsumerStatusBody>(&site.ask_ok(ask.clone()).await).consumer_table;
    let offsets: Vec<_> = table["me"].values().copied().collect();
    assert_eq!(offsets, [42]);
    let other = site.ask_ok(ask.with_field("clientAddr", "you")).await;
    assert!(body::<GetConsumerStatusBody>(&other).consumer_table.is_empty());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_reset_offsets_themselves_where_the_broker_does_not() {
    let dir = TempDir::new();
    let mut settings = options(&dir);
    settings.use_server_side_reset_offset = false;
    let site = Site::start(settings);
    site.create("T", 1).await;
    for _ in 0..4 {
        site.send_ok("T", b"x", "").await;
    }
    let ask = |force: &str| {
        Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET)
            .with_field("topic", "T")
            .with_field("group", "G")
            .with_field("timestamp", "-1")
            .with_field("isForce", force)
    };
    let unknown = site.ask(ask("true")).await.remark.unwrap();
    assert!(
        unknown.starts_with("THe consumer group <G> not exist"),
        "{unknown}"
    );
    site.ask_ok(commit("G", "T", 0, 2)).await;
    assert_eq!(site.ask(ask("true")).await.code, response::CONSUMER_NOT_ONLINE);
    let (consumer, received) = member();
    consumer
        .request(&site.address, heartbeat("G", "T"), LIMIT)
        .await
        .unwrap();
    let rows = |answer: &Command| -> Vec<i64> {
        let body: ResetOffsetBody = body(answer);
        body.offset_table.into_values().collect()
    };
    // Without force nothing is passed over.
    assert_eq!(rows(&site.ask_ok(ask("false")).await), [2]);
    assert_eq!(rows(&site.ask_ok(ask("true")).await), [4]);
    let mut from_cpp = ask("true");
    from_cpp.language = Language::Cpp;
    site.ask_ok(from_cpp).await;
    eventually("three orders", async || received.lock().unwrap().len() == 3).await;
    let orders: Vec<Command> = std::mem::take(&mut *received.lock().unwrap());
    assert_eq!(number(&orders[1], "timestamp"), -1);
    assert_eq!(rows(&orders[1]), [4]);
    assert!(
        text(&orders[2]).starts_with(r#"{"offsetTable":[{"brokerName""#),
        "{}",
        text(&orders[2])
    );
    assert_eq!(
        site.broker.context().offsets.get("G", "T", 0),
        Some(2),
        "its members commit"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_are_changed_and_refused_as_apache_does() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let change = |attributes: &str| create("T", 1).with_field("attributes", attributes);
    let refused = async |attributes: &str, words: &str| {
        let answer = site.ask(change(attributes)).await;
        assert_eq!(answer.code, response::SYSTEM_ERROR, "{attributes}");
        let remark = answer.remark.unwrap();
        assert!(remark.starts_with(words), "{attributes}: {remark}");
    };
    refused("+color=red", "unsupported key: color").await;
    refused("-message.type", "only add attribute is supported while creating").await;
    refused("+message.type=RED", "value is not in set: [").await;
    refused("+reserve.time=-2", "value is not in range(-1, ").await;
    site.ask_ok(change("+message.type=FIFO")).await;
    refused("-reserve.time", "attempt to delete a nonexistent key").await;
    refused("+queue.type=SimpleCQ", "attempt to update an unchangeable").await;
    refused("message.type=FIFO", "add/alter attribute format is wrong").await;
    site.ask_ok(change("+message.type=DELAY,+reserve.time=5")).await;
    site.ask_ok(change("-reserve.time")).await;
    let shown = Command::request(request::GET_TOPIC_CONFIG).with_field("topic", "T");
    let shown: TopicConfig = body(&site.ask_ok(shown).await);
    let attributes: Vec<_> = shown.attributes.into_iter().collect();
    assert_eq!(attributes, [("message.type".to_owned(), "DELAY".to_owned())]);
    let group = |attributes: &str| {
        let body = format!(r#"{{"groupName":"G","attributes":{{{attributes}}}}}"#);
        Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(body)
    };
    let unknown = site.ask(group(r#""+color":"red""#)).await;
    assert_eq!(unknown.code, response::SYSTEM_ERROR);
    assert!(site.broker.context().groups.get("G").is_none());
    site.ask_ok(group(r#""+priority.factor":"7""#)).await;
    let made = site.broker.context().groups.get("G").unwrap();
    assert_eq!(made.attributes["priority.factor"], "7");
    site.stop().await;
}
