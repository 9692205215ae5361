//! Large frames are read a few at a time: while some are read and worked on, the others wait in their sockets.
//!
//! A hundred peers that send megabytes at once would else have every small request wait for a round of all of them, and
//! have all of it in memory. A permit is held while a frame is read and until its request is answered; it is given back
//! while the peer is slow, so nobody can keep it by stalling. What has come of a frame stays in memory then;
//! `partial_frames.rs` bounds that.

use super::options::LargeFrames;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of one server.
#[derive(Debug)]
pub(super) struct LargeFramePermits {
    bytes: usize,
    pub(super) permits: Arc<Semaphore>,
}

impl LargeFramePermits {
    pub(super) fn new(options: LargeFrames) -> Self {
        Self {
            bytes: options.bytes,
            permits: Arc::new(Semaphore::new(options.at_once)),
        }
    }

    /// True for a frame of this size.
    pub(super) fn is_large(&self, frame: usize) -> bool {
        frame >= self.bytes
    }
}

/// The right to read a large frame.
pub(super) type Permit = OwnedSemaphorePermit;

/// Where one connection stands.
#[derive(Default)]
pub(super) enum PermitState {
    /// It reads nothing large.
    #[default]
    None,
    /// In the line.
    Waiting(Pin<Box<dyn Future<Output = Option<Permit>> + Send>>),
    /// Its frame is being read.
    Held(Permit),
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
    /// Gets in line, or asks how far the line is. True: it may read.
    pub(super) fn poll(&mut self, permits: &Arc<Semaphore>, cx: &mut Context<'_>) -> bool {
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

    /// True while in the line: it is not the peer that is slow.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// The permit, for the request that was read by it; or to give it back.
    pub(super) fn take(&mut self) -> Option<Permit> {
        match std::mem::take(self) {
            Self::Held(permit) => Some(permit),
            Self::None | Self::Waiting(_) => None,
        }
    }
}
