//! How a transaction ends: request 37 (Apache `EndTransactionProcessor`).

use crate::context::{BrokerContext, serve_on_blocking_thread};
use crate::delivery::half::{find_commit, first_known};
use crate::delivery::transactions::{OF_THE_HALF, OpenTransaction};
use crate::error::Refusal;
use crate::message::pending::{PendingMessage, copy_of};
use crate::message::properties::{self, names};
use crate::processor::backlog::{Backlog, BacklogFull, Load, detached};
use crate::processor::query::internal;
use crate::processor::send_answer;
use crate::processor::transaction::check;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::transaction::EndTransactionRequestHeader;
use pyrmq_remoting::message::{Record, sys_flag};
use pyrmq_remoting::names::HALF_TOPIC;
use pyrmq_remoting::net::{Peer, Processor, Reply, Tracker};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::NewMessage;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::Semaphore;

/// Maximum number of ends of one port that search the log at a time.
const SEARCHES: usize = 2;
/// How many of them may wait or run, and what they may use. Beyond that an end is refused. Most producers send ends
/// oneway and do not learn of it, but the check asks for the end later.
const WAITING: Load = Load {
    requests: 10_000,
    bytes: 16 << 20,
};
/// A connection with one of these parts of both is not read until none of its ends searches.
const PARTS: usize = 10;

/// Commits a transaction, rolls it back, or leaves it open (37). The message of a transaction that was found at start
/// may be in the log already. The search for it may read much, so it runs on a thread that may block.
pub(crate) struct End {
    context: Arc<BrokerContext>,
    tasks: Tracker,
    backlog: Arc<Backlog>,
    permits: Arc<Semaphore>,
}

impl End {
    pub(crate) fn new(context: Arc<BrokerContext>, tasks: Tracker) -> Self {
        Self {
            context,
            tasks,
            backlog: Backlog::new(WAITING, PARTS),
            permits: Arc::new(Semaphore::new(SEARCHES)),
        }
    }

    fn search_and_end(&self, request: Command, peer: &Peer, reply: Reply) {
        let entry = match self.backlog.enter(peer, Load::of(&request), true) {
            Ok(entry) => entry,
            Err(BacklogFull(used)) => {
                let text = format!(
                    "[OVERLOAD] {} ends of transactions from before the start wait for searches of the log, allowed \
                     are {}: the transaction stays open, and the check asks for its end",
                    used.requests, WAITING.requests
                );
                let refusal = Refusal::new(response::SYSTEM_BUSY, text);
                return self.context.refuse(&request, reply, refusal);
            }
        };
        let (context, permits) = (self.context.clone(), self.permits.clone());
        let searcher = context.clone();
        let (request, peer) = (detached(request), peer.clone());
        self.tasks.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await.ok();
            let ending = move || {
                // Its user may have lost its rights meanwhile.
                if let Some(refusal) = searcher.check_again(&request, &peer) {
                    return reply.send(refusal);
                }
                let began = Instant::now();
                let answer = end(&searcher, &request, &peer, true)
                    .and_then(|answer| answer.ok_or_else(|| Refusal::internal("the log was not searched")));
                send_answer(&searcher, &request, reply, began, answer);
                drop(entry);
            };
            serve_on_blocking_thread(&context.stats, "the end of a transaction", ending).await;
        });
    }
}

impl Processor for End {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        let began = Instant::now();
        match end(&self.context, &request, peer, false).transpose() {
            Some(answer) => send_answer(&self.context, &request, reply, began, answer),
            None => self.search_and_end(request, peer, reply),
        }
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("End")
    }
}

/// Ends the transaction that a request names. `None`: the log must be searched first, and this call may not do that;
/// nothing has changed.
pub(super) fn end(
    context: &BrokerContext,
    request: &Command,
    peer: &Peer,
    may_search: bool,
) -> Result<Option<Command>, Refusal> {
    let header = EndTransactionRequestHeader::decode(&request.fields)?;
    let commit = match header.commit_or_rollback {
        sys_flag::TRANSACTION_COMMIT => true,
        sys_flag::TRANSACTION_ROLLBACK => false,
        0 => {
            // The producer does not know the outcome yet; it will be asked.
            tracing::debug!(
                group = header.producer_group,
                id = header.msg_id,
                "a transaction stays open"
            );
            return Ok(Some(Command::response(response::SUCCESS)));
        }
        other => {
            let text = format!("commitOrRollback is {other}, it must be 8, 12 or 0");
            return Err(Refusal::new(response::INVALID_PARAMETER, text));
        }
    };
    let bytes = context
        .store
        .record_at(header.commit_log_offset)
        .map_err(|error| internal(&error))?
        .ok_or_else(|| Refusal::internal("Find prepared transaction message failed"))?;
    let half = Record::decode(&bytes)?;
    let id = expect(&half, &header)?;
    check_owner(context, request, peer, &half)?;
    refuse_late(context, &half, &header)?;
    let Some(mut open) = begin_end(context, (id, first_known(&half)), may_search)? else {
        return Ok(None);
    };
    match finish(context, &half, &mut open, commit) {
        Ok(()) => {
            let mut tables = context.transactions.tables();
            // The check may have written a copy meanwhile.
            let newest = tables.remove(id, open.first_half).map(|open| open.half_offset);
            tables
                .superseded
                .extend(newest.filter(|newest| *newest != open.half_offset));
            drop(tables);
            tracing::debug!(id, commit, peer = %peer.remote(), "a transaction ended");
            Ok(Some(Command::response(response::SUCCESS)))
        }
        Err(refusal) => {
            let mut tables = context.transactions.tables();
            if let Some(known) = tables.update(id, &open) {
                known.ending = false;
            }
            Err(refusal)
        }
    }
}

/// The half's unique id, if it is the half that the request names.
fn expect<'a>(half: &Record<'a>, header: &EndTransactionRequestHeader<'_>) -> Result<&'a str, Refusal> {
    let wrong = |text: &str| Err(Refusal::internal(text));
    if half.topic != HALF_TOPIC {
        return wrong("Find prepared transaction message failed");
    }
    if half.properties.get(names::PGROUP) != Some(header.producer_group) {
        return wrong("The producer group wrong");
    }
    if half.queue_offset != header.tran_state_table_offset {
        return wrong("The transaction state table offset wrong");
    }
    half.properties
        .get(names::UNIQ_KEY)
        .ok_or_else(|| Refusal::internal("the half message has no UNIQ_KEY"))
}

/// Refuses a user who may not send to the topic of the half: the request may name no topic, or another one.
fn check_owner(
    context: &BrokerContext,
    request: &Command,
    peer: &Peer,
    half: &Record<'_>,
) -> Result<(), Refusal> {
    let user = context.user_of(request);
    let topic = half.properties.get(names::REAL_TOPIC).unwrap_or_default();
    if context.may_send(user.as_deref(), topic, peer) {
        return Ok(());
    }
    let text = "the user may not send to the topic of this transaction";
    Err(Refusal::new(response::NO_PERMISSION, text))
}

/// Refuses an end after the time that the producer set for the first check, unless it answers a check (Apache
/// `rejectCommitOrRollback`).
fn refuse_late(
    context: &BrokerContext,
    half: &Record<'_>,
    header: &EndTransactionRequestHeader<'_>,
) -> Result<(), Refusal> {
    let from_check = header.from_transaction_check.unwrap_or(false);
    let own = half.properties.get(names::CHECK_IMMUNITY_TIME_IN_SECONDS);
    if from_check || own.is_none() {
        return Ok(());
    }
    let age_ms = clock::now_ms().saturating_sub(half.born_timestamp_ms);
    let immune_ms = check::immunity_ms(own, context.live.transaction_time_out());
    if age_ms <= immune_ms {
        return Ok(());
    }
    let text = format!("the transaction is {age_ms} ms old, it had {immune_ms} ms: wait for the check");
    Err(Refusal::new(response::ILLEGAL_OPERATION, text))
}

/// Claims the transaction, so that only one of two concurrent ends succeeds. `None`: the log must first be searched for
/// its message. Its first half tells it from others with its unique id.
fn begin_end(
    context: &BrokerContext,
    (id, first): (&str, i64),
    may_search: bool,
) -> Result<Option<OpenTransaction>, Refusal> {
    let mut tables = context.transactions.tables();
    match tables.get_mut(id, first) {
        Some(open) if !open.ending && open.found && !may_search => Ok(None),
        Some(open) if !open.ending => {
            open.ending = true;
            Ok(Some(*open))
        }
        _ => Err(Refusal::internal("the transaction has ended already")),
    }
}

fn finish(
    context: &BrokerContext,
    half: &Record<'_>,
    open: &mut OpenTransaction,
    commit: bool,
) -> Result<(), Refusal> {
    if open.found {
        let searched = find_commit(&context.store, half, 0);
        open.record_search(searched.map_err(|error| internal(&error))?);
    }
    if commit && !open.committed {
        commit_half(context, half)?;
        open.committed = true;
    }
    let (store, host) = (&context.store, context.store_host());
    let written = context.transactions.write_op(store, host, open.half_offset);
    written.map_err(|error| internal(&error))
}

/// Stores the message under its real topic (Apache `endMessageTransaction`).
fn commit_half(context: &BrokerContext, half: &Record<'_>) -> Result<(), Refusal> {
    let text = half.properties.as_str()?;
    let topic = properties::find(text, names::REAL_TOPIC);
    let queue_id = properties::find(text, names::REAL_QID).and_then(|id| id.parse::<i32>().ok());
    let (Some(topic), Some(queue_id)) = (topic, queue_id) else {
        return Err(Refusal::internal(
            "the half message has no REAL_TOPIC and REAL_QID",
        ));
    };
    // A topic that was deleted and created again may have fewer queues. Nobody reads a queue that it no longer has.
    let known = context
        .topics
        .get(topic)
        .ok_or_else(|| Refusal::no_topic(topic))?;
    let queue_id = queue_id.rem_euclid(known.queue_nums().max(1));
    let parsed = properties::parse(text);
    let real = properties::copy(text, 0, |name| OF_THE_HALF.contains(&name));
    let mut pending = PendingMessage {
        message: NewMessage {
            sys_flag: sys_flag::with_transaction(half.sys_flag, sys_flag::TRANSACTION_COMMIT),
            properties: real.into(),
            ..copy_of(half, topic, queue_id, text)
        },
        delay_level: parsed.delay_level,
    };
    let is_delayed = parsed.delay_level > 0;
    let waits = is_delayed || (parsed.is_timer && context.timers.schedule(&mut pending)?.is_some());
    if !waits {
        pending.message.prepared_transaction_offset = half.physical_offset;
    }
    let stored = pending.put_accepted(&context.store, context.delays.levels());
    let stored = stored.map_err(|error| {
        context.stats.put_failed.fetch_add(1, Ordering::Relaxed);
        Refusal::of_put(&error)
    })?;
    let bytes = stored.bytes();
    context.stats.count_put(1, bytes);
    known.traffic.count_put(1, bytes);
    Ok(())
}
