//! Limits the memory of unfinished frames on all connections of a server together.
//!
//! A connection continues to read while its part of a frame is smaller than what all of them leave free
//! (`memory_budget.rs`). Beyond that it waits in line: a few at a time may exceed their share, so that frames complete
//! although all memory is used. A connection that then does not send the rest in time is closed: others need the
//! memory.

use crate::net::limits::large_frames::PermitState;
use crate::net::limits::memory_budget::{BudgetShare, MIN_SHARE, MemoryBudget};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Number of connections that may exceed their share at a time.
const PAST_AT_ONCE: usize = 4;
/// Interval at which a connection in line checks whether others have released memory.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of its frame that a peer over its share must send in its time.
const PROGRESS: usize = 256 << 10;

/// State shared by a server's connections.
#[derive(Debug)]
pub(crate) struct PartialFrames {
    pub(crate) room: Arc<MemoryBudget>,
    past: Arc<Semaphore>,
    /// Time in which a connection over its share must send the rest of its frame, or [`PROGRESS`] bytes of it.
    time: Duration,
}

impl PartialFrames {
    pub(crate) fn new(total: usize, time: Duration) -> Self {
        Self {
            room: MemoryBudget::new(total),
            past: Arc::new(Semaphore::new(PAST_AT_ONCE)),
            time,
        }
    }
}

/// The memory that a server's unfinished frames use, in steps of 64 KiB for each connection.
#[derive(Debug, Clone)]
pub struct UnfinishedFrames(pub(crate) Arc<MemoryBudget>);

impl UnfinishedFrames {
    /// Returns the bytes that they use now.
    pub fn bytes(&self) -> usize {
        self.0.taken()
    }

    /// Returns the bytes beyond which connections wait in line, or are closed.
    pub fn limit(&self) -> usize {
        self.0.total()
    }
}

/// One connection's unfinished frame.
#[derive(Debug)]
pub(crate) struct PartialFrame {
    share: BudgetShare,
    past: PermitState,
    /// Deadline for more of a frame that exceeds the share.
    until: Option<Instant>,
    /// Bytes of the frame that the connection has now, and had when `until` was set.
    bytes: usize,
    bytes_before: usize,
}

impl PartialFrame {
    pub(crate) fn new(partial_frames: &PartialFrames) -> Self {
        Self {
            share: BudgetShare::of(&partial_frames.room),
            past: PermitState::None,
            until: None,
            bytes: 0,
            bytes_before: 0,
        }
    }

    /// Records how many bytes of a frame the connection has. True: they are within its share.
    pub(crate) fn fits(&mut self, bytes: usize) -> bool {
        self.share.report(bytes);
        self.bytes = bytes;
        let fits = bytes < MIN_SHARE || bytes < self.share.allowed(usize::MAX);
        if fits && !matches!(self.past, PermitState::None) {
            drop(self.past.take());
            self.until = None;
        }
        fits
    }

    /// Puts a connection whose frame does not fit in line. True: it may continue to read.
    pub(crate) fn may_go_past(
        &mut self,
        partial_frames: &PartialFrames,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> bool {
        let may = self.past.poll(&partial_frames.past, cx);
        let goes_on = self.bytes >= self.bytes_before + PROGRESS;
        if may && (self.until.is_none() || goes_on) {
            // A slow peer may continue as long as it sends this much in each period.
            (self.until, self.bytes_before) = (Some(now + partial_frames.time), self.bytes);
        }
        may
    }

    /// Returns true while in line: the peer is not the slow side.
    pub(crate) fn is_waiting(&self) -> bool {
        self.past.is_waiting()
    }

    /// Restarts its time: something other than the peer keeps it from reading.
    pub(crate) fn excuse(&mut self, partial_frames: &PartialFrames, now: Instant) {
        if let Some(until) = &mut self.until {
            *until = now + partial_frames.time;
        }
    }

    /// Returns when to check it again, if at all.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        self.until
            .or_else(|| self.is_waiting().then(|| now + CHECK_INTERVAL))
    }

    /// Returns true for a frame that exceeds its share and whose rest has not arrived in time.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }
}
