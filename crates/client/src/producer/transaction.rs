//! What a producer requests of brokers apart from sends: to end a transaction, and to recall a timer message (Apache
//! `DefaultMQProducerImpl.endTransaction`, `recallMessage`).

use crate::error::ClientError;
use crate::producer::Producer;
pub use crate::producer::end_transaction::EndTransaction;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::send::{RecallMessageRequestHeader, RecallMessageResponseHeader};
use pyrmq_remoting::header::transaction::EndTransactionRequestHeader;
use pyrmq_remoting::message::properties::names;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Producer {
    /// The producer's client id at brokers.
    pub fn client_id(&self) -> &str {
        &self.shared.heartbeat.membership.client_id
    }

    /// Makes sure that the brokers of a topic know this producer, so that they can ask it and push replies to it.
    /// Brokers that do not answer use up a third of the time; the rest is for the call that needs this.
    pub async fn heartbeat_to(&self, topic: &Arc<str>, time: Duration) -> Result<(), ClientError> {
        let by = Instant::now() + time;
        self.shared.routes.get_within(topic, time).await?;
        let left = by.saturating_duration_since(Instant::now());
        self.shared.heartbeat.send_within(left / 3).await
    }

    /// Ends a transaction at the broker that stored its half, and waits for the answer, at most this long.
    pub async fn end_transaction(&self, end: &EndTransaction, time: Duration) -> Result<(), ClientError> {
        const WHAT: &str = "the end of a transaction";
        let address = match &end.address {
            Some(address) => address.clone(),
            None => self
                .shared
                .routes
                .master(&end.broker)
                .ok_or_else(|| ClientError::NoQueue {
                    topic: end.topic.clone(),
                    what: "end a transaction in",
                    reason: "its broker is not in the route any more",
                })?,
        };
        if let Some(traces) = &self.shared.traces {
            let names = &self.shared.options.client;
            traces.note_end(end, names, &address);
        }
        let header = EndTransactionRequestHeader {
            topic: Some(&self.topic(&end.topic)),
            producer_group: &self.shared.options.client.group,
            tran_state_table_offset: end.queue_offset,
            commit_log_offset: end.commit_log_offset,
            commit_or_rollback: end.state,
            from_transaction_check: Some(end.from_check),
            msg_id: &end.message_id,
            transaction_id: Some(&end.message_id),
        };
        let command = Command::request(request::END_TRANSACTION).with_header(&header);
        match self.shared.client.request(&address, command, time).await {
            Ok(answer) if answer.code == response::SUCCESS => Ok(()),
            Ok(answer) => Err(ClientError::refused(WHAT, &address, answer.code, answer.remark)),
            Err(source) => Err(ClientError::net(WHAT, address, source)),
        }
    }

    /// Recalls a timer message before it is delivered. `broker` and `id` are those of its handle.
    pub async fn recall(
        &self,
        topic: &Arc<str>,
        broker: &str,
        id: &str,
        handle: &str,
    ) -> Result<String, ClientError> {
        const WHAT: &str = "a recall";
        let shared = &self.shared;
        let by = Instant::now() + shared.options.send_timeout;
        let route = shared
            .routes
            .get_within(topic, shared.options.send_timeout)
            .await?;
        let address = shared.routes.master(broker).ok_or_else(|| ClientError::NoQueue {
            topic: topic.to_string(),
            what: "recall from",
            reason: if route.route.queues.is_empty() {
                "its route is empty"
            } else {
                "the broker that the handle names is not alive as a master"
            },
        })?;
        let header = RecallMessageRequestHeader {
            producer_group: Some(&shared.options.client.group),
            topic,
            recall_handle: handle,
        };
        let command = Command::request(request::RECALL_MESSAGE)
            .with_header(&header)
            .with_field("bname", broker);
        let left = by.saturating_duration_since(Instant::now());
        let answer = shared.client.request(&address, command, left).await;
        let answer = answer.map_err(|source| ClientError::net(WHAT, address.clone(), source))?;
        let done = answer.code == response::SUCCESS;
        if let Some(traces) = &shared.traces {
            let region = answer.fields.get(names::MSG_REGION);
            traces.note_recall(topic, id, &shared.options.client, region, done);
        }
        if !done {
            return Err(ClientError::refused(WHAT, &address, answer.code, answer.remark));
        }
        let header = RecallMessageResponseHeader::decode(&answer.fields);
        let header = header.map_err(|source| ClientError::UnreadableAnswer {
            what: WHAT,
            address,
            source,
        })?;
        Ok(header.msg_id.to_owned())
    }
}
