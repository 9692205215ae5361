//! One file of the log.

use crate::fs::File;
use crate::sync::lock;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One file of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Position of its first byte.
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
