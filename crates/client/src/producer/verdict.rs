//! The outcome of an attempt: stored, refused for good, or worth another attempt.

use crate::error::ClientError;
use crate::producer::pending_send::PendingSend;
use crate::producer::result::{SendResult, SendStatus};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::send::SendMessageResponseHeader;
use pyrmq_remoting::message::{DURABILITY, Durability};
use pyrmq_remoting::net::{NetError, Retry};
use pyrmq_routing::route::PublishedQueue;
use std::time::Instant;

const WHAT: &str = "a send";

/// What Apache's brokers say of a batch over their `maxMessageSize`, as an exception's text.
const SIZE_EXCEEDED: &str = "size exceeded";

/// What a broker's remark names, ours and Apache's, when the topic has no such queue.
const QUEUE_ID: &str = "queueId";

/// How that remark begins at Apache's brokers up to 5.3.0, which answer `SYSTEM_ERROR` then.
const ILLEGAL_QUEUE: &str = "request queueId[";

/// The outcome of an attempt.
pub(super) enum Verdict {
    Stored(SendResult),
    /// Worth another attempt; true: the message may have been stored by this one.
    Retryable(ClientError, bool),
    /// Worth another attempt, although the message is stored: not as durably as the sender requested.
    StoredBelowLevel(ClientError, SendResult),
    Refused(ClientError, bool),
}

impl PendingSend {
    pub(super) fn classify(&self, queue: &PublishedQueue, outcome: Result<Command, NetError>) -> Verdict {
        let answer = match outcome {
            Ok(answer) => answer,
            Err(source) => {
                let retry = source.retry();
                let error = ClientError::net(WHAT, queue.address.to_string(), source);
                return match retry {
                    Retry::Temporary => Verdict::Retryable(error, false),
                    Retry::UnknownOutcome => Verdict::Retryable(error, true),
                    Retry::Permanent => Verdict::Refused(error, false),
                };
            }
        };
        let Some(status) = SendStatus::from_code(answer.code) else {
            // A broker that reports a position has the message in its log, even if something failed after that (an
            // fsync).
            let may_exist = answer.fields.get("queueOffset").is_some();
            let error = ClientError::refused(WHAT, &queue.address, answer.code, answer.remark);
            let is_missing = is_missing_queue(&error);
            let is_worth_it = !(is_missing || self.can_be_split() && is_illegal(&error));
            let may_move = is_missing && !self.is_bound();
            return if may_move || (is_worth_it && self.shared.options.retry_codes.contains(&answer.code)) {
                Verdict::Retryable(error, may_exist)
            } else {
                Verdict::Refused(error, may_exist)
            };
        };
        match self.result(queue, status, &answer) {
            // A message that is bound to its queue, or a half, must not be stored a second time.
            Ok(result)
                if status != SendStatus::Ok
                    && self.shared.options.retry_not_stored_ok
                    && !(self.is_bound() || self.outgoing.is_half())
                    && self.attempts < self.max_attempts()
                    && self.started.elapsed() < self.timeout =>
            {
                let error = ClientError::refused(WHAT, &queue.address, answer.code, answer.remark);
                Verdict::StoredBelowLevel(error, result)
            }
            Ok(result) => Verdict::Stored(result),
            Err(error) => Verdict::Refused(error, true),
        }
    }

    fn result(
        &self,
        queue: &PublishedQueue,
        status: SendStatus,
        answer: &Command,
    ) -> Result<SendResult, ClientError> {
        let header = SendMessageResponseHeader::decode(&answer.fields).map_err(|source| {
            ClientError::UnreadableAnswer {
                what: WHAT,
                address: queue.address.to_string(),
                source,
            }
        })?;
        Ok(SendResult {
            status,
            topic: self.shared.options.client.unwrap_name(&self.outgoing.topic),
            broker: queue.broker.clone(),
            queue_id: header.queue_id,
            queue_offset: header.queue_offset,
            // Moved here when the send ends.
            message_id: String::new(),
            offset_message_id: header.msg_id.to_owned(),
            transaction_id: header.transaction_id.map(str::to_owned),
            recall_handle: header.recall_handle.map(str::to_owned),
            attempts: self.attempts,
            durability: self
                .shared
                .options
                .durability
                .and_then(|_| Durability::of_name(answer.fields.get(DURABILITY)?)),
            may_be_duplicate: self.may_exist,
            failed_attempts: Vec::new(),
        })
    }

    /// Updates the fault table, the routes and the broker's window after an attempt.
    pub(super) fn update_latency(&self, queue: &PublishedQueue, verdict: &Verdict) {
        let (isolate, stale) = match verdict {
            Verdict::Stored(_) | Verdict::StoredBelowLevel(..) => (false, false),
            Verdict::Retryable(error, _) | Verdict::Refused(error, _) => match error {
                // A full queue of our own says nothing about the broker.
                ClientError::Net { source, .. } if matches!(**source, NetError::Busy { .. }) => {
                    (false, false)
                }
                ClientError::Net { .. } => (true, true),
                ClientError::Refused { code, .. } => {
                    let is_missing = is_missing_queue(error);
                    let moved = is_missing
                        || matches!(
                            *code,
                            response::TOPIC_NOT_EXIST
                                | response::NO_PERMISSION
                                | response::SERVICE_NOT_AVAILABLE
                        );
                    let says_of_broker = !is_missing && !is_illegal(error);
                    let is_weak = says_of_broker && self.shared.options.retry_codes.contains(code);
                    (is_weak, moved)
                }
                _ => (false, false),
            },
        };
        if let Verdict::Retryable(ClientError::Refused { code, .. }, _) = verdict
            && *code == response::SYSTEM_BUSY
        {
            self.shared
                .back_pressure
                .shrink_window(&queue.broker, Instant::now());
        }
        if isolate && stale {
            self.shared.back_pressure.reset_allowance(&queue.broker);
        }
        if self.shared.options.latency_fault {
            let now = Instant::now();
            let latency = now.saturating_duration_since(self.attempt_started);
            self.shared.observe(&queue.broker, latency, isolate, now);
        }
        if stale {
            self.shared.routes.mark_stale(&self.outgoing.topic);
        }
    }
}

/// A topic has fewer queues than the route says, for example because it was deleted and created again, or because the
/// route is that of the template: the topic was just created, and the name server does not know it yet.
pub(super) fn is_missing_queue(error: &ClientError) -> bool {
    let ClientError::Refused { code, remark, .. } = error else {
        return false;
    };
    match *code {
        response::INVALID_PARAMETER => remark.contains(QUEUE_ID),
        response::SYSTEM_ERROR => remark.starts_with(ILLEGAL_QUEUE),
        _ => false,
    }
}

/// A broker has refused a frame for its content and stored nothing of it. Parts of a refused batch may still be
/// accepted.
pub(crate) fn is_illegal(error: &ClientError) -> bool {
    match error {
        ClientError::Refused { code, remark, .. } => {
            *code == response::MESSAGE_ILLEGAL
                || (*code == response::SYSTEM_ERROR && remark.contains(SIZE_EXCEEDED))
        }
        ClientError::NotConfirmed { failure, .. } => {
            !failure.may_exist && !failure.in_time && is_illegal(&failure.last)
        }
        _ => false,
    }
}
