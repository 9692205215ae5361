//! Frames that wait for a connection's task, in their order.
//!
//! ```text
//! entries  [command][head 0..301][head 301..608][command]...
//! heads    the written ones' heads, each with its body behind it where that is small
//! ```
//! A frame comes as a command, whose head the task writes, or as a head that its sender has written: that one costs no
//! allocation, and nothing is freed by another thread than the one that made it.

use crate::command::Command;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;

/// Head bytes assumed for a frame that is not written yet.
const HEAD_ESTIMATE: usize = 256;
/// Bodies up to this size are copied behind their head: a slice of its own costs the kernel more than copying so few
/// bytes.
pub(super) const INLINE_BODY: usize = 512;
/// Entries and bytes of heads that an empty queue may keep room for.
const KEEP_ENTRIES: usize = 1024;
const KEEP_BYTES: usize = 64 * 1024;

thread_local! {
    static HEAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Hands out this thread's buffer for one head. It is taken, not borrowed: what is done with it may write another head.
pub(super) fn with_head(write: impl FnOnce(&mut Vec<u8>)) {
    let mut head = HEAD.take();
    head.clear();
    write(&mut head);
    if head.capacity() <= KEEP_BYTES {
        HEAD.set(head);
    }
}

/// What a waiting frame with such a body costs its connection, in bytes.
pub(super) fn cost_of(body: usize) -> usize {
    body + HEAD_ESTIMATE
}

/// A frame whose head is written.
#[derive(Debug)]
pub(super) struct Written {
    /// A request's number; nobody waits for the outcome of an answer.
    pub(super) request: Option<i32>,
    pub(super) cost: usize,
    /// Where its head lies, in front of a small body.
    at: Range<usize>,
    /// A body that is not small.
    pub(super) body: Option<Bytes>,
}

#[derive(Debug)]
pub(super) enum Entry {
    Command(Command),
    Written(Written),
}

impl Entry {
    /// What it costs its connection, in bytes.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Command(command) => cost_of(command.body.as_ref().map_or(0, Bytes::len)),
            Self::Written(written) => written.cost,
        }
    }

    /// The number of a request.
    pub(super) fn request(&self) -> Option<i32> {
        match self {
            Self::Command(command) => (!command.is_response()).then_some(command.opaque),
            Self::Written(written) => written.request,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct SendQueue {
    entries: VecDeque<Entry>,
    heads: Vec<u8>,
}

impl SendQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, command: Command) {
        self.entries.push_back(Entry::Command(command));
    }

    /// Adds a frame whose head was written.
    pub(super) fn push_written(&mut self, request: Option<i32>, head: &[u8], body: Option<&Bytes>) {
        let start = self.heads.len();
        self.heads.extend_from_slice(head);
        let size = body.map_or(0, Bytes::len);
        let mut large = None;
        match body {
            Some(body) if size <= INLINE_BODY => self.heads.extend_from_slice(body),
            body => large = body.cloned(),
        }
        self.entries.push_back(Entry::Written(Written {
            request,
            cost: cost_of(size),
            at: start..self.heads.len(),
            body: large,
        }));
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// The bytes of a written head; they stay until the queue is handed back empty.
    pub(super) fn head(&self, written: &Written) -> &[u8] {
        self.heads.get(written.at.clone()).unwrap_or_default()
    }

    /// Keeps what `keep` says.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
    }

    /// The numbers of the requests in it.
    pub(super) fn requests(&self) -> impl Iterator<Item = i32> {
        self.entries.iter().filter_map(Entry::request)
    }

    /// Forgets the heads of those that have left; nothing is in it.
    pub(super) fn clear(&mut self) {
        self.heads.clear();
    }

    /// Gives back memory that a busy time needed; nothing is in it, or it waits for a slow peer.
    pub(super) fn shrink(&mut self) {
        if self.entries.capacity() > KEEP_ENTRIES {
            self.entries.shrink_to(64);
        }
        if self.entries.is_empty() && self.heads.capacity() > KEEP_BYTES {
            self.heads = Vec::new();
        }
    }
}
