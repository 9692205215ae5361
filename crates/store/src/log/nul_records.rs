//! Whole records that look torn (`nulRecords`).
//!
//! A disk writes sectors, and a sector that never reached it reads as zeros. A record's body has a checksum, its topic
//! and properties have none: after a crash, zeros in them are the only trace of a lost sector or of a write that was
//! cut off. But senders may put zero bytes there, too. So each record that looks torn is noted here, with a checksum of
//! all its bytes, before it is written to the log, and the note is fsynced before the log is. A record that looks torn
//! is whole exactly if its note says so.
//!
//! ```text
//! note, 32 bytes   0 position int64   8 size int32   12 CRC-32 of the record   16 position int64 up to which the checkpoint
//!                  called the log durable   24 CRC-32 of the magic "PYRMQ-N1" and bytes 0 to 23   28 zero int32
//! ```
//! Notes have no order. The space of a note is reused once the checkpoint calls its record durable.

use crate::error::StoreError;
use crate::format::{NUL_RECORDS, number, put_fields};
use crate::fs::{Context, File, Fs};
use crate::sync::lock;
use pyrmq_remoting::message::Record;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const NOTE: usize = 32;
const CRC_AT: usize = 24;
const MAGIC: &[u8; 8] = b"PYRMQ-N1";
/// Size of a sector, which a disk writes whole or not at all.
const SECTOR: usize = 512;

/// The content of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    position: i64,
    size: i32,
    crc: u32,
    /// Notes of records before this position may have been overwritten.
    durable: i64,
}

impl Note {
    fn to_bytes(self) -> [u8; NOTE] {
        let mut bytes = [0; NOTE];
        let fields: [&[u8]; 4] = [
            &self.position.to_be_bytes(),
            &self.size.to_be_bytes(),
            &self.crc.to_be_bytes(),
            &self.durable.to_be_bytes(),
        ];
        put_fields(&mut bytes, &fields);
        let crc = note_crc(&bytes).to_be_bytes();
        if let Some(place) = bytes.get_mut(CRC_AT..CRC_AT + crc.len()) {
            place.copy_from_slice(&crc);
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; NOTE]) -> Option<Self> {
        (u32::from_be_bytes(number(bytes, CRC_AT)) == note_crc(bytes)).then(|| Self {
            position: i64::from_be_bytes(number(bytes, 0)),
            size: i32::from_be_bytes(number(bytes, 8)),
            crc: u32::from_be_bytes(number(bytes, 12)),
            durable: i64::from_be_bytes(number(bytes, 16)),
        })
    }

    fn end(&self) -> i64 {
        self.position.saturating_add(i64::from(self.size))
    }
}

fn note_crc(bytes: &[u8; NOTE]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(MAGIC);
    crc.update(bytes.get(..CRC_AT).unwrap_or_default());
    crc.finalize()
}

#[derive(Debug, Default)]
struct NoteSlots {
    file: Option<Arc<dyn File>>,
    /// Where the record of each note in the file ends; 0 for a free place.
    ends: Vec<i64>,
    /// The place that is checked first for the next note.
    next: usize,
    /// Position, size and checksum of the previous store's notes, until the log is recovered. A position may occur
    /// twice: for a record that was cut, and for the one that replaced it.
    found: HashSet<(i64, i32, u32)>,
    /// Notes of records before this position may have been overwritten.
    complete_from: i64,
    /// Whether the file was created and its directory not yet fsynced.
    is_new: bool,
}

/// The notes of a store.
#[derive(Debug)]
pub(crate) struct NulRecords {
    root: PathBuf,
    path: PathBuf,
    state: Mutex<NoteSlots>,
    /// Whether notes were written since the last fsync.
    is_dirty: AtomicBool,
}

impl NulRecords {
    /// Reads the existing notes. After a crash they are written again, because an fsync of them may have failed.
    pub(crate) fn open(fs: &dyn Fs, root: &Path, crashed: bool) -> Result<Self, StoreError> {
        let path = root.join(NUL_RECORDS);
        let mut state = NoteSlots::default();
        if fs.exists(&path).at("look for", &path)? {
            let bytes = fs.read(&path).at("read", &path)?;
            for bytes in bytes.as_chunks().0 {
                let note = Note::from_bytes(bytes);
                state.ends.push(note.map_or(0, |note| note.end()));
                if let Some(note) = note {
                    state.found.insert((note.position, note.size, note.crc));
                    state.complete_from = state.complete_from.max(note.durable);
                }
            }
            let file = fs.open(&path).at("open", &path)?;
            if crashed && !state.ends.is_empty() {
                file.write_all_at(&bytes, 0).at("write", &path)?;
            }
            state.is_new = crashed;
            state.file = Some(file);
        }
        Ok(Self {
            root: root.to_owned(),
            path,
            is_dirty: AtomicBool::new(state.is_new),
            state: Mutex::new(state),
        })
    }

    /// Whether a note says that these are the bytes of the record at a position.
    pub(crate) fn knows(&self, position: i64, bytes: &[u8]) -> bool {
        let size = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
        lock(&self.state)
            .found
            .contains(&(position, size, crc32fast::hash(bytes)))
    }

    /// Notes of records before this position may have been overwritten.
    pub(crate) fn complete_from(&self) -> i64 {
        lock(&self.state).complete_from
    }

    /// Forgets the previous store's notes, once the log is recovered.
    pub(crate) fn forget_found(&self) {
        lock(&self.state).found = HashSet::new();
    }

    /// Notes a record that is about to be written; only under the append lock. `durable`: up to where the log is
    /// durable according to the checkpoint.
    pub(crate) fn add(
        &self,
        fs: &dyn Fs,
        position: i64,
        record: &[u8],
        durable: i64,
    ) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        let file = if let Some(file) = &state.file {
            Arc::clone(file)
        } else {
            let file = fs.create(&self.path).at("create", &self.path)?;
            state.is_new = true;
            state.file = Some(Arc::clone(&file));
            file
        };
        let note = Note {
            position,
            size: i32::try_from(record.len()).unwrap_or(i32::MAX),
            crc: crc32fast::hash(record),
            durable,
        };
        if state.next >= state.ends.len() {
            state.next = 0;
        }
        let is_free = state.ends.get(state.next).is_some_and(|end| *end <= durable);
        let place = if is_free { state.next } else { state.ends.len() };
        file.write_all_at(&note.to_bytes(), (place * NOTE) as u64)
            .at("write", &self.path)?;
        match state.ends.get_mut(place) {
            Some(end) => *end = note.end(),
            None => state.ends.push(note.end()),
        }
        if is_free {
            state.next += 1;
        }
        self.is_dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Fsyncs the notes. Called before the fsync of the log that makes their records durable.
    pub(crate) fn sync(&self, fs: &dyn Fs) -> Result<(), StoreError> {
        if !self.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let (file, is_new) = {
            let mut state = lock(&self.state);
            (state.file.clone(), std::mem::take(&mut state.is_new))
        };
        let synced = file.map_or(Ok(()), |file| file.sync().at("flush", &self.path));
        let synced = synced.and_then(|()| {
            if is_new {
                fs.sync_directory(&self.root).at("flush", &self.root)?;
            }
            Ok(())
        });
        synced.inspect_err(|_| {
            lock(&self.state).is_new |= is_new;
            self.is_dirty.store(true, Ordering::Release);
        })
    }
}

/// False for properties with which no record looks torn. Fast: checks the last byte, and one byte of each stretch as
/// long as a sector less the length of the properties.
pub(crate) fn may_look_torn(properties: &[u8]) -> bool {
    const RUN: usize = SECTOR - 1;
    properties.last() == Some(&0)
        || properties
            .iter()
            .skip(RUN - 1)
            .step_by(RUN)
            .any(|byte| *byte == 0)
}

/// Whether a record looks as if one of its sectors never reached the disk, or its write was cut off: its topic or
/// properties have zero bytes up to a sector's border, or the properties end with a zero byte. `inside` is the record's
/// offset in its file. The body has a checksum, and a torn head is inconsistent.
pub fn looks_torn(record: &Record<'_>, bytes: &[u8], inside: usize) -> bool {
    let from = (record.topic.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize);
    // Empty properties are two zero bytes of length.
    let has_properties = bytes.len() > from + record.topic.len() + 2;
    let to = if has_properties {
        bytes.len()
    } else {
        bytes.len().saturating_sub(2)
    };
    // A write that found no space may end anywhere; whole properties end with a separator or a value.
    if has_properties && bytes.last() == Some(&0) {
        return true;
    }
    let mut at = from;
    while at < to {
        let border = ((inside + at) / SECTOR + 1) * SECTOR - inside;
        let part = bytes.get(at..border.min(to)).unwrap_or_default();
        if part.iter().all(|byte| *byte == 0) {
            return true;
        }
        at = border;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Note, SECTOR, may_look_torn};

    #[test]
    fn a_note_that_is_damaged_is_none() {
        let note = Note {
            position: 1 << 40,
            size: 345,
            crc: 0x8123_4567,
            durable: 77,
        };
        let bytes = note.to_bytes();
        assert_eq!(Note::from_bytes(&bytes), Some(note));
        for at in 0..28 {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Note::from_bytes(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn every_run_of_zeros_as_long_as_a_sector_is_seen() {
        for before in 0..3 * SECTOR {
            let properties = [vec![b'a'; before], vec![0; SECTOR - 1], vec![b'a'; 40]].concat();
            assert!(may_look_torn(&properties), "{before} bytes in front");
        }
        assert!(may_look_torn(b"a\x01b\0"));
        assert!(!may_look_torn(b"a\x01b\0\x02"));
        assert!(!may_look_torn(b""));
    }
}
