//! What waits for its time, on disk (Apache `TimerMessageStore`, the part about files).
//!
//! ```text
//! rmq_sys_wheel_timer queue 0   the messages as they were sent, with TIMER_OUT_MS, REAL_TOPIC, REAL_QID
//! timerlog/                     a unit for each, in the order of that queue; the units of a slot lead back to one another
//! timerwheel                    for each moment its newest unit
//! config/timercheck             up to which message, unit and moment all this is done, durably
//! ```
//! A save writes the log, then the wheel, then the checkpoint, each durably, and is only made once the commit log is
//! durable up to what the checkpoint stands for. So a start finds again everything that was acknowledged: what the
//! wheel lacks is in the log after the checkpoint, what the log lacks is in the queue.

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
use std::path::Path;
use std::sync::Arc;
use wheel::{Slot, Wheel};

/// The clock may have gone back by this much since the last save. What lies further ahead was never delivered.
const MAX_CLOCK_STEP_MS: i64 = 2 * 86_400_000;

/// Its only queue.
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
    /// The same when a slot was last delivered: that time goes by alone need not be saved.
    done_ms: i64,
    queue_offset: i64,
    /// An fsync failed: what it was for may be lost without a trace, so that no checkpoint may say that it is there.
    failed: Option<StoreError>,
}

/// What a save stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerProgress(Progress);

impl TimerStore {
    /// Reads the files and makes them whole again. `store` has the messages that they are about.
    pub fn open(store: &Store, fs: &Arc<dyn Fs>) -> Result<Self, StoreError> {
        let options = store.options().timer;
        let root = &store.options().root;
        let mut timers = Self::load(options, fs, root)?;
        recovery::recover(&mut timers, store)?;
        Ok(timers)
    }

    fn load(options: TimerOptions, fs: &Arc<dyn Fs>, root: &Path) -> Result<Self, StoreError> {
        let checkpoint = TimerCheckpoint::load(fs, root.join("config").join("timercheck"))?;
        let saved = checkpoint.saved();
        let now_ms = options.floor_ms(fs.now_ms());
        // Apache's bound for a broker that was away.
        let oldest_ms = now_ms - (WINDOW_SLOTS - BLANK_SLOTS) * options.precision_ms;
        let is_damaged = saved.read_ms > now_ms.max(saved.written_ms()) + MAX_CLOCK_STEP_MS;
        let read_ms = if is_damaged {
            // Delivering again what was delivered since then is better than passing over what waits.
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
            failed: None,
        })
    }

    /// The settings.
    pub fn options(&self) -> &TimerOptions {
        &self.options
    }

    /// Slots before this moment have been read.
    pub fn read_ms(&self) -> i64 {
        self.read_ms
    }

    /// The first message of the timer's topic that is not in the log.
    pub fn queue_offset(&self) -> i64 {
        self.queue_offset
    }

    /// All messages before this one are in the log, or delivered.
    pub fn set_queue_offset(&mut self, offset: i64) {
        self.queue_offset = offset;
    }

    /// Puts a message after those that wait for the same step; its `previous` is set here.
    pub fn add(&mut self, unit: &TimerUnit) -> Result<(), StoreError> {
        let time_ms = self.options.floor_ms(unit.due_ms());
        let slot = self.wheel.get(time_ms);
        let previous = slot.map_or(-1, |slot| slot.last);
        let position = self.log.append(&TimerUnit { previous, ..*unit })?;
        self.note(time_ms, slot, position, unit);
        Ok(())
    }

    /// A unit stands at a position.
    fn note(&mut self, time_ms: i64, slot: Option<Slot>, position: i64, unit: &TimerUnit) {
        let change = if unit.deletes() { -1 } else { 1 };
        self.wheel.put(&Slot {
            time_ms,
            first: slot.map_or(position, |slot| slot.first),
            last: position,
            count: slot.map_or(0, |slot| slot.count) + change,
        });
    }

    /// Writes what was added. After a failure the next call tries again.
    pub fn write_out(&mut self) -> Result<(), StoreError> {
        self.log.write_out()
    }

    /// The first moment for which something waits.
    pub fn next_ms(&self) -> Option<i64> {
        self.wheel.next_ms()
    }

    /// What waits for a moment, in the order in which it came.
    pub fn slot(&mut self, time_ms: i64) -> Result<Vec<TimerUnit>, StoreError> {
        self.log.write_out()?;
        let Some(slot) = self.wheel.get(time_ms) else {
            return Ok(Vec::new());
        };
        let time_ms = self.options.floor_ms(time_ms);
        let mut units = self.log.chain(slot.last)?;
        if count_of(&units) != i64::from(slot.count) {
            // A unit or the slot is damaged. The log's order still has the others.
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
            tracing::error!(time_ms, "units of another moment were met in a slot of the timer");
        }
        Ok(units)
    }

    /// The units of a moment, read from the log in its order, from the file of a position on.
    fn units_of(&self, time_ms: i64, from: i64) -> Result<Vec<TimerUnit>, StoreError> {
        let mut units = Vec::new();
        self.log.scan(from, |unit| {
            if self.options.floor_ms(unit.due_ms()) == time_ms {
                units.push(*unit);
            }
        })?;
        Ok(units)
    }

    /// A slot has been delivered.
    pub fn done(&mut self, time_ms: i64) {
        self.wheel.done(time_ms);
        let behind = self.options.floor_ms(time_ms) + self.options.precision_ms;
        self.read_ms = self.read_ms.max(behind);
        self.done_ms = self.read_ms;
    }

    /// Nothing waits before this moment.
    pub fn read_to(&mut self, time_ms: i64) {
        let next_ms = self.next_ms().unwrap_or(i64::MAX);
        self.read_ms = self.read_ms.max(time_ms.min(next_ms));
    }

    /// How many messages wait for the step of a moment.
    pub fn count_at(&self, time_ms: i64) -> i64 {
        self.wheel.get(time_ms).map_or(0, |slot| i64::from(slot.count))
    }

    /// How many messages wait.
    pub fn count(&self) -> i64 {
        let waiting = self.wheel.waiting();
        waiting.iter().map(|slot| i64::from(slot.count)).sum()
    }

    /// How far things are now.
    pub fn progress(&self) -> TimerProgress {
        let mut progress = self.checkpoint.saved();
        progress.read_ms = self.read_ms;
        progress.queue_offset = self.queue_offset;
        progress.log_end = self.log.end();
        TimerProgress(progress)
    }

    /// True when the files are behind.
    pub fn is_behind(&self) -> bool {
        let saved = self.checkpoint.saved();
        self.log.is_dirty()
            || self.wheel.is_dirty()
            || self.done_ms > saved.read_ms
            || (self.log.end(), self.queue_offset) != (saved.log_end, saved.queue_offset)
    }

    /// Writes everything, durably, and that things were so far. The commit log must be durable up to there.
    pub fn save(&mut self, progress: &TimerProgress) -> Result<(), StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let now_ms = self.fs.now_ms();
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

    /// What request 60 answers.
    pub fn checkpoint_bytes(&self) -> Vec<u8> {
        self.checkpoint.saved().to_bytes().to_vec()
    }
}

/// What a slot with these units counts: messages that wait, less those that recall one.
fn count_of(units: &[TimerUnit]) -> i64 {
    units.iter().map(|unit| if unit.deletes() { -1 } else { 1 }).sum()
}
