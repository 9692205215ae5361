//! Makes the timer's files agree after a stop of any kind (Apache `TimerMessageStore.recover`, `recoverAndRevise`,
//! `reviseQueueOffset`).
//!
//! 1. The log is read from the file before the checkpoint's; it ends before the first thing that is not a unit, or that
//!    is about a message which the commit log does not have.
//! 2. Slots get the units that only the log has. Slots that point past the log's end are rebuilt from the log.
//! 3. Reading the topic continues after the message of the newest unit, or where the checkpoint says, if that is later.

use crate::error::StoreError;
use crate::store::Store;
use crate::timer::unit::{TimerUnit, UNIT_I64};
use crate::timer::{TIMER_QUEUE, TimerStore};
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_remoting::names::TIMER_TOPIC;
use std::collections::BTreeSet;

pub(super) fn recover(timers: &mut TimerStore, store: &Store) -> Result<(), StoreError> {
    let saved = timers.checkpoint.saved();
    let log_end = store.health().max_physical_offset;
    let from = if timers.wheel.has_file() {
        (saved.log_end - timers.log.file_bytes()).max(0)
    } else {
        0
    };
    let (options, read_ms) = (timers.options, timers.read_ms);
    let is_waiting = |unit: &TimerUnit| options.floor_ms(unit.due_ms()) >= read_ms;
    let mut found: Vec<(i64, TimerUnit)> = Vec::new();
    let mut newest = None;
    let end = timers.log.walk(from, |position, unit| {
        let end = unit.position.saturating_add(i64::from(unit.size));
        let is_known = end <= log_end && (position < saved.log_end || is_whole(store, unit));
        if is_known {
            newest = Some(*unit);
            if is_waiting(unit) {
                found.push((position, *unit));
            }
        }
        is_known
    })?;
    let end = if timers.log.is_empty() { 0 } else { end };
    if !timers.log.is_empty() {
        timers.log.cut(end)?;
    }
    let again = clear_dangling(timers, end);
    for (position, unit) in &found {
        revise(timers, *position, unit);
    }
    if let Some(first) = again.first {
        tracing::warn!(
            slots = again.times.len(),
            "slots of the timer wheel are made again from the timer log"
        );
        let mut units = Vec::new();
        timers.log.walk(first, |position, unit| {
            if again.times.contains(&options.floor_ms(unit.due_ms())) {
                units.push((position, *unit));
            }
            position + UNIT_I64 < end
        })?;
        for (position, unit) in &units {
            revise(timers, *position, unit);
        }
    }
    timers.queue_offset = queue_offset(timers, store, newest, end)?;
    let waiting = timers.count();
    if waiting > 0 || !found.is_empty() {
        tracing::info!(
            waiting,
            read_ms = timers.read_ms,
            queue_offset = timers.queue_offset,
            "timer messages were found"
        );
    }
    Ok(())
}

/// Whether a unit that may be torn is intact: its last fields match its message.
fn is_whole(store: &Store, unit: &TimerUnit) -> bool {
    let Ok(Some(bytes)) = store.record_at(unit.position) else {
        return false;
    };
    Record::decode(&bytes).is_ok_and(|record| {
        let real = record.properties.get(names::REAL_TOPIC).unwrap_or_default();
        record.topic == TIMER_TOPIC
            && i32::try_from(record.size) == Ok(unit.size)
            && java_hash::hash(real) == unit.topic_hash
    })
}

/// Adds a unit that the wheel may lack.
fn revise(timers: &mut TimerStore, position: i64, unit: &TimerUnit) {
    let time_ms = timers.options.floor_ms(unit.due_ms());
    let slot = timers.wheel.get(time_ms);
    if slot.is_none_or(|slot| slot.last < position) {
        timers.put_in_slot(time_ms, slot, position, unit);
    }
}

/// Slots that pointed past the log's end.
#[derive(Default)]
struct Again {
    times: BTreeSet<i64>,
    /// Position of the oldest unit of any of them.
    first: Option<i64>,
}

fn clear_dangling(timers: &mut TimerStore, end: i64) -> Again {
    let mut again = Again::default();
    for slot in timers.wheel.waiting() {
        if slot.last >= end {
            again.times.insert(slot.time_ms);
            let first = slot.first.max(0);
            again.first = Some(again.first.map_or(first, |known: i64| known.min(first)));
            timers.wheel.clear(slot.time_ms);
        }
    }
    // Units may be older than the oldest file, or all be lost.
    again.first = again.first.filter(|first| *first < end);
    again
}

fn queue_offset(
    timers: &TimerStore,
    store: &Store,
    newest: Option<TimerUnit>,
    end: i64,
) -> Result<i64, StoreError> {
    let saved = timers.checkpoint.saved();
    let mut offset = match newest {
        Some(unit) => offset_after(store, &unit)?,
        None => None,
    };
    if end >= saved.log_end {
        offset = Some(offset.map_or(saved.queue_offset, |found| found.max(saved.queue_offset)));
    }
    let min = store.min_offset(TIMER_TOPIC, TIMER_QUEUE);
    let max = store.max_offset(TIMER_TOPIC, TIMER_QUEUE);
    Ok(offset.unwrap_or(min).clamp(min, max.max(min)))
}

/// Offset in the topic's queue after the message of a unit.
fn offset_after(store: &Store, unit: &TimerUnit) -> Result<Option<i64>, StoreError> {
    let Some(bytes) = store.record_at(unit.position)? else {
        return Ok(None);
    };
    let record = Record::decode(&bytes)?;
    Ok((record.topic == TIMER_TOPIC).then_some(record.queue_offset + 1))
}
