//! Sends: 10, 310 and 320 (Apache `SendMessageProcessor`).
//!
//! ```text
//! header in one pass -> admission -> topic (made if allowed) -> properties copied once -> store -> answer
//! ```
//! With SYNC_FLUSH, or where the sender asks for it, the sends that a connection has at once are a burst: the fsync at its end, on
//! the connection's task while the disk is quick, serves all of them and whoever else waits, and their answers leave in one
//! write. No thread waits.

use super::properties::{self, Known};
use super::transaction;
use crate::admission;
use crate::draft::Draft;
use crate::error::Refusal;
use crate::state::topics::TopicConfig;
use crate::state::{State, born_host};
use crate::timer::Handle;
use pyrmq_remoting::codes::{request as request_code, response};
use pyrmq_remoting::header::SendMessageRequestHeader;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::{DURABILITY, Durability, batch, java_hash, sys_flag};
use pyrmq_remoting::net::{Peer, Processor, Reply};
use pyrmq_remoting::{Command, Fields};
use pyrmq_store::{Batch, BatchItem, Stored};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// From this version on a client's own maxReconsumeTimes counts (Apache `MQVersion.V3_4_9`).
pub(crate) const VERSION_MAX_RECONSUME: i32 = 121;

/// The delay level of a message that has had its tries (Apache `handleRetryAndDLQ`).
const NO_DELAY: &str = "-1";

/// Answers sends.
#[derive(Debug)]
pub(crate) struct Send {
    state: Arc<State>,
}

/// A stored message and what its sender is told.
pub(crate) struct Outcome {
    response: Command,
    /// Where the message ends in the log.
    end: i64,
    /// The level that the sender asked for: the answer says which was reached.
    asked: Option<Durability>,
    /// Whether the disk must have the message before the answer.
    waits: bool,
}

impl Processor for Send {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        match self.store(&request, peer) {
            Ok(outcome) => outcome.answer(&self.state, reply),
            Err(refusal) => {
                self.state.stats.put_failed.fetch_add(1, Ordering::Relaxed);
                reply.send(refusal.into_response());
            }
        }
    }

    fn joins_bursts(&self) -> bool {
        true
    }
}

impl Outcome {
    /// Answers now, or once the disk has it.
    fn answer(self, state: &State, reply: Reply) {
        let (mut response, asked) = (self.response, self.asked);
        if !self.waits {
            if asked.is_some() {
                tell(&mut response, state.store.durability(self.end));
            }
            reply.send(response);
            return;
        }
        state.store.when_durable_in_burst(
            self.end,
            Box::new(move |flushed| {
                if asked.is_some() {
                    let reached = flushed
                        .as_ref()
                        .map_or(Durability::Memory, |()| Durability::Local);
                    tell(&mut response, reached);
                }
                if let Err(error) = flushed {
                    // The message is stored and will be delivered: a timeout is a success with a warning.
                    let refusal = Refusal::of_flush(&error);
                    response.code = refusal.code;
                    response.remark = Some(refusal.remark);
                }
                reply.send(response);
            }),
        );
    }
}

fn tell(response: &mut Command, reached: Durability) {
    response.fields.push(DURABILITY, reached.name());
}

impl Send {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    fn store(&self, request: &Command, peer: &Peer) -> Result<Outcome, Refusal> {
        let header = SendMessageRequestHeader::decode(request.code, &request.fields)?;
        let body: &[u8] = request.body.as_deref().unwrap_or_default();
        let asked = asked_level(request)?;
        let topic = self.state.admit(&header, body.len(), peer)?;
        let queue_id = self.state.choose_queue(&topic, header.queue_id)?;
        let mut outcome = if header.batch || request.code == request_code::SEND_BATCH_MESSAGE {
            self.store_batch(&header, &topic, queue_id, body, peer)?
        } else {
            self.store_one(request, &header, topic, queue_id, peer)?
        };
        if let Some(level) = asked {
            (outcome.asked, outcome.waits) = (asked, level == Durability::Local);
        }
        Ok(outcome)
    }

    fn store_one(
        &self,
        request: &Command,
        header: &SendMessageRequestHeader<'_>,
        mut topic: Arc<TopicConfig>,
        mut queue_id: i32,
        peer: &Peer,
    ) -> Result<Outcome, Refusal> {
        let state = &self.state;
        let known = properties::look(header.properties.unwrap_or_default());
        let half = is_half(state, header, &known)?;
        refuse_unbuilt(header, &known)?;
        let mut delay_level = if half { 0 } else { known.delay_level };
        let gives_up = admission::is_retry(&topic.name) && self.gives_up(request, header, &topic.name)?;
        if gives_up {
            topic = state.dead_letter_topic(admission::group_of_retry(header.topic))?;
            (queue_id, delay_level) = (0, 0);
        }
        let made_key = known.unique_key.is_none().then(|| state.unique_key());
        let unique_key = known.unique_key.or(made_key.as_deref());
        let extra = state.own_properties.len() + 96 + topic.name.len();
        let mut text = properties::copy_for_store(
            header.properties.unwrap_or_default(),
            &known,
            extra,
            delay_level > 0,
        );
        if gives_up {
            text = properties::copy(&text, extra, |name| name == "DELAY");
            properties::append(&mut text, "DELAY", NO_DELAY);
        }
        text.push_str(&state.own_properties);
        if let Some(key) = &made_key {
            properties::append(&mut text, "UNIQ_KEY", key);
        }
        let mut sys_flag = header.sys_flag | topic.message_sys_flag();
        let (mut stored_topic, mut stored_queue) = (topic.name.as_str(), queue_id);
        if half {
            transaction::half_properties(&mut text, unique_key.unwrap_or_default(), &topic.name, queue_id);
            sys_flag = sys_flag::with_transaction(sys_flag, 0);
            (stored_topic, stored_queue) = (transaction::HALF_TOPIC, 0);
        }
        let mut draft = Draft {
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
            keys: known.keys,
            tags: known.tags,
        };
        let due_ms = if known.is_timer && delay_level <= 0 && !half {
            state.timers.hold(&mut draft)?
        } else {
            None
        };
        let stored = draft
            .put_in_burst(&state.store, &state.delays)
            .map_err(|error| Refusal::of_put(&error))?;
        if half {
            state
                .transactions
                .began(unique_key.unwrap_or_default(), stored.queue_offset);
        }
        let mut outcome = self.outcome(&stored, queue_id, unique_key, !known.no_wait);
        if let Some(due_ms) = due_ms.filter(|_| !admission::is_retry(&topic.name)) {
            let broker = &state.options.broker_name;
            let handle = Handle::write(&topic.name, broker, due_ms, unique_key.unwrap_or_default());
            outcome.response.fields.push("recallHandle", &handle);
        }
        Ok(outcome)
    }

    fn store_batch(
        &self,
        header: &SendMessageRequestHeader<'_>,
        topic: &TopicConfig,
        queue_id: i32,
        body: &[u8],
        peer: &Peer,
    ) -> Result<Outcome, Refusal> {
        let state = &self.state;
        let known = properties::look(header.properties.unwrap_or_default());
        refuse_in_batch(header, &known)?;
        let items = items_of(body)?;
        let stored = state.store.put_batch_in_burst(&Batch {
            topic: &topic.name,
            queue_id,
            sys_flag: header.sys_flag | topic.message_sys_flag(),
            born_timestamp_ms: header.born_timestamp,
            born_host: born_host(peer),
            store_host: state.store_host(),
            reconsume_times: header.reconsume_times.unwrap_or(0),
            items: &items,
        });
        let stored = stored.map_err(|error| Refusal::of_put(&error))?;
        Ok(self.outcome(&stored, queue_id, known.unique_key, !known.no_wait))
    }

    /// A retry that a client sends itself has had its tries, or its group consumes in order: then it is dead.
    fn gives_up(
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

    fn outcome(&self, stored: &Stored, queue_id: i32, unique_key: Option<&str>, waits: bool) -> Outcome {
        let state = &self.state;
        state.stats.count_put(u64::from(stored.count), bytes_of(stored));
        let mut response = Command::response(response::SUCCESS);
        let ids = 33 * stored.count as usize;
        response.fields = Fields::with_capacity(6, 160 + ids);
        response
            .fields
            .push_with("msgId", |text| write_ids(text, state.store_host(), stored));
        response
            .fields
            .push_with("queueId", |text| write_number(text, i64::from(queue_id)));
        response
            .fields
            .push_with("queueOffset", |text| write_number(text, stored.queue_offset));
        if let Some(key) = unique_key {
            response.fields.push("transactionId", key);
        }
        response.fields.push("MSG_REGION", &state.options.region_id);
        response
            .fields
            .push("TRACE_ON", if state.options.trace_on { "true" } else { "false" });
        Outcome {
            response,
            end: stored.end_position,
            asked: None,
            waits: waits && state.waits_for_disk,
        }
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
        let known = properties::look(properties);
        items.push(BatchItem {
            flag: item.flag,
            body: item.body,
            properties,
            tags_code: java_hash::tags_code(known.tags),
            unique_key: known.unique_key,
            keys: known.keys,
            tag: known.tags,
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
fn is_half(state: &State, header: &SendMessageRequestHeader<'_>, known: &Known<'_>) -> Result<bool, Refusal> {
    let prepared = sys_flag::transaction(header.sys_flag) == sys_flag::TRANSACTION_PREPARED;
    // Clients before 4.6.1 leave TRAN_MSG on a message that they give back themselves.
    let given_back = header.reconsume_times.unwrap_or(0) > 0 && known.delay_level > 0;
    let half = (known.is_transaction || prepared) && !given_back;
    if half && state.options.reject_transaction_message {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            "transactional messages are refused: rejectTransactionMessage",
        ));
    }
    Ok(half)
}

/// Refuses what has no home here yet, so that nobody believes it was done.
fn refuse_unbuilt(header: &SendMessageRequestHeader<'_>, known: &Known<'_>) -> Result<(), Refusal> {
    if known.is_inner_batch || header.sys_flag & sys_flag::INNER_BATCH != 0 {
        return Err(Refusal::new(
            response::MESSAGE_ILLEGAL,
            "inner batches need a topic of queue type BatchCQ",
        ));
    }
    Ok(())
}

/// What a batch cannot carry (Apache `SendMessageProcessor.sendBatchMessage`, `MessageBatch`).
fn refuse_in_batch(header: &SendMessageRequestHeader<'_>, known: &Known<'_>) -> Result<(), Refusal> {
    let reason = if admission::is_retry(header.topic) {
        "a batch cannot go to a retry topic"
    } else if known.delay_level > 0 || known.is_timer {
        "a batch cannot be delayed"
    } else if known.is_transaction || sys_flag::transaction(header.sys_flag) != 0 {
        "a batch cannot be part of a transaction"
    } else {
        return Ok(());
    };
    Err(Refusal::new(response::MESSAGE_ILLEGAL, reason))
}

/// Bytes of the stored records.
pub(crate) fn bytes_of(stored: &Stored) -> u64 {
    u64::try_from(stored.end_position - stored.physical_offset).unwrap_or(0)
}

fn write_ids(out: &mut String, host: SocketAddr, stored: &Stored) {
    for (at, offset) in stored.physical_offsets().iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        OffsetId {
            host,
            offset: *offset,
        }
        .write(out);
    }
}

fn write_number(out: &mut String, number: i64) {
    // Writing into a String cannot fail.
    write!(out, "{number}").unwrap_or_default();
}
