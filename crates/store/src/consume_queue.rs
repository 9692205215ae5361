//! One consume queue: the positions of a queue's messages in the commit log (Apache `ConsumeQueue`).
//!
//! A put adds 20 bytes to `memory` and nothing else: readers of fresh messages need no system call, and the housekeeping thread
//! brings the units of many puts to the file in one write. Units that a kill takes away are rebuilt from the log.
//!
//! ```text
//! index    min ........ memory.first ...... memory.written ...... end
//!          on disk only | on disk and in memory | in memory only
//! ```
//! Lock order: `files` before `memory`; writing to a file never holds `memory`, so that a put never waits for a disk.

use crate::access::Access;
use crate::commit_log::CommitLog;
use crate::error::StoreError;
use crate::extended::is_address;
use crate::format::{UNIT, UNIT_I64, Unit, to_i64, to_usize};
use crate::fs::Fs;
use crate::queue_files::{Handles, QueueFiles, Shape, read_units};
use crate::sync::lock;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of units that are kept in memory after they were written.
const KEEP: usize = 8 * 1024;
/// Memory for a queue's first units: most of many queues get few messages, and growing costs more than a put.
const FIRST_ROOM: usize = 3 * UNIT;
/// Units of a file that are read at once to find its end.
const HEAD_UNITS: usize = 200;
/// Units that are read at once when all are looked at.
const SCAN_UNITS: i64 = 8192;
/// What a disk writes whole or not at all.
const SECTOR: i64 = 512;
/// Unwritten bytes from which the putting thread writes itself.
pub(crate) const WRITE_NOW: usize = 16 * 1024;

/// A queue of one topic. What a put touches comes first, so that it lies together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ConsumeQueue {
    pub(crate) topic: Arc<str>,
    pub(crate) id: i32,
    /// True while the queue stands in the list of those with unwritten units.
    listed: AtomicBool,
    /// True while the queue stands in the list of those with files to be fsynced.
    listed_for_sync: AtomicBool,
    /// True while its topic is being deleted: no put may go on; set behind the append lock.
    closing: AtomicBool,
    /// Index that the next put gets; behind the append lock.
    assigned: AtomicI64,
    /// Index behind the newest readable unit.
    end: AtomicI64,
    memory: Mutex<Memory>,
    /// Index of the oldest unit whose record is still there.
    min: AtomicI64,
    files: Mutex<QueueFiles>,
}

#[derive(Debug, Default)]
struct Memory {
    first: i64,
    written: i64,
    units: Vec<u8>,
    /// Units that a crash left in the newest file behind the end, until the walk meets their records.
    found: VecDeque<Unit>,
    /// Something stood behind the end that no record explains.
    is_strange: bool,
    /// Rounds of housekeeping without a put.
    idle: u8,
    deleted: bool,
}

impl Memory {
    fn end(&self) -> i64 {
        self.first + to_i64(self.units.len() / UNIT)
    }
}

impl ConsumeQueue {
    pub(crate) fn new(
        topic: &Arc<str>,
        id: i32,
        directory: PathBuf,
        file_bytes: u64,
        handles: &Arc<Handles>,
    ) -> Self {
        Self {
            topic: Arc::clone(topic),
            id,
            assigned: AtomicI64::new(0),
            min: AtomicI64::new(0),
            end: AtomicI64::new(0),
            listed: AtomicBool::new(false),
            listed_for_sync: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            memory: Mutex::default(),
            files: Mutex::new(QueueFiles::new(directory, file_bytes, Arc::clone(handles))),
        }
    }

    /// Looks which files are there.
    pub(crate) fn look(&self, fs: &dyn Fs, crashed: bool) -> Result<Shape, StoreError> {
        lock(&self.files).load(fs, crashed)
    }

    /// Mends what a crash left behind.
    pub(crate) fn mend(&self, fs: &dyn Fs, shape: &Shape) -> Result<(), StoreError> {
        lock(&self.files).mend(fs, shape)
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

    /// Where the written part of a file ends. Most queues are short: their end is in the first page.
    fn end_in_file(&self, fs: &dyn Fs, base: i64, per_file: i64) -> Result<i64, StoreError> {
        let mut head = Vec::with_capacity(HEAD_UNITS * UNIT);
        let count = to_i64(HEAD_UNITS).min(per_file);
        lock(&self.files).read(fs, base, count, &mut head)?;
        let units = head.chunks_exact(UNIT).filter_map(Unit::from_bytes);
        let written = to_i64(units.take_while(|unit| unit.is_written()).count());
        if written < count {
            return Ok(base + written);
        }
        self.first_on_disk(fs, base + written, base + per_file, |unit| !unit.is_written())
    }

    /// The first index behind what fills the oldest file.
    fn first_live(&self, fs: &dyn Fs, first: i64, end: i64) -> Result<i64, StoreError> {
        match self.unit_on_disk(fs, first)? {
            Some(unit) if unit.is_filler() => self.first_on_disk(fs, first, end, |unit| !unit.is_filler()),
            _ => Ok(first),
        }
    }

    fn unit_on_disk(&self, fs: &dyn Fs, index: i64) -> Result<Option<Unit>, StoreError> {
        let mut bytes = Vec::with_capacity(UNIT);
        lock(&self.files).read(fs, index, 1, &mut bytes)?;
        Ok(Unit::from_bytes(&bytes))
    }

    /// True for a queue whose oldest file is not its first.
    pub(crate) fn begins_late(&self) -> bool {
        lock(&self.files).bases().is_some_and(|(first, _)| first > 0)
    }

    /// True for a queue whose oldest unit is of a record at or behind a position; false for one without units.
    pub(crate) fn begins_behind(&self, fs: &dyn Fs, position: i64) -> Result<bool, StoreError> {
        let Some((first, _)) = lock(&self.files).bases() else {
            return Ok(false);
        };
        let behind = first + lock(&self.files).per_file();
        let live = self.first_on_disk(fs, first, behind, |unit| !unit.is_filler())?;
        let unit = self.unit_on_disk(fs, live)?;
        Ok(unit.is_some_and(|unit| unit.is_written() && unit.position >= position))
    }

    /// Makes damaged files such that the queue can be built again from the log.
    pub(crate) fn straighten(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        lock(&self.files).straighten(fs)
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

    /// Binary search in the files alone, for the time before the store runs: a first part of the units does not fulfil
    /// `matches`, the rest does.
    fn first_on_disk(
        &self,
        fs: &dyn Fs,
        from: i64,
        to: i64,
        matches: impl Fn(Unit) -> bool,
    ) -> Result<i64, StoreError> {
        let mut bytes = Vec::with_capacity(UNIT);
        search(from, to, |index| {
            bytes.clear();
            lock(&self.files).read(fs, index, 1, &mut bytes)?;
            Ok(Unit::from_bytes(&bytes).is_none_or(&matches))
        })
    }

    /// Binary search over units of which a first part does not fulfil `matches` and the rest does.
    pub(crate) fn first_where(
        &self,
        fs: &dyn Fs,
        from: i64,
        to: i64,
        mut matches: impl FnMut(Unit) -> Result<bool, StoreError>,
    ) -> Result<i64, StoreError> {
        let mut bytes = Vec::with_capacity(UNIT);
        search(from, to, |index| {
            bytes.clear();
            self.read(fs, index, 1, &mut bytes)?;
            match Unit::from_bytes(&bytes) {
                Some(unit) => matches(unit),
                None => Ok(true),
            }
        })
    }

    pub(crate) fn min(&self) -> i64 {
        self.min.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) -> i64 {
        self.end.load(Ordering::Acquire)
    }

    /// The first index of the file behind the one with this index.
    pub(crate) fn next_file(&self, index: i64) -> i64 {
        let per_file = lock(&self.files).per_file();
        index - index % per_file + per_file
    }

    /// Gives out `count` indexes; only under the append lock.
    pub(crate) fn assign(&self, count: i64) -> i64 {
        let first = self.assigned.load(Ordering::Relaxed);
        self.assigned.store(first + count, Ordering::Relaxed);
        first
    }

    /// The next index to give out; only under the append lock.
    pub(crate) fn next(&self) -> i64 {
        self.assigned.load(Ordering::Relaxed)
    }

    /// Keeps puts out, or lets them in again; only under the append lock.
    pub(crate) fn set_closing(&self, closing: bool) {
        self.closing.store(closing, Ordering::Relaxed);
    }

    /// True when a put must wait for the end of the topic's deletion; only under the append lock.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Makes a unit readable. Says how many bytes wait to be written.
    pub(crate) fn push(&self, unit: Unit) -> usize {
        self.push_all(std::iter::once(unit))
    }

    /// The same for the units of a batch.
    pub(crate) fn push_all(&self, units: impl Iterator<Item = Unit>) -> usize {
        let mut memory = lock(&self.memory);
        if memory.units.capacity() == 0 {
            memory.units.reserve_exact(FIRST_ROOM);
        }
        for unit in units {
            memory.units.extend_from_slice(&unit.to_bytes());
        }
        memory.idle = 0;
        let end = memory.end();
        self.end.store(end, Ordering::Release);
        to_usize((end - memory.written) * UNIT_I64)
    }

    /// True for the caller that shall put the queue into the list of those to be written.
    pub(crate) fn list_once(&self) -> bool {
        !self.listed.load(Ordering::Relaxed) && !self.listed.swap(true, Ordering::AcqRel)
    }

    /// The same for the list of those whose files are to be fsynced.
    pub(crate) fn list_for_sync_once(&self) -> bool {
        !self.listed_for_sync.swap(true, Ordering::AcqRel)
    }

    /// Adds up to `count` units from `index` on to `out`: all from memory or all from one file, so it may be fewer.
    pub(crate) fn read(
        &self,
        fs: &dyn Fs,
        index: i64,
        count: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.read_by(&Access::waiting(), fs, (index, count), out)
    }

    /// The same, as it may be read: nothing is added where the units are not in memory and must be.
    pub(crate) fn read_by(
        &self,
        access: &Access,
        fs: &dyn Fs,
        (index, count): (i64, i64),
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let on_disk = {
            let memory = lock(&self.memory);
            if index >= memory.first {
                let from = to_usize((index - memory.first) * UNIT_I64).min(memory.units.len());
                let to = (from + to_usize(count * UNIT_I64)).min(memory.units.len());
                out.extend_from_slice(memory.units.get(from..to).unwrap_or_default());
                return Ok(());
            }
            memory.first
        };
        // The read itself holds no lock.
        let (file, base, per_file) = {
            let mut files = lock(&self.files);
            let Some((base, file)) = files.at(fs, index)? else {
                return Ok(());
            };
            (file, base, files.per_file())
        };
        let wanted = (index, count.min(on_disk - index));
        read_units(access, file.as_ref(), (base, per_file), wanted, out)
            .map_err(|error| StoreError::io("read", lock(&self.files).directory(), &error))
    }

    /// The queue leaves the list of those to be written: a put from now on lists it again.
    pub(crate) fn unlist(&self) {
        self.listed.store(false, Ordering::Release);
    }

    /// Writes what is only in memory.
    pub(crate) fn write_out(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        let mut files = lock(&self.files);
        let (start, units) = {
            let memory = lock(&self.memory);
            if memory.deleted {
                return Ok(());
            }
            let from = to_usize((memory.written - memory.first) * UNIT_I64);
            (
                memory.written,
                memory.units.get(from..).unwrap_or_default().to_vec(),
            )
        };
        files.write(fs, start, &units)?;
        let index = start + to_i64(units.len() / UNIT);
        let mut memory = lock(&self.memory);
        memory.written = memory.written.max(index);
        let surplus = memory.units.len().saturating_sub(KEEP);
        let written = to_usize((memory.written - memory.first) * UNIT_I64);
        let drop = surplus.min(written) / UNIT * UNIT;
        if drop > KEEP {
            memory.units.drain(..drop);
            memory.first += to_i64(drop / UNIT);
        }
        Ok(())
    }

    /// Fsyncs the files that were written; adds the directories that were changed.
    pub(crate) fn sync(&self, fs: &dyn Fs, directories: &mut BTreeSet<PathBuf>) -> Result<(), StoreError> {
        self.listed_for_sync.store(false, Ordering::Release);
        let dirty = {
            let mut files = lock(&self.files);
            if lock(&self.memory).deleted {
                return Ok(());
            }
            files.take_dirty(fs)?
        };
        dirty.run(directories)
    }

    /// Notes that everything is durable because the whole file system was fsynced.
    pub(crate) fn forget_dirty(&self) {
        self.listed_for_sync.store(false, Ordering::Release);
        lock(&self.files).forget_dirty();
    }

    /// Takes [`ConsumeQueue::forget_dirty`] back.
    pub(crate) fn all_dirty(&self) {
        self.listed_for_sync.store(true, Ordering::Release);
        lock(&self.files).all_dirty();
    }

    /// One round of rest: after some without a put the memory and the open files are given back.
    pub(crate) fn rest(&self) {
        let mut files = lock(&self.files);
        let mut memory = lock(&self.memory);
        memory.idle = memory.idle.saturating_add(1);
        if memory.idle < 10 || memory.written < memory.end() {
            return;
        }
        memory.first = memory.written;
        memory.units = Vec::new();
        files.close();
    }

    /// Makes an empty queue begin at `index`. Only before the store runs.
    pub(crate) fn begin_at(&self, fs: &dyn Fs, index: i64) -> Result<(), StoreError> {
        // A file without any unit may be there; this one begins elsewhere and is filled.
        lock(&self.files).remove_all(fs)?;
        self.continue_at(index, index);
        Ok(())
    }

    /// The last unit, if there is one.
    pub(crate) fn last(&self, fs: &dyn Fs) -> Result<Option<Unit>, StoreError> {
        let end = self.end();
        if end <= self.min() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(UNIT);
        self.read(fs, end - 1, 1, &mut bytes)?;
        Ok(Unit::from_bytes(&bytes))
    }

    /// Drops all units of records at or behind `position`, on disk too. Says whether a file changed. The units in front of
    /// `position` are sound; what stands behind them may be lost, torn or older. Only before the store runs.
    pub(crate) fn cut(&self, fs: &dyn Fs, log: &CommitLog, position: i64) -> Result<bool, StoreError> {
        let Some((first, _)) = lock(&self.files).bases() else {
            self.continue_at(0, 0);
            return Ok(false);
        };
        let keep = self.sound_end(fs, log, position)?;
        let start = self.first_live(fs, first, keep)?.min(keep);
        let found = self.units_behind(fs, keep)?;
        let mut files = lock(&self.files);
        let is_newest = files
            .bases()
            .is_some_and(|(_, newest)| (newest..newest + files.per_file()).contains(&keep));
        let cleared = found.is_empty() && files.clear_from(fs, keep)?;
        if !found.is_empty() {
            files.note_changed();
        }
        files.close();
        drop(files);
        self.continue_at(keep, start);
        let mut memory = lock(&self.memory);
        // Units of later files have their records in the walk.
        memory.is_strange = cleared && is_newest;
        let changed = cleared || !found.is_empty();
        memory.found = found;
        Ok(changed)
    }

    /// The units from an index on, if the newest file has them and nothing behind them: most likely the walk finds them right,
    /// and need not write them again.
    fn units_behind(&self, fs: &dyn Fs, index: i64) -> Result<VecDeque<Unit>, StoreError> {
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
            for unit in bytes.chunks_exact(UNIT).filter_map(Unit::from_bytes) {
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

    /// Makes the unit of a record readable that the walk met: it may be in the file already. Says how many bytes wait to be
    /// written.
    pub(crate) fn put_back(&self, fs: &dyn Fs, unit: Unit) -> Result<usize, StoreError> {
        {
            let mut memory = lock(&self.memory);
            if memory.found.pop_front_if(|found| is_of(found, unit)).is_some() {
                memory.first += 1;
                memory.written += 1;
                self.end.store(memory.first, Ordering::Release);
                return Ok(0);
            }
        }
        self.drop_found(fs)?;
        Ok(self.push(unit))
    }

    /// Clears units that the walk did not meet. True when there were such, now or before: lost in the log, or damaged.
    pub(crate) fn drop_found(&self, fs: &dyn Fs) -> Result<bool, StoreError> {
        let end = {
            let mut memory = lock(&self.memory);
            if std::mem::take(&mut memory.found).is_empty() {
                return Ok(memory.is_strange);
            }
            memory.is_strange = true;
            memory.end()
        };
        lock(&self.files).clear_from(fs, end)?;
        Ok(true)
    }

    /// Where the units end that are in front of `position` in the log, looked at one by one.
    fn sound_end(&self, fs: &dyn Fs, log: &CommitLog, position: i64) -> Result<i64, StoreError> {
        let Some((first, last)) = lock(&self.files).bases() else {
            return Ok(0);
        };
        let per_file = lock(&self.files).per_file();
        let is_sound = |unit: Unit| unit.is_written() && (unit.is_filler() || unit.position < position);
        // A file's first unit lies in one sector: it is there or not, never torn.
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
            for unit in bytes.chunks_exact(UNIT).filter_map(Unit::from_bytes) {
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
        // A last unit that lies in two sectors may be torn and look older than it is: the log knows.
        while keep > base
            && (keep - base) * UNIT_I64 / SECTOR != ((keep - 1 - base) * UNIT_I64) / SECTOR
            && let Some(unit) = self.unit_on_disk(fs, keep - 1)?.filter(|unit| !unit.is_filler())
            && unit.position >= log.start()
            && !log.has_record(unit.position, unit.size, self.id, keep - 1)?
        {
            keep -= 1;
        }
        Ok(keep)
    }

    /// Starts over, without any unit. Only before the store runs.
    pub(crate) fn reset(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        lock(&self.files).remove_all(fs)?;
        self.continue_at(0, 0);
        Ok(())
    }

    /// Follows the log's new start: the minimum moves and files without any live unit go. Says how many went.
    pub(crate) fn trim(&self, fs: &dyn Fs, log_start: i64) -> Result<u64, StoreError> {
        let (min, end) = (self.min(), self.end());
        if log_start == 0 {
            return Ok(0);
        }
        let live = self.first_where(fs, min, end, |unit| {
            Ok(unit.is_written() && !unit.is_filler() && unit.position >= log_start)
        })?;
        self.min.fetch_max(live, Ordering::AcqRel);
        let mut files = lock(&self.files);
        let removed = files.trim(fs, live)?;
        files.close();
        Ok(removed)
    }

    /// Deletes the files; a late write does not bring them back.
    pub(crate) fn delete(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        let mut files = lock(&self.files);
        {
            let mut memory = lock(&self.memory);
            memory.deleted = true;
        }
        files.delete(fs)
    }
}

/// True for a unit that stands for the same record; one with an extended entry says more than the log.
fn is_of(found: &Unit, unit: Unit) -> bool {
    *found == unit
        || (is_address(found.tags_code) && (found.position, found.size) == (unit.position, unit.size))
}

/// The first index in `from..to` for which `found` holds, `to` if none: it must hold for all behind the first.
fn search(
    from: i64,
    to: i64,
    mut found: impl FnMut(i64) -> Result<bool, StoreError>,
) -> Result<i64, StoreError> {
    let (mut low, mut high) = (from, to);
    while low < high {
        let middle = low + (high - low) / 2;
        if found(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}
