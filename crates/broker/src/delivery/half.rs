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

/// The position of the first half of a transaction: nothing of it is committed in front of that. `None` if the half may
/// be a copy that does not say where its first half is, as Apache's broker and earlier versions write: then the message
/// may lie in front of this half. Times do not bound the search, since clocks go back.
fn first_half(half: &Record<'_>) -> Option<i64> {
    if half.prepared_transaction_offset > 0 {
        return Some(half.prepared_transaction_offset);
    }
    let of_copies = [names::TRANSACTION_CHECK_TIMES, names::TRAN_PREPARED_QUEUE_OFFSET];
    let is_copy =
        half.topic != HALF_TOPIC || of_copies.iter().any(|name| half.properties.get(name).is_some());
    (!is_copy).then_some(half.physical_offset)
}

/// The position of the first half of a transaction or, if that is unknown, of this one. Never 0: a copy stores it, and
/// 0 means "unknown" there.
pub(crate) fn first_known(half: &Record<'_>) -> i64 {
    first_half(half).unwrap_or(half.physical_offset).max(1)
}

/// Whether a half that does not say where its first one is belongs to the transaction that begins there. Both have its
/// unique id.
pub(crate) fn is_copy(store: &Store, half: &Record<'_>, first: i64) -> bool {
    let Ok(Some(bytes)) = store.record_at(first) else {
        return false;
    };
    let is_as_old = |first: Record<'_>| first.born_timestamp_ms == half.born_timestamp_ms;
    first_half(half).is_none() && Record::decode(&bytes).is_ok_and(is_as_old)
}

/// A copy of a half. The caller has made sure that the half is not committed. The copy carries the position of the
/// first half, or of this one if that is unknown: the message cannot be in front of either.
pub(crate) fn copy_of_open<'a>(half: &Record<'a>, topic: &'a str, text: &'a str) -> NewMessage<'a> {
    NewMessage {
        prepared_transaction_offset: first_known(half),
        ..copy_of(half, topic, QUEUE, text)
    }
}

/// What the log has of a half's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitSearch {
    /// Nothing, and nothing of a later transaction with its unique id.
    Nothing,
    /// The message.
    Own,
    /// Not the message, but that of a transaction with its unique id that began later.
    Later,
}

/// Searches the log for the half's message, at or after a position. Another transaction may have its unique id, as an
/// application may send one message twice. So the message must have the half's time of birth, which every broker keeps,
/// and lie behind the first half if that is known; the half by which it was committed, too, which a delayed message
/// does not say.
pub(crate) fn find_commit(store: &Store, half: &Record<'_>, after: i64) -> Result<CommitSearch, StoreError> {
    let first = first_half(half);
    let from = first.unwrap_or(0).max(after);
    let text = half.properties.as_str().unwrap_or_default();
    let of_half = properties::parse(text);
    let (Some(topic), Some(id)) = (properties::find(text, names::REAL_TOPIC), of_half.unique_key) else {
        return Ok(CommitSearch::Nothing);
    };
    let mut has_later = false;
    let mut is_own = |record: &Record<'_>| {
        let by_half = record.prepared_transaction_offset;
        let is_earlier = by_half > 0 && by_half < first.unwrap_or(0);
        if sys_flag::transaction(record.sys_flag) != sys_flag::TRANSACTION_COMMIT
            || record.physical_offset < from
            || is_earlier
            || record.properties.get(names::UNIQ_KEY) != Some(id)
        {
            return false;
        }
        let is_own = record.born_timestamp_ms == half.born_timestamp_ms;
        has_later |= first.is_some() && !is_own;
        is_own
    };
    let own = properties::find(text, names::REAL_QID).and_then(|id| id.parse().ok());
    // A delayed message is in a queue of the schedule or timer topic until it is delivered.
    let queues = [
        Some((topic, own.unwrap_or(0))),
        of_half.is_timer.then_some((TIMER_TOPIC, 0)),
        (of_half.delay_level > 0).then_some((SCHEDULE_TOPIC, of_half.delay_level - 1)),
    ];
    for (topic, own) in queues.into_iter().flatten() {
        let query = KeyQuery {
            topic,
            key: id,
            kind: KeyKind::Unique,
            max_count: 32,
            begin_ms: 0,
            end_ms: i64::MAX,
        };
        let found = store.query_from(&query, from)?;
        let mut records = record::records(&found.body).map_while(Result::ok);
        if records.any(|record| is_own(&record)) {
            return Ok(CommitSearch::Own);
        }
        // If the index is missing or incomplete, the queues themselves are searched.
        if !found.is_complete {
            for queue_id in queues_of(store, topic, own) {
                let first = store.offset_by_position(topic, queue_id, from)?;
                if has_record(store, (topic, queue_id), first, &mut is_own)? {
                    return Ok(CommitSearch::Own);
                }
            }
        }
    }
    Ok(if has_later {
        CommitSearch::Later
    } else {
        CommitSearch::Nothing
    })
}
