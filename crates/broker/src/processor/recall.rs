//! Recalls a timer message: 370 (Apache `RecallMessageProcessor`); and returns the timer's checkpoint: 60.
//!
//! A recall is itself a message, stored for the same step as the one that it names. When the step is delivered, the
//! named message is not.

use crate::admission;
use crate::context::{BrokerContext, born_host};
use crate::delivery::timer::Handle;
use crate::error::Refusal;
use crate::message::pending::PendingMessage;
use crate::message::properties::{self, names};
use crate::processor::Answer;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{RecallMessageRequestHeader, RecallMessageResponseHeader};
use pyrmq_remoting::message::java_hash;
use pyrmq_remoting::net::{Peer, Processor, Reply};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::NewMessage;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const TAG: &str = "_RECALL_TAG_";

/// Serves 370.
#[derive(Debug)]
pub(crate) struct Recall {
    context: Arc<BrokerContext>,
}

impl Recall {
    pub(crate) fn new(context: Arc<BrokerContext>) -> Self {
        Self { context }
    }
}

impl Processor for Recall {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        match recall(&self.context, &request, peer) {
            // As in Apache, the result of the fsync does not change the response.
            Ok((answer, Some(position))) => {
                self.context
                    .store
                    .when_durable(position, move |_flushed| reply.send(answer));
            }
            Ok((answer, None)) => reply.send(answer),
            Err(refusal) => {
                let (context, from) = (&self.context, peer.remote());
                context
                    .requests
                    .refused(&request, from, refusal.code, &refusal.remark);
                let region = &context.options.region_id;
                reply.send(refusal.into_response().with_field(names::MSG_REGION, region));
            }
        }
    }
}

/// The response, and the log position that must be durable before it is sent.
fn recall(
    context: &BrokerContext,
    request: &Command,
    peer: &Peer,
) -> Result<(Command, Option<i64>), Refusal> {
    let header = RecallMessageRequestHeader::decode(&request.fields)?;
    let handle = check(context, &header)?;
    let now_ms = clock::now_ms();
    let mut text = String::new();
    properties::append(&mut text, names::TAGS, TAG);
    properties::append(&mut text, names::TIMER_DEL_UNIQKEY, &delete_key(context, &handle));
    properties::append(&mut text, names::UNIQ_KEY, &handle.unique_key);
    properties::append(&mut text, names::TIMER_DELIVER_MS, &handle.time);
    properties::append(&mut text, names::BORN_TIMESTAMP, &now_ms.to_string());
    if let Some(group) = header.producer_group.filter(|group| !group.is_empty()) {
        properties::append(&mut text, names::PGROUP, group);
    }
    let mut pending = PendingMessage {
        message: NewMessage {
            topic: &handle.topic,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: now_ms,
            born_host: born_host(peer),
            store_host: context.store_host(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"0",
            properties: text.into(),
            tags_code: java_hash::tags_code(Some(TAG)),
            unique_key: Some(&handle.unique_key),
            keys: None,
            tag: Some(TAG),
        },
        delay_level: 0,
    };
    let failed = |reason: &str| {
        tracing::warn!(topic = handle.topic, reason, "a recall failed");
        context.stats.put_failed.fetch_add(1, Ordering::Relaxed);
        Refusal::internal("recall failed, execute error")
    };
    context
        .timers
        .schedule(&mut pending)
        .map_err(|refusal| failed(&refusal.remark))?
        .ok_or_else(|| failed("its time is over"))?;
    let stored = pending
        .put(&context.store, context.delays.levels())
        .map_err(|error| failed(&error.to_string()))?;
    context.stats.count_put(1, stored.bytes());
    let answer = Command::response(response::SUCCESS)
        .with_field(names::MSG_REGION, &context.options.region_id)
        .with_header(&RecallMessageResponseHeader {
            msg_id: &handle.unique_key,
        });
    Ok((answer, context.waits_for_disk().then_some(stored.end_position)))
}

/// What names the recalled message (Apache `TimerMessageStore.buildDeleteKey`).
fn delete_key(context: &BrokerContext, handle: &Handle) -> String {
    if context.live.append_topic_for_timer_delete_key() {
        format!("{}+{}", handle.topic, handle.unique_key)
    } else {
        handle.unique_key.clone()
    }
}

fn check(context: &BrokerContext, header: &RecallMessageRequestHeader<'_>) -> Result<Handle, Refusal> {
    let options = &context.options;
    if !context.live.recall_message_enable() {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            "recall failed, operation is forbidden",
        ));
    }
    let is_writeable = admission::is_writeable(context.live.broker_permission());
    if !is_writeable && !context.live.allow_recall_when_broker_not_writeable() {
        return Err(Refusal::new(
            response::SERVICE_NOT_AVAILABLE,
            "recall failed, broker service not available",
        ));
    }
    if context.topics.get(header.topic).is_none() {
        return Err(Refusal::new(
            response::TOPIC_NOT_EXIST,
            format!("recall failed, the topic[{}] not exist", header.topic),
        ));
    }
    let illegal = |text: &str| Refusal::new(response::ILLEGAL_OPERATION, text);
    let handle = Handle::read(header.recall_handle).ok_or_else(|| illegal("recall handle is invalid"))?;
    if handle.topic != header.topic {
        return Err(illegal("recall failed, topic not match"));
    }
    if handle.broker != options.broker_name {
        return Err(illegal("recall failed, broker service not available"));
    }
    let left_ms = handle
        .time
        .parse::<i64>()
        .unwrap_or(-1)
        .saturating_sub(clock::now_ms());
    let max_ms = options.store.timer.max_delay_sec * 1000;
    if !(1..max_ms).contains(&left_ms) {
        return Err(illegal("recall failed, timestamp invalid"));
    }
    Ok(handle)
}

/// Returns the timer's checkpoint (60).
pub(crate) fn checkpoint(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    let numbers = context
        .timers
        .checkpoint()
        .ok_or_else(|| Refusal::internal("The checkpoint is null"))?;
    Ok(Command::response(response::SUCCESS).with_body(numbers))
}
