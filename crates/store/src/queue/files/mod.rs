//! The files of one consume queue: units of 20 bytes, files of equal length, one after the other.
//!
//! Invariants: files are contiguous; a file has its full length from the start and is zero where no unit was written;
//! if a file's first unit is not its first index, the file is filled up to it.

pub(crate) mod handles;
pub(crate) mod start;
mod to_keep;

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CQ_UNIT_SIZE_I64, CqUnit, file_name, to_u64, to_usize};
use crate::fs::read_mode::ReadMode;
use crate::fs::{Context, File, Fs, parent};
use crate::log::cut::is_clear;
use crate::queue::files::handles::Handles;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The index of a file's first unit, and the file.
type BaseAndFile = (i64, Arc<dyn File>);

/// The files of one queue, oldest first.
#[derive(Debug)]
pub(crate) struct QueueFiles {
    pub(super) directory: PathBuf,
    /// Number of units in a file.
    pub(super) per_file: i64,
    pub(super) list: Vec<QueueFile>,
    pub(super) handles: Arc<Handles>,
    /// Whether a file was created or removed since the directories were fsynced.
    pub(super) moved: bool,
    /// Whether a file was created since the last call of [`QueueFiles::take_made`]. Set once its first units are
    /// written, so that what is noted about it includes them.
    pub(super) made: bool,
}

#[derive(Debug)]
pub(super) struct QueueFile {
    /// Index of the file's first unit.
    pub(super) base: i64,
    pub(super) handle: Option<Arc<dyn File>>,
    pub(super) dirty: bool,
}

/// The work of an fsync of a queue, which needs no lock.
#[derive(Debug)]
pub(crate) struct ToSync {
    files: Vec<Arc<dyn File>>,
    directory: PathBuf,
    moved: bool,
}

/// A file to be created, which needs no lock.
#[derive(Debug)]
pub(crate) struct ToCreate {
    /// Index of its first unit.
    pub(crate) base: i64,
    path: PathBuf,
    length: u64,
    /// Number of fillers before the first unit that is written to it.
    fillers: usize,
}

impl QueueFiles {
    pub(crate) fn new(directory: PathBuf, file_bytes: u64, handles: Arc<Handles>) -> Self {
        Self {
            directory,
            per_file: i64::try_from(file_bytes).unwrap_or(i64::MAX) / CQ_UNIT_SIZE_I64,
            list: Vec::new(),
            handles,
            moved: false,
            made: false,
        }
    }

    pub(super) fn path(&self, base: i64) -> PathBuf {
        self.directory.join(file_name(base * CQ_UNIT_SIZE_I64))
    }

    pub(super) fn length(&self) -> u64 {
        to_u64(self.per_file * CQ_UNIT_SIZE_I64)
    }

    /// Index of the first unit of the oldest and of the newest file.
    pub(crate) fn bases(&self) -> Option<(i64, i64)> {
        Some((self.list.first()?.base, self.list.last()?.base))
    }

    pub(crate) fn per_file(&self) -> i64 {
        self.per_file
    }

    /// Closes all files. Those that need an fsync will be opened again for it.
    pub(crate) fn close(&mut self) {
        for file in &mut self.list {
            if file.handle.take().is_some() {
                self.handles.release();
            }
        }
    }

    /// The file that contains an index.
    pub(crate) fn at(&mut self, fs: &dyn Fs, index: i64) -> Result<Option<BaseAndFile>, StoreError> {
        let base = index - index.rem_euclid(self.per_file);
        let Some(file) = self.list.iter_mut().rfind(|file| file.base == base) else {
            return Ok(None);
        };
        let handle = if let Some(handle) = &file.handle {
            Arc::clone(handle)
        } else {
            let path = self.directory.join(file_name(base * CQ_UNIT_SIZE_I64));
            let handle = fs.open(&path).at("open", &path)?;
            if self.handles.acquire() {
                file.handle = Some(Arc::clone(&handle));
            }
            handle
        };
        Ok(Some((base, handle)))
    }

    /// The file that must be created before the unit of an index can be written, if there must be one.
    pub(crate) fn file_to_create(&self, index: i64) -> Option<ToCreate> {
        let base = index - index.rem_euclid(self.per_file);
        let is_missing = self.list.last().is_none_or(|last| last.base < base);
        is_missing.then(|| ToCreate {
            base,
            path: self.path(base),
            length: self.length(),
            fillers: to_usize(index - base),
        })
    }

    /// Adds a file that was created after the newest one.
    pub(crate) fn add(&mut self, base: i64, file: &Arc<dyn File>) {
        let handle = self.handles.acquire().then(|| Arc::clone(file));
        self.moved = true;
        self.room_for_one();
        self.list.push(QueueFile {
            base,
            handle,
            dirty: true,
        });
    }

    /// The file in which the unit of an index is to be written.
    pub(crate) fn file_to_write(&mut self, fs: &dyn Fs, index: i64) -> Result<BaseAndFile, StoreError> {
        self.at(fs, index)?.ok_or_else(|| {
            let base = index - index.rem_euclid(self.per_file);
            StoreError::Gap {
                path: self.path(base),
                expected: base * CQ_UNIT_SIZE_I64,
            }
        })
    }

    /// Marks a file for an fsync. Only after it was written: an fsync in between would remove the mark.
    pub(crate) fn mark_written(&mut self, base: i64) {
        if let Some(file) = self.list.iter_mut().rfind(|file| file.base == base) {
            file.dirty = true;
        }
    }

    /// Most queues have one file, so capacity for one is reserved.
    pub(super) fn room_for_one(&mut self) {
        if self.list.capacity() == 0 {
            self.list.reserve_exact(1);
        }
    }

    /// Appends up to `count` units from `index` on to `out`, from one file.
    pub(crate) fn read(
        &mut self,
        fs: &dyn Fs,
        index: i64,
        count: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let Some((base, file)) = self.at(fs, index)? else {
            return Ok(());
        };
        let wanted = (index, count);
        read_units(
            &ReadMode::waiting(),
            file.as_ref(),
            (base, self.per_file),
            wanted,
            out,
        )
        .at("read", &self.directory)
    }

    /// Takes the list of files to fsync.
    pub(crate) fn take_dirty(&mut self, fs: &dyn Fs) -> Result<ToSync, StoreError> {
        let mut files = Vec::new();
        let bases: Vec<i64> = self
            .list
            .iter()
            .filter(|file| file.dirty)
            .map(|file| file.base)
            .collect();
        for base in bases {
            files.extend(self.at(fs, base)?.map(|(_, handle)| handle));
        }
        for file in &mut self.list {
            file.dirty = false;
        }
        Ok(ToSync {
            files,
            directory: self.directory.clone(),
            moved: std::mem::take(&mut self.moved),
        })
    }

    /// Whether a file was created since the previous call.
    pub(crate) fn take_made(&mut self) -> bool {
        std::mem::take(&mut self.made)
    }

    /// Whether files cover a range of indexes; a short newest file does not count.
    pub(crate) fn range(&self, (from, to): (i64, i64), is_short: bool) -> bool {
        let last = if is_short { 0 } else { self.per_file };
        self.bases()
            .is_some_and(|(first, newest)| first <= from && to <= newest + last)
    }

    /// Whether files other than the newest end before an index.
    pub(crate) fn has_old(&self, live: i64) -> bool {
        let oldest = self.list.first().filter(|_| self.list.len() > 1);
        oldest.is_some_and(|oldest| oldest.base + self.per_file <= live)
    }

    /// Whether nothing is written from an index on.
    pub(crate) fn is_clear_from(&mut self, fs: &dyn Fs, index: i64) -> Result<bool, StoreError> {
        let path = self.path(index);
        if self
            .list
            .last()
            .is_none_or(|last| last.base + self.per_file <= index)
        {
            return Ok(true);
        }
        let Some((base, file)) = self.at(fs, index)? else {
            return Ok(false);
        };
        is_clear(
            file.as_ref(),
            to_u64((index - base) * CQ_UNIT_SIZE_I64),
            self.length(),
        )
        .at("read", &path)
    }

    /// Marks the newest file and its name for an fsync.
    pub(crate) fn mark_changed(&mut self) {
        self.moved = true;
        if let Some(last) = self.list.last_mut() {
            last.dirty = true;
        }
    }

    /// Marks everything as durable.
    pub(crate) fn forget_dirty(&mut self) {
        self.moved = false;
        for file in &mut self.list {
            file.dirty = false;
        }
    }

    /// Marks everything for an fsync.
    pub(crate) fn all_dirty(&mut self) {
        self.moved = true;
        for file in &mut self.list {
            file.dirty = true;
        }
    }

    /// Deletes all files; the directory stays.
    pub(crate) fn remove_all(&mut self, fs: &dyn Fs) -> Result<(), StoreError> {
        while !self.list.is_empty() {
            self.remove_at(fs, self.list.len() - 1)?;
        }
        Ok(())
    }

    pub(super) fn remove_at(&mut self, fs: &dyn Fs, number: usize) -> Result<(), StoreError> {
        let Some(file) = self.list.get(number) else {
            return Ok(());
        };
        let path = self.path(file.base);
        fs.remove(&path).at("remove", &path)?;
        if self.list.remove(number).handle.is_some() {
            self.handles.release();
        }
        self.moved = true;
        Ok(())
    }

    /// Deletes files that end before an index and lie before another file. Returns how many it deleted.
    pub(crate) fn trim(&mut self, fs: &dyn Fs, live: i64, kept: i64) -> Result<u64, StoreError> {
        let mut removed = 0;
        while let Some(first) = self.list.first()
            && first.base + self.per_file <= live.min(kept)
        {
            self.remove_at(fs, 0)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Forgets all files. Returns the directory, for [`delete`].
    pub(crate) fn forget(&mut self) -> PathBuf {
        self.close();
        self.list.clear();
        self.directory.clone()
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Deletes the directory of a queue with all its files.
pub(crate) fn delete(fs: &dyn Fs, directory: &Path) -> Result<(), StoreError> {
    if !fs.exists(directory).at("look for", directory)? {
        return Ok(());
    }
    let mut files = fs.list(directory).at("list", directory)?;
    files.retain(|entry| !entry.is_directory);
    let count = files.len();
    for (number, entry) in files.into_iter().enumerate() {
        if number > 0 && number + 1 == count {
            // The newest file is deleted last, after the others durably: a stop in between must not leave a queue
            // that ends too early, because indexes of existing records would be assigned again.
            fs.sync_directory(directory).at("flush", directory)?;
        }
        let path = directory.join(&entry.name);
        fs.remove(&path).at("remove", &path)?;
    }
    fs.remove_directory(directory).at("remove", directory)
}

/// Appends up to `count` units from `index` on to `out`, not past the end of the file.
pub(crate) fn read_units(
    mode: &ReadMode,
    file: &dyn File,
    (base, per_file): (i64, i64),
    (index, count): (i64, i64),
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let count = count.min(base + per_file - index);
    let start = out.len();
    out.resize(start + to_usize(count * CQ_UNIT_SIZE_I64), 0);
    let place = out.get_mut(start..).unwrap_or_default();
    let got = mode.read_at(file, place, to_u64((index - base) * CQ_UNIT_SIZE_I64));
    let whole = got.as_ref().map_or(0, |got| got.unwrap_or_default()) / CQ_UNIT_SIZE * CQ_UNIT_SIZE;
    out.truncate(start + whole);
    got?;
    Ok(())
}

impl ToCreate {
    /// Creates the file with its full length, and its directory.
    pub(crate) fn run(&self, fs: &dyn Fs) -> Result<Arc<dyn File>, StoreError> {
        let path = &self.path;
        let directory = parent(path);
        fs.create_directories(directory).at("create", directory)?;
        let file = fs.create(path).at("create", path)?;
        file.set_length(self.length).at("extend", path)?;
        if self.fillers > 0 {
            let filler = CqUnit::FILLER.to_bytes().repeat(self.fillers);
            file.write_all_at(&filler, 0).at("write", path)?;
        }
        Ok(file)
    }
}

impl ToSync {
    /// Fsyncs the files, and adds the directories that need an fsync: those of the queue, its topic and all topics, and
    /// the one above.
    pub(crate) fn run(self, directories: &mut BTreeSet<PathBuf>) -> Result<(), StoreError> {
        for file in self.files {
            file.sync().at("flush", &self.directory)?;
        }
        if self.moved {
            directories.extend(self.directory.ancestors().take(4).map(Path::to_owned));
        }
        Ok(())
    }
}

impl Drop for QueueFiles {
    fn drop(&mut self) {
        self.close();
    }
}
