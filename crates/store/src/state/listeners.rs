//! Callbacks of the store other than those of sends. Each is set once, by the program that opened the store.

use crate::message::{OnArrival, OnLongWait, OnSlowFlush};
use std::sync::{Arc, OnceLock};

/// The listeners of the store.
#[derive(Default)]
pub(crate) struct Listeners {
    arrival: OnceLock<Arc<OnArrival>>,
    slow_flush: OnceLock<Arc<OnSlowFlush>>,
    long_wait: OnceLock<Arc<OnLongWait>>,
}

impl Listeners {
    /// Sets the listener for readable messages.
    pub(crate) fn set_arrival(&self, listener: Arc<OnArrival>) {
        if self.arrival.set(listener).is_err() {
            tracing::warn!("a second arrival listener was ignored");
        }
    }

    /// Sets the callback that runs while an inline fsync is slow.
    pub(crate) fn set_slow_flush(&self, listener: Arc<OnSlowFlush>) {
        if self.slow_flush.set(listener).is_err() {
            tracing::warn!("a second listener for a disk that hangs was ignored");
        }
    }

    /// Sets the callback for waits that may be long.
    pub(crate) fn set_long_wait(&self, listener: Arc<OnLongWait>) {
        if self.long_wait.set(listener).is_err() {
            tracing::warn!("a second callback for long waits was ignored");
        }
    }

    pub(crate) fn arrival(&self) -> Option<&Arc<OnArrival>> {
        self.arrival.get()
    }

    pub(crate) fn slow_flush(&self) -> Option<&Arc<OnSlowFlush>> {
        self.slow_flush.get()
    }

    /// Runs a wait that may be long. Other work of this thread goes on elsewhere; if too many threads wait like this,
    /// the wait is not run.
    pub(crate) fn run_long(&self, wait: &mut dyn FnMut()) {
        match self.long_wait.get() {
            Some(callback) => callback(wait),
            None => wait(),
        }
    }
}
