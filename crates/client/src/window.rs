//! What one broker has of the messages on their way, and how many it may have.
//!
//! The window shrinks when the broker says that it has too much to do, at most five times a second: to a quarter the
//! first time, for it may be far too wide, to half after that. It grows by an eighth for each quarter of it that is
//! confirmed, and near the width at which the broker had too much by a sixty-fourth only: real brokers refuse what
//! waited for 200 ms, so a window that is wider than they are fast would fail most of its messages.

use std::time::{Duration, Instant};

/// A window never shrinks below this.
const MIN_WINDOW: usize = 64;
/// Many refusals at once are one.
const SHRINK_INTERVAL: Duration = Duration::from_millis(200);

/// What is on its way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Used {
    pub(crate) fn add(&mut self, messages: usize, bytes: usize) {
        self.messages += messages;
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, messages: usize, bytes: usize) {
        self.messages = self.messages.saturating_sub(messages);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The window of one broker.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) used: Used,
    most: usize,
    width: usize,
    // When it shrank, how much was on its way then, and what was confirmed since it last changed.
    shrank: Option<(Instant, usize)>,
    confirmed: usize,
}

impl Window {
    /// At most this many messages, until the broker says that this is too much.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            used: Used::default(),
            most,
            width: most,
            shrank: None,
            confirmed: 0,
        }
    }

    /// Messages that may be on their way to the broker.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn is_narrow(&self) -> bool {
        self.width < self.most
    }

    /// The broker has too much to do.
    pub(crate) fn shrink_window(&mut self, now: Instant) {
        if self.shrank.is_some_and(|(at, _)| now < at + SHRINK_INTERVAL) {
            return;
        }
        let used = self.width.min(self.used.messages.max(1));
        let part = if self.shrank.is_none() { used / 4 } else { used / 2 };
        self.width = part.max(MIN_WINDOW).min(self.most);
        (self.shrank, self.confirmed) = (Some((now, used)), 0);
    }

    /// The broker has confirmed this many.
    pub(crate) fn confirm(&mut self, messages: usize) {
        self.confirmed += messages;
        let width = self.width;
        if self.confirmed >= width / 4 {
            self.confirmed = 0;
            let is_near = self
                .shrank
                .is_some_and(|(_, was)| (was / 4 * 3..was / 4 * 5).contains(&width));
            let step = if is_near { width / 64 } else { width / 8 };
            self.width = (width + step + 1).min(self.most);
        }
    }
}
