//! Waiting timer messages on disk (Apache `TimerMessageStore`, the part about files).
//!
//! ```text
//! rmq_sys_wheel_timer queue 0   the messages as they were sent, with TIMER_OUT_MS, REAL_TOPIC, REAL_QID
//! timerlog/                     a unit for each, in the order of that queue; the units of a slot lead back to one another
//! timerwheel                    for each moment its newest unit
//! config/timercheck             up to which message, unit and moment all this is done, durably
//! ```
//! A save writes the log, then the wheel, then the checkpoint, each durably. It happens only once the commit log is
//! durable up to what the checkpoint covers. So a start recovers everything that was acknowledged: what the wheel lacks
//! is in the log after the checkpoint, what the log lacks is in the queue.

mod checkpoint;
mod log;
mod recovery;
mod unit;
pub(crate) mod wheel;

pub use unit::TimerUnit;

use crate::error::StoreError;
use crate::fs::Fs;
use crate::options::timer::{BLANK_SLOTS, TimerOptions, WINDOW_SLOTS};
use crate::store::Store;
use checkpoint::{Progress, TimerCheckpoint};
use log::TimerLog;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use wheel::{Slot, Wheel};

/// How far the clock may have gone back since the last save. A slot further ahead was never delivered.
const MAX_CLOCK_STEP_MS: i64 = 2 * 86_400_000;

/// The only queue of the timer's topic.
pub const TIMER_QUEUE: i32 = 0;

/// The timer's files. One thread works with it.
#[derive(Debug)]
pub struct TimerStore {
    options: TimerOptions,
    fs: Arc<dyn Fs>,
    wheel: Wheel,
    log: TimerLog,
    checkpoint: TimerCheckpoint,
    read_ms: i64,
    /// The value of `read_ms` when a slot was last delivered: the mere passing of time need not be saved.
    done_ms: i64,
    queue_offset: i64,
    /// By slot, the earliest due time of messages that wait there though they are due before it. After the clock was
    /// set back, that may be days before.
    overdue: BTreeMap<i64, i64>,
    /// A failed fsync: its data may be lost without a trace, so no checkpoint may claim it.
    failed: Option<StoreError>,
}

/// The progress that a save records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerProgress(Progress);

impl TimerStore {
    /// Reads the files and repairs them. `store` has the messages that they refer to.
    pub fn open(store: &Store, fs: &Arc<dyn Fs>) -> Result<Self, StoreError> {
        let options = store.options().timer;
        let root = &store.options().root;
        let mut timers = Self::load(options, fs, root)?;
        recovery::recover(&mut timers, store)?;
        // Messages that came after their slot was read all wait in this one. The files do not say when they are due.
        timers.overdue.insert(timers.read_ms, i64::MIN);
        Ok(timers)
    }

    fn load(options: TimerOptions, fs: &Arc<dyn Fs>, root: &Path) -> Result<Self, StoreError> {
        let checkpoint = TimerCheckpoint::load(fs, root.join("config").join("timercheck"))?;
        let saved = checkpoint.saved();
        let now_ms = options.floor_ms(fs.now_ms());
        // Apache's limit for a broker that was stopped.
        let oldest_ms = now_ms - (WINDOW_SLOTS - BLANK_SLOTS) * options.precision_ms;
        let is_damaged = saved.read_ms > now_ms.max(saved.written_ms()) + MAX_CLOCK_STEP_MS;
        let read_ms = if is_damaged {
            // Delivering the messages since then again is better than skipping waiting ones.
            let read_ms = saved.written_ms().clamp(oldest_ms, now_ms);
            tracing::error!(
                saved_ms = saved.read_ms,
                written_ms = saved.written_ms(),
                read_ms,
                "config/timercheck names a time far ahead as delivered: it is damaged"
            );
            options.floor_ms(read_ms)
        } else if saved.read_ms > 0 {
            options.floor_ms(saved.read_ms)
        } else {
            oldest_ms
        };
        let wheel = Wheel::load(fs, root.join("timerwheel"), options.precision_ms, read_ms)?;
        let log = TimerLog::load(fs, root.join("timerlog"), options.log_file_bytes)?;
        Ok(Self {
            options,
            fs: fs.clone(),
            wheel,
            log,
            checkpoint,
            read_ms,
            done_ms: 0,
            queue_offset: saved.queue_offset,
            overdue: BTreeMap::new(),
            failed: None,
        })
    }

    /// The settings.
    pub fn options(&self) -> &TimerOptions {
        &self.options
    }

    /// Slots before this time have been read, in ms.
    pub fn read_ms(&self) -> i64 {
        self.read_ms
    }

    /// Offset of the first message of the timer's topic that is not in the log.
    pub fn queue_offset(&self) -> i64 {
        self.queue_offset
    }

    /// Records that all messages before this offset are in the log or delivered.
    pub fn set_queue_offset(&mut self, offset: i64) {
        self.queue_offset = offset;
    }

    /// Whether no message of the log waits that is due at or before a time.
    pub fn is_read(&self, due_ms: i64) -> bool {
        let step_ms = self.options.floor_ms(due_ms);
        let waits = self.next_ms().is_some_and(|next_ms| next_ms <= step_ms);
        let is_overdue =
            |(slot_ms, earliest_ms): (&i64, &i64)| *earliest_ms <= due_ms && self.wheel.is_waiting(*slot_ms);
        !waits && !self.overdue.iter().any(is_overdue)
    }

    /// Adds a message that is due at a time, after those that wait for the same step, and sets its `previous`.
    pub fn add(&mut self, unit: &TimerUnit, due_ms: i64) -> Result<(), StoreError> {
        let time_ms = self.options.floor_ms(unit.due_ms());
        if due_ms < time_ms {
            let earliest_ms = self.overdue.entry(time_ms).or_insert(due_ms);
            *earliest_ms = due_ms.min(*earliest_ms);
        }
        let slot = self.wheel.get(time_ms);
        let previous = slot.map_or(-1, |slot| slot.last);
        let position = self.log.append(&TimerUnit { previous, ..*unit })?;
        self.put_in_slot(time_ms, slot, position, unit);
        Ok(())
    }

    /// Records in its slot that a unit is at a position.
    fn put_in_slot(&mut self, time_ms: i64, slot: Option<Slot>, position: i64, unit: &TimerUnit) {
        let change = if unit.deletes() { -1 } else { 1 };
        self.wheel.put(&Slot {
            time_ms,
            first: slot.map_or(position, |slot| slot.first),
            last: position,
            count: slot.map_or(0, |slot| slot.count) + change,
        });
    }

    /// Writes the added units. After a failure the next call tries again.
    pub fn write_out(&mut self) -> Result<(), StoreError> {
        self.log.write_out()
    }

    /// The first time for which a message waits, in ms.
    pub fn next_ms(&self) -> Option<i64> {
        self.wheel.next_ms()
    }

    /// The messages that wait for a time, in the order in which they arrived.
    pub fn slot(&mut self, time_ms: i64) -> Result<Vec<TimerUnit>, StoreError> {
        self.log.write_out()?;
        let Some(slot) = self.wheel.get(time_ms) else {
            return Ok(Vec::new());
        };
        let time_ms = self.options.floor_ms(time_ms);
        let mut units = self.log.chain(slot.last)?;
        if count_of(&units) != i64::from(slot.count) {
            // A unit or the slot is damaged. Reading the log in order still finds the others.
            let found = self.units_of(time_ms, slot.first.min(slot.last))?;
            tracing::error!(
                time_ms,
                expected = slot.count,
                linked = units.len(),
                found = found.len(),
                "the units of a slot of the timer do not match its number: they are read from the timer log"
            );
            if found.len() > units.len() {
                units = found;
            }
        }
        let all = units.len();
        units.retain(|unit| self.options.floor_ms(unit.due_ms()) == time_ms);
        if units.len() < all {
            tracing::error!(time_ms, "a timer slot contains units for another time");
        }
        Ok(units)
    }

    /// The units of a time, read from the log in order, starting with the file that contains `from`.
    fn units_of(&self, time_ms: i64, from: i64) -> Result<Vec<TimerUnit>, StoreError> {
        let mut units = Vec::new();
        self.log.scan(from, |unit| {
            if self.options.floor_ms(unit.due_ms()) == time_ms {
                units.push(*unit);
            }
        })?;
        Ok(units)
    }

    /// Records that a slot has been delivered.
    pub fn done(&mut self, time_ms: i64) {
        self.wheel.done(time_ms);
        self.overdue.retain(|slot_ms, _| *slot_ms > time_ms);
        let next_slot_ms = self.options.floor_ms(time_ms) + self.options.precision_ms;
        self.read_ms = self.read_ms.max(next_slot_ms);
        self.done_ms = self.read_ms;
    }

    /// Records that nothing waits before this time.
    pub fn read_to(&mut self, time_ms: i64) {
        let next_ms = self.next_ms().unwrap_or(i64::MAX);
        self.read_ms = self.read_ms.max(time_ms.min(next_ms));
    }

    /// Number of messages that wait for the step of a time.
    pub fn count_at(&self, time_ms: i64) -> i64 {
        self.wheel.get(time_ms).map_or(0, |slot| i64::from(slot.count))
    }

    /// Number of messages that wait.
    pub fn count(&self) -> i64 {
        let waiting = self.wheel.waiting();
        waiting.iter().map(|slot| i64::from(slot.count)).sum()
    }

    /// The current progress.
    pub fn progress(&self) -> TimerProgress {
        let mut progress = self.checkpoint.saved();
        progress.read_ms = self.read_ms;
        progress.queue_offset = self.queue_offset;
        progress.log_end = self.log.end();
        TimerProgress(progress)
    }

    /// Whether the files lack some of the progress.
    pub fn is_behind(&self) -> bool {
        let saved = self.checkpoint.saved();
        self.log.is_dirty()
            || self.wheel.is_dirty()
            || self.done_ms > saved.read_ms
            || (self.log.end(), self.queue_offset) != (saved.log_end, saved.queue_offset)
    }

    /// Writes everything durably, with this progress. The commit log must be durable up to it.
    pub fn save(&mut self, progress: &TimerProgress) -> Result<(), StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // After the clock was set back, the timer's time is ahead of it. A start takes a time far ahead of both of
        // these for damage.
        let now_ms = self.fs.now_ms().max(progress.0.read_ms);
        let saved = self
            .log
            .sync()
            .and_then(|()| self.wheel.sync())
            .and_then(|()| self.checkpoint.save(&progress.0, now_ms));
        if let Err(error) = &saved
            && error.is_flush()
        {
            self.failed = Some(error.clone());
        }
        saved
    }

    /// Deletes files of the log whose messages are gone from the commit log.
    pub fn clean(&mut self, min_position: i64) -> Result<u64, StoreError> {
        self.log.clean(min_position)
    }

    /// The response body for request 60.
    pub fn checkpoint_bytes(&self) -> Vec<u8> {
        self.checkpoint.saved().to_bytes().to_vec()
    }
}

/// The count of a slot with these units: messages that wait, minus those that recall one.
fn count_of(units: &[TimerUnit]) -> i64 {
    units.iter().map(|unit| if unit.deletes() { -1 } else { 1 }).sum()
}
