//! Waits that may take as long as the disk hangs, without holding up the runtime.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Number of threads of runtimes that may wait like this at once. Each is replaced, by a thread of those that runtimes
/// have for blocking work: 512 by default.
const MAX_WAITING: usize = 256;

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Runs a wait that may be long. On a thread of a runtime, another thread goes on with its other tasks meanwhile; if
/// too many wait already, the wait is not run.
pub(crate) fn wait_long(wait: &mut dyn FnMut()) {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if flavor.ok() != Some(RuntimeFlavor::MultiThread) {
        return wait();
    }
    let _counted = Counted;
    if WAITING.fetch_add(1, Ordering::Relaxed) < MAX_WAITING {
        block_in_place(wait);
    }
}

/// Takes this wait out of [`WAITING`], also if it panics.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}
