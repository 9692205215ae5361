//! Frames that wait for a connection's task, in order.
//!
//! ```text
//! frames  [command][head 0..301][head 301..608][command]...
//! heads   the written ones' heads, each followed by its body if that is small
//! ```
//! A frame is either a command, whose head the task writes, or a head that its sender has written. The latter costs no
//! allocation, and no thread frees memory that another one allocated.

use crate::command::Command;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;

/// Head bytes assumed for a frame that is not written yet.
const HEAD_ESTIMATE: usize = 256;
/// What a written head, with its small body, usually takes.
pub(crate) const HEAD_ROOM: usize = 512;
/// Bodies up to this size are copied after their head: a separate slice costs the kernel more than copying these few
/// bytes.
pub(crate) const INLINE_BODY: usize = 512;
/// Capacity, in frames and in bytes of heads, that an empty queue may keep.
const KEEP_FRAMES: usize = 1024;
const KEEP_BYTES: usize = 64 * 1024;

/// Returns the bytes that a waiting frame with a body of this length counts for its connection.
pub(crate) fn cost_of(body: usize) -> usize {
    body + HEAD_ESTIMATE
}

/// A frame whose head is already written.
#[derive(Debug)]
pub(crate) struct Written {
    /// The opaque number of a request; `None` for an answer.
    pub(crate) request: Option<i32>,
    pub(crate) cost: usize,
    /// Range of the frame's head in `heads`, including a small body after it.
    at: Range<usize>,
    /// The frame's body; `None` if it was copied after the head.
    pub(crate) body: Option<Bytes>,
}

#[derive(Debug)]
pub(crate) enum QueuedFrame {
    Command(Command),
    Written(Written),
}

impl QueuedFrame {
    /// Returns the bytes that the frame counts for its connection.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::Command(command) => cost_of(command.body.as_ref().map_or(0, Bytes::len)),
            Self::Written(written) => written.cost,
        }
    }

    /// Returns the opaque number of a request.
    pub(crate) fn request(&self) -> Option<i32> {
        match self {
            Self::Command(command) => (!command.is_response()).then_some(command.opaque),
            Self::Written(written) => written.request,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    frames: VecDeque<QueuedFrame>,
    heads: Vec<u8>,
}

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn push(&mut self, command: Command) {
        self.frames.push_back(QueuedFrame::Command(command));
    }

    /// Adds a frame whose head is already written.
    pub(crate) fn push_written(&mut self, request: Option<i32>, head: &[u8], body: Option<&Bytes>) {
        let start = self.heads.len();
        self.heads.extend_from_slice(head);
        let size = body.map_or(0, Bytes::len);
        let mut large = None;
        match body {
            Some(body) if size <= INLINE_BODY => self.heads.extend_from_slice(body),
            body => large = body.cloned(),
        }
        self.frames.push_back(QueuedFrame::Written(Written {
            request,
            cost: cost_of(size),
            at: start..self.heads.len(),
            body: large,
        }));
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedFrame> {
        self.frames.pop_front()
    }

    /// Returns the bytes of a written head. They stay until the queue is cleared.
    pub(crate) fn head(&self, written: &Written) -> &[u8] {
        self.heads.get(written.at.clone()).unwrap_or_default()
    }

    /// Keeps the frames for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&QueuedFrame) -> bool) {
        self.frames.retain(keep);
    }

    /// Returns the opaque numbers of its requests.
    pub(crate) fn requests(&self) -> impl Iterator<Item = i32> {
        self.frames.iter().filter_map(QueuedFrame::request)
    }

    /// Discards the heads of written frames. The queue must be empty.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
    }

    /// Releases memory after a busy period. The queue is empty, or waits for a slow peer.
    pub(crate) fn shrink(&mut self) {
        if self.frames.capacity() > KEEP_FRAMES {
            self.frames.shrink_to(64);
        }
        if self.frames.is_empty() && self.heads.capacity() > KEEP_BYTES {
            self.heads = Vec::new();
        }
    }
}
