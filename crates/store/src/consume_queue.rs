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

use crate::error::StoreError;
use crate::format::{UNIT, UNIT_I64, Unit, file_name, parse_file_name, to_i64, to_u64, to_usize};
use crate::fs::{Context, File, Fs};
use crate::sync::lock;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of units that are kept in memory after they were written.
const KEEP: usize = 8 * 1024;
/// Unwritten bytes from which the putting thread writes itself.
pub(crate) const WRITE_NOW: usize = 16 * 1024;

/// A queue of one topic.
#[derive(Debug)]
pub(crate) struct ConsumeQueue {
    pub(crate) topic: Arc<str>,
    pub(crate) id: i32,
    directory: PathBuf,
    /// Units of one file.
    per_file: i64,
    /// Index that the next put gets; behind the append lock.
    assigned: AtomicI64,
    /// Index of the oldest unit whose record is still there.
    min: AtomicI64,
    /// Index behind the newest readable unit.
    end: AtomicI64,
    /// True while the queue stands in the list of those with unwritten units.
    listed: AtomicBool,
    /// True while the queue stands in the list of those with files to be fsynced.
    listed_for_sync: AtomicBool,
    memory: Mutex<Memory>,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Memory {
    first: i64,
    written: i64,
    units: Vec<u8>,
    /// Rounds of housekeeping without a put.
    idle: u8,
    deleted: bool,
}

impl Memory {
    fn end(&self) -> i64 {
        self.first + to_i64(self.units.len() / UNIT)
    }
}

#[derive(Debug, Default)]
struct Files {
    list: Vec<QueueFile>,
    /// A file was made or removed since the directories were fsynced.
    moved: bool,
}

/// The index of a file's first unit, and the file.
type BaseAndFile = (i64, Arc<dyn File>);

#[derive(Debug)]
struct QueueFile {
    /// Index of its first unit.
    base: i64,
    handle: Option<Arc<dyn File>>,
    dirty: bool,
}

impl ConsumeQueue {
    pub(crate) fn new(topic: &Arc<str>, id: i32, directory: PathBuf, file_bytes: u64) -> Self {
        Self {
            topic: Arc::clone(topic),
            id,
            directory,
            per_file: i64::try_from(file_bytes).unwrap_or(i64::MAX) / UNIT_I64,
            assigned: AtomicI64::new(0),
            min: AtomicI64::new(0),
            end: AtomicI64::new(0),
            listed: AtomicBool::new(false),
            listed_for_sync: AtomicBool::new(false),
            memory: Mutex::default(),
            files: Mutex::default(),
        }
    }

    /// Opens what is on disk: finds the newest unit in front of `log_end`.
    pub(crate) fn load(&self, fs: &dyn Fs, file_bytes: u64) -> Result<(), StoreError> {
        let mut files = Vec::new();
        for entry in fs.list(&self.directory).at("list", &self.directory)? {
            let Some(offset) = parse_file_name(&entry.name).filter(|_| !entry.is_directory) else {
                continue;
            };
            if entry.length == 0 {
                // A stop between making the file and giving it its length.
                let path = self.directory.join(&entry.name);
                fs.remove(&path).at("remove", &path)?;
                continue;
            }
            if entry.length != file_bytes || offset % (self.per_file * UNIT_I64) != 0 {
                return Err(StoreError::FileLength {
                    path: self.directory.join(&entry.name),
                    length: entry.length,
                    expected: file_bytes,
                    key: "mappedFileSizeConsumeQueue",
                });
            }
            let base = offset / UNIT_I64;
            if files
                .last()
                .is_some_and(|last: &QueueFile| last.base + self.per_file != base)
            {
                return Err(StoreError::Gap {
                    path: self.directory.join(&entry.name),
                    expected: files
                        .last()
                        .map_or(0, |last| (last.base + self.per_file) * UNIT_I64),
                });
            }
            files.push(QueueFile {
                base,
                handle: None,
                dirty: false,
            });
        }
        let Some((first, last)) = files
            .first()
            .zip(files.last())
            .map(|(first, last)| (first.base, last.base))
        else {
            return Ok(());
        };
        lock(&self.files).list = files;
        let mut end = first;
        let mut base = last;
        while base >= first {
            end = self.first_on_disk(fs, base, base + self.per_file, |unit| !unit.is_written())?;
            if end > base {
                break;
            }
            base -= self.per_file;
        }
        self.continue_at(end, first);
        let start = self.first_on_disk(fs, first, end, |unit| !unit.is_filler())?;
        self.min.store(start, Ordering::Release);
        for file in &mut lock(&self.files).list {
            file.handle = None;
        }
        Ok(())
    }

    fn continue_at(&self, end: i64, min: i64) {
        let mut memory = lock(&self.memory);
        memory.first = end;
        memory.written = end;
        memory.units.clear();
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
            self.read_file(fs, index, 1, &mut bytes)?;
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
        index - index % self.per_file + self.per_file
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

    /// Makes a unit readable. Says how many bytes wait to be written.
    pub(crate) fn push(&self, unit: Unit) -> usize {
        let mut memory = lock(&self.memory);
        memory.units.extend_from_slice(&unit.to_bytes());
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
        self.read_file(fs, index, count.min(on_disk - index), out)
    }

    fn read_file(&self, fs: &dyn Fs, index: i64, count: i64, out: &mut Vec<u8>) -> Result<(), StoreError> {
        let Some((base, file)) = self.file_at(fs, index)? else {
            return Ok(());
        };
        let count = count.min(base + self.per_file - index);
        let start = out.len();
        out.resize(start + to_usize(count * UNIT_I64), 0);
        let place = out.get_mut(start..).unwrap_or_default();
        let got = file
            .read_at(place, to_u64((index - base) * UNIT_I64))
            .at("read", &self.directory)?;
        out.truncate(start + got / UNIT * UNIT);
        Ok(())
    }

    fn file_at(&self, fs: &dyn Fs, index: i64) -> Result<Option<BaseAndFile>, StoreError> {
        let mut files = lock(&self.files);
        let Some(file) = files
            .list
            .iter_mut()
            .find(|file| (file.base..file.base + self.per_file).contains(&index))
        else {
            return Ok(None);
        };
        let handle = if let Some(handle) = &file.handle {
            Arc::clone(handle)
        } else {
            let path = self.directory.join(file_name(file.base * UNIT_I64));
            let handle = fs.open(&path).at("open", &path)?;
            file.handle = Some(Arc::clone(&handle));
            handle
        };
        Ok(Some((file.base, handle)))
    }

    /// Writes what is only in memory. The queue leaves the list first, so that a put meanwhile lists it again.
    pub(crate) fn write_out(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        let mut files = lock(&self.files);
        self.listed.store(false, Ordering::Release);
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
        let mut index = start;
        let mut left = units.as_slice();
        while !left.is_empty() {
            let file = self.file_for_write(fs, &mut files, index)?;
            let room = to_usize((file.base + self.per_file - index) * UNIT_I64).min(left.len());
            let (now, later) = left.split_at(room);
            if let Some(handle) = &file.handle {
                handle
                    .write_all_at(now, to_u64((index - file.base) * UNIT_I64))
                    .at("write", &self.directory)?;
            }
            file.dirty = true;
            index += to_i64(room / UNIT);
            left = later;
        }
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

    fn file_for_write<'f>(
        &self,
        fs: &dyn Fs,
        files: &'f mut Files,
        index: i64,
    ) -> Result<&'f mut QueueFile, StoreError> {
        let base = index - index % self.per_file;
        if files.list.last().is_none_or(|last| last.base < base) {
            let handle = self.create_file(fs, base, index)?;
            files.moved = true;
            files.list.push(QueueFile {
                base,
                handle: Some(handle),
                dirty: true,
            });
        }
        let file = files
            .list
            .iter_mut()
            .rfind(|file| file.base == base)
            .ok_or(StoreError::Closed)?;
        if file.handle.is_none() {
            let path = self.directory.join(file_name(base * UNIT_I64));
            file.handle = Some(fs.open(&path).at("open", &path)?);
        }
        Ok(file)
    }

    /// A file of full length; in front of a first unit that is not the file's first it is filled.
    fn create_file(&self, fs: &dyn Fs, base: i64, index: i64) -> Result<Arc<dyn File>, StoreError> {
        let path = self.directory.join(file_name(base * UNIT_I64));
        fs.create_directories(&self.directory)
            .at("create", &self.directory)?;
        let handle = fs.create(&path).at("create", &path)?;
        handle
            .set_length(to_u64(self.per_file * UNIT_I64))
            .at("extend", &path)?;
        if index > base {
            let filler = Unit::FILLER.to_bytes().repeat(to_usize(index - base));
            handle.write_all_at(&filler, 0).at("write", &path)?;
        }
        Ok(handle)
    }

    /// Fsyncs the files that were written, and the directories if files were made or removed.
    pub(crate) fn sync(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        self.listed_for_sync.store(false, Ordering::Release);
        let (dirty, moved) = {
            let mut files = lock(&self.files);
            if lock(&self.memory).deleted {
                return Ok(());
            }
            let moved = std::mem::take(&mut files.moved);
            let mut dirty = Vec::new();
            for file in files.list.iter_mut().filter(|file| file.dirty) {
                let handle = if let Some(handle) = &file.handle {
                    Arc::clone(handle)
                } else {
                    let path = self.directory.join(file_name(file.base * UNIT_I64));
                    fs.open(&path).at("open", &path)?
                };
                file.dirty = false;
                dirty.push(handle);
            }
            (dirty, moved)
        };
        for file in dirty {
            file.sync().at("flush", &self.directory)?;
        }
        let parents = self.directory.ancestors().take(if moved { 3 } else { 0 });
        for directory in parents {
            match fs.sync_directory(directory) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                done => done.at("flush", directory)?,
            }
        }
        Ok(())
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
        for file in files.list.iter_mut().filter(|file| !file.dirty) {
            file.handle = None;
        }
    }

    /// Makes an empty queue begin at `index`. Only before the store runs.
    pub(crate) fn begin_at(&self, index: i64) {
        self.continue_at(index, index);
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

    /// Drops all units of records at or behind `position`, on disk too. With `clear`, what stands behind the end is made
    /// zero even if nothing is dropped: a crash may have left units there that nobody counts. Says whether a file changed.
    /// Only before the store runs.
    pub(crate) fn cut(&self, fs: &dyn Fs, position: i64, clear: bool) -> Result<bool, StoreError> {
        let (first, end) = {
            let files = lock(&self.files);
            (files.list.first().map(|file| file.base), self.end())
        };
        let Some(first) = first else {
            self.continue_at(0, 0);
            return Ok(false);
        };
        let keep = self.first_on_disk(fs, first, end, |unit| {
            !unit.is_written() || (!unit.is_filler() && unit.position >= position)
        })?;
        let start = self.first_on_disk(fs, first, keep, |unit| !unit.is_filler())?;
        if keep == end && !clear {
            return Ok(false);
        }
        self.clear_from(fs, if start == keep { first } else { keep })?;
        if start == keep {
            self.continue_at(0, 0);
        } else {
            self.continue_at(keep, start);
        }
        Ok(true)
    }

    fn clear_from(&self, fs: &dyn Fs, index: i64) -> Result<(), StoreError> {
        let mut files = lock(&self.files);
        while let Some(last) = files.list.last()
            && last.base >= index
        {
            let path = self.directory.join(file_name(last.base * UNIT_I64));
            fs.remove(&path).at("remove", &path)?;
            files.list.pop();
            files.moved = true;
        }
        if let Some(last) = files.list.last_mut() {
            let used = to_u64((index - last.base) * UNIT_I64);
            let length = to_u64(self.per_file * UNIT_I64);
            if used < length {
                let path = self.directory.join(file_name(last.base * UNIT_I64));
                let file = fs.open(&path).at("open", &path)?;
                file.set_length(used).at("cut", &path)?;
                file.set_length(length).at("extend", &path)?;
                last.dirty = true;
                last.handle = None;
            }
        }
        Ok(())
    }

    /// Starts over, without any unit. Only before the store runs.
    pub(crate) fn reset(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        self.clear_from(fs, 0)?;
        self.continue_at(0, 0);
        Ok(())
    }

    /// Follows the log's new start: the minimum moves and files without any live unit go. Says how many went.
    pub(crate) fn trim(&self, fs: &dyn Fs, log_start: i64) -> Result<u64, StoreError> {
        let (min, end) = (self.min(), self.end());
        let live = self.first_where(fs, min, end, |unit| {
            Ok(unit.is_written() && !unit.is_filler() && unit.position >= log_start)
        })?;
        self.min.fetch_max(live, Ordering::AcqRel);
        let mut files = lock(&self.files);
        let mut removed = 0;
        while files.list.len() > 1
            && let Some(first) = files.list.first()
            && first.base + self.per_file <= live
        {
            let path = self.directory.join(file_name(first.base * UNIT_I64));
            fs.remove(&path).at("remove", &path)?;
            files.list.remove(0);
            files.moved = true;
            removed += 1;
        }
        Ok(removed)
    }

    /// Deletes the files; a late write does not bring them back.
    pub(crate) fn delete(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        let mut files = lock(&self.files);
        {
            let mut memory = lock(&self.memory);
            memory.deleted = true;
        }
        files.list.clear();
        remove_files(fs, &self.directory)
    }
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

fn remove_files(fs: &dyn Fs, directory: &Path) -> Result<(), StoreError> {
    if !fs.exists(directory) {
        return Ok(());
    }
    for entry in fs.list(directory).at("list", directory)? {
        let path = directory.join(&entry.name);
        if !entry.is_directory {
            fs.remove(&path).at("remove", &path)?;
        }
    }
    fs.remove_directory(directory).at("remove", directory)
}
