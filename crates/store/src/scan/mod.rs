//! Reads the files of a log without a store: those of any broker, stopped or running, and copies of them.
//!
//! Records go to a visitor; nothing here knows what they are read for. Nothing is changed or locked: a running broker
//! may write after the last record, and its retention may delete a file, which stays readable while it is open.

mod files;
mod plan;
mod resume;

pub use crate::queue::deleted_topics::{DeletedPositions, deleted_topics};
pub use files::{LogFile, log_files};
pub use plan::{Piece, PlanLimits, plan};

use crate::error::StoreError;
use crate::format::{to_i64, to_u64, to_usize};
use crate::fs::{Context, File, Fs};
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::record::{Hop, PHYSICAL_OFFSET_AT, hop, no_record};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that contain a record's size and magic number.
const HEAD: usize = 8;
/// Number of bytes read at once for whole records.
const CHUNK: usize = 1 << 20;
/// Number of bytes read at once for heads only: large bodies are skipped.
const HEAD_CHUNK: usize = 1 << 16;
/// Bytes of a head that contain the record's position and store time, with any kind of hosts.
const LONG_HEAD: usize = 72;

/// Why reading stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The end of the requested range, or of the file, was reached.
    End,
    /// The visitor stopped it.
    Paused,
    /// Zeros: nothing was written here yet.
    Unused,
    /// No record can be read at the position, for this reason.
    Damaged(String),
}

/// Reads the records of one file.
#[derive(Debug)]
pub struct LogScan {
    file: Arc<dyn File>,
    path: PathBuf,
    base: i64,
    /// Position after the file's last byte.
    end: i64,
    /// Position of the next record.
    position: i64,
    /// Records from this position on are skipped.
    until: i64,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    buffer_at: i64,
    checks_bodies: bool,
}

impl LogScan {
    /// Opens a file for its records that begin in `from..until`; a record must begin at `from`.
    pub fn open(fs: &dyn Fs, file: &LogFile, from: i64, until: i64) -> Result<Self, StoreError> {
        Ok(Self {
            file: fs.open_read(&file.path).at("open", &file.path)?,
            path: file.path.clone(),
            base: file.base,
            end: file.end(),
            position: from.max(file.base),
            until,
            buffer: Vec::new(),
            buffer_at: from,
            checks_bodies: false,
        })
    }

    /// Makes the scan compare bodies with their checksums.
    #[must_use]
    pub fn checking_bodies(self) -> Self {
        Self {
            checks_bodies: true,
            ..self
        }
    }

    /// Position of the next record.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Passes each record and its bytes to the visitor until it breaks.
    pub fn visit(
        &mut self,
        mut visitor: impl FnMut(&Record<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<Stop, StoreError> {
        loop {
            let size = match self.record_size(CHUNK)? {
                Ok(size) => size,
                Err(stop) => return Ok(stop),
            };
            let (position, checks_bodies) = (self.position, self.checks_bodies);
            let bytes = self.window(size, CHUNK)?;
            let record = match sound(bytes, position, checks_bodies) {
                Ok(record) => record,
                Err(reason) => return Ok(Stop::Damaged(reason)),
            };
            let next = position + to_i64(size);
            let flow = visitor(&record, bytes);
            self.position = next;
            if flow.is_break() {
                return Ok(Stop::Paused);
            }
        }
    }

    /// The size of the record at the position, after a blank one that ends a file; or why there is none.
    fn record_size(&mut self, chunk: usize) -> Result<Result<usize, Stop>, StoreError> {
        if self.position >= self.until || self.position >= self.end {
            return Ok(Err(Stop::End));
        }
        let (position, end) = (self.position, self.end);
        let head = self.window(HEAD, chunk)?;
        let reason = match hop(head) {
            Hop::Record(size) if to_i64(size) <= end - position => return Ok(Ok(size)),
            Hop::Record(size) => format!("a record of {size} bytes does not fit its file"),
            Hop::Blank(left) if position + to_i64(left) == end => {
                self.position = end;
                return Ok(Err(Stop::End));
            }
            Hop::Blank(left) => format!("a blank record of {left} bytes does not end its file"),
            Hop::End if head.iter().all(|byte| *byte == 0) => return Ok(Err(Stop::Unused)),
            Hop::End if head.len() < HEAD => "a record is cut off".to_owned(),
            Hop::End => no_record(head),
        };
        Ok(Err(Stop::Damaged(reason)))
    }

    /// `size` bytes at the position, fewer only at the end of the file. If they are not in memory, a chunk is read.
    fn window(&mut self, size: usize, chunk: usize) -> Result<&[u8], StoreError> {
        let have = self.buffer_at + to_i64(self.buffer.len()) - self.position;
        if self.position < self.buffer_at || have < to_i64(size) {
            let wanted = to_i64(size.max(chunk)).min(self.end - self.position);
            self.buffer.resize(to_usize(wanted), 0);
            self.buffer_at = self.position;
            let at = to_u64(self.position - self.base);
            let got = self.file.read_at(&mut self.buffer, at).at("read", &self.path)?;
            self.buffer.truncate(got);
        }
        let from = to_usize(self.position - self.buffer_at);
        let to = (from + size).min(self.buffer.len());
        Ok(self.buffer.get(from..to).unwrap_or_default())
    }
}

/// The record at a position, or what is wrong with it.
fn sound(bytes: &[u8], position: i64, checks_body: bool) -> Result<Record<'_>, String> {
    let record = Record::decode(bytes).map_err(|error| error.to_string())?;
    if record.physical_offset != position {
        return Err(elsewhere(record.physical_offset));
    }
    if record.topic.is_empty() {
        return Err("the record has no topic".to_owned());
    }
    if checks_body {
        record.check_body().map_err(|error| error.to_string())?;
    }
    Ok(record)
}

fn elsewhere(position: i64) -> String {
    format!("the record says that its position is {position}")
}

/// The position that a head names.
fn named_position(head: &[u8]) -> Option<i64> {
    head.get(PHYSICAL_OFFSET_AT..)?
        .first_chunk()
        .map(|bytes| i64::from_be_bytes(*bytes))
}
