//! Follows a key through an index file, from its newest entry to older ones.
//!
//! Entries never change once they are written, so no lock is needed. A file that retention deletes meanwhile has no
//! record that the log still has; the caller decides whether it was retention. A slot may have millions of entries, for
//! a tag that most messages have or a key that is sent on purpose. Such entries lie close together and are read many at
//! a time; entries newer than requested are jumped over; and one search follows at most [`MAX_HOPS`] entries.

use crate::error::StoreError;
use crate::format::{number, to_usize};
use crate::fs::{Context, File, Fs};
use crate::index::file::{ENTRY, Wanted, entry_at, slot_at, slot_of};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of entries that one search follows, in all files together.
pub(crate) const MAX_HOPS: u32 = 1 << 17;
/// Number of entries that are read at once if they lie close together.
const WINDOW: i32 = 3200;
/// Entries lie close together if at most this many entries of other slots lie between two of them: then a window
/// contains a dozen of them.
const NEAR: i32 = 256;
/// Number of consecutive entries that are too new before the search jumps to older ones.
const JUMP_AFTER: u32 = 2048;
/// Number of entries that are checked to find the chain again after a jump.
const MAX_SEARCHED_BACK: i32 = 1 << 16;

/// The entries of a slot.
#[derive(Debug)]
pub(crate) struct Chain {
    /// `None` for a file that is opened for each search.
    pub(crate) file: Option<Arc<dyn File>>,
    pub(crate) path: PathBuf,
    /// Store time of the file's first entry, ms.
    pub(crate) begin_ms: i64,
    /// Capacity of the file in entries.
    pub(crate) entries: i32,
    pub(crate) slots: usize,
    pub(crate) slot: usize,
    /// The newest entry, if the file's slot may not have it yet.
    pub(crate) newest: Option<i32>,
}

#[derive(Debug, Clone, Copy)]
struct ChainEntry {
    hash: i32,
    position: i64,
    seconds: i32,
    previous: i32,
}

impl ChainEntry {
    fn from_bytes(bytes: &[u8; ENTRY]) -> Self {
        Self {
            hash: i32::from_be_bytes(number(bytes, 0)),
            position: i64::from_be_bytes(number(bytes, 4)),
            seconds: i32::from_be_bytes(number(bytes, 12)),
            previous: i32::from_be_bytes(number(bytes, 16)),
        }
    }
}

/// Entries that were read, starting at number `first`.
#[derive(Debug, Default)]
struct EntryWindow {
    bytes: Vec<u8>,
    first: i32,
}

impl Chain {
    /// Adds the positions of a key's entries, newest first. Subtracts the number of followed entries from `hops`.
    /// False: the file is gone.
    pub(crate) fn find(
        mut self,
        fs: &dyn Fs,
        (wanted, most): (&Wanted, usize),
        hops: &mut u32,
        found: &mut Vec<i64>,
    ) -> Result<bool, StoreError> {
        if !self.open(fs)? {
            return Ok(false);
        }
        let mut window = EntryWindow::default();
        let mut next = match self.newest {
            Some(newest) => newest,
            None => self.newest_in_file()?,
        };
        // Each hop goes to an older entry, so this ends even on a damaged chain.
        let mut limit = self.entries;
        let mut too_new = 0;
        while (1..limit).contains(&next) && found.len() < most && *hops > 0 {
            *hops -= 1;
            let entry = self.entry(&mut window, next, limit)?;
            // The index has the records in the order of the log.
            if entry.position < wanted.from {
                break;
            }
            limit = next;
            let stored = self.stored_ms(entry);
            // Entries have whole seconds: one that may be in the range is included, and the record itself decides.
            let is_wanted =
                entry.hash == wanted.hash && stored <= wanted.end_ms && stored + 1000 > wanted.begin_ms;
            // A message may contain a key many times.
            if is_wanted && found.last() != Some(&entry.position) {
                found.push(entry.position);
            }
            if entry.seconds < 0 || stored + 1000 < wanted.begin_ms {
                break;
            }
            next = entry.previous;
            too_new = if stored > wanted.end_ms { too_new + 1 } else { 0 };
            if too_new == JUMP_AFTER
                && let Some(older) = self.older(&mut window, wanted.end_ms, limit)?
            {
                next = older;
            }
        }
        Ok(true)
    }

    /// Opens the file, if necessary. Returns false if it was deleted meanwhile.
    fn open(&mut self, fs: &dyn Fs) -> Result<bool, StoreError> {
        if self.file.is_none() {
            self.file = match fs.open_read(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                opened => Some(opened.at("open", &self.path)?),
            };
        }
        Ok(true)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), StoreError> {
        let file = self.file.as_ref().ok_or(StoreError::Closed)?;
        file.read_exact_at(buffer, offset).at("read", &self.path)
    }

    fn stored_ms(&self, entry: ChainEntry) -> i64 {
        self.begin_ms + i64::from(entry.seconds) * 1000
    }

    fn newest_in_file(&self) -> Result<i32, StoreError> {
        let mut bytes = [0; 4];
        self.read_exact_at(&mut bytes, slot_at(self.slot))?;
        Ok(i32::from_be_bytes(bytes))
    }

    /// An entry, from the window or, if the one before it was near, read together with its older neighbours.
    fn entry(&self, window: &mut EntryWindow, number: i32, before: i32) -> Result<ChainEntry, StoreError> {
        if let Some(entry) = window.get(number) {
            return Ok(entry);
        }
        let is_near = before < self.entries && before - number < NEAR;
        let first = if is_near {
            (number - WINDOW + 1).max(1)
        } else {
            number
        };
        self.read(window, first, number)?;
        Ok(window.get(number).unwrap_or(ChainEntry {
            hash: 0,
            position: 0,
            seconds: -1,
            previous: 0,
        }))
    }

    fn read(&self, window: &mut EntryWindow, first: i32, last: i32) -> Result<(), StoreError> {
        window.first = first;
        window
            .bytes
            .resize(to_usize(i64::from(last - first + 1)) * ENTRY, 0);
        self.read_exact_at(&mut window.bytes, entry_at(self.slots, first))
    }

    /// The slot's newest entry before `limit` that is not newer than a time, if one is near the last such entry. Times
    /// ascend with the numbers unless the clock went back; then the entries in between are skipped.
    fn older(&self, window: &mut EntryWindow, end_ms: i64, limit: i32) -> Result<Option<i32>, StoreError> {
        let (mut low, mut high) = (1, limit);
        while low < high {
            let middle = low + (high - low) / 2;
            self.read(window, middle, middle)?;
            let is_newer = window
                .get(middle)
                .is_some_and(|entry| self.stored_ms(entry) > end_ms);
            if is_newer {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let mut last = low - 1;
        let least = (last - MAX_SEARCHED_BACK).max(0);
        while last > least {
            let first = (last - WINDOW + 1).max(least + 1);
            self.read(window, first, last)?;
            let is_ours = |number: &i32| {
                let entry = window.get(*number);
                entry.is_some_and(|entry| slot_of(entry.hash, self.slots) == self.slot)
            };
            if let Some(found) = (first..=last).rev().find(is_ours) {
                return Ok(Some(found));
            }
            last = first - 1;
        }
        Ok(None)
    }
}

impl EntryWindow {
    fn get(&self, number: i32) -> Option<ChainEntry> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()? * ENTRY;
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        Some(ChainEntry::from_bytes(bytes))
    }
}
