//! The commit log: segments of equal length, one after the other (Apache `CommitLog`, `MappedFileQueue`).
//!
//! Invariants: segments are contiguous; every byte below `appended` was written; every byte below `flushed` was
//! fsynced; only the holder of the append lock writes after `appended`. A record never spans two segments: the rest of
//! one is ended by a blank record, for which every record leaves eight bytes.
//!
//! A segment is opened when it is first used. Those that are durable are closed again where too many are open; one that
//! is not stays open until it is, because only the open file reports a write that failed.

use crate::descriptors::Shares;
use crate::error::StoreError;
use crate::failure::Failure;
use crate::format::{file_name, to_i64, to_u64};
use crate::fs::read_mode::ReadMode;
use crate::fs::{Context, File, Fs};
use crate::log::hot_window::HotWindow;
use crate::log::segment::{Segment, list_segments};
use crate::options::Options;
use crate::sync::{lock, read, write};
use pyrmq_remoting::message::record;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// Three times the longest `flushIntervalCommitLog`.
const LATE_MS: i64 = 180_000;

/// All segments.
#[derive(Debug)]
pub(crate) struct CommitLog {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) directory: PathBuf,
    pub(super) segment_bytes: i64,
    pub(super) segments: RwLock<Vec<Arc<Segment>>>,
    /// The open segments. The number of old ones is limited.
    open: Mutex<VecDeque<Arc<Segment>>>,
    most_open: usize,
    /// The segment after the last one, created ahead of time. Its lock is held while it is created, so that a roll
    /// waits for it.
    prepared: Mutex<Option<Arc<Segment>>>,
    /// Why the last roll found no next segment; `None` once there is one.
    roll_error: Mutex<Option<StoreError>>,
    /// Segments before this position were not written in the last minutes before the stop.
    written_late_from: i64,
    /// A last file of zero bytes, which a stop leaves behind in the middle of creating it.
    pub(super) half_made: Option<PathBuf>,
    appended: AtomicI64,
    flushed: AtomicI64,
    hot: HotWindow,
    pub(crate) failure: Arc<Failure>,
}

impl CommitLog {
    /// Opens the existing segments without changing anything.
    pub(crate) fn load(
        fs: &Arc<dyn Fs>,
        options: &Options,
        failure: Arc<Failure>,
    ) -> Result<Self, StoreError> {
        let directory = options.commit_log_dir();
        let segment_bytes = i64::try_from(options.segment_bytes).unwrap_or(i64::MAX);
        let mut found = list_segments(fs.as_ref(), &directory)?;
        let half_made = found.pop_if(|(_, last)| last.length == 0);
        let half_made = half_made.map(|(_, last)| directory.join(last.name));
        let newest_ms = found
            .iter()
            .map(|(_, entry)| entry.modified_ms)
            .max()
            .unwrap_or(0);
        let late = found
            .iter()
            .find(|(_, entry)| entry.modified_ms >= newest_ms - LATE_MS);
        let written_late_from = late.map_or(0, |(base, _)| *base);
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
            segments.push(Segment::new(base, path, None));
        }
        let start = segments.first().map_or(0, |segment| segment.base);
        Ok(Self {
            fs: Arc::clone(fs),
            directory,
            segment_bytes,
            segments: RwLock::new(segments),
            open: Mutex::default(),
            most_open: Shares::of_process().segments,
            prepared: Mutex::default(),
            roll_error: Mutex::default(),
            written_late_from,
            half_made,
            appended: AtomicI64::new(start),
            flushed: AtomicI64::new(start),
            hot: HotWindow::new(fs.memory_limit()),
            failure,
        })
    }

    /// Position of the oldest segment that was written in the last minutes before the stop, according to its file's
    /// time. Older segments were fsynced by later rounds, since a failed fsync would have ended all writing.
    pub(crate) fn written_late_from(&self) -> i64 {
        self.written_late_from
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

    /// Position after the newest record.
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

    /// The current segments, oldest first.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        read(&self.segments).clone()
    }

    /// The open file of a segment.
    pub(crate) fn file(&self, segment: &Arc<Segment>) -> Result<Arc<dyn File>, StoreError> {
        if let Some(file) = segment.opened() {
            return Ok(file);
        }
        let file = self.fs.open(&segment.path).at("open", &segment.path)?;
        if lock(&segment.file).replace(Arc::clone(&file)).is_none() {
            self.keep_open(segment);
            if self.segment_at(segment.base).is_none() {
                // Deleted meanwhile: an open file would keep its space occupied.
                self.forget_open(segment);
            }
        }
        Ok(file)
    }

    /// Like [`CommitLog::file`]; `None` if retention has deleted the segment.
    pub(crate) fn file_if_there(&self, segment: &Arc<Segment>) -> Result<Option<Arc<dyn File>>, StoreError> {
        match self.file(segment) {
            Err(_) if self.segment_at(segment.base).is_none() => Ok(None),
            file => file.map(Some),
        }
    }

    /// Records that a segment is open, and closes others if too many are.
    fn keep_open(&self, segment: &Arc<Segment>) {
        let mut open = lock(&self.open);
        open.push_back(Arc::clone(segment));
        let durable = self.flushed();
        // Each is checked at most twice: a segment used since the last check gets a second chance.
        for _ in 0..open.len() * 2 {
            if open.len() <= self.most_open {
                return;
            }
            let Some(oldest) = open.pop_front() else { return };
            if oldest.base + self.segment_bytes > durable || oldest.is_used.swap(false, Ordering::Relaxed) {
                open.push_back(oldest);
            } else {
                oldest.close();
            }
        }
    }

    /// Number of segments that may still be opened and kept open.
    pub(crate) fn spare_handles(&self) -> usize {
        self.most_open.saturating_sub(lock(&self.open).len())
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

    /// Position at which the segment after the one with this position begins.
    pub(crate) fn next_segment(&self, position: i64) -> i64 {
        let start = self.start();
        let inside = (position - start).rem_euclid(self.segment_bytes);
        position - inside + self.segment_bytes
    }

    /// Adds the segment that begins at `base`: the prepared one, or a new one of full length, filled with zeros.
    pub(crate) fn add_segment(&self, base: i64) -> Result<Arc<Segment>, StoreError> {
        let mut prepared = lock(&self.prepared);
        let segment = match prepared.take_if(|segment| segment.base == base) {
            Some(segment) => segment,
            None => self
                .make_segment(base)
                .inspect_err(|error| *lock(&self.roll_error) = Some(error.clone()))?,
        };
        write(&self.segments).push(Arc::clone(&segment));
        Ok(segment)
    }

    /// Creates the segment after the last one, so that a roll finds it. Not to be called under the append lock.
    pub(crate) fn prepare_segment(&self) -> Result<(), StoreError> {
        let mut prepared = lock(&self.prepared);
        // One that was prepared before the last stop may still be there.
        let Some(base) = read(&self.segments)
            .last()
            .filter(|last| last.base <= self.appended())
            .map(|last| last.base + self.segment_bytes)
        else {
            return Ok(());
        };
        if prepared.as_ref().is_none_or(|segment| segment.base != base) {
            *prepared = Some(self.make_segment(base)?);
        }
        Ok(())
    }

    /// Creates a new file with that name, whatever exists there. It is durable before a record is written to it. Any
    /// failure but an fsync's may be retried.
    fn make_segment(&self, base: i64) -> Result<Arc<Segment>, StoreError> {
        let path = self.directory.join(file_name(base));
        if self.fs.exists(&path).at("look for", &path)? {
            self.fs.remove(&path).at("remove", &path)?;
        }
        let file = self.fs.create(&path).at("create", &path)?;
        file.set_length(to_u64(self.segment_bytes)).at("extend", &path)?;
        file.sync().at("flush", &path)?;
        self.fs
            .sync_directory(&self.directory)
            .at("flush", &self.directory)?;
        *lock(&self.roll_error) = None;
        let segment = Segment::new(base, path, Some(file));
        self.keep_open(&segment);
        Ok(segment)
    }

    /// Why puts are refused for now, if they need a next segment that cannot be created.
    pub(crate) fn roll_error(&self) -> Option<StoreError> {
        lock(&self.roll_error).clone()
    }

    /// Fills `buffer` from one segment. `Ok(false)`: the bytes were deleted or not written.
    pub(crate) fn read(&self, position: i64, buffer: &mut [u8]) -> Result<bool, StoreError> {
        self.read_by(&ReadMode::waiting(), position, buffer)
    }

    /// Like [`CommitLog::read`]; `Ok(false)` also if the bytes are not in memory and the reader may not wait.
    pub(crate) fn read_by(
        &self,
        mode: &ReadMode,
        position: i64,
        buffer: &mut [u8],
    ) -> Result<bool, StoreError> {
        let end = position.saturating_add(to_i64(buffer.len()));
        let Some(segment) = self.segment_at(position) else {
            return Ok(false);
        };
        if end > self.appended() || end > segment.base + self.segment_bytes {
            return Ok(false);
        }
        let file = match segment.opened() {
            Some(file) => file,
            // Opening may wait for the disk, too.
            None if !mode.may_wait() => return Ok(false),
            None => match self.file_if_there(&segment)? {
                Some(file) => file,
                None => return Ok(false),
            },
        };
        let wanted = buffer.len();
        self.hot.record_read(position, wanted);
        let offset = to_u64(position - segment.base);
        match mode.read_at(file.as_ref(), buffer, offset) {
            Ok(Some(got)) if got < wanted => {
                let error = io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("{wanted} bytes wanted at {offset}, {got} there"),
                );
                Err(error).at("read", &segment.path)
            }
            got => Ok(got.at("read", &segment.path)?.is_some()),
        }
    }

    /// The segments with bytes between two positions, oldest first. Starts from the end: usually the last few match.
    fn overlapping(&self, from: i64, to: i64) -> Vec<Arc<Segment>> {
        let segments = read(&self.segments);
        let first = segments.partition_point(|segment| segment.base + self.segment_bytes <= from);
        let end = segments.partition_point(|segment| segment.base < to);
        segments.get(first..end).unwrap_or_default().to_vec()
    }

    /// Drops durable data outside the hot window from memory (`hot_window.rs`).
    pub(crate) fn drop_cold(&self, hot_bytes: u64) -> Result<(), StoreError> {
        let log = self.start()..self.appended();
        for range in self.hot.round(hot_bytes, log, self.flushed()) {
            for segment in self.overlapping(range.start, range.end) {
                let Some(file) = self.file_if_there(&segment)? else {
                    continue;
                };
                let from = to_u64((range.start - segment.base).max(0));
                let to = to_u64((range.end - segment.base).min(self.segment_bytes));
                file.drop_cached(from, to).at("drop from memory", &segment.path)?;
            }
        }
        Ok(())
    }

    /// Fsyncs everything before `target`, from the first byte that is not known to be durable.
    pub(crate) fn sync_to(&self, target: i64) -> Result<(), StoreError> {
        self.failure.check()?;
        let flushed = self.flushed();
        for segment in self.overlapping(flushed, target) {
            let file = self.file(&segment)?;
            file.sync().at("flush", &segment.path)?;
        }
        if target > flushed {
            self.set_flushed(target);
        }
        Ok(())
    }

    /// Whether the head of a record of this queue and index is at a position.
    pub(crate) fn has_record(
        &self,
        position: i64,
        size: i32,
        id: i32,
        index: i64,
    ) -> Result<bool, StoreError> {
        let Some(segment) = self.segment_at(position) else {
            return Ok(false);
        };
        let mut head = [0; 36];
        let got = self
            .file(&segment)?
            .read_at(&mut head, to_u64(position - segment.base))
            .at("read", &segment.path)?;
        let number = |at: usize| {
            head.get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |bytes| i32::from_be_bytes(*bytes))
        };
        let long = |at: usize| {
            head.get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |bytes| i64::from_be_bytes(*bytes))
        };
        Ok(got == head.len()
            && number(0) == size
            && number(12) == id
            && long(record::QUEUE_OFFSET_AT) == index
            && long(record::PHYSICAL_OFFSET_AT) == position)
    }

    /// Deletes the oldest segment, never the last one; only one thread at a time may call this. A segment that cannot
    /// be deleted stays the oldest, because deleting the next one would leave a gap.
    pub(crate) fn remove_first(&self) -> Result<(), StoreError> {
        let first = {
            let mut segments = write(&self.segments);
            if segments.len() < 2 {
                return Ok(());
            }
            segments.remove(0)
        };
        match self.fs.remove(&first.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let error = StoreError::io("remove", &first.path, &error);
                write(&self.segments).insert(0, first);
                return Err(error);
            }
            _ => self.forget_open(&first),
        }
        self.fs
            .sync_directory(&self.directory)
            .at("flush", &self.directory)
    }

    /// Closes a deleted segment, so that its space becomes free.
    pub(super) fn forget_open(&self, segment: &Arc<Segment>) {
        lock(&self.open).retain(|open| !Arc::ptr_eq(open, segment));
        segment.close();
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}
