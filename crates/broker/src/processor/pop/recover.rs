//! After a kill, moves the offsets of groups past the messages that were handed out to them or, in ordered groups, that
//! they have acknowledged.
//!
//! Offsets are written every few seconds (`flushConsumerOffsetInterval`), pop check points at once. Without this,
//! messages that were popped and acknowledged since the last write would be handed out again; what was not acknowledged
//! comes back by its pop check point. A pop check point from before its group's offset was reset, or before its topic
//! was deleted and created again, says nothing about the current offset.
//!
//! Ordered groups have no pop check points. Their file is written more often than the offsets, and says what is done.

use crate::context::BrokerContext;
use crate::delivery::scan::read_on;
use crate::message::properties::names;
use crate::pop::message_at;
use crate::pop::pop_check_point::{CHECK_POINT_TAG, LOG_END, revive_topic};
use pyrmq_remoting::WireError;
use pyrmq_remoting::body::{Body, PopCheckPoint};
use pyrmq_remoting::message::{Record, record};
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::{Boundary, StoreError};
use std::ops::ControlFlow;

/// Offsets may be this much older than the file that has them, ms: a write takes its time.
const WRITE_MS: i64 = 1000;

/// Reads the pop check points that were stored since the offsets were written. Before the ports open.
pub(crate) fn advance_offsets(context: &BrokerContext) -> Result<(), StoreError> {
    if !context.options.store.timer.enable || !context.store.health().recovered_from_crash {
        return Ok(());
    }
    let since_ms = context.offsets_written_ms().saturating_sub(WRITE_MS);
    advance_in_order(context, since_ms);
    let topic = revive_topic(&context.options.broker_cluster_name);
    // A pop check point goes through the timer, unless it is due at once.
    let mut advanced = advance_by(context, &topic, (TIMER_TOPIC, 0), since_ms)?;
    for queue_id in 0..super::revive_queues(context) {
        advanced += advance_by(context, &topic, (&topic, queue_id), since_ms)?;
    }
    if advanced > 0 {
        tracing::info!(
            advanced,
            "offsets of popped queues were older than their pop check points"
        );
    }
    Ok(())
}

/// Moves the offsets of ordered groups to their first messages that are not done.
fn advance_in_order(context: &BrokerContext, since_ms: i64) {
    for (name, group, queue_id, next) in context.pops.orders.progress_since(since_ms) {
        // An operator's change is newer than what the file says, which has no positions of the log.
        let is_changed = context.offsets.changed_at(&group, &name) >= 0;
        let committed = context.offsets.get(&group, &name, queue_id).unwrap_or(0);
        if let Some(topic) = context
            .topics
            .get(&name)
            .filter(|_| !is_changed && committed < next)
        {
            context.commit(&group, &topic, queue_id, next);
        }
    }
}

fn advance_by(
    context: &BrokerContext,
    revive_topic: &str,
    (topic, queue_id): (&str, i32),
    since_ms: i64,
) -> Result<usize, StoreError> {
    let store = &context.store;
    let offset = store.offset_by_time(topic, queue_id, since_ms, Boundary::Lower)?;
    let mut advanced = 0;
    read_on(store, (topic, queue_id), offset, |records| {
        for record in record::records(records) {
            let moved = record.and_then(|record| advance(context, revive_topic, &record));
            match moved {
                Ok(moved) => advanced += usize::from(moved),
                Err(error) => {
                    tracing::error!(topic, queue_id, %error, "passed over a pop check point that cannot be read");
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(advanced)
}

/// Moves the offset of a pop check point's group past its messages. False: it was there, or the record is none.
fn advance(context: &BrokerContext, revive_topic: &str, record: &Record<'_>) -> Result<bool, WireError> {
    let leads_to = record.properties.get(names::REAL_TOPIC).unwrap_or(record.topic);
    if leads_to != revive_topic || record.properties.get(names::TAGS) != Some(CHECK_POINT_TAG) {
        return Ok(false);
    }
    let point = PopCheckPoint::decode(record.body)?;
    let (Some(name), Some(group)) = (&point.topic, &point.group) else {
        return Ok(false);
    };
    let Some(topic) = context.topics.get(name) else {
        return Ok(false);
    };
    let last = match &point.offset_differences {
        Some(differences) => differences.iter().copied().max().unwrap_or(0),
        None => point.count - 1,
    };
    let next = point.start_offset.saturating_add(i64::from(last) + 1);
    let committed = context.offsets.get(group, name, point.queue_id).unwrap_or(0);
    // A pop check point that the timer delivered stands after what was stored meanwhile.
    let log_end = record.properties.get(LOG_END).and_then(|end| end.parse().ok());
    let log_end = log_end.unwrap_or(record.physical_offset);
    if next <= committed
        || context.offsets.changed_at(group, name) >= log_end
        || !is_before(context, (name, point.queue_id, next - 1), log_end)
    {
        return Ok(false);
    }
    context.commit(group, &topic, point.queue_id, next);
    Ok(true)
}

/// Whether a queue's message lies before a position of the commit log.
fn is_before(context: &BrokerContext, (topic, queue_id, offset): (&str, i32, i64), log_end: i64) -> bool {
    let position = message_at(&context.store, topic, queue_id, offset, |record| {
        record.physical_offset
    });
    position.ok().flatten().is_some_and(|position| position < log_end)
}
