//! Callbacks of the store other than those of sends. Each is set once, by the program that opened the store.

use crate::message::{BlockInPlace, OnArrival, OnSlowFlush};
use std::sync::{Arc, OnceLock};

/// The listeners of the store.
#[derive(Default)]
pub(crate) struct Listeners {
    arrival: OnceLock<Arc<OnArrival>>,
    slow_flush: OnceLock<Arc<OnSlowFlush>>,
    block_in_place: OnceLock<Arc<BlockInPlace>>,
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

    /// Sets what runs waits and writes that may block for long.
    pub(crate) fn set_block_in_place(&self, callback: Arc<BlockInPlace>) {
        if self.block_in_place.set(callback).is_err() {
            tracing::warn!("a second callback for functions that block was ignored");
        }
    }

    pub(crate) fn arrival(&self) -> Option<&Arc<OnArrival>> {
        self.arrival.get()
    }

    pub(crate) fn slow_flush(&self) -> Option<&Arc<OnSlowFlush>> {
        self.slow_flush.get()
    }

    /// Runs a function that may block for long, through the callback of [`Store::set_block_in_place`]: another thread
    /// takes over the other work of this one. If too many threads block like this, the function is not run.
    ///
    /// [`Store::set_block_in_place`]: crate::Store::set_block_in_place
    pub(crate) fn block_in_place(&self, run: &mut dyn FnMut()) {
        match self.block_in_place.get() {
            Some(callback) => callback(run),
            None => run(),
        }
    }
}
