//! Waiting for a condition instead of sleeping.

use std::future::Future;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Limit of every wait in a test: nothing takes longer unless something is wrong.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Waits until the condition holds. Returns false if it does not within [`LIMIT`].
pub async fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let poll = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, poll).await.is_ok()
}

/// Returns the future's result.
///
/// # Panics
/// If it takes longer than [`LIMIT`].
pub async fn in_time<F: Future>(future: F) -> F::Output {
    match timeout(LIMIT, future).await {
        Ok(output) => output,
        Err(elapsed) => panic!("still waiting after {LIMIT:?}: {elapsed}"),
    }
}
