//! Limits the memory of a server's answers that wait for peers that do not read, and of partial frames whose peers do
//! not write.
//!
//! A connection may hold as much as all of them together leave free, and no more than its own limit. So one slow reader
//! gets its whole limit, `n` of them get 1/(`n` + 1) of the total each, and the next one still finds capacity (the
//! dynamic threshold of switches with shared memory, Choudhury and Hahne 1998). Below a floor no connection is stopped,
//! so all make progress.
//!
//! Connections report in steps, so small answers never touch the shared counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection reports its bytes again when they differ by this many from its last report.
const REPORT_STEP: usize = 64 * 1024;
/// Bytes that each connection may always hold.
pub(crate) const MIN_SHARE: usize = 128 * 1024;

/// State shared by a server's connections.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    total: usize,
    taken: AtomicUsize,
}

impl MemoryBudget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            taken: AtomicUsize::new(0),
        })
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// One connection's share; released on drop.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    shared: Arc<MemoryBudget>,
    reported: usize,
}

impl BudgetShare {
    pub(crate) fn of(shared: &Arc<MemoryBudget>) -> Self {
        Self {
            shared: Arc::clone(shared),
            reported: 0,
        }
    }

    /// Reports that `bytes` bytes wait now.
    pub(crate) fn report(&mut self, bytes: usize) {
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

    /// Returns how many bytes may wait before the connection stops reading; its own limit is `most`.
    pub(crate) fn allowed(&self, most: usize) -> usize {
        let free = self.shared.total.saturating_sub(self.shared.taken());
        most.min(free.max(MIN_SHARE))
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.report(0);
    }
}
