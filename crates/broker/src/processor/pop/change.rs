//! A consumer hides a popped message for longer, or gives it back at once: 200053 (Apache
//! `ChangeInvisibleTimeProcessor`).
//!
//! The message gets a pop check point of its own, which counts from now, and is done for the old one. An ordered group
//! has no pop check points: there the time of the message changes.

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::pop::pop_check_point::Taken;
use crate::processor::pop::ack::{check_queue, known_group};
use crate::processor::pop::count::count_change;
use crate::processor::pop::{
    check_broker, check_invisible_time, check_revive_queue, popped_from, reply_when_durable, revive_log,
};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader};
use pyrmq_remoting::message::ReceiptHandle;
use pyrmq_remoting::net::{Peer, Processor, Reply};
use pyrmq_remoting::{Command, clock};
use std::sync::Arc;

/// Answers 200053.
#[derive(Debug)]
pub(crate) struct ChangeInvisibleTime(pub(crate) Arc<BrokerContext>);

impl Processor for ChangeInvisibleTime {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        match change(&self.0, &request) {
            Ok((answer, end)) => reply_when_durable(&self.0, end, reply, answer),
            Err(refusal) => self.0.refuse(&request, reply, refusal),
        }
    }
}

/// Returns the answer, and the end of what was stored.
fn change(context: &BrokerContext, request: &Command) -> Result<(Command, Option<i64>), Refusal> {
    let header = ChangeInvisibleTimeRequestHeader::decode(&request.fields)?;
    let topic = popped_from(context, header.topic, header.queue_id)?;
    let (min, max) = (
        context.store.min_offset(header.topic, header.queue_id),
        context.store.max_offset(header.topic, header.queue_id),
    );
    if !(min..max).contains(&header.offset) {
        let text = format!(
            "no message has offset {}, the queue has {min} to {}",
            header.offset,
            max - 1
        );
        return Err(Refusal::new(response::NO_MESSAGE, text));
    }
    let handle = ReceiptHandle::parse(header.extra_info)?;
    check_queue(&handle, header.queue_id)?;
    check_broker(context, handle.broker_name)?;
    check_invisible_time(context, header.invisible_time)?;
    known_group(context, header.consumer_group)?;
    if handle.is_ordered() {
        return Ok((in_order(context, &header, &handle)?, None));
    }
    check_revive_queue(context, handle.revive_queue_id)?;
    // Offset and time name a pop check point: two of one millisecond must differ.
    let now_ms = clock::now_ms().max(handle.pop_time.saturating_add(1));
    let old = Taken::by(&handle, (header.topic, header.queue_id), header.consumer_group);
    let new = Taken {
        start_offset: header.offset,
        pop_time: now_ms,
        invisible_time: header.invisible_time,
        ..old
    };
    let log = revive_log(context);
    let stored = log.put_change(
        handle.revive_queue_id,
        (&old, &new),
        header.offset,
        header.suspend,
    )?;
    count_change(context, &topic, &old);
    let answer = Command::response(response::SUCCESS).with_header(&ChangeInvisibleTimeResponseHeader {
        pop_time: now_ms,
        invisible_time: header.invisible_time,
        revive_qid: handle.revive_queue_id,
    });
    Ok((answer, Some(stored.end_position)))
}

/// A message of an ordered group. One that the group has gone beyond, or that was handed out again since, stays as it
/// is: the answer has no times, as Apache answers for the former. With times its client would keep a message that
/// another client has.
fn in_order(
    context: &BrokerContext,
    header: &ChangeInvisibleTimeRequestHeader<'_>,
    handle: &ReceiptHandle<'_>,
) -> Result<Command, Refusal> {
    let (topic, group, queue_id) = (header.topic, header.consumer_group, header.queue_id);
    let _lock = context.pops.lock_within_limit(topic, group, queue_id)?;
    let committed = context.offsets.get(group, topic, queue_id);
    let visible_at = clock::now_ms().saturating_add(header.invisible_time);
    let is_done = committed.is_some_and(|committed| header.offset < committed);
    let queue = (topic, group, queue_id);
    let is_changed = !is_done
        && context
            .pops
            .orders
            .hide_until(queue, header.offset, handle.pop_time, visible_at);
    let mut times = ChangeInvisibleTimeResponseHeader::default();
    if is_changed {
        times = ChangeInvisibleTimeResponseHeader {
            pop_time: handle.pop_time,
            invisible_time: visible_at.saturating_sub(handle.pop_time),
            revive_qid: handle.revive_queue_id,
        };
        // The queue opens at another time now, so the pops that wait for it must check again.
        context.pops.held.notify(topic, group, queue_id);
    }
    Ok(Command::response(response::SUCCESS).with_header(&times))
}
