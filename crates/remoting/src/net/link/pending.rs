//! Requests that wait for the peer's answer, by opaque number.
//!
//! A scan finds expired deadlines; there is no timer for each request. Only the earliest deadline added since the last
//! scan is kept, so a busy connection scans once per timeout, at any rate.

use crate::command::Command;
use crate::error::WireError;
use crate::hash::NameMap;
use crate::net::NetError;
use crate::sync::Completion;
use bytes::Bytes;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// A request with all of its data in one allocation: it writes its own frame, and handles the outcome.
pub trait OutboundRequest: Completion<Result<Command, NetError>> {
    /// Returns its destination, `host:port`.
    fn address(&self) -> &str;
    /// Appends its frame without the body, with this opaque number. Called again if the number changes.
    fn write_head(&self, opaque: i32, out: &mut Vec<u8>) -> Result<(), WireError>;
    /// Returns its body.
    fn body(&self) -> &Bytes;
    /// Called once it is queued: releases what it needed only for writing, on the thread that owns it.
    fn on_queued(&mut self) {}
}

/// Receives a request's outcome: in the connection's task, or in the sending call if nothing could be queued. It must
/// not block.
pub type Callback = Box<dyn Completion<Result<Command, NetError>>>;

/// One of the clients that share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemberId(u32);

impl MemberId {
    /// A server, which asks its clients.
    pub(crate) const SERVER: Self = Self(0);

    /// The id of the client that joins after this one.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One waiting request.
pub(crate) struct PendingRequest {
    pub(crate) deadline: Instant,
    pub(crate) timeout: Duration,
    pub(crate) member: MemberId,
    pub(crate) callback: Callback,
}

impl fmt::Debug for PendingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRequest")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    requests: NameMap<i32, PendingRequest>,
    earliest: Option<Instant>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn contains(&self, opaque: i32) -> bool {
        self.requests.contains_key(&opaque)
    }

    pub(crate) fn insert(&mut self, opaque: i32, request: PendingRequest) {
        self.earliest = Some(
            self.earliest
                .map_or(request.deadline, |earliest| earliest.min(request.deadline)),
        );
        self.requests.insert(opaque, request);
    }

    pub(crate) fn take(&mut self, opaque: i32) -> Option<PendingRequest> {
        self.requests.remove(&opaque)
    }

    /// Returns when [`Pending::expire`] should run next: never later than the first deadline.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Removes every request whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(i32, PendingRequest)> {
        let expired = self
            .requests
            .extract_if(|_, request| request.deadline <= now)
            .collect();
        self.earliest = self.requests.values().map(|request| request.deadline).min();
        expired
    }

    /// Removes every request of one of the clients that share the connection.
    pub(crate) fn take_of(&mut self, member: MemberId) -> Vec<(i32, PendingRequest)> {
        let of_member = self.requests.extract_if(|_, request| request.member == member);
        of_member.collect()
    }

    /// Removes all requests.
    pub(crate) fn drain(&mut self) -> Vec<(i32, PendingRequest)> {
        self.earliest = None;
        std::mem::take(&mut self.requests).into_iter().collect()
    }
}
