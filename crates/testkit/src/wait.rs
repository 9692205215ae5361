//! Waiting for a condition instead of sleeping.

use std::future::Future;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Nothing in a test takes longer than this unless something is wrong.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Waits until the condition holds; false when it still does not after [`LIMIT`].
pub async fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let poll = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, poll).await.is_ok()
}

/// The future's result.
///
/// # Panics
/// When it takes longer than [`LIMIT`].
pub async fn soon<F: Future>(future: F) -> F::Output {
    match timeout(LIMIT, future).await {
        Ok(output) => output,
        Err(elapsed) => panic!("still waiting after {LIMIT:?}: {elapsed}"),
    }
}
