//! From the timer to the real topics (Apache `TimerMessageStore.dequeue`, `convert`, `doPut`).

use crate::delivery::timer::{Timers, Work, lock};
use crate::error::may_pass;
use crate::message::pending::copy_of;
use crate::message::properties::{self, names};
use pyrmq_remoting::clock;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::{Stage, Store, StoreError, TIMER_QUEUE, TimerStore, TimerUnit};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

/// How many messages are read, and delivered with one write.
const CHUNK_COUNT: usize = 64;
const CHUNK_BYTES: i64 = 128 << 10;

/// A slot whose messages are being delivered.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) time_ms: i64,
    units: Vec<TimerUnit>,
    /// Unique keys of recalled messages, or `topic+unique key` (`appendTopicForTimerDeleteKey`; after 5.5.0 always).
    taken_back: HashSet<String>,
    /// Index of the first unit that is not done.
    next: usize,
    /// Whether messages went back into the timer's topic.
    has_rolled: bool,
}

impl Timers {
    /// Delivers every slot whose step has passed. True: some messages went back into the timer's topic.
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

/// The next slot whose step has passed.
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
    each(store, &deletes, |record| {
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
        while let Some(left) = self.units.get(self.next..).filter(|left| !left.is_empty()) {
            let chunk = first_chunk(left);
            let (taken_back, has_rolled) = (&self.taken_back, &mut self.has_rolled);
            // Indexes in the chunk: of the messages that are staged, and of the first one that is not done.
            let (mut staged, mut done) = (Vec::with_capacity(chunk.len()), 0);
            let mut result = Ok(());
            let outcomes = store.put_accepted_all(|stage| {
                result = read_chunk(store, chunk, |at, unit, record| {
                    let is_early = now_ms.is_some_and(|now_ms| due_ms(record) > now_ms);
                    if unit.rolls() || !is_taken_back(taken_back, record) {
                        let outcome = if unit.rolls() || is_early {
                            *has_rolled = true;
                            put_back(stage, record, unit.written_ms)
                        } else {
                            restore(stage, record, unit.written_ms)
                        };
                        match outcome {
                            Ok(()) => staged.push(at),
                            Err(error) if may_pass(&error) => return Err(error),
                            Err(error) => log_drop(unit, &error),
                        }
                    }
                    done = at + 1;
                    Ok(())
                });
            });
            if result.is_ok() {
                done = chunk.len();
            }
            for (at, outcome) in staged.into_iter().zip(outcomes) {
                match outcome {
                    Ok(stored) => {
                        *log_end = stored.end_position.max(*log_end);
                        delivered_at.store(stored.physical_offset, Ordering::Release);
                    }
                    Err(error) if may_pass(&error) => {
                        if at < done {
                            (done, result) = (at, Err(error));
                        }
                    }
                    Err(error) => {
                        if let Some(unit) = chunk.get(at) {
                            log_drop(unit, &error);
                        }
                    }
                }
            }
            self.next += done;
            result?;
        }
        Ok(())
    }
}

fn log_drop(unit: &TimerUnit, error: &StoreError) {
    let position = unit.position;
    tracing::error!(position, %error, "dropped a timer message that cannot be stored");
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
    mut take: impl FnMut(&Record<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut left = units;
    while !left.is_empty() {
        let chunk = first_chunk(left);
        read_chunk(store, chunk, |_, _, record| take(record))?;
        left = left.get(chunk.len()..).unwrap_or_default();
    }
    Ok(())
}

/// The first units, whose messages are read at once.
fn first_chunk(units: &[TimerUnit]) -> &[TimerUnit] {
    let mut bytes = 0;
    let fitting = units.iter().take(CHUNK_COUNT).take_while(|unit| {
        let is_first = bytes == 0;
        bytes += i64::from(unit.size);
        is_first || bytes <= CHUNK_BYTES
    });
    units.get(..fitting.count()).unwrap_or_default()
}

/// Reads the messages of a chunk. `take` gets the index of each, its unit and itself.
fn read_chunk(
    store: &Store,
    chunk: &[TimerUnit],
    mut take: impl FnMut(usize, &TimerUnit, &Record<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let places: Vec<(i64, i32)> = chunk.iter().map(|unit| (unit.position, unit.size)).collect();
    let body = store.records_at(&places)?;
    let mut left = body.as_deref().unwrap_or_default();
    for (at, unit) in chunk.iter().enumerate() {
        if body.is_none() {
            let bytes = store.record_at(unit.position)?.unwrap_or_default();
            inspect(unit.position, &bytes, |record| take(at, unit, record))?;
            continue;
        }
        let size = usize::try_from(unit.size).unwrap_or(0);
        let (bytes, rest) = left.split_at_checked(size).unwrap_or_default();
        left = rest;
        inspect(unit.position, bytes, |record| take(at, unit, record))?;
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

/// Stages a message under its real topic, with the properties that Apache leaves in it, such as REAL_TOPIC and
/// REAL_QID.
fn restore(stage: &mut Stage<'_>, record: &Record<'_>, taken_ms: i64) -> Result<(), StoreError> {
    let text = record.properties.as_str()?;
    let topic = properties::find(text, names::REAL_TOPIC).unwrap_or_default();
    let queue_id = properties::find(text, names::REAL_QID).and_then(|id| id.parse().ok());
    let mut own = properties::copy(text, 96, |name| {
        matches!(name, names::TIMER_ENQUEUE_MS | names::TIMER_DEQUEUE_MS)
    });
    append_times(&mut own, taken_ms);
    let staged = stage(&copy_of(record, topic, queue_id.unwrap_or(-1), &own));
    if !matches!(staged, Err(StoreError::PropertiesTooLarge { .. })) {
        return staged;
    }
    // The times are for people to read, so a message without space for them goes without.
    stage(&copy_of(record, topic, queue_id.unwrap_or(-1), text))
}

/// Stages a message again for the end of the timer's topic: it is not due for a long time.
fn put_back(stage: &mut Stage<'_>, record: &Record<'_>, taken_ms: i64) -> Result<(), StoreError> {
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
    let staged = stage(&copy_of(record, TIMER_TOPIC, TIMER_QUEUE, &own));
    if !matches!(staged, Err(StoreError::PropertiesTooLarge { .. })) {
        return staged;
    }
    stage(&copy_of(record, TIMER_TOPIC, TIMER_QUEUE, text))
}

fn append_times(text: &mut String, taken_ms: i64) {
    properties::append(text, names::TIMER_ENQUEUE_MS, &taken_ms.to_string());
    properties::append(text, names::TIMER_DEQUEUE_MS, &clock::now_ms().to_string());
}
