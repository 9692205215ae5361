//! A consumer gives a message back: 36 (Apache `AbstractSendMessageProcessor.consumerSendMsgBack`).
//!
//! ```text
//! tries left       -> %RETRY%group by way of the schedule topic, level 3 + tries (or as asked)
//! none left        -> %DLQ%group
//! ```
//! The new record keeps the first message's born fields, body, flags and properties; RETRY_TOPIC and ORIGIN_MESSAGE_ID
//! name where it came from first.

use super::Answer;
use super::properties;
use super::send::{VERSION_MAX_RECONSUME, bytes_of};
use crate::admission;
use crate::draft::Draft;
use crate::error::Refusal;
use crate::state::State;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::ConsumerSendMsgBackRequestHeader;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::net::Peer;
use std::sync::atomic::Ordering;

/// 36.
pub(crate) fn send_back(state: &State, request: &Command, _peer: &Peer) -> Answer {
    let header = ConsumerSendMsgBackRequestHeader::decode(&request.fields)?;
    let group = state.group(header.group)?;
    state.check_writeable()?;
    if group.retry_queue_nums <= 0 {
        return Ok(Command::response(response::SUCCESS));
    }
    let unit = if header.unit_mode { 2 } else { 0 };
    let retry = state.retry_topic(header.group, group.retry_queue_nums, unit)?;
    if !admission::is_writeable(retry.perm) {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!("the topic may not be written: {}", retry.name),
        ));
    }
    let bytes = state
        .store
        .record_at(header.offset)
        .map_err(|error| Refusal::internal(error.to_string()))?;
    let bytes = bytes.ok_or_else(|| {
        Refusal::internal(format!(
            "no message begins at commit log offset {}",
            header.offset
        ))
    })?;
    let record = Record::decode(&bytes)?;
    let own_limit = header
        .max_reconsume_times
        .filter(|_| request.version >= VERSION_MAX_RECONSUME);
    let limit = own_limit.unwrap_or(group.retry_max_times);
    let dead = record.reconsume_times >= limit || header.delay_level < 0;
    let (topic, queue_id, level) = if dead {
        (state.dead_letter_topic(header.group)?, 0, 0)
    } else {
        let level = match header.delay_level {
            0 => 3 + record.reconsume_times,
            level => level,
        };
        let queue_id = state.choose_queue(&retry, -1)?;
        (retry, queue_id, level)
    };
    let old = record.properties.as_str()?;
    let known = properties::look(old);
    let draft = Draft {
        topic: &topic.name,
        queue_id,
        delay_level: level,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_ms: record.born_timestamp_ms,
        born_host: record.born_host,
        store_host: state.store_host(),
        reconsume_times: record.reconsume_times + 1,
        body: record.body,
        properties: retry_properties(
            &record,
            old,
            level,
            dead,
            header.origin_topic,
            header.origin_msg_id,
        ),
        unique_key: known.unique_key,
        keys: known.keys,
        tags: known.tags,
    };
    let stored = draft
        .put(&state.store, &state.delays)
        .map_err(|error| Refusal::of_put(&error))?;
    let counter = if dead {
        &state.stats.dead
    } else {
        &state.stats.sent_back
    };
    counter.fetch_add(1, Ordering::Relaxed);
    state.stats.count_put(1, bytes_of(&stored));
    Ok(Command::response(response::SUCCESS))
}

/// The record's properties with what a retry adds; each key once.
fn retry_properties(
    record: &Record<'_>,
    old: &str,
    level: i32,
    dead: bool,
    origin_topic: Option<&str>,
    origin_id: Option<&str>,
) -> String {
    let mut text = properties::copy(old, 256, |name| {
        matches!(
            name,
            "RETRY_TOPIC"
                | "ORIGIN_MESSAGE_ID"
                | "DELAY"
                | "WAIT"
                | "DLQ_ORIGIN_TOPIC"
                | "DLQ_ORIGIN_MESSAGE_ID"
        )
    });
    let offset_id = OffsetId {
        host: record.store_host,
        offset: record.physical_offset,
    }
    .to_string();
    let first_topic = properties::find(old, "RETRY_TOPIC").unwrap_or(record.topic);
    let first_id = properties::find(old, "ORIGIN_MESSAGE_ID").unwrap_or(&offset_id);
    properties::append(&mut text, "RETRY_TOPIC", first_topic);
    properties::append(&mut text, "ORIGIN_MESSAGE_ID", first_id);
    properties::append(&mut text, "WAIT", "false");
    if level > 0 {
        properties::append(&mut text, "DELAY", &level.to_string());
    }
    if dead {
        let topic = origin_topic
            .filter(|topic| !topic.is_empty())
            .unwrap_or(first_topic);
        let id = origin_id.filter(|id| !id.is_empty()).unwrap_or(first_id);
        properties::append(&mut text, "DLQ_ORIGIN_TOPIC", topic);
        properties::append(&mut text, "DLQ_ORIGIN_MESSAGE_ID", id);
    }
    text
}
