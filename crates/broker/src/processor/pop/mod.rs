//! Pops and what follows them (Apache `PopMessageProcessor`, `AckMessageProcessor`, `ChangeInvisibleTimeProcessor`,
//! `PopReviveService`, `PeekMessageProcessor`, `NotificationProcessor`, `PollingInfoProcessor`,
//! `QueryAssignmentProcessor`). What the broker remembers of pops is in `crate::pop`.

mod ack;
mod admission;
mod assign;
mod brought_back;
mod change;
mod count;
mod peek;
mod read;
mod recover;
mod result;
mod retry;
mod revive;
mod rows;
mod take;
mod wait;

pub(crate) use assign::{all_request_modes, set_request_mode};
pub(crate) use brought_back::unfinished_since;
pub(crate) use peek::{peek, polling_info, rollback};
pub(crate) use recover::advance_offsets;
pub(crate) use revive::revive;
pub(crate) use rows::rows;
pub(crate) use take::Pop;

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::pop::pop_check_point::{ReviveLog, revive_topic};
use crate::processor::offset::is_read_from_start;
use crate::tables::topics::Topic;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::receipt::PopSource;
use pyrmq_remoting::names;
use pyrmq_remoting::net::Reply;
use std::sync::Arc;

/// Where a group without an offset begins: at the newest message (Apache `ConsumeInitMode.MAX`).
const INIT_AT_NEWEST: i32 = 1;

/// Whether a request was processed before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pass {
    /// It has just come, and is served on its connection's task.
    First,
    /// It was held until messages arrived or its deadline passed. One task processes all of those, and must not wait
    /// for the disk.
    Resumed { deadline_ms: i64, may_wait: bool },
}

impl Pass {
    /// When the request must be answered, in ms, if it was held.
    fn deadline_ms(self) -> Option<i64> {
        match self {
            Self::First => None,
            Self::Resumed { deadline_ms, .. } => Some(deadline_ms),
        }
    }
}

fn illegal_queue(queue_id: i32, topic: &Topic) -> String {
    format!(
        "queueId[{queue_id}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}]",
        topic.topic_name, topic.read_queue_nums
    )
}

/// The topic and queue of a message that was popped: what acknowledgements and changes of the invisible time name.
fn popped_from(context: &BrokerContext, topic: &str, queue_id: i32) -> Result<Arc<Topic>, Refusal> {
    let known = context
        .topics
        .get(topic)
        .ok_or_else(|| Refusal::no_topic(topic))?;
    if (0..known.read_queue_nums).contains(&queue_id) {
        return Ok(known);
    }
    let text = illegal_queue(queue_id, &known);
    Err(Refusal::new(response::MESSAGE_ILLEGAL, text))
}

/// Refuses a time that no timer holds.
fn check_invisible_time(context: &BrokerContext, invisible_ms: i64) -> Result<(), Refusal> {
    let max_ms = context.options.store.timer.max_delay_sec.saturating_mul(1000);
    if (0..=max_ms).contains(&invisible_ms) {
        return Ok(());
    }
    let text = format!("invisibleTime is {invisible_ms} ms, allowed are 0 to {max_ms} (timerMaxDelaySec)");
    Err(Refusal::new(response::INVALID_PARAMETER, text))
}

/// Refuses a revive queue that does not exist: messages in it would never be read.
fn check_revive_queue(context: &BrokerContext, queue_id: i32) -> Result<(), Refusal> {
    let queues = revive_queues(context);
    if (0..queues).contains(&queue_id) {
        return Ok(());
    }
    let text = format!(
        "the receipt handle names revive queue {queue_id}, this broker has 0 to {}",
        queues - 1
    );
    Err(Refusal::new(response::MESSAGE_ILLEGAL, text))
}

/// Refuses a handle of another broker: its pop check point is there.
fn check_broker(context: &BrokerContext, broker_name: &str) -> Result<(), Refusal> {
    let own = &context.options.broker_name;
    if broker_name == own {
        return Ok(());
    }
    let text = format!("the receipt handle is of the broker {broker_name}, this one is {own}");
    Err(Refusal::new(response::MESSAGE_ILLEGAL, text))
}

/// How many queues of pop check points there are.
fn revive_queues(context: &BrokerContext) -> i32 {
    let topic = revive_topic(&context.options.broker_cluster_name);
    context
        .topics
        .get(&topic)
        .map_or(0, |topic| topic.read_queue_nums)
}

fn revive_log(context: &BrokerContext) -> ReviveLog<'_> {
    ReviveLog {
        store: &context.store,
        timers: &context.timers,
        cluster: &context.options.broker_cluster_name,
        host: context.store_host(),
    }
}

/// The retry topics of a topic and group that may have messages, and how answers name them. Without
/// `enableRetryTopicV2` that is one of version 2, too, if it exists: the option was on before. Apache's brokers leave
/// unread what waits there.
fn retry_topics(context: &BrokerContext, topic: &str, group: &str) -> Vec<(String, PopSource)> {
    let first = (names::pop_retry_topic(topic, group), PopSource::Retry);
    let second = (names::pop_retry_topic_v2(topic, group), PopSource::RetryV2);
    if !context.options.enable_retry_topic_v2 {
        let is_left = context.topics.get(&second.0).is_some();
        return std::iter::once(first).chain(is_left.then_some(second)).collect();
    }
    let mut topics = vec![second];
    if context.options.retrieve_message_from_pop_retry_topic_v1 {
        topics.push(first);
    }
    topics
}

/// Where a group's next pop of a queue begins.
fn pop_offset(context: &BrokerContext, topic: &str, group: &str, queue_id: i32, init_mode: i32) -> i64 {
    if let Some(committed) = context.offsets.get(group, topic, queue_id) {
        return committed;
    }
    if init_mode == INIT_AT_NEWEST && !names::is_retry(topic) && !is_read_from_start(context, topic, queue_id)
    {
        // Apache hands out the newest message.
        return (context.store.max_offset(topic, queue_id) - 1).max(0);
    }
    context.store.min_offset(topic, queue_id)
}

/// Sends the answer once what was stored is as durable as the broker's sends.
fn reply_when_durable(context: &BrokerContext, end_position: Option<i64>, reply: Reply, answer: Command) {
    match end_position.filter(|_| context.waits_for_disk()) {
        None => reply.send(answer),
        Some(end) => {
            let log = context.requests.clone();
            context.store.when_durable(end, move |flushed| match flushed {
                Ok(()) => reply.send(answer),
                Err(error) => Refusal::of_flush(&error, false).answer(reply.request_code(), reply, &log),
            });
        }
    }
}
