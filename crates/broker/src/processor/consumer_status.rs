//! Requests to the members of a consumer group on behalf of a tool: for their offsets (221, for 223), and to take new
//! ones (220, for 222 without `useServerSideResetOffset`) (Apache `Broker2Client`).

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::{Answer, answer};
use crate::tables::clients::Client;
use pyrmq_remoting::Command;
use pyrmq_remoting::Language;
use pyrmq_remoting::body::{Body, GetConsumerStatusBody, MessageQueue, MessageQueueForC};
use pyrmq_remoting::body::{ResetOffsetBody, ResetOffsetBodyForC};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::command::FLAG_ONEWAY;
use pyrmq_remoting::header::{GetConsumerStatusRequestHeader, ResetOffsetRequestHeader};
use pyrmq_remoting::net::{Peer, Processor, Reply};
use pyrmq_remoting::sync::{get_mut, lock};
use pyrmq_store::Boundary;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long each consumer may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Older consumers do not know these requests (Apache `MQVersion.V3_0_7_SNAPSHOT`).
const MIN_VERSION: i32 = 28;

/// Serves 223.
#[derive(Debug)]
pub(crate) struct ConsumerStatus {
    context: Arc<BrokerContext>,
}

/// The answers so far. Dropping the last share sends the response; a member that never answers drops its share at its
/// timeout.
struct Collected {
    table: Mutex<BTreeMap<String, BTreeMap<MessageQueue, i64>>>,
    reply: Mutex<Option<Reply>>,
}

impl Drop for Collected {
    fn drop(&mut self) {
        let table = std::mem::take(get_mut(&mut self.table));
        let reply = get_mut(&mut self.reply);
        if let Some(reply) = reply.take() {
            reply.send(answer(&GetConsumerStatusBody {
                consumer_table: table,
                ..GetConsumerStatusBody::default()
            }));
        }
    }
}

impl ConsumerStatus {
    pub(crate) fn new(context: Arc<BrokerContext>) -> Self {
        Self { context }
    }

    /// The members to ask, and the request to send them.
    fn prepare(&self, request: &Command) -> Result<(Vec<Client>, Command), Refusal> {
        let header = GetConsumerStatusRequestHeader::decode(&request.fields)?;
        let mut members = members_of(&self.context, header.group).ok_or_else(|| {
            Refusal::internal(format!(
                "No Any Consumer online in the consumer group: [{}]",
                header.group
            ))
        })?;
        let chosen = header.client_addr.filter(|client| !client.trim().is_empty());
        if let Some(client) = chosen {
            members.retain(|member| member.id == client);
        }
        let command = Command::request(request::GET_CONSUMER_STATUS_FROM_CLIENT).with_header(
            &GetConsumerStatusRequestHeader {
                topic: header.topic,
                group: header.group,
                client_addr: None,
            },
        );
        Ok((members, command))
    }
}

impl Processor for ConsumerStatus {
    fn process(&self, request: Command, _peer: &Peer, reply: Reply) {
        let (members, command) = match self.prepare(&request) {
            Ok(prepared) => prepared,
            Err(refusal) => return self.context.refuse(&request, reply, refusal),
        };
        let collected = Arc::new(Collected {
            table: Mutex::default(),
            reply: Mutex::new(Some(reply)),
        });
        for member in members {
            let (collected, id) = (Arc::clone(&collected), member.id);
            member
                .peer
                .request_with(command.clone(), CALL_TIMEOUT, move |result| {
                    let offsets = result
                        .ok()
                        .filter(|answer| answer.code == response::SUCCESS)
                        .and_then(|answer| GetConsumerStatusBody::decode(&answer.body?).ok());
                    let Some(body) = offsets else {
                        return tracing::warn!(client = id, "a consumer did not report its offsets");
                    };
                    let mut table = lock(&collected.table);
                    table.insert(id, body.message_queue_table);
                });
        }
    }
}

/// The connected members of a group; `None` if there are none.
fn members_of(context: &BrokerContext, group: &str) -> Option<Vec<Client>> {
    let members = context
        .clients
        .consumers(group, |group| group.members.values().cloned().collect::<Vec<_>>());
    members.filter(|members| !members.is_empty())
}

/// Serves 222 without `useServerSideResetOffset`: makes the connected members stop, take these offsets and commit them.
pub(crate) fn reset_by_members(
    context: &BrokerContext,
    header: &ResetOffsetRequestHeader<'_>,
    language: Language,
) -> Answer {
    let (group, name) = (header.group, header.topic);
    let topic = context.topics.get(name).ok_or_else(|| {
        Refusal::no_topic_in(
            "[reset-offset] reset offset failed, no topic in this broker. topic={}; ",
            name,
        )
    })?;
    let offset_table = targets(context, header, topic.write_queue_nums)?;
    let members = members_of(context, group).ok_or_else(|| {
        Refusal::new(
            response::CONSUMER_NOT_ONLINE,
            format!(
                "Consumer not online, so can not reset offset, Group: {group} Topic: {name} Timestamp: {}",
                header.timestamp
            ),
        )
    })?;
    if let Some(old) = members.iter().find(|member| member.version < MIN_VERSION) {
        return Err(Refusal::internal(format!(
            "the client does not support this feature. version={}",
            old.version
        )));
    }
    let body = ResetOffsetBody { offset_table };
    let bytes = if language == Language::Cpp {
        for_cpp(&body).encode()
    } else {
        body.encode()
    };
    for member in members {
        let mut order = Command::request(request::RESET_CONSUMER_CLIENT_OFFSET)
            .with_header(&ResetOffsetRequestHeader {
                queue_id: None,
                offset: None,
                is_force: false,
                ..*header
            })
            .with_body(bytes.clone());
        order.flag |= FLAG_ONEWAY;
        member.peer.send(order);
        tracing::info!(
            group,
            topic = name,
            client = member.id,
            "asked a consumer to reset its offsets"
        );
    }
    Ok(answer(&body))
}

/// The offset at which each queue of the topic continues: that of the time, unless the group is already before it.
fn targets(
    context: &BrokerContext,
    header: &ResetOffsetRequestHeader<'_>,
    queues: i32,
) -> Result<BTreeMap<MessageQueue, i64>, Refusal> {
    let (group, name) = (header.group, header.topic);
    let mut offset_table = BTreeMap::new();
    for queue_id in 0..queues {
        let committed = context.offsets.get(group, name, queue_id).ok_or_else(|| {
            Refusal::internal(format!(
                "THe consumer group <{group}> not exist: it has no offset of queue {queue_id}"
            ))
        })?;
        let target = if header.timestamp == -1 {
            context.store.max_offset(name, queue_id)
        } else {
            let found = context
                .store
                .offset_by_time(name, queue_id, header.timestamp, Boundary::Lower);
            found.map_err(|error| Refusal::internal(error.to_string()))?
        };
        let target = target.max(0);
        let queue = MessageQueue::new(name, &context.options.broker_name, queue_id);
        let is_taken = header.is_force || target < committed;
        offset_table.insert(queue, if is_taken { target } else { committed });
    }
    Ok(offset_table)
}

/// The body as a list, because the C++ client cannot read objects as keys.
fn for_cpp(body: &ResetOffsetBody) -> ResetOffsetBodyForC {
    let rows = body.offset_table.iter().map(|(queue, offset)| MessageQueueForC {
        broker_name: queue.broker_name.clone(),
        offset: *offset,
        queue_id: queue.queue_id,
        topic: queue.topic.clone(),
    });
    ResetOffsetBodyForC {
        offset_table: rows.collect(),
    }
}
