//! A request in flight, for threads without a runtime.

use super::NetError;
use crate::command::Command;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A request in flight, for threads.
#[derive(Debug)]
pub struct Call {
    slot: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    outcome: Mutex<Option<Result<Command, NetError>>>,
    ready: Condvar,
}

impl Call {
    /// Creates a call and the callback that completes it.
    pub(super) fn new() -> (Self, impl FnOnce(Result<Command, NetError>) + Send + 'static) {
        let slot = Arc::new(Slot::default());
        let ending = slot.clone();
        let callback = move |result| {
            *ending.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            ending.ready.notify_all();
        };
        (Self { slot }, callback)
    }

    /// Waits up to `slice` for the outcome, which is returned once. `None`: not yet.
    pub fn wait(&self, slice: Duration) -> Option<Result<Command, NetError>> {
        let outcome = self.slot.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut outcome, _) = self
            .slot
            .ready
            .wait_timeout_while(outcome, slice, |outcome| outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        outcome.take()
    }
}
