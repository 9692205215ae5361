//! The files of a log.

use crate::error::StoreError;
use crate::format::parse_file_name;
use crate::fs::{Context, Fs};
use std::path::{Path, PathBuf};

/// A file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Where it lies.
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
    let entries = fs.list(directory).at("list", directory)?;
    let files = entries
        .into_iter()
        .filter(|entry| !entry.is_directory && entry.length > 0);
    Ok(files
        .filter_map(|entry| {
            Some(LogFile {
                base: parse_file_name(&entry.name)?,
                length: i64::try_from(entry.length).ok()?,
                path: directory.join(entry.name),
            })
        })
        .collect())
}
