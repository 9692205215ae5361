//! The calls by which the caller's language takes the callbacks of a consumer.

use crate::consumer::callbacks::{Callback, CallbackAnswer};
use crate::consumer::puller::Puller;
use std::task::Poll;
use std::time::Duration;

impl Puller {
    /// From now on this consumer's callbacks are taken.
    pub fn serve_callbacks(&self) {
        self.shared.callbacks.serve();
    }

    /// The next callback with its number; waits up to `slice`. `Ready(None)`: the wait was ended before.
    pub fn next_callback(&self, slice: Duration) -> Poll<Option<(u64, Callback)>> {
        self.shared.callbacks.take(slice)
    }

    /// Ends the wait for the next callback: the thread that takes callbacks has something else to do.
    pub fn wake_callbacks(&self) {
        self.shared.callbacks.wake();
    }

    /// Answers a callback.
    pub fn answer_callback(&self, number: u64, answer: CallbackAnswer) {
        self.shared.callbacks.answer(number, answer);
    }
}
