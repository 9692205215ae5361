//! One file of the log.

use crate::error::StoreError;
use crate::format::parse_file_name;
use crate::fs::{Context, DirectoryEntry, File, Fs};
use crate::sync::lock;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One file of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Position of the file's first byte.
    pub(crate) base: i64,
    pub(crate) path: PathBuf,
    /// Guards the open file. Its users hold their own reference to it.
    pub(super) file: Mutex<Option<Arc<dyn File>>>,
    /// Whether it was used since the last search for files to close.
    pub(super) is_used: AtomicBool,
}

impl Segment {
    pub(super) fn new(base: i64, path: PathBuf, file: Option<Arc<dyn File>>) -> Arc<Self> {
        Arc::new(Self {
            base,
            path,
            file: Mutex::new(file),
            is_used: AtomicBool::new(false),
        })
    }

    pub(super) fn opened(&self) -> Option<Arc<dyn File>> {
        let file = lock(&self.file).clone()?;
        self.is_used.store(true, Ordering::Relaxed);
        Some(file)
    }

    pub(super) fn close(&self) {
        *lock(&self.file) = None;
    }
}

/// The files of a log's directory that are named as segments are, with the positions of their first bytes, in order.
pub(crate) fn list_segments(fs: &dyn Fs, directory: &Path) -> Result<Vec<(i64, DirectoryEntry)>, StoreError> {
    let mut found = Vec::new();
    for entry in fs.list(directory).at("list", directory)? {
        let Some(base) = parse_file_name(&entry.name) else {
            continue;
        };
        if !entry.is_file {
            return Err(StoreError::NotAFile {
                path: directory.join(&entry.name),
                what: if entry.is_directory {
                    "a directory"
                } else {
                    "no regular file"
                },
            });
        }
        found.push((base, entry));
    }
    Ok(found)
}
