//! The open transactions of the broker (Apache `TransactionalMessageBridge`); `processor/transaction/` ends and checks
//! them.
//!
//! ```text
//! half     RMQ_SYS_TRANS_HALF_TOPIC queue 0: the message, with REAL_TOPIC, REAL_QID, __transactionId__
//! commit   the message under its real topic, prepared offset = the half's log position; then the op message
//! rollback the op message alone
//! op       RMQ_SYS_TRANS_OP_HALF_TOPIC queue 0, tag d: queue offsets of ended halves, each with a comma
//! check    a half without an end is written again behind the others, and its producer group is asked (39); the copy
//!          has the log position of the first half as prepared offset
//! ```
//! Group `CID_RMQ_SYS_TRANS` stores how far both queues are done, as Apache's brokers do, so a store may move between
//! them. An op message is written with its commit, not seconds later. At start the table of open transactions is
//! rebuilt from the two queues; an open half whose message is already in the log (the broker died between commit and
//! op) is only closed. So a message appears once or never, whichever side dies, and when.

use crate::delivery::half::{CommitSearch, QUEUE, first_known, is_copy};
use crate::delivery::scan::has_record;
use crate::message::properties::{self, names};
use crate::tables::offsets::Offsets;
use pyrmq_remoting::clock;
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_remoting::names::{HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP};
use pyrmq_remoting::sync::lock;
use pyrmq_store::{GetMessage, NewMessage, Store, StoreError, Stored, TagFilter};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

/// Tag of an op message (Apache `TransactionalMessageUtil.REMOVE_TAG`).
const REMOVE_TAG: &str = "d";
const READ_BYTES: usize = 4 << 20;

/// Properties that a half adds and the committed message does not have.
pub(crate) const OF_THE_HALF: [&str; 2] = [names::REAL_TOPIC, names::REAL_QID];

/// An open transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenTransaction {
    /// Offset of its half in the half queue; a check changes it.
    pub(crate) half_offset: i64,
    /// Log position of its first half, see [`first_known`]. Other transactions with its unique id have other ones.
    pub(crate) first: i64,
    /// Whether the end of the transaction is being written.
    pub(crate) ending: bool,
    /// Whether it was found at start and not searched since: its message may be in the log already.
    pub(crate) found: bool,
    /// Whether its message is in the log, and its op message is not. A search does not show that before it is durable.
    pub(crate) committed: bool,
}

impl OpenTransaction {
    /// A transaction whose message is not in the log, with the position of its first half.
    pub(crate) fn new(half_offset: i64, first: i64) -> Self {
        Self {
            half_offset,
            first: first.max(1),
            ending: false,
            found: false,
            committed: false,
        }
    }

    /// Records whether a search has found its message. What is written from now on is known without another one.
    pub(crate) fn record_search(&mut self, commit: CommitSearch) {
        self.found = false;
        self.committed |= commit == CommitSearch::Own;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The last transaction of each unique id. A half whose offset no transaction has, here or in `earlier`, has ended
    /// or was written again.
    pub(crate) open: HashMap<Box<str>, OpenTransaction>,
    /// Transactions with the unique id of a later one, by `first`. Nobody is asked about them, since a producer may
    /// have sent one half twice. Their ends count.
    pub(crate) earlier: BTreeMap<i64, OpenTransaction>,
    /// Offsets of halves that have ended but lie after the first open one.
    pub(crate) ended: BTreeSet<i64>,
    /// Op messages that are not done yet: offset in the op queue, and highest half that it ends.
    pub(crate) ops: VecDeque<(i64, i64)>,
    /// The check has passed halves in front of this offset that were not listed.
    pub(crate) passed: i64,
    /// The first half that the check may have passed before it was listed.
    pub(crate) missed: Option<i64>,
    /// Halves of transactions that ended while these were written. They have no op message yet.
    pub(crate) unused: VecDeque<i64>,
    /// End of the log at the start: what began in front of it was found at start, and its end may wait for a search.
    pub(crate) last_run_end: i64,
}

impl Tables {
    /// The transaction with this unique id and this first half.
    pub(crate) fn get_mut(&mut self, id: &str, first: i64) -> Option<&mut OpenTransaction> {
        match self.open.get_mut(id) {
            Some(open) if open.first == first => Some(open),
            _ => self.earlier.get_mut(&first),
        }
    }

    /// Whether no later transaction has its unique id.
    pub(crate) fn is_last(&self, id: &str, first: i64) -> bool {
        self.open.get(id).is_some_and(|open| open.first == first)
    }

    /// Adds a transaction, or replaces what is known about it. Halves of two connections may come out of order, and one
    /// that was written again lies behind a later transaction.
    pub(crate) fn add(&mut self, id: &str, open: OpenTransaction) {
        if let Some(known) = self.get_mut(id, open.first) {
            *known = open;
            return;
        }
        let mut earlier = open;
        match self.open.get_mut(id) {
            Some(last) if last.first > open.first => {}
            Some(last) => earlier = std::mem::replace(last, open),
            None => {
                self.open.insert(id.into(), open);
                return;
            }
        }
        self.earlier.insert(earlier.first, earlier);
    }

    /// Removes a transaction that has ended.
    pub(crate) fn remove(&mut self, id: &str, first: i64) -> Option<OpenTransaction> {
        if self.is_last(id, first) {
            return self.open.remove(id);
        }
        self.earlier.remove(&first)
    }

    /// Lists a transaction as one with the unique id of a later one.
    pub(crate) fn set_aside(&mut self, id: &str, first: i64) {
        if let Some(open) = self.remove(id, first) {
            self.earlier.insert(first, open);
        }
    }

    /// Records what became known about the message of an open transaction. `None`: it is no longer open.
    pub(crate) fn update(&mut self, id: &str, seen: &OpenTransaction) -> Option<&mut OpenTransaction> {
        let known = self.get_mut(id, seen.first)?;
        known.found &= seen.found;
        known.committed |= seen.committed;
        Some(known)
    }

    /// Adds a half of the last run. Those of one transaction that has ended are listed in `closed`: an op message for
    /// one of its halves counts for all.
    fn add_found(&mut self, store: &Store, half: &Record<'_>, closed: &mut HashSet<i64>) {
        let Some(id) = half.properties.get(names::UNIQ_KEY) else {
            return;
        };
        let first = first_known(half);
        if self.ended.contains(&half.queue_offset) {
            self.remove(id, first);
            closed.insert(first);
            return;
        }
        // Request 323 opens a transaction again, with a half that was never checked.
        let is_resumed = half.properties.get(names::TRANSACTION_CHECK_TIMES) == Some("0");
        if closed.contains(&first) && !is_resumed {
            return;
        }
        closed.remove(&first);
        let last = self.open.get(id).map(|open| open.first);
        if last.is_some_and(|last| is_copy(store, half, last)) {
            self.open.remove(id);
        }
        let open = OpenTransaction {
            found: true,
            ..OpenTransaction::new(half.queue_offset, first)
        };
        self.add(id, open);
    }
}

/// The open transactions of a broker.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    // Guards the tables of open and ended transactions.
    tables: Mutex<Tables>,
}

impl Transactions {
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    /// The number of open transactions that producers are asked about.
    pub(crate) fn open(&self) -> usize {
        self.tables().open.len()
    }

    /// Reads both queues from their first unfinished message on.
    pub(crate) fn load(
        store: &Store,
        half_from: Option<i64>,
        op_from: Option<i64>,
    ) -> Result<Self, StoreError> {
        let mut tables = Tables {
            last_run_end: store.end_position(),
            ..Tables::default()
        };
        let half_from = half_from.unwrap_or(0).max(store.min_offset(HALF_TOPIC, QUEUE));
        let op_from = op_from.unwrap_or(0).max(store.min_offset(OP_HALF_TOPIC, QUEUE));
        each(store, OP_HALF_TOPIC, op_from, |record| {
            let text = std::str::from_utf8(record.body).unwrap_or_default();
            let half_offsets = text
                .split(',')
                .filter_map(|half_offset| half_offset.trim().parse::<i64>().ok());
            let half_offsets: Vec<i64> = half_offsets.collect();
            let highest = half_offsets.iter().copied().max().unwrap_or(-1);
            tables.ops.push_back((record.queue_offset, highest));
            tables.ended.extend(
                half_offsets
                    .into_iter()
                    .filter(|half_offset| *half_offset >= half_from),
            );
        })?;
        let mut closed = HashSet::new();
        each(store, HALF_TOPIC, half_from, |half| {
            tables.add_found(store, half, &mut closed);
        })?;
        if !tables.open.is_empty() || !tables.earlier.is_empty() {
            tracing::info!(count = tables.open.len(), "open transactions found at the start");
            // With SYNC_FLUSH a search shows what is durable. A failed log accepts no message that would be a second
            // one.
            if let Err(error) = store.flush() {
                tracing::warn!(%error, "cannot flush what the last run has written");
            }
        }
        Ok(Self {
            tables: Mutex::new(tables),
        })
    }

    /// Records that a half was stored. It was readable before: if the check has passed it, its next pass begins there.
    pub(crate) fn began(&self, offsets: &Offsets, id: &str, half: &Stored) {
        let half_offset = half.queue_offset;
        let mut tables = self.tables();
        tables.add(id, OpenTransaction::new(half_offset, half.physical_offset));
        if half_offset < tables.passed {
            let missed = tables.missed.unwrap_or(half_offset);
            tables.missed = Some(missed.min(half_offset));
            let done = offsets.get(TRANSACTION_GROUP, HALF_TOPIC, QUEUE);
            if done.is_some_and(|done| done > half_offset) {
                offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, QUEUE, half_offset);
            }
        }
    }

    /// Writes the op message for a half that has ended.
    pub(crate) fn write_op(
        &self,
        store: &Store,
        host: SocketAddr,
        half_offset: i64,
    ) -> Result<(), StoreError> {
        let body = format!("{half_offset},");
        let mut text = String::new();
        properties::append(&mut text, names::TAGS, REMOVE_TAG);
        properties::append(&mut text, names::WAIT, "true");
        let stored = store.put(&NewMessage {
            topic: OP_HALF_TOPIC,
            queue_id: QUEUE,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: clock::now_ms(),
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: body.as_bytes(),
            properties: text.into(),
            tags_code: java_hash::tags_code(Some(REMOVE_TAG)),
            unique_key: None,
            keys: None,
            tag: Some(REMOVE_TAG),
        })?;
        let mut tables = self.tables();
        tables.ops.push_back((stored.queue_offset, half_offset));
        tables.ended.insert(half_offset);
        Ok(())
    }
}

/// Calls a function with each record of a queue from an offset on.
fn each(
    store: &Store,
    topic: &str,
    offset: i64,
    mut take: impl FnMut(&Record<'_>),
) -> Result<(), StoreError> {
    has_record(store, (topic, QUEUE), offset, |record| {
        take(record);
        false
    })
    .map(drop)
}

pub(crate) fn read(
    store: &Store,
    topic: &str,
    offset: i64,
    count: usize,
) -> Result<pyrmq_store::GetMessageResult, StoreError> {
    store.get(&GetMessage {
        topic,
        queue_id: QUEUE,
        offset,
        max_count: count,
        max_bytes: READ_BYTES,
        tags: TagFilter::All,
    })
}

/// Turns a send's properties into those of a half (Apache `parseHalfMessageInner`).
pub(crate) fn half_properties(text: &mut String, id: &str, topic: &str, queue_id: i32) {
    properties::append(text, names::TRANSACTION_ID, id);
    properties::append(text, names::REAL_TOPIC, topic);
    properties::append(text, names::REAL_QID, &queue_id.to_string());
}
