//! Acknowledging messages and changing their invisible time (Apache `ackMessageAsync`, `changeInvisibleTimeAsync`).
//!
//! An acknowledgement may be repeated: the second one has no effect. So one whose answer was lost is sent again while
//! the message's time lasts. A change of the time must not be repeated: each creates a new check point, and the handle
//! in a lost answer is not known. Such a receipt is in doubt: its message may be delivered again although it is
//! acknowledged.

use crate::consumer::options::check_invisible;
use crate::consumer::pop::answer::Popped;
use crate::consumer::pop::receipt::{EXPIRED, GIVEN_BACK, GONE_ON, Held, NOT_KNOWN, Receipt};
use crate::consumer::pop::simple::PopShared;
use crate::consumer::process_queue::Messages;
use crate::consumer::requests::send_back::DEAD_LETTER;
use crate::error::ClientError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{BatchAck, BatchAckMessageRequestBody, Body};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::pop::{
    AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader,
};
use pyrmq_remoting::message::ReceiptHandle;
use pyrmq_remoting::net::NetError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const ACK: &str = "an acknowledgement";
const CHANGE: &str = "a change of the invisible time";
/// Tries of a request whose answer was lost.
const TRIES: u32 = 3;
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// Response codes for a handle that the broker does not know (Apache `AckMessageProcessor`).
const UNKNOWN_HANDLE: [i32; 3] = [
    response::NO_MESSAGE,
    response::MESSAGE_ILLEGAL,
    response::TOPIC_NOT_EXIST,
];

/// Identifies one pop of a queue.
type PopKey = (&'static str, Arc<str>, i32, i64, i64, i64, i32);

impl PopShared {
    /// Acknowledges messages, with one request to each broker; the outcomes are in their order.
    pub(crate) async fn acknowledge(
        self: &Arc<Self>,
        receipts: &[Arc<Receipt>],
    ) -> Vec<Result<(), ClientError>> {
        // Outcomes that stay like this were not carried out: a task has panicked.
        let not_known = |receipt: &Arc<Receipt>| Err(receipt.refused(NOT_KNOWN));
        let mut outcomes: Vec<Result<(), ClientError>> = receipts.iter().map(not_known).collect();
        let mut by_broker: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
        for (index, receipt) in receipts.iter().enumerate() {
            by_broker.entry(receipt.broker.clone()).or_default().push(index);
        }
        let mut requests = JoinSet::new();
        for indexes in by_broker.into_values() {
            let shared = self.clone();
            let own: Vec<Arc<Receipt>> = indexes
                .iter()
                .filter_map(|index| receipts.get(*index))
                .cloned()
                .collect();
            requests.spawn(async move { (indexes, shared.acknowledge_at(own).await) });
        }
        while let Some(done) = requests.join_next().await {
            let Ok((indexes, results)) = done else {
                continue;
            };
            for (index, result) in indexes.into_iter().zip(results) {
                if let Some(outcome) = outcomes.get_mut(index) {
                    *outcome = result;
                }
            }
        }
        outcomes
    }

    /// Acknowledges messages of one broker.
    async fn acknowledge_at(self: &Arc<Self>, receipts: Vec<Arc<Receipt>>) -> Vec<Result<(), ClientError>> {
        // Always in the same order: two calls with the same messages must not wait for each other.
        let mut order: Vec<&Arc<Receipt>> = receipts.iter().collect();
        order.sort_unstable_by_key(|receipt| Arc::as_ptr(receipt));
        order.dedup_by_key(|receipt| Arc::as_ptr(receipt));
        let mut locks = Vec::with_capacity(order.len());
        for receipt in order {
            locks.push(receipt.settling.lock().await);
        }
        let held: Vec<Result<Held, ClientError>> = receipts.iter().map(|receipt| receipt.held()).collect();
        let usable: Vec<(&Arc<Receipt>, &Held)> = receipts
            .iter()
            .zip(&held)
            .filter_map(|(receipt, held)| Some((receipt, held.as_ref().ok()?)))
            .collect();
        let outcome = match usable.as_slice() {
            [] => Ok(()),
            [(receipt, held)] => self.acknowledge_one(receipt, held).await,
            many => self.acknowledge_many(many).await,
        };
        if let Err(error) = outcome {
            return held
                .into_iter()
                .map(|held| held.and(Err(error.clone())))
                .collect();
        }
        if self.options.is_ordered {
            self.release_successors(&usable.iter().map(|(_, held)| held.text.as_str()).collect());
        }
        let each = receipts.iter().zip(held);
        each.map(|(receipt, held)| held.and_then(|_| receipt.acknowledged()))
            .collect()
    }

    async fn acknowledge_one(&self, receipt: &Receipt, held: &Held) -> Result<(), ClientError> {
        let topic = held
            .source
            .topic(&receipt.topic, &self.options.client.group)
            .into_owned();
        let header = AckMessageRequestHeader {
            consumer_group: &self.options.client.group,
            topic: &topic,
            queue_id: held.queue_id,
            extra_info: &held.text,
            offset: held.offset,
            ..AckMessageRequestHeader::default()
        };
        let command = Command::request(request::ACK_MESSAGE).with_header(&header);
        let (answer, address) = self.request_with_retries(ACK, receipt, command).await?;
        if answer.code == response::SUCCESS {
            return Ok(());
        }
        Err(refused(ACK, &held.text, &address, answer))
    }

    async fn acknowledge_many(&self, receipts: &[(&Arc<Receipt>, &Held)]) -> Result<(), ClientError> {
        let Some((first, _)) = receipts.first() else {
            return Ok(());
        };
        let body = BatchAckMessageRequestBody {
            acks: batch_acks(&self.options.client.group, receipts),
            broker_name: first.broker.to_string(),
        };
        let command = Command::request(request::BATCH_ACK_MESSAGE).with_body(Bytes::from(body.encode()));
        let (answer, address) = self.request_with_retries(ACK, first, command).await?;
        match answer.code {
            response::SUCCESS => Ok(()),
            // The first brokers with POP accept one at a time.
            response::REQUEST_CODE_NOT_SUPPORTED => {
                for (receipt, held) in receipts {
                    self.acknowledge_one(receipt, held).await?;
                }
                Ok(())
            }
            code => Err(ClientError::refused(ACK, &address, code, answer.remark)),
        }
    }

    /// Hides a message for this time from now on; zero gives it back at once.
    pub(crate) async fn change(&self, receipt: &Receipt, invisible: Duration) -> Result<(), ClientError> {
        self.hide(receipt, invisible, false).await
    }

    /// Hides a message for this time from now on; with `suspend` its next delivery does not count against its retries.
    async fn hide(&self, receipt: &Receipt, invisible: Duration, suspend: bool) -> Result<(), ClientError> {
        check_invisible(invisible, Duration::ZERO)?;
        let _settling = receipt.settling.lock().await;
        let held = receipt.held()?;
        let topic = held
            .source
            .topic(&receipt.topic, &self.options.client.group)
            .into_owned();
        let header = ChangeInvisibleTimeRequestHeader {
            consumer_group: &self.options.client.group,
            topic: &topic,
            queue_id: held.queue_id,
            extra_info: &held.text,
            offset: held.offset,
            invisible_time: i64::try_from(invisible.as_millis()).unwrap_or(i64::MAX),
            suspend,
            ..ChangeInvisibleTimeRequestHeader::default()
        };
        let command = Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(&header);
        let (answer, address) = self
            .request_with_retries(CHANGE, receipt, command)
            .await
            .inspect_err(|error| {
                if may_be_carried_out(error) {
                    receipt.doubt();
                }
            })?;
        if answer.code != response::SUCCESS {
            return Err(refused(CHANGE, &held.text, &address, answer));
        }
        if invisible.is_zero() {
            receipt.use_up(GIVEN_BACK);
            return Ok(());
        }
        let header = ChangeInvisibleTimeResponseHeader::decode(&answer.fields);
        let header = header.map_err(|source| ClientError::UnreadableAnswer {
            what: CHANGE,
            address,
            source,
        })?;
        if header.pop_time <= 0 {
            // A broker answers this if an ordered group has already moved past the message.
            receipt.use_up(GONE_ON);
            return Err(ClientError::Receipt {
                handle: held.text,
                reason: GONE_ON.to_owned(),
            });
        }
        let handle = self.renewed(&receipt.broker, &held, &header);
        receipt.replace(handle.to_string(), Instant::now() + invisible);
        Ok(())
    }

    /// The handle of a message after a change of its invisible time.
    fn renewed<'a>(
        &self,
        broker: &'a str,
        held: &Held,
        header: &ChangeInvisibleTimeResponseHeader,
    ) -> ReceiptHandle<'a> {
        ReceiptHandle {
            // A new check point begins at the message. An ordered group has none, and uses the start of the pop.
            start_offset: if self.options.is_ordered {
                held.start_offset
            } else {
                held.offset
            },
            pop_time: header.pop_time,
            invisible_time: header.invisible_time,
            revive_queue_id: header.revive_qid,
            source: held.source,
            broker_name: broker,
            queue_id: held.queue_id,
            offset: Some(held.offset),
        }
    }

    /// Gives messages back at once, for others. Those that waited for a listener do not count as delivered.
    pub(crate) async fn give_back(self: &Arc<Self>, messages: Vec<Popped>) {
        let is_listening = self.state().demand.is_some();
        let mut requests = JoinSet::new();
        for message in messages {
            let (shared, suspend) = (self.clone(), is_listening);
            requests.spawn(async move { shared.hide(&message.receipt, Duration::ZERO, suspend).await });
        }
        while let Some(done) = requests.join_next().await {
            if let Ok(Err(error)) = done {
                tracing::debug!(%error, "a message was not given back: it is delivered again after its time");
            }
        }
    }

    pub(crate) fn give_back_later(self: &Arc<Self>, messages: Vec<Popped>) {
        if !messages.is_empty() {
            let shared = self.clone();
            self.tracker
                .spawn(async move { shared.give_back(messages).await });
        }
    }

    /// Sends a message that was tried too often to the dead letters, and counts it. If that fails, it is delivered and
    /// tried again.
    pub(crate) async fn move_to_dead_letters(self: &Arc<Self>, message: Popped) {
        let one = Messages {
            chunk: message.chunk.clone(),
            first: message.index,
            end: message.index + 1,
            tries: 0,
            refusals: 0,
        };
        let queue = &message.chunk.queue;
        if let Err(error) = self.send_back.send(&one, DEAD_LETTER).await {
            return tracing::warn!(%queue, %error, "message not put among the dead letters: it is delivered again");
        }
        self.counts.add_dead();
        tracing::warn!(%queue, tries = message.reconsume_times(), "message exceeded its retries: sent to the dead letters");
        for error in self
            .acknowledge(&[message.receipt])
            .await
            .into_iter()
            .filter_map(Result::err)
        {
            tracing::warn!(%error, "a dead letter is not acknowledged: it may come twice");
        }
    }

    /// Sends a request about a message, and sends it again while the message's time lasts: an acknowledgement when the
    /// answer is lost, a change of the time only if it was not sent.
    async fn request_with_retries(
        &self,
        what: &'static str,
        receipt: &Receipt,
        command: Command,
    ) -> Result<(Command, String), ClientError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.routes.master(&receipt.broker) {
                None => ClientError::NoMaster {
                    broker: receipt.broker.to_string(),
                },
                Some(address) => {
                    let timeout = self.options.client.request_timeout;
                    match self.client.request(&address, command.clone(), timeout).await {
                        Ok(answer) => return Ok((answer, address)),
                        Err(NetError::Closed) => return Err(ClientError::Closed { what: "consumer" }),
                        Err(source) => ClientError::net(what, address, source),
                    }
                }
            };
            let is_uncertain = what == CHANGE && may_be_carried_out(&error);
            if is_uncertain || tries == TRIES || receipt.until() <= Instant::now() {
                return Err(error);
            }
            self.routes.mark_stale(&receipt.topic);
            tokio::time::sleep(TRY_PAUSE * tries).await;
        }
    }
}

/// Whether a failed request may have been carried out.
fn may_be_carried_out(error: &ClientError) -> bool {
    match error {
        ClientError::Net { source, .. } => !matches!(
            **source,
            NetError::Connect { .. }
                | NetError::NotSent { .. }
                | NetError::Busy { .. }
                | NetError::Timeout { sent: false, .. }
        ),
        _ => false,
    }
}

/// What a broker's refusal means.
fn refused(what: &'static str, handle: &str, address: &str, answer: Command) -> ClientError {
    if !UNKNOWN_HANDLE.contains(&answer.code) {
        return ClientError::refused(what, address, answer.code, answer.remark);
    }
    let remark = answer.remark.unwrap_or_default();
    let reason = if remark.is_empty() { EXPIRED } else { &remark };
    ClientError::Receipt {
        handle: handle.to_owned(),
        reason: format!("{address} does not know it: {reason}"),
    }
}

/// Messages by the pop that handed them out, each as a bit: its distance to the pop's first offset.
fn batch_acks(group: &str, receipts: &[(&Arc<Receipt>, &Held)]) -> Vec<BatchAck> {
    let mut pops: BTreeMap<PopKey, Vec<u8>> = BTreeMap::new();
    for (receipt, held) in receipts {
        let key = (
            held.source.as_str(),
            receipt.topic.clone(),
            held.queue_id,
            held.start_offset,
            held.pop_time,
            held.invisible_time,
            held.revive_queue_id,
        );
        let bits = pops.entry(key).or_default();
        let Ok(bit) = usize::try_from(held.offset - held.start_offset) else {
            continue;
        };
        if bits.len() <= bit / 8 {
            bits.resize(bit / 8 + 1, 0);
        }
        if let Some(byte) = bits.get_mut(bit / 8) {
            *byte |= 1 << (bit % 8);
        }
    }
    let acks = pops.into_iter();
    acks.map(
        |((source, topic, queue_id, start_offset, pop_time, invisible_time, revive), bits)| BatchAck {
            bit_set: Some(STANDARD.encode(bits)),
            consumer_group: group.to_owned(),
            invisible_time,
            pop_time,
            queue_id,
            retry: source.to_owned(),
            revive_queue_id: revive,
            start_offset,
            topic: topic.to_string(),
        },
    )
    .collect()
}
