//! Clients: heartbeat 34, unregister 35, 46, members 38, queue locks 41 and 42, connections 203, 204, 328 (Apache
//! `ClientManageProcessor`, `ConsumerManageProcessor`, `AdminBrokerProcessor`).

use crate::context::State;
use crate::error::Refusal;
use crate::json::{self, Json, Read};
use crate::processor::Answer;
use crate::tables::clients::{Client, ConsumeMode, ConsumerBeat, PRODUCER_GROUPS};
use crate::tables::locks::Queue;
use crate::tables::subscription::{Subscription, Tags};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    GetConsumerConnectionListRequestHeader, GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader, UnregisterClientRequestHeader,
};
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, clock};
use std::sync::Arc;

/// 34.
pub(crate) fn heartbeat(state: &State, request: &Command, peer: &Peer) -> Answer {
    let body = json::read_body(request)?;
    let client = client_of(&body, "clientID", request, peer)?;
    let fingerprint = body.number("heartbeatFingerprint").unwrap_or(0);
    let fingerprint = i32::try_from(fingerprint).unwrap_or(0);
    let is_short = fingerprint != 0 && body.flag("withoutSub").unwrap_or(false);
    let mut wants_subscriptions = fingerprint == 0;
    let unknown: Vec<&str> = body
        .list("consumerDataSet")
        .filter(|consumer| is_welcome(state, consumer) && !consumer.flag("unitMode").unwrap_or(false))
        .filter_map(|consumer| consumer.text("groupName"))
        .filter(|group| state.groups.get(group).is_none())
        .collect();
    if unknown.len() > 1 {
        state.make_groups(&unknown)?;
    }
    for consumer in body.list("consumerDataSet") {
        wants_subscriptions |= consumer_beat(state, consumer, &client, fingerprint, is_short)?;
    }
    for producer in body.list("producerDataSet") {
        if let Some(group) = producer.text("groupName")
            && !state.clients.beat_producer(group, &client)
        {
            let text = format!("there are {PRODUCER_GROUPS} producer groups, one more is not taken");
            return Err(Refusal::new(response::SYSTEM_BUSY, text));
        }
    }
    Ok(Command::response(response::SUCCESS)
        .with_field("IS_SUPPORT_HEART_BEAT_V2", "true")
        .with_field(
            "IS_SUB_CHANGE",
            if wants_subscriptions { "true" } else { "false" },
        ))
}

fn consume_type(consumer: &Json) -> &str {
    consumer.text("consumeType").unwrap_or("CONSUME_PASSIVELY")
}

fn is_welcome(state: &State, consumer: &Json) -> bool {
    !state.live.reject_pull_consumer_enable() || consume_type(consumer) != "CONSUME_ACTIVELY"
}

/// One consumer group of a heartbeat. True when the broker needs the subscriptions in full.
fn consumer_beat(
    state: &State,
    consumer: &Json,
    client: &Client,
    fingerprint: i32,
    is_short: bool,
) -> Result<bool, Refusal> {
    let Some(group) = consumer.text("groupName").filter(|group| !group.is_empty()) else {
        return Ok(false);
    };
    if !is_welcome(state, consumer) {
        return Ok(false);
    }
    // An unknown group that may not be made is passed over in silence, as Apache does.
    let Ok(config) = state.group(group) else {
        return Ok(false);
    };
    let unit = if consumer.flag("unitMode").unwrap_or(false) {
        2
    } else {
        0
    };
    state.retry_topic(group, config.retry_queue_nums, unit)?;
    let subscriptions: Vec<_> = consumer
        .list("subscriptionDataSet")
        .filter_map(subscription_of)
        .collect();
    let change = state.clients.beat_consumer(
        ConsumerBeat {
            group: group.to_owned(),
            consume_mode: ConsumeMode {
                consume_type: consume_type(consumer).to_owned(),
                message_model: consumer.text("messageModel").unwrap_or("CLUSTERING").to_owned(),
                consume_from_where: consumer
                    .text("consumeFromWhere")
                    .unwrap_or("CONSUME_FROM_LAST_OFFSET")
                    .to_owned(),
            },
            subscriptions: (!is_short).then_some(subscriptions),
            fingerprint,
        },
        client,
    );
    if change.changed {
        tracing::info!(group, client = client.id, peer = %client.peer.remote(), "a consumer group changed");
        state.notify(group, &change.notify);
    }
    Ok(change.wants_subscriptions)
}

/// Apache `SubscriptionData`. The codes are made of the tags, which also serves clients that send none.
fn subscription_of(data: &Json) -> Option<Subscription> {
    let topic = data.text("topic")?;
    let expression = data.text("subString");
    let version = data.number("subVersion").unwrap_or(0);
    let mut subscription = Subscription::parse(topic, expression, data.text("expressionType"), version)?;
    subscription.class_filter = data.flag("classFilterMode").unwrap_or(false);
    if subscription.class_filter {
        subscription.filter = Tags::All;
    }
    Some(subscription)
}

fn client_of(body: &Json, key: &str, request: &Command, peer: &Peer) -> Result<Client, Refusal> {
    let id = body
        .text(key)
        .ok_or_else(|| Refusal::new(response::INVALID_PARAMETER, format!("the body has no {key}")))?;
    Ok(Client {
        id: id.to_owned(),
        peer: peer.clone(),
        language: request.language,
        version: request.version,
        seen_ms: clock::now_ms(),
    })
}

/// 35.
pub(crate) fn unregister(state: &State, request: &Command, peer: &Peer) -> Answer {
    let header = UnregisterClientRequestHeader::decode(&request.fields)?;
    if let Some(group) = header.producer_group {
        state.clients.leave_producers(group, peer.id());
    }
    if let Some(group) = header.consumer_group {
        let members = state.clients.leave_consumers(group, peer.id());
        state.notify(group, &members);
    }
    Ok(Command::response(response::SUCCESS))
}

/// 46.
pub(crate) fn check_config(_state: &State, request: &Command, _peer: &Peer) -> Answer {
    let body = json::read_body(request)?;
    if let Some(data) = body.get("subscriptionData") {
        let kind = data.text("expressionType").unwrap_or("TAG");
        if !kind.is_empty() && kind != "TAG" {
            return Err(Refusal::internal(format!(
                "the broker does not filter by {kind}, only by TAG; enablePropertyFilter is off"
            )));
        }
    }
    Ok(Command::response(response::SUCCESS))
}

/// 38.
pub(crate) fn members(state: &State, request: &Command, _peer: &Peer) -> Answer {
    let header = GetConsumerListByGroupRequestHeader::decode(&request.fields)?;
    let ids = state.clients.consumers(
        header.consumer_group,
        crate::tables::clients::Consumers::client_ids,
    );
    let ids = ids
        .filter(|ids| !ids.is_empty())
        .ok_or_else(|| Refusal::internal(format!("no consumer for this group, {}", header.consumer_group)))?;
    Ok(json::answer(&json::object([(
        "consumerIdList",
        json::texts(&ids),
    )])))
}

/// 41.
pub(crate) fn lock(state: &State, request: &Command, _peer: &Peer) -> Answer {
    let body = json::read_body(request)?;
    let (group, client) = group_and_client(&body)?;
    let mut asked = queues(&body);
    // What is kept of other names would never be given up, and nothing would bound it.
    asked.retain(|queue| is_here(state, queue));
    state.group(group)?;
    let won = state.locks.lock(group, client, asked, clock::now_ms());
    let won = won
        .iter()
        .map(|queue| json::queue(&queue.topic, &queue.broker, queue.id));
    Ok(json::answer(&json::object([("lockOKMQSet", json::list(won))])))
}

/// Whether this broker has the queue.
fn is_here(state: &State, queue: &Queue) -> bool {
    let topic = state.topics.get(&queue.topic);
    queue.broker == state.options.broker_name
        && topic.is_some_and(|topic| (0..topic.queue_nums()).contains(&queue.id))
}

/// 42.
pub(crate) fn unlock(state: &State, request: &Command, _peer: &Peer) -> Answer {
    let body = json::read_body(request)?;
    let (group, client) = group_and_client(&body)?;
    state.locks.unlock(group, client, &queues(&body));
    Ok(Command::response(response::SUCCESS))
}

fn group_and_client(body: &Json) -> Result<(&str, &str), Refusal> {
    let missing = || {
        Refusal::new(
            response::INVALID_PARAMETER,
            "the body needs consumerGroup and clientId",
        )
    };
    Ok((
        body.text("consumerGroup").ok_or_else(missing)?,
        body.text("clientId").ok_or_else(missing)?,
    ))
}

fn queues(body: &Json) -> Vec<Queue> {
    let queue = |queue: &Json| {
        Some(Queue {
            topic: queue.text("topic")?.to_owned(),
            broker: queue.text("brokerName")?.to_owned(),
            id: i32::try_from(queue.number("queueId")?).ok()?,
        })
    };
    body.list("mqSet").filter_map(queue).collect()
}

/// 203.
pub(crate) fn consumer_connections(state: &State, request: &Command, _peer: &Peer) -> Answer {
    let header = GetConsumerConnectionListRequestHeader::decode(&request.fields)?;
    let body = state.clients.consumers(header.consumer_group, |group| {
        let subscriptions = group.subscriptions.iter();
        json::object([
            (
                "connectionSet",
                json::list(group.members.values().map(connection)),
            ),
            (
                "consumeFromWhere",
                json::text(&group.consume_mode.consume_from_where),
            ),
            ("consumeType", json::text(&group.consume_mode.consume_type)),
            ("messageModel", json::text(&group.consume_mode.message_model)),
            (
                "subscriptionTable",
                json::table(subscriptions.map(|(topic, data)| (topic.clone(), subscription_json(data)))),
            ),
        ])
    });
    body.map(|body| json::answer(&body)).ok_or_else(|| {
        Refusal::new(
            response::CONSUMER_NOT_ONLINE,
            format!(
                "the consumer group[{}] not online: none of its consumers is connected to this broker",
                header.consumer_group
            ),
        )
    })
}

/// 204.
pub(crate) fn producer_connections(state: &State, request: &Command, _peer: &Peer) -> Answer {
    let header = GetProducerConnectionListRequestHeader::decode(&request.fields)?;
    let members = state.clients.producers(header.producer_group);
    if members.is_empty() {
        return Err(Refusal::internal(format!(
            "the producer group[{}] not exist: none of its producers is connected to this broker",
            header.producer_group
        )));
    }
    let connections = json::list(members.iter().map(connection));
    Ok(json::answer(&json::object([("connectionSet", connections)])))
}

/// 328.
pub(crate) fn all_producers(state: &State, _request: &Command, _peer: &Peer) -> Answer {
    let info = |client: &Client| {
        json::object([
            ("clientId", json::text(&client.id)),
            ("language", json::text(client.language.name())),
            ("lastUpdateTimestamp", json::number(client.seen_ms)),
            ("remoteIP", json::text(&client.peer.remote().to_string())),
            ("version", json::number(i64::from(client.version))),
        ])
    };
    let groups = state.clients.all_producers().into_iter();
    let groups = groups.map(|(group, members)| (group, json::list(members.iter().map(info))));
    Ok(json::answer(&json::object([("data", json::table(groups))])))
}

fn connection(client: &Client) -> Json {
    json::object([
        ("clientAddr", json::text(&client.peer.remote().to_string())),
        ("clientId", json::text(&client.id)),
        ("language", json::text(client.language.name())),
        ("version", json::number(i64::from(client.version))),
    ])
}

/// Apache `SubscriptionData`.
pub(crate) fn subscription_json(subscription: &Arc<Subscription>) -> Json {
    json::object([
        ("classFilterMode", json::flag(subscription.class_filter)),
        (
            "codeSet",
            json::list(
                subscription
                    .codes()
                    .iter()
                    .map(|code| json::number(i64::from(*code))),
            ),
        ),
        ("expressionType", json::text(&subscription.expression_type)),
        ("subString", json::text(&subscription.expression)),
        ("subVersion", json::number(subscription.version)),
        ("tagsSet", json::texts(&subscription.tags)),
        ("topic", json::text(&subscription.topic)),
    ])
}
