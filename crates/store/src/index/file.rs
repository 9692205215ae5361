//! One file of the key index: a hash table on disk (Apache `IndexFile`, `IndexHeader`).
//!
//! ```text
//! header   0 begin time int64   8 end time int64   16 begin position int64   24 end position int64
//!          32 used slots int32   36 entry count int32, starts at 1
//! slots    at 40: slot count x int32, the number of the newest entry of the slot, 0 for none
//! entries  after the slots, 20 bytes each, entry 0 unused:
//!          key hash int32   position int64   seconds since begin time int32   previous entry of the slot int32
//! ```
//! Slots are cached in pages and written in pages; entries are staged and appended in one write. The header is
//! written last, so that it never counts what is not there.

use crate::error::StoreError;
use crate::format::{number, to_usize};
use crate::fs::{Context, File, Fs};
use crate::index::chain::Chain;
use crate::index::pending::IndexEntry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADER: usize = 40;
const SLOT: usize = 4;
pub(crate) const ENTRY: usize = 20;
/// Slots of a cached page.
const PAGE: usize = 1024;
/// Size at which staged entries are written, without waiting for a flush.
const MAX_STAGED_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Header {
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) begin_position: i64,
    pub(crate) end_position: i64,
    used_slots: i32,
    /// Number of the next entry.
    pub(crate) count: i32,
}

/// One index file.
#[derive(Debug)]
pub(crate) struct IndexFile {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    /// `None` for all but the newest files: each search opens them, so that an index of many files needs few
    /// descriptors.
    file: Option<Arc<dyn File>>,
    slots: usize,
    entries: i32,
    pub(crate) header: Header,
    pages: Vec<Option<Box<Page>>>,
    /// Entries that are not written yet; they end before `header.count`.
    staged: Vec<u8>,
    dirty: bool,
}

#[derive(Debug)]
struct Page {
    slots: [i32; PAGE],
    dirty: bool,
}

/// Which entries of a key are requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) hash: i32,
    /// Position in the log of the oldest record.
    pub(crate) from: i64,
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
}

/// Length of a file with these table sizes.
pub(crate) fn file_length(slots: u32, entries: u32) -> u64 {
    HEADER as u64 + u64::from(slots) * SLOT as u64 + u64::from(entries) * ENTRY as u64
}

impl IndexFile {
    /// Creates a file after another one. The other's end is its begin until the first entry is added.
    pub(crate) fn create(
        fs: &dyn Fs,
        path: &Path,
        (slots, entries): (u32, u32),
        previous: Option<Header>,
    ) -> Result<Self, StoreError> {
        let file = fs.create(path).at("create", path)?;
        file.set_length(file_length(slots, entries)).at("extend", path)?;
        let previous = previous.unwrap_or_default();
        let header = Header {
            begin_ms: previous.end_ms,
            end_ms: previous.end_ms,
            begin_position: previous.end_position,
            end_position: previous.end_position,
            used_slots: 0,
            count: 1,
        };
        Ok(Self::with(path, file, (slots, entries), header))
    }

    /// Opens an existing file.
    pub(crate) fn open(fs: &dyn Fs, path: &Path, (slots, entries): (u32, u32)) -> Result<Self, StoreError> {
        let file = fs.open(path).at("open", path)?;
        let mut bytes = [0; HEADER];
        file.read_exact_at(&mut bytes, 0).at("read", path)?;
        let header = Header {
            begin_ms: i64::from_be_bytes(number(&bytes, 0)),
            end_ms: i64::from_be_bytes(number(&bytes, 8)),
            begin_position: i64::from_be_bytes(number(&bytes, 16)),
            end_position: i64::from_be_bytes(number(&bytes, 24)),
            used_slots: i32::from_be_bytes(number(&bytes, 32)),
            count: i32::from_be_bytes(number(&bytes, 36)).max(1),
        };
        Ok(Self::with(path, file, (slots, entries), header))
    }

    fn with(path: &Path, file: Arc<dyn File>, (slots, entries): (u32, u32), header: Header) -> Self {
        let slots = usize::try_from(slots).unwrap_or(usize::MAX);
        Self {
            path: path.to_owned(),
            name: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            file: Some(file),
            slots,
            entries: i32::try_from(entries).unwrap_or(i32::MAX),
            header,
            pages: Vec::new(),
            staged: Vec::new(),
            dirty: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.header.count >= self.entries
    }

    /// Whether the header is one that a writer can have left.
    pub(crate) fn is_sound(&self) -> bool {
        let header = &self.header;
        (1..=self.entries).contains(&header.count)
            && (0..header.count).contains(&header.used_slots)
            && header.begin_position >= 0
            && header.begin_position <= header.end_position
    }

    fn entry_at(&self, entry: i32) -> u64 {
        entry_at(self.slots, entry)
    }

    fn page(&mut self, number: usize) -> Result<&mut Page, StoreError> {
        if self.pages.is_empty() {
            self.pages.resize_with(self.slots.div_ceil(PAGE), || None);
        }
        let Some(place) = self.pages.get_mut(number) else {
            return Err(StoreError::Closed);
        };
        if let Some(page) = place {
            return Ok(page);
        }
        let mut bytes = [0; PAGE * SLOT];
        let wanted = (self.slots - number * PAGE).min(PAGE) * SLOT;
        let part = bytes.get_mut(..wanted).unwrap_or_default();
        let file = self.file.as_ref().ok_or(StoreError::Closed)?;
        file.read_exact_at(part, slot_at(number * PAGE))
            .at("read", &self.path)?;
        let mut slots = [0; PAGE];
        for (slot, bytes) in slots.iter_mut().zip(bytes.chunks_exact(SLOT)) {
            *slot = i32::from_be_bytes(number_of(bytes));
        }
        Ok(place.insert(Box::new(Page { slots, dirty: false })))
    }

    fn slot_of(&self, hash: i32) -> usize {
        slot_of(hash, self.slots)
    }

    /// Adds an entry; the caller has checked that the file is not full.
    pub(crate) fn add(&mut self, entry: &IndexEntry) -> Result<(), StoreError> {
        let slot = self.slot_of(entry.hash);
        let count = self.header.count;
        let place = self.page(slot / PAGE)?;
        place.dirty = true;
        let Some(newest) = place.slots.get_mut(slot % PAGE) else {
            return Err(StoreError::Closed);
        };
        let previous = if (1..=count).contains(newest) { *newest } else { 0 };
        *newest = count;
        if count == 1 {
            self.header.begin_position = entry.position;
        }
        let seconds = if self.header.begin_ms <= 0 {
            0
        } else {
            i32::try_from((entry.store_ms - self.header.begin_ms) / 1000)
                .unwrap_or(i32::MAX)
                .max(0)
        };
        if count == 1 {
            self.header.begin_ms = entry.store_ms;
        }
        self.stage_entry(entry, seconds, previous);
        if previous == 0 {
            self.header.used_slots += 1;
        }
        self.header.count += 1;
        self.header.end_position = entry.position;
        self.header.end_ms = entry.store_ms;
        self.dirty = true;
        if self.staged.len() >= MAX_STAGED_BYTES {
            self.write_entries()?;
        }
        Ok(())
    }

    fn stage_entry(&mut self, entry: &IndexEntry, seconds: i32, previous: i32) {
        let [h0, h1, h2, h3] = entry.hash.to_be_bytes();
        let [p0, p1, p2, p3, p4, p5, p6, p7] = entry.position.to_be_bytes();
        let [s0, s1, s2, s3] = seconds.to_be_bytes();
        let [n0, n1, n2, n3] = previous.to_be_bytes();
        let bytes: [u8; ENTRY] = [
            h0, h1, h2, h3, p0, p1, p2, p3, p4, p5, p6, p7, s0, s1, s2, s3, n0, n1, n2, n3,
        ];
        self.staged.extend_from_slice(&bytes);
    }

    /// Writes the staged entries.
    pub(crate) fn write_entries(&mut self) -> Result<(), StoreError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let waiting = i32::try_from(self.staged.len() / ENTRY).unwrap_or(i32::MAX);
        let at = self.entry_at(self.header.count - waiting);
        self.open_file()?
            .write_all_at(&self.staged, at)
            .at("write", &self.path)?;
        self.staged.clear();
        Ok(())
    }

    /// Writes entries, changed slots, then the header.
    pub(crate) fn write_out(&mut self) -> Result<(), StoreError> {
        if !self.dirty {
            return Ok(());
        }
        self.write_entries()?;
        let file = Arc::clone(self.open_file()?);
        let mut bytes = [0; PAGE * SLOT];
        for (number, page) in self.pages.iter_mut().enumerate() {
            let Some(page) = page.as_mut().filter(|page| page.dirty) else {
                continue;
            };
            for (bytes, slot) in bytes.chunks_exact_mut(SLOT).zip(&page.slots) {
                bytes.copy_from_slice(&slot.to_be_bytes());
            }
            let wanted = (self.slots - number * PAGE).min(PAGE) * SLOT;
            let part = bytes.get(..wanted).unwrap_or_default();
            file.write_all_at(part, slot_at(number * PAGE))
                .at("write", &self.path)?;
            page.dirty = false;
        }
        let mut bytes = [0; HEADER];
        let header = &self.header;
        let longs = [
            header.begin_ms,
            header.end_ms,
            header.begin_position,
            header.end_position,
        ];
        let (head, counts) = bytes.split_at_mut(32);
        for (bytes, number) in head.chunks_exact_mut(8).zip(longs) {
            bytes.copy_from_slice(&number.to_be_bytes());
        }
        for (bytes, number) in counts.chunks_exact_mut(4).zip([header.used_slots, header.count]) {
            bytes.copy_from_slice(&number.to_be_bytes());
        }
        file.write_all_at(&bytes, 0).at("write", &self.path)?;
        self.dirty = false;
        Ok(())
    }

    /// Writes everything and fsyncs it.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.write_out()?;
        self.open_file()?.sync().at("flush", &self.path)
    }

    fn open_file(&self) -> Result<&Arc<dyn File>, StoreError> {
        self.file.as_ref().ok_or(StoreError::Closed)
    }

    /// The newest file and its path.
    pub(crate) fn handle(&self) -> Result<(Arc<dyn File>, PathBuf), StoreError> {
        Ok((Arc::clone(self.open_file()?), self.path.clone()))
    }

    /// Frees the cached slots of a file that gets no more entries.
    pub(crate) fn forget_pages(&mut self) {
        self.pages = Vec::new();
    }

    /// Closes a file that gets no more entries, once everything is written.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// Whether the file may have entries in the time range.
    pub(crate) fn overlaps(&self, wanted: &Wanted) -> bool {
        wanted.begin_ms <= self.header.end_ms && wanted.end_ms >= self.header.begin_ms
    }

    /// The chain of a key's slot, which is followed without a lock on the file.
    pub(crate) fn chain(&mut self, hash: i32) -> Result<Chain, StoreError> {
        self.write_entries()?;
        let slot = self.slot_of(hash);
        let newest = if self.dirty {
            let page = self.page(slot / PAGE)?;
            page.slots.get(slot % PAGE).copied()
        } else {
            None
        };
        Ok(Chain {
            file: self.file.clone(),
            path: self.path.clone(),
            begin_ms: self.header.begin_ms,
            entries: self.entries,
            slots: self.slots,
            slot,
            newest,
        })
    }
}

/// Position of a slot in the file.
pub(crate) fn slot_at(slot: usize) -> u64 {
    (HEADER + slot * SLOT) as u64
}

/// Position of an entry in a file with this many slots.
pub(crate) fn entry_at(slots: usize, entry: i32) -> u64 {
    (HEADER + slots * SLOT + to_usize(i64::from(entry)) * ENTRY) as u64
}

/// The slot of a hash.
pub(crate) fn slot_of(hash: i32, slots: usize) -> usize {
    // In 32 bits, in which a division takes half the time; hashes are not negative.
    let (hash, slots) = (hash.unsigned_abs(), u32::try_from(slots).unwrap_or(u32::MAX));
    to_usize(i64::from(hash % slots))
}

fn number_of(bytes: &[u8]) -> [u8; SLOT] {
    number(bytes, 0)
}
