//! Bounds what requests that wait for something use of the memory, and what one connection may use of that.
//!
//! A connection with its share is slowed down rather than refused: it is not read until none of its requests waits. So
//! one that sends many at once leaves room to the others, and loses none. What does not fit all the same is refused.

use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Pause, Peer};
use pyrmq_remoting::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// What a request uses besides its fields and its body.
const REQUEST_BYTES: usize = 512;

/// A number of requests and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) requests: usize,
    pub(super) bytes: usize,
}

impl Load {
    /// One request.
    pub(super) fn of(request: &Command) -> Self {
        let body = request.body.as_ref().map_or(0, Bytes::len);
        let fields = request.fields.iter();
        let fields: usize = fields.map(|(key, value)| key.len() + value.len()).sum();
        Self {
            requests: 1,
            bytes: REQUEST_BYTES + fields + body,
        }
    }

    fn add(&mut self, more: Self) {
        self.requests += more.requests;
        self.bytes += more.bytes;
    }

    fn remove(&mut self, less: Self) {
        self.requests = self.requests.saturating_sub(less.requests);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// A request that does not keep the buffer of its frame, which has other requests, too.
pub(super) fn detached(mut request: Command) -> Command {
    let body = request.body.take();
    request.body = body.map(|body| Bytes::copy_from_slice(&body));
    request
}

#[derive(Debug, Default)]
struct Used {
    all: Load,
    connections: HashMap<u64, OfConnection>,
}

#[derive(Debug, Default)]
struct OfConnection {
    used: Load,
    /// Keeps the connection from being read while it uses its share.
    pause: Option<Pause>,
}

/// What the waiting requests use, and may use.
#[derive(Debug)]
pub(super) struct Backlog {
    limit: Load,
    /// From this load on a connection is not read.
    share: Load,
    // Guards what is used.
    used: Mutex<Used>,
}

/// Counts one request in the backlog, until it is dropped.
#[derive(Debug)]
pub(super) struct BacklogEntry {
    backlog: Arc<Backlog>,
    peer: u64,
    load: Load,
}

/// A request did not fit: what the others use.
#[derive(Debug)]
pub(super) struct BacklogFull(pub(super) Load);

impl Backlog {
    /// At most this load waits, and a connection may have one of `parts` of it.
    pub(super) fn new(limit: Load, parts: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            share: Load {
                requests: limit.requests / parts,
                bytes: limit.bytes / parts,
            },
            used: Mutex::default(),
        })
    }

    /// How many requests may wait, with how many bytes.
    pub(super) fn limit(&self) -> Load {
        self.limit
    }

    /// Counts a request. One that may not be refused always fits.
    pub(super) fn enter(
        self: &Arc<Self>,
        peer: &Peer,
        load: Load,
        may_refuse: bool,
    ) -> Result<BacklogEntry, BacklogFull> {
        let mut used = lock(&self.used);
        let is_full =
            used.all.requests >= self.limit.requests || used.all.bytes + load.bytes > self.limit.bytes;
        if is_full && may_refuse {
            return Err(BacklogFull(used.all));
        }
        used.all.add(load);
        let connection = used.connections.entry(peer.id()).or_default();
        connection.used.add(load);
        let OfConnection { used, pause } = connection;
        if is_full || used.requests >= self.share.requests || used.bytes >= self.share.bytes {
            pause.get_or_insert_with(|| peer.pause());
        }
        Ok(BacklogEntry {
            backlog: Arc::clone(self),
            peer: peer.id(),
            load,
        })
    }

    /// Whether nothing waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let used = lock(&self.used);
        used.all == Load::default() && used.connections.is_empty()
    }
}

impl Drop for BacklogEntry {
    fn drop(&mut self) {
        let mut used = lock(&self.backlog.used);
        used.all.remove(self.load);
        let Some(connection) = used.connections.get_mut(&self.peer) else {
            return;
        };
        connection.used.remove(self.load);
        if connection.used.requests == 0 {
            used.connections.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::site::Line;

    fn of(bytes: usize) -> Load {
        Load { requests: 1, bytes }
    }

    #[test]
    fn a_connection_with_its_share_is_not_read_until_it_has_nothing_there() {
        let limit = Load {
            requests: 8,
            bytes: 800,
        };
        let backlog = Backlog::new(limit, 4);
        let (peer, line) = Line::peer(1);
        let paused = || line.pauses();
        for (first, second) in [(10, 10), (10, 190), (200, 1)] {
            let first_entry = backlog.enter(&peer, of(first), true).unwrap();
            assert_eq!(paused(), usize::from(first >= 200), "{first}");
            let second_entry = backlog.enter(&peer, of(second), true).unwrap();
            assert_eq!(paused(), 1, "{first} and {second}");
            drop(first_entry);
            assert_eq!(paused(), 1, "{first} and {second}: one is left");
            drop(second_entry);
            assert_eq!(paused(), 0, "{first} and {second}");
        }
        assert!(backlog.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_may_not_be_refused_pauses_its_connection() {
        let limit = Load {
            requests: 2,
            bytes: 1000,
        };
        let backlog = Backlog::new(limit, 1);
        let ((one, _), (other, line)) = (Line::peer(1), Line::peer(2));
        let large = backlog.enter(&one, of(1000), true).unwrap();
        let BacklogFull(used) = backlog.enter(&other, of(1), true).unwrap_err();
        assert_eq!(used, of(1000));
        assert_eq!(line.pauses(), 0);
        let leaves = backlog.enter(&other, of(1), false).unwrap();
        assert_eq!(line.pauses(), 1);
        drop((large, leaves));
        assert!(backlog.is_empty());
        assert!(backlog.enter(&other, of(1), true).is_ok());
    }
}
