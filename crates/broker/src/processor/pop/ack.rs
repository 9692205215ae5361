//! Acknowledgements of popped messages: 200051 and 200151 (Apache `AckMessageProcessor`).
//!
//! A handle that is expired or was used before is answered as any other, as Apache does: the acknowledgement finds
//! nothing to do. One that names the wrong queue, offset, broker or revive queue is refused.

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::message::base64;
use crate::pop::order::OrderedAck;
use crate::pop::pop_check_point::Taken;
use crate::pop::{MAX_MESSAGES, message_at};
use crate::processor::pop::count::count_acks;
use crate::processor::pop::{check_broker, check_revive_queue, popped_from, reply_when_durable, revive_log};
use crate::processor::read_body;
use crate::tables::topics::Topic;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{BatchAck, BatchAckMessageRequestBody};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::AckMessageRequestHeader;
use pyrmq_remoting::message::ReceiptHandle;
use pyrmq_remoting::message::receipt::PopSource;
use pyrmq_remoting::names::POP_ORDER_REVIVE_QUEUE;
use pyrmq_remoting::net::{Peer, Processor, Reply};
use std::sync::Arc;

/// Messages that one entry of 200151 may name: the bits of a pop of a queue lie close together.
const MAX_BITS: usize = 1 << 16;

/// Answers 200051.
#[derive(Debug)]
pub(crate) struct Ack(pub(crate) Arc<BrokerContext>);

/// Answers 200151.
#[derive(Debug)]
pub(crate) struct BatchedAck(pub(crate) Arc<BrokerContext>);

impl Processor for Ack {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        answer(&self.0, &request, one(&self.0, &request), reply);
    }
}

impl Processor for BatchedAck {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        answer(&self.0, &request, several(&self.0, &request), reply);
    }
}

fn answer(context: &BrokerContext, request: &Command, outcome: Result<Option<i64>, Refusal>, reply: Reply) {
    match outcome {
        Ok(end) => reply_when_durable(context, end, reply, Command::response(response::SUCCESS)),
        Err(refusal) => context.refuse(request, reply, refusal),
    }
}

/// Returns the end of what was stored.
fn one(context: &BrokerContext, request: &Command) -> Result<Option<i64>, Refusal> {
    let header = AckMessageRequestHeader::decode(&request.fields)?;
    let topic = popped_from(context, header.topic, header.queue_id)?;
    check_offset(context, header.topic, header.queue_id, header.offset)?;
    let handle = ReceiptHandle::parse(header.extra_info)?;
    check_queue(&handle, header.queue_id)?;
    check_broker(context, handle.broker_name)?;
    known_group(context, header.consumer_group)?;
    let taken = Taken::by(&handle, (header.topic, header.queue_id), header.consumer_group);
    if handle.is_ordered() {
        return in_order(context, &topic, &taken, header.offset).map(|()| None);
    }
    check_revive_queue(context, handle.revive_queue_id)?;
    let stored = revive_log(context).put_ack(handle.revive_queue_id, &taken, header.offset)?;
    count_acks(context, &topic, &taken, 1);
    Ok(Some(stored.end_position))
}

/// Refuses an offset that the queue does not have.
fn check_offset(context: &BrokerContext, topic: &str, queue_id: i32, offset: i64) -> Result<(), Refusal> {
    let (min, max) = (
        context.store.min_offset(topic, queue_id),
        context.store.max_offset(topic, queue_id),
    );
    if (min..=max).contains(&offset) {
        return Ok(());
    }
    let text = format!("offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{min}~{max}");
    Err(Refusal::new(response::NO_MESSAGE, text))
}

/// Refuses a handle of a message of another queue.
pub(super) fn check_queue(handle: &ReceiptHandle<'_>, queue_id: i32) -> Result<(), Refusal> {
    // A pop of every queue returns -1 to clients that do not read the records.
    if handle.queue_id == queue_id || handle.queue_id < 0 {
        return Ok(());
    }
    let text = format!(
        "the receipt handle is of queue {}, the request names queue {queue_id}",
        handle.queue_id
    );
    Err(Refusal::new(response::MESSAGE_ILLEGAL, text))
}

/// Refuses a group that does not exist: it has nothing to acknowledge.
pub(super) fn known_group(context: &BrokerContext, group: &str) -> Result<(), Refusal> {
    match context.groups.get(group) {
        Some(_) => Ok(()),
        None => Err(Refusal::no_group(group)),
    }
}

/// Acknowledges a message of an ordered group.
fn in_order(context: &BrokerContext, topic: &Topic, taken: &Taken<'_>, offset: i64) -> Result<(), Refusal> {
    let (name, group, queue_id) = (taken.topic, taken.group, taken.queue_id);
    let queue = (name, group, queue_id);
    let lock = context.pops.lock_within_limit(name, group, queue_id)?;
    let committed = context.offsets.get(group, name, queue_id);
    if committed.is_some_and(|committed| offset < committed) {
        return Ok(());
    }
    let next = match context.pops.orders.acknowledge(queue, offset, taken.pop_time) {
        OrderedAck::Outdated => return Ok(()),
        OrderedAck::Unknown => {
            let text = format!(
                "offset is illegal, key:{name}@{group}@{queue_id}, old:{}, commit:{offset}: the group was not given this message",
                committed.unwrap_or(-1)
            );
            return Err(Refusal::new(response::MESSAGE_ILLEGAL, text));
        }
        OrderedAck::Advance(next) => next,
        OrderedAck::Lost if !was_handed_out(context, taken, offset) => return Ok(()),
        // A kill has lost which messages were handed out, and offsets that were committed since the file was written.
        // The pop began at the group's offset, so the messages before it are done. Apache continues after the message,
        // and loses those before it that are never acknowledged.
        OrderedAck::Lost => {
            let first = taken.start_offset.max(committed.unwrap_or(taken.start_offset));
            first.saturating_add(i64::from(offset == first))
        }
    };
    if !context.offsets.has_reset(group, name, queue_id) {
        context.commit(group, topic, queue_id, next);
    }
    drop(lock);
    if !context.pops.orders.blocks(queue, None) {
        context.pops.held.notify(name, group, queue_id);
    }
    Ok(())
}

/// Whether the pop may have handed out the message at an offset: it does not lie before the pop's start, and is older.
/// If it is newer, the topic was deleted and created again since.
fn was_handed_out(context: &BrokerContext, taken: &Taken<'_>, offset: i64) -> bool {
    if offset < taken.start_offset {
        return false;
    }
    let stored_ms = message_at(&context.store, taken.topic, taken.queue_id, offset, |record| {
        record.store_timestamp_ms
    });
    let stored_ms = stored_ms.ok().flatten();
    stored_ms.is_some_and(|stored_ms| stored_ms <= taken.pop_time)
}

/// Serves 200151. Entries that cannot be acknowledged are skipped, as in Apache, since the others are done
/// nevertheless. If none can be, the answer is that to the first one, as for 200051.
fn several(context: &BrokerContext, request: &Command) -> Result<Option<i64>, Refusal> {
    let body: BatchAckMessageRequestBody = read_body(request)?;
    if body.acks.is_empty() {
        return Err(Refusal::new(response::NO_MESSAGE, "the body has no acks"));
    }
    check_broker(context, &body.broker_name)?;
    let mut end = None;
    let (mut is_any_done, mut first_refusal) = (false, None);
    for ack in &body.acks {
        match entry(context, &body.broker_name, ack) {
            Ok(stored) => {
                is_any_done = true;
                end = end.max(stored);
            }
            Err(refusal) => {
                tracing::warn!(
                    topic = ack.topic,
                    group = ack.consumer_group,
                    reason = refusal.remark,
                    "skipped an entry of a batch of acknowledgements"
                );
                if matches!(
                    refusal.code,
                    response::SYSTEM_ERROR | response::SERVICE_NOT_AVAILABLE | response::SYSTEM_BUSY
                ) {
                    return Err(refusal);
                }
                first_refusal.get_or_insert(refusal);
            }
        }
    }
    first_refusal.filter(|_| !is_any_done).map_or(Ok(end), Err)
}

fn entry(context: &BrokerContext, broker_name: &str, ack: &BatchAck) -> Result<Option<i64>, Refusal> {
    let source: PopSource = ack.retry.parse()?;
    let name = source.topic(&ack.topic, &ack.consumer_group);
    let topic = popped_from(context, &name, ack.queue_id)?;
    known_group(context, &ack.consumer_group)?;
    let range = context.store.min_offset(&name, ack.queue_id)..=context.store.max_offset(&name, ack.queue_id);
    let named = bits(ack)?
        .into_iter()
        .map(|bit| ack.start_offset.saturating_add(bit));
    let offsets: Vec<i64> = named.filter(|offset| range.contains(offset)).collect();
    let taken = Taken {
        topic: &name,
        group: &ack.consumer_group,
        queue_id: ack.queue_id,
        broker_name,
        start_offset: ack.start_offset,
        pop_time: ack.pop_time,
        invisible_time: ack.invisible_time,
    };
    if ack.revive_queue_id == POP_ORDER_REVIVE_QUEUE {
        // A message that the group was not given does not prevent the others from being done. The answer names it, as
        // Apache's does.
        let outcomes = offsets
            .into_iter()
            .map(|offset| in_order(context, &topic, &taken, offset));
        let outcomes: Vec<Result<(), Refusal>> = outcomes.collect();
        return outcomes.into_iter().find_map(Result::err).map_or(Ok(None), Err);
    }
    check_revive_queue(context, ack.revive_queue_id)?;
    if offsets.is_empty() {
        return Ok(None);
    }
    let count = offsets.len() as u64;
    let stored = revive_log(context).put_batch_ack(ack.revive_queue_id, &taken, offsets)?;
    count_acks(context, &topic, &taken, count);
    Ok(Some(stored.end_position))
}

/// The bits that an entry sets.
fn bits(ack: &BatchAck) -> Result<Vec<i64>, Refusal> {
    let text = ack.bit_set.as_deref().unwrap_or_default();
    let bytes = base64::decode(text)
        .filter(|bytes| bytes.len() * 8 <= MAX_BITS)
        .ok_or_else(|| {
            Refusal::new(
                response::MESSAGE_ILLEGAL,
                format!("the bits of an acknowledgement are no base64 of at most {MAX_BITS} bits"),
            )
        })?;
    let count = bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    if i64::from(count) > i64::from(MAX_MESSAGES) {
        let text = format!("an acknowledgement names {count} messages, a pop has at most {MAX_MESSAGES}");
        return Err(Refusal::new(response::MESSAGE_ILLEGAL, text));
    }
    let numbered = bytes.iter().zip((0_i64..).step_by(8));
    Ok(numbered
        .flat_map(|(byte, first)| {
            (0..8)
                .filter(move |bit| byte >> bit & 1 == 1)
                .map(move |bit| first + bit)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_little_endian_in_base64() {
        let bits_of = |text: &str| {
            let ack = BatchAck {
                bit_set: Some(text.to_owned()),
                ..BatchAck::default()
            };
            bits(&ack).ok()
        };
        assert_eq!(bits_of(""), Some(vec![]));
        assert_eq!(bits_of("BQ=="), Some(vec![0, 2]));
        assert_eq!(bits_of("AIE="), Some(vec![8, 15]));
        assert_eq!(bits_of("//8"), Some((0..16).collect()));
        assert_eq!(bits_of("B Q="), None);
        assert_eq!(bits_of("/////w=="), Some((0..32).collect()));
        assert_eq!(bits_of("/////wE="), None, "no pop has 33 messages");
    }
}
