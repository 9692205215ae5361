//! Rates and lag for tools: one counter 315, the progress of one group 208, of all groups 317 (Apache
//! `AdminBrokerProcessor`).

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::query::internal;
use crate::processor::topic::ends;
use crate::processor::{Answer, answer};
use crate::stats::windows::{Growth, Span};
use crate::tables::topics::Topic;
use pyrmq_remoting::body::{
    BrokerStatsData, BrokerStatsItem, ConsumeStats, ConsumeStatsList, MessageQueue, OffsetWrapper,
};
use pyrmq_remoting::header::{
    GetConsumeStatsInBrokerHeader, GetConsumeStatsRequestHeader, ViewBrokerStatsDataRequestHeader,
};
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, clock};
use std::collections::{BTreeMap, BTreeSet};

/// The part of a counter that is requested.
#[derive(Clone, Copy)]
enum Measure {
    Messages,
    Bytes,
}

/// Returns one counter (315).
pub(crate) fn counter(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = ViewBrokerStatsDataRequestHeader::decode(&request.fields)?;
    let name = header.stats_name.unwrap_or_default();
    let key = header.stats_key.unwrap_or_default();
    let measure = if name.ends_with("_SIZE") {
        Measure::Bytes
    } else {
        Measure::Messages
    };
    let item = |span: Span| grown(context, name, key, span).map(|growth| item(growth, measure));
    let (Some(minute), Some(hour), Some(day)) = (item(Span::Minute), item(Span::Hour), item(Span::Day))
    else {
        return Err(Refusal::internal(format!(
            "The stats <{name}> <{key}> not exist: nothing was counted since this broker started"
        )));
    };
    Ok(answer(&BrokerStatsData {
        stats_day: day,
        stats_hour: hour,
        stats_minute: minute,
    }))
}

/// The counts of a counter with Apache's name and key (`BrokerStatsManager`); `None` if it never counted.
fn grown(context: &BrokerContext, name: &str, key: &str, span: Span) -> Option<Growth> {
    let now_ms = clock::now_ms();
    let [put, sent, check_points, acks] = context.stats.growth(span, now_ms);
    let of_cluster = key == context.options.broker_cluster_name;
    let parts: Vec<&str> = key.split('@').collect();
    let group_of = |topic: &str, group: &str| context.topics.get(topic)?.traffic.group(group);
    match (name, parts.as_slice()) {
        ("BROKER_PUT_NUMS", _) => of_cluster.then_some(put),
        ("BROKER_GET_NUMS", _) => of_cluster.then_some(sent),
        ("BROKER_CK_NUMS", _) => of_cluster.then_some(check_points),
        ("BROKER_ACK_NUMS", _) => of_cluster.then_some(acks),
        ("TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE", [topic]) => {
            context.topics.get(topic)?.traffic.puts(span, now_ms)
        }
        ("GROUP_GET_NUMS" | "GROUP_GET_SIZE", [topic, group]) => {
            group_of(topic, group)?.gets(None, span, now_ms)
        }
        ("GROUP_CK_NUMS", [topic, group]) => group_of(topic, group)?.check_points(span, now_ms),
        ("GROUP_ACK_NUMS", [topic, group]) => group_of(topic, group)?.acks(span, now_ms),
        ("SNDBCK_PUT_NUMS", [topic, group]) => group_of(topic, group)?.send_backs(span, now_ms),
        ("DLQ_PUT_NUMS", [topic, group]) => group_of(topic, group)?.dead_letters(span, now_ms),
        ("QUEUE_GET_NUMS" | "QUEUE_GET_SIZE", [topic, queue, group]) => {
            group_of(topic, group)?.gets(Some(queue.parse().ok()?), span, now_ms)
        }
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn item(growth: Growth, measure: Measure) -> BrokerStatsItem {
    let sum = match measure {
        Measure::Messages => growth.messages,
        Measure::Bytes => growth.bytes,
    };
    BrokerStatsItem {
        sum: i64::try_from(sum).unwrap_or(i64::MAX),
        tps: sum as f64 * 1000.0 / growth.elapsed_ms as f64,
        avgpt: if growth.calls > 0 {
            sum as f64 / growth.calls as f64
        } else {
            0.0
        },
    }
}

/// Returns a group's progress (208).
pub(crate) fn of_group(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetConsumeStatsRequestHeader::decode(&request.fields)?;
    let group = header.consumer_group;
    let listed = header.topic_list.unwrap_or_default().split(';');
    let listed: Vec<&str> = listed.filter(|topic| !topic.is_empty()).collect();
    let topics: BTreeSet<String> = if listed.is_empty() {
        let named = header.topic.filter(|topic| !topic.trim().is_empty());
        let topics = match named {
            Some(topic) => vec![topic.to_owned()],
            None => context.offsets.topics_of(group),
        };
        subscribed(context, group, topics).collect()
    } else {
        listed.into_iter().map(str::to_owned).collect()
    };
    let mut body = ConsumeStats::default();
    for topic in topics.iter().filter_map(|name| context.topics.get(name)) {
        let stats = on_topic(context, group, &topic, topic.read_queue_nums)?;
        body.consume_tps += stats.consume_tps;
        body.offset_table.extend(stats.offset_table);
    }
    Ok(answer(&body))
}

/// The topics that the group reads: while members are connected, only those that they subscribe to.
fn subscribed(context: &BrokerContext, group: &str, topics: Vec<String>) -> impl Iterator<Item = String> {
    let subscribed = context.clients.consumers(group, |members| {
        members.subscriptions.keys().cloned().collect::<BTreeSet<_>>()
    });
    let subscribed = subscribed.filter(|subscribed| !subscribed.is_empty());
    topics.into_iter().filter(move |topic| {
        subscribed
            .as_ref()
            .is_none_or(|subscribed| subscribed.contains(topic))
    })
}

/// Returns the progress of all groups (317).
pub(crate) fn of_all_groups(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetConsumeStatsInBrokerHeader::decode(&request.fields)?;
    let mut body = ConsumeStatsList {
        broker_addr: Some(context.address()),
        ..ConsumeStatsList::default()
    };
    for group in context.groups.names() {
        let mut list = Vec::new();
        for name in subscribed(context, &group, context.offsets.topics_of(&group)) {
            let Some(topic) = context.topics.get(&name) else {
                continue;
            };
            if header.is_order && !topic.order {
                continue;
            }
            let stats = on_topic(context, &group, &topic, topic.write_queue_nums)?;
            for offsets in stats.offset_table.values() {
                body.total_diff += offsets.broker_offset - offsets.consumer_offset;
                body.total_inflight_diff += offsets.pull_offset - offsets.consumer_offset;
            }
            list.push(stats);
        }
        body.consume_stats_list.push(BTreeMap::from([(group, list)]));
    }
    Ok(answer(&body))
}

/// A group's progress on a topic.
fn on_topic(
    context: &BrokerContext,
    group: &str,
    topic: &Topic,
    queues: i32,
) -> Result<ConsumeStats, Refusal> {
    let name = &topic.topic_name;
    let committed = context.offsets.of_topic(group, name);
    let traffic = topic.traffic.group(group);
    let gets = traffic
        .as_ref()
        .and_then(|traffic| traffic.gets(None, Span::Minute, clock::now_ms()));
    let mut stats = ConsumeStats {
        consume_tps: gets.map_or(0.0, |growth| growth.messages_per_second()),
        ..ConsumeStats::default()
    };
    for queue_id in 0..queues {
        let consumed = committed.get(&queue_id).copied().unwrap_or(0);
        let pulled = traffic.as_ref().and_then(|traffic| traffic.pulled_to(queue_id));
        stats.offset_table.insert(
            MessageQueue::new(name, &context.options.broker_name, queue_id),
            OffsetWrapper {
                broker_offset: ends(context, name, queue_id).1,
                consumer_offset: consumed,
                last_timestamp: last_consumed(context, name, queue_id, consumed)?,
                pull_offset: pulled.unwrap_or(0).max(consumed),
            },
        );
    }
    Ok(stats)
}

/// When the last consumed message was stored, in ms; 0 if there is none.
fn last_consumed(context: &BrokerContext, topic: &str, queue_id: i32, consumed: i64) -> Result<i64, Refusal> {
    if consumed <= 0 {
        return Ok(0);
    }
    let time = context.store.store_time(topic, queue_id, consumed - 1);
    Ok(time.map_err(|error| internal(&error))?.unwrap_or(0))
}
