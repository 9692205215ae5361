//! The files of a log.

use crate::error::StoreError;
use crate::fs::Fs;
use crate::log::segment::list_segments;
use std::path::{Path, PathBuf};

/// A file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Position of its first byte.
    pub base: i64,
    /// Length of the file, bytes.
    pub length: i64,
}

impl LogFile {
    /// Position after its last byte.
    pub fn end(&self) -> i64 {
        self.base.saturating_add(self.length)
    }
}

/// The files of the log in a directory, in order: those named by the position of their first byte, twenty digits. An
/// empty one was being created when the broker stopped, and is skipped.
pub fn log_files(fs: &dyn Fs, directory: &Path) -> Result<Vec<LogFile>, StoreError> {
    let files = list_segments(fs, directory)?
        .into_iter()
        .filter(|(_, entry)| entry.length > 0);
    Ok(files
        .filter_map(|(base, entry)| {
            Some(LogFile {
                base,
                length: i64::try_from(entry.length).ok()?,
                path: directory.join(entry.name),
            })
        })
        .collect())
}
