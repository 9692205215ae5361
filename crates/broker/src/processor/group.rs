//! Consumer groups: create 200, 225, delete 207, the whole table 201, one group 352; what they may read 353, what they
//! read 343, 345, 303 (Apache `AdminBrokerProcessor`).

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::client::subscription_data;
use crate::processor::query::internal;
use crate::processor::topic::{QUEUES_LIMIT, ends, topic_list};
use crate::processor::{Answer, answer, read_body};
use pyrmq_remoting::body::{
    GroupForbidden, MessageQueue, QueryConsumeTimeSpanBody, QuerySubscriptionResponseBody, QueueTimeSpan,
    SubscriptionGroupConfig, SubscriptionGroupList,
};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    DeleteSubscriptionGroupRequestHeader, GetSubscriptionGroupConfigRequestHeader,
    QueryConsumeTimeSpanRequestHeader, QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader, UpdateGroupForbiddenRequestHeader,
};
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, clock};

/// Creates or changes a consumer group (200).
pub(crate) fn put(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let group: SubscriptionGroupConfig = read_body(request)?;
    check(&group)?;
    tracing::info!(group = group.group_name, peer = %peer.remote(), "changed a consumer group");
    context.groups.put(vec![group])?;
    Ok(Command::response(response::SUCCESS))
}

/// Creates or changes several consumer groups (225).
pub(crate) fn put_list(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let groups = read_body::<SubscriptionGroupList>(request)?.group_config_list;
    groups.iter().try_for_each(check)?;
    context.groups.put(groups)?;
    Ok(Command::response(response::SUCCESS))
}

/// Refuses too many retry queues: a group's retry topic is created with that many queues, and a topic has a limit.
fn check(group: &SubscriptionGroupConfig) -> Result<(), Refusal> {
    if group.retry_queue_nums <= QUEUES_LIMIT {
        return Ok(());
    }
    let text = format!(
        "retryQueueNums is {}, allowed are at most {QUEUES_LIMIT}",
        group.retry_queue_nums
    );
    Err(Refusal::new(response::INVALID_PARAMETER, text))
}

/// Returns all consumer groups (201).
pub(crate) fn all(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    Ok(answer(&context.groups.to_body()))
}

/// Deletes a consumer group (207).
pub(crate) fn delete(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let header = DeleteSubscriptionGroupRequestHeader::decode(&request.fields)?;
    let name = header.group_name;
    if context.groups.remove(name)? {
        tracing::info!(group = name, peer = %peer.remote(), "deleted a consumer group");
    }
    if header.clean_offset {
        context.offsets.remove_group(name);
        context
            .offsets
            .record_change(name, "", context.store.end_position());
        context.pops.remove_group(name);
        context
            .persist_orders()
            .and_then(|()| context.persist_offsets())
            .map_err(|error| Refusal::internal(error.to_string()))?;
    }
    context.pops.remove_group(name);
    let (topics, _) = context.topics.all();
    for topic in topics {
        topic.traffic.remove_group(name);
    }
    Ok(Command::response(response::SUCCESS))
}

/// Returns one consumer group (352).
pub(crate) fn config(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetSubscriptionGroupConfigRequestHeader::decode(&request.fields)?;
    let group = context
        .groups
        .get(header.group)
        .ok_or_else(|| Refusal::no_group_in("No group in this broker: {}; ", header.group))?;
    Ok(answer(&*group))
}

/// Returns whether a group may read a topic, after changing that if asked to (353).
pub(crate) fn forbid(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let header = UpdateGroupForbiddenRequestHeader::decode(&request.fields)?;
    let (group, topic) = (header.group, header.topic);
    if let Some(readable) = header.readable {
        if context.groups.get(group).is_none() {
            return Err(Refusal::no_group(group));
        }
        if context.topics.get(topic).is_none() {
            return Err(Refusal::no_topic(topic));
        }
        tracing::info!(group, topic, readable, peer = %peer.remote(), "changed what a consumer group may read");
        context.groups.forbid(group, topic, !readable)?;
    }
    let readable = !context.groups.is_forbidden(group, topic);
    Ok(answer(&GroupForbidden {
        group: Some(group.to_owned()),
        readable: Some(readable),
        topic: Some(topic.to_owned()),
    }))
}

/// For each queue returns the store times of its first and last message, and of the group's next one (303).
pub(crate) fn time_span(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = QueryConsumeTimeSpanRequestHeader::decode(&request.fields)?;
    let topic = context
        .topics
        .get(header.topic)
        .ok_or_else(|| Refusal::no_topic_in("topic[{}] not exist, ", header.topic))?;
    let committed = context.offsets.of_topic(header.group, &topic.topic_name);
    let mut spans = Vec::new();
    for queue_id in 0..topic.queue_nums() {
        let time = |offset: i64| {
            let found = context.store.store_time(&topic.topic_name, queue_id, offset);
            Ok::<_, Refusal>(found.map_err(|error| internal(&error))?.unwrap_or(-1))
        };
        let (_, max) = ends(context, &topic.topic_name, queue_id);
        let earliest = context.store.earliest_time(&topic.topic_name, queue_id);
        let earliest = earliest.map_err(|error| internal(&error))?.unwrap_or(-1);
        let consumed = committed.get(&queue_id).copied().unwrap_or(0);
        let behind = if consumed < max {
            clock::now_ms() - time(consumed)?
        } else {
            0
        };
        spans.push(QueueTimeSpan {
            consume_time_stamp: if consumed > 0 {
                time(consumed - 1)?
            } else {
                earliest
            },
            delay_time: behind,
            max_time_stamp: if max > 0 { time(max - 1)? } else { -1 },
            message_queue: Some(MessageQueue::new(
                &topic.topic_name,
                &context.options.broker_name,
                queue_id,
            )),
            min_time_stamp: earliest,
        });
    }
    Ok(answer(&QueryConsumeTimeSpanBody {
        consume_time_span_set: spans,
    }))
}

/// Lists the topics that a group reads (343).
pub(crate) fn topics(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = QueryTopicsByConsumerRequestHeader::decode(&request.fields)?;
    Ok(topic_list(context.offsets.topics_of(header.group)))
}

/// Returns a group's subscription to a topic (345).
pub(crate) fn subscription(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = QuerySubscriptionByConsumerRequestHeader::decode(&request.fields)?;
    let topic = header.topic.unwrap_or_default();
    let data = context
        .clients
        .consumers(header.group, |group| group.subscriptions.get(topic).cloned());
    Ok(answer(&QuerySubscriptionResponseBody {
        group: Some(header.group.to_owned()),
        subscription_data: data.flatten().as_deref().map(subscription_data),
        topic: Some(topic.to_owned()),
    }))
}
