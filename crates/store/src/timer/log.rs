//! The timer's log: `timerlog/<20 digits>` (Apache `TimerLog`).
//!
//! ```text
//! at  bytes  a unit has 52                        at  bytes
//!  0  4      52                                   28  8      position of the message in the commit log
//!  4  8      unit before it in its slot, or -1    36  4      bytes of the message
//! 12  4      1 + 2 to roll + 4 that takes back    40  4      Java hash of the real topic
//! 16  8      when it was written, ms              44  8      0
//! 24  4      time of the slot less that, ms
//! ```
//! A file has its full length from the beginning and is zero after its last unit, or ends with a blank: bytes left
//! int32, 0 int64, magic int32. After every unit there is room for a blank.

use crate::error::StoreError;
use crate::format::{file_name, parse_file_name, to_i64, to_u64, to_usize};
use crate::fs::{Context, File, Fs, make_directories};
use crate::timer::unit::{BLANK_MAGIC, LogEntry, TimerUnit, UNIT, UNIT_I64};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of the blank that ends a file.
const BLANK: i64 = 16;
/// Number of bytes that are read at once.
const CHUNK: i64 = 52 * 5000;

/// The files, by the position of their first byte.
#[derive(Debug)]
pub(crate) struct TimerLog {
    directory: PathBuf,
    fs: Arc<dyn Fs>,
    file_bytes: i64,
    files: BTreeMap<i64, Arc<dyn File>>,
    /// Position after the newest unit, including unwritten ones.
    end: i64,
    /// Units that are not written yet; they end at `end`.
    unwritten: Vec<u8>,
    /// Files with bytes that were not fsynced.
    unsynced: BTreeMap<i64, Arc<dyn File>>,
}

impl TimerLog {
    pub(crate) fn load(fs: &Arc<dyn Fs>, directory: PathBuf, file_bytes: u64) -> Result<Self, StoreError> {
        let mut files = BTreeMap::new();
        let bytes = i64::try_from(file_bytes).unwrap_or(i64::MAX);
        for entry in fs.list(&directory).at("list", &directory)? {
            let Some(start) = parse_file_name(&entry.name).filter(|_| !entry.is_directory) else {
                continue;
            };
            let path = directory.join(&entry.name);
            if entry.length == 0 {
                // Left half-created when a process died; only the newest file can be.
                continue;
            }
            if entry.length != file_bytes {
                return Err(StoreError::FileLength {
                    path,
                    length: entry.length,
                    expected: file_bytes,
                    key: "mappedFileSizeTimerLog",
                });
            }
            if let Some((before, _)) = files.last_key_value()
                && before + bytes != start
            {
                return Err(StoreError::Gap {
                    path,
                    expected: before + bytes,
                });
            }
            files.insert(start, fs.open(&path).at("open", &path)?);
        }
        let end = files.last_key_value().map_or(0, |(start, _)| start + bytes);
        Ok(Self {
            directory,
            fs: fs.clone(),
            file_bytes: bytes,
            files,
            end,
            unwritten: Vec::new(),
            unsynced: BTreeMap::new(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Position of the oldest unit.
    pub(crate) fn start(&self) -> i64 {
        self.files.first_key_value().map_or(0, |(start, _)| *start)
    }

    /// Position after the newest unit.
    pub(crate) fn end(&self) -> i64 {
        self.end
    }

    pub(crate) fn file_bytes(&self) -> i64 {
        self.file_bytes
    }

    fn path(&self, start: i64) -> PathBuf {
        self.directory.join(file_name(start))
    }

    /// Calls `take` with every unit from the start of a position's file on, until there is no unit or `take` returns
    /// false. Returns the position where it stopped.
    pub(crate) fn walk(
        &self,
        from: i64,
        mut take: impl FnMut(i64, &TimerUnit) -> bool,
    ) -> Result<i64, StoreError> {
        let first = self.files.range(..=from).next_back().map(|(start, _)| *start);
        let mut at = first.unwrap_or_else(|| self.start());
        let mut bytes = Vec::new();
        for (start, file) in self.files.range(at..) {
            at = *start;
            'file: while at < start + self.file_bytes {
                let size = CHUNK.min(start + self.file_bytes - at);
                bytes.resize(to_usize(size), 0);
                file.read_exact_at(&mut bytes, to_u64(at - start))
                    .at("read", &self.path(*start))?;
                for unit in bytes.chunks(UNIT) {
                    match TimerUnit::from_bytes(unit) {
                        LogEntry::Unit(unit) if take(at, &unit) => at += UNIT_I64,
                        LogEntry::Blank => break 'file,
                        _ => return Ok(at),
                    }
                }
            }
        }
        Ok(at)
    }

    /// Calls `take` with every unit from the start of a position's file on, and skips positions without one.
    pub(crate) fn scan(&self, from: i64, mut take: impl FnMut(&TimerUnit)) -> Result<(), StoreError> {
        let first = self.files.range(..=from).next_back().map(|(start, _)| *start);
        let mut bytes = Vec::new();
        for (start, file) in self.files.range(first.unwrap_or_else(|| self.start())..) {
            let file_end = (start + self.file_bytes).min(self.end);
            for at in (*start..file_end).step_by(to_usize(CHUNK)) {
                bytes.resize(to_usize(CHUNK.min(file_end - at)), 0);
                file.read_exact_at(&mut bytes, to_u64(at - start))
                    .at("read", &self.path(*start))?;
                for unit in bytes.chunks_exact(UNIT) {
                    if let LogEntry::Unit(unit) = TimerUnit::from_bytes(unit) {
                        take(&unit);
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops everything from a position on.
    pub(crate) fn cut(&mut self, end: i64) -> Result<(), StoreError> {
        self.end = end;
        let later: Vec<i64> = self.files.range(end..).map(|(start, _)| *start).collect();
        let mut removed = false;
        for start in later {
            // A file that begins at the end is as good as a new one once it is zeroed.
            if start > end {
                let path = self.path(start);
                self.files.remove(&start);
                self.fs.remove(&path).at("remove", &path)?;
                removed = true;
            }
        }
        if let Some((start, file)) = self.files.range(..=end).next_back() {
            let (from, to) = (to_u64(end - start), to_u64(self.file_bytes));
            let path = self.path(*start);
            if from < to
                && file.next_data(from).at("read", &path)?.is_some()
                && !is_zero(file.as_ref(), from, to).at("read", &path)?
            {
                file.clear(from, to).at("clear", &path)?;
                file.sync().at("flush", &path)?;
            }
        }
        if removed {
            self.fs
                .sync_directory(&self.directory)
                .at("flush", &self.directory)?;
        }
        Ok(())
    }

    /// Adds a unit and returns its position. [`TimerLog::write_out`] writes it.
    pub(crate) fn append(&mut self, unit: &TimerUnit) -> Result<i64, StoreError> {
        let newest = self.files.last_key_value().map(|(start, _)| *start);
        let left = newest.map_or(0, |start| start + self.file_bytes - self.end);
        if left < UNIT_I64 + BLANK {
            if left >= BLANK {
                let mut blank = Vec::with_capacity(to_usize(BLANK));
                blank.extend(i32::try_from(left).unwrap_or(0).to_be_bytes());
                blank.extend(0_i64.to_be_bytes());
                blank.extend(BLANK_MAGIC.to_be_bytes());
                self.write_out()?;
                if let Some(start) = newest {
                    self.write(start, self.end, &blank)?;
                }
            }
            let next = newest.map_or(self.end, |start| start + self.file_bytes);
            self.write_out()?;
            self.make(next)?;
            self.end = next;
        }
        let position = self.end;
        self.unwritten.extend(unit.to_bytes());
        self.end += UNIT_I64;
        Ok(position)
    }

    fn make(&mut self, start: i64) -> Result<(), StoreError> {
        let path = self.path(start);
        make_directories(self.fs.as_ref(), &self.directory).at("create", &self.directory)?;
        let file = self.fs.create(&path).at("create", &path)?;
        file.set_length(to_u64(self.file_bytes)).at("extend", &path)?;
        // Its name must not exist without its length once a later file exists.
        file.sync().at("flush", &path)?;
        self.fs
            .sync_directory(&self.directory)
            .at("flush", &self.directory)?;
        self.files.insert(start, file);
        Ok(())
    }

    fn write(&mut self, start: i64, at: i64, bytes: &[u8]) -> Result<(), StoreError> {
        if let Some(file) = self.files.get(&start) {
            file.write_all_at(bytes, to_u64(at - start))
                .at("write", &self.path(start))?;
            self.unsynced.insert(start, file.clone());
        }
        Ok(())
    }

    /// Writes the unwritten units. After a failure they are kept for the next attempt.
    pub(crate) fn write_out(&mut self) -> Result<(), StoreError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.unwritten);
        let at = self.end - to_i64(bytes.len());
        let start = self.files.range(..=at).next_back().map_or(0, |(start, _)| *start);
        let written = self.write(start, at, &bytes);
        self.unwritten = bytes;
        written?;
        self.unwritten.clear();
        Ok(())
    }

    /// Whether units were added since the last fsync.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.unwritten.is_empty() || !self.unsynced.is_empty()
    }

    /// Writes and fsyncs.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.write_out()?;
        for (start, file) in &self.unsynced {
            file.sync().at("flush", &self.path(*start))?;
        }
        self.unsynced.clear();
        Ok(())
    }

    /// The units of a slot, oldest first, followed back from its newest one. They must have been written.
    pub(crate) fn chain(&self, last: i64) -> Result<Vec<TimerUnit>, StoreError> {
        let mut units = Vec::new();
        let mut window = UnitWindow::default();
        let mut at = last;
        while at >= 0 {
            let LogEntry::Unit(unit) = self.unit_at(at, &mut window)? else {
                tracing::error!(
                    position = at,
                    "the timer log has no unit where a slot or unit points to"
                );
                break;
            };
            units.push(unit);
            if unit.previous >= at {
                tracing::error!(position = at, "a unit of the timer log points forward");
                break;
            }
            at = unit.previous;
        }
        units.reverse();
        Ok(units)
    }

    fn unit_at(&self, at: i64, window: &mut UnitWindow) -> Result<LogEntry, StoreError> {
        if let Some(bytes) = window.get(at) {
            return Ok(TimerUnit::from_bytes(bytes));
        }
        let Some((start, file)) = self.files.range(..=at).next_back() else {
            return Ok(LogEntry::None);
        };
        if at + UNIT_I64 > start + self.file_bytes {
            return Ok(LogEntry::None);
        }
        // The units before it are the likely next ones.
        let from = (at + UNIT_I64 - window.next()).max(*start);
        window.start = from;
        window.bytes.resize(to_usize(at + UNIT_I64 - from), 0);
        file.read_exact_at(&mut window.bytes, to_u64(from - start))
            .at("read", &self.path(*start))?;
        Ok(window.get(at).map_or(LogEntry::None, TimerUnit::from_bytes))
    }

    /// The newest unit of a full file, if the log has a later file.
    fn newest_of(&self, start: i64) -> Result<LogEntry, StoreError> {
        let inside = (self.file_bytes - BLANK) / UNIT_I64 * UNIT_I64 - UNIT_I64;
        self.unit_at(start + inside, &mut UnitWindow::default())
    }

    /// Deletes files whose messages the commit log has dropped.
    pub(crate) fn clean(&mut self, min_position: i64) -> Result<u64, StoreError> {
        let mut gone = 0;
        while self.files.len() > 1 {
            let start = self.start();
            match self.newest_of(start)? {
                LogEntry::Unit(unit) if unit.position < min_position => {}
                _ => break,
            }
            let path = self.path(start);
            self.fs.remove(&path).at("remove", &path)?;
            self.files.remove(&start);
            self.unsynced.remove(&start);
            gone += 1;
        }
        if gone > 0 {
            self.fs
                .sync_directory(&self.directory)
                .at("flush", &self.directory)?;
        }
        Ok(gone)
    }
}

/// Bytes of the log that were read for one unit and may contain the next.
#[derive(Debug, Default)]
struct UnitWindow {
    start: i64,
    bytes: Vec<u8>,
    reads: u32,
}

impl UnitWindow {
    fn get(&self, at: i64) -> Option<&[u8]> {
        let from = usize::try_from(at - self.start).ok()?;
        self.bytes.get(from..from + UNIT)
    }

    /// How many bytes to read: few for a slot with few units, more with each read.
    fn next(&mut self) -> i64 {
        self.reads = (self.reads + 1).min(10);
        UNIT_I64 << self.reads
    }
}

fn is_zero(file: &dyn File, from: u64, to: u64) -> std::io::Result<bool> {
    let mut at = from;
    let mut bytes = vec![0; 1 << 16];
    while let Some(data) = file.next_data(at)?.filter(|data| *data < to) {
        let size = file.read_at(&mut bytes, data)?;
        if size == 0 {
            break;
        }
        if bytes.iter().take(size).any(|byte| *byte != 0) {
            return Ok(false);
        }
        at = data + size as u64;
    }
    Ok(true)
}
