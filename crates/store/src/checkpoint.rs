//! Checkpoint and abort file (Apache `StoreCheckpoint`, `DefaultMessageStore.createTempFile`).
//!
//! ```text
//! checkpoint, 4096 bytes   0 physic time   8 logics time   16 index time   24 master flushed offset   32 confirm offset
//! abort                    the process id; there while a store is open
//! ```
//! A time is the store time of the newest message that is durable in the commit log, the consume queues, the key index.
//! After a crash everything up to three seconds before the smaller of the first two is taken as it is.

use crate::error::StoreError;
use crate::format::{ABORT, CHECKPOINT};
use crate::fs::{Context, File, Fs};
use crate::sync::lock;
use std::path::Path;
use std::sync::{Arc, Mutex};

const LENGTH: usize = 4096;
/// Timestamps of different files are written at different moments; Apache's slack.
pub(crate) const SLACK_MS: i64 = 3000;
/// What stands in the abort file in front of the position up to which the log was durable when an fsync failed.
const UNSURE: &str = "unsure from ";

/// The numbers of a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) physic_ms: i64,
    pub(crate) logics_ms: i64,
    pub(crate) index_ms: i64,
    master_flushed: i64,
    confirm: i64,
    /// How often the clock went back since the file was opened; not in the file.
    pub(crate) falls: u32,
}

impl Times {
    /// Everything stored before this moment is durable in log and queues.
    pub(crate) fn safe_ms(&self) -> i64 {
        (self.physic_ms.min(self.logics_ms) - SLACK_MS).max(0)
    }
}

/// The checkpoint file.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    file: Arc<dyn File>,
    path: std::path::PathBuf,
    times: Mutex<Times>,
    /// What the file holds.
    saved: Mutex<Times>,
}

impl Checkpoint {
    pub(crate) fn open(fs: &dyn Fs, root: &Path) -> Result<Self, StoreError> {
        let path = root.join(CHECKPOINT);
        let mut bytes = [0; 40];
        let file = if fs.exists(&path) {
            let file = fs.open(&path).at("open", &path)?;
            file.read_at(&mut bytes, 0).at("read", &path)?;
            file
        } else {
            fs.create(&path).at("create", &path)?
        };
        if file.length().at("read", &path)? < LENGTH as u64 {
            file.set_length(LENGTH as u64).at("extend", &path)?;
        }
        let mut numbers = bytes.chunks_exact(8).map(|chunk| {
            chunk
                .first_chunk()
                .map_or(0, |number| i64::from_be_bytes(*number))
        });
        let mut next = || numbers.next().unwrap_or_default();
        let times = Times {
            physic_ms: next(),
            logics_ms: next(),
            index_ms: next(),
            master_flushed: next(),
            confirm: next(),
            falls: 0,
        };
        Ok(Self {
            file,
            path,
            times: Mutex::new(times),
            saved: Mutex::new(times),
        })
    }

    pub(crate) fn times(&self) -> Times {
        *lock(&self.times)
    }

    /// Changes the times; they reach the file with [`Checkpoint::save`].
    pub(crate) fn update(&self, change: impl FnOnce(&mut Times)) {
        change(&mut lock(&self.times));
    }

    /// The clock went back to `now_ms`: what is stored from now on must not look older than what is durable.
    pub(crate) fn fall_back(&self, now_ms: i64) -> Result<(), StoreError> {
        self.update(|times| {
            times.physic_ms = times.physic_ms.min(now_ms);
            times.logics_ms = times.logics_ms.min(now_ms);
            times.index_ms = times.index_ms.min(now_ms);
            times.falls += 1;
        });
        self.save()
    }

    /// Writes the file if something has changed.
    pub(crate) fn save_changed(&self) -> Result<(), StoreError> {
        if self.times() == *lock(&self.saved) {
            return Ok(());
        }
        self.save()
    }

    /// Writes the file, durably.
    pub(crate) fn save(&self) -> Result<(), StoreError> {
        // Held to the end: an older state must not overtake a newer one.
        let mut saved = lock(&self.saved);
        let times = self.times();
        let mut bytes = [0; 40];
        let numbers = [
            times.physic_ms,
            times.logics_ms,
            times.index_ms,
            times.master_flushed,
            times.confirm,
        ];
        for (chunk, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            chunk.copy_from_slice(&number.to_be_bytes());
        }
        self.file.write_all_at(&bytes, 0).at("write", &self.path)?;
        self.file.sync().at("flush", &self.path)?;
        *saved = times;
        Ok(())
    }
}

/// How the store before this one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastStop {
    /// It was closed.
    Clean,
    /// It was not.
    Crash {
        /// From where on the log must be written again: an fsync failed.
        unsure_from: Option<i64>,
    },
}

impl LastStop {
    /// Reads the abort file.
    pub(crate) fn look(fs: &dyn Fs, root: &Path) -> Result<Self, StoreError> {
        let path = root.join(ABORT);
        if !fs.exists(&path) {
            return Ok(Self::Clean);
        }
        let text = fs.read(&path).at("read", &path)?;
        let unsure_from = String::from_utf8_lossy(&text)
            .lines()
            .find_map(|line| line.strip_prefix(UNSURE)?.trim().parse().ok());
        Ok(Self::Crash { unsure_from })
    }

    pub(crate) fn is_crash(self) -> bool {
        self != Self::Clean
    }
}

/// Says that a store is open.
pub(crate) fn mark_open(fs: &dyn Fs, root: &Path, before: LastStop) -> Result<(), StoreError> {
    let unsure_from = match before {
        LastStop::Clean => None,
        LastStop::Crash { unsure_from } => unsure_from,
    };
    write_abort(fs, root, unsure_from)?;
    fs.sync_directory(root).at("flush", root)
}

/// Says that an fsync failed: the next store on this machine must not trust what it reads behind `position`.
pub(crate) fn mark_unsure(fs: &dyn Fs, root: &Path, position: i64) {
    if let Err(error) = write_abort(fs, root, Some(position)) {
        tracing::error!(%error, "the failed fsync could not be noted");
    }
}

fn write_abort(fs: &dyn Fs, root: &Path, unsure_from: Option<i64>) -> Result<(), StoreError> {
    let path = root.join(ABORT);
    let mut text = std::process::id().to_string();
    if let Some(position) = unsure_from {
        text = format!("{text}\n{UNSURE}{position}\n");
    }
    // Written over, never emptied: a file without its first line still says that there was no clean stop.
    let file = if fs.exists(&path) {
        fs.open(&path)
    } else {
        fs.create(&path)
    };
    let file = file.at("create", &path)?;
    file.write_all_at(text.as_bytes(), 0).at("write", &path)?;
    file.set_length(text.len() as u64).at("cut", &path)?;
    file.sync().at("flush", &path)
}

/// Says that the store was closed in order.
pub(crate) fn mark_closed(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let path = root.join(ABORT);
    fs.remove(&path).at("remove", &path)?;
    fs.sync_directory(root).at("flush", root)
}
