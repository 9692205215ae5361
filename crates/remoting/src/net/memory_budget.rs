//! The memory that a server's answers may take while they wait for peers that do not read, and that halves of large
//! frames may take while their peers do not write.
//!
//! A connection may keep as much as all of them together leave free, and no more than its own bound: one slow reader
//! gets all of that, `n` of them get the `n + 1`th part of the total each, and whoever comes next still finds room (the
//! dynamic threshold of switches with shared memory, Choudhury and Hahne 1998). Below a floor nobody is stopped, so
//! that all go on.
//!
//! Connections tell in steps, so that small answers never touch what is shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection reports its bytes again when they differ by this many from its last report.
const REPORT_STEP: usize = 64 * 1024;
/// Each connection may keep this.
pub(super) const MIN_SHARE: usize = 128 * 1024;

/// What a server's connections share.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    total: usize,
    taken: AtomicUsize,
}

impl MemoryBudget {
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            taken: AtomicUsize::new(0),
        })
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// One connection's part; given back when it is dropped.
#[derive(Debug)]
pub(super) struct BudgetShare {
    shared: Arc<MemoryBudget>,
    reported: usize,
}

impl BudgetShare {
    pub(super) fn of(shared: &Arc<MemoryBudget>) -> Self {
        Self {
            shared: Arc::clone(shared),
            reported: 0,
        }
    }

    /// Takes in that `bytes` bytes wait now.
    pub(super) fn report(&mut self, bytes: usize) {
        if bytes.abs_diff(self.reported) < REPORT_STEP && bytes != 0 {
            return;
        }
        if bytes > self.reported {
            self.shared
                .taken
                .fetch_add(bytes - self.reported, Ordering::Relaxed);
        } else if bytes < self.reported {
            self.shared
                .taken
                .fetch_sub(self.reported - bytes, Ordering::Relaxed);
        }
        self.reported = bytes;
    }

    /// How many bytes may wait before nothing more is read, where the connection's own bound is `most`.
    pub(super) fn allowed(&self, most: usize) -> usize {
        let free = self.shared.total.saturating_sub(self.shared.taken());
        most.min(free.max(MIN_SHARE))
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.report(0);
    }
}
