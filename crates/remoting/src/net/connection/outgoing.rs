//! One batch of frames that is written to the socket.
//!
//! ```text
//! heads     [head 0][head 1][small body 1][head 2]...          one buffer for the whole batch
//! segments  Heads(0..h0) Body(b0) Heads(h0..h2) Body(b2) ...   one slice of the vectored write each
//! ```
//! A body is written from its own memory. Only bodies up to [`INLINE_BODY`] bytes are copied after their head: a
//! separate slice costs the kernel more than copying these few bytes.

use crate::command::Command;
use crate::error::WireError;
use crate::frame;
use crate::net::link::send_queue::{INLINE_BODY, QueuedFrame, SendQueue};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// A batch accepts frames until it has this many bytes.
const BATCH_BYTES: usize = 256 * 1024;
/// Maximum number of slices of one vectored write.
const SLICES: usize = 64;
/// A head buffer larger than this is released while the connection sleeps.
const KEEP_BYTES: usize = 64 * 1024;

#[derive(Debug)]
enum Segment {
    /// Up to this position of `heads`.
    Heads(usize),
    Body(Bytes),
}

/// A frame that could not be encoded, and the error.
pub(super) type Unencodable = (Command, WireError);

#[derive(Debug, Default)]
pub(super) struct WriteBatch {
    heads: Vec<u8>,
    segments: VecDeque<Segment>,
    /// Position of the first unwritten byte of `heads`.
    at: usize,
    /// Written bytes of the first segment if it is a body.
    body_at: usize,
    cost: usize,
}

impl WriteBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Takes frames from the front of `ready`. The batch must be empty. Frames that cannot be encoded go to `refused`.
    pub(super) fn fill(&mut self, ready: &mut SendQueue, refused: &mut Vec<Unencodable>) {
        self.at = 0;
        self.body_at = 0;
        self.heads.clear();
        let mut bodies = 0;
        while self.heads.len() + bodies < BATCH_BYTES {
            let Some(queued) = ready.pop() else {
                break;
            };
            self.cost += queued.cost();
            let mut command = match queued {
                QueuedFrame::Command(command) => command,
                QueuedFrame::Written(written) => {
                    self.heads.extend_from_slice(ready.head(&written));
                    bodies += self.follow(written.body);
                    continue;
                }
            };
            let start = self.heads.len();
            if let Err(error) = frame::encode_head(&command, &mut self.heads) {
                self.heads.truncate(start);
                refused.push((command, error));
                continue;
            }
            bodies += self.follow(command.body.take());
        }
        let ended = match self.segments.iter().rev().nth(1) {
            Some(Segment::Heads(end)) => *end,
            _ => 0,
        };
        if self.heads.len() > ended {
            self.segments.push_back(Segment::Heads(self.heads.len()));
        }
    }

    /// Adds the body of the frame whose head was written last. Returns the bytes that are not among the heads.
    fn follow(&mut self, body: Option<Bytes>) -> usize {
        match body {
            Some(body) if body.len() <= INLINE_BODY => self.heads.extend_from_slice(&body),
            Some(body) => {
                let size = body.len();
                self.segments.push_back(Segment::Heads(self.heads.len()));
                self.segments.push_back(Segment::Body(body));
                return size;
            }
            None => {}
        }
        0
    }

    /// Releases memory after a busy period, when the connection sleeps.
    pub(super) fn shrink(&mut self) {
        if self.segments.is_empty() && self.heads.capacity() > KEEP_BYTES {
            self.heads = Vec::new();
        }
    }

    /// Takes the bytes that the batch counted for its connection; called once, when it is written.
    pub(super) fn take_cost(&mut self) -> usize {
        std::mem::take(&mut self.cost)
    }

    /// Performs one vectored write. Returns the bytes that the socket accepted.
    pub(super) fn poll_write<S: AsyncWrite>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut used = 0;
        let mut at = self.at;
        let mut body_at = self.body_at;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            *slice = IoSlice::new(match segment {
                Segment::Heads(end) => {
                    let heads = self.heads.get(at..*end).unwrap_or_default();
                    at = *end;
                    heads
                }
                Segment::Body(body) => body.get(std::mem::take(&mut body_at)..).unwrap_or_default(),
            });
            used += 1;
        }
        let written = ready!(stream.poll_write_vectored(cx, slices.get(..used).unwrap_or_default()))?;
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(segment) = self.segments.front() {
            let left = match segment {
                Segment::Heads(end) => end.saturating_sub(self.at),
                Segment::Body(body) => body.len().saturating_sub(self.body_at),
            };
            let took = left.min(written);
            written -= took;
            match segment {
                Segment::Heads(_) => self.at += took,
                Segment::Body(_) => self.body_at += took,
            }
            if took < left {
                break;
            }
            if matches!(segment, Segment::Body(_)) {
                self.body_at = 0;
            }
            self.segments.pop_front();
        }
    }
}
