//! Replies to requests (request-reply): 324, 325 (Apache `ReplyMessageProcessor`).
//!
//! The requester is a producer with a heartbeat at this broker. It gets 326 on its own connection, and the replier's
//! response waits for the requester's. With `storeReplyMessageEnable` the reply is stored, too.

use crate::context::{BrokerContext, born_host};
use crate::error::Refusal;
use crate::message::properties::{self, names};
use crate::processor::auto_create::Missing;
use crate::processor::{Answer, send};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::{ReplyMessageRequestHeader, SendMessageRequestHeader};
use pyrmq_remoting::message::{java_hash, sys_flag};
use pyrmq_remoting::net::{NetError, Peer, Processor, Reply};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::NewMessage;
use std::sync::Arc;
use std::time::Duration;

/// How long a requester may take (Apache `Broker2Client.callClient`).
const PUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves 324 and 325.
#[derive(Debug)]
pub(crate) struct SendReply {
    context: Arc<BrokerContext>,
}

impl SendReply {
    pub(crate) fn new(context: Arc<BrokerContext>) -> Self {
        Self { context }
    }

    /// The topic that a reply makes.
    pub(super) fn missing(context: &BrokerContext, request: &Command, peer: &Peer) -> Option<Missing> {
        let topic = request.fields.get("topic").or_else(|| request.fields.get("b"))?;
        if context.topics.get(topic).is_some() {
            return None;
        }
        let header = SendMessageRequestHeader::decode(request.code, &request.fields).ok()?;
        context.find_topic(&header, request).ok()?;
        Some(Missing {
            topics: vec![context.awaited_topic(&header, request, peer)?],
            ..Missing::default()
        })
    }

    fn push(&self, request: &Command, peer: &Peer) -> Result<(Peer, Command, i32), Refusal> {
        let context = &self.context;
        let header = SendMessageRequestHeader::decode(request.code, &request.fields)?;
        let body = request.body.as_deref().unwrap_or_default();
        let topic = context.admit(&header, request, peer)?;
        let parsed = properties::parse(header.properties.unwrap_or_default());
        send::refuse_unsupported(&header, &parsed)?;
        if sys_flag::is_hidden(header.sys_flag) {
            let text = "a reply cannot be part of a transaction";
            return Err(Refusal::new(response::MESSAGE_ILLEGAL, text));
        }
        let queue_id = context.choose_queue(&topic, header.queue_id)?;
        if context.options.store_reply_message_enable
            && let Err(refusal) = store(context, &header, &topic.topic_name, queue_id, body, peer)
        {
            // Only a warning: the requester needs the reply, not the stored copy.
            tracing::warn!(
                topic = topic.topic_name,
                reason = refusal.remark,
                "a reply could not be stored"
            );
        }
        let client = properties::find(header.properties.unwrap_or_default(), names::REPLY_TO_CLIENT)
            .ok_or_else(|| Refusal::internal("reply message properties[REPLY_TO_CLIENT] is null"))?;
        let requester = context.clients.producer_peer(client).ok_or_else(|| {
            Refusal::internal(format!(
                "push reply message fail, channel of <{client}> not found."
            ))
        })?;
        let mut text = properties::copy(header.properties.unwrap_or_default(), 32, |name| {
            name == names::PUSH_REPLY_TIME
        });
        properties::append(&mut text, names::PUSH_REPLY_TIME, &clock::now_ms().to_string());
        let mut push =
            Command::request(request::PUSH_REPLY_MESSAGE_TO_CLIENT).with_header(&ReplyMessageRequestHeader {
                producer_group: header.producer_group,
                topic: header.topic,
                default_topic: header.default_topic,
                default_topic_queue_nums: header.default_topic_queue_nums,
                queue_id: header.queue_id,
                sys_flag: header.sys_flag,
                born_timestamp: header.born_timestamp,
                flag: header.flag,
                properties: Some(&text),
                reconsume_times: header.reconsume_times,
                unit_mode: header.unit_mode,
                born_host: &peer.remote().to_string(),
                store_host: &context.address(),
                store_timestamp: clock::now_ms(),
            });
        push.body.clone_from(&request.body);
        Ok((requester, push, queue_id))
    }
}

impl Processor for SendReply {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        match self.push(&request, peer) {
            Ok((requester, push, queue_id)) => {
                let log = self.context.requests.clone();
                requester.request_with(push, PUSH_TIMEOUT, move |result| {
                    match outcome(result, queue_id) {
                        Ok(answer) => reply.send(answer),
                        Err(refusal) => refusal.answer(reply.request_code(), reply, &log),
                    }
                });
            }
            Err(refusal) => self.context.refuse(&request, reply, refusal),
        }
    }
}

fn outcome(result: Result<Command, NetError>, queue_id: i32) -> Answer {
    match result {
        // Message id and offset are 0 so that clients can read the header.
        Ok(answer) if answer.code == response::SUCCESS => Ok(Command::response(response::SUCCESS)
            .with_field("msgId", "0")
            .with_field("queueId", &queue_id.to_string())
            .with_field("queueOffset", "0")),
        Ok(answer) => Err(Refusal::internal(format!(
            "the requester refused the reply: {}",
            answer.remark.unwrap_or_default()
        ))),
        Err(error) => Err(Refusal::internal(format!("push reply message fail: {error}"))),
    }
}

fn store(
    context: &BrokerContext,
    header: &SendMessageRequestHeader<'_>,
    topic: &str,
    queue_id: i32,
    body: &[u8],
    peer: &Peer,
) -> Result<(), Refusal> {
    let parsed = properties::parse(header.properties.unwrap_or_default());
    let own = &context.broker_fields().properties;
    let mut text =
        properties::copy_for_store(header.properties.unwrap_or_default(), &parsed, own.len(), true);
    text.push_str(own);
    let message = NewMessage {
        topic,
        queue_id,
        flag: header.flag,
        sys_flag: header.sys_flag,
        born_timestamp_ms: header.born_timestamp,
        born_host: born_host(peer),
        store_host: context.store_host(),
        reconsume_times: header.reconsume_times.unwrap_or(0),
        prepared_transaction_offset: 0,
        body,
        properties: text.into(),
        tags_code: java_hash::tags_code(parsed.tags),
        unique_key: parsed.unique_key,
        keys: parsed.keys,
        tag: parsed.tags,
    };
    let stored = context
        .store
        .put(&message)
        .map_err(|error| Refusal::of_put(&error))?;
    context.stats.count_put(1, stored.bytes());
    Ok(())
}
