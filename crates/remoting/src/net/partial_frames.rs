//! The memory that unfinished frames may take on all connections of a server together.
//!
//! A connection reads on while its part of a frame is smaller than what all of them leave free (`memory_budget.rs`).
//! Where that stops it, it gets in line: a few at a time may read past their share, so that frames come to their end
//! although all memory is taken. Whoever does not send the rest in time then is closed: the server needs the memory for
//! others.

use super::large_frames::PermitState;
use super::memory_budget::{BudgetShare, MIN_SHARE, MemoryBudget};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Connections that may read past their share at a time.
const PAST_AT_ONCE: usize = 4;
/// How soon a connection in the line looks whether others have left it memory.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What a peer past its share must send of its frame within the time that it has.
const PROGRESS: usize = 256 << 10;

/// What a server's connections share.
#[derive(Debug)]
pub(super) struct Halves {
    pub(super) room: Arc<MemoryBudget>,
    past: Arc<Semaphore>,
    /// What a connection past its share has for the rest of its frame, or for [`PROGRESS`] of it.
    time: Duration,
}

impl Halves {
    pub(super) fn new(total: usize, time: Duration) -> Self {
        Self {
            room: MemoryBudget::new(total),
            past: Arc::new(Semaphore::new(PAST_AT_ONCE)),
            time,
        }
    }
}

/// The memory that a server's unfinished frames take, in steps of 64 KiB for each connection.
#[derive(Debug, Clone)]
pub struct UnfinishedFrames(pub(super) Arc<MemoryBudget>);

impl UnfinishedFrames {
    /// Bytes that they take now.
    pub fn bytes(&self) -> usize {
        self.0.taken()
    }

    /// Bytes from which on connections wait in line, or are closed.
    pub fn limit(&self) -> usize {
        self.0.total()
    }
}

/// One connection's unfinished frame.
#[derive(Debug)]
pub(super) struct Half {
    share: BudgetShare,
    past: PermitState,
    /// When more of a frame must be there that was read past the share.
    until: Option<Instant>,
    /// Bytes that the connection has of it, and had when `until` was set.
    bytes: usize,
    bytes_before: usize,
}

impl Half {
    pub(super) fn new(partial_frames: &Halves) -> Self {
        Self {
            share: BudgetShare::of(&partial_frames.room),
            past: PermitState::None,
            until: None,
            bytes: 0,
            bytes_before: 0,
        }
    }

    /// Takes in how many bytes the connection has of a frame. True: they are within its share.
    pub(super) fn fits(&mut self, bytes: usize) -> bool {
        self.share.report(bytes);
        self.bytes = bytes;
        let fits = bytes < MIN_SHARE || bytes < self.share.allowed(usize::MAX);
        if fits && !matches!(self.past, PermitState::None) {
            drop(self.past.take());
            self.until = None;
        }
        fits
    }

    /// For a connection whose frame does not fit: gets it in line. True: it may read on.
    pub(super) fn may_go_past(
        &mut self,
        partial_frames: &Halves,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> bool {
        let may = self.past.poll(&partial_frames.past, cx);
        let goes_on = self.bytes >= self.bytes_before + PROGRESS;
        if may && (self.until.is_none() || goes_on) {
            // A slow peer is let through as long as it sends this much in each span of time.
            (self.until, self.bytes_before) = (Some(now + partial_frames.time), self.bytes);
        }
        may
    }

    /// True while in the line: it is not the peer that is slow.
    pub(super) fn is_waiting(&self) -> bool {
        self.past.is_waiting()
    }

    /// Gives it the whole time again: something else than the peer keeps it from reading.
    pub(super) fn excuse(&mut self, partial_frames: &Halves, now: Instant) {
        if let Some(until) = &mut self.until {
            *until = now + partial_frames.time;
        }
    }

    /// When to look at it again, if at all.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.until.or_else(|| self.is_waiting().then(|| now + LOOK_AGAIN))
    }

    /// True for a frame that was read past its share, and whose rest has not come in time.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }
}
