//! Handing messages back to their brokers, for a later try or as dead letters (Apache `sendMessageBack`, request 36).
//!
//! Where the broker refuses, or cannot be reached, the message is sent to the group's retry topic as a new one, to any
//! broker that has the topic (Apache `DefaultMQPushConsumerImpl#sendMessageBackAsNormalMessage`). Where the outcome is
//! not known (no answer, connection lost), the broker may have taken the message back: a new one would be a copy, and
//! each copy that fails would make more. The caller tries the message again here instead.
//!
//! Both ways add properties. A message whose own properties leave no room for them is refused both times. It is tried
//! again here, unchanged; as a dead letter it is sent once more, without the application's largest properties.

use crate::consumer::process_queue::Messages;
use crate::error::ClientError;
use crate::session::options::ClientOptions;
use crate::session::routes::Routes;
use bytes::Bytes;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::ConsumerSendMsgBackRequestHeader;
use pyrmq_remoting::header::send::SendMessageRequestHeader;
use pyrmq_remoting::message::properties::{self, names};
use pyrmq_remoting::message::record::Record;
use pyrmq_remoting::message::sys_flag;
use pyrmq_remoting::names::{TEMPLATE_TOPIC, retry_topic};
use pyrmq_remoting::net::Client;
use pyrmq_remoting::{Command, WireError, clock};
use std::sync::Arc;
use std::time::Duration;

const WHAT: &str = "a message handed back";
/// The level that makes a broker put the message into the dead-letter topic at once.
pub(crate) const DEAD_LETTER: i32 = -1;
/// Delay level of the first new delivery: 10 s (Apache).
const FIRST_LEVEL: i32 = 3;
/// A hand-back waits this many times as long for its answer as other requests: no caller waits for it, and a broker
/// that answers late has taken the message back.
const TIMEOUT_FACTOR: u32 = 4;
/// Apache's default, for brokers before 4.9.1: they fail where a consumer leaves the number to its group's settings.
const MAX_TRIES: i32 = 16;
/// Version ordinal of 4.9.1 (Apache `MQVersion.V4_9_1`).
const V4_9_1: i32 = 395;
/// The group under which Apache's consumers send (`MixAll.CLIENT_INNER_PRODUCER_GROUP`).
const INNER_PRODUCER_GROUP: &str = "CLIENT_INNER_PRODUCER";
/// Maximum number of bytes that clients and brokers add to the properties of a message that is handed back: delay, the
/// names of two topics, ids, region and cluster.
const ADDED_BYTES: usize = 1024;
/// Response codes of a message that is stored.
const STORED: [i32; 4] = [
    response::SUCCESS,
    response::FLUSH_DISK_TIMEOUT,
    response::FLUSH_SLAVE_TIMEOUT,
    response::SLAVE_NOT_AVAILABLE,
];

/// Hands messages back.
#[derive(Debug, Clone)]
pub(crate) struct SendBack {
    client: Client,
    routes: Routes,
    group: String,
    max_tries: Option<i32>,
    timeout: Duration,
}

impl SendBack {
    pub(crate) fn new(
        client: Client,
        routes: Routes,
        options: &ClientOptions,
        max_tries: Option<i32>,
    ) -> Self {
        Self {
            client,
            routes,
            group: options.group.clone(),
            max_tries,
            timeout: options.request_timeout,
        }
    }

    /// Hands the first of these messages back. Level 0 lets the broker choose the pause by the number of tries.
    pub(crate) async fn send(&self, message: &Messages, delay_level: i32) -> Result<(), ClientError> {
        let Err(refusal) = self.return_it(message, delay_level).await else {
            return Ok(());
        };
        if refusal.is_outcome_unknown() {
            return Err(refusal);
        }
        let mut sent = self.send_anew(message, delay_level, |text| text).await;
        if delay_level == DEAD_LETTER && matches!(sent, Err(ClientError::Refused { .. })) {
            sent = self.send_shortened(message).await.unwrap_or(sent);
        }
        match sent {
            Ok(()) => {
                tracing::debug!(key = %message.chunk.queue, %refusal, "message sent to the retry topic as a new one");
                Ok(())
            }
            Err(error) => {
                tracing::debug!(key = %message.chunk.queue, %error, "message not sent to the retry topic either");
                Err(refusal)
            }
        }
    }

    /// Sends a dead letter without the application's largest properties, if they leave no room for others. `None`: they
    /// leave room.
    async fn send_shortened(&self, message: &Messages) -> Option<Result<(), ClientError>> {
        let record = message.chunk.record(message.first)?.ok()?;
        let omitted = omitted_for_room(&record)?;
        let sent = self
            .send_anew(message, DEAD_LETTER, |text| {
                properties::remove_all(&text, &omitted).into_owned()
            })
            .await;
        if sent.is_ok() {
            let offset = record.queue_offset;
            tracing::warn!(
                key = %message.chunk.queue, offset, ?omitted,
                "dead letter stored without these properties: with them there was no room for those that brokers add"
            );
        }
        Some(sent)
    }

    async fn return_it(&self, message: &Messages, delay_level: i32) -> Result<(), ClientError> {
        let broker = &message.chunk.queue.broker;
        let address = self.routes.master(broker).ok_or_else(|| ClientError::NoMaster {
            broker: broker.to_string(),
        })?;
        let unencodable = |source| ClientError::Unencodable { what: WHAT, source };
        let command = self.hand_back(message, delay_level, self.max_tries);
        let mut answer = self.request(&address, command.map_err(unencodable)?).await?;
        if answer.code == response::SYSTEM_ERROR && answer.version < V4_9_1 && self.max_tries.is_none() {
            let command = self.hand_back(message, delay_level, Some(MAX_TRIES));
            answer = self.request(&address, command.map_err(unencodable)?).await?;
        }
        if answer.code == response::SUCCESS {
            return Ok(());
        }
        Err(ClientError::refused(WHAT, &address, answer.code, answer.remark))
    }

    fn hand_back(
        &self,
        message: &Messages,
        delay_level: i32,
        max_tries: Option<i32>,
    ) -> Result<Command, WireError> {
        let missing = Err(WireError::MissingField("record"));
        let record = message.chunk.record(message.first).unwrap_or(missing)?;
        let header = ConsumerSendMsgBackRequestHeader {
            offset: record.physical_offset,
            group: &self.group,
            delay_level,
            origin_msg_id: record.properties.get(names::UNIQ_KEY),
            origin_topic: Some(record.topic),
            unit_mode: false,
            max_reconsume_times: max_tries,
        };
        Ok(Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&header))
    }

    async fn request(&self, address: &str, command: Command) -> Result<Command, ClientError> {
        let answer = self
            .client
            .request(address, command, self.timeout * TIMEOUT_FACTOR)
            .await;
        answer.map_err(|source| ClientError::net(WHAT, address, source))
    }

    /// Sends the message to the retry topic: brokers deliver it from there after its delay, or move it to the dead
    /// letters if it was tried too often.
    async fn send_anew(
        &self,
        message: &Messages,
        delay_level: i32,
        shorten: impl Fn(String) -> String,
    ) -> Result<(), ClientError> {
        let topic: Arc<str> = retry_topic(&self.group).into();
        let route = self.routes.get(&topic).await?;
        let mut failure = route.no_queue(&topic);
        let mut tried: Vec<&str> = Vec::new();
        // The broker that did not take it back comes last.
        let (own, others): (Vec<_>, Vec<_>) = route
            .published
            .queues
            .iter()
            .partition(|queue| queue.broker == message.chunk.queue.broker);
        for queue in others.into_iter().chain(own) {
            if tried.contains(&&*queue.broker) {
                continue;
            }
            tried.push(&queue.broker);
            let address = queue.address.to_string();
            let command = self.new_message(&topic, queue.queue_id, message, delay_level, &shorten);
            let command = command.map_err(|source| ClientError::Unencodable { what: WHAT, source })?;
            match self.request(&address, command).await {
                Ok(answer) if STORED.contains(&answer.code) => return Ok(()),
                Ok(answer) => failure = ClientError::refused(WHAT, &address, answer.code, answer.remark),
                // The message may be stored: sent to the next broker, too, it would be delivered twice.
                Err(error) if error.is_outcome_unknown() => return Err(error),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn new_message(
        &self,
        topic: &str,
        queue_id: i32,
        message: &Messages,
        delay_level: i32,
        shorten: impl Fn(String) -> String,
    ) -> Result<Command, WireError> {
        let missing = Err(WireError::MissingField("record"));
        let record = message.chunk.record(message.first).unwrap_or(missing)?;
        let tries = message.deliveries().max(1);
        let is_dead = delay_level == DEAD_LETTER;
        let properties = shorten(retry_properties(&record, delay_level)?);
        let header = SendMessageRequestHeader {
            producer_group: INNER_PRODUCER_GROUP,
            topic,
            default_topic: TEMPLATE_TOPIC,
            default_topic_queue_nums: 1,
            queue_id,
            sys_flag: record.sys_flag & (sys_flag::COMPRESSED | sys_flag::COMPRESSION_TYPE),
            born_timestamp: clock::now_ms(),
            flag: record.flag,
            properties: Some(&properties),
            reconsume_times: Some(tries),
            max_reconsume_times: if is_dead { Some(0) } else { self.max_tries },
            ..SendMessageRequestHeader::default()
        };
        let command = Command::request(request::SEND_MESSAGE_V2).with_header(&header);
        Ok(command.with_body(Bytes::copy_from_slice(record.body)))
    }
}

fn retry_properties(record: &Record<'_>, delay_level: i32) -> Result<String, WireError> {
    // Properties that would make the broker treat the new message as half a transaction, or as one with its own delay.
    let stale = [
        names::TRAN_MSG,
        names::DELAY,
        names::RECONSUME_TIME,
        names::MAX_RECONSUME_TIMES,
    ];
    let [origin_id, id, origin_topic] =
        record
            .properties
            .get_many([names::ORIGIN_MESSAGE_ID, names::UNIQ_KEY, names::RETRY_TOPIC]);
    let mut text = properties::remove_all(record.properties.as_str()?, &stale).into_owned();
    if let Some(id) = origin_id.or(id) {
        properties::set(&mut text, names::ORIGIN_MESSAGE_ID, id);
    }
    properties::set(
        &mut text,
        names::RETRY_TOPIC,
        origin_topic.unwrap_or(record.topic),
    );
    if delay_level != DEAD_LETTER {
        let level = match delay_level {
            0 => FIRST_LEVEL + record.reconsume_times,
            level => level,
        };
        properties::append(&mut text, names::DELAY, &level.to_string());
    }
    Ok(text)
}

/// The names of the application's largest properties and of its keys, as many as must go for [`ADDED_BYTES`] to be
/// free. `None`: nothing has to go, or all of it would be too little.
fn omitted_for_room<'a>(record: &Record<'a>) -> Option<Vec<&'a str>> {
    let mut bytes = record.properties.as_bytes().len() + ADDED_BYTES;
    let is_own = |name| name == names::KEYS || !properties::is_reserved(name);
    let own = record.properties.iter().filter(|(name, _)| is_own(name));
    let mut own: Vec<(&str, &str)> = own.collect();
    own.sort_by_key(|(name, value)| name.len() + value.len());
    let mut omitted = Vec::new();
    while bytes > properties::MAX_BYTES {
        let (name, value) = own.pop()?;
        // Two bytes separate them.
        bytes -= name.len() + value.len() + 2;
        omitted.push(name);
    }
    (!omitted.is_empty()).then_some(omitted)
}
