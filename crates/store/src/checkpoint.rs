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
const SLACK_MS: i64 = 3000;

/// The numbers of a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) physic_ms: i64,
    pub(crate) logics_ms: i64,
    pub(crate) index_ms: i64,
    master_flushed: i64,
    confirm: i64,
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
        };
        Ok(Self {
            file,
            path,
            times: Mutex::new(times),
        })
    }

    pub(crate) fn times(&self) -> Times {
        *lock(&self.times)
    }

    /// Changes the times; they reach the file with [`Checkpoint::save`].
    pub(crate) fn update(&self, change: impl FnOnce(&mut Times)) {
        change(&mut lock(&self.times));
    }

    /// Writes the file, durably.
    pub(crate) fn save(&self) -> Result<(), StoreError> {
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
        self.file.sync().at("flush", &self.path)
    }
}

/// True when the last store here was not closed. From now on the file is there.
pub(crate) fn mark_open(fs: &dyn Fs, root: &Path) -> Result<bool, StoreError> {
    let path = root.join(ABORT);
    let crashed = fs.exists(&path);
    let file = fs.create(&path).at("create", &path)?;
    file.write_all_at(std::process::id().to_string().as_bytes(), 0)
        .at("write", &path)?;
    file.sync().at("flush", &path)?;
    fs.sync_directory(root).at("flush", root)?;
    Ok(crashed)
}

/// Says that the store was closed in order.
pub(crate) fn mark_closed(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let path = root.join(ABORT);
    fs.remove(&path).at("remove", &path)?;
    fs.sync_directory(root).at("flush", root)
}
