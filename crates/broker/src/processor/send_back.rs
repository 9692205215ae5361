//! Messages that a consumer sends back: 36 (Apache `AbstractSendMessageProcessor.consumerSendMsgBack`).
//!
//! ```text
//! tries left       -> %RETRY%group through the schedule topic, level 3 + tries (or as the client requests)
//! none left        -> %DLQ%group
//! ```
//! The new record keeps the original message's born fields, body, flags and properties. RETRY_TOPIC and
//! ORIGIN_MESSAGE_ID name its first origin.

use crate::admission;
use crate::context::{BrokerContext, NewGroup};
use crate::error::Refusal;
use crate::message::pending::{PendingMessage, copy_of};
use crate::message::properties::{self, names};
use crate::processor::Answer;
use crate::processor::auto_create::Missing;
use crate::processor::client::retry_flags;
use crate::processor::query::internal;
use crate::processor::send::VERSION_MAX_RECONSUME;
use crate::tables::topics::Topic;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::SubscriptionGroupConfig;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::ConsumerSendMsgBackRequestHeader;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::{Record, sys_flag};
use pyrmq_remoting::names::{SCHEDULE_TOPIC, dead_letter_topic, group_of_retry, is_retry, retry_topic};
use pyrmq_remoting::net::Peer;
use pyrmq_store::NewMessage;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a message that was sent back goes.
struct RetryTarget {
    topic: Arc<Topic>,
    queue_id: i32,
    /// The delay level; 0 for the dead-letter topic.
    level: i32,
}

impl RetryTarget {
    fn is_dead(&self) -> bool {
        self.level == 0
    }
}

/// Refuses a message whose topic differs from the one for which the user's rights were checked: the offset could name
/// any message, and the retry topic would reveal it.
fn check_origin(header: &ConsumerSendMsgBackRequestHeader<'_>, topic: &str) -> Result<(), Refusal> {
    let is_own_retry = group_of_retry(topic) == Some(header.group);
    if is_own_retry || (header.origin_topic == Some(topic) && !is_retry(topic)) {
        return Ok(());
    }
    Err(Refusal::new(
        response::NO_PERMISSION,
        "the message at this offset is not of the topic that the request names".to_owned(),
    ))
}

/// Sends a message back for a retry (36).
pub(crate) fn send_back(context: &BrokerContext, request: &Command, _peer: &Peer) -> Answer {
    let header = ConsumerSendMsgBackRequestHeader::decode(&request.fields)?;
    let group = context
        .group(header.group)
        .map_err(|refusal| refusal.with_group_words("subscription group not exist, {} ; ", header.group))?;
    context.check_writeable()?;
    if group.retry_queue_nums <= 0 {
        return Ok(Command::response(response::SUCCESS));
    }
    let bytes = context
        .store
        .record_at(header.offset)
        .map_err(|error| internal(&error))?;
    let bytes = bytes.ok_or_else(|| {
        Refusal::internal(format!(
            "look message by offset failed, {}: no message begins there",
            header.offset
        ))
    })?;
    let record = Record::decode(&bytes)?;
    check_visible(&record)?;
    if context.checks_rights() {
        check_origin(&header, record.topic)?;
    }
    let target = retry_target(context, request.version, &header, &group, record.reconsume_times)?;
    let old = record.properties.as_str()?;
    let pending = PendingMessage {
        message: NewMessage {
            store_host: context.store_host(),
            reconsume_times: record.reconsume_times.saturating_add(1),
            properties: retry_properties(&record, old, &target).into(),
            ..copy_of(&record, &target.topic.topic_name, target.queue_id, old)
        },
        delay_level: target.level,
    };
    let stored = pending
        .put_accepted(&context.store, context.delays.levels())
        .map_err(|error| Refusal::of_put(&error))?;
    count(context, &header, &target, record.topic, stored.bytes());
    Ok(Command::response(response::SUCCESS))
}

/// What a request (36) makes: its group, the retry topic of that, or the one of its dead letters.
pub(super) fn missing(context: &BrokerContext, request: &Command, _peer: &Peer) -> Option<Missing> {
    let header = ConsumerSendMsgBackRequestHeader::decode(&request.fields).ok()?;
    let known = context.groups.get(header.group);
    if known.is_none() && !context.may_create_group(header.group) {
        return None;
    }
    let exists = |topic: String| context.topics.get(&topic).is_some();
    let has_retries = exists(retry_topic(header.group));
    let has_dead_letters = exists(dead_letter_topic(header.group));
    if known.is_some() && has_retries && has_dead_letters {
        return None;
    }
    let (is_known, group) = (known.is_some(), known.unwrap_or_default());
    let record = context.store.record_at(header.offset).ok().flatten();
    // Without its message, or without retries in its group, it makes no topic.
    let tries = record.and_then(|record| Some(Record::decode(&record).ok()?.reconsume_times));
    let tries = tries.filter(|_| group.retry_queue_nums > 0);
    let is_last = |tries| is_last(request.version, &header, &group, tries);
    let new = NewGroup {
        retry_topic: (tries.is_some() && !has_retries).then(|| retry_flags(header.unit_mode)),
        dead_letters: !has_dead_letters && tries.is_some_and(is_last),
        ..NewGroup::new(header.group)
    };
    (!is_known || new.has_topics()).then(|| Missing::of(new))
}

/// Whether a message has no tries left.
fn is_last(
    version: i32,
    header: &ConsumerSendMsgBackRequestHeader<'_>,
    group: &SubscriptionGroupConfig,
    tries: i32,
) -> bool {
    let own_limit = header
        .max_reconsume_times
        .filter(|_| version >= VERSION_MAX_RECONSUME);
    tries >= own_limit.unwrap_or(group.retry_max_times) || header.delay_level < 0
}

/// Refuses half messages and messages of system topics: a half or a delayed message must not reach a consumer this way.
fn check_visible(record: &Record<'_>) -> Result<(), Refusal> {
    if !sys_flag::is_hidden(record.sys_flag) && admission::open_to_clients(record.topic).is_ok() {
        return Ok(());
    }
    let text = format!(
        "no consumer has messages of {}: it cannot be given back",
        record.topic
    );
    Err(Refusal::new(response::MESSAGE_ILLEGAL, text))
}

fn count(
    context: &BrokerContext,
    header: &ConsumerSendMsgBackRequestHeader<'_>,
    target: &RetryTarget,
    from: &str,
    bytes: u64,
) {
    let counter = if target.is_dead() {
        &context.stats.dead
    } else {
        &context.stats.sent_back
    };
    counter.fetch_add(1, Ordering::Relaxed);
    context.stats.count_put(1, bytes);
    if !target.is_dead() {
        context.topics.count_waiting(SCHEDULE_TOPIC, bytes);
    }
    target.topic.traffic.count_put(1, bytes);
    if let Some(from) = context.topics.get(from) {
        from.traffic
            .group_or_new(header.group)
            .count_send_back(target.is_dead(), bytes);
    }
}

/// The retry topic while retries are left, otherwise the dead-letter topic. The retry topic is created in either case,
/// because the group subscribes to it.
fn retry_target(
    context: &BrokerContext,
    version: i32,
    header: &ConsumerSendMsgBackRequestHeader<'_>,
    group: &SubscriptionGroupConfig,
    tries: i32,
) -> Result<RetryTarget, Refusal> {
    let flags = retry_flags(header.unit_mode);
    let retry = context.retry_topic(header.group, group.retry_queue_nums, flags)?;
    if !admission::is_writeable(retry.perm) {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "the topic[{}] sending message is forbidden: its perm",
                retry.topic_name
            ),
        ));
    }
    if is_last(version, header, group, tries) {
        return Ok(RetryTarget {
            topic: context.dead_letter_topic(header.group)?,
            queue_id: 0,
            level: 0,
        });
    }
    let requested_level = if header.delay_level == 0 {
        tries.saturating_add(3)
    } else {
        header.delay_level
    };
    Ok(RetryTarget {
        queue_id: context.choose_queue(&retry, -1)?,
        topic: retry,
        level: requested_level.max(1),
    })
}

/// The record's properties with those that a retry adds; each key once.
fn retry_properties(record: &Record<'_>, old: &str, target: &RetryTarget) -> String {
    let mut text = properties::copy(old, 256, |name| {
        matches!(
            name,
            names::RETRY_TOPIC | names::ORIGIN_MESSAGE_ID | names::DELAY | names::WAIT
        )
    });
    let offset_id = OffsetId {
        host: record.store_host,
        offset: record.physical_offset,
    }
    .to_string();
    let first_topic = properties::find(old, names::RETRY_TOPIC).unwrap_or(record.topic);
    let first_id = properties::find(old, names::ORIGIN_MESSAGE_ID).unwrap_or(&offset_id);
    properties::append(&mut text, names::RETRY_TOPIC, first_topic);
    properties::append(&mut text, names::ORIGIN_MESSAGE_ID, first_id);
    properties::append(&mut text, names::WAIT, "false");
    properties::append(&mut text, names::DELAY, &target.level.to_string());
    text
}
