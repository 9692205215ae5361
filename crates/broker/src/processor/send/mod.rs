//! Sends: 10, 310 and 320 (Apache `SendMessageProcessor`).
//!
//! ```text
//! each send                          header in one pass -> admission -> topic (created if allowed)
//!                                      -> properties copied once -> record laid out in the connection's append batch
//! after the last one of the batch    all records in one write -> answers
//! ```
//! With SYNC_FLUSH, or if a sender requests it, one fsync at the end of a batch serves all its sends and all other
//! waiting ones; while the disk is fast, it runs on the connection's task. Their responses leave in one write. No
//! thread waits. A send that would create a topic or a group waits for them elsewhere (`processor/auto_create.rs`).

mod checks;
mod first_send;
mod reply;

pub(crate) use checks::refuse_unsupported;

use crate::context::{BrokerContext, NewGroup, born_host};
use crate::delivery::{half, transactions};
use crate::error::Refusal;
use crate::message::pending::PendingMessage;
use crate::message::properties::{self, ParsedProperties, names};
use crate::processor::auto_create::{AutoCreateQueue, Missing, Resume};
use crate::tables::topics::Topic;
use checks::{is_half, refuse_in_batch, requested_level};
use first_send::FirstSend;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::SubscriptionGroupConfig;
use pyrmq_remoting::codes::{request as request_code, response};
use pyrmq_remoting::header::SendMessageRequestHeader;
use pyrmq_remoting::message::{Durability, batch, java_hash, sys_flag};
use pyrmq_remoting::names::{HALF_TOPIC, dead_letter_topic, group_of_retry, is_retry};
use pyrmq_remoting::net::{BatchProcessor, Peer, Reply, RequestBatch};
use pyrmq_store::{AppendBatch, BatchMessage, MessageBatch, NewMessage, Stored};
use reply::{PendingReply, refuse};
use std::sync::Arc;

/// From this version on a client's own maxReconsumeTimes applies (Apache `MQVersion.V3_4_9`).
pub(crate) const VERSION_MAX_RECONSUME: i32 = 121;

/// The delay level of a message whose retries are used up (Apache `handleRetryAndDLQ`).
const NO_DELAY: &str = "-1";

/// Serves sends.
#[derive(Debug, Clone)]
pub(crate) struct Send {
    context: Arc<BrokerContext>,
    /// Where sends wait for what they create; `None`: they create it here.
    auto_create: Option<AutoCreateQueue>,
}

/// The sends of a connection that arrived together.
#[derive(Debug)]
struct SendBatch {
    send: Send,
    puts: AppendBatch,
    first: FirstSend,
}

/// Where a message goes.
struct StoreTarget {
    topic: Arc<Topic>,
    queue_id: i32,
    delay_level: i32,
    /// The topic is that of the group's dead letters.
    is_dead_letter: bool,
}

impl BatchProcessor for Send {
    fn batch(&self) -> Box<dyn RequestBatch> {
        Box::new(SendBatch {
            send: self.clone(),
            puts: self.context.store.append_batch(),
            first: FirstSend::default(),
        })
    }
}

impl RequestBatch for SendBatch {
    fn process(&mut self, request: Command, peer: &Peer, reply: Reply) {
        self.first.note(&request, &reply);
        let mut reply = Some(reply);
        let staged = self.send.stage(&request, peer, &mut reply, &mut self.puts);
        let Some(reply) = reply else { return };
        match staged {
            Ok(Some(missing)) => self.send.wait_until_created(missing, request, reply),
            Ok(None) => {}
            Err(refusal) => refuse(&self.send.context, &request, refusal, reply),
        }
    }

    fn end(&mut self) {
        self.puts.commit();
        self.first.end(&self.send.context.requests);
    }
}

impl Send {
    pub(crate) fn new(context: Arc<BrokerContext>, auto_create: AutoCreateQueue) -> Self {
        Self {
            context,
            auto_create: Some(auto_create),
        }
    }

    /// Stages a send. Takes the reply out only once the message is staged; a refused send leaves it, and so does one
    /// that must wait for what is returned.
    fn stage(
        &self,
        request: &Command,
        peer: &Peer,
        reply: &mut Option<Reply>,
        puts: &mut AppendBatch,
    ) -> Result<Option<Missing>, Refusal> {
        let header = SendMessageRequestHeader::decode(request.code, &request.fields)?;
        let body: &[u8] = request.body.as_deref().unwrap_or_default();
        let level = requested_level(request)?;
        let known = self.context.find_topic(&header, request)?;
        if let Some(missing) = self.missing(&header, request, peer, known.is_some()) {
            return Ok(Some(missing));
        }
        let topic = self.context.admit_to(known, &header, request, peer)?;
        let queue_id = self.context.choose_queue(&topic, header.queue_id)?;
        if let Some(level) = level {
            let checked = self.context.store.check_waiter(level);
            checked.map_err(|error| Refusal::of_put(&error))?;
        }
        if is_batch(&header, request) {
            self.stage_batch(body, &header, (topic, queue_id), level, peer, (reply, puts))
        } else {
            self.stage_one(request, &header, (topic, queue_id), level, peer, (reply, puts))
        }
        .map(|()| None)
    }

    /// What a send would create, and the key of earlier sends of its connection that it must follow. `None`: it may be
    /// staged.
    fn missing(
        &self,
        header: &SendMessageRequestHeader<'_>,
        request: &Command,
        peer: &Peer,
        is_known: bool,
    ) -> Option<Missing> {
        let auto_create = self.auto_create.as_ref()?;
        let mut missing = Missing::default();
        let mut must_wait = auto_create.must_follow(peer, header.topic);
        let has_topic = is_known
            || match self.context.awaited_topic(header, request, peer) {
                Some(topic) => {
                    missing.topics.push(topic);
                    must_wait = true;
                    true
                }
                // The send is refused later.
                None => false,
            };
        if has_topic && is_retry(header.topic) && !is_batch(header, request) {
            let new = self.missing_of_group(header, request);
            must_wait |= new.is_some();
            missing.groups.extend(new);
        }
        must_wait.then(|| Missing {
            order_key: Some(header.topic.to_owned()),
            ..missing
        })
    }

    /// What a send to a retry topic creates of its group: the group, or the topic of its dead letters.
    fn missing_of_group(&self, header: &SendMessageRequestHeader<'_>, request: &Command) -> Option<NewGroup> {
        let name = group_of_retry(header.topic)?;
        let known = self.context.groups.get(name);
        if known.is_none() && !self.context.may_create_group(name) {
            return None;
        }
        let (is_known, group) = (known.is_some(), known.unwrap_or_default());
        let dead_letters = dead_letter_topic(name);
        let new = NewGroup {
            dead_letters: self.is_last(request, header, (name, &group))
                && self.context.topics.get(&dead_letters).is_none(),
            ..NewGroup::new(name)
        };
        (!is_known || new.dead_letters).then_some(new)
    }

    /// Queues a send until the topic and the group that it needs exist.
    fn wait_until_created(&self, missing: Missing, request: Command, reply: Reply) {
        let Some(auto_create) = &self.auto_create else {
            return;
        };
        let here = Self {
            context: self.context.clone(),
            auto_create: None,
        };
        auto_create.enqueue(missing, request, reply, Resume::Batched(Arc::new(here)));
    }

    fn stage_one(
        &self,
        request: &Command,
        header: &SendMessageRequestHeader<'_>,
        queue: (Arc<Topic>, i32),
        level: Option<Durability>,
        peer: &Peer,
        (reply, puts): (&mut Option<Reply>, &mut AppendBatch),
    ) -> Result<(), Refusal> {
        let context = &self.context;
        let parsed = properties::parse(header.properties.unwrap_or_default());
        let half = is_half(context, header, &parsed)?;
        refuse_unsupported(header, &parsed)?;
        let delay_level = if half { 0 } else { parsed.delay_level };
        let target = self.target(request, header, queue, delay_level)?;
        let (topic, queue_id) = (&target.topic, target.queue_id);
        let made_key = parsed.unique_key.is_none().then(|| context.unique_key());
        let unique_key = parsed.unique_key.or(made_key.as_deref());
        let mut text = self.stored_properties(header, &parsed, made_key.as_deref(), &target);
        let sys_flag = header.sys_flag | topic.message_sys_flag();
        let (stored_topic, stored_queue, sys_flag) = if half {
            let key = unique_key.unwrap_or_default();
            transactions::half_properties(&mut text, key, &topic.topic_name, queue_id);
            (HALF_TOPIC, half::QUEUE, sys_flag::with_transaction(sys_flag, 0))
        } else {
            (topic.topic_name.as_str(), queue_id, sys_flag)
        };
        let mut pending = PendingMessage {
            message: NewMessage {
                topic: stored_topic,
                queue_id: stored_queue,
                flag: header.flag,
                sys_flag,
                born_timestamp_ms: header.born_timestamp,
                born_host: born_host(peer),
                store_host: context.store_host(),
                reconsume_times: header.reconsume_times.unwrap_or(0),
                prepared_transaction_offset: 0,
                body: request.body.as_deref().unwrap_or_default(),
                properties: text.into(),
                tags_code: java_hash::tags_code(parsed.tags),
                unique_key,
                keys: parsed.keys,
                tag: parsed.tags,
            },
            delay_level: target.delay_level,
        };
        let due_ms = self.due_ms(&mut pending, &parsed, half)?;
        let mut answer = self.answer(reply, (topic, queue_id), level, (&parsed, unique_key));
        answer.waits_in = pending.waits_in();
        answer.recall = due_ms.filter(|_| !is_retry(&topic.topic_name));
        let levels = context.delays.levels();
        pending.stage(puts, levels, answer);
        Ok(())
    }

    /// Where a message for this queue is stored: there, or in the dead-letter topic of its group.
    fn target(
        &self,
        request: &Command,
        header: &SendMessageRequestHeader<'_>,
        (topic, queue_id): (Arc<Topic>, i32),
        delay_level: i32,
    ) -> Result<StoreTarget, Refusal> {
        let dead_letters = self.dead_letter_topic(request, header, &topic.topic_name)?;
        Ok(match dead_letters {
            Some(topic) => StoreTarget {
                topic,
                queue_id: 0,
                delay_level: 0,
                is_dead_letter: true,
            },
            None => StoreTarget {
                topic,
                queue_id,
                delay_level,
                is_dead_letter: false,
            },
        })
    }

    /// Passes a message with a delivery time to the timer. Returns when it is due, in ms.
    fn due_ms(
        &self,
        pending: &mut PendingMessage<'_>,
        parsed: &ParsedProperties<'_>,
        half: bool,
    ) -> Result<Option<i64>, Refusal> {
        if parsed.is_timer && pending.delay_level <= 0 && !half {
            self.context.timers.schedule(pending)
        } else {
            Ok(None)
        }
    }

    /// The sender's properties and the broker's own, and the unique key that was created for a message without one.
    fn stored_properties(
        &self,
        header: &SendMessageRequestHeader<'_>,
        parsed: &ParsedProperties<'_>,
        made_key: Option<&str>,
        target: &StoreTarget,
    ) -> String {
        let own = &self.context.broker_fields().properties;
        let extra = own.len() + 96 + target.topic.topic_name.len();
        let sent = header.properties.unwrap_or_default();
        let mut text = properties::copy_for_store(sent, parsed, extra, target.delay_level > 0);
        if target.is_dead_letter {
            text = properties::copy(&text, extra, |name| name == names::DELAY);
            properties::append(&mut text, names::DELAY, NO_DELAY);
        }
        text.push_str(own);
        if let Some(key) = made_key {
            properties::append(&mut text, names::UNIQ_KEY, key);
        }
        text
    }

    /// The answer to a send. `waits_in` and `recall` are those of a message that consumers see at once, and of a batch.
    fn answer(
        &self,
        reply: &mut Option<Reply>,
        (topic, queue_id): (&Arc<Topic>, i32),
        level: Option<Durability>,
        (parsed, key): (&ParsedProperties<'_>, Option<&str>),
    ) -> Box<PendingReply> {
        Box::new(PendingReply {
            context: Arc::clone(&self.context),
            reply: reply.take(),
            queue_id,
            reports_durability: level.is_some(),
            when_durable: level.map_or(!parsed.no_wait && self.context.waits_for_disk(), |level| {
                level == Durability::Local
            }),
            waits_in: None,
            topic: Arc::clone(topic),
            recall: None,
            key: key.unwrap_or_default().to_owned(),
            stored: Stored::default(),
        })
    }

    fn stage_batch(
        &self,
        body: &[u8],
        header: &SendMessageRequestHeader<'_>,
        (topic, queue_id): (Arc<Topic>, i32),
        level: Option<Durability>,
        peer: &Peer,
        (reply, puts): (&mut Option<Reply>, &mut AppendBatch),
    ) -> Result<(), Refusal> {
        let context = &self.context;
        let parsed = properties::parse(header.properties.unwrap_or_default());
        refuse_unsupported(header, &parsed)?;
        refuse_in_batch(header, &parsed)?;
        let items = items_of(body)?;
        let answer = self.answer(reply, (&topic, queue_id), level, (&parsed, parsed.unique_key));
        let batch = MessageBatch {
            topic: &topic.topic_name,
            queue_id,
            sys_flag: header.sys_flag | topic.message_sys_flag(),
            born_timestamp_ms: header.born_timestamp,
            born_host: born_host(peer),
            store_host: context.store_host(),
            reconsume_times: header.reconsume_times.unwrap_or(0),
            items: &items,
        };
        puts.stage_batch(&batch, answer);
        Ok(())
    }

    /// The dead-letter topic, for a retry that may not be tried again: a client sent it itself after its last try, or
    /// its group consumes in order. `None` for any other message.
    fn dead_letter_topic(
        &self,
        request: &Command,
        header: &SendMessageRequestHeader<'_>,
        topic: &str,
    ) -> Result<Option<Arc<Topic>>, Refusal> {
        let Some(group) = group_of_retry(topic) else {
            return Ok(None);
        };
        let config = self.context.group(group)?;
        if !self.is_last(request, header, (group, &config)) {
            return Ok(None);
        }
        self.context.dead_letter_topic(group).map(Some)
    }

    /// Whether a retry goes to the dead letters of its group.
    fn is_last(
        &self,
        request: &Command,
        header: &SendMessageRequestHeader<'_>,
        (group, config): (&str, &SubscriptionGroupConfig),
    ) -> bool {
        let own_limit = header
            .max_reconsume_times
            .filter(|_| request.version >= VERSION_MAX_RECONSUME);
        let limit = own_limit.unwrap_or(config.retry_max_times);
        let now_ms = pyrmq_remoting::clock::now_ms();
        header.reconsume_times.unwrap_or(0) > limit || self.context.locks.is_held(group, now_ms)
    }
}

fn is_batch(header: &SendMessageRequestHeader<'_>, request: &Command) -> bool {
    header.batch || request.code == request_code::SEND_BATCH_MESSAGE
}

/// The messages of a batch body, each with its own properties only: those of the batch and of the broker are added to
/// none of them, as in 5.5.0 (4.9 appends the batch's, with its `UNIQ_KEY`, to each).
fn items_of(body: &[u8]) -> Result<Vec<BatchMessage<'_>>, Refusal> {
    let mut items = Vec::new();
    for item in batch::items(body) {
        let illegal = |text| Refusal::new(response::MESSAGE_ILLEGAL, text);
        let item = item.map_err(|error| illegal(format!("message {} of the batch: {error}", items.len())))?;
        let properties = std::str::from_utf8(item.properties)
            .map_err(|_| illegal("properties in the batch are not UTF-8".to_owned()))?;
        let parsed = properties::parse(properties);
        items.push(BatchMessage {
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
