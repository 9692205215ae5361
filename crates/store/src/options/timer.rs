//! Settings of the timer under Apache's names (Apache `MessageStoreConfig`), with Apache's defaults.

use crate::error::StoreError;
use crate::options::parse::{bad, flag, number};

/// Number of slots of the seven days ahead (with steps of a second); the wheel has twice as many.
pub(crate) const WINDOW_SLOTS: i64 = 7 * 86_400;
/// Minimum distance of a message to the end of the wheel's window, in slots (Apache `TIMER_BLANK_SLOTS`).
pub(crate) const BLANK_SLOTS: i64 = 60;
/// The allowed steps of the timer; Apache rounds down to one of them.
const PRECISIONS_MS: [i64; 4] = [100, 200, 500, 1000];

/// Settings of the timer. A field's comment gives Apache's key, default and range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerOptions {
    /// `timerWheelEnable`: true.
    pub enable: bool,
    /// `timerPrecisionMs`: 1000; 100, 200, 500 or 1000. A wheel with waiting messages keeps the step with which it was
    /// created.
    pub precision_ms: i64,
    /// `timerRollWindowSlot`: messages due later wait in steps of this many slots; 172,800; 2 to 604,740.
    pub roll_window_slots: i64,
    /// `timerMaxDelaySec`: longest delay that a send may request; 259,200; at least 1.
    pub max_delay_sec: i64,
    /// `timerCongestNumEachSlot`: messages of one slot at which some sends are refused, and all at twice as many;
    /// 2,147,483,647; at least 1.
    pub congest_num_each_slot: i64,
    /// `timerStopEnqueue`: false. Messages stay in the timer's topic.
    pub stop_enqueue: bool,
    /// `timerStopDequeue`: false. Nothing is delivered.
    pub stop_dequeue: bool,
    /// `timerFlushIntervalMs`: how often the timer's files are fsynced when they changed; 1000 ms; 10 to 600,000.
    pub flush_interval_ms: i64,
    /// `mappedFileSizeTimerLog`: bytes of a file of the timer's log; 100 MiB; 4096 to 2 GiB - 1.
    pub log_file_bytes: u64,
}

impl Default for TimerOptions {
    fn default() -> Self {
        Self {
            enable: true,
            precision_ms: 1000,
            roll_window_slots: 3600 * 24 * 2,
            max_delay_sec: 3600 * 24 * 3,
            congest_num_each_slot: i64::from(i32::MAX),
            stop_enqueue: false,
            stop_dequeue: false,
            flush_interval_ms: 1000,
            log_file_bytes: 100 << 20,
        }
    }
}

impl TimerOptions {
    /// Sets one option by Apache's name. False: the timer has no option of this name.
    pub(crate) fn set(&mut self, key: &'static str, value: &str) -> Result<bool, StoreError> {
        match key {
            "timerWheelEnable" => self.enable = flag(key, value)?,
            "timerPrecisionMs" => self.precision_ms = number(key, value)?,
            "timerRollWindowSlot" => self.roll_window_slots = number(key, value)?,
            "timerMaxDelaySec" => self.max_delay_sec = number(key, value)?,
            "timerCongestNumEachSlot" => self.congest_num_each_slot = number(key, value)?,
            "timerStopEnqueue" => self.stop_enqueue = flag(key, value)?,
            "timerStopDequeue" => self.stop_dequeue = flag(key, value)?,
            "timerFlushIntervalMs" => self.flush_interval_ms = number(key, value)?,
            "mappedFileSizeTimerLog" => self.log_file_bytes = number(key, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses unusable values. The error names key, value and range.
    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        if !PRECISIONS_MS.contains(&self.precision_ms) {
            let value = self.precision_ms.to_string();
            return Err(bad("timerPrecisionMs", &value, "100, 200, 500 or 1000"));
        }
        let range = |key, value: i64, least: i64, most: i64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(bad(key, &value.to_string(), &format!("{least} to {most}")))
        };
        range(
            "timerRollWindowSlot",
            self.roll_window_slots,
            2,
            WINDOW_SLOTS - BLANK_SLOTS,
        )?;
        let most = i64::from(i32::MAX);
        range("timerMaxDelaySec", self.max_delay_sec, 1, most)?;
        range("timerCongestNumEachSlot", self.congest_num_each_slot, 1, most)?;
        range("timerFlushIntervalMs", self.flush_interval_ms, 10, 600_000)?;
        let bytes = i64::try_from(self.log_file_bytes).unwrap_or(i64::MAX);
        range("mappedFileSizeTimerLog", bytes, 4096, most)
    }

    /// The start of the step that contains a time.
    pub fn floor_ms(&self, time_ms: i64) -> i64 {
        time_ms - time_ms.rem_euclid(self.precision_ms)
    }

    /// How far ahead a message may be in the wheel, in ms.
    pub fn roll_window_ms(&self) -> i64 {
        self.roll_window_slots * self.precision_ms
    }
}
