//! Limits how many queue files are open at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the files that the queues hold open. Above the maximum, a file is opened for each use.
#[derive(Debug)]
pub(crate) struct Handles {
    open: AtomicUsize,
    most: usize,
}

impl Handles {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            open: AtomicUsize::new(0),
            most,
        }
    }

    /// Counts one more open file. Returns false, and counts nothing, at the maximum.
    pub(super) fn acquire(&self) -> bool {
        if self.open.fetch_add(1, Ordering::Relaxed) < self.most {
            return true;
        }
        self.release();
        false
    }

    /// Number of files that may still be opened and kept open.
    pub(crate) fn spare(&self) -> usize {
        self.most.saturating_sub(self.open.load(Ordering::Relaxed))
    }

    /// Counts one open file less.
    pub(super) fn release(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
