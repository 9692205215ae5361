//! The state of a consumer for operators (307), and one message passed to a listener for them (309) (Apache
//! `ConsumerRunningInfo`, `ConsumeMessageDirectlyResult`).

use crate::consumer::callbacks::{Callback, CallbackAnswer};
use crate::consumer::options::Order;
use crate::consumer::pop::listening::PopListener;
use crate::consumer::process_queue::{Chunk, ProcessQueue, QueueKey};
use crate::consumer::shared::ConsumerShared;
use crate::session::membership::Subscription;
use bytes::Bytes;
use pyrmq_remoting::body::{
    Body, ConsumeMessageDirectlyResult, ConsumeStatus, ConsumerRunningInfo, MessageQueue,
    PopProcessQueueInfo, ProcessQueueInfo,
};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::client::{
    ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader,
};
use pyrmq_remoting::message::record::Record;
use pyrmq_remoting::net::Reply;
use pyrmq_remoting::sync::lock;
use pyrmq_remoting::{Command, clock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The version that is reported: 5.5.0 in Apache's list of versions.
const CLIENT_VERSION: &str = "V5_5_0";

impl ConsumerShared {
    /// Answers 307.
    pub(crate) fn send_running_info(self: &Arc<Self>, command: Command, reply: Reply) {
        let shared = self.clone();
        self.tracker.spawn(async move {
            let header = GetConsumerRunningInfoRequestHeader::decode(&command.fields);
            let wants_stacks = header.is_ok_and(|header| header.jstack_enable);
            let mut info = shared.running_info();
            if wants_stacks
                && let Some(CallbackAnswer::Text(stacks)) = shared.callbacks.call(Callback::Stacks).await
            {
                info.jstack = Some(stacks);
            }
            reply.send(Command::response(response::SUCCESS).with_body(Bytes::from(info.encode())));
        });
    }

    fn running_info(&self) -> ConsumerRunningInfo {
        let mq_table: BTreeMap<MessageQueue, ProcessQueueInfo> = {
            let state = self.state();
            let queues = state.queues.values();
            queues
                .map(|queue| (message_queue_of(&queue.key), queue_info(queue)))
                .collect()
        };
        let popped = self.pops.as_ref().map(PopListener::progress).unwrap_or_default();
        let mq_pop_table = popped.into_iter().map(|(key, in_hand, last_pop_ms)| {
            let info = PopProcessQueueInfo {
                droped: false,
                last_pop_timestamp: last_pop_ms,
                wait_ack_count: i32::try_from(in_hand).unwrap_or(i32::MAX),
            };
            (message_queue_of(&key), info)
        });
        let topics = self.heartbeat.membership.topics();
        let counted = lock(&self.counted);
        let status = |topic: &Arc<str>| {
            let rates = counted.of_topic(topic);
            let status = ConsumeStatus {
                consume_failed_msgs: i64::try_from(rates.failed_in_hour).unwrap_or(i64::MAX),
                consume_failed_tps: rates.failed,
                consume_ok_tps: rates.done,
                consume_rt: rates.call_ms,
                pull_rt: rates.pull_ms,
                pull_tps: rates.received,
            };
            (topic.to_string(), status)
        };
        let status_table = topics.iter().map(status).collect();
        drop(counted);
        ConsumerRunningInfo {
            properties: self.running_properties(),
            mq_pop_table: mq_pop_table.collect(),
            mq_table,
            status_table,
            subscription_set: self.heartbeat.membership.subscription_data(),
            ..ConsumerRunningInfo::default()
        }
    }

    fn running_properties(&self) -> BTreeMap<String, String> {
        let options = &self.options;
        let is_ordered = options.is_listening && options.order == Order::Queue;
        let kind = if options.is_listening {
            "CONSUME_PASSIVELY"
        } else {
            "CONSUME_ACTIVELY"
        };
        let text = |value: &str| value.to_owned();
        BTreeMap::from([
            (
                text("PROP_NAMESERVER_ADDR"),
                options.client.name_servers.join(";"),
            ),
            (text("PROP_THREADPOOL_CORE_SIZE"), options.threads.to_string()),
            (text("PROP_CONSUMEORDERLY"), is_ordered.to_string()),
            (text("PROP_CONSUME_TYPE"), text(kind)),
            (text("PROP_CLIENT_VERSION"), text(CLIENT_VERSION)),
            (text("PROP_CONSUMER_START_TIMESTAMP"), self.started_ms.to_string()),
            (text("consumerGroup"), options.client.group.clone()),
            (text("messageModel"), text(self.heartbeat.membership.model_name())),
        ])
    }

    /// Answers 309.
    pub(crate) fn consume_directly(self: &Arc<Self>, command: &Command, reply: Reply) {
        let chunk = match chunk_of(command) {
            Ok(chunk) => chunk,
            Err(remark) => return reply.send(Command::error(response::SYSTEM_ERROR, remark)),
        };
        let shared = self.clone();
        self.tracker.spawn(async move {
            let began = Instant::now();
            let callback = Callback::Consume { chunk };
            let Some(CallbackAnswer::Consumed { result, remark }) = shared.callbacks.call(callback).await
            else {
                let remark =
                    "this consumer has no listener for the message, or it did not return within 10 s";
                return reply.send(Command::error(response::SYSTEM_ERROR, remark));
            };
            let body = ConsumeMessageDirectlyResult {
                order: shared.options.order == Order::Queue,
                consume_result: Some(result.to_owned()),
                remark,
                spent_time_mills: i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX),
                ..ConsumeMessageDirectlyResult::default()
            };
            reply.send(Command::response(response::SUCCESS).with_body(Bytes::from(body.encode())));
        });
    }
}

fn chunk_of(command: &Command) -> Result<Arc<Chunk>, String> {
    let header = ConsumeMessageDirectlyResultRequestHeader::decode(&command.fields);
    let broker = header
        .ok()
        .and_then(|header| header.broker_name)
        .unwrap_or_default()
        .to_owned();
    let body = command.body.clone().unwrap_or_default();
    let queue = match Record::decode(&body) {
        Ok(record) => QueueKey {
            topic: record.topic.into(),
            broker: broker.as_str().into(),
            queue_id: record.queue_id,
        },
        Err(error) => return Err(format!("the message cannot be read: {error}")),
    };
    let chunk = Chunk::new(Arc::new(queue), body, 0, &Subscription::tags_of("*", 0));
    chunk
        .map(Arc::new)
        .map_err(|error| format!("the message cannot be read: {error}"))
}

fn message_queue_of(key: &QueueKey) -> MessageQueue {
    MessageQueue::new(key.topic.as_ref(), key.broker.as_ref(), key.queue_id)
}

fn queue_info(queue: &ProcessQueue) -> ProcessQueueInfo {
    let (messages, bytes) = queue.held();
    let in_flight = &queue.listeners.in_flight;
    let now_ms = clock::now_ms();
    let ago_ms = |at: Option<Instant>| {
        at.map_or(0, |at| {
            now_ms - i64::try_from(at.elapsed().as_millis()).unwrap_or(now_ms)
        })
    };
    ProcessQueueInfo {
        commit_offset: queue.done,
        cached_msg_min_offset: in_flight.lowest().unwrap_or(queue.delivered),
        cached_msg_max_offset: queue.next_pull.map_or(0, |next| next - 1),
        cached_msg_count: i32::try_from(messages + in_flight.len()).unwrap_or(i32::MAX),
        cached_msg_size_in_mib: i32::try_from((bytes + in_flight.bytes()) >> 20).unwrap_or(i32::MAX),
        locked: queue.listeners.is_locked(),
        last_lock_timestamp: queue
            .listeners
            .lock_age()
            .map_or(0, |age| now_ms - i64::try_from(age.as_millis()).unwrap_or(now_ms)),
        last_pull_timestamp: ago_ms(queue.pulled_at),
        last_consume_timestamp: ago_ms(queue.listeners.finished_at),
        droped: false,
        ..ProcessQueueInfo::default()
    }
}
