//! The timer wheel: `timerwheel` (Apache `TimerWheel`, `Slot`).
//!
//! ```text
//! 2 * 604,800 slots of 32 bytes, the slot of a time at (time / precision) % slots
//! at  bytes                          at  bytes
//!  0  8      time / precision        24  4      messages that wait less those that recall one
//!  8  8      first unit in the log   28  4      0
//! 16  8      newest unit in the log
//! ```
//! A slot with another time than the requested one is empty. A delivered slot is not cleared: its time is before the
//! time up to which the timer has read. The file is sparse, and so is the copy in memory: only pages in use take
//! memory.

use crate::error::StoreError;
use crate::format::{to_i64, to_u64, to_usize};
use crate::fs::{Context, File, Fs, parent};
use crate::options::timer::WINDOW_SLOTS;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

const SLOTS: i64 = 2 * WINDOW_SLOTS;
/// Bytes of a slot.
const SLOT: usize = 32;
/// Bytes of the file.
const WHEEL_BYTES: usize = 2 * 7 * 86_400 * SLOT;
/// Number of bytes written at once; no slot spans two pages.
const PAGE: usize = 4096;
/// A page without a slot.
const EMPTY_PAGE: &[u8] = &[0; PAGE];
/// Number of bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// No timer is older (2020): an earlier time in a slot means that the wheel has other steps.
const EPOCH_OF_TIMERS_MS: i64 = 1_600_000_000_000;

/// The messages that wait for one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The time, ms.
    pub(crate) time_ms: i64,
    /// The oldest unit.
    pub(crate) first: i64,
    /// The newest unit, which leads to the others.
    pub(crate) last: i64,
    /// Messages that wait, less those that recall one.
    pub(crate) count: i32,
}

/// The wheel in memory and its file.
#[derive(Debug)]
pub(crate) struct Wheel {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    file: Option<Arc<dyn File>>,
    precision_ms: i64,
    /// Empty until the first slot is used.
    bytes: Vec<u8>,
    /// Pages that differ from the file.
    dirty: BTreeSet<usize>,
    /// Times / precision of slots that were not read yet.
    waiting: BTreeSet<i64>,
}

impl Wheel {
    /// Reads the file, if it exists. Slots from `read_ms` on wait.
    pub(crate) fn load(
        fs: &Arc<dyn Fs>,
        path: PathBuf,
        precision_ms: i64,
        read_ms: i64,
    ) -> Result<Self, StoreError> {
        let mut wheel = Self {
            file: None,
            fs: fs.clone(),
            precision_ms,
            bytes: Vec::new(),
            dirty: BTreeSet::new(),
            waiting: BTreeSet::new(),
            path,
        };
        if !fs.exists(&wheel.path).at("look for", &wheel.path)? {
            return Ok(wheel);
        }
        let file = fs.open(&wheel.path).at("open", &wheel.path)?;
        let length = file.length().at("read", &wheel.path)?;
        if length == 0 {
            return Ok(wheel);
        }
        if length != WHEEL_BYTES as u64 {
            let reason = format!("it has {length} bytes, a wheel has {WHEEL_BYTES}");
            return Err(wheel.unusable(reason));
        }
        wheel.read(file.as_ref(), read_ms)?;
        wheel.file = Some(file);
        Ok(wheel)
    }

    fn read(&mut self, file: &dyn File, read_ms: i64) -> Result<(), StoreError> {
        self.bytes = vec![0; WHEEL_BYTES];
        let mut at = 0;
        while let Some(data) = file.next_data(at).at("read", &self.path)? {
            let from = usize::try_from(data).unwrap_or(WHEEL_BYTES) / PAGE * PAGE;
            if from >= WHEEL_BYTES {
                break;
            }
            let to = (from + CHUNK).min(WHEEL_BYTES);
            let place = self.bytes.get_mut(from..to).unwrap_or_default();
            file.read_exact_at(place, from as u64).at("read", &self.path)?;
            for page in (from..to).step_by(PAGE) {
                if self
                    .bytes
                    .get(page..page + PAGE)
                    .is_some_and(|bytes| bytes == EMPTY_PAGE)
                {
                    continue;
                }
                for index in page / SLOT..(page + PAGE) / SLOT {
                    self.add_waiting(index, read_ms)?;
                }
            }
            at = to as u64;
        }
        Ok(())
    }

    fn add_waiting(&mut self, index: usize, read_ms: i64) -> Result<(), StoreError> {
        let Some((step, slot)) = self.slot_at(index) else {
            return Ok(());
        };
        let time_ms = slot.time_ms;
        let sane = EPOCH_OF_TIMERS_MS..=read_ms.saturating_add(SLOTS * self.precision_ms);
        if step.rem_euclid(SLOTS) != to_i64(index) || !sane.contains(&time_ms) {
            let reason = format!(
                "its slot {index} stands for {time_ms} ms; timerPrecisionMs must be the one that the wheel was made with, not {}",
                self.precision_ms
            );
            return Err(self.unusable(reason));
        }
        if time_ms >= read_ms && slot.last >= 0 {
            self.waiting.insert(step);
        }
        Ok(())
    }

    fn unusable(&self, reason: String) -> StoreError {
        StoreError::TimerWheel {
            path: self.path.clone(),
            reason,
        }
    }

    /// Whether there is a file with slots.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    fn step(&self, time_ms: i64) -> i64 {
        time_ms.div_euclid(self.precision_ms)
    }

    fn index(step: i64) -> usize {
        to_usize(step.rem_euclid(SLOTS))
    }

    /// The slot at an index, with its time / precision; `None` for one that was never used.
    fn slot_at(&self, index: usize) -> Option<(i64, Slot)> {
        let bytes = self.bytes.get(index * SLOT..)?;
        let (step, rest) = bytes.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let count = rest.first_chunk()?;
        let step = i64::from_be_bytes(*step);
        let slot = Slot {
            time_ms: step.saturating_mul(self.precision_ms),
            first: i64::from_be_bytes(*first),
            last: i64::from_be_bytes(*last),
            count: i32::from_be_bytes(*count),
        };
        (step != 0).then_some((step, slot))
    }

    /// The slot of the step that contains a time, delivered or not.
    pub(crate) fn get(&self, time_ms: i64) -> Option<Slot> {
        let step = self.step(time_ms);
        let (found, slot) = self.slot_at(Self::index(step))?;
        (found == step && slot.last >= 0).then_some(slot)
    }

    /// Sets the slot of a time, which has to be delivered.
    pub(crate) fn put(&mut self, slot: &Slot) {
        let step = self.step(slot.time_ms);
        let index = Self::index(step);
        self.write(index, step, slot);
        self.waiting.insert(step);
    }

    /// Clears the slot of a time.
    pub(crate) fn clear(&mut self, time_ms: i64) {
        let step = self.step(time_ms);
        let nothing = Slot {
            time_ms,
            first: -1,
            last: -1,
            count: 0,
        };
        self.write(Self::index(step), step, &nothing);
        self.waiting.remove(&step);
    }

    fn write(&mut self, index: usize, step: i64, slot: &Slot) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; WHEEL_BYTES];
        }
        let at = index * SLOT;
        if let Some(place) = self.bytes.get_mut(at..at + SLOT) {
            let numbers = [step, slot.first, slot.last, i64::from(slot.count) << 32];
            for (part, number) in place.chunks_exact_mut(8).zip(numbers) {
                part.copy_from_slice(&number.to_be_bytes());
            }
            self.dirty.insert(at / PAGE);
        }
    }

    /// Marks a slot as read; its content stays.
    pub(crate) fn done(&mut self, time_ms: i64) {
        let step = self.step(time_ms);
        self.waiting.remove(&step);
    }

    /// Whether messages wait for the step that contains a time.
    pub(crate) fn is_waiting(&self, time_ms: i64) -> bool {
        self.waiting.contains(&self.step(time_ms))
    }

    /// The first time for which a message waits, in ms.
    pub(crate) fn next_ms(&self) -> Option<i64> {
        Some(self.waiting.first()? * self.precision_ms)
    }

    /// All waiting slots, by time.
    pub(crate) fn waiting(&self) -> Vec<Slot> {
        let times = self.waiting.iter();
        times
            .filter_map(|step| Some(self.slot_at(Self::index(*step))?.1))
            .collect()
    }

    /// Whether the file is out of date.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Writes the changed pages to the file and fsyncs it.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.make()?,
        };
        let pages: Vec<usize> = self.dirty.iter().copied().collect();
        for run in pages.chunk_by(|one, next| one + 1 == *next) {
            let from = run.first().map_or(0, |page| page * PAGE);
            let to = (from + run.len() * PAGE).min(WHEEL_BYTES);
            let bytes = self.bytes.get(from..to).unwrap_or_default();
            file.write_all_at(bytes, from as u64).at("write", &self.path)?;
        }
        file.sync().at("flush", &self.path)?;
        self.dirty.clear();
        Ok(())
    }

    fn make(&mut self) -> Result<Arc<dyn File>, StoreError> {
        let file = self.fs.create(&self.path).at("create", &self.path)?;
        file.set_length(to_u64(to_i64(WHEEL_BYTES)))
            .at("extend", &self.path)?;
        file.sync().at("flush", &self.path)?;
        let directory = parent(&self.path);
        self.fs.sync_directory(directory).at("flush", directory)?;
        self.file = Some(file.clone());
        Ok(file)
    }
}
