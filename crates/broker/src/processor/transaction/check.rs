//! Asks producers about halves that have not ended (Apache `TransactionalMessageServiceImpl.check`).
//!
//! ```text
//! from the first half that is not done:
//!   ended, or there is a newer copy        -> passed
//!   being ended                            -> the pass ends here
//!   not listed, and stored just now        -> the pass ends here
//!   stored since the pass began            -> the pass ends here
//!   a later transaction has its unique id  -> passed, once its immunity time is over
//!   its message is in the log              -> op message, passed
//!   checked too often, or too old          -> TRANS_CHECK_MAX_TIME_TOPIC, passed
//!   younger than its immunity time         -> the pass ends here; if the message has such a time of its own
//!                                             (CHECK_IMMUNITY_TIME_IN_SECONDS), it is copied and passed instead
//!   otherwise                              -> copied, with one check more, and passed; its group is asked (39)
//! ```
//! `delivery/transactions.rs` shows the life of a transaction.

use crate::context::BrokerContext;
use crate::delivery::half::{CommitSearch, QUEUE, copy_of_open, find_commit, first_known};
use crate::delivery::transactions::{OpenTransaction, read};
use crate::message::properties::{self, names};
use pyrmq_remoting::body::TopicConfig;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::command::FLAG_ONEWAY;
use pyrmq_remoting::header::transaction::CheckTransactionStateRequestHeader;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::message::{NewRecord, Record, record};
use pyrmq_remoting::names::{
    HALF_TOPIC, OP_HALF_TOPIC, PERM_READ, PERM_WRITE, TRANS_CHECK_MAX_TIME_TOPIC, TRANSACTION_GROUP as GROUP,
};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::{StoreError, Stored};
use std::sync::atomic::{AtomicUsize, Ordering};

const READ_AT_ONCE: usize = 32;
const HOUR_MS: i64 = 3_600_000;

/// How long after its birth a half is not checked, in ms.
pub(super) fn immunity_ms(own: Option<&str>, default_ms: i64) -> i64 {
    match own.and_then(|text| text.trim().parse::<i64>().ok()) {
        Some(seconds) if seconds >= 0 => seconds.saturating_mul(1000),
        _ => default_ms,
    }
}

/// What a pass has done with a half.
enum HalfCheck {
    /// It goes on with the next one.
    Passed,
    /// It ends in front of this one.
    EndsPass,
}

/// Makes one pass over the half queue.
pub(crate) fn check(context: &BrokerContext) -> Result<(), StoreError> {
    let store = &context.store;
    let started_ms = clock::now_ms();
    let from = {
        let mut tables = context.transactions.tables();
        tables.missed = None;
        context.offsets.get(GROUP, HALF_TOPIC, QUEUE).unwrap_or(0)
    };
    let mut half_offset = from.max(store.min_offset(HALF_TOPIC, QUEUE));
    'pass: while half_offset < store.max_offset(HALF_TOPIC, QUEUE) {
        let got = read(store, HALF_TOPIC, half_offset, READ_AT_ONCE)?;
        for half in record::records(&got.body).map_while(Result::ok) {
            match check_half(context, &half, started_ms)? {
                HalfCheck::Passed => half_offset = half.queue_offset + 1,
                HalfCheck::EndsPass => break 'pass,
            }
        }
        if got.count == 0 {
            if got.next_offset <= half_offset {
                break;
            }
            half_offset = got.next_offset;
        }
    }
    close_superseded(context)?;
    commit_progress(context, from, half_offset);
    Ok(())
}

/// Records how far both queues are done. The halves come first: the op offset must never be ahead of them.
pub(super) fn commit_progress(context: &BrokerContext, from: i64, half_offset: i64) {
    let mut tables = context.transactions.tables();
    let half_offset = tables
        .missed
        .map_or(half_offset, |missed| missed.min(half_offset));
    tables.ended = tables.ended.split_off(&half_offset);
    // One of the last run stays: its end may wait for a search.
    let last_run_end = tables.last_run_end;
    tables
        .earlier
        .retain(|_, open| open.half_offset >= half_offset || open.ending || open.first_half < last_run_end);
    let unlisted = tables.unlisted.iter().min().copied().unwrap_or(i64::MAX);
    let mut done = None;
    while let Some((op, highest)) = tables.ops.front().copied() {
        if highest >= half_offset || op >= unlisted {
            break;
        }
        done = Some(op + 1);
        tables.ops.pop_front();
    }
    // Under the lock, so that a half which is listed from now on can move it back.
    if half_offset != from || context.offsets.get(GROUP, HALF_TOPIC, QUEUE).is_none() {
        context.offsets.commit(GROUP, HALF_TOPIC, QUEUE, half_offset);
    }
    if let Some(done) = done {
        context.offsets.commit(GROUP, OP_HALF_TOPIC, QUEUE, done);
    }
    drop(tables);
}

/// Checks one half.
fn check_half(context: &BrokerContext, half: &Record<'_>, started_ms: i64) -> Result<HalfCheck, StoreError> {
    let id = half.properties.get(names::UNIQ_KEY).unwrap_or_default();
    let first = first_known(half);
    let (mut open, is_last) = match open_of(context, half, (id, first), started_ms) {
        Ok(known) => known,
        Err(check) => return Ok(check),
    };
    let age_ms = started_ms.saturating_sub(half.born_timestamp_ms);
    let checks: i32 = number(half, names::TRANSACTION_CHECK_TIMES).unwrap_or(0);
    let reserved_ms = i64::from(context.store.live().file_reserved_hours()).saturating_mul(HOUR_MS);
    // This pass may have written it: then its producer has until the next pass to answer.
    if half.store_timestamp_ms >= started_ms {
        return Ok(HalfCheck::EndsPass);
    }
    let own = half.properties.get(names::CHECK_IMMUNITY_TIME_IN_SECONDS);
    let immune = (0..=immunity_ms(own, context.live.transaction_time_out())).contains(&age_ms);
    if !is_last && !immune && !open.committed {
        return Ok(HalfCheck::Passed);
    }
    // Searched before it is given up: request 323 must not open a committed transaction again.
    if open.found {
        let commit = find_commit(&context.store, half, 0)?;
        let mut tables = context.transactions.tables();
        if commit == CommitSearch::Later {
            tables.set_aside(id, first);
            return Ok(HalfCheck::Passed);
        }
        open.record_search(commit);
        tables.update(id, &open);
    }
    if open.committed {
        context
            .transactions
            .write_op(&context.store, context.store_host(), half.queue_offset)?;
        context.transactions.tables().remove(id, first);
        return Ok(HalfCheck::Passed);
    }
    if checks >= context.live.transaction_check_max() || age_ms > reserved_ms {
        return give_up(context, half, id, checks);
    }
    if immune && own.is_none() {
        return Ok(HalfCheck::EndsPass);
    }
    copy_and_send_check(context, half, open, (checks, immune))
}

/// Writes a copy of a half. Unless the half is younger than its immunity time, asks its producer group about it.
fn copy_and_send_check(
    context: &BrokerContext,
    half: &Record<'_>,
    open: OpenTransaction,
    (checks, immune): (i32, bool),
) -> Result<HalfCheck, StoreError> {
    let id = half.properties.get(names::UNIQ_KEY).unwrap_or_default();
    let text = half.properties.as_str().unwrap_or_default();
    let text = if immune {
        let first = number(half, names::TRAN_PREPARED_QUEUE_OFFSET).unwrap_or(half.queue_offset);
        with(text, names::TRAN_PREPARED_QUEUE_OFFSET, first)
    } else {
        with(text, names::TRANSACTION_CHECK_TIMES, i64::from(checks) + 1)
    };
    let stored = match write_copy(context, half, id, open, &text)? {
        Ok(stored) => stored,
        Err(check) => return Ok(check),
    };
    if !immune {
        send_check(context, half, id, &text, &stored);
    }
    Ok(HalfCheck::Passed)
}

/// The open transaction whose newest half this is, and whether no later one has its unique id. `Err`: there is nothing
/// to check.
fn open_of(
    context: &BrokerContext,
    half: &Record<'_>,
    (id, first): (&str, i64),
    started_ms: i64,
) -> Result<(OpenTransaction, bool), HalfCheck> {
    let mut tables = context.transactions.tables();
    let open = tables.get_mut(id, first).copied();
    // Also if this half has its op message: the end may have to write one for a copy, too.
    if open.is_some_and(|open| open.ending) {
        return Err(HalfCheck::EndsPass);
    }
    if tables.ended.contains(&half.queue_offset) {
        return Err(HalfCheck::Passed);
    }
    match open {
        Some(open) if open.half_offset == half.queue_offset => Ok((open, tables.is_last(id, first))),
        // There is a newer copy.
        Some(_) => Err(HalfCheck::Passed),
        None => {
            // It has ended, or it is not listed yet: a half can be read before `Transactions::began` lists it.
            let stored_ms_ago = started_ms.saturating_sub(half.store_timestamp_ms);
            if stored_ms_ago <= context.live.transaction_time_out() {
                return Err(HalfCheck::EndsPass);
            }
            tables.passed = tables.passed.max(half.queue_offset + 1);
            Err(HalfCheck::Passed)
        }
    }
}

fn number<T: std::str::FromStr>(half: &Record<'_>, name: &str) -> Option<T> {
    half.properties.get(name)?.trim().parse().ok()
}

/// The properties with this number added or replaced.
pub(super) fn with(text: &str, name: &str, value: i64) -> String {
    let mut out = properties::copy(text, name.len() + 24, |other| other == name);
    properties::append(&mut out, name, &value.to_string());
    out
}

/// Writes a copy of a half at the queue's end. `Err`: it has ended meanwhile, or its end is being written.
fn write_copy(
    context: &BrokerContext,
    half: &Record<'_>,
    id: &str,
    open: OpenTransaction,
    text: &str,
) -> Result<Result<Stored, HalfCheck>, StoreError> {
    let known = || {
        context
            .transactions
            .tables()
            .get_mut(id, open.first_half)
            .copied()
    };
    if let Some(check) = changed(known().as_ref(), open) {
        return Ok(Err(check));
    }
    // Without the lock, which each end needs: this write may hang as long as the disk does.
    let stored = context
        .store
        .put_accepted(&copy_of_open(half, HALF_TOPIC, text))?;
    let mut tables = context.transactions.tables();
    let known = tables.get_mut(id, open.first_half);
    let change = changed(known.as_deref(), open);
    match (known, &change) {
        // Also while its end is being written, which may be refused.
        (Some(known), None | Some(HalfCheck::EndsPass)) => known.half_offset = stored.queue_offset,
        // Its end came meanwhile. The op message names the half at the old offset.
        _ => tables.superseded.push_back(stored.queue_offset),
    }
    Ok(change.map_or(Ok(stored), Err))
}

/// What a pass does with a half whose transaction has changed since it was read from the table. `None`: it is open as
/// before.
fn changed(known: Option<&OpenTransaction>, open: OpenTransaction) -> Option<HalfCheck> {
    match known {
        Some(known) if known.half_offset != open.half_offset => Some(HalfCheck::Passed),
        Some(known) if known.ending || known.committed => Some(HalfCheck::EndsPass),
        Some(_) => None,
        None => Some(HalfCheck::Passed),
    }
}

/// Writes the op messages of superseded halves. Without one, a start of the broker knows that a superseded half has
/// ended only while it still reads the half of its transaction that has one.
fn close_superseded(context: &BrokerContext) -> Result<(), StoreError> {
    let transactions = &context.transactions;
    let first = || transactions.tables().superseded.front().copied();
    while let Some(half_offset) = first() {
        transactions.write_op(&context.store, context.store_host(), half_offset)?;
        // Others only append.
        transactions.tables().superseded.pop_front();
    }
    Ok(())
}

/// Gives up a transaction that nobody ends. Its message is kept where an operator finds it. If its end comes meanwhile,
/// it stays open until that is written.
fn give_up(
    context: &BrokerContext,
    half: &Record<'_>,
    id: &str,
    checks: i32,
) -> Result<HalfCheck, StoreError> {
    let make = || TopicConfig::new(TRANS_CHECK_MAX_TIME_TOPIC, 1, PERM_READ | PERM_WRITE);
    match context.topics.get_or_put(TRANS_CHECK_MAX_TIME_TOPIC, make) {
        Ok((_, false)) => {}
        Ok((_, true)) => context.announcements.changed(),
        Err(refusal) => tracing::warn!(
            reason = refusal.remark,
            "cannot create {TRANS_CHECK_MAX_TIME_TOPIC}"
        ),
    }
    let text = half.properties.as_str().unwrap_or_default();
    context
        .store
        .put_accepted(&copy_of_open(half, TRANS_CHECK_MAX_TIME_TOPIC, text))?;
    {
        let (mut tables, first) = (context.transactions.tables(), first_known(half));
        let known = tables.get_mut(id, first);
        if known.is_some_and(|open| open.ending || open.committed) {
            return Ok(HalfCheck::EndsPass);
        }
        tables.remove(id, first);
    }
    tracing::warn!(
        id,
        checks,
        "a transaction was given up, its message is in {TRANS_CHECK_MAX_TIME_TOPIC}"
    );
    Ok(HalfCheck::Passed)
}

/// Asks a live producer of the group how the transaction ended. It answers with END_TRANSACTION.
fn send_check(context: &BrokerContext, half: &Record<'_>, id: &str, text: &str, stored: &Stored) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let group = half.properties.get(names::PGROUP).unwrap_or_default();
    let real = properties::find(text, names::REAL_TOPIC).unwrap_or_default();
    let mut producers = context.clients.producers(group);
    producers.retain(|client| !client.peer.is_closed());
    let first = NEXT.fetch_add(1, Ordering::Relaxed) % producers.len().max(1);
    // Any user may name any producer group: the message is shown to those who may send it.
    let mut in_turn = producers.iter().cycle().skip(first).take(producers.len());
    let Some(producer) = in_turn.find(|client| context.may_send(client.user.as_deref(), real, &client.peer))
    else {
        tracing::info!(group, id, "a transaction has no producer to ask");
        return;
    };
    let queue_id = properties::find(text, names::REAL_QID)
        .and_then(|id| id.parse().ok())
        .unwrap_or(0);
    let message = NewRecord {
        topic: real,
        queue_id,
        queue_offset: stored.queue_offset,
        physical_offset: stored.physical_offset,
        // As Apache's brokers show it.
        prepared_transaction_offset: 0,
        properties: text.as_bytes(),
        ..half.to_new()
    };
    let mut body = Vec::new();
    if let Err(error) = message.encode(&mut body) {
        tracing::error!(id, %error, "a half message cannot be shown to its producer");
        return;
    }
    let offset_id = OffsetId {
        host: context.store_host(),
        offset: stored.physical_offset,
    }
    .to_string();
    let header = CheckTransactionStateRequestHeader {
        topic: Some(real),
        tran_state_table_offset: stored.queue_offset,
        commit_log_offset: stored.physical_offset,
        msg_id: Some(id),
        transaction_id: Some(id),
        offset_msg_id: Some(&offset_id),
        broker_name: Some(&context.options.broker_name),
    };
    let mut command = Command::request(request::CHECK_TRANSACTION_STATE)
        .with_header(&header)
        .with_body(body);
    command.flag |= FLAG_ONEWAY;
    producer.peer.send(command);
}
