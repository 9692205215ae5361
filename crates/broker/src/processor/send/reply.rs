//! The response to a send, once the message is in the store or on disk.

use crate::context::BrokerContext;
use crate::delivery::timer::Handle;
use crate::error::Refusal;
use crate::tables::topics::Topic;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::HeadWriter;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::{DURABILITY, Durability};
use pyrmq_remoting::names::HALF_TOPIC;
use pyrmq_remoting::net::{Reply, RequestNames};
use pyrmq_remoting::sync::Completion;
use pyrmq_store::{OnDurable, StoreError, Stored};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A send that waits until its message is in the store or on disk. One allocation serves both waits.
#[derive(Debug)]
pub(super) struct PendingReply {
    pub(super) context: Arc<BrokerContext>,
    /// Where the response goes; `None` once it was sent.
    pub(super) reply: Option<Reply>,
    pub(super) queue_id: i32,
    /// Whether the sender requested a durability: then the response says which one was reached.
    pub(super) reports_durability: bool,
    /// Whether the message must be on disk before the response.
    pub(super) when_durable: bool,
    /// The system topic that holds the message until its transaction ends or it is due.
    pub(super) waits_in: Option<&'static str>,
    /// The topic that the sender named, or the dead-letter topic of its group.
    pub(super) topic: Arc<Topic>,
    /// When a recallable timer message is due, in ms.
    pub(super) recall: Option<i64>,
    /// The message's `UNIQ_KEY`; empty if it has none.
    pub(super) key: String,
    /// Where the message is stored, once that is known.
    pub(super) stored: Stored,
}

pub(super) fn refuse<'a>(
    context: &BrokerContext,
    request: impl Into<RequestNames<'a>>,
    refusal: Refusal,
    reply: Reply,
) {
    context.stats.put_failed.fetch_add(1, Ordering::Relaxed);
    context.refuse(request, reply, refusal);
}

impl Completion<Result<Stored, StoreError>, Option<(i64, OnDurable)>> for PendingReply {
    fn complete(mut self: Box<Self>, stored: Result<Stored, StoreError>) -> Option<(i64, OnDurable)> {
        match stored {
            Ok(stored) => {
                let context = &self.context;
                let (count, bytes) = (u64::from(stored.count), stored.bytes());
                context.stats.count_put(count, bytes);
                if let Some(topic) = self.waits_in {
                    context.topics.count_waiting(topic, bytes);
                }
                if self.is_half() {
                    context.transactions.began(&context.offsets, &self.key, &stored);
                } else {
                    self.topic.traffic.count_put(count, bytes);
                }
                let end = stored.end_position;
                self.stored = stored;
                if self.when_durable {
                    return Some((end, self));
                }
                let reached = self.context.store.durability(end);
                self.send(response::SUCCESS, None, reached);
            }
            Err(error) => {
                let reply = self.reply.take()?;
                refuse(&self.context, self.names(&reply), Refusal::of_put(&error), reply);
            }
        }
        None
    }
}

impl Completion<Result<(), StoreError>> for PendingReply {
    fn complete(self: Box<Self>, flushed: Result<(), StoreError>) {
        let reached = flushed
            .as_ref()
            .map_or(Durability::Memory, |()| Durability::Local);
        // The message is stored and will be delivered, so a timeout is a success with a warning. After a failed fsync
        // the message is in the log too, but the next start decides whether it stays.
        let half = self.is_half();
        let late = flushed.err().map(|error| Refusal::of_flush(&error, half));
        self.log(late.as_ref());
        let code = late.as_ref().map_or(response::SUCCESS, |late| late.code);
        self.send(code, late.as_ref().map(|late| late.remark.as_str()), reached);
    }
}

impl PendingReply {
    fn send(mut self: Box<Self>, code: i32, remark: Option<&str>, reached: Durability) {
        if let Some(reply) = self.reply.take() {
            reply.send_written(code, remark, |head| self.write(reached, head));
        }
    }

    /// Writes the fields of `SendMessageResponseHeader` and the broker's own into the frame's head. By hand, because
    /// that structure borrows the message id as text: here its digits go straight into the frame.
    fn write(&self, reached: Durability, head: &mut HeadWriter<'_>) {
        let context = &self.context;
        head.plain("msgId", |out| write_ids(out, context.store_host(), &self.stored));
        head.number("queueId", i64::from(self.queue_id));
        head.number("queueOffset", self.stored.queue_offset);
        if !self.key.is_empty() {
            head.text("transactionId", &self.key);
        }
        head.shared(&context.broker_fields().answer);
        if let Some(due_ms) = self.recall {
            let broker = &context.options.broker_name;
            let handle = Handle::write(&self.topic.topic_name, broker, due_ms, &self.key);
            head.text("recallHandle", &handle);
        }
        if self.reports_durability {
            head.text(DURABILITY, reached.name());
        }
    }

    /// Whether this is the first phase of a transaction.
    fn is_half(&self) -> bool {
        self.waits_in == Some(HALF_TOPIC)
    }

    /// Writes a line if the disk was slow or failed.
    fn log(&self, late: Option<&Refusal>) {
        let Some(reply) = &self.reply else { return };
        let (log, from) = (&self.context.requests, reply.peer().remote());
        let names = self.names(reply);
        match (late, reply.arrived()) {
            (Some(late), _) => log.refused(names, from, late.code, &late.remark),
            (None, Some(arrived)) => {
                log.served(names, from, (Duration::ZERO, arrived.elapsed()));
            }
            (None, None) => {}
        }
    }

    /// The names that the log writes for the send. Its group is not kept.
    fn names(&self, reply: &Reply) -> RequestNames<'_> {
        RequestNames {
            code: reply.request_code(),
            topic: &self.topic.topic_name,
            group: "",
        }
    }
}

fn write_ids(out: &mut Vec<u8>, host: SocketAddr, stored: &Stored) {
    for (at, offset) in stored.physical_offsets().iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let id = OffsetId {
            host,
            offset: *offset,
        };
        out.extend_from_slice(id.digits().as_bytes());
    }
}
