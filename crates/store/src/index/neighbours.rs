//! Whether a file is missing between two index files, because somebody deleted it: the files do not record how many
//! there are, but the log has the records whose keys are in none of them.
//!
//! Most messages have a key, so usually the next file begins with the first record after the previous one, and the
//! start reads that one. If the first [`MAX_START_BYTES`] between two files have no key, the index thread reads the
//! rest while the store runs.

use crate::error::StoreError;
use crate::index::file::IndexFile;
use crate::index::{KeyIndex, MessageKeys, TopicKeys};
use crate::log::commit_log::CommitLog;
use crate::log::damage::record_after;
use crate::log::reader::{LogReader, Step};
use crate::sync::lock;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::properties::names;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of bytes of the log that a start reads between two files.
const MAX_START_BYTES: i64 = 1 << 20;

/// The part of the log between two index files, or between the log's start and the oldest file.
#[derive(Debug)]
pub(super) struct Gap {
    /// The newest record of the file before, whose keys that file has; `None` at the log's start.
    indexed: Option<i64>,
    /// Position of the next record to read.
    next: i64,
    /// Position of the oldest record of the file after.
    end: i64,
    /// The file after.
    path: PathBuf,
}

/// The gaps that a start did not read whole, oldest first.
#[derive(Debug)]
pub(super) struct Gaps {
    /// Held while they are read, by the thread that fills the index.
    unread: Mutex<Vec<Gap>>,
    /// Whether there are any, or a file is missing and searches do not know it yet.
    any: AtomicBool,
}

impl Gaps {
    pub(super) fn new(unread: Vec<Gap>) -> Self {
        Self {
            any: AtomicBool::new(!unread.is_empty()),
            unread: Mutex::new(unread),
        }
    }
}

/// The result of reading a part of a [`Gap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GapRead {
    /// A record with a key: a file is missing.
    Key,
    /// The end of the gap: no file is missing.
    End,
    /// Neither; the rest must be read.
    Nothing,
    /// No record can be read at the position.
    Damage,
}

impl Gap {
    /// The log between two files; `before` is `None` for the oldest file.
    fn between(log: &CommitLog, before: Option<&IndexFile>, file: &IndexFile) -> Self {
        let indexed = before.map(|before| before.header.end_position);
        let indexed = indexed.filter(|position| *position >= log.start());
        Self {
            indexed,
            next: indexed.unwrap_or_else(|| log.start()),
            end: file.header.begin_position,
            path: file.path.clone(),
        }
    }

    /// What the start finds. An error counts as the end: what cannot be read could not be found by its key anyway.
    fn read_at_start(&mut self, log: &CommitLog) -> GapRead {
        self.read(log, MAX_START_BYTES).unwrap_or_else(|error| {
            self.warn_unread(&error);
            GapRead::End
        })
    }

    /// Reads on, `max_bytes` or a little more.
    fn read(&mut self, log: &CommitLog, max_bytes: i64) -> Result<GapRead, StoreError> {
        let limit = self.end.min(self.next + max_bytes);
        let mut reader = LogReader::new(log, self.next, false);
        while reader.position() < limit {
            match reader.step()? {
                Step::Record(record) if record.physical_offset >= self.end => return Ok(GapRead::End),
                Step::Record(record) if self.indexed != Some(record.physical_offset) && has_key(&record) => {
                    return Ok(GapRead::Key);
                }
                Step::Record(_) => {}
                Step::End(_) => {
                    self.next = reader.position();
                    return Ok(GapRead::Damage);
                }
            }
        }
        self.next = reader.position();
        Ok(if self.next < self.end {
            GapRead::Nothing
        } else {
            GapRead::End
        })
    }

    /// Moves to the first record after damage, or after what retention has deleted.
    fn pass_damage(&mut self, log: &CommitLog) -> Result<(), StoreError> {
        let next = record_after(log, self.next.max(log.start()), |_, _| true)?;
        self.next = next.map_or(self.end, |next| next.max(self.next + 1));
        Ok(())
    }

    fn warn_missing(&self) {
        tracing::warn!(file = %self.path.display(), "an index file before this one is missing");
    }

    fn warn_unread(&self, error: &StoreError) {
        let file = self.path.display();
        tracing::warn!(%file, %error, "cannot see whether an index file before this one is missing");
    }
}

impl KeyIndex {
    /// Whether a file may be missing: searches may miss messages.
    pub(crate) fn has_gaps(&self) -> bool {
        self.gaps.any.load(Ordering::Acquire)
    }

    /// Reads on in the gaps that the start did not read whole, `max_bytes` or a little more. True: a file is missing,
    /// and [`KeyIndex::drop_after_gap`] must be called.
    pub(crate) fn read_gaps(&self, log: &CommitLog, max_bytes: i64) -> Result<bool, StoreError> {
        let mut gaps = lock(&self.gaps.unread);
        let mut left = max_bytes;
        while left > 0
            && let Some(gap) = gaps.first_mut()
        {
            let before = gap.next;
            let read = gap.read(log, left).and_then(|found| match found {
                GapRead::Damage => gap.pass_damage(log).map(|()| GapRead::Nothing),
                found => Ok(found),
            });
            left -= gap.next - before;
            match read {
                Ok(GapRead::Key) => {
                    gap.warn_missing();
                    return Ok(true);
                }
                Ok(GapRead::Nothing | GapRead::Damage) => {}
                Ok(GapRead::End) => drop(gaps.remove(0)),
                Err(error) if error.is_passing() => return Err(error),
                Err(error) => {
                    gap.warn_unread(&error);
                    gaps.remove(0);
                }
            }
        }
        if gaps.is_empty() {
            self.forget_gaps();
        }
        Ok(false)
    }

    /// Drops the files after the gap in which a key was found. They are removed before anything is added. Returns the
    /// position from which on the log must be read for the index. No other thread may add keys meanwhile.
    pub(crate) fn drop_after_gap(&self, log: &CommitLog) -> Result<i64, StoreError> {
        let mut gaps = lock(&self.gaps.unread);
        let mut files = lock(&self.files);
        let first = gaps.first().map(|gap| &gap.path);
        let kept = first.and_then(|path| files.iter().position(|file| file.path == *path));
        // Retention may have deleted the file meanwhile, and everything before it.
        if let Some(mut kept) = kept {
            // The newest file that stays may be so old that it was closed.
            while let Some(last) = kept.checked_sub(1).and_then(|last| files.get_mut(last)) {
                match IndexFile::open(self.fs.as_ref(), &last.path, self.tables) {
                    Ok(opened) => {
                        *last = opened;
                        break;
                    }
                    Err(error) if error.is_passing() => return Err(error),
                    Err(error) => {
                        tracing::warn!(%error, "cannot open an index file");
                        kept -= 1;
                    }
                }
            }
            let dropped = files.split_off(kept);
            for file in dropped.iter().rev() {
                warn_dropped(&file.path);
            }
            let dropped = dropped.into_iter().rev().map(|file| file.path);
            lock(&self.to_remove).extend(dropped);
        }
        gaps.clear();
        Ok(files
            .last()
            .map_or(0, |last| last.header.end_position)
            .max(log.start()))
    }

    /// Declares the index free of gaps: all were read, or searches know that it is being built again.
    pub(crate) fn forget_gaps(&self) {
        self.gaps.any.store(false, Ordering::Release);
    }
}

/// Whether a file may follow the one before: not if a file between them is missing. A gap that the start does not read
/// whole is added to `gaps`.
pub(super) fn may_follow(
    log: &CommitLog,
    before: Option<&IndexFile>,
    file: &IndexFile,
    gaps: &mut Vec<Gap>,
) -> bool {
    let mut gap = Gap::between(log, before, file);
    match gap.read_at_start(log) {
        GapRead::Key => {
            gap.warn_missing();
            return false;
        }
        GapRead::End => {}
        GapRead::Nothing | GapRead::Damage => gaps.push(gap),
    }
    true
}

/// Logs that a file is dropped.
pub(super) fn warn_dropped(path: &Path) {
    tracing::warn!(file = %path.display(), "index file dropped, to be rebuilt from the log");
}

/// Whether every broker indexes the record: those before 5.5 ignore tags.
fn has_key(record: &Record<'_>) -> bool {
    let [unique_key, keys] = record.properties.get_many([names::UNIQ_KEY, names::KEYS]);
    let keys = MessageKeys {
        unique_key,
        keys,
        tag: None,
    };
    let mut found = false;
    TopicKeys::new(record.topic, record.sys_flag).hashes(&keys, |_| found = true);
    found
}
