//! The retry topics to which popped messages come back.

use crate::context::BrokerContext;
use crate::error::{Refusal, may_pass};
use crate::message::pending::copy_of;
use crate::message::properties;
use crate::processor::pop::brought_back::mark_of;
use pyrmq_remoting::body::PopCheckPoint;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::properties::MAX_BYTES;
use pyrmq_remoting::names;
use pyrmq_store::NewMessage;

/// Whether topic and group are still there. A retry topic lives as long as the topic that it is for.
pub(super) fn is_wanted(context: &BrokerContext, topic: &str, group: &str) -> bool {
    let normal = names::group_of_retry(topic).and_then(|rest| rest.strip_prefix(group));
    let normal = normal
        .and_then(|rest| rest.strip_prefix(['+', '_']))
        .unwrap_or(topic);
    context.topics.get(normal).is_some() && context.groups.get(group).is_some()
}

/// Where messages of a topic come back to a group.
pub(super) fn retry_topic_of(context: &BrokerContext, topic: &str, group: &str) -> String {
    match topic {
        retry if names::is_retry(retry) => retry.to_owned(),
        topic if context.options.enable_retry_topic_v2 => names::pop_retry_topic_v2(topic, group),
        topic => names::pop_retry_topic(topic, group),
    }
}

/// Stores a message in its retry topic, delivered once more often.
pub(super) fn put_retry(
    context: &BrokerContext,
    point: &PopCheckPoint,
    (retry_topic, group): (&str, &str),
    record: &Record<'_>,
) -> Result<(), Refusal> {
    let known = context.pop_retry_topic(retry_topic, group)?;
    let old = record.properties.as_str()?;
    let is_first =
        record.reconsume_times == 0 || properties::find(old, properties::names::FIRST_POP_TIME).is_none();
    let mut text = properties::copy(old, 96, |name| {
        matches!(name, properties::names::POP_CK | properties::names::ORIGIN_GROUP)
            || (is_first && name == properties::names::FIRST_POP_TIME)
    });
    if is_first {
        properties::append(
            &mut text,
            properties::names::FIRST_POP_TIME,
            &point.pop_time.to_string(),
        );
    }
    // By it brokers from 5.5 on know whose held pops the message wakes.
    properties::append(&mut text, properties::names::ORIGIN_GROUP, group);
    if text.len() > MAX_BYTES {
        old.clone_into(&mut text);
    }
    let host = context.store_host();
    let counted = i32::from(!point.suspend);
    let stored = context.store.put_accepted(&NewMessage {
        born_host: host,
        store_host: host,
        reconsume_times: record.reconsume_times.saturating_add(counted),
        prepared_transaction_offset: mark_of(record),
        ..copy_of(record, retry_topic, 0, &text)
    });
    match stored {
        Ok(stored) => {
            context.stats.count_put(1, stored.bytes());
            known.traffic.count_put(1, stored.bytes());
        }
        Err(error) if may_pass(&error) => return Err(Refusal::of_put(&error)),
        Err(error) => {
            tracing::error!(retry_topic, group, offset = record.queue_offset, %error, "dropped a message that cannot be stored in its retry topic");
        }
    }
    Ok(())
}
