//! Pop check points and acknowledgements as messages of the revive topic (Apache `PopMessageProcessor.buildCkMsg`,
//! `AckMessageProcessor.appendAck`).

use crate::delivery::timer::Timers;
use crate::error::Refusal;
use crate::message::pending::PendingMessage;
use crate::message::properties::{self, names};
use pyrmq_remoting::body::{AckMsg, BatchAckMsg, Body, PopCheckPoint};
use pyrmq_remoting::message::{ReceiptHandle, java_hash};
use pyrmq_remoting::names::REVIVE_TOPIC;
use pyrmq_store::{NewMessage, Store, Stored};
use std::net::SocketAddr;

/// Tags of the revive topic (Apache `PopAckConstants`).
pub(crate) const CHECK_POINT_TAG: &str = "ck";
pub(crate) const ACK_TAG: &str = "ack";
pub(crate) const BATCH_ACK_TAG: &str = "bAck";

/// Property of our pop check points: the end of the commit log when the messages were handed out. A message after it is
/// none of them: the topic was created again.
pub(crate) const LOG_END: &str = "POP_LOG_END";

/// How long before its messages come back a pop check point leaves the timer, in ms: its acknowledgements come after
/// it.
const AHEAD_MS: i64 = 1000;

/// Identifies messages of a pop.
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
    pub(crate) cluster: &'a str,
    pub(crate) host: SocketAddr,
}

/// The revive topic of a cluster.
pub(crate) fn revive_topic(cluster: &str) -> String {
    [REVIVE_TOPIC, cluster].concat()
}

/// A message of the revive topic.
struct ReviveMessage {
    tag: &'static str,
    key: String,
    body: Vec<u8>,
    /// When it leaves the timer, in ms.
    due_ms: i64,
    log_end: Option<i64>,
}

impl ReviveLog<'_> {
    /// Stores that messages at these offsets were handed out.
    pub(crate) fn put_check_point(
        &self,
        revive_queue: i32,
        taken: &Taken<'_>,
        offsets: &[i64],
    ) -> Result<Stored, Refusal> {
        self.put(revive_queue, &[self.check_point(taken, offsets, false)])
    }

    /// A message is done.
    pub(crate) fn put_ack(
        &self,
        revive_queue: i32,
        taken: &Taken<'_>,
        offset: i64,
    ) -> Result<Stored, Refusal> {
        self.put(revive_queue, &[ack(taken, offset)])
    }

    /// Stores that several messages of one pop are done.
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
        let acks = ReviveMessage {
            tag: BATCH_ACK_TAG,
            key: taken.key(-1, ACK_TAG),
            body: body.encode(),
            due_ms: taken.due_ms(),
            log_end: None,
        };
        self.put(revive_queue, &[acks])
    }

    /// A message is hidden until another time: it has a pop check point of its own from now on, and is done for the
    /// former one. One write has both, the pop check point first: if only one were stored, the message would come back
    /// twice.
    pub(crate) fn put_change(
        &self,
        revive_queue: i32,
        (former, new): (&Taken<'_>, &Taken<'_>),
        offset: i64,
        suspend: bool,
    ) -> Result<Stored, Refusal> {
        let point = self.check_point(new, &[offset], suspend);
        self.put(revive_queue, &[point, ack(former, offset)])
    }

    fn check_point(&self, taken: &Taken<'_>, offsets: &[i64], suspend: bool) -> ReviveMessage {
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
        ReviveMessage {
            tag: CHECK_POINT_TAG,
            key: taken.key(taken.start_offset, CHECK_POINT_TAG),
            body: body.encode(),
            due_ms: revive_ms.saturating_sub(AHEAD_MS),
            log_end: Some(self.store.end_position()),
        }
    }

    /// Stores all of them or, if the timer refuses one, none.
    fn put(&self, revive_queue: i32, messages: &[ReviveMessage]) -> Result<Stored, Refusal> {
        let topic = revive_topic(self.cluster);
        let mut scheduled = Vec::with_capacity(messages.len());
        for message in messages {
            let mut pending = PendingMessage {
                message: message.of_queue(&topic, revive_queue, self.host),
                delay_level: 0,
            };
            self.timers.schedule(&mut pending)?;
            scheduled.push(pending.message);
        }
        let stored = self.store.put_all(&scheduled);
        stored.map_err(|error| Refusal::of_put(&error))
    }
}

fn ack(taken: &Taken<'_>, offset: i64) -> ReviveMessage {
    let body = AckMsg {
        ack_offset: offset,
        broker_name: Some(taken.broker_name.to_owned()),
        group: Some(taken.group.to_owned()),
        pop_time: taken.pop_time,
        queue_id: taken.queue_id,
        start_offset: taken.start_offset,
        topic: Some(taken.topic.to_owned()),
    };
    ReviveMessage {
        tag: ACK_TAG,
        key: taken.key(offset, ACK_TAG),
        body: body.encode(),
        due_ms: taken.due_ms(),
        log_end: None,
    }
}

impl ReviveMessage {
    fn of_queue<'a>(&'a self, topic: &'a str, queue_id: i32, host: SocketAddr) -> NewMessage<'a> {
        let mut text = String::with_capacity(192);
        properties::append(&mut text, names::TIMER_DELIVER_MS, &self.due_ms.to_string());
        properties::append(&mut text, names::UNIQ_KEY, &self.key);
        properties::append(&mut text, names::TAGS, self.tag);
        if let Some(log_end) = self.log_end {
            properties::append(&mut text, LOG_END, &log_end.to_string());
        }
        NewMessage {
            body: &self.body,
            properties: text.into(),
            tags_code: java_hash::tags_code(Some(self.tag)),
            unique_key: Some(&self.key),
            tag: Some(self.tag),
            ..NewMessage::new(topic, queue_id, host)
        }
    }
}

impl<'a> Taken<'a> {
    /// The messages that a handle stands for. The queue is that of the request, since a handle may have -1.
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
