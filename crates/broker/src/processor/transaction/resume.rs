//! Resumes the check of a transaction that was given up: request 323 (Apache `resumeCheckHalfMessage`).

use crate::context::BrokerContext;
use crate::delivery::transactions::{OpenTransaction, Tables, copy_of_open, is_committed};
use crate::error::Refusal;
use crate::message::properties::names;
use crate::processor::Answer;
use crate::processor::query::internal;
use crate::processor::transaction::check;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::transaction::ResumeCheckHalfMessageRequestHeader;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::names::{HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC};
use pyrmq_remoting::net::Peer;

/// Writes its half again as one that was never checked (323). The request names the message by its id in
/// TRANS_CHECK_MAX_TIME_TOPIC.
pub(crate) fn resume(context: &BrokerContext, request: &Command, _: &Peer) -> Answer {
    let header = ResumeCheckHalfMessageRequestHeader::decode(&request.fields)?;
    let at: OffsetId = header.msg_id.unwrap_or_default().parse()?;
    let missing = || {
        let text = format!("no message of {TRANS_CHECK_MAX_TIME_TOPIC} has this id");
        Refusal::new(response::QUERY_NOT_FOUND, text)
    };
    let bytes = context
        .store
        .record_at(at.offset)
        .map_err(|error| internal(&error))?
        .ok_or_else(missing)?;
    let half = Record::decode(&bytes)?;
    if half.topic != TRANS_CHECK_MAX_TIME_TOPIC {
        return Err(missing());
    }
    let id = half.properties.get(names::UNIQ_KEY).ok_or_else(missing)?;
    let text = check::with(half.properties.as_str()?, names::TRANSACTION_CHECK_TIMES, 0);
    refuse_open(&context.transactions.tables(), id)?;
    // An earlier request of this kind may have led to its commit. With SYNC_FLUSH a search shows what is durable.
    context.store.flush().map_err(|error| internal(&error))?;
    let end = context.store.end_position();
    // It may have been committed before it was given up.
    refuse_committed(context, &half, 0)?;
    // Under the lock: only one of two concurrent requests writes. Little is searched: what came meanwhile.
    let mut tables = context.transactions.tables();
    refuse_open(&tables, id)?;
    refuse_committed(context, &half, end)?;
    let stored = context
        .store
        .put_accepted(&copy_of_open(&half, HALF_TOPIC, &text))
        .map_err(|error| internal(&error))?;
    let open = OpenTransaction::new(stored.queue_offset);
    tables.open.insert(id.into(), open);
    drop(tables);
    tracing::info!(id, "a transaction that was given up is asked about again");
    Ok(Command::response(response::SUCCESS))
}

fn refuse_open(tables: &Tables, id: &str) -> Result<(), Refusal> {
    if tables.open.contains_key(id) {
        return Err(Refusal::internal("the transaction is open already"));
    }
    Ok(())
}

/// Refuses a transaction whose message is in the log at or after a position: its new half would be committed again.
fn refuse_committed(context: &BrokerContext, half: &Record<'_>, from: i64) -> Result<(), Refusal> {
    match is_committed(&context.store, half, from) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Refusal::internal("the transaction was committed already")),
        Err(error) => Err(internal(&error)),
    }
}
