//! Work that waits for the disk: of requests and of background tasks.

use crate::stats::Stats;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

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
    match counted(stats, work).await {
        Ok(done) => done.map_err(BlockingError::Failed),
        Err(_panicked) => Err(BlockingError::Panicked),
    }
}

/// Serves a request on a thread of its own. `None` if that panics, which is counted and logged.
pub(crate) async fn serve_on_blocking_thread<T: Send + 'static>(
    stats: &Stats,
    what: &'static str,
    serve: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    counted(stats, serve)
        .await
        .inspect_err(|error| tracing::error!(%error, "{what} panicked"))
        .ok()
}

async fn counted<T: Send + 'static>(
    stats: &Stats,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    // Boxed: tokio's code for a task is compiled for each type of work.
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    let done = spawn_blocking(work).await;
    if done.is_err() {
        stats.panics.fetch_add(1, Ordering::Relaxed);
    }
    done
}

/// Waits for a permit. Returns whether there was none at once.
pub(crate) async fn wait_for_permit(permits: Arc<Semaphore>) -> (Option<OwnedSemaphorePermit>, bool) {
    match permits.clone().try_acquire_owned() {
        Ok(permit) => (Some(permit), false),
        // The semaphore is never closed.
        Err(_) => (permits.acquire_owned().await.ok(), true),
    }
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
