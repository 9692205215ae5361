//! A consume queue before the store runs: finding its end, and matching it with the log after a crash.

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CQ_UNIT_SIZE_I64, CqUnit, to_i64};
use crate::fs::Fs;
use crate::log::commit_log::CommitLog;
use crate::queue::consume_queue::ConsumeQueue;
use crate::queue::consume_queue::search::search;
use crate::queue::ext::is_address;
use crate::queue::files::start::Shape;
use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Units of a file that are read at once to find its end.
const HEAD_UNITS: usize = 200;
/// Number of units that are read at once when all are checked.
const SCAN_UNITS: i64 = 8192;
/// Size of a sector, which a disk writes whole or not at all.
const SECTOR: i64 = 512;

impl ConsumeQueue {
    /// Lists the existing files.
    pub(crate) fn list_files(&self, fs: &dyn Fs, crashed: bool) -> Result<Shape, StoreError> {
        lock(&self.files).load(fs, crashed)
    }

    /// Repairs files that a crash left half-created or short.
    pub(crate) fn repair_half_made(&self, fs: &dyn Fs, shape: &Shape) -> Result<(), StoreError> {
        lock(&self.files).repair_half_made(fs, shape)
    }

    /// Finds the newest unit.
    pub(crate) fn load(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        let Some((first, last)) = lock(&self.files).bases() else {
            return Ok(());
        };
        let per_file = lock(&self.files).per_file();
        let mut end = first;
        let mut base = last;
        while base >= first {
            end = self.end_in_file(fs, base, per_file)?;
            if end > base {
                break;
            }
            base -= per_file;
        }
        let start = self.first_live(fs, first, end)?;
        self.continue_at(end, start);
        lock(&self.files).close();
        Ok(())
    }

    /// Where the written part of a file ends. Most queues are short, so their end is in the first page.
    fn end_in_file(&self, fs: &dyn Fs, base: i64, per_file: i64) -> Result<i64, StoreError> {
        let mut head = Vec::with_capacity(HEAD_UNITS * CQ_UNIT_SIZE);
        let count = to_i64(HEAD_UNITS).min(per_file);
        lock(&self.files).read(fs, base, count, &mut head)?;
        let units = head.chunks_exact(CQ_UNIT_SIZE).filter_map(CqUnit::from_bytes);
        let written = to_i64(units.take_while(|unit| unit.is_written()).count());
        if written < count {
            return Ok(base + written);
        }
        self.first_on_disk(fs, base + written, base + per_file, |unit| !unit.is_written())
    }

    fn unit_on_disk(&self, fs: &dyn Fs, index: i64) -> Result<Option<CqUnit>, StoreError> {
        let mut bytes = Vec::with_capacity(CQ_UNIT_SIZE);
        lock(&self.files).read(fs, index, 1, &mut bytes)?;
        Ok(CqUnit::from_bytes(&bytes))
    }

    /// Whether the oldest file is not the queue's first.
    pub(crate) fn begins_late(&self) -> bool {
        lock(&self.files).bases().is_some_and(|(first, _)| first > 0)
    }

    /// Whether the oldest unit belongs to a record at or after a position; false without units.
    pub(crate) fn begins_at_or_after(&self, fs: &dyn Fs, position: i64) -> Result<bool, StoreError> {
        let Some((first, _)) = lock(&self.files).bases() else {
            return Ok(false);
        };
        let end = first + lock(&self.files).per_file();
        let live = self.first_live(fs, first, end)?;
        let unit = self.unit_on_disk(fs, live)?;
        Ok(unit.is_some_and(|unit| unit.is_written() && unit.position >= position))
    }

    /// Repairs damaged files, so that the queue can be rebuilt from the log.
    pub(crate) fn repair_for_rebuild(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        lock(&self.files).repair_for_rebuild(fs)
    }

    fn continue_at(&self, end: i64, min: i64) {
        let mut memory = lock(&self.memory);
        memory.first = end;
        memory.written = end;
        memory.units.clear();
        memory.found.clear();
        self.assigned.store(end, Ordering::Release);
        self.end.store(end, Ordering::Release);
        self.min.store(min, Ordering::Release);
    }

    /// Finds the first unit that satisfies `matches`, by binary search in the files: all units after it must satisfy
    /// it, too. Call it before the store runs.
    fn first_on_disk(
        &self,
        fs: &dyn Fs,
        from: i64,
        to: i64,
        matches: impl Fn(CqUnit) -> bool,
    ) -> Result<i64, StoreError> {
        let mut bytes = Vec::with_capacity(CQ_UNIT_SIZE);
        search(from, to, |index| {
            bytes.clear();
            lock(&self.files).read(fs, index, 1, &mut bytes)?;
            Ok(CqUnit::from_bytes(&bytes).is_none_or(&matches))
        })
    }

    /// Makes an empty queue begin at `index`. Only before the store runs.
    pub(crate) fn begin_at(&self, fs: &dyn Fs, index: i64) -> Result<(), StoreError> {
        // A file without units may exist; the new one begins elsewhere and is filled.
        lock(&self.files).remove_all(fs)?;
        self.continue_at(index, index);
        Ok(())
    }

    /// Drops all units of records at or after `position`, also on disk. Returns whether a file changed. Units before
    /// `position` are valid; later ones may be lost, torn or older. Only before the store runs.
    pub(crate) fn cut(
        &self,
        fs: &dyn Fs,
        log: &CommitLog,
        position: i64,
        writes_again: bool,
    ) -> Result<bool, StoreError> {
        let Some((first, _)) = lock(&self.files).bases() else {
            self.continue_at(0, 0);
            return Ok(false);
        };
        let keep = self.sound_end(fs, log, position)?;
        let start = self.first_live(fs, first, keep)?.min(keep);
        let found = self.units_from(fs, keep)?;
        let mut files = lock(&self.files);
        let is_newest = files
            .bases()
            .is_some_and(|(_, newest)| (newest..newest + files.per_file()).contains(&keep));
        let cleared = found.is_empty() && files.clear_from(fs, keep)?;
        if !found.is_empty() {
            files.mark_changed();
        }
        files.close();
        drop(files);
        self.continue_at(keep, start);
        let mut memory = lock(&self.memory);
        // Units of later files were not checked, but the replay brings their records, so they are not unexplained.
        memory.has_unexplained = cleared && is_newest;
        let changed = cleared || !found.is_empty();
        memory.found = found;
        memory.writes_again = writes_again;
        Ok(changed)
    }

    /// The units from an index on, if the newest file has them and nothing after them: most likely the replay confirms
    /// them, and nothing need be cleared.
    fn units_from(&self, fs: &dyn Fs, index: i64) -> Result<VecDeque<CqUnit>, StoreError> {
        let mut files = lock(&self.files);
        let per_file = files.per_file();
        let mut found = VecDeque::new();
        let Some((_, newest)) = files
            .bases()
            .filter(|(_, newest)| (*newest..newest + per_file).contains(&index))
        else {
            return Ok(found);
        };
        let (mut at, mut bytes, mut count) = (index, Vec::new(), to_i64(HEAD_UNITS));
        'file: while at < newest + per_file {
            bytes.clear();
            files.read(fs, at, count.min(newest + per_file - at), &mut bytes)?;
            for unit in bytes.chunks_exact(CQ_UNIT_SIZE).filter_map(CqUnit::from_bytes) {
                if !unit.is_written() {
                    break 'file;
                }
                found.push_back(unit);
                at += 1;
            }
            if bytes.is_empty() {
                break;
            }
            count = (count * 2).min(SCAN_UNITS);
        }
        if !files.is_clear_from(fs, at)? {
            found.clear();
        }
        Ok(found)
    }

    /// Makes the unit of a replayed record readable; the file may have it already. Returns how many bytes wait to be
    /// written.
    pub(crate) fn put_back(&self, fs: &dyn Fs, unit: CqUnit) -> Result<usize, StoreError> {
        {
            let mut memory = lock(&self.memory);
            if let Some(found) = memory.found.pop_front_if(|found| is_of(found, unit)) {
                if memory.writes_again {
                    drop(memory);
                    return Ok(self.push(found));
                }
                memory.first += 1;
                memory.written += 1;
                self.end.store(memory.first, Ordering::Release);
                return Ok(0);
            }
        }
        self.drop_unexplained_units(fs)?;
        Ok(self.push(unit))
    }

    /// Clears the units that no replayed record explains. Returns whether there were some, now or before: their records
    /// are lost, or the file is damaged.
    pub(crate) fn drop_unexplained_units(&self, fs: &dyn Fs) -> Result<bool, StoreError> {
        let end = {
            let mut memory = lock(&self.memory);
            if std::mem::take(&mut memory.found).is_empty() {
                return Ok(memory.has_unexplained);
            }
            memory.has_unexplained = true;
            memory.end()
        };
        lock(&self.files).clear_from(fs, end)?;
        Ok(true)
    }

    /// Where the units end that point before `position` in the log; each is checked.
    fn sound_end(&self, fs: &dyn Fs, log: &CommitLog, position: i64) -> Result<i64, StoreError> {
        let Some((first, last)) = lock(&self.files).bases() else {
            return Ok(0);
        };
        let per_file = lock(&self.files).per_file();
        let is_sound = |unit: CqUnit| unit.is_written() && (unit.is_filler() || unit.position < position);
        // A file's first unit is in one sector, so it is whole or missing, never torn.
        let mut base = last;
        while base > first && !self.unit_on_disk(fs, base)?.is_some_and(is_sound) {
            base -= per_file;
        }
        let (mut keep, mut newest) = (base, -1);
        let (mut bytes, mut count) = (Vec::new(), to_i64(HEAD_UNITS));
        'file: while keep < base + per_file {
            bytes.clear();
            let now = count.min(base + per_file - keep);
            lock(&self.files).read(fs, keep, now, &mut bytes)?;
            count = (count * 2).min(SCAN_UNITS);
            for unit in bytes.chunks_exact(CQ_UNIT_SIZE).filter_map(CqUnit::from_bytes) {
                if !is_sound(unit) || (!unit.is_filler() && unit.position <= newest) {
                    break 'file;
                }
                if !unit.is_filler() {
                    newest = unit.position;
                }
                keep += 1;
            }
            if bytes.is_empty() {
                break;
            }
        }
        // A last unit that spans two sectors may be torn and look older than it is: the log decides.
        while keep > base
            && (keep - base) * CQ_UNIT_SIZE_I64 / SECTOR != ((keep - 1 - base) * CQ_UNIT_SIZE_I64) / SECTOR
            && let Some(unit) = self.unit_on_disk(fs, keep - 1)?.filter(|unit| !unit.is_filler())
            && unit.position >= log.start()
            && !log.has_record(unit.position, unit.size, self.id, keep - 1)?
        {
            keep -= 1;
        }
        Ok(keep)
    }

    /// Removes all units. Only before the store runs.
    pub(crate) fn reset(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        lock(&self.files).remove_all(fs)?;
        self.continue_at(0, 0);
        Ok(())
    }
}

/// Whether both units are of the same record. The tags code of a unit with an extended entry is an address, which the
/// log does not know, so it is not compared.
fn is_of(found: &CqUnit, unit: CqUnit) -> bool {
    *found == unit
        || (is_address(found.tags_code) && (found.position, found.size) == (unit.position, unit.size))
}
