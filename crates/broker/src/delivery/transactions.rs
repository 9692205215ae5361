//! The open transactions of the broker (Apache `TransactionalMessageBridge`); `processor/transaction/` ends and checks
//! them.
//!
//! ```text
//! first half  -->  copy  -->  copy ...       by checks, while the transaction is open
//!     |             |          |   `-----> given up  -->  copy, by request 323: open again
//!     +-------------+----------+---------> op message                   rolled back
//!     +-------------+----------+---------> message, then op message     committed
//!
//! first half   RMQ_SYS_TRANS_HALF_TOPIC queue 0: the message, with REAL_TOPIC, REAL_QID, __transactionId__. The
//!              table of open transactions lists it by its unique id and the log position of this first half.
//! copy         after the others in the same queue, prepared offset = log position of the first half. A check writes
//!              it and asks the producer group (39). The table lists the queue offset of the newest copy.
//! given up     checked too often, or too old: a copy in TRANS_CHECK_MAX_TIME_TOPIC; the table has it no more
//! message      under its real topic, prepared offset = log position of the half that the producer names
//! op message   RMQ_SYS_TRANS_OP_HALF_TOPIC queue 0, tag d: queue offsets of ended halves, each with a comma
//! superseded half
//!              a copy that was written while its transaction ended, or while the producer sent it once more: the
//!              table has another half of it, or none. The check writes an op message for it.
//! ```
//! Group `CID_RMQ_SYS_TRANS` stores how far both queues are done, as Apache's brokers do, so a store may move between
//! them. An op message is written with its commit, not seconds later. At start the table of open transactions is
//! rebuilt from the two queues; an open half whose message is already in the log (the broker died between commit and
//! op) is only closed. So a message appears once or never, whichever side dies, and when.

use crate::delivery::half::{CommitSearch, QUEUE, first_known, is_copy_of};
use crate::delivery::scan::has_record;
use crate::message::properties::{self, names};
use crate::tables::offsets::Offsets;
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
    /// Offset in the half queue of its newest half: each check writes another one.
    pub(crate) half_offset: i64,
    /// Log position of its first half, see [`first_known`]. It distinguishes transactions with the same unique id.
    pub(crate) first_half: i64,
    /// Whether the end of the transaction is being written.
    pub(crate) ending: bool,
    /// Whether it was found at start and not searched since: its message may be in the log already.
    pub(crate) found: bool,
    /// Whether its message is in the log, and its op message is not. A search finds the message only once it is
    /// durable.
    pub(crate) committed: bool,
}

impl OpenTransaction {
    /// An open transaction whose message is not in the log, with the position of its first half.
    pub(crate) fn new(half_offset: i64, first_half: i64) -> Self {
        Self {
            half_offset,
            first_half: first_half.max(1),
            ending: false,
            found: false,
            committed: false,
        }
    }

    /// Records whether a search has found its message. No second search is needed: what is written from now on is
    /// known.
    pub(crate) fn record_search(&mut self, commit: CommitSearch) {
        self.found = false;
        self.committed |= commit == CommitSearch::Own;
    }
}

#[derive(Debug, Default)]
pub(crate) struct TransactionTables {
    /// The last transaction of each unique id. If no transaction has a half's offset, here or in `earlier`, the half
    /// has ended or there is a newer copy.
    pub(crate) open: HashMap<Box<str>, OpenTransaction>,
    /// Transactions with the unique id of a later one, by `first_half`. The check asks no producer about them, since a
    /// producer may have sent one half twice. Ends that come for them are served.
    pub(crate) earlier: BTreeMap<i64, OpenTransaction>,
    /// Offsets of halves that have ended but lie after the first open one.
    pub(crate) ended: BTreeSet<i64>,
    /// Op messages that are not done yet, by offset: offset in the op queue, and highest half that it ends.
    pub(crate) ops: VecDeque<(i64, i64)>,
    /// Op messages that are being written, and may be stored: each has this offset in the op queue, or a later one.
    pub(crate) unlisted: Vec<i64>,
    /// The offset after the last half that a pass of the check has skipped because no transaction listed it.
    pub(crate) passed: i64,
    /// The lowest offset of a half that was listed after a pass of the check had skipped it: the next pass begins
    /// there.
    pub(crate) missed: Option<i64>,
    /// Offsets of superseded halves: copies that were written while their transaction ended. They need an op message.
    pub(crate) superseded: VecDeque<i64>,
    /// End of the log at the start. Transactions that began before it were found at start, and their ends may wait for
    /// a search.
    pub(crate) last_run_end: i64,
}

impl TransactionTables {
    /// The transaction with this unique id and this first half.
    pub(crate) fn get_mut(&mut self, id: &str, first_half: i64) -> Option<&mut OpenTransaction> {
        match self.open.get_mut(id) {
            Some(open) if open.first_half == first_half => Some(open),
            _ => self.earlier.get_mut(&first_half),
        }
    }

    /// Whether no later transaction has its unique id.
    pub(crate) fn is_last(&self, id: &str, first_half: i64) -> bool {
        self.open
            .get(id)
            .is_some_and(|open| open.first_half == first_half)
    }

    /// Adds a transaction, or replaces what is known about it. Transactions may be added out of order: halves come from
    /// several connections, and a copy lies after the half of a later transaction.
    pub(crate) fn add(&mut self, id: &str, open: OpenTransaction) {
        if let Some(known) = self.get_mut(id, open.first_half) {
            *known = open;
            return;
        }
        let mut earlier = open;
        match self.open.get_mut(id) {
            Some(last) if last.first_half > open.first_half => {}
            Some(last) => earlier = std::mem::replace(last, open),
            None => {
                self.open.insert(id.into(), open);
                return;
            }
        }
        self.earlier.insert(earlier.first_half, earlier);
    }

    /// Removes a transaction that has ended.
    pub(crate) fn remove(&mut self, id: &str, first_half: i64) -> Option<OpenTransaction> {
        if self.is_last(id, first_half) {
            return self.open.remove(id);
        }
        self.earlier.remove(&first_half)
    }

    /// Lists a transaction as one with the unique id of a later one.
    pub(crate) fn set_aside(&mut self, id: &str, first_half: i64) {
        if let Some(open) = self.remove(id, first_half) {
            self.earlier.insert(first_half, open);
        }
    }

    /// Records that an op message is about to be written, at this offset or after it. Progress stops before it.
    pub(crate) fn begin_op(&mut self, from: i64) {
        self.unlisted.push(from);
    }

    /// Records that an op message is listed, or was not written.
    pub(crate) fn end_op(&mut self, from: i64) {
        if let Some(at) = self.unlisted.iter().position(|begun| *begun == from) {
            self.unlisted.swap_remove(at);
        }
    }

    /// Lists an op message that ends a half. Two that are written at once may come out of order: they are listed by
    /// offset, so that progress stops before the first that is not done.
    pub(crate) fn list_op(&mut self, op_offset: i64, half_offset: i64) {
        let at = self.ops.partition_point(|(earlier, _)| *earlier < op_offset);
        self.ops.insert(at, (op_offset, half_offset));
    }

    /// Records what became known about the message of an open transaction. `None`: it is no longer open.
    pub(crate) fn update(&mut self, id: &str, seen: &OpenTransaction) -> Option<&mut OpenTransaction> {
        let known = self.get_mut(id, seen.first_half)?;
        known.found &= seen.found;
        known.committed |= seen.committed;
        Some(known)
    }

    /// Adds a half of the last run. `closed` has the first halves of transactions that have ended: an op message for
    /// one half of a transaction counts for all.
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
        let last = self.open.get(id).map(|open| open.first_half);
        if last.is_some_and(|last| is_copy_of(store, half, last)) {
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
    tables: Mutex<TransactionTables>,
}

impl Transactions {
    pub(crate) fn tables(&self) -> MutexGuard<'_, TransactionTables> {
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
        let mut tables = TransactionTables {
            last_run_end: store.end_position(),
            ..TransactionTables::default()
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
        // Not more than its offset will be, which is only known once it is stored.
        let from = store.max_offset(OP_HALF_TOPIC, QUEUE);
        self.tables().begin_op(from);
        let stored = store.put(&NewMessage {
            body: body.as_bytes(),
            properties: text.into(),
            tags_code: java_hash::tags_code(Some(REMOVE_TAG)),
            tag: Some(REMOVE_TAG),
            ..NewMessage::new(OP_HALF_TOPIC, QUEUE, host)
        });
        let mut tables = self.tables();
        tables.end_op(from);
        let stored = stored?;
        tables.list_op(stored.queue_offset, half_offset);
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
