//! Consumer offsets: 14, 15 (Apache `ConsumerManageProcessor`), 43, 45, 308, copies by 314 and resets by 222
//! (Apache `AdminBrokerProcessor`).

use crate::admission;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::auto_create::Missing;
use crate::processor::consumer_status::reset_by_members;
use crate::processor::query::internal;
use crate::processor::{Answer, answer};
use crate::tables::topics::Topic;
use pyrmq_remoting::body::{MessageQueue, QueryCorrectionOffsetBody, ResetOffsetBody, TopicConfig};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    CloneGroupOffsetRequestHeader, QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader,
    QueryCorrectionOffsetHeader, ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader,
};
use pyrmq_remoting::names;
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, WireError};
use pyrmq_store::Boundary;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns a group's offset of a queue (14). A group without one starts at 0 while the queue's first message can still
/// be read cheaply, so a new group misses nothing of a new topic.
pub(crate) fn query(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = QueryConsumerOffsetRequestHeader::decode(&request.fields)?;
    if let Some(committed) = context
        .offsets
        .get(header.consumer_group, header.topic, header.queue_id)
    {
        return Ok(found(committed));
    }
    let may_be_zero = header.set_zero_if_not_found != Some(false);
    if may_be_zero && is_read_from_start(context, header.topic, header.queue_id) {
        return Ok(found(0));
    }
    Err(Refusal::new(
        response::QUERY_NOT_FOUND,
        format!(
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first: the group {} has no offset of this queue",
            header.consumer_group
        ),
    ))
}

fn found(offset: i64) -> Command {
    Command::response(response::SUCCESS).with_header(&QueryConsumerOffsetResponseHeader { offset })
}

/// Whether a new group reads a queue from its start. Apache asks whether message 0 is still in memory
/// (`checkInMemByConsumeOffset`), that is, within 40 % of RAM of the log's end. Here the queue must begin at 0 and its
/// messages lie within a fixed distance of the log's end.
pub(crate) fn is_read_from_start(context: &BrokerContext, topic: &str, queue_id: i32) -> bool {
    if context.topics.get(topic).is_none() || context.store.min_offset(topic, queue_id) > 0 {
        return false;
    }
    let health = context.store.health();
    health.max_physical_offset - health.min_physical_offset <= context.new_group_from_start_bytes
}

/// The group that a commit (15) creates; `None` if it is known, or if the commit is refused anyway.
pub(super) fn missing(context: &BrokerContext, request: &Command, _peer: &Peer) -> Option<Missing> {
    let group = Missing::group(context, request.fields.get("consumerGroup")?)?;
    checked(context, request).is_ok().then_some(group)
}

/// Reads a commit and refuses a wrong one, before its group is looked up.
fn checked<'r>(
    context: &BrokerContext,
    request: &'r Command,
) -> Result<(UpdateConsumerOffsetRequestHeader<'r>, Arc<Topic>), Refusal> {
    let header = UpdateConsumerOffsetRequestHeader::decode(&request.fields).map_err(nothing_to_commit)?;
    let known = context
        .topics
        .get(header.topic)
        .ok_or_else(|| Refusal::no_topic_in("Topic {} not exist! ", header.topic))?;
    admission::open_to_commits(header.consumer_group)?;
    in_topic(&known, header.queue_id)?;
    if header.commit_offset < 0 {
        let text = format!(
            "commitOffset is {}, it must not be negative",
            header.commit_offset
        );
        return Err(Refusal::new(response::INVALID_PARAMETER, text));
    }
    Ok((header, known))
}

/// Commits an offset (15).
pub(crate) fn update(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let (header, known) = checked(context, request)?;
    let (group, topic, queue_id) = (header.consumer_group, header.topic, header.queue_id);
    // Last, since it may create the group.
    context
        .group(group)
        .map_err(|refusal| refusal.with_group_words("Group {} not exist! ", group))?;
    let response = Command::response(response::SUCCESS);
    if context.options.use_server_side_reset_offset && context.offsets.has_reset(group, topic, queue_id) {
        return Ok(Command {
            // Consumers distinguish it from an accepted commit by the beginning of Apache's words.
            remark: Some("Offset has been previously reset: this commit is ignored".to_owned()),
            ..response
        });
    }
    context.commit(group, &known, queue_id, header.commit_offset);
    Ok(response)
}

/// A refusal in Apache's words if the missing number is one of the two that Apache checks.
fn nothing_to_commit(error: WireError) -> Refusal {
    let words = match &error {
        WireError::MissingField(field) | WireError::BadField { field, .. } => match *field {
            "queueId" => "QueueId is null",
            "commitOffset" => "Offset is null",
            _ => return error.into(),
        },
        _ => return error.into(),
    };
    Refusal::new(response::INVALID_PARAMETER, format!("{words}, {error}"))
}

/// Refuses a queue that the topic does not have: its offset would never be read, and their number would be unbounded.
fn in_topic(topic: &TopicConfig, queue_id: i32) -> Result<(), Refusal> {
    let count = topic.queue_nums();
    if (0..count).contains(&queue_id) {
        return Ok(());
    }
    let text = format!(
        "queueId {queue_id} is out of range, the topic {} has {count} queues",
        topic.topic_name
    );
    Err(Refusal::new(response::INVALID_PARAMETER, text))
}

/// Returns all offsets (43).
pub(crate) fn all(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    Ok(answer(&context.offsets_body()))
}

/// Returns the progress of all delay levels (45).
pub(crate) fn all_delays(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    Ok(answer(&context.delays.to_body()))
}

/// Returns each queue's smallest offset among all groups except some (308), or the largest number where the compared
/// group is not ahead of it.
pub(crate) fn correction(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = QueryCorrectionOffsetHeader::decode(&request.fields)?;
    let topic = header.topic;
    let without: Vec<&str> = header
        .filter_groups
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .collect();
    let mut correction_offsets = context.offsets.smallest(topic, &without);
    correction_offsets.retain(|queue_id, offset| *offset >= context.store.min_offset(topic, *queue_id));
    for (queue_id, compared) in context.offsets.of_topic(header.compare_group, topic) {
        if let Some(offset) = correction_offsets.get_mut(&queue_id)
            && *offset > compared
        {
            *offset = i64::MAX;
        }
    }
    Ok(answer(&QueryCorrectionOffsetBody { correction_offsets }))
}

/// Copies the offsets of one group to another, for one topic or for all (314).
pub(crate) fn copy(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let header = CloneGroupOffsetRequestHeader::decode(&request.fields)?;
    let (from, to) = (header.src_group, header.dest_group);
    admission::open_to_commits(to)?;
    let topics = match header.topic.map(str::trim) {
        // One group's retries do not concern another group.
        None | Some("") => {
            let topics = context.offsets.topics_of(from).into_iter();
            topics.filter(|topic| !names::is_retry(topic)).collect()
        }
        Some(topic) => vec![topic.to_owned()],
    };
    // While members are connected, only the topics that they subscribe to count.
    let subscribed = context.clients.consumers(from, |members| {
        members.subscriptions.keys().cloned().collect::<BTreeSet<_>>()
    });
    let subscribed = subscribed.filter(|topics| !header.offline && !topics.is_empty());
    // Last, since it may create the group.
    context
        .group(to)
        .map_err(|refusal| refusal.with_group_words("Group {} not exist! ", to))?;
    let is_read = |topic: &String| subscribed.as_ref().is_none_or(|topics| topics.contains(topic));
    let existing = |topic: &&String| context.topics.get(topic).is_some() && is_read(topic);
    let copied = topics.iter().filter(existing);
    let copied = copied.filter(|topic| {
        let is_copied = context.offsets.copy(from, to, topic);
        if is_copied {
            context
                .offsets
                .record_change(to, topic, context.store.end_position());
        }
        is_copied
    });
    let copied = copied.count();
    context.persist_offsets().map_err(|error| internal(&error))?;
    tracing::info!(from, to, topics = copied, peer = %peer.remote(), "copied a consumer group's offsets");
    Ok(Command::response(response::SUCCESS))
}

/// Resets a group's offsets, which take effect with its next pulls (222).
pub(crate) fn reset(context: &BrokerContext, request: &Command, peer: &Peer) -> Answer {
    let header = ResetOffsetRequestHeader::decode(&request.fields)?;
    if !context.options.use_server_side_reset_offset {
        return reset_by_members(context, &header, request.language);
    }
    let (group, name) = (header.group, header.topic);
    let topic = context
        .topics
        .get(name)
        .ok_or_else(|| Refusal::no_topic_in("Topic {} does not exist, ", name))?;
    if context.groups.get(group).is_none() {
        return Err(Refusal::no_group_in("Group {} does not exist, ", group));
    }
    admission::open_to_commits(group)?;
    let one = header.queue_id.filter(|queue| *queue >= 0);
    if let Some(queue) = one {
        in_topic(&topic, queue)?;
    }
    let queues = one.map_or(0..topic.read_queue_nums, |queue| queue..queue.saturating_add(1));
    let mut found = Vec::new();
    for queue_id in queues {
        let requested = header.offset.filter(|offset| *offset >= 0 && one.is_some());
        let target = match requested {
            Some(offset) => in_range(context, name, queue_id, offset)?,
            None if header.timestamp < 0 => context.store.max_offset(name, queue_id),
            None => context
                .store
                .offset_by_time(name, queue_id, header.timestamp, Boundary::Lower)
                .map_err(|error| internal(&error))?,
        };
        found.push((queue_id, target));
    }
    if found.is_empty() {
        return Err(Refusal::internal(format!(
            "No queues to reset. The topic {name} has none"
        )));
    }
    for (queue_id, target) in &found {
        // A pop in progress must not commit what it took over the new offset.
        let _lock = context.pops.lock(name, group, *queue_id);
        context.offsets.reset(group, name, *queue_id, *target);
        context.pops.orders.clear((name, group, *queue_id));
    }
    context
        .offsets
        .record_change(group, name, context.store.end_position());
    context.persist_orders().map_err(|error| internal(&error))?;
    context.persist_offsets().map_err(|error| internal(&error))?;
    // Waiting pulls would keep the old offset until their deadline.
    context.long_polling.release_all(Some(name));
    context.pops.held.release_topic(name);
    tracing::info!(group, topic = name, peer = %peer.remote(), queues = found.len(), "reset consumer offsets");
    let queue = |queue_id: i32| MessageQueue::new(name, &context.options.broker_name, queue_id);
    let offsets = found
        .into_iter()
        .map(|(queue_id, target)| (queue(queue_id), target));
    Ok(answer(&ResetOffsetBody {
        offset_table: offsets.collect(),
    }))
}

fn in_range(context: &BrokerContext, topic: &str, queue_id: i32, offset: i64) -> Result<i64, Refusal> {
    let (min, max) = (
        context.store.min_offset(topic, queue_id),
        context.store.max_offset(topic, queue_id),
    );
    if offset < min || offset > max + 1 {
        return Err(Refusal::internal(format!(
            "Target offset {offset} not in consume queue range [{min}-{max}]"
        )));
    }
    Ok(offset)
}
