//! How the parts of a batch that was too long for a broker ended.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The outcomes of the parts of one batch.
#[derive(Debug)]
pub(super) struct SplitOutcome {
    pub(super) whole: usize,
    pub(super) left: AtomicUsize,
    pub(super) longest_stored: AtomicUsize,
    pub(super) has_failed: AtomicBool,
}

impl SplitOutcome {
    /// Records the outcome of a part. Returns the length of the longest part if this was the last one and none failed.
    pub(super) fn end(&self, bytes: usize, is_stored: bool) -> Option<usize> {
        if is_stored {
            self.longest_stored.fetch_max(bytes, Ordering::AcqRel);
        } else {
            self.has_failed.store(true, Ordering::Release);
        }
        let is_last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        let learned = is_last && !self.has_failed.load(Ordering::Acquire);
        learned.then(|| self.longest_stored.load(Ordering::Acquire))
    }
}
