//! Handing messages back to their brokers, for a later try or as dead letters (Apache `sendMessageBack`, request 36).

use crate::consumer::process_queue::Messages;
use crate::error::ClientError;
use crate::options::ClientOptions;
use crate::session::routes::Routes;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::ConsumerSendMsgBackRequestHeader;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::net::Client;
use std::time::Duration;

const WHAT: &str = "a message handed back";
/// The level that makes a broker put the message into the dead-letter topic at once.
pub(crate) const DEAD_LETTER: i32 = -1;

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
        let queue = &message.chunk.queue;
        let address = self
            .routes
            .master(&queue.broker)
            .ok_or_else(|| ClientError::NoQueue {
                topic: queue.topic.to_string(),
                what: "handed a message back for",
                reason: "its broker has no master in the route: it is down, or has not registered yet",
            })?;
        let command = {
            let answered = |source| ClientError::Answered {
                what: WHAT,
                address: address.clone(),
                source,
            };
            let missing = Err(pyrmq_remoting::WireError::MissingField("record"));
            let record = message.chunk.record(message.first).unwrap_or(missing);
            let record = record.map_err(answered)?;
            let header = ConsumerSendMsgBackRequestHeader {
                offset: record.physical_offset,
                group: &self.group,
                delay_level,
                origin_msg_id: record.properties.get(names::UNIQ_KEY),
                origin_topic: Some(record.topic),
                unit_mode: false,
                max_reconsume_times: self.max_tries,
            };
            Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&header)
        };
        match self.client.request(&address, command, self.timeout).await {
            Ok(answer) if answer.code == response::SUCCESS => Ok(()),
            Ok(answer) => Err(ClientError::answer(WHAT, &address, answer.code, answer.remark)),
            Err(source) => Err(ClientError::net(WHAT, address, source)),
        }
    }
}
