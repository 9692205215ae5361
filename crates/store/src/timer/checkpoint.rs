//! The timer's progress: `config/timercheck` (Apache `TimerCheckpoint`).
//!
//! ```text
//! 4096 bytes, int64 each   0 time up to which slots are delivered, ms   8 durable end of the timer's log
//!                          16 messages of the timer's topic that are in the log   24 the same of the master
//!                          32 state version   40 when it was written, ms   48 counter
//! ```
//! All of it is in one sector.

use crate::error::StoreError;
use crate::fs::{Context, File, Fs, make_directories, parent};
use std::path::PathBuf;
use std::sync::Arc;

const LENGTH: u64 = 4096;
/// Bytes of the values; request 60 answers them, too.
pub(crate) const WRITTEN: usize = 56;

/// The values of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Slots before this time are delivered, in ms.
    pub(crate) read_ms: i64,
    /// Up to where the log is durable.
    pub(crate) log_end: i64,
    /// Number of messages of the timer's topic that are in the log, or were delivered without it.
    pub(crate) queue_offset: i64,
    /// Apache's version of the values: state, time, counter.
    version: [i64; 3],
}

impl Progress {
    pub(crate) fn to_bytes(self) -> [u8; WRITTEN] {
        let mut bytes = [0; WRITTEN];
        let [state, time, counter] = self.version;
        let numbers = [
            self.read_ms,
            self.log_end,
            self.queue_offset,
            self.queue_offset,
            state,
            time,
            counter,
        ];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; WRITTEN]) -> Self {
        let number = |at: usize| {
            let part = bytes.get(at..).and_then(<[u8]>::first_chunk);
            part.map_or(0, |part| i64::from_be_bytes(*part))
        };
        Self {
            read_ms: number(0),
            log_end: number(8),
            // A slave's own value runs ahead of what its master has delivered.
            queue_offset: number(16).min(number(24)),
            version: [number(32), number(40), number(48)],
        }
    }

    /// When the file was written, in ms; 0 if never.
    pub(crate) fn written_ms(self) -> i64 {
        let [_, written_ms, _] = self.version;
        written_ms
    }

    fn next(self, now_ms: i64) -> Self {
        let [state, _, counter] = self.version;
        Self {
            version: [state, now_ms, counter + 1],
            ..self
        }
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct TimerCheckpoint {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    saved: Progress,
}

impl TimerCheckpoint {
    pub(crate) fn load(fs: &Arc<dyn Fs>, path: PathBuf) -> Result<Self, StoreError> {
        let mut bytes = [0; WRITTEN];
        let file = if fs.exists(&path).at("look for", &path)? {
            let file = fs.open(&path).at("open", &path)?;
            file.read_at(&mut bytes, 0).at("read", &path)?;
            Some(file)
        } else {
            None
        };
        Ok(Self {
            fs: fs.clone(),
            path,
            file,
            saved: Progress::from_bytes(&bytes),
        })
    }

    /// The content of the file.
    pub(crate) fn saved(&self) -> Progress {
        self.saved
    }

    /// Writes and fsyncs the file.
    pub(crate) fn save(&mut self, progress: &Progress, now_ms: i64) -> Result<(), StoreError> {
        let progress = Progress {
            version: self.saved.version,
            ..*progress
        }
        .next(now_ms);
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.make()?,
        };
        file.write_all_at(&progress.to_bytes(), 0)
            .at("write", &self.path)?;
        file.sync().at("flush", &self.path)?;
        self.saved = progress;
        Ok(())
    }

    fn make(&mut self) -> Result<Arc<dyn File>, StoreError> {
        let directory = parent(&self.path);
        make_directories(self.fs.as_ref(), directory).at("create", directory)?;
        let file = self.fs.create(&self.path).at("create", &self.path)?;
        file.set_length(LENGTH).at("extend", &self.path)?;
        self.fs.sync_directory(directory).at("flush", directory)?;
        self.file = Some(file.clone());
        Ok(file)
    }
}
