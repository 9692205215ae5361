//! Clients: heartbeat 34, unregister 35, 46, members 38, queue locks 41 and 42, connections 203, 204, 328 (Apache
//! `ClientManageProcessor`, `ConsumerManageProcessor`, `AdminBrokerProcessor`).

use crate::admission;
use crate::context::{BrokerContext, NewGroup};
use crate::error::Refusal;
use crate::processor::auto_create::Missing;
use crate::processor::{Answer, answer, read_body};
use crate::tables::clients::{Client, ConsumeMode, ConsumerHeartbeat, TooMany};
use crate::tables::conflicts::Conflicts;
use crate::tables::subscription::{MessageFilter, Subscription};
use pyrmq_remoting::body::{
    Body, CheckClientRequestBody, Connection, ConsumeType, ConsumerConnection, ConsumerData,
    GetConsumerListByGroupResponseBody, HeartbeatData, LockBatchRequestBody, LockBatchResponseBody,
    MessageQueue, ProducerConnection, ProducerInfo, ProducerTableInfo, SubscriptionData,
    UnlockBatchRequestBody,
};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    GetConsumerConnectionListRequestHeader, GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader, UnregisterClientRequestHeader,
};
use pyrmq_remoting::names;
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, clock};
use std::sync::atomic::Ordering;

/// Longest client id, in bytes.
const MAX_ID_BYTES: usize = 1024;
/// Longest name of a producer group, in bytes (Apache `Validators.CHARACTER_MAX_LENGTH`).
const MAX_GROUP_BYTES: usize = 255;

/// Maximum number of topics to which a heartbeat subscribes one group: each is looked up while pulls wait.
const SUBSCRIPTIONS: usize = 4096;

/// Serves a heartbeat (34).
pub(crate) fn heartbeat(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let answer = apply_heartbeat(context, request, peer);
    // The heartbeat may have waited for its groups, and its connection may have ended meanwhile.
    if peer.is_closed() {
        forget(context, peer);
    }
    answer
}

/// The groups that a heartbeat creates, with their retry topics.
pub(super) fn missing_of_heartbeat(
    context: &BrokerContext,
    request: &Command,
    _peer: &Peer,
) -> Option<Missing> {
    // One that cannot be read is refused by its row.
    let body = HeartbeatData::decode(request.body.as_deref()?).ok()?;
    check_heartbeat(&body).ok()?;
    let mut groups = Vec::new();
    for consumer in body.consumer_data_set {
        let name = &consumer.group_name;
        let creates = if context.groups.contains(name) {
            admission::group_name(name).is_ok() && context.topics.get(&names::retry_topic(name)).is_none()
        } else {
            context.may_create_group(name)
        };
        if creates && is_welcome(context, &consumer) {
            groups.push(NewGroup {
                retry_topic: Some(retry_flags(consumer.unit_mode)),
                ..NewGroup::new(&consumer.group_name)
            });
        }
    }
    (!groups.is_empty()).then(|| Missing {
        groups,
        ..Missing::default()
    })
}

/// Removes a client whose connection has ended from all groups.
pub(crate) fn forget(context: &BrokerContext, peer: &Peer) {
    let gone = peer.id();
    context.clients.release_ids(gone);
    for (group, members) in context.clients.sweep(|client| client.peer.id() == gone) {
        context.notify(&group, &members);
    }
}

fn apply_heartbeat(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let body: HeartbeatData = read_body(request)?;
    check_heartbeat(&body)?;
    let client = Client {
        id: body.client_id,
        peer: peer.clone(),
        user: context.user_of(request),
        language: request.language,
        version: request.version,
        seen_ms: clock::now_ms(),
    };
    claim_id(context, &client)?;
    let fingerprint = body.heartbeat_fingerprint;
    let is_short = fingerprint != 0 && body.without_sub;
    let mut wants_subscriptions = fingerprint == 0;
    for consumer in &body.consumer_data_set {
        wants_subscriptions |= register_consumer(context, consumer, &client, fingerprint, is_short)?;
    }
    let named = body.producer_data_set.iter();
    for producer in named.filter(|producer| !producer.group_name.is_empty()) {
        let group = &producer.group_name;
        check_length("producer group", group, MAX_GROUP_BYTES)?;
        context
            .clients
            .register_producer(group, &client)
            .map_err(too_many)?;
    }
    Ok(Command::response(response::SUCCESS)
        .with_field("IS_SUPPORT_HEART_BEAT_V2", "true")
        .with_field(
            "IS_SUB_CHANGE",
            if wants_subscriptions { "true" } else { "false" },
        ))
}

/// Refuses a heartbeat without a client, or one that would fill the tables.
fn check_heartbeat(body: &HeartbeatData) -> Result<(), Refusal> {
    let invalid = |text: String| Err(Refusal::new(response::INVALID_PARAMETER, text));
    if body.client_id.is_empty() {
        return invalid("the body has no clientID".to_owned());
    }
    check_length("clientID", &body.client_id, MAX_ID_BYTES)?;
    for consumer in &body.consumer_data_set {
        let count = consumer.subscription_data_set.len();
        if count > SUBSCRIPTIONS {
            let group = names::shortened(&consumer.group_name);
            return invalid(format!(
                "the heartbeat subscribes the group {group} to {count} topics, allowed are {SUBSCRIPTIONS}: use \
                 several groups"
            ));
        }
    }
    Ok(())
}

/// Refuses a long name: the table of clients keeps it as long as the connection lives.
fn check_length(what: &str, name: &str, limit: usize) -> Result<(), Refusal> {
    if name.len() <= limit {
        return Ok(());
    }
    let text = format!("the {what} has {} bytes, it may have {limit}", name.len());
    Err(Refusal::new(response::INVALID_PARAMETER, text))
}

fn too_many(what: TooMany) -> Refusal {
    Refusal::new(response::SYSTEM_BUSY, what.to_string())
}

/// Binds the client id to the user that had it first, while rights are checked: answers to requests go to whoever has
/// the id that they name.
fn claim_id(context: &BrokerContext, client: &Client) -> Result<(), Refusal> {
    let Some(user) = &client.user else {
        return Ok(());
    };
    if context
        .clients
        .claim_id(&client.id, user, client.peer.id())
        .map_err(too_many)?
    {
        return Ok(());
    }
    let text = "the clientID belongs to another user's client, which is connected: give each client its own";
    Err(Refusal::new(response::NO_PERMISSION, text))
}

/// The flags of a group's retry topic (Apache `TopicSysFlag`).
pub(super) fn retry_flags(unit_mode: bool) -> i32 {
    if unit_mode { 2 } else { 0 }
}

fn is_welcome(context: &BrokerContext, consumer: &ConsumerData) -> bool {
    !context.live.reject_pull_consumer_enable() || consumer.consume_type != ConsumeType::Actively
}

/// Processes one consumer group of a heartbeat. True: the broker needs its subscriptions in full.
fn register_consumer(
    context: &BrokerContext,
    consumer: &ConsumerData,
    client: &Client,
    fingerprint: i32,
    is_short: bool,
) -> Result<bool, Refusal> {
    let group = &consumer.group_name;
    if group.is_empty() || !is_welcome(context, consumer) {
        return Ok(false);
    }
    // Skipped silently, as in Apache: an unknown group that may not be created.
    let Ok(config) = context.group(group) else {
        return Ok(false);
    };
    let flags = retry_flags(consumer.unit_mode);
    context.retry_topic(group, config.retry_queue_nums, flags)?;
    let subscriptions = consumer.subscription_data_set.iter().filter_map(subscription_of);
    let change = context.clients.register_consumer(
        ConsumerHeartbeat {
            group: group.clone(),
            consume_mode: ConsumeMode {
                consume_type: consumer.consume_type,
                message_model: consumer.message_model,
                consume_from_where: consumer.consume_from_where,
            },
            subscriptions: (!is_short).then(|| subscriptions.collect()),
            fingerprint,
        },
        client,
    );
    warn_of(&change.conflicts, context, group);
    if change.changed {
        tracing::info!(group, client = client.id, peer = %client.peer.remote(), "a consumer group changed");
        context.notify(group, &change.notify);
    }
    Ok(change.wants_subscriptions)
}

/// Counts the topics in which a member differs from others of its group, and warns of the first ones.
fn warn_of(conflicts: &Conflicts, context: &BrokerContext, group: &str) {
    let count = u64::try_from(conflicts.count).unwrap_or(u64::MAX);
    context
        .stats
        .subscription_conflicts
        .fetch_add(count, Ordering::Relaxed);
    let Some(first) = conflicts.named.first().filter(|_| conflicts.is_due) else {
        return;
    };
    let topics: Vec<&str> = (conflicts.named.iter()).map(|one| one.topic.as_str()).collect();
    let ((client, subscription), (other_client, other_subscription)) = (&first.one, &first.other);
    tracing::warn!(
        group,
        topics = topics.join(", "),
        more_topics = conflicts.count - topics.len(),
        client,
        subscription,
        other_client,
        other_subscription,
        "members of a group subscribe to different messages: give all the same topics and filters"
    );
}

/// Builds a subscription. Its codes are computed from the tags, since some clients send none.
fn subscription_of(data: &SubscriptionData) -> Option<Subscription> {
    let mut subscription = Subscription::parse(
        Some(data.topic.as_str()).filter(|topic| !topic.is_empty())?,
        Some(&data.sub_string),
        Some(&data.expression_type),
        data.sub_version,
    )?;
    subscription.class_filter = data.class_filter_mode;
    if subscription.class_filter {
        subscription.filter = MessageFilter::All;
    }
    Some(subscription)
}

/// Unregisters a client from its groups (35).
pub(crate) fn unregister(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let header = UnregisterClientRequestHeader::decode(&request.fields)?;
    if let Some(group) = header.producer_group {
        context.clients.leave_producers(group, peer.id());
    }
    if let Some(group) = header.consumer_group {
        let members = context.clients.leave_consumers(group, peer.id());
        context.notify(group, &members);
    }
    Ok(Command::response(response::SUCCESS))
}

/// Checks a subscription before a consumer starts with it (46).
pub(crate) fn check_config(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let body: CheckClientRequestBody = read_body(request)?;
    let Some(data) = body.subscription_data else {
        return Ok(Command::response(response::SUCCESS));
    };
    let kind = Some(data.expression_type.as_str());
    let Some(subscription) = Subscription::parse(&data.topic, Some(&data.sub_string), kind, 0) else {
        return Ok(Command::response(response::SUCCESS));
    };
    if !subscription.is_tag() && !context.live.enable_property_filter() {
        return Err(Refusal::no_property_filter(&subscription.expression_type));
    }
    if let MessageFilter::Invalid(cause) = &subscription.filter {
        return Err(Refusal::new(response::SUBSCRIPTION_PARSE_FAILED, cause.as_ref()));
    }
    Ok(Command::response(response::SUCCESS))
}

/// Lists the client ids of a consumer group (38).
pub(crate) fn members(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetConsumerListByGroupRequestHeader::decode(&request.fields)?;
    let ids = context.clients.consumers(
        header.consumer_group,
        crate::tables::clients::Consumers::client_ids,
    );
    let ids = ids
        .filter(|ids| !ids.is_empty())
        .ok_or_else(|| Refusal::internal(format!("no consumer for this group, {}", header.consumer_group)))?;
    Ok(answer(&GetConsumerListByGroupResponseBody {
        consumer_id_list: ids,
    }))
}

/// Locks queues for an orderly consumer (41).
pub(crate) fn lock(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let body: LockBatchRequestBody = read_body(request)?;
    require_names(&body.consumer_group, &body.client_id)?;
    // A lock on a queue that does not exist would never be released, and their number would be unbounded.
    let own_queues = body
        .mq_set
        .into_iter()
        .filter(|queue| is_here(context, queue))
        .collect();
    context.group(&body.consumer_group)?;
    let group = body.consumer_group.as_str();
    let is_connected = |client: &str| context.clients.has_consumer(group, client);
    let won = context
        .locks
        .lock(group, &body.client_id, own_queues, clock::now_ms(), is_connected);
    Ok(answer(&LockBatchResponseBody {
        locked: won.into_iter().collect(),
    }))
}

/// The group that locks make.
pub(super) fn missing_of_locks(context: &BrokerContext, request: &Command, _peer: &Peer) -> Option<Missing> {
    let body = LockBatchRequestBody::decode(request.body.as_deref()?).ok()?;
    require_names(&body.consumer_group, &body.client_id).ok()?;
    Missing::group(context, &body.consumer_group)
}

/// Whether the queue exists on this broker.
fn is_here(context: &BrokerContext, queue: &MessageQueue) -> bool {
    let topic = context.topics.get(&queue.topic);
    queue.broker_name == context.options.broker_name
        && topic.is_some_and(|topic| (0..topic.queue_nums()).contains(&queue.queue_id))
}

/// Unlocks queues of an orderly consumer (42).
pub(crate) fn unlock(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let body: UnlockBatchRequestBody = read_body(request)?;
    require_names(&body.consumer_group, &body.client_id)?;
    let queues: Vec<MessageQueue> = body.mq_set.into_iter().collect();
    context
        .locks
        .unlock(&body.consumer_group, &body.client_id, &queues);
    Ok(Command::response(response::SUCCESS))
}

fn require_names(group: &str, client: &str) -> Result<(), Refusal> {
    if group.is_empty() || client.is_empty() {
        let text = "the body needs consumerGroup and clientId";
        return Err(Refusal::new(response::INVALID_PARAMETER, text));
    }
    Ok(())
}

/// Lists the connections of a consumer group (203).
pub(crate) fn consumer_connections(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetConsumerConnectionListRequestHeader::decode(&request.fields)?;
    let body = context.clients.consumers(header.consumer_group, |group| {
        let subscriptions = group.subscriptions.iter();
        ConsumerConnection {
            connection_set: group.members.values().map(connection).collect(),
            consume_from_where: group.consume_mode.consume_from_where,
            consume_type: group.consume_mode.consume_type,
            message_model: group.consume_mode.message_model,
            subscription_table: subscriptions
                .map(|(topic, subscription)| (topic.clone(), subscription_data(subscription)))
                .collect(),
        }
    });
    body.map(|body| answer(&body)).ok_or_else(|| {
        Refusal::new(
            response::CONSUMER_NOT_ONLINE,
            format!(
                "the consumer group[{}] not online: none of its consumers is connected to this broker",
                header.consumer_group
            ),
        )
    })
}

/// Lists the connections of a producer group (204).
pub(crate) fn producer_connections(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = GetProducerConnectionListRequestHeader::decode(&request.fields)?;
    let members = context.clients.producers(header.producer_group);
    if members.is_empty() {
        return Err(Refusal::internal(format!(
            "the producer group[{}] not exist: none of its producers is connected to this broker",
            header.producer_group
        )));
    }
    Ok(answer(&ProducerConnection {
        connection_set: members.iter().map(connection).collect(),
    }))
}

/// Lists the connections of all producer groups (328).
pub(crate) fn all_producers(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    let info = |client: &Client| ProducerInfo {
        client_id: client.id.clone(),
        language: client.language,
        last_update_timestamp: client.seen_ms,
        remote_ip: client.peer.remote().to_string(),
        version: client.version,
    };
    let groups = context.clients.all_producers().into_iter();
    Ok(answer(&ProducerTableInfo {
        data: groups
            .map(|(group, members)| (group, members.iter().map(info).collect()))
            .collect(),
    }))
}

fn connection(client: &Client) -> Connection {
    Connection {
        client_addr: client.peer.remote().to_string(),
        client_id: client.id.clone(),
        language: client.language,
        version: client.version,
    }
}

/// A subscription in its wire form.
pub(crate) fn subscription_data(subscription: &Subscription) -> SubscriptionData {
    SubscriptionData {
        class_filter_mode: subscription.class_filter,
        code_set: subscription.codes().iter().copied().collect(),
        expression_type: subscription.expression_type.clone(),
        filter_class_source: None,
        sub_string: subscription.expression.clone(),
        sub_version: subscription.version,
        tags_set: subscription.tags.iter().cloned().collect(),
        topic: subscription.topic.clone(),
    }
}
