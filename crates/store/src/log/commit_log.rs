//! The commit log: segments of equal length, one behind the other (Apache `CommitLog`, `MappedFileQueue`).
//!
//! Invariants: segments are contiguous; every byte below `appended` was written; every byte below `flushed` was
//! fsynced; only the holder of the append lock writes behind `appended`. A record never spans two segments: the rest of
//! one is ended by a blank record, for which every record leaves eight bytes.
//!
//! A segment is opened when it is first used. Those that are durable are closed again where too many are open; one that
//! is not stays open until it is, because only the open file tells of a write that failed.

use crate::checkpoint::Mark;
use crate::descriptors::Shares;
use crate::error::{StoreError, is_full};
use crate::failure::Failure;
use crate::format::{file_name, parse_file_name, to_i64, to_u64, to_usize};
use crate::fs::read_mode::ReadMode;
use crate::fs::{Context, File, Fs, write_zeros};
use crate::options::Options;
use crate::sync::{lock, read, write};
use pyrmq_remoting::message::record;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// One file of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Position of its first byte.
    pub(crate) base: i64,
    pub(crate) path: PathBuf,
    /// Guards the open file; whoever uses it holds it by itself.
    file: Mutex<Option<Arc<dyn File>>>,
    /// It was used since it was last looked for files to close.
    is_used: AtomicBool,
}

impl Segment {
    fn new(base: i64, path: PathBuf, file: Option<Arc<dyn File>>) -> Arc<Self> {
        Arc::new(Self {
            base,
            path,
            file: Mutex::new(file),
            is_used: AtomicBool::new(false),
        })
    }

    fn opened(&self) -> Option<Arc<dyn File>> {
        let file = lock(&self.file).clone()?;
        self.is_used.store(true, Ordering::Relaxed);
        Some(file)
    }

    fn close(&self) {
        *lock(&self.file) = None;
    }
}

/// Three times the longest `flushIntervalCommitLog`.
const LATE_MS: i64 = 180_000;

/// All segments.
#[derive(Debug)]
pub(crate) struct CommitLog {
    fs: Arc<dyn Fs>,
    directory: PathBuf,
    segment_bytes: i64,
    segments: RwLock<Vec<Arc<Segment>>>,
    /// Those that are open, and how many old ones may be.
    open: Mutex<VecDeque<Arc<Segment>>>,
    most_open: usize,
    /// The segment behind the last one, made ahead of time. Its lock is held while it is made, so that a roll waits for
    /// it.
    prepared: Mutex<Option<Arc<Segment>>>,
    /// In front of this nothing was written in the last minutes before the stop.
    written_late_from: i64,
    /// A last file without any byte, as a stop in the middle of making it leaves behind.
    half_made: Option<PathBuf>,
    appended: AtomicI64,
    flushed: AtomicI64,
    pub(crate) failure: Arc<Failure>,
}

impl CommitLog {
    /// Opens the segments that are there and changes nothing.
    pub(crate) fn load(
        fs: &Arc<dyn Fs>,
        options: &Options,
        failure: Arc<Failure>,
    ) -> Result<Self, StoreError> {
        let directory = options.commit_log_dir();
        let segment_bytes = i64::try_from(options.segment_bytes).unwrap_or(i64::MAX);
        let mut found: Vec<_> = fs
            .list(&directory)
            .at("list", &directory)?
            .into_iter()
            .filter(|entry| !entry.is_directory)
            .filter_map(|entry| parse_file_name(&entry.name).map(|base| (base, entry)))
            .collect();
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
            written_late_from,
            half_made,
            appended: AtomicI64::new(start),
            flushed: AtomicI64::new(start),
            failure,
        })
    }

    /// Removes a last file without any byte, as Apache does.
    pub(crate) fn mend(&self) -> Result<(), StoreError> {
        match &self.half_made {
            Some(path) => self.fs.remove(path).at("remove", path),
            None => Ok(()),
        }
    }

    /// The oldest segment that was written in the last minutes before the stop, as its files were found. What is older
    /// was fsynced by later rounds: one that failed would have ended all writing.
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

    /// The open file of a segment.
    pub(crate) fn file(&self, segment: &Arc<Segment>) -> Result<Arc<dyn File>, StoreError> {
        if let Some(file) = segment.opened() {
            return Ok(file);
        }
        let file = self.fs.open(&segment.path).at("open", &segment.path)?;
        if lock(&segment.file).replace(Arc::clone(&file)).is_none() {
            self.keep_open(segment);
            if self.segment_at(segment.base).is_none() {
                // Deleted meanwhile: an open file would keep its space.
                self.forget_open(segment);
            }
        }
        Ok(file)
    }

    /// As [`CommitLog::file`]; `None` where retention was faster.
    pub(crate) fn file_if_there(&self, segment: &Arc<Segment>) -> Result<Option<Arc<dyn File>>, StoreError> {
        match self.file(segment) {
            Err(_) if self.segment_at(segment.base).is_none() => Ok(None),
            file => file.map(Some),
        }
    }

    /// Notes that a segment is open, and closes others where too many are.
    fn keep_open(&self, segment: &Arc<Segment>) {
        let mut open = lock(&self.open);
        open.push_back(Arc::clone(segment));
        let durable = self.flushed();
        // Each is looked at twice at most: one that was used since the last look gets a second chance.
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

    /// Segments that may still be opened and kept so.
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

    /// Where the segment behind the one with this position begins.
    pub(crate) fn next_segment(&self, position: i64) -> i64 {
        let start = self.start();
        let inside = (position - start).rem_euclid(self.segment_bytes);
        position - inside + self.segment_bytes
    }

    /// Adds the segment that begins at `base`: the prepared one, or a new one of full length and zero.
    pub(crate) fn add_segment(&self, base: i64) -> Result<Arc<Segment>, StoreError> {
        let mut prepared = lock(&self.prepared);
        let segment = match prepared.take_if(|segment| segment.base == base) {
            Some(segment) => segment,
            None => self.make_segment(base)?,
        };
        write(&self.segments).push(Arc::clone(&segment));
        Ok(segment)
    }

    /// Makes the segment behind the last one, so that a roll finds it. Not under the append lock.
    pub(crate) fn prepare_segment(&self) -> Result<(), StoreError> {
        let mut prepared = lock(&self.prepared);
        // One that was made before the last stop may still wait.
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

    /// A new file under that name whatever is there: it is durable before a record goes into it. What fails but an
    /// fsync may be tried again.
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
        let segment = Segment::new(base, path, Some(file));
        self.keep_open(&segment);
        Ok(segment)
    }

    /// Fills `buffer` from one segment. `Ok(false)`: the bytes are not there (deleted or not written).
    pub(crate) fn read(&self, position: i64, buffer: &mut [u8]) -> Result<bool, StoreError> {
        self.read_by(&ReadMode::waiting(), position, buffer)
    }

    /// As [`CommitLog::read`]; `Ok(false)` also where the bytes are not in memory and must be.
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

    /// The segments with bytes from one position to another, oldest first: the last few of many.
    fn undurable(&self, from: i64, to: i64) -> Vec<Arc<Segment>> {
        let segments = read(&self.segments);
        let first = segments.partition_point(|segment| segment.base + self.segment_bytes <= from);
        let behind = segments.partition_point(|segment| segment.base < to);
        segments.get(first..behind).unwrap_or_default().to_vec()
    }

    /// Fsyncs everything in front of `target`, from the first byte that is not known to be durable.
    pub(crate) fn sync_to(&self, target: i64) -> Result<(), StoreError> {
        self.failure.check()?;
        let flushed = self.flushed();
        for segment in self.undurable(flushed, target) {
            let file = self.file(&segment)?;
            file.sync().at("flush", &segment.path)?;
        }
        if target > flushed {
            self.set_flushed(target);
        }
        Ok(())
    }

    /// Drops everything from `end` on: later segments are deleted, the newest first and each durably, so that there is
    /// never a gap; the rest of the segment is made zero, so that no old record can look like a new one's successor.
    /// Only before the store runs. After a crash zeros are written again, too: the system may take them for clean
    /// although an fsync of them failed.
    pub(crate) fn cut(&self, end: i64, crashed: bool) -> Result<(), StoreError> {
        let mut segments = write(&self.segments);
        while let Some(last) = segments.last()
            && last.base >= end
            && segments.len() > 1
        {
            self.fs.remove(&last.path).at("remove", &last.path)?;
            self.forget_open(last);
            segments.pop();
            self.fs
                .sync_directory(&self.directory)
                .at("flush", &self.directory)?;
        }
        if let Some(last) = segments.last()
            && end < last.base + self.segment_bytes
        {
            let from = to_u64((end - last.base).max(0));
            let file = self.file(last)?;
            let to = to_u64(self.segment_bytes);
            let data = if crashed {
                file.next_data(from).map(|data| data.filter(|data| *data < to))
            } else {
                is_clear(file.as_ref(), from, to).map(|is_clear| (!is_clear).then_some(from))
            };
            if crashed {
                file.set_length(to).at("extend", &last.path)?;
            }
            if let Some(data) = data.at("read", &last.path)? {
                file.clear(data, to).at("clear", &last.path)?;
            }
            // A start that was killed may have made it zero a moment ago.
            file.sync().at("flush", &last.path)?;
        }
        Ok(())
    }

    /// Writes `from..to` once more with the bytes that it has. After a failed fsync the system may hold pages that it
    /// takes for written although they are not on the disk.
    pub(crate) fn write_again(&self, from: i64, to: i64) -> Result<(), StoreError> {
        let mut buffer = vec![0; 1 << 20];
        let mut at = from.max(self.start());
        while at < to {
            let Some(segment) = self.segment_at(at) else {
                return Ok(());
            };
            let most = (to - at).min(self.next_segment(at) - at).min(1 << 20);
            let part = buffer.get_mut(..to_usize(most)).unwrap_or_default();
            let inside = to_u64(at - segment.base);
            let file = self.file(&segment)?;
            if at == from || inside == 0 {
                // So may its length be, where it was made in the meantime.
                file.set_length(to_u64(self.segment_bytes))
                    .at("extend", &segment.path)?;
            }
            file.read_exact_at(part, inside).at("read", &segment.path)?;
            file.write_all_at(part, inside).at("write", &segment.path)?;
            at += most;
        }
        Ok(())
    }

    /// True when the head of a record of this queue and index stands at a position.
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

    /// Deletes the oldest segment, never the last one. Only by one thread at a time. One that cannot be deleted stays
    /// the oldest: the next one would leave a gap.
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

    /// Closes a segment that is deleted, so that its space becomes free.
    fn forget_open(&self, segment: &Arc<Segment>) {
        lock(&self.open).retain(|open| !Arc::ptr_eq(open, segment));
        segment.close();
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
    /// The newest record, if it is known.
    pub(crate) last: Mark,
    /// With its file, which stays open as long as it is appended to.
    segment: Option<(Arc<Segment>, Arc<dyn File>)>,
    /// Up to here zeros were written ahead.
    ahead: i64,
}

impl Tail {
    /// Continues behind what the log holds.
    pub(crate) fn new(log: &CommitLog, last: Mark, last_store_ms: i64) -> Self {
        let position = log.appended();
        Self {
            position,
            last_store_ms,
            last,
            segment: None,
            ahead: 0,
        }
    }

    /// Makes room for `size` bytes and the blank record behind them, in this segment or the next one. What fails for
    /// want of space leaves the tail as it was, or at the segment's end: the next call tries again.
    pub(crate) fn make_room(&mut self, log: &CommitLog, size: usize) -> Result<(), StoreError> {
        if self.segment.is_none()
            && let Some(segment) = log.segment_at(self.position)
        {
            let file = log.file(&segment)?;
            self.segment = Some((segment, file));
        }
        if let Some((segment, file)) = &self.segment {
            let left = segment.base + log.segment_bytes - self.position;
            if to_i64(size + record::BLANK_SIZE) <= left {
                return Ok(());
            }
            if left > 0 {
                let blank = blank_record(left);
                let head = blank
                    .get(..to_usize(left.min(to_i64(record::BLANK_SIZE))))
                    .unwrap_or_default();
                log.write_in(segment, file.as_ref(), self.position, head)?;
            }
            self.position = segment.base + log.segment_bytes;
        }
        let segment = match log.segment_at(self.position) {
            Some(segment) => segment,
            None => log.add_segment(self.position)?,
        };
        let file = log.file(&segment)?;
        self.segment = Some((segment, file));
        Ok(())
    }

    /// Bytes of records that the segment can still take.
    pub(crate) fn room(&self, log: &CommitLog) -> usize {
        let left = self
            .segment
            .as_ref()
            .map_or(0, |(segment, _)| segment.base + log.segment_bytes - self.position);
        to_usize(left).saturating_sub(record::BLANK_SIZE)
    }

    /// True from the middle of a segment on: time to make the next one.
    pub(crate) fn is_past_half(&self, log: &CommitLog) -> bool {
        self.segment
            .as_ref()
            .is_some_and(|(segment, _)| self.position - segment.base > log.segment_bytes / 2)
    }

    /// Writes records at the position for which room was made.
    pub(crate) fn write(&mut self, log: &CommitLog, records: &[u8]) -> Result<(), StoreError> {
        let Some((segment, file)) = &self.segment else {
            return Err(StoreError::Closed);
        };
        log.write_in(segment, file.as_ref(), self.position, records)?;
        self.position += to_i64(records.len());
        log.set_appended(self.position);
        Ok(())
    }

    /// Writes zeros behind the records, so many bytes at a time, once records have come to the end of the last ones.
    /// The fsyncs that follow find blocks that the file system knows: each would else have it note new ones, which
    /// costs a write more.
    pub(crate) fn write_ahead(&mut self, log: &CommitLog, bytes: u64) {
        if self.position < self.ahead || bytes == 0 {
            return;
        }
        let Some((segment, file)) = &self.segment else {
            return;
        };
        let segment_end = segment.base + log.segment_bytes;
        self.ahead = self.position.saturating_add_unsigned(bytes).min(segment_end);
        let place = |position: i64| to_u64(position - segment.base);
        let write = |zeros: &[u8], at| file.write_all_at(zeros, at);
        if let Err(error) = write_zeros(place(self.position), place(self.ahead), write) {
            // Nothing is lost; a disk that is full or broken shows at the next record.
            tracing::debug!(%error, path = %segment.path.display(), "no zeros ahead in this segment");
            self.ahead = segment_end;
        }
    }
}

impl CommitLog {
    /// Writes behind the log's end. A full disk leaves zero bytes there and may be tried again; any other failure turns
    /// the log read-only: what reached the disk is unknown, so nothing may be written behind it.
    fn write_in(
        &self,
        segment: &Segment,
        file: &dyn File,
        position: i64,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let from = to_u64(position - segment.base);
        let Err(error) = file.write_all_at(bytes, from) else {
            return Ok(());
        };
        // Durably: else a power loss could mix what was written here with what comes here next.
        let clear = || {
            file.clear(from, from + bytes.len() as u64)?;
            file.sync()
        };
        let cleared = is_full(error.kind()) && clear().is_ok();
        let error = StoreError::io("write", &segment.path, &error);
        if !cleared {
            self.failure.set(&error);
        }
        Err(error)
    }
}

/// True when all bytes `from..to` of a file are zero.
pub(crate) fn is_clear(file: &dyn File, from: u64, to: u64) -> std::io::Result<bool> {
    const MOST: u64 = 1 << 20;
    let mut buffer = Vec::new();
    let (mut at, mut piece) = (from, 1 << 12);
    while let Some(data) = file.next_data(at)?.filter(|data| *data < to) {
        // Up to a border of the pieces, behind which there may be a hole.
        let end = (data / piece + 1).saturating_mul(piece).min(to);
        piece = (piece * 2).min(MOST);
        buffer.resize(usize::try_from(end - data).unwrap_or_default(), 0);
        let got = file.read_at(&mut buffer, data)?;
        if buffer
            .get(..got)
            .unwrap_or_default()
            .iter()
            .any(|byte| *byte != 0)
        {
            return Ok(false);
        }
        if got < buffer.len() {
            break;
        }
        at = end;
    }
    Ok(true)
}

fn blank_record(left: i64) -> [u8; record::BLANK_SIZE] {
    let [l0, l1, l2, l3] = i32::try_from(left).unwrap_or(i32::MAX).to_be_bytes();
    let [m0, m1, m2, m3] = record::MAGIC_BLANK.to_be_bytes();
    [l0, l1, l2, l3, m0, m1, m2, m3]
}
