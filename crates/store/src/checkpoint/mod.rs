//! The checkpoint file (Apache `StoreCheckpoint`); `abort.rs` has the abort file.
//!
//! ```text
//! checkpoint, 4096 bytes   0 physic time   8 logics time   16 index time   24 master flushed offset   32 confirm offset
//!                          40 to 63 kept as they are: a newer broker may use them
//!                          64 ours: magic "PYRMQ-C1", then for log and queues the newest durable record's begin and end int64;
//!                          104 CRC-32 of bytes 0 to 23 and 64 to 103
//! ```
//! A time is the store time of the newest message that is durable in the commit log, the consume queues or the key
//! index. After a crash everything up to three seconds before the smaller of the first two is trusted. Our part has the
//! exact positions. A Java broker leaves our part alone and changes the times, so the checksum shows that our part is
//! out of date. Everything is in one sector. A later pyrmq that changes the format of any of our files writes a
//! higher number in the magic; this version refuses such a directory.

pub(crate) mod abort;

use crate::error::StoreError;
use crate::format::{CHECKPOINT, correct_bit};
use crate::fs::{Context, File, Fs};
use crate::sync::lock;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

const LENGTH: usize = 4096;
/// Timestamps of different files are written at different moments; Apache's slack.
pub(crate) const SLACK_MS: i64 = 3000;
/// Bytes of the three times at the beginning.
const TIMES: usize = 24;
/// Position of our part, and of its first bytes.
const MARKS_AT: usize = 64;
const MAGIC: &[u8; 8] = b"PYRMQ-C1";
/// The part of the magic number that all versions share.
const FAMILY: &[u8] = b"PYRMQ-C";
/// Bytes of the magic number and the marks.
const MARKS: usize = 40;
/// Number of bytes written, all in the first sector.
const WRITTEN: usize = MARKS_AT + MARKS + 4;

/// A record, with the guarantee that everything up to its end is durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Position of the record.
    pub(crate) record: i64,
    /// Position after it; 0 for no record.
    pub(crate) end: i64,
}

impl Mark {
    pub(crate) fn is_some(self) -> bool {
        self.end > 0
    }
}

/// The values of a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) physic_ms: i64,
    pub(crate) logics_ms: i64,
    pub(crate) index_ms: i64,
    master_flushed: i64,
    confirm: i64,
    /// Values of a newer broker, kept unchanged.
    unknown: [i64; 3],
    /// Up to where the log is durable.
    pub(crate) log: Mark,
    /// Up to where log and queues are durable.
    pub(crate) queues: Mark,
    /// How often the clock went back since the file was opened; not stored in the file.
    pub(crate) clock_regressions: u32,
}

impl Times {
    /// Everything stored before this time is durable in log and queues, in ms.
    pub(crate) fn safe_ms(&self) -> i64 {
        (self.physic_ms.min(self.logics_ms) - SLACK_MS).max(0)
    }

    /// Declares no queue durable.
    pub(crate) fn mark_queues_undurable(&mut self) {
        self.logics_ms = 0;
        self.queues = Mark::default();
    }

    fn to_bytes(self) -> [u8; WRITTEN] {
        let mut bytes = [0; WRITTEN];
        let times = [
            self.physic_ms,
            self.logics_ms,
            self.index_ms,
            self.master_flushed,
            self.confirm,
            self.unknown[0],
            self.unknown[1],
            self.unknown[2],
        ];
        let marks = [self.log.record, self.log.end, self.queues.record, self.queues.end];
        let (head, ours) = bytes.split_at_mut(MARKS_AT);
        put_all(head, &times);
        let (magic, rest) = ours.split_at_mut(MAGIC.len());
        magic.copy_from_slice(MAGIC);
        put_all(rest, &marks);
        let crc = marks_crc(&bytes);
        if let Some(place) = bytes.last_chunk_mut::<4>() {
            *place = crc.to_be_bytes();
        }
        bytes
    }

    /// The values, and whether pyrmq wrote them last.
    fn from_bytes(bytes: &[u8; WRITTEN]) -> (Self, bool) {
        let number = |at: usize| {
            let part = bytes.get(at..).and_then(<[u8]>::first_chunk);
            part.map_or(0, |part| i64::from_be_bytes(*part))
        };
        let mark = |at: usize| Mark {
            record: number(at),
            end: number(at + 8),
        };
        let is_ours = bytes.get(MARKS_AT..).is_some_and(|ours| ours.starts_with(MAGIC))
            && bytes.last_chunk() == Some(&marks_crc(bytes).to_be_bytes());
        let (log, queues) = if is_ours {
            (mark(MARKS_AT + 8), mark(MARKS_AT + 24))
        } else {
            (Mark::default(), Mark::default())
        };
        let times = Self {
            physic_ms: number(0),
            logics_ms: number(8),
            index_ms: number(16),
            master_flushed: number(24),
            confirm: number(32),
            unknown: [number(40), number(48), number(56)],
            log,
            queues,
            clock_regressions: 0,
        };
        (times, is_ours)
    }
}

/// Refuses a file of a later pyrmq, before anything is changed.
fn refuse_newer(path: &Path, bytes: &[u8; WRITTEN]) -> Result<(), StoreError> {
    let ours = bytes.get(MARKS_AT..MARKS_AT + MAGIC.len()).unwrap_or_default();
    match ours.strip_prefix(FAMILY) {
        Some(&[version]) if version.is_ascii_alphanumeric() && !MAGIC.ends_with(&[version]) => {
            let mut as_ours = *bytes;
            if let Some(place) = as_ours.get_mut(MARKS_AT..MARKS_AT + MAGIC.len()) {
                place.copy_from_slice(MAGIC);
            }
            if as_ours.last_chunk() == Some(&marks_crc(&as_ours).to_be_bytes()) {
                // Only this byte is wrong: damage, not a newer version.
                return Ok(());
            }
            Err(StoreError::Newer {
                path: path.to_owned(),
                what: format!("the notes of another pyrmq (format {})", char::from(version)),
            })
        }
        _ => Ok(()),
    }
}

/// Corrects one flipped bit. False: there is none, or the file was changed otherwise, as by a Java broker. If damage
/// passed for another broker's work, deleted topics would come back.
fn correct(bytes: &mut [u8; WRITTEN]) -> bool {
    let is_ours = |bytes: &[u8]| {
        bytes
            .first_chunk()
            .is_some_and(|bytes| Times::from_bytes(bytes).1)
    };
    !is_ours(bytes) && correct_bit(bytes, (0..TIMES).chain(MARKS_AT..WRITTEN), is_ours)
}

fn put_all(place: &mut [u8], numbers: &[i64]) {
    for (chunk, number) in place.chunks_exact_mut(8).zip(numbers) {
        chunk.copy_from_slice(&number.to_be_bytes());
    }
}

/// The checksum of the three times and our part: a broker that changes a time invalidates our part.
fn marks_crc(bytes: &[u8; WRITTEN]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(bytes.get(..TIMES).unwrap_or_default());
    crc.update(bytes.get(MARKS_AT..MARKS_AT + MARKS).unwrap_or_default());
    crc.finalize()
}

/// The checkpoint file.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    file: Arc<dyn File>,
    path: std::path::PathBuf,
    times: Mutex<Times>,
    /// The content of the file.
    saved: Mutex<Times>,
    /// Up to where the log is durable, according to the file.
    log_end: AtomicI64,
    /// Whether pyrmq wrote the file last, rather than a Java broker.
    is_ours: AtomicBool,
    /// Whether there was no file.
    was_missing: bool,
}

impl Checkpoint {
    /// Reads the file. After a crash its content is written again: an fsync of it may have failed, and decisions that
    /// outlive a power loss are about to rely on it.
    pub(crate) fn open(fs: &dyn Fs, root: &Path, crashed: bool) -> Result<Self, StoreError> {
        let path = root.join(CHECKPOINT);
        let mut bytes = [0; WRITTEN];
        let was_missing = !fs.exists(&path).at("look for", &path)?;
        let file = if was_missing {
            fs.create(&path).at("create", &path)?
        } else {
            let file = fs.open(&path).at("open", &path)?;
            file.read_at(&mut bytes, 0).at("read", &path)?;
            if correct(&mut bytes) {
                tracing::warn!(file = %path.display(), "one bit was wrong and was corrected by the checksum");
            }
            refuse_newer(&path, &bytes)?;
            file
        };
        if file.length().at("read", &path)? < LENGTH as u64 {
            file.set_length(LENGTH as u64).at("extend", &path)?;
        }
        if crashed && !was_missing {
            file.write_all_at(&bytes, 0).at("write", &path)?;
            file.sync().at("flush", &path)?;
        }
        let (times, is_ours) = Times::from_bytes(&bytes);
        Ok(Self {
            file,
            path,
            times: Mutex::new(times),
            saved: Mutex::new(times),
            log_end: AtomicI64::new(times.log.end),
            is_ours: AtomicBool::new(is_ours),
            was_missing,
        })
    }

    /// Whether no other broker has written the file since pyrmq did.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours.load(Ordering::Acquire)
    }

    /// Whether no other broker can have changed what a start finds. If the file was removed, as `pyrmq log repair`
    /// does, the whole log is replayed.
    pub(crate) fn is_trusted(&self, crashed: bool) -> bool {
        self.is_ours() || (self.was_missing && crashed)
    }

    /// Makes sure that the file is marked as pyrmq's.
    pub(crate) fn make_ours(&self) -> Result<(), StoreError> {
        if self.is_ours() { Ok(()) } else { self.save() }
    }

    /// Up to where the log is durable according to the file; 0 if unknown.
    pub(crate) fn log_end(&self) -> i64 {
        self.log_end.load(Ordering::Acquire)
    }

    pub(crate) fn times(&self) -> Times {
        *lock(&self.times)
    }

    /// Changes the times; they reach the file with [`Checkpoint::save`].
    pub(crate) fn update(&self, change: impl FnOnce(&mut Times)) {
        change(&mut lock(&self.times));
    }

    /// The clock went back to `now_ms`: later messages must not look older than durable ones.
    pub(crate) fn record_clock_regression(&self, now_ms: i64) -> Result<(), StoreError> {
        self.update(|times| {
            times.physic_ms = times.physic_ms.min(now_ms);
            times.logics_ms = times.logics_ms.min(now_ms);
            times.index_ms = times.index_ms.min(now_ms);
            times.clock_regressions += 1;
        });
        self.save()
    }

    /// Writes the file if a value has changed.
    pub(crate) fn save_changed(&self) -> Result<(), StoreError> {
        if self.times() == *lock(&self.saved) {
            return Ok(());
        }
        self.save()
    }

    /// Writes and fsyncs the file.
    pub(crate) fn save(&self) -> Result<(), StoreError> {
        // Held to the end, so that an older state cannot overtake a newer one.
        let mut saved = lock(&self.saved);
        let times = self.times();
        self.file
            .write_all_at(&times.to_bytes(), 0)
            .at("write", &self.path)?;
        self.file.sync().at("flush", &self.path)?;
        *saved = times;
        self.log_end.store(times.log.end, Ordering::Release);
        self.is_ours.store(true, Ordering::Release);
        Ok(())
    }
}
