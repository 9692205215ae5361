//! Pop check points and acknowledgements as messages of the revive topic (Apache `PopMessageProcessor.buildCkMsg`,
//! `AckMessageProcessor.appendAck`).

use crate::delivery::timer::Timers;
use crate::error::Refusal;
use crate::message::delay_levels::DelayLevels;
use crate::message::pending::PendingMessage;
use crate::message::properties::{self, names};
use pyrmq_remoting::body::{AckMsg, BatchAckMsg, Body, PopCheckPoint};
use pyrmq_remoting::clock;
use pyrmq_remoting::message::{ReceiptHandle, java_hash};
use pyrmq_remoting::names::REVIVE_TOPIC;
use pyrmq_store::{NewMessage, Store, Stored};
use std::net::SocketAddr;

/// Tags of the revive topic (Apache `PopAckConstants`).
pub(crate) const CHECK_POINT_TAG: &str = "ck";
pub(crate) const ACK_TAG: &str = "ack";
pub(crate) const BATCH_ACK_TAG: &str = "bAck";

/// Property of our pop check points: the end of the commit log when the messages were handed out. A message behind it
/// is none of them: the topic was created again.
pub(crate) const LOG_END: &str = "POP_LOG_END";

/// How long before its messages come back a pop check point leaves the timer, in ms: its acknowledgements come after
/// it.
const AHEAD_MS: i64 = 1000;

/// Which messages of which pop something is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub(crate) topic: &'a str,
    pub(crate) group: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) broker_name: &'a str,
    /// Where the pop began to read.
    pub(crate) start_offset: i64,
    pub(crate) pop_time: i64,
    pub(crate) invisible_time: i64,
}

/// Writes to the revive topic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReviveLog<'a> {
    pub(crate) store: &'a Store,
    pub(crate) timers: &'a Timers,
    pub(crate) levels: &'a DelayLevels,
    pub(crate) cluster: &'a str,
    pub(crate) host: SocketAddr,
}

/// The revive topic of a cluster.
pub(crate) fn revive_topic(cluster: &str) -> String {
    [REVIVE_TOPIC, cluster].concat()
}

impl ReviveLog<'_> {
    /// Messages at these offsets were handed out.
    pub(crate) fn put_check_point(
        &self,
        revive_queue: i32,
        taken: &Taken<'_>,
        offsets: &[i64],
        suspend: bool,
    ) -> Result<Stored, Refusal> {
        let distance = |offset: &i64| i32::try_from(offset - taken.start_offset).unwrap_or(i32::MAX);
        let revive_ms = taken.due_ms();
        let body = PopCheckPoint {
            bit_map: 0,
            broker_name: Some(taken.broker_name.to_owned()),
            group: Some(taken.group.to_owned()),
            offset_differences: Some(offsets.iter().map(distance).collect()),
            invisible_time: taken.invisible_time,
            count: i32::try_from(offsets.len()).unwrap_or(i32::MAX),
            pop_time: taken.pop_time,
            queue_id: taken.queue_id,
            revive_time: revive_ms,
            revive_offset: 0,
            rewrites: None,
            start_offset: taken.start_offset,
            suspend,
            topic: Some(taken.topic.to_owned()),
        };
        let key = taken.key(taken.start_offset, CHECK_POINT_TAG);
        let due_ms = revive_ms.saturating_sub(AHEAD_MS);
        let log_end = Some(self.store.end_position());
        self.put(
            revive_queue,
            CHECK_POINT_TAG,
            &key,
            &body.encode(),
            (due_ms, log_end),
        )
    }

    /// A message is done.
    pub(crate) fn put_ack(
        &self,
        revive_queue: i32,
        taken: &Taken<'_>,
        offset: i64,
    ) -> Result<Stored, Refusal> {
        let body = AckMsg {
            ack_offset: offset,
            broker_name: Some(taken.broker_name.to_owned()),
            group: Some(taken.group.to_owned()),
            pop_time: taken.pop_time,
            queue_id: taken.queue_id,
            start_offset: taken.start_offset,
            topic: Some(taken.topic.to_owned()),
        };
        let key = taken.key(offset, ACK_TAG);
        let due_ms = taken.due_ms();
        self.put(revive_queue, ACK_TAG, &key, &body.encode(), (due_ms, None))
    }

    /// Several messages of one pop are done.
    pub(crate) fn put_batch_ack(
        &self,
        revive_queue: i32,
        taken: &Taken<'_>,
        offsets: Vec<i64>,
    ) -> Result<Stored, Refusal> {
        let body = BatchAckMsg {
            ack_offset: -1,
            ack_offsets: offsets,
            broker_name: Some(taken.broker_name.to_owned()),
            group: Some(taken.group.to_owned()),
            pop_time: taken.pop_time,
            queue_id: taken.queue_id,
            start_offset: taken.start_offset,
            topic: Some(taken.topic.to_owned()),
        };
        let key = taken.key(-1, ACK_TAG);
        let due_ms = taken.due_ms();
        self.put(revive_queue, BATCH_ACK_TAG, &key, &body.encode(), (due_ms, None))
    }

    fn put(
        &self,
        revive_queue: i32,
        tag: &str,
        key: &str,
        body: &[u8],
        (due_ms, log_end): (i64, Option<i64>),
    ) -> Result<Stored, Refusal> {
        let topic = revive_topic(self.cluster);
        let mut text = String::with_capacity(192);
        properties::append(&mut text, names::TIMER_DELIVER_MS, &due_ms.to_string());
        properties::append(&mut text, names::UNIQ_KEY, key);
        properties::append(&mut text, names::TAGS, tag);
        if let Some(log_end) = log_end {
            properties::append(&mut text, LOG_END, &log_end.to_string());
        }
        let mut pending = PendingMessage {
            message: NewMessage {
                topic: &topic,
                queue_id: revive_queue,
                flag: 0,
                sys_flag: 0,
                born_timestamp_ms: clock::now_ms(),
                born_host: self.host,
                store_host: self.host,
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body,
                properties: text.into(),
                tags_code: java_hash::tags_code(Some(tag)),
                unique_key: Some(key),
                keys: None,
                tag: Some(tag),
            },
            delay_level: 0,
        };
        self.timers.schedule(&mut pending)?;
        let stored = pending.put(self.store, self.levels);
        stored.map_err(|error| Refusal::of_put(&error))
    }
}

impl<'a> Taken<'a> {
    /// What a handle was given for. The queue is that of the request: a handle may have -1.
    pub(crate) fn by(handle: &ReceiptHandle<'a>, (topic, queue_id): (&'a str, i32), group: &'a str) -> Self {
        Self {
            topic,
            group,
            queue_id,
            broker_name: handle.broker_name,
            start_offset: handle.start_offset,
            pop_time: handle.pop_time,
            invisible_time: handle.invisible_time,
        }
    }

    /// When the messages come back, in ms.
    pub(crate) fn due_ms(&self) -> i64 {
        self.pop_time.saturating_add(self.invisible_time)
    }

    /// Apache's name for a message of the revive topic.
    fn key(&self, offset: i64, tag: &str) -> String {
        format!(
            "{}@{}@{offset}@{}@{}@{}@{tag}",
            self.topic, self.queue_id, self.group, self.pop_time, self.broker_name
        )
    }
}
