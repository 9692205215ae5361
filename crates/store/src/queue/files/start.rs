//! What a start does with the files of one consume queue: it inspects them, and repairs what a crash left.

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CQ_UNIT_SIZE_I64, parse_file_name, to_u64};
use crate::fs::{Context, Fs};
use crate::log::cut::is_clear;
use crate::queue::files::{QueueFile, QueueFiles};
use std::path::{Path, PathBuf};

/// The findings of [`QueueFiles::load`].
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// Newest files without any byte.
    half_made: Vec<PathBuf>,
    /// Whether a crash left the newest file short.
    pub(crate) is_short: bool,
    /// Whether files do not follow one another, so that the queue must be rebuilt.
    pub(crate) has_gap: bool,
    /// Whether the names of two files show that the first was created with the configured length.
    pub(crate) has_neighbours: bool,
    /// The lengths of all files except half-created ones.
    pub(crate) lengths: Vec<u64>,
    /// A file of another length, and that length.
    pub(crate) wrong: Option<(PathBuf, u64)>,
}

impl Shape {
    /// Whether the queue's files must be rebuilt.
    pub(crate) fn is_damaged(&self) -> bool {
        self.has_gap || self.wrong.is_some()
    }
}

fn offset_of(path: &Path) -> Option<i64> {
    parse_file_name(path.file_name()?.to_str()?)
}

impl QueueFiles {
    /// Lists the files without changing anything. After a crash the newest file may be short.
    pub(crate) fn load(&mut self, fs: &dyn Fs, crashed: bool) -> Result<Shape, StoreError> {
        let mut found: Vec<_> = fs
            .list(&self.directory)
            .at("list", &self.directory)?
            .into_iter()
            .filter(|entry| !entry.is_directory)
            .filter_map(|entry| parse_file_name(&entry.name).map(|offset| (offset, entry)))
            .collect();
        let mut shape = Shape::default();
        // Left by a stop between creating a file and setting its length.
        while let Some((_, last)) = found.pop_if(|(_, last)| last.length == 0) {
            shape.half_made.push(self.directory.join(last.name));
        }
        let mut names: Vec<i64> = found.iter().map(|(offset, _)| *offset).collect();
        names.extend(shape.half_made.iter().rev().filter_map(|path| offset_of(path)));
        shape.has_neighbours = self.are_neighbours(&names);
        let count = found.len();
        for (number, (offset, entry)) in found.into_iter().enumerate() {
            shape.lengths.push(entry.length);
            let is_short = crashed && number + 1 == count && entry.length < self.length();
            if is_short {
                shape.is_short = true;
            } else if entry.length != self.length() {
                shape
                    .wrong
                    .get_or_insert((self.directory.join(&entry.name), entry.length));
            }
            if offset % (self.per_file * CQ_UNIT_SIZE_I64) != 0 {
                // pyrmq names no file like this, so it is left alone.
                shape.has_gap = true;
                continue;
            }
            let base = offset / CQ_UNIT_SIZE_I64;
            shape.has_gap |= self
                .list
                .last()
                .is_some_and(|last| last.base + self.per_file != base);
            self.room_for_one();
            self.list.push(QueueFile {
                base,
                handle: None,
                dirty: false,
            });
        }
        // A killed process may have created the newest file a moment before.
        self.moved |= crashed && self.list.len() > 1;
        Ok(shape)
    }

    /// Whether the names of consecutive files fit the configured length.
    fn are_neighbours(&self, names: &[i64]) -> bool {
        let length = self.per_file * CQ_UNIT_SIZE_I64;
        names.iter().all(|name| name % length == 0)
            && names
                .windows(2)
                .any(|pair| matches!(pair, [one, next] if one + length == *next))
    }

    /// Repairs files that a crash left behind: removes half-created newest files, and gives a short one its length.
    pub(crate) fn repair_half_made(&mut self, fs: &dyn Fs, shape: &Shape) -> Result<(), StoreError> {
        for path in &shape.half_made {
            fs.remove(path).at("remove", path)?;
            self.moved = true;
        }
        if shape.is_short
            && let Some(base) = self.list.last().map(|last| last.base)
        {
            let path = self.path(base);
            let file = fs.open(&path).at("open", &path)?;
            let length = file.length().at("read", &path)?;
            // The rest of a unit that was cut off is removed.
            file.set_length(length - length % CQ_UNIT_SIZE as u64)
                .at("cut", &path)?;
            file.set_length(self.length()).at("extend", &path)?;
            if let Some(last) = self.list.last_mut() {
                last.dirty = true;
            }
        }
        Ok(())
    }

    /// Deletes or zeroes everything from an index on. The oldest file stays unless it begins at 0: its name shows where
    /// the queue continues. True: something had to change.
    pub(crate) fn clear_from(&mut self, fs: &dyn Fs, index: i64) -> Result<bool, StoreError> {
        let mut changed = false;
        while let Some(last) = self.list.last()
            && last.base >= index
            && (self.list.len() > 1 || last.base == 0)
        {
            self.remove_at(fs, self.list.len() - 1)?;
            changed = true;
        }
        let (length, Some(base)) = (self.length(), self.list.last().map(|last| last.base)) else {
            return Ok(changed);
        };
        let used = to_u64((index - base).max(0) * CQ_UNIT_SIZE_I64);
        if used < length {
            let path = self.path(base);
            let file = fs.open(&path).at("open", &path)?;
            if is_clear(file.as_ref(), used, length).at("read", &path)? {
                return Ok(changed);
            }
            file.clear(used, length).at("clear", &path)?;
            changed = true;
            self.moved = true;
            if let Some(last) = self.list.last_mut() {
                last.dirty = true;
            }
        }
        Ok(changed)
    }

    /// Repairs damaged files, so that the queue can be rebuilt: those before a gap are deleted, the others get their
    /// length. The newest always stays: its name shows where the queue continues.
    pub(crate) fn repair_for_rebuild(&mut self, fs: &dyn Fs) -> Result<(), StoreError> {
        let follows = |pair: &[QueueFile]| match pair {
            [one, next] => one.base + self.per_file == next.base,
            _ => true,
        };
        let before_gap = self
            .list
            .windows(2)
            .rposition(|pair| !follows(pair))
            .map_or(0, |gap| gap + 1);
        for _ in 0..before_gap {
            self.remove_at(fs, 0)?;
        }
        for number in 0..self.list.len() {
            let Some(base) = self.list.get(number).map(|file| file.base) else {
                break;
            };
            let path = self.path(base);
            let file = fs.open(&path).at("open", &path)?;
            let length = file.length().at("read", &path)?;
            if length != self.length() {
                // The rest of a unit that was cut off is removed.
                file.set_length(length - length % CQ_UNIT_SIZE as u64)
                    .at("cut", &path)?;
                file.set_length(self.length()).at("extend", &path)?;
                if let Some(file) = self.list.get_mut(number) {
                    file.dirty = true;
                }
            }
        }
        Ok(())
    }
}
