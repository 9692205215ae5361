//! From the timer to the real topics (Apache `TimerMessageStore.dequeue`, `convert`, `doPut`).

use crate::delivery::timer::{Timers, Work, lock};
use crate::error::may_pass;
use crate::message::pending::copy_of;
use crate::message::properties::{self, names};
use pyrmq_remoting::clock;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::{Store, StoreError, Stored, TIMER_QUEUE, TimerStore, TimerUnit};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

/// How many messages are read at once.
const READ_COUNT: usize = 64;
const READ_BYTES: i64 = 1 << 20;

/// A slot whose messages are being delivered.
#[derive(Debug)]
pub(super) struct Job {
    time_ms: i64,
    units: Vec<TimerUnit>,
    /// Unique keys of recalled messages, or `topic+unique key` (`appendTopicForTimerDeleteKey`; after 5.5.0 always).
    taken_back: HashSet<String>,
    /// Index of the first unit that is not done.
    next: usize,
    /// Whether messages went back into the timer's topic.
    has_rolled: bool,
}

impl Timers {
    /// Delivers every slot whose step is over. True: some messages went back into the timer's topic.
    pub(super) fn deliver(
        &self,
        files: &Mutex<TimerStore>,
        store: &Store,
        work: &mut Work,
    ) -> Result<bool, StoreError> {
        let mut rolled = false;
        if self.options.stop_dequeue {
            return Ok(rolled);
        }
        loop {
            let mut job = match work.job.take() {
                Some(job) => job,
                None => match begin(files, store, work.write_ms)? {
                    Some(job) => job,
                    None => return Ok(rolled),
                },
            };
            // While the timer's time is ahead of the clock, a message from before may not be due yet.
            let now_ms = (self.ahead_ms() > 0).then(clock::now_ms);
            let delivered = job.deliver(store, &mut work.log_end, &self.delivered_at, now_ms);
            rolled |= job.has_rolled;
            let time_ms = job.time_ms;
            if let Err(error) = delivered {
                work.job = Some(job);
                return Err(error);
            }
            lock(files).done(time_ms);
            if self.is_stopped() {
                return Ok(false);
            }
        }
    }
}

/// The next slot whose step is over.
fn begin(files: &Mutex<TimerStore>, store: &Store, write_ms: i64) -> Result<Option<Job>, StoreError> {
    let (time_ms, units) = {
        let mut files = lock(files);
        let next_ms = files.next_ms().filter(|next_ms| *next_ms < write_ms);
        let Some(time_ms) = next_ms else {
            files.read_to(write_ms);
            return Ok(None);
        };
        (time_ms, files.slot(time_ms)?)
    };
    let (deletes, units): (Vec<_>, Vec<_>) = units
        .into_iter()
        .partition(|unit| unit.deletes() && !unit.rolls());
    let mut taken_back = HashSet::new();
    each(store, &deletes, |_, record| {
        if let Some(key) = record.properties.get(names::TIMER_DEL_UNIQKEY) {
            taken_back.insert(key.to_owned());
        }
        Ok(())
    })?;
    Ok(Some(Job {
        time_ms,
        units,
        taken_back,
        next: 0,
        has_rolled: false,
    }))
}

impl Job {
    fn deliver(
        &mut self,
        store: &Store,
        log_end: &mut i64,
        delivered_at: &AtomicI64,
        now_ms: Option<i64>,
    ) -> Result<(), StoreError> {
        let left = self.units.get(self.next..).unwrap_or_default();
        let (next, taken_back, has_rolled) = (&mut self.next, &self.taken_back, &mut self.has_rolled);
        let mut done = 0;
        let result = each(store, left, |at, record| {
            let unit = left.get(at).copied();
            let stored = match unit {
                Some(unit) if unit.rolls() => {
                    *has_rolled = true;
                    put_back(store, record, unit.written_ms)
                }
                Some(_) if is_taken_back(taken_back, record) => {
                    done = at + 1;
                    return Ok(());
                }
                Some(unit) if now_ms.is_some_and(|now_ms| due_ms(record) > now_ms) => {
                    *has_rolled = true;
                    put_back(store, record, unit.written_ms)
                }
                unit => restore(store, record, unit.map_or(-1, |unit| unit.written_ms)),
            };
            match stored {
                Ok(stored) => {
                    *log_end = stored.end_position.max(*log_end);
                    delivered_at.store(stored.physical_offset, Ordering::Release);
                }
                Err(error) if may_pass(&error) => return Err(error),
                Err(error) => {
                    tracing::error!(position = record.physical_offset, %error, "dropped a timer message that cannot be stored");
                }
            }
            done = at + 1;
            Ok(())
        });
        *next += if result.is_ok() { left.len() } else { done };
        result
    }
}

/// When a message is due, by the clock.
fn due_ms(record: &Record<'_>) -> i64 {
    let due_ms = record.properties.get(names::TIMER_OUT_MS);
    due_ms.and_then(|text| text.parse().ok()).unwrap_or(i64::MIN)
}

fn is_taken_back(taken_back: &HashSet<String>, record: &Record<'_>) -> bool {
    if taken_back.is_empty() {
        return false;
    }
    let [topic, key] = record.properties.get_many([names::REAL_TOPIC, names::UNIQ_KEY]);
    let (Some(topic), Some(key)) = (topic, key) else {
        return false;
    };
    taken_back.contains(key) || taken_back.contains(&[topic, "+", key].concat())
}

/// Reads the messages of units, many at once. Messages that the commit log has dropped are skipped.
fn each(
    store: &Store,
    units: &[TimerUnit],
    mut take: impl FnMut(usize, &Record<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut from = 0;
    while from < units.len() {
        let rest = units.get(from..).unwrap_or_default();
        let mut bytes = 0;
        let records: Vec<(i64, i32)> = rest
            .iter()
            .take(READ_COUNT)
            .take_while(|unit| {
                let is_first = bytes == 0;
                bytes += i64::from(unit.size);
                is_first || bytes <= READ_BYTES
            })
            .map(|unit| (unit.position, unit.size))
            .collect();
        if let Some(body) = store.records_at(&records)? {
            let mut left = body.as_ref();
            for (at, (position, size)) in records.iter().enumerate() {
                let size = usize::try_from(*size).unwrap_or(0);
                let (bytes, rest) = left.split_at_checked(size).unwrap_or_default();
                left = rest;
                inspect(*position, bytes, |record| take(from + at, record))?;
            }
        } else {
            for (at, (position, _)) in records.iter().enumerate() {
                let bytes = store.record_at(*position)?.unwrap_or_default();
                inspect(*position, &bytes, |record| take(from + at, record))?;
            }
        }
        from += records.len();
    }
    Ok(())
}

fn inspect(
    position: i64,
    bytes: &[u8],
    take: impl FnOnce(&Record<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    match Record::decode(bytes) {
        Ok(record) if record.physical_offset == position && record.topic == TIMER_TOPIC => take(&record),
        _ => {
            tracing::error!(
                position,
                "a timer message that was waiting is not in the commit log any more"
            );
            Ok(())
        }
    }
}

/// Stores a message under its real topic, with the properties that Apache leaves in it, such as REAL_TOPIC and
/// REAL_QID.
fn restore(store: &Store, record: &Record<'_>, taken_ms: i64) -> Result<Stored, StoreError> {
    let text = record.properties.as_str()?;
    let topic = properties::find(text, names::REAL_TOPIC).unwrap_or_default();
    let queue_id = properties::find(text, names::REAL_QID).and_then(|id| id.parse().ok());
    let mut own = properties::copy(text, 96, |name| {
        matches!(name, names::TIMER_ENQUEUE_MS | names::TIMER_DEQUEUE_MS)
    });
    append_times(&mut own, taken_ms);
    let stored = put(store, record, topic, queue_id.unwrap_or(-1), &own);
    if !matches!(stored, Err(StoreError::PropertiesTooLarge { .. })) {
        return stored;
    }
    // The times are for people to read, so a message without space for them goes without.
    put(store, record, topic, queue_id.unwrap_or(-1), text)
}

/// Stores a message again at the end of the timer's topic: it is not due for a long time.
fn put_back(store: &Store, record: &Record<'_>, taken_ms: i64) -> Result<Stored, StoreError> {
    let text = record.properties.as_str()?;
    let times = properties::find(text, names::TIMER_ROLL_TIMES).and_then(|times| times.parse::<i32>().ok());
    let mut own = properties::copy(text, 128, |name| {
        matches!(
            name,
            names::TIMER_ROLL_TIMES | names::TIMER_ENQUEUE_MS | names::TIMER_DEQUEUE_MS
        )
    });
    properties::append(
        &mut own,
        names::TIMER_ROLL_TIMES,
        &times.unwrap_or(0).saturating_add(1).to_string(),
    );
    append_times(&mut own, taken_ms);
    let stored = put(store, record, TIMER_TOPIC, TIMER_QUEUE, &own);
    if !matches!(stored, Err(StoreError::PropertiesTooLarge { .. })) {
        return stored;
    }
    put(store, record, TIMER_TOPIC, TIMER_QUEUE, text)
}

fn append_times(text: &mut String, taken_ms: i64) {
    properties::append(text, names::TIMER_ENQUEUE_MS, &taken_ms.to_string());
    properties::append(text, names::TIMER_DEQUEUE_MS, &clock::now_ms().to_string());
}

fn put(
    store: &Store,
    record: &Record<'_>,
    topic: &str,
    queue_id: i32,
    text: &str,
) -> Result<Stored, StoreError> {
    store.put_accepted(&copy_of(record, topic, queue_id, text))
}
