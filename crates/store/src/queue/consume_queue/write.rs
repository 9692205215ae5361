//! Writing of the units that are only in memory.

use crate::error::StoreError;
use crate::format::{CQ_UNIT_SIZE, CQ_UNIT_SIZE_I64, to_i64, to_u64, to_usize};
use crate::fs::{File, Fs};
use crate::queue::consume_queue::ConsumeQueue;
use crate::sync::lock;
use std::sync::Arc;

/// Bytes of units that stay in memory after they were written.
const KEEP: usize = 8 * 1024;
/// Maximum bytes of units that are copied and written at once, some MiB in a queue whose disk hung for a while.
const MAX_WRITE: usize = 50_000 * CQ_UNIT_SIZE;

impl ConsumeQueue {
    /// Writes the units that are only in memory.
    pub(crate) fn write_out(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        let _writing = lock(&self.writing);
        while let Some((start, units)) = self.unwritten() {
            let mut created = false;
            let done = self.write_units(fs, (start, &units), &mut created);
            let mut files = lock(&self.files);
            files.made |= created;
            done?;
            let mut memory = lock(&self.memory);
            memory.written = memory.written.max(start + to_i64(units.len() / CQ_UNIT_SIZE));
            if units.len() < MAX_WRITE {
                break;
            }
        }
        self.drop_written();
        Ok(())
    }

    /// The index of the first unit that is only in memory, and the units from it on that are written at once.
    fn unwritten(&self) -> Option<(i64, Vec<u8>)> {
        let memory = lock(&self.memory);
        let from = to_usize((memory.written - memory.first) * CQ_UNIT_SIZE_I64);
        let units = memory.units.bytes().get(from..).unwrap_or_default();
        let units = units.get(..MAX_WRITE).unwrap_or(units);
        (!memory.deleted && !units.is_empty()).then(|| (memory.written, units.to_vec()))
    }

    /// Writes units from an index on, into as many files as needed. Sets `created` if one of them is new.
    fn write_units(
        &self,
        fs: &dyn Fs,
        (start, units): (i64, &[u8]),
        created: &mut bool,
    ) -> Result<(), StoreError> {
        let per_file = lock(&self.files).per_file();
        let (mut index, mut left) = (start, units);
        while !left.is_empty() {
            let (base, file) = self.file_for(fs, index, created)?;
            let room = to_usize((base + per_file - index) * CQ_UNIT_SIZE_I64).min(left.len());
            let (now, later) = left.split_at(room);
            file.write_all_at(now, to_u64((index - base) * CQ_UNIT_SIZE_I64))
                .map_err(|error| StoreError::io("write", lock(&self.files).directory(), &error))?;
            lock(&self.files).mark_written(base);
            index = base + per_file;
            left = later;
        }
        Ok(())
    }

    /// The file in which the unit of an index is to be written, and the index of the file's first unit. Creates the
    /// file if it is missing, and sets `created` then.
    fn file_for(
        &self,
        fs: &dyn Fs,
        index: i64,
        created: &mut bool,
    ) -> Result<(i64, Arc<dyn File>), StoreError> {
        let missing = {
            let mut files = lock(&self.files);
            match files.file_to_create(index) {
                Some(missing) => missing,
                None => return files.file_to_write(fs, index),
            }
        };
        let file = missing.run(fs)?;
        lock(&self.files).add(missing.base, &file);
        *created = true;
        Ok((missing.base, file))
    }

    /// Drops units from memory that the files have, except the newest.
    fn drop_written(&self) {
        let mut memory = lock(&self.memory);
        let surplus = memory.units.len().saturating_sub(KEEP);
        let written = to_usize((memory.written - memory.first) * CQ_UNIT_SIZE_I64);
        let drop = surplus.min(written) / CQ_UNIT_SIZE * CQ_UNIT_SIZE;
        if drop > KEEP {
            memory.units.drop_front(drop);
            memory.first += to_i64(drop / CQ_UNIT_SIZE);
        }
    }
}
