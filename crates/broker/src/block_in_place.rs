//! tokio's `block_in_place` for waits, reads and writes that may take as long as the disk hangs, with limits.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task;

/// Threads of runtimes that block at once. The runtime replaces each by one of its threads for blocking work, of which
/// it has 512 by default.
pub(crate) struct Blocking {
    count: AtomicUsize,
    /// Maximum of `count`.
    limit: usize,
}

/// The waits and writes of the store, which every send may need.
static STORE: Blocking = Blocking::new(256);
/// The reads of pops and peeks, and their waits for queues. However many there are, sends are accepted.
pub(crate) static POPS: Blocking = Blocking::new(128);

/// Runs a wait or a write of the store. The function is not run if too many threads block already.
pub(crate) fn block_in_place(run: &mut dyn FnMut()) {
    STORE.run(run);
}

impl Blocking {
    const fn new(limit: usize) -> Self {
        Self {
            count: AtomicUsize::new(0),
            limit,
        }
    }

    /// Runs a function that may block. On a thread of a runtime, another thread takes over its tasks meanwhile. The
    /// function is not run if the maximum number of threads block already.
    pub(crate) fn run(&self, run: &mut dyn FnMut()) {
        let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
        if flavor.ok() != Some(RuntimeFlavor::MultiThread) {
            return run();
        }
        let _counted = Counted(&self.count);
        if self.count.fetch_add(1, Ordering::Relaxed) < self.limit {
            task::block_in_place(run);
        }
    }
}

/// Takes this thread out of a count, also after a panic.
struct Counted<'c>(&'c AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
