//! Hostile requests: each is refused, or does exactly what it says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Site, TempDir, create, number, options, properties, pull, records, send, text};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::{BatchItem, batch, record, sys_flag};
use std::fmt::Write;

async fn refused(site: &Site, command: Command, code: i32, word: &str) {
    let answer = site.ask(command).await;
    let remark = answer.remark.unwrap_or_default();
    assert_eq!(answer.code, code, "{remark}");
    assert!(remark.contains(word), "{remark} lacks {word}");
}

fn flagged(mut command: Command, flags: i32) -> Command {
    command.fields.set("f", &flags.to_string());
    command
}

fn a_batch(topic: &str) -> Command {
    let mut body = Vec::new();
    let item = BatchItem {
        body: b"one of many",
        ..BatchItem::default()
    };
    batch::encode(&item, &mut body).unwrap();
    let mut command = send(topic, 0, &body, "");
    command.code = request::SEND_BATCH_MESSAGE;
    command.fields.set("m", "true");
    command
}

fn commit(group: &str, topic: &str, queue: &str, offset: &str) -> Command {
    [
        ("consumerGroup", group),
        ("topic", topic),
        ("queueId", queue),
        ("commitOffset", offset),
    ]
    .into_iter()
    .fold(
        Command::request(request::UPDATE_CONSUMER_OFFSET),
        |command, (key, value)| command.with_field(key, value),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_that_would_hide_an_acknowledged_message_are_refused() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let illegal = response::MESSAGE_ILLEGAL;
    let (inner, rolled_back) = (sys_flag::INNER_BATCH, sys_flag::TRANSACTION_ROLLBACK);
    refused(&site, flagged(send("T", 0, b"x", ""), inner), illegal, "BatchCQ").await;
    refused(&site, flagged(a_batch("T"), inner), illegal, "BatchCQ").await;
    refused(
        &site,
        flagged(send("T", 0, b"x", ""), rolled_back),
        illegal,
        "rolled back",
    )
    .await;
    refused(&site, flagged(a_batch("T"), rolled_back), illegal, "rolled back").await;
    for flags in [inner, rolled_back, sys_flag::TRANSACTION_PREPARED] {
        let mut reply = flagged(send("T", 0, b"x", ""), flags);
        reply.code = request::SEND_REPLY_MESSAGE_V2;
        assert_eq!(site.ask(reply).await.code, illegal, "{flags:#x}");
    }
    assert_eq!(site.broker.health().store.max_physical_offset, 0);
    // The sender sets the bits of hosts and of compression; those of hosts must match the hosts.
    site.ask_ok(flagged(send("T", 0, b"no zlib", ""), 0x331)).await;
    let answer = site.ask_ok(pull("G", "T", 0, "*", None)).await;
    let body = answer.body.unwrap();
    let message = record::records(&body).next().unwrap().unwrap();
    assert_eq!((message.sys_flag, message.body), (0x301, &b"no zlib"[..]));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_that_is_no_number_does_not_mean_at_once() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    for level in ["x", "99999999999", "1.5"] {
        let delayed = properties(&[("DELAY", level)]);
        refused(
            &site,
            send("T", 0, b"x", &delayed),
            response::MESSAGE_ILLEGAL,
            "DELAY",
        )
        .await;
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timers_topic_takes_no_messages_of_clients() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    let forged = properties(&[
        ("TIMER_OUT_MS", "1"),
        ("REAL_TOPIC", "../../../escaped"),
        ("REAL_QID", "2147483647"),
    ]);
    let forbidden = response::NO_PERMISSION;
    let closed = "rmq_sys_wheel_timer";
    refused(
        &site,
        send(closed, 0, b"x", &forged),
        forbidden,
        "Only the broker writes",
    )
    .await;
    // In other topics, these names are ordinary properties.
    site.send_ok("T", b"x", &forged).await;
    assert_eq!(records(&site.ask_ok(pull("G", "T", 0, "*", None)).await).len(), 1);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_kept_of_queues_that_exist_only() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 2).await;
    let invalid = response::INVALID_PARAMETER;
    site.ask_ok(commit("G", "T", "0", "0")).await;
    for queue in ["-1", "2", "2147483647", "-2147483648"] {
        refused(&site, commit("Refused", "T", queue, "1"), invalid, "queueId").await;
        let reset = Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET)
            .with_field("topic", "T")
            .with_field("group", "G")
            .with_field("timestamp", "0")
            .with_field("isForce", "true")
            .with_field("offset", "0")
            .with_field("queueId", queue);
        let answer = site.ask(reset).await;
        // A negative queue means all of them.
        let code = if queue.starts_with('-') {
            response::SUCCESS
        } else {
            invalid
        };
        assert_eq!(answer.code, code, "{queue}: {:?}", answer.remark);
    }
    refused(&site, commit("Refused", "T", "0", "-1"), invalid, "commitOffset").await;
    refused(
        &site,
        commit("a b", "T", "0", "1"),
        response::SUBSCRIPTION_GROUP_NOT_EXIST,
        "a b",
    )
    .await;
    assert!(
        site.broker.context().groups.get("Refused").is_none(),
        "what is refused makes no group"
    );
    site.ask_ok(commit("H", "T", "1", "9223372036854775807")).await;
    let all = text(
        &site
            .ask_ok(Command::request(request::GET_ALL_CONSUMER_OFFSET))
            .await,
    );
    assert!(all.contains(r#""T@H":{1:9223372036854775807}"#), "{all}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_moves_the_brokers_own_offsets() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let (group, half) = ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC");
    let forbidden = response::NO_PERMISSION;
    refused(&site, commit(group, half, "0", "1000000"), forbidden, group).await;
    let reset = Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET)
        .with_field("topic", half)
        .with_field("group", group)
        .with_field("timestamp", "-1")
        .with_field("isForce", "true");
    refused(&site, reset, forbidden, group).await;
    let mut beside = pull(group, half, 0, "*", None);
    beside.fields.set("sysFlag", "5");
    beside.fields.set("commitOffset", "1000000");
    site.ask(beside).await;
    assert_eq!(site.broker.context().offsets.get(group, half, 0), None);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_an_open_transaction_is_not_given_back() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let half = properties(&[
        ("TRAN_MSG", "true"),
        ("PGROUP", "producers"),
        ("UNIQ_KEY", "0A01"),
    ]);
    let mut half = flagged(send("T", 0, b"x", &half), sys_flag::TRANSACTION_PREPARED);
    // An impossible born time is no reason to fail either.
    half.fields.set("g", &i64::MIN.to_string());
    half.fields.set("j", &i32::MAX.to_string());
    site.ask_ok(half).await;
    let back = Command::request(request::CONSUMER_SEND_MSG_BACK)
        .with_field("offset", "0")
        .with_field("group", "G")
        .with_field("delayLevel", "0")
        .with_field("originMsgId", "x")
        .with_field("originTopic", "T")
        .with_field("unitMode", "false")
        .with_field("maxReconsumeTimes", &i32::MAX.to_string());
    let illegal = response::MESSAGE_ILLEGAL;
    refused(&site, back.clone(), illegal, "RMQ_SYS_TRANS_HALF_TOPIC").await;
    site.send_ok("T", b"later", &properties(&[("DELAY", "18")])).await;
    let mut early = back.clone();
    let half_end = site.broker.context().store.record_at(0).unwrap().unwrap().len();
    early.fields.set("offset", &half_end.to_string());
    refused(&site, early, illegal, "SCHEDULE_TOPIC_XXXX").await;
    let mut often = send("T", 0, b"y", "");
    often.fields.set("j", &i32::MAX.to_string());
    let sent = site.ask_ok(often).await;
    let id: pyrmq_remoting::message::id::OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
    let mut back = back;
    back.fields.set("offset", &id.offset.to_string());
    site.ask_ok(back).await;
    let dead = site.ask_ok(pull("G2", "%DLQ%G", 0, "*", None)).await;
    let body = dead.body.unwrap();
    let message = record::records(&body).next().unwrap().unwrap();
    assert_eq!(message.reconsume_times, i32::MAX);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_others_fill_have_an_end() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let topics = i32::try_from(site.broker.context().topics.count()).unwrap();
    site.stop().await;
    let mut settings = options(&dir);
    settings.auto_create_topic_limit = topics + 2;
    settings.auto_create_group_limit = 8 + 3;
    let site = Site::start(settings);
    site.send_ok("T1", b"x", "").await;
    site.send_ok("%RETRY%T2", b"x", "").await;
    for topic in ["T3", "%RETRY%T3"] {
        let unknown = response::TOPIC_NOT_EXIST;
        refused(&site, send(topic, 0, b"x", ""), unknown, "autoCreateTopicLimit").await;
    }
    site.send_ok("T1", b"known topics go on", "").await;
    site.ask_ok(create("T3", 1)).await;
    site.send_ok("T3", b"operators may", "").await;
    // One of the three groups came with its retry topic.
    let mut groups = String::new();
    for number in 0..50 {
        let comma = if number > 0 { "," } else { "" };
        write!(
            groups,
            r#"{comma}{{"groupName":"G{number}","subscriptionDataSet":[]}}"#
        )
        .unwrap();
    }
    let beat = format!(r#"{{"clientID":"c","consumerDataSet":[{groups}],"producerDataSet":[]}}"#);
    site.ask_ok(Command::request(request::HEART_BEAT).with_body(beat))
        .await;
    let context = site.broker.context();
    assert_eq!(context.groups.count(), 8 + 3);
    let known: Vec<_> = (0..50)
        .filter(|n| context.groups.get(&format!("G{n}")).is_some())
        .collect();
    assert_eq!(known, [0, 1], "T2 was the first");
    assert!(
        context.topics.get("%RETRY%G1").is_some(),
        "retries of known groups are always taken"
    );
    assert!(context.topics.get("%RETRY%G2").is_none());
    refused(
        &site,
        pull("H", "T1", 0, "*", None),
        response::SUBSCRIPTION_GROUP_NOT_EXIST,
        "autoCreateGroupLimit",
    )
    .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_topics_and_groups_are_checked_like_single_ones() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let invalid = response::INVALID_PARAMETER;
    for (topic, word) in [
        (r#""attributes":{"+queue.type":"BatchCQ"}"#, "not built"),
        (r#""attributes":{"+cleanup.policy":"COMPACTION"}"#, "not built"),
        (r#""attributes":{"+message.type":"LITE"}"#, "not built"),
        (
            r#""attributes":{"+lite.topic.expiration":"60"}"#,
            "lite topics are not built",
        ),
        (r#""topicFilterType":"NO_TAG""#, "topicFilterType"),
        (r#""readQueueNums":65537"#, "readQueueNums"),
        (r#""writeQueueNums":-1"#, "writeQueueNums"),
        (r#""perm":16"#, "perm"),
    ] {
        let body = format!(r#"{{"topicConfigList":[{{"topicName":"Good"}},{{"topicName":"Bad",{topic}}}]}}"#);
        let list = Command::request(request::UPDATE_AND_CREATE_TOPIC_LIST).with_body(body);
        refused(&site, list, invalid, word).await;
    }
    assert!(site.broker.context().topics.get("Good").is_none(), "all or none");
    let single = request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP;
    let list = request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST;
    for (code, body, word) in [
        (
            single,
            r#"{"groupName":"G","retryQueueNums":2147483647}"#,
            "retryQueueNums",
        ),
        (
            list,
            r#"{"groupConfigList":[{"groupName":"G","retryQueueNums":65537}]}"#,
            "retryQueueNums",
        ),
        (
            single,
            r#"{"groupName":"G","attributes":{"+lite.bind.topic":"Good"}}"#,
            "lite topics are not built",
        ),
        (
            list,
            r#"{"groupConfigList":[{"groupName":"G","attributes":{"+lite.sub.model":"Shared"}}]}"#,
            "lite topics are not built",
        ),
    ] {
        refused(&site, Command::request(code).with_body(body), invalid, word).await;
    }
    assert!(site.broker.context().groups.get("G").is_none());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_at_their_ends_are_answered() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("T", 1).await;
    site.send_ok("T", b"x", "").await;
    let ends = [
        "-9223372036854775808",
        "-2147483648",
        "-1",
        "2147483647",
        "9223372036854775807",
    ];
    let fields = [
        ("consumerGroup", "G"),
        ("group", "G"),
        ("topic", "T"),
        ("key", "k"),
        ("originTopic", "T"),
        ("originMsgId", "x"),
        ("producerGroup", "P"),
        ("brokerName", "broker-a"),
    ];
    let numbers = [
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
        "commitOffset",
        "suspendTimeoutMillis",
        "subVersion",
        "maxMsgBytes",
        "maxNum",
        "beginTimestamp",
        "endTimestamp",
        "offset",
        "timestamp",
        "delayLevel",
        "maxReconsumeTimes",
        "tranStateTableOffset",
        "commitLogOffset",
        "commitOrRollback",
        "bornTimestamp",
        "flag",
        "defaultTopicQueueNums",
        "reconsumeTimes",
    ];
    let codes = [
        request::SEND_MESSAGE,
        request::PULL_MESSAGE,
        request::QUERY_MESSAGE,
        request::QUERY_CONSUMER_OFFSET,
        request::UPDATE_CONSUMER_OFFSET,
        request::SEARCH_OFFSET_BY_TIMESTAMP,
        request::GET_MAX_OFFSET,
        request::GET_MIN_OFFSET,
        request::GET_EARLIEST_MSG_STORETIME,
        request::VIEW_MESSAGE_BY_ID,
        request::CONSUMER_SEND_MSG_BACK,
        request::END_TRANSACTION,
        request::INVOKE_BROKER_TO_RESET_OFFSET,
        request::GET_CONSUME_STATS,
        request::QUERY_CONSUME_TIME_SPAN,
        request::GET_TOPIC_STATS_INFO,
    ];
    for code in codes {
        for odd in numbers {
            for end in ends {
                let mut command = Command::request(code).with_body(b"x".to_vec());
                for (key, value) in fields {
                    command.fields.push(key, value);
                }
                command.fields.push("defaultTopic", "TBW102");
                for key in numbers {
                    let usual = if key == "suspendTimeoutMillis" { "0" } else { "1" };
                    command.fields.push(key, if key == odd { end } else { usual });
                }
                // Pulls carry their subscription and do not wait; other requests read only the fields that they know.
                if odd != "sysFlag" {
                    command.fields.set("sysFlag", "4");
                }
                if odd != "queueId" {
                    command.fields.set("queueId", "0");
                }
                site.ask(command).await;
            }
        }
    }
    assert!(number(&site.send_ok("T", b"still here", "").await, "queueOffset") > 0);
    site.stop().await;
}

fn statistics(topic: &str, further: &[&str]) -> Command {
    let names: Vec<String> = further.iter().map(|name| format!("\"{name}\"")).collect();
    Command::request(request::GET_TOPIC_STATS_INFO)
        .with_field("topic", topic)
        .with_body(format!(r#"{{"topics":[{}]}}"#, names.join(",")))
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_of_topics_have_an_end() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    site.create("large", 65_536).await;
    for topic in ["half", "other"] {
        site.create(topic, 32_768).await;
    }
    // A thousand times the same is once.
    let many = site.ask_ok(statistics("half", &["other"; 1000])).await;
    let one = site.ask_ok(statistics("large", &["large"; 1000])).await;
    for answer in [many, one] {
        assert_eq!(text(&answer).matches("maxOffset").count(), 65_536);
    }
    let invalid = response::INVALID_PARAMETER;
    refused(&site, statistics("large", &["half"]), invalid, "98304 queues").await;
    refused(&site, statistics("half", &["large"]), invalid, "fewer topics").await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_subscribes_a_group_to_a_limited_number_of_topics() {
    let dir = TempDir::new();
    let site = Site::start(options(&dir));
    let beat = |group: &str, topics: usize| {
        let topics: Vec<String> = (0..topics)
            .map(|at| format!(r#"{{"topic":"T{at}","subString":"*"}}"#))
            .collect();
        let body = format!(
            r#"{{"clientID":"c","consumerDataSet":[{{"groupName":"{group}","subscriptionDataSet":[{}]}}]}}"#,
            topics.join(",")
        );
        Command::request(request::HEART_BEAT).with_body(body)
    };
    site.ask_ok(beat("G", 4096)).await;
    let invalid = response::INVALID_PARAMETER;
    refused(
        &site,
        beat("H", 4097),
        invalid,
        "the group H to 4097 topics, allowed are 4096",
    )
    .await;
    let context = site.broker.context();
    assert!(context.groups.contains("G") && !context.groups.contains("H"));
    site.stop().await;
}
