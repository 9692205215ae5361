//! A request in flight, for threads without a runtime.

use crate::command::Command;
use crate::net::NetError;
use crate::sync::OneShot;
use std::sync::Arc;
use std::time::Duration;

/// A request in flight, for threads.
#[derive(Debug)]
pub struct Call {
    outcome: Arc<OneShot<Result<Command, NetError>>>,
}

impl Call {
    /// Creates a call and the callback that completes it.
    pub(super) fn new() -> (Self, impl FnOnce(Result<Command, NetError>) + Send + 'static) {
        let outcome = Arc::<OneShot<_>>::default();
        let ending = outcome.clone();
        (Self { outcome }, move |result| ending.set(result))
    }

    /// Waits up to `slice` for the outcome, which is returned once. `None`: not yet.
    pub fn wait(&self, slice: Duration) -> Option<Result<Command, NetError>> {
        self.outcome.wait(slice)
    }
}
