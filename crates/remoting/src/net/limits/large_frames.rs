//! Limits how many large frames are read at a time: while a few are read and processed, the others wait in their
//! sockets.
//!
//! Otherwise a hundred peers that send megabytes at once would make every small request wait for all of them, and hold
//! all of it in memory. A permit is held while a frame is read and until its request is answered. It is released while
//! the peer is slow, so no peer can keep it by stalling. The received part of a frame then stays in memory;
//! `partial_frames.rs` limits that.

use crate::net::options::LargeFrames;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of one server.
#[derive(Debug)]
pub(crate) struct LargeFramePermits {
    bytes: usize,
    pub(crate) permits: Arc<Semaphore>,
}

impl LargeFramePermits {
    pub(crate) fn new(options: LargeFrames) -> Self {
        Self {
            bytes: options.bytes,
            permits: Arc::new(Semaphore::new(options.at_once)),
        }
    }

    /// Returns true if a frame of this size is large.
    pub(crate) fn is_large(&self, frame: usize) -> bool {
        frame >= self.bytes
    }
}

/// The right to read a large frame.
pub(crate) type LargeFramePermit = OwnedSemaphorePermit;

/// State of one connection's permit.
#[derive(Default)]
pub(crate) enum PermitState {
    /// The connection reads no large frame.
    #[default]
    None,
    /// The connection waits in line.
    Waiting(Pin<Box<dyn Future<Output = Option<LargeFramePermit>> + Send>>),
    /// The connection is reading a large frame.
    Held(LargeFramePermit),
}

impl std::fmt::Debug for PermitState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Waiting(_) => "Waiting",
            Self::Held(_) => "Held",
        })
    }
}

impl PermitState {
    /// Joins the line, or checks its position. True: it may read.
    pub(crate) fn poll(&mut self, permits: &Arc<Semaphore>, cx: &mut Context<'_>) -> bool {
        if matches!(self, Self::None) {
            let turn = permits.clone().acquire_owned();
            // The semaphore is never closed.
            *self = Self::Waiting(Box::pin(async { turn.await.ok() }));
        }
        if let Self::Waiting(turn) = self {
            let Poll::Ready(turn) = turn.as_mut().poll(cx) else {
                return false;
            };
            *self = turn.map_or(Self::None, Self::Held);
        }
        true
    }

    /// Returns true while in line: the peer is not the slow side.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// Takes the permit, to hold it for the request that was read or to release it.
    pub(crate) fn take(&mut self) -> Option<LargeFramePermit> {
        match std::mem::take(self) {
            Self::Held(permit) => Some(permit),
            Self::None | Self::Waiting(_) => None,
        }
    }
}
