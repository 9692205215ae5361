//! Work of background tasks that waits for the disk.

use crate::stats::Stats;
use std::sync::atomic::Ordering;
use thiserror::Error;
use tokio::task::spawn_blocking;

/// Why work of a background task failed.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum BlockingError<E> {
    /// The work returned this error.
    #[error("{0}")]
    Failed(E),
    /// The work panicked.
    #[error("its thread panicked")]
    Panicked,
}

/// Runs work that waits for the disk on a thread of its own. A panic is counted, and is an error of the work.
pub(crate) async fn on_blocking_thread<T: Send + 'static, E: Send + 'static>(
    stats: &Stats,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, BlockingError<E>> {
    let Ok(done) = spawn_blocking(work).await else {
        stats.panics.fetch_add(1, Ordering::Relaxed);
        return Err(BlockingError::Panicked);
    };
    done.map_err(BlockingError::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_panics_has_failed_and_is_counted() {
        let stats = Stats::default();
        let done = |work: fn() -> Result<i32, &'static str>| on_blocking_thread(&stats, work);
        assert_eq!(done(|| Ok(1)).await, Ok(1));
        let failed = done(|| Err("disk full")).await;
        assert_eq!(failed, Err(BlockingError::Failed("disk full")));
        assert_eq!(stats.panics.load(Ordering::Relaxed), 0);
        let panicked = done(|| panic!("as if it had a bug")).await;
        assert_eq!(panicked, Err(BlockingError::Panicked));
        assert_eq!(stats.panics.load(Ordering::Relaxed), 1);
    }
}
