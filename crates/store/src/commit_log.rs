//! The commit log: segments of equal length, one behind the other (Apache `CommitLog`, `MappedFileQueue`).
//!
//! Invariants: segments are contiguous; every byte below `appended` was written; every byte below `flushed` was fsynced;
//! only the holder of the append lock writes behind `appended`. A record never spans two segments: the rest of one is ended by
//! a blank record, for which every record leaves eight bytes.

use crate::error::StoreError;
use crate::format::{file_name, parse_file_name, to_i64, to_u64, to_usize};
use crate::fs::{Context, File, Fs};
use crate::options::Options;
use crate::sync::{lock, read, write};
use pyrmq_remoting::message::record;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// One file of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Position of its first byte.
    pub(crate) base: i64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

/// The first failure of a write or fsync; from then on the log takes nothing more.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    failed: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Failure {
    pub(crate) fn set(&self, error: &StoreError) {
        let mut reason = lock(&self.reason);
        if reason.is_none() {
            tracing::error!(%error, "the store turns read-only");
            *reason = Some(error.to_string());
        }
        self.failed.store(true, Ordering::Release);
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(StoreError::ReadOnly {
            reason: self.reason().unwrap_or_default(),
        })
    }

    pub(crate) fn reason(&self) -> Option<String> {
        lock(&self.reason).clone()
    }
}

/// All segments.
#[derive(Debug)]
pub(crate) struct CommitLog {
    fs: Arc<dyn Fs>,
    directory: PathBuf,
    segment_bytes: i64,
    segments: RwLock<Vec<Arc<Segment>>>,
    appended: AtomicI64,
    flushed: AtomicI64,
    pub(crate) failure: Failure,
}

impl CommitLog {
    /// Opens the segments that are there. A last one without any byte is removed, as Apache does.
    pub(crate) fn load(fs: &Arc<dyn Fs>, options: &Options) -> Result<Self, StoreError> {
        let directory = options.commit_log_dir();
        let segment_bytes = i64::try_from(options.segment_bytes).unwrap_or(i64::MAX);
        let mut found: Vec<_> = fs
            .list(&directory)
            .at("list", &directory)?
            .into_iter()
            .filter(|entry| !entry.is_directory)
            .filter_map(|entry| parse_file_name(&entry.name).map(|base| (base, entry)))
            .collect();
        if let Some((_, last)) = found.last()
            && last.length == 0
        {
            let path = directory.join(&last.name);
            fs.remove(&path).at("remove", &path)?;
            found.pop();
        }
        let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(found.len());
        for (base, entry) in found {
            let path = directory.join(&entry.name);
            if entry.length != options.segment_bytes {
                return Err(StoreError::FileLength {
                    path,
                    length: entry.length,
                    expected: options.segment_bytes,
                    key: "mappedFileSizeCommitLog",
                });
            }
            let expected = segments.last().map_or(base, |last| last.base + segment_bytes);
            if base != expected {
                return Err(StoreError::Gap { path, expected });
            }
            let file = fs.open(&path).at("open", &path)?;
            segments.push(Arc::new(Segment { base, path, file }));
        }
        let start = segments.first().map_or(0, |segment| segment.base);
        Ok(Self {
            fs: Arc::clone(fs),
            directory,
            segment_bytes,
            segments: RwLock::new(segments),
            appended: AtomicI64::new(start),
            flushed: AtomicI64::new(start),
            failure: Failure::default(),
        })
    }

    pub(crate) fn segment_bytes(&self) -> i64 {
        self.segment_bytes
    }

    /// Position of the oldest byte.
    pub(crate) fn start(&self) -> i64 {
        read(&self.segments)
            .first()
            .map_or_else(|| self.appended(), |segment| segment.base)
    }

    /// Position behind the newest record.
    pub(crate) fn appended(&self) -> i64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Position up to which everything was fsynced.
    pub(crate) fn flushed(&self) -> i64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Publishes what was written; only under the append lock or before the store runs.
    pub(crate) fn set_appended(&self, position: i64) {
        self.appended.store(position, Ordering::Release);
    }

    pub(crate) fn set_flushed(&self, position: i64) {
        self.flushed.store(position, Ordering::Release);
    }

    /// The segments now, oldest first.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        read(&self.segments).clone()
    }

    /// The segment that holds a position.
    pub(crate) fn segment_at(&self, position: i64) -> Option<Arc<Segment>> {
        let segments = read(&self.segments);
        let first = segments.first()?.base;
        let index = usize::try_from((position - first).checked_div(self.segment_bytes)?).ok()?;
        if position < first {
            return None;
        }
        segments.get(index).cloned()
    }

    /// Where the segment behind the one with this position begins.
    pub(crate) fn next_segment(&self, position: i64) -> i64 {
        let start = self.start();
        let inside = (position - start).rem_euclid(self.segment_bytes);
        position - inside + self.segment_bytes
    }

    /// Adds the segment that begins at `base`, of full length and zero.
    pub(crate) fn add_segment(&self, base: i64) -> Result<Arc<Segment>, StoreError> {
        let path = self.directory.join(file_name(base));
        let file = self.fs.create(&path).at("create", &path)?;
        file.set_length(to_u64(self.segment_bytes)).at("extend", &path)?;
        file.sync().at("flush", &path)?;
        self.fs
            .sync_directory(&self.directory)
            .at("flush", &self.directory)?;
        let segment = Arc::new(Segment { base, path, file });
        write(&self.segments).push(Arc::clone(&segment));
        Ok(segment)
    }

    /// Fills `buffer` from one segment. `Ok(false)`: the bytes are not there (deleted or not written).
    pub(crate) fn read(&self, position: i64, buffer: &mut [u8]) -> Result<bool, StoreError> {
        let end = position.saturating_add(to_i64(buffer.len()));
        let Some(segment) = self.segment_at(position) else {
            return Ok(false);
        };
        if end > self.appended() || end > segment.base + self.segment_bytes {
            return Ok(false);
        }
        segment
            .file
            .read_exact_at(buffer, to_u64(position - segment.base))
            .at("read", &segment.path)?;
        Ok(true)
    }

    /// Fsyncs everything in front of `target`, from the first byte that is not known to be durable.
    pub(crate) fn sync_to(&self, target: i64) -> Result<(), StoreError> {
        self.failure.check()?;
        let flushed = self.flushed();
        for segment in self.segments() {
            let ends = segment.base + self.segment_bytes;
            if ends > flushed && segment.base < target {
                segment
                    .file
                    .sync()
                    .at("flush", &segment.path)
                    .inspect_err(|error| self.failure.set(error))?;
            }
        }
        if target > flushed {
            self.set_flushed(target);
        }
        Ok(())
    }

    /// Drops everything from `end` on: later segments are deleted and the rest of the segment is made zero, so that no old
    /// record can look like a new one's successor. Only before the store runs.
    pub(crate) fn cut(&self, end: i64) -> Result<(), StoreError> {
        let mut segments = write(&self.segments);
        let mut changed = false;
        while let Some(last) = segments.last()
            && last.base >= end
            && segments.len() > 1
        {
            self.fs.remove(&last.path).at("remove", &last.path)?;
            segments.pop();
            changed = true;
        }
        if let Some(last) = segments.last()
            && end < last.base + self.segment_bytes
        {
            let keep = to_u64((end - last.base).max(0));
            last.file.set_length(keep).at("cut", &last.path)?;
            last.file
                .set_length(to_u64(self.segment_bytes))
                .at("extend", &last.path)?;
            last.file.sync().at("flush", &last.path)?;
        }
        if changed {
            self.fs
                .sync_directory(&self.directory)
                .at("flush", &self.directory)?;
        }
        Ok(())
    }

    /// Deletes the oldest segment, never the last one.
    pub(crate) fn remove_first(&self) -> Result<(), StoreError> {
        let removed = {
            let mut segments = write(&self.segments);
            if segments.len() < 2 {
                return Ok(());
            }
            segments.remove(0)
        };
        self.fs.remove(&removed.path).at("remove", &removed.path)?;
        self.fs
            .sync_directory(&self.directory)
            .at("flush", &self.directory)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// What is being appended to; behind the append lock.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Where the next record goes.
    pub(crate) position: i64,
    /// Store time of the newest record, ms.
    pub(crate) last_store_ms: i64,
    segment: Option<Arc<Segment>>,
}

impl Tail {
    /// Continues behind what the log holds.
    pub(crate) fn new(log: &CommitLog, last_store_ms: i64) -> Self {
        let position = log.appended();
        Self {
            position,
            last_store_ms,
            segment: log.segment_at(position),
        }
    }

    /// Makes room for `size` bytes and the blank record behind them, in this segment or the next one.
    pub(crate) fn make_room(&mut self, log: &CommitLog, size: usize) -> Result<(), StoreError> {
        if let Some(segment) = &self.segment {
            let left = segment.base + log.segment_bytes - self.position;
            if to_i64(size + record::BLANK_SIZE) <= left {
                return Ok(());
            }
            if left > 0 {
                let blank = blank_record(left);
                let head = blank
                    .get(..to_usize(left.min(to_i64(record::BLANK_SIZE))))
                    .unwrap_or_default();
                segment
                    .file
                    .write_all_at(head, to_u64(self.position - segment.base))
                    .at("write", &segment.path)
                    .inspect_err(|error| log.failure.set(error))?;
            }
            self.position = segment.base + log.segment_bytes;
        }
        self.segment = Some(match log.segment_at(self.position) {
            Some(segment) => segment,
            None => log
                .add_segment(self.position)
                .inspect_err(|error| log.failure.set(error))?,
        });
        Ok(())
    }

    /// Writes records at the position for which room was made. A failure turns the log read-only: what reached the disk is
    /// unknown, so nothing may be written behind it.
    pub(crate) fn write(&mut self, log: &CommitLog, records: &[u8]) -> Result<(), StoreError> {
        let Some(segment) = &self.segment else {
            return Err(StoreError::Closed);
        };
        segment
            .file
            .write_all_at(records, to_u64(self.position - segment.base))
            .at("write", &segment.path)
            .inspect_err(|error| log.failure.set(error))?;
        self.position += to_i64(records.len());
        log.set_appended(self.position);
        Ok(())
    }
}

fn blank_record(left: i64) -> [u8; record::BLANK_SIZE] {
    let [l0, l1, l2, l3] = i32::try_from(left).unwrap_or(i32::MAX).to_be_bytes();
    let [m0, m1, m2, m3] = record::MAGIC_BLANK.to_be_bytes();
    [l0, l1, l2, l3, m0, m1, m2, m3]
}
