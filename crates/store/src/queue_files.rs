//! The files of one consume queue: units of 20 bytes, files of equal length, one behind the other.
//!
//! Invariants: files are contiguous; a file has its full length from the beginning and is zero where no unit was written;
//! in front of a first unit that is not its file's first the file is filled.

use crate::error::StoreError;
use crate::format::{UNIT, UNIT_I64, Unit, file_name, parse_file_name, to_u64, to_usize};
use crate::fs::{Context, File, Fs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The index of a file's first unit, and the file.
type BaseAndFile = (i64, Arc<dyn File>);

/// The files, oldest first.
#[derive(Debug)]
pub(crate) struct QueueFiles {
    directory: PathBuf,
    /// Units of one file.
    per_file: i64,
    list: Vec<QueueFile>,
    /// A file was made or removed since the directories were fsynced.
    moved: bool,
}

#[derive(Debug)]
struct QueueFile {
    /// Index of its first unit.
    base: i64,
    handle: Option<Arc<dyn File>>,
    dirty: bool,
}

/// What an fsync of a queue has to do, so that it holds no lock.
#[derive(Debug)]
pub(crate) struct ToSync {
    files: Vec<Arc<dyn File>>,
    directory: PathBuf,
    moved: bool,
}

impl QueueFiles {
    pub(crate) fn new(directory: PathBuf, file_bytes: u64) -> Self {
        Self {
            directory,
            per_file: i64::try_from(file_bytes).unwrap_or(i64::MAX) / UNIT_I64,
            list: Vec::new(),
            moved: false,
        }
    }

    fn path(&self, base: i64) -> PathBuf {
        self.directory.join(file_name(base * UNIT_I64))
    }

    fn length(&self) -> u64 {
        to_u64(self.per_file * UNIT_I64)
    }

    /// Looks which files are there.
    pub(crate) fn load(&mut self, fs: &dyn Fs) -> Result<(), StoreError> {
        for entry in fs.list(&self.directory).at("list", &self.directory)? {
            let Some(offset) = parse_file_name(&entry.name).filter(|_| !entry.is_directory) else {
                continue;
            };
            let path = self.directory.join(&entry.name);
            if entry.length == 0 {
                // A stop between making the file and giving it its length.
                fs.remove(&path).at("remove", &path)?;
                continue;
            }
            if entry.length != self.length() || offset % (self.per_file * UNIT_I64) != 0 {
                return Err(StoreError::FileLength {
                    path,
                    length: entry.length,
                    expected: self.length(),
                    key: "mappedFileSizeConsumeQueue",
                });
            }
            let base = offset / UNIT_I64;
            let next = self.list.last().map_or(base, |last| last.base + self.per_file);
            if next != base {
                return Err(StoreError::Gap {
                    path,
                    expected: next * UNIT_I64,
                });
            }
            self.list.push(QueueFile {
                base,
                handle: None,
                dirty: false,
            });
        }
        Ok(())
    }

    /// Index of the first unit of the oldest and of the newest file.
    pub(crate) fn bases(&self) -> Option<(i64, i64)> {
        Some((self.list.first()?.base, self.list.last()?.base))
    }

    pub(crate) fn per_file(&self) -> i64 {
        self.per_file
    }

    /// Closes the files that need no fsync.
    pub(crate) fn close(&mut self) {
        for file in self.list.iter_mut().filter(|file| !file.dirty) {
            file.handle = None;
        }
    }

    /// The file that holds an index.
    pub(crate) fn at(&mut self, fs: &dyn Fs, index: i64) -> Result<Option<BaseAndFile>, StoreError> {
        let base = index - index.rem_euclid(self.per_file);
        let path = self.path(base);
        let Some(file) = self.list.iter_mut().rfind(|file| file.base == base) else {
            return Ok(None);
        };
        let handle = if let Some(handle) = &file.handle {
            Arc::clone(handle)
        } else {
            let handle = fs.open(&path).at("open", &path)?;
            file.handle = Some(Arc::clone(&handle));
            handle
        };
        Ok(Some((base, handle)))
    }

    /// Writes units from an index on, into as many files as it takes.
    pub(crate) fn write(&mut self, fs: &dyn Fs, start: i64, units: &[u8]) -> Result<(), StoreError> {
        let (mut index, mut left) = (start, units);
        while !left.is_empty() {
            let base = index - index.rem_euclid(self.per_file);
            if self.list.last().is_none_or(|last| last.base < base) {
                self.create(fs, base, index)?;
            }
            let Some((_, handle)) = self.at(fs, index)? else {
                return Err(StoreError::Gap {
                    path: self.path(base),
                    expected: base * UNIT_I64,
                });
            };
            let room = to_usize((base + self.per_file - index) * UNIT_I64).min(left.len());
            let (now, later) = left.split_at(room);
            handle
                .write_all_at(now, to_u64((index - base) * UNIT_I64))
                .at("write", &self.directory)?;
            if let Some(file) = self.list.iter_mut().rfind(|file| file.base == base) {
                file.dirty = true;
            }
            index = base + self.per_file;
            left = later;
        }
        Ok(())
    }

    fn create(&mut self, fs: &dyn Fs, base: i64, index: i64) -> Result<(), StoreError> {
        let path = self.path(base);
        fs.create_directories(&self.directory)
            .at("create", &self.directory)?;
        let handle = fs.create(&path).at("create", &path)?;
        handle.set_length(self.length()).at("extend", &path)?;
        if index > base {
            let filler = Unit::FILLER.to_bytes().repeat(to_usize(index - base));
            handle.write_all_at(&filler, 0).at("write", &path)?;
        }
        self.moved = true;
        self.list.push(QueueFile {
            base,
            handle: Some(handle),
            dirty: true,
        });
        Ok(())
    }

    /// Adds up to `count` units from `index` on to `out`, from one file.
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
        read_units(
            file.as_ref(),
            &self.directory,
            (base, self.per_file),
            (index, count),
            out,
        )
    }

    /// Takes the list of what is to be fsynced.
    pub(crate) fn take_dirty(&mut self, fs: &dyn Fs) -> Result<ToSync, StoreError> {
        let moved = std::mem::take(&mut self.moved);
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
            moved,
        })
    }

    /// Deletes or makes zero everything from an index on.
    pub(crate) fn clear_from(&mut self, fs: &dyn Fs, index: i64) -> Result<(), StoreError> {
        while let Some(last) = self.list.last()
            && last.base >= index
        {
            let path = self.path(last.base);
            fs.remove(&path).at("remove", &path)?;
            self.list.pop();
            self.moved = true;
        }
        let (length, Some(base)) = (self.length(), self.list.last().map(|last| last.base)) else {
            return Ok(());
        };
        let used = to_u64((index - base) * UNIT_I64);
        if used < length {
            let path = self.path(base);
            let file = fs.open(&path).at("open", &path)?;
            file.set_length(used).at("cut", &path)?;
            file.set_length(length).at("extend", &path)?;
            if let Some(last) = self.list.last_mut() {
                last.dirty = true;
                last.handle = None;
            }
        }
        Ok(())
    }

    /// Deletes files that end in front of an index, never the newest. Says how many.
    pub(crate) fn trim(&mut self, fs: &dyn Fs, live: i64) -> Result<u64, StoreError> {
        let mut removed = 0;
        while self.list.len() > 1
            && let Some(first) = self.list.first()
            && first.base + self.per_file <= live
        {
            let path = self.path(first.base);
            fs.remove(&path).at("remove", &path)?;
            self.list.remove(0);
            self.moved = true;
            removed += 1;
        }
        Ok(removed)
    }

    /// Deletes all files and the directory.
    pub(crate) fn delete(&mut self, fs: &dyn Fs) -> Result<(), StoreError> {
        self.list.clear();
        let directory = &self.directory;
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

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Adds up to `count` units from `index` on to `out`, not going behind the end of the file.
pub(crate) fn read_units(
    file: &dyn File,
    directory: &Path,
    (base, per_file): (i64, i64),
    (index, count): (i64, i64),
    out: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let count = count.min(base + per_file - index);
    let start = out.len();
    out.resize(start + to_usize(count * UNIT_I64), 0);
    let place = out.get_mut(start..).unwrap_or_default();
    let got = file
        .read_at(place, to_u64((index - base) * UNIT_I64))
        .at("read", directory)?;
    out.truncate(start + got / UNIT * UNIT);
    Ok(())
}

impl ToSync {
    /// Fsyncs.
    pub(crate) fn run(self, fs: &dyn Fs) -> Result<(), StoreError> {
        for file in self.files {
            file.sync().at("flush", &self.directory)?;
        }
        // The queue's directory, its topic's, and the one of all topics.
        for directory in self.directory.ancestors().take(if self.moved { 3 } else { 0 }) {
            match fs.sync_directory(directory) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                done => done.at("flush", directory)?,
            }
        }
        Ok(())
    }
}
