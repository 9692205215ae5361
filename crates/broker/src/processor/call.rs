//! Requests that the broker forwards to a consumer: 307 asks for its running state, 309 makes it consume a message
//! now (Apache `AdminBrokerProcessor.callConsumer`).

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::processor::Answer;
use bytes::Bytes;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::{
    ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader,
};
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::net::{NetError, Peer, Processor, Reply};
use pyrmq_remoting::{Command, WireError};
use std::sync::Arc;
use std::time::Duration;

/// How long a consumer may take (Apache `Broker2Client.callClient`).
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Older consumers do not know these requests (Apache `MQVersion.V3_1_8_SNAPSHOT`).
const MIN_VERSION: i32 = 62;

/// Answers 307 and 309.
#[derive(Debug)]
pub(crate) struct Call {
    context: Arc<BrokerContext>,
}

impl Call {
    pub(crate) fn new(context: Arc<BrokerContext>) -> Self {
        Self { context }
    }

    /// The consumer's connection, and the message to forward for 309.
    fn prepare(&self, request: &Command) -> Result<(Peer, Option<Bytes>), Refusal> {
        let message = if request.code == request::CONSUME_MESSAGE_DIRECTLY {
            let header = ConsumeMessageDirectlyResultRequestHeader::decode(&request.fields)?;
            let id: OffsetId = header.msg_id.ok_or(WireError::MissingField("msgId"))?.parse()?;
            Some(id.offset)
        } else {
            None
        };
        // Both requests name the group and the client, so this header reads both.
        let header = GetConsumerRunningInfoRequestHeader::decode(&request.fields)?;
        let (group, client) = (header.consumer_group, header.client_id);
        let member = self.context.clients.consumers(group, |consumers| {
            consumers
                .members
                .values()
                .find(|member| member.id == client)
                .cloned()
        });
        let member = member.flatten().ok_or_else(|| {
            // Apache's brokers do not answer CONSUMER_NOT_ONLINE here.
            Refusal::internal(format!("The Consumer <{group}> <{client}> not online"))
        })?;
        if member.version < MIN_VERSION {
            return Err(Refusal::internal(format!(
                "The Consumer <{client}> Version <{}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
                member.version
            )));
        }
        let Some(offset) = message else {
            return Ok((member.peer, None));
        };
        let record = self.context.store.record_at(offset);
        let record = record.map_err(|error| Refusal::internal(error.to_string()))?;
        let record = record
            .ok_or_else(|| Refusal::internal(format!("no message begins at commit log offset {offset}")))?;
        Ok((member.peer, Some(record)))
    }
}

impl Processor for Call {
    fn process(&self, mut request: Command, _peer: &Peer, reply: Reply) {
        match self.prepare(&request) {
            Ok((consumer, message)) => {
                if message.is_some() {
                    request.body = message;
                }
                let log = self.context.requests.clone();
                consumer.request_with(request, CALL_TIMEOUT, move |result| match outcome(result) {
                    Ok(answer) => reply.send(answer),
                    Err(refusal) => refusal.answer(reply.request_code(), reply, &log),
                });
            }
            Err(refusal) => self.context.refuse(&request, reply, refusal),
        }
    }
}

fn outcome(result: Result<Command, NetError>) -> Answer {
    result.map_err(|error| match error {
        NetError::Timeout { .. } => Refusal::new(response::CONSUME_MSG_TIMEOUT, error.to_string()),
        error => Refusal::internal(error.to_string()),
    })
}
