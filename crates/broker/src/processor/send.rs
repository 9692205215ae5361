//! Sends: 10, 310 and 320 (Apache `SendMessageProcessor`).
//!
//! ```text
//! each send                          header in one pass -> admission -> topic (made if allowed)
//!                                      -> properties copied once -> record laid out in the connection's append batch
//! behind the last one of the batch   all records in one write -> answers
//! ```
//! With SYNC_FLUSH, or where the sender asks for it, the fsync at the end of a batch, on the connection's task while
//! the disk is quick, serves all of them and whoever else waits, and their answers leave in one write. No thread waits.

use crate::admission;
use crate::context::{State, born_host};
use crate::delivery::timer::Handle;
use crate::delivery::transactions;
use crate::error::Refusal;
use crate::message::pending::PendingMessage;
use crate::message::properties::{self, ParsedProperties};
use crate::tables::topics::Topic;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request as request_code, response};
use pyrmq_remoting::header::{HeadWriter, SendMessageRequestHeader};
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::{DURABILITY, Durability, batch, java_hash, sys_flag};
use pyrmq_remoting::names::{HALF_TOPIC, is_retry};
use pyrmq_remoting::net::{BatchProcessor, Peer, Reply, RequestBatch};
use pyrmq_store::{self as store, AppendBatch, Batch, BatchItem, OnDurable, OnStored, StoreError, Stored};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// From this version on a client's own maxReconsumeTimes counts (Apache `MQVersion.V3_4_9`).
pub(crate) const VERSION_MAX_RECONSUME: i32 = 121;

/// The delay level of a message that has had its tries (Apache `handleRetryAndDLQ`).
const NO_DELAY: &str = "-1";

/// Answers sends.
#[derive(Debug, Clone)]
pub(crate) struct Send {
    state: Arc<State>,
}

/// The sends of a connection that came together.
#[derive(Debug)]
struct SendBatch {
    send: Send,
    puts: AppendBatch,
}

/// What the sender of a stored message is told besides where it went.
#[derive(Debug)]
struct Answer {
    queue_id: i32,
    /// The sender asked for a level: the answer says which was reached.
    is_asked: bool,
    /// Whether the disk must have the message before the answer.
    waits: bool,
    /// The first phase of a transaction.
    half: bool,
    /// The topic that the sender named, or the dead-letter topic of its group.
    topic: Arc<Topic>,
    /// When a timer message that can be taken back is due, ms.
    recall: Option<i64>,
}

impl BatchProcessor for Send {
    fn batch(&self) -> Box<dyn RequestBatch> {
        Box::new(SendBatch {
            send: self.clone(),
            puts: self.state.store.append_batch(),
        })
    }
}

impl RequestBatch for SendBatch {
    fn process(&mut self, request: Command, peer: &Peer, reply: Reply) {
        let mut reply = Some(reply);
        if let Err(refusal) = self.send.stage(&request, peer, &mut reply, &mut self.puts)
            && let Some(reply) = reply
        {
            refuse(&self.send.state, refusal, reply);
        }
    }

    fn end(&mut self) {
        self.puts.commit();
    }
}

fn refuse(state: &State, refusal: Refusal, reply: Reply) {
    state.stats.put_failed.fetch_add(1, Ordering::Relaxed);
    reply.send(refusal.into_response());
}

/// A send on its way: its sender is answered once the store has it, or once the disk has it. One piece of memory for
/// both, and for a later send.
#[derive(Debug, Default)]
struct PendingReply {
    /// Until the answer.
    open_reply: Option<OpenReply>,
    /// Its `UNIQ_KEY`; empty where it has none.
    key: String,
    /// Where it went, once that is known.
    stored: Stored,
}

#[derive(Debug)]
struct OpenReply {
    state: Arc<State>,
    reply: Reply,
    answer: Answer,
}

/// Sends whose memory a thread keeps, as many as a connection has on their way at once, and how long their keys may be.
const MAX_SPARES: usize = 64;
const SPARE_KEY: usize = 256;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    static SPARE: RefCell<Vec<Box<PendingReply>>> = const { RefCell::new(Vec::new()) };
}

impl OnStored for PendingReply {
    fn stored(mut self: Box<Self>, stored: Result<Stored, StoreError>) -> Option<(i64, OnDurable)> {
        let OpenReply { state, answer, .. } = self.open_reply.as_ref()?;
        match stored {
            Ok(stored) => {
                let (count, bytes) = (u64::from(stored.count), stored.bytes());
                state.stats.count_put(count, bytes);
                if answer.half {
                    state.transactions.began(&self.key, stored.queue_offset);
                } else {
                    answer.topic.traffic.count_put(count, bytes);
                }
                let end = stored.end_position;
                self.stored = stored;
                if answer.waits {
                    return Some((end, self));
                }
                let reached = state.store.durability(end);
                self.send(response::SUCCESS, None, reached);
            }
            Err(error) => {
                if let Some(OpenReply { state, reply, .. }) = self.open_reply.take() {
                    refuse(&state, Refusal::of_put(&error), reply);
                }
            }
        }
        None
    }
}

impl store::DurableCallback<StoreError> for PendingReply {
    fn complete(self: Box<Self>, flushed: Result<(), StoreError>) {
        let reached = flushed
            .as_ref()
            .map_or(Durability::Memory, |()| Durability::Local);
        // The message is stored and will be delivered: a timeout is a success with a warning. After a failed fsync too
        // it is in the log, but the next start decides whether it stays.
        let half = self
            .open_reply
            .as_ref()
            .is_some_and(|open_reply| open_reply.answer.half);
        let late = flushed.err().map(|error| Refusal::of_flush(&error, half));
        let code = late.as_ref().map_or(response::SUCCESS, |late| late.code);
        self.send(code, late.as_ref().map(|late| late.remark.as_str()), reached);
    }
}

impl PendingReply {
    fn send(mut self: Box<Self>, code: i32, remark: Option<&str>, reached: Durability) {
        if let Some(OpenReply { state, reply, answer }) = self.open_reply.take() {
            reply.send_written(code, remark, |head| {
                answer.write(&state, &self, reached, head);
            });
        }
        // A batch's places and a long key are not kept.
        if self.stored.batch_offsets.is_empty() && self.key.capacity() <= SPARE_KEY {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < MAX_SPARES {
                    spare.push(self);
                }
            });
        }
    }
}

impl Answer {
    /// The fields of the answer.
    fn write(
        &self,
        state: &State,
        pending_reply: &PendingReply,
        reached: Durability,
        head: &mut HeadWriter<'_>,
    ) {
        head.plain("msgId", |out| {
            write_ids(out, state.store_host(), &pending_reply.stored);
        });
        head.number("queueId", i64::from(self.queue_id));
        head.number("queueOffset", pending_reply.stored.queue_offset);
        if !pending_reply.key.is_empty() {
            head.text("transactionId", &pending_reply.key);
        }
        head.shared(&state.said().answer);
        if let Some(due_ms) = self.recall {
            let broker = &state.options.broker_name;
            let handle = Handle::write(&self.topic.topic_name, broker, due_ms, &pending_reply.key);
            head.text("recallHandle", &handle);
        }
        if self.is_asked {
            head.text(DURABILITY, reached.name());
        }
    }
}

impl Send {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    /// Takes the reply once the store has the message to lay out; what is refused before leaves it.
    fn stage(
        &self,
        request: &Command,
        peer: &Peer,
        reply: &mut Option<Reply>,
        puts: &mut AppendBatch,
    ) -> Result<(), Refusal> {
        let header = SendMessageRequestHeader::decode(request.code, &request.fields)?;
        let body: &[u8] = request.body.as_deref().unwrap_or_default();
        let asked = asked_level(request)?;
        let topic = self.state.admit(&header, body.len(), peer)?;
        let queue_id = self.state.choose_queue(&topic, header.queue_id)?;
        if header.batch || request.code == request_code::SEND_BATCH_MESSAGE {
            self.stage_batch(body, &header, (topic, queue_id), asked, peer, (reply, puts))
        } else {
            self.stage_one(request, &header, (topic, queue_id), asked, peer, (reply, puts))
        }
    }

    fn stage_one(
        &self,
        request: &Command,
        header: &SendMessageRequestHeader<'_>,
        (mut topic, mut queue_id): (Arc<Topic>, i32),
        asked: Option<Durability>,
        peer: &Peer,
        (reply, puts): (&mut Option<Reply>, &mut AppendBatch),
    ) -> Result<(), Refusal> {
        let state = &self.state;
        let parsed = properties::parse(header.properties.unwrap_or_default());
        let half = is_half(state, header, &parsed)?;
        refuse_unsupported(header, &parsed)?;
        let mut delay_level = if half { 0 } else { parsed.delay_level };
        let exceeds_retries =
            is_retry(&topic.topic_name) && self.exceeds_retries(request, header, &topic.topic_name)?;
        if exceeds_retries {
            topic = state.dead_letter_topic(admission::group_of_retry(header.topic))?;
            (queue_id, delay_level) = (0, 0);
        }
        let made_key = parsed.unique_key.is_none().then(|| state.unique_key());
        let unique_key = parsed.unique_key.or(made_key.as_deref());
        let own = &state.said().properties;
        let extra = own.len() + 96 + topic.topic_name.len();
        let mut text = properties::copy_for_store(
            header.properties.unwrap_or_default(),
            &parsed,
            extra,
            delay_level > 0,
        );
        if exceeds_retries {
            text = properties::copy(&text, extra, |name| name == "DELAY");
            properties::append(&mut text, "DELAY", NO_DELAY);
        }
        text.push_str(own);
        if let Some(key) = &made_key {
            properties::append(&mut text, "UNIQ_KEY", key);
        }
        let mut sys_flag = header.sys_flag | topic.message_sys_flag();
        let (mut stored_topic, mut stored_queue) = (topic.topic_name.as_str(), queue_id);
        if half {
            transactions::half_properties(
                &mut text,
                unique_key.unwrap_or_default(),
                &topic.topic_name,
                queue_id,
            );
            sys_flag = sys_flag::with_transaction(sys_flag, 0);
            (stored_topic, stored_queue) = (HALF_TOPIC, 0);
        }
        let mut pending = PendingMessage {
            topic: stored_topic,
            queue_id: stored_queue,
            delay_level,
            flag: header.flag,
            sys_flag,
            born_ms: header.born_timestamp,
            born_host: born_host(peer),
            store_host: state.store_host(),
            reconsume_times: header.reconsume_times.unwrap_or(0),
            body: request.body.as_deref().unwrap_or_default(),
            properties: text,
            unique_key,
            keys: parsed.keys,
            tags: parsed.tags,
        };
        let due_ms = if parsed.is_timer && delay_level <= 0 && !half {
            state.timers.schedule(&mut pending)?
        } else {
            None
        };
        let answer = Answer {
            queue_id,
            is_asked: asked.is_some(),
            waits: self.waits(asked, &parsed),
            half,
            recall: due_ms.filter(|_| !is_retry(&topic.topic_name)),
            topic: Arc::clone(&topic),
        };
        let pending_reply = self.pending_reply(reply, answer, unique_key);
        pending.stage(puts, state.delays.levels(), pending_reply);
        Ok(())
    }

    fn pending_reply(
        &self,
        reply: &mut Option<Reply>,
        answer: Answer,
        key: Option<&str>,
    ) -> Box<PendingReply> {
        let mut pending_reply = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        pending_reply.key.clear();
        pending_reply.key.push_str(key.unwrap_or_default());
        pending_reply.open_reply = reply.take().map(|reply| OpenReply {
            state: Arc::clone(&self.state),
            reply,
            answer,
        });
        pending_reply
    }

    fn waits(&self, asked: Option<Durability>, parsed: &ParsedProperties<'_>) -> bool {
        asked.map_or(!parsed.no_wait && self.state.waits_for_disk(), |level| {
            level == Durability::Local
        })
    }

    fn stage_batch(
        &self,
        body: &[u8],
        header: &SendMessageRequestHeader<'_>,
        (topic, queue_id): (Arc<Topic>, i32),
        asked: Option<Durability>,
        peer: &Peer,
        (reply, puts): (&mut Option<Reply>, &mut AppendBatch),
    ) -> Result<(), Refusal> {
        let state = &self.state;
        let parsed = properties::parse(header.properties.unwrap_or_default());
        refuse_unsupported(header, &parsed)?;
        refuse_in_batch(header, &parsed)?;
        let items = items_of(body)?;
        let answer = Answer {
            queue_id,
            is_asked: asked.is_some(),
            waits: self.waits(asked, &parsed),
            half: false,
            recall: None,
            topic: Arc::clone(&topic),
        };
        let batch = Batch {
            topic: &topic.topic_name,
            queue_id,
            sys_flag: header.sys_flag | topic.message_sys_flag(),
            born_timestamp_ms: header.born_timestamp,
            born_host: born_host(peer),
            store_host: state.store_host(),
            reconsume_times: header.reconsume_times.unwrap_or(0),
            items: &items,
        };
        puts.stage_batch(&batch, self.pending_reply(reply, answer, parsed.unique_key));
        Ok(())
    }

    /// A retry that a client sends itself has had its tries, or its group consumes in order: then it is dead.
    fn exceeds_retries(
        &self,
        request: &Command,
        header: &SendMessageRequestHeader<'_>,
        topic: &str,
    ) -> Result<bool, Refusal> {
        let group = admission::group_of_retry(topic);
        let config = self.state.group(group)?;
        let own_limit = header
            .max_reconsume_times
            .filter(|_| request.version >= VERSION_MAX_RECONSUME);
        let limit = own_limit.unwrap_or(config.retry_max_times);
        Ok(header.reconsume_times.unwrap_or(0) > limit
            || self.state.locks.is_held(group, pyrmq_remoting::clock::now_ms()))
    }
}

/// The messages of a batch body, each with its own properties and no others: those of the batch and of the broker
/// are stored with none of them, as 5.5.0 does (4.9 appends the batch's, with its `UNIQ_KEY`, to each).
fn items_of(body: &[u8]) -> Result<Vec<BatchItem<'_>>, Refusal> {
    let mut items = Vec::new();
    for item in batch::items(body) {
        let illegal = |text| Refusal::new(response::MESSAGE_ILLEGAL, text);
        let item = item.map_err(|error| illegal(format!("message {} of the batch: {error}", items.len())))?;
        let properties = std::str::from_utf8(item.properties)
            .map_err(|_| illegal("properties in the batch are not UTF-8".to_owned()))?;
        let parsed = properties::parse(properties);
        items.push(BatchItem {
            flag: item.flag,
            body: item.body,
            properties,
            tags_code: java_hash::tags_code(parsed.tags),
            unique_key: parsed.unique_key,
            keys: parsed.keys,
            tag: parsed.tags,
        });
    }
    Ok(items)
}

/// The durability that a sender of ours asks for.
fn asked_level(request: &Command) -> Result<Option<Durability>, Refusal> {
    let Some(name) = request.fields.get(DURABILITY) else {
        return Ok(None);
    };
    let illegal = || {
        let text = format!("durability `{name}` is not known to this broker, it must be `memory` or `local`");
        Refusal::new(response::MESSAGE_ILLEGAL, text)
    };
    Durability::of_name(name).map(Some).ok_or_else(illegal)
}

/// Whether this is the first phase of a transaction.
fn is_half(
    state: &State,
    header: &SendMessageRequestHeader<'_>,
    parsed: &ParsedProperties<'_>,
) -> Result<bool, Refusal> {
    let prepared = sys_flag::transaction(header.sys_flag) == sys_flag::TRANSACTION_PREPARED;
    // Clients before 4.6.1 leave TRAN_MSG on a message that they give back themselves.
    let given_back = header.reconsume_times.unwrap_or(0) > 0 && parsed.delay_level > 0;
    let half = (parsed.is_transaction || prepared) && !given_back;
    if half && state.live.reject_transaction_message() {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            "transactional messages are refused: rejectTransactionMessage",
        ));
    }
    Ok(half)
}

/// Refuses messages of kinds that are not implemented yet, and messages that would be stored where no reader sees them.
pub(crate) fn refuse_unsupported(
    header: &SendMessageRequestHeader<'_>,
    parsed: &ParsedProperties<'_>,
) -> Result<(), Refusal> {
    let reason = if parsed.is_inner_batch || header.sys_flag & sys_flag::INNER_BATCH != 0 {
        "inner batches need a topic of queue type BatchCQ"
    } else if sys_flag::transaction(header.sys_flag) == sys_flag::TRANSACTION_ROLLBACK {
        "the sysFlag says that the message is rolled back: nobody would ever read it"
    } else if parsed.is_bad_delay {
        "the property DELAY is no number"
    } else {
        return Ok(());
    };
    Err(Refusal::new(response::MESSAGE_ILLEGAL, reason))
}

/// What a batch cannot carry (Apache `SendMessageProcessor.sendBatchMessage`, `MessageBatch`).
fn refuse_in_batch(
    header: &SendMessageRequestHeader<'_>,
    parsed: &ParsedProperties<'_>,
) -> Result<(), Refusal> {
    let reason = if is_retry(header.topic) {
        "a batch cannot go to a retry topic"
    } else if parsed.delay_level > 0 || parsed.is_timer {
        "a batch cannot be delayed"
    } else if parsed.is_transaction || sys_flag::transaction(header.sys_flag) != 0 {
        "a batch cannot be part of a transaction"
    } else {
        return Ok(());
    };
    Err(Refusal::new(response::MESSAGE_ILLEGAL, reason))
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
