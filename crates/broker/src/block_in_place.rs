//! tokio's `block_in_place` for waits and writes that may take as long as the disk hangs, with a limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task;

/// Maximum number of threads of runtimes that block like this at once. The runtime replaces each by one of its threads
/// for blocking work, of which it has 512 by default.
const MAX_BLOCKED: usize = 256;

static BLOCKED: AtomicUsize = AtomicUsize::new(0);

/// Runs a function that may block. On a thread of a runtime, another thread takes over its tasks meanwhile. The
/// function is not run if [`MAX_BLOCKED`] threads block already.
pub(crate) fn block_in_place(run: &mut dyn FnMut()) {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if flavor.ok() != Some(RuntimeFlavor::MultiThread) {
        return run();
    }
    let _counted = Counted;
    if BLOCKED.fetch_add(1, Ordering::Relaxed) < MAX_BLOCKED {
        task::block_in_place(run);
    }
}

/// Takes this thread out of [`BLOCKED`], also after a panic.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        BLOCKED.fetch_sub(1, Ordering::Relaxed);
    }
}
