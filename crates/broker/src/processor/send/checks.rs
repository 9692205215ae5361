//! Checks of what a send requests.

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::message::properties::ParsedProperties;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::SendMessageRequestHeader;
use pyrmq_remoting::message::{DURABILITY, Durability, sys_flag};
use pyrmq_remoting::names::is_retry;

/// The durability that a pyrmq producer requests.
pub(super) fn requested_level(request: &Command) -> Result<Option<Durability>, Refusal> {
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
pub(super) fn is_half(
    context: &BrokerContext,
    header: &SendMessageRequestHeader<'_>,
    parsed: &ParsedProperties<'_>,
) -> Result<bool, Refusal> {
    let prepared = sys_flag::transaction(header.sys_flag) == sys_flag::TRANSACTION_PREPARED;
    // Clients before 4.6.1 leave TRAN_MSG on messages that they send back themselves.
    let given_back = header.reconsume_times.unwrap_or(0) > 0 && parsed.delay_level > 0;
    let half = (parsed.is_transaction || prepared) && !given_back;
    if half && context.live.reject_transaction_message() {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "the broker[{}] sending transaction message is forbidden: rejectTransactionMessage",
                context.options.broker_ip1
            ),
        ));
    }
    Ok(half)
}

/// Refuses kinds of messages that are not supported, and messages that would be stored where no consumer sees them.
pub(crate) fn refuse_unsupported(
    header: &SendMessageRequestHeader<'_>,
    parsed: &ParsedProperties<'_>,
) -> Result<(), Refusal> {
    let reason = if parsed.is_inner_batch || header.sys_flag & sys_flag::INNER_BATCH != 0 {
        "inner batches need a topic of queue type BatchCQ"
    } else if sys_flag::transaction(header.sys_flag) == sys_flag::TRANSACTION_ROLLBACK {
        "the sysFlag says that the message is rolled back: nobody would ever read it"
    } else if parsed.is_bad_delay {
        "the property DELAY is not a number"
    } else {
        return Ok(());
    };
    Err(Refusal::new(response::MESSAGE_ILLEGAL, reason))
}

/// Refuses what a batch cannot contain (Apache `SendMessageProcessor.sendBatchMessage`, `MessageBatch`).
pub(super) fn refuse_in_batch(
    header: &SendMessageRequestHeader<'_>,
    parsed: &ParsedProperties<'_>,
) -> Result<(), Refusal> {
    let reason = if is_retry(header.topic) {
        format!("batch request does not support retry group {}", header.topic)
    } else if parsed.delay_level > 0 || parsed.is_timer {
        "a batch cannot be delayed".to_owned()
    } else if parsed.is_transaction || sys_flag::transaction(header.sys_flag) != 0 {
        "a batch cannot be part of a transaction".to_owned()
    } else {
        return Ok(());
    };
    Err(Refusal::new(response::MESSAGE_ILLEGAL, reason))
}
