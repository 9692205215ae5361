//! Resumes the check of a transaction that was given up: request 323 (Apache `resumeCheckHalfMessage`).

use crate::context::BrokerContext;
use crate::delivery::half::{CommitSearch, copy_of_open, find_commit, first_known};
use crate::delivery::transactions::{OpenTransaction, TransactionTables};
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
use pyrmq_store::Stored;

/// Stands for the queue offset of a half that is being written.
const CLAIMED: i64 = -1;

/// Opens a transaction that was given up (323): writes a copy of its half that counts as never checked. The request
/// names the message by its id in TRANS_CHECK_MAX_TIME_TOPIC.
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
    let key = (id, first_known(&half));
    refuse_open(&context.transactions.tables(), key)?;
    // An earlier request of this kind may have led to its commit. With SYNC_FLUSH a search shows what is durable.
    context.store.flush().map_err(|error| internal(&error))?;
    let end = context.store.end_position();
    // It may have been committed before it was given up.
    refuse_committed(context, &half, 0)?;
    claim(&mut context.transactions.tables(), key)?;
    // Without the lock, which each end needs: this write may hang as long as the disk does. The second search reads
    // little, as it begins at what was the log's end.
    let stored = refuse_committed(context, &half, end).and_then(|()| {
        let copy = copy_of_open(&half, HALF_TOPIC, &text);
        let stored = context.store.put_accepted(&copy);
        stored.map_err(|error| internal(&error))
    });
    settle(&mut context.transactions.tables(), key, stored)?;
    tracing::info!(id, "a transaction that was given up will be checked again");
    Ok(Command::response(response::SUCCESS))
}

/// Claims the transaction, so that only one of two concurrent requests writes, and no end is served before that.
fn claim(tables: &mut TransactionTables, key @ (id, first): (&str, i64)) -> Result<(), Refusal> {
    refuse_open(tables, key)?;
    let claim = OpenTransaction {
        ending: true,
        ..OpenTransaction::new(CLAIMED, first)
    };
    tables.add(id, claim);
    Ok(())
}

/// Puts the stored copy in place of the claim. If the producer has sent the half once more meanwhile, that transaction
/// stays, and the copy is superseded.
fn settle(
    tables: &mut TransactionTables,
    (id, first): (&str, i64),
    stored: Result<Stored, Refusal>,
) -> Result<(), Refusal> {
    let is_last = tables.is_last(id, first);
    tables.remove(id, first);
    let stored = stored?;
    if !is_last {
        tables.superseded.push_back(stored.queue_offset);
        return Err(is_open());
    }
    tables.add(id, OpenTransaction::new(stored.queue_offset, first));
    Ok(())
}

/// Refuses a transaction if it or another one with its unique id is open.
fn refuse_open(tables: &TransactionTables, (id, first): (&str, i64)) -> Result<(), Refusal> {
    if tables.open.contains_key(id) || tables.earlier.contains_key(&first) {
        return Err(is_open());
    }
    Ok(())
}

fn is_open() -> Refusal {
    Refusal::internal("the transaction is open already")
}

/// Refuses a transaction whose message is in the log at or after a position: it could be committed a second time.
fn refuse_committed(context: &BrokerContext, half: &Record<'_>, from: i64) -> Result<(), Refusal> {
    match find_commit(&context.store, half, from) {
        Ok(CommitSearch::Nothing | CommitSearch::Later) => Ok(()),
        Ok(CommitSearch::Own) => Err(Refusal::internal("the transaction was committed already")),
        Err(error) => Err(internal(&error)),
    }
}
