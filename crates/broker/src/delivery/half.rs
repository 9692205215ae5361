//! Halves of transactions: their copies, and the search for the message of one.

use crate::delivery::scan::has_record;
use crate::message::pending::copy_of;
use crate::message::properties::{self, names};
use pyrmq_remoting::message::{Record, record, sys_flag};
use pyrmq_remoting::names::{HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC};
use pyrmq_store::{KeyKind, KeyQuery, NewMessage, Store, StoreError};

/// The queue for halves and op messages: Apache writes to one queue only.
pub(crate) const QUEUE: i32 = 0;

/// The queues of a topic that may hold a half's message, its own one first. The number of queues and of delay levels
/// may have changed since it was stored, in either direction.
fn queues_of(store: &Store, topic: &str, own: i32) -> Vec<i32> {
    let mut queues = store.queue_ids(topic);
    queues.sort_by_key(|queue_id| *queue_id != own);
    queues
}

/// The log position of a transaction's first half. The log has nothing of the transaction before it. `None` if the half
/// may be a copy that does not name its first half (Apache's broker and earlier versions write such copies): then the
/// committed message may lie before this half. Times do not bound the search for it, since clocks go back.
fn first_half(half: &Record<'_>) -> Option<i64> {
    if half.prepared_transaction_offset > 0 {
        return Some(half.prepared_transaction_offset);
    }
    let of_copies = [names::TRANSACTION_CHECK_TIMES, names::TRAN_PREPARED_QUEUE_OFFSET];
    let may_be_copy =
        half.topic != HALF_TOPIC || of_copies.iter().any(|name| half.properties.get(name).is_some());
    (!may_be_copy).then_some(half.physical_offset)
}

/// The log position of a transaction's first half or, if that is unknown, of this half. Never 0: a copy stores this
/// position, and 0 means "unknown" there.
pub(crate) fn first_known(half: &Record<'_>) -> i64 {
    first_half(half).unwrap_or(half.physical_offset).max(1)
}

/// Whether a half is a copy of the first half at a log position that does not say where its first half is. Both have
/// one unique id.
pub(crate) fn is_copy_of(store: &Store, half: &Record<'_>, first: i64) -> bool {
    let Ok(Some(bytes)) = store.record_at(first) else {
        return false;
    };
    let is_as_old = |first: Record<'_>| first.born_timestamp_ms == half.born_timestamp_ms;
    first_half(half).is_none() && Record::decode(&bytes).is_ok_and(is_as_old)
}

/// A copy of a half. The caller has made sure that the transaction is not committed. So the copy can name the first
/// half or, if that is unknown, this half as the position from which its message must be searched.
pub(crate) fn copy_of_open<'a>(half: &Record<'a>, topic: &'a str, text: &'a str) -> NewMessage<'a> {
    NewMessage {
        prepared_transaction_offset: first_known(half),
        ..copy_of(half, topic, QUEUE, text)
    }
}

/// Whether the log has a half's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitSearch {
    /// Nothing, and nothing of a later transaction with its unique id.
    Nothing,
    /// The message.
    Own,
    /// Not the message, but that of a transaction with its unique id that began later.
    Later,
}

/// Searches the log for the committed message of a half, at or after a position.
pub(crate) fn find_commit(store: &Store, half: &Record<'_>, after: i64) -> Result<CommitSearch, StoreError> {
    let text = half.properties.as_str().unwrap_or_default();
    let of_half = properties::parse(text);
    let (Some(topic), Some(id)) = (properties::find(text, names::REAL_TOPIC), of_half.unique_key) else {
        return Ok(CommitSearch::Nothing);
    };
    let first_half = first_half(half);
    let mut wanted = WantedCommit {
        id,
        born_ms: half.born_timestamp_ms,
        first_half,
        from: first_half.unwrap_or(0).max(after),
        has_later: false,
    };
    let own = properties::find(text, names::REAL_QID).and_then(|id| id.parse().ok());
    // A delayed message is in a queue of the schedule or timer topic until it is delivered.
    let queues = [
        Some((topic, own.unwrap_or(0))),
        of_half.is_timer.then_some((TIMER_TOPIC, 0)),
        (of_half.delay_level > 0).then_some((SCHEDULE_TOPIC, of_half.delay_level - 1)),
    ];
    for (topic, own) in queues.into_iter().flatten() {
        if wanted.search(store, topic, own)? {
            return Ok(CommitSearch::Own);
        }
    }
    Ok(if wanted.has_later {
        CommitSearch::Later
    } else {
        CommitSearch::Nothing
    })
}

/// The committed message that [`find_commit`] searches. A unique id alone does not identify it: an application may send
/// one message twice, which makes two transactions with one id.
struct WantedCommit<'a> {
    id: &'a str,
    /// When the message was born, in ms. Every broker keeps that.
    born_ms: i64,
    first_half: Option<i64>,
    /// The message is not before this log position.
    from: i64,
    /// Whether the message of a later transaction with this id was seen.
    has_later: bool,
}

impl WantedCommit<'_> {
    /// Searches a topic: by the key index, and the queues themselves where the index is missing or incomplete.
    fn search(&mut self, store: &Store, topic: &str, own_queue: i32) -> Result<bool, StoreError> {
        let query = KeyQuery {
            topic,
            key: self.id,
            kind: KeyKind::Unique,
            max_count: 32,
            begin_ms: 0,
            end_ms: i64::MAX,
        };
        let found = store.query_from(&query, self.from)?;
        let mut records = record::records(&found.body).map_while(Result::ok);
        if records.any(|record| self.matches(&record)) {
            return Ok(true);
        }
        if found.is_complete {
            return Ok(false);
        }
        for queue_id in queues_of(store, topic, own_queue) {
            let offset = store.offset_by_position(topic, queue_id, self.from)?;
            if has_record(store, (topic, queue_id), offset, |record| self.matches(record))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a record is the message; otherwise records whether it is that of a later transaction.
    fn matches(&mut self, record: &Record<'_>) -> bool {
        // The half by which it was committed. A delayed message does not name it.
        let by_half = record.prepared_transaction_offset;
        let is_earlier = by_half > 0 && by_half < self.first_half.unwrap_or(0);
        if sys_flag::transaction(record.sys_flag) != sys_flag::TRANSACTION_COMMIT
            || record.physical_offset < self.from
            || is_earlier
            || record.properties.get(names::UNIQ_KEY) != Some(self.id)
        {
            return false;
        }
        let is_own = record.born_timestamp_ms == self.born_ms;
        self.has_later |= self.first_half.is_some() && !is_own;
        is_own
    }
}
