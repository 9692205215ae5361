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

use crate::delivery::half::QUEUE;
use crate::delivery::scan::has_record;
use crate::message::properties::{self, names};
use pyrmq_remoting::clock;
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_remoting::names::{HALF_TOPIC, OP_HALF_TOPIC};
use pyrmq_remoting::sync::lock;
use pyrmq_store::{GetMessage, NewMessage, Store, StoreError, TagFilter};
use std::collections::{BTreeSet, HashMap, VecDeque};
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
    /// Whether the end of the transaction is being written.
    pub(crate) ending: bool,
    /// Whether it was found at start and not searched since: its message may be in the log already.
    pub(crate) found: bool,
    /// Whether its message is in the log, and its op message is not. A search does not show that before it is durable.
    pub(crate) committed: bool,
}

impl OpenTransaction {
    /// A transaction whose message is not in the log.
    pub(crate) fn new(half_offset: i64) -> Self {
        Self {
            half_offset,
            ending: false,
            found: false,
            committed: false,
        }
    }

    /// Records whether a search has found its message. What is written from now on is known without another one.
    pub(crate) fn record_search(&mut self, is_committed: bool) {
        self.found = false;
        self.committed |= is_committed;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// By unique id. A half that is not listed with its offset has ended, or a later half replaced it.
    pub(crate) open: HashMap<Box<str>, OpenTransaction>,
    /// Offsets of halves that have ended but lie after the first open one.
    pub(crate) ended: BTreeSet<i64>,
    /// Op messages that are not done yet: offset in the op queue, and highest half that it ends.
    pub(crate) ops: VecDeque<(i64, i64)>,
}

impl Tables {
    /// Records what became known about the message of an open transaction. `None`: it is no longer open.
    pub(crate) fn update(&mut self, id: &str, seen: &OpenTransaction) -> Option<&mut OpenTransaction> {
        let known = self.open.get_mut(id)?;
        if known.half_offset != seen.half_offset {
            return None;
        }
        known.found &= seen.found;
        known.committed |= seen.committed;
        Some(known)
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

    /// The number of open transactions.
    pub(crate) fn open(&self) -> usize {
        self.tables().open.len()
    }

    /// Reads both queues from their first unfinished message on.
    pub(crate) fn load(
        store: &Store,
        half_from: Option<i64>,
        op_from: Option<i64>,
    ) -> Result<Self, StoreError> {
        let mut tables = Tables::default();
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
        each(store, HALF_TOPIC, half_from, |record| {
            let id = record.properties.get(names::UNIQ_KEY);
            if let Some(id) = id.filter(|_| !tables.ended.contains(&record.queue_offset)) {
                let open = OpenTransaction {
                    found: true,
                    ..OpenTransaction::new(record.queue_offset)
                };
                tables.open.insert(id.into(), open);
            }
        })?;
        if !tables.open.is_empty() {
            tracing::info!(
                count = tables.open.len(),
                "transactions are open since before the start"
            );
            // With SYNC_FLUSH a search shows what is durable. A failed log accepts no message that would be a second
            // one.
            if let Err(error) = store.flush() {
                tracing::warn!(%error, "cannot make durable what the last run has left");
            }
        }
        Ok(Self {
            tables: Mutex::new(tables),
        })
    }

    /// Records that a half was stored.
    pub(crate) fn began(&self, id: &str, half_offset: i64) {
        let open = OpenTransaction::new(half_offset);
        self.tables().open.insert(id.into(), open);
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
