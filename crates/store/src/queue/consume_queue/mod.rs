//! One consume queue: the positions of a queue's messages in the commit log (Apache `ConsumeQueue`).
//!
//! A put only adds 20 bytes to `memory`: readers of fresh messages need no system call, and the maintenance thread
//! writes the units of many puts to the file at once. Units that a kill loses are rebuilt from the log.
//!
//! ```text
//! index    min ........ memory.first ...... memory.written ...... end
//!          on disk only | on disk and in memory | in memory only
//! ```
//! Lock order: `writing`, `files`, `memory`. What writes to a file or creates one holds `writing` alone meanwhile, so
//! that a disk that hangs there holds up neither puts nor reads.

mod search;
mod start;
mod units;
mod write;

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CQ_UNIT_SIZE_I64, CqUnit, to_i64, to_usize};
use crate::fs::Fs;
use crate::fs::read_mode::ReadMode;
use crate::queue::consume_queue::units::Units;
use crate::queue::files::handles::Handles;
use crate::queue::files::{self, QueueFiles, read_units};
use crate::queue::manifest::QueueRange;
use crate::queue::wait_list::InList;
use crate::sync::lock;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Unwritten bytes at which the replay of the log writes them.
pub(crate) const WRITE_NOW: usize = 16 * 1024;

/// A queue of one topic. The fields that a put touches come first, so that they share cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ConsumeQueue {
    pub(crate) topic: Arc<str>,
    pub(crate) id: i32,
    /// Whether the queue is in the list of those with unwritten units.
    pub(super) in_unwritten: InList,
    /// Whether the queue is in the list of those with files to be fsynced.
    pub(super) in_unsynced: InList,
    /// True while its topic is being deleted, when no put may continue; set under the append lock.
    closing: AtomicBool,
    /// Index of the next put; under the append lock.
    assigned: AtomicI64,
    /// Index after the newest readable unit.
    end: AtomicI64,
    memory: Mutex<Memory>,
    /// Index of the oldest unit whose record still exists.
    min: AtomicI64,
    /// The list of files. Held while a file is opened, and while retention deletes some.
    files: Mutex<QueueFiles>,
    /// Held while units are written.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Memory {
    first: i64,
    written: i64,
    units: Units,
    /// Number of maintenance visits without a put.
    idle: u8,
    deleted: bool,
    /// Whether something after the end is explained by no record.
    has_unexplained: bool,
    /// Units that a crash left after the end of the newest file, until the replay reaches their records.
    found: VecDeque<CqUnit>,
    /// Whether these are rewritten although they exist: an fsync may have failed, and the system may only believe that
    /// they are on the disk.
    writes_again: bool,
}

impl Memory {
    fn end(&self) -> i64 {
        self.first + to_i64(self.units.len() / CQ_UNIT_SIZE)
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
            in_unwritten: InList::default(),
            in_unsynced: InList::default(),
            closing: AtomicBool::new(false),
            memory: Mutex::default(),
            files: Mutex::new(QueueFiles::new(directory, file_bytes, Arc::clone(handles))),
            writing: Mutex::default(),
        }
    }

    pub(crate) fn min(&self) -> i64 {
        self.min.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) -> i64 {
        self.end.load(Ordering::Acquire)
    }

    /// The first index of the file after the one with this index.
    pub(crate) fn next_file(&self, index: i64) -> i64 {
        let per_file = lock(&self.files).per_file();
        index - index % per_file + per_file
    }

    /// Assigns `count` indexes; only under the append lock.
    pub(crate) fn assign(&self, count: i64) -> i64 {
        let first = self.assigned.load(Ordering::Relaxed);
        self.assigned.store(first + count, Ordering::Relaxed);
        first
    }

    /// The next index to assign; only under the append lock.
    pub(crate) fn next(&self) -> i64 {
        self.assigned.load(Ordering::Relaxed)
    }

    /// Blocks puts, or allows them again; only under the append lock.
    pub(crate) fn set_closing(&self, closing: bool) {
        self.closing.store(closing, Ordering::Relaxed);
    }

    /// Whether a put must wait for the end of the topic's deletion; only under the append lock.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Reads from all cache lines that a put needs, so that it waits for them together, not one after the other.
    #[inline]
    pub(crate) fn warm(&self) {
        let seen = self.end.load(Ordering::Relaxed) ^ self.min.load(Ordering::Relaxed);
        std::hint::black_box((seen, self.memory.is_poisoned()));
    }

    /// Makes a unit readable. Returns how many bytes wait to be written.
    pub(crate) fn push(&self, unit: CqUnit) -> usize {
        self.push_all(std::iter::once(unit))
    }

    /// Makes the units of a batch readable. Returns how many bytes wait to be written.
    pub(crate) fn push_all(&self, units: impl ExactSizeIterator<Item = CqUnit>) -> usize {
        let mut memory = lock(&self.memory);
        memory.units.add(units);
        memory.idle = 0;
        let end = memory.end();
        self.end.store(end, Ordering::Release);
        to_usize((end - memory.written) * CQ_UNIT_SIZE_I64)
    }

    /// Appends up to `count` units from `index` on to `out`. They come all from memory or all from one file, so there
    /// may be fewer.
    pub(crate) fn read(
        &self,
        fs: &dyn Fs,
        index: i64,
        count: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.read_by(&ReadMode::waiting(), fs, (index, count), out)
    }

    /// Like [`ConsumeQueue::read`], but adds nothing if the units are not in memory and the reader may not wait.
    pub(crate) fn read_by(
        &self,
        mode: &ReadMode,
        fs: &dyn Fs,
        (index, count): (i64, i64),
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let on_disk = {
            let memory = lock(&self.memory);
            if index >= memory.first {
                let from = to_usize((index - memory.first) * CQ_UNIT_SIZE_I64).min(memory.units.len());
                let to = (from + to_usize(count * CQ_UNIT_SIZE_I64)).min(memory.units.len());
                out.extend_from_slice(memory.units.bytes().get(from..to).unwrap_or_default());
                return Ok(());
            }
            memory.first
        };
        // No lock is held during the read itself.
        let (file, base, per_file) = {
            let Some(mut files) = mode.take(&self.files) else {
                return Ok(());
            };
            let Some((base, file)) = files.at(fs, index)? else {
                return Ok(());
            };
            (file, base, files.per_file())
        };
        let wanted = (index, count.min(on_disk - index));
        read_units(mode, file.as_ref(), (base, per_file), wanted, out)
            .map_err(|error| StoreError::io("read", lock(&self.files).directory(), &error))
    }

    /// Position of the record of the first unit that is only in memory.
    pub(crate) fn first_unwritten(&self) -> Option<i64> {
        let memory = lock(&self.memory);
        let at = to_usize((memory.written - memory.first) * CQ_UNIT_SIZE_I64);
        let unit = memory.units.bytes().get(at..).and_then(CqUnit::from_bytes)?;
        (!memory.deleted).then_some(unit.position)
    }

    /// Fsyncs the files that were written, and adds the directories that changed. Returns how far the files reach if
    /// some are new.
    pub(crate) fn sync(
        &self,
        fs: &dyn Fs,
        directories: &mut BTreeSet<PathBuf>,
    ) -> Result<Option<QueueRange>, StoreError> {
        let (dirty, made) = {
            let mut files = lock(&self.files);
            if lock(&self.memory).deleted {
                return Ok(None);
            }
            (files.take_dirty(fs)?, self.take_made(&mut files))
        };
        dirty.run(directories)?;
        Ok(made)
    }

    /// Marks everything as durable because the whole file system is fsynced now. Returns how far the files reach if
    /// some are new.
    pub(crate) fn forget_dirty(&self) -> Option<QueueRange> {
        let mut files = lock(&self.files);
        files.forget_dirty();
        self.take_made(&mut files)
    }

    fn take_made(&self, files: &mut QueueFiles) -> Option<QueueRange> {
        files.take_made().then(|| self.range_of(files)).flatten()
    }

    /// How far the files reach; `None` without a file.
    pub(crate) fn range(&self) -> Option<QueueRange> {
        self.range_of(&lock(&self.files))
    }

    fn range_of(&self, files: &QueueFiles) -> Option<QueueRange> {
        let memory = lock(&self.memory);
        let is_there = !memory.deleted && memory.written > 0 && files.bases().is_some();
        is_there.then(|| QueueRange {
            topic: Arc::clone(&self.topic),
            id: self.id,
            min: self.min(),
            end: memory.written,
        })
    }

    /// Whether the files cover a range of indexes; a short newest file does not count.
    pub(crate) fn covers(&self, range: (i64, i64), is_short: bool) -> bool {
        lock(&self.files).range(range, is_short)
    }

    /// Marks everything as not durable.
    pub(crate) fn all_dirty(&self) {
        lock(&self.files).all_dirty();
    }

    /// Counts a visit without a put. After `visits` of them, memory and open files are released.
    pub(crate) fn release_memory(&self, visits: u8) {
        let mut files = lock(&self.files);
        let mut memory = lock(&self.memory);
        memory.idle = memory.idle.saturating_add(1);
        if memory.idle < visits || memory.written < memory.end() {
            return;
        }
        memory.first = memory.written;
        memory.units.clear();
        files.close();
    }

    /// The last unit, if there is one.
    pub(crate) fn last(&self, fs: &dyn Fs) -> Result<Option<CqUnit>, StoreError> {
        let end = self.end();
        if end <= self.min() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(CQ_UNIT_SIZE);
        self.read(fs, end - 1, 1, &mut bytes)?;
        Ok(CqUnit::from_bytes(&bytes))
    }

    /// Moves the minimum to the log's new start. Returns whether there are files without a live unit.
    pub(crate) fn follow(&self, fs: &dyn Fs, log_start: i64) -> Result<bool, StoreError> {
        let (min, end) = (self.min(), self.end());
        if log_start == 0 {
            return Ok(false);
        }
        let live = self.first_where(fs, min, end, |unit| {
            Ok(unit.is_written() && unit.position >= log_start)
        })?;
        self.min.fetch_max(live, Ordering::AcqRel);
        let mut files = lock(&self.files);
        files.close();
        Ok(files.has_old(live))
    }

    /// Deletes files without a live unit. Returns how many it deleted.
    pub(crate) fn trim(&self, fs: &dyn Fs) -> Result<u64, StoreError> {
        let live = self.min();
        let Some(newest) = lock(&self.files).newest_to_keep(fs, live)? else {
            return Ok(0);
        };
        // Without the lock, which writing and reading of the queue need.
        newest.sync(fs)?;
        let mut files = lock(&self.files);
        let removed = files.trim(fs, live, newest.base)?;
        files.close();
        Ok(removed)
    }

    /// Deletes the files. A late write does not bring them back.
    pub(crate) fn delete(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        let directory = {
            // Only until no write begins any more: one of this queue in a round must not wait for the deletion.
            let _writing = lock(&self.writing);
            let mut files = lock(&self.files);
            lock(&self.memory).deleted = true;
            files.forget()
        };
        files::delete(fs, &directory)
    }
}
