//! Limits the memory of requests that wait, and the share of one connection.
//!
//! A connection that uses its share leaves room for the others in one of two ways. If the order of its requests
//! matters, it is slowed down: it is not read until none of them waits, and loses none. Searches may be served in any
//! order, and further ones are refused: everything that a process sends to a broker comes on one connection, and must
//! not wait for them. A request that still does not fit is refused.

use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Pause, Peer};
use pyrmq_remoting::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The bytes that a request uses in addition to its fields and its body.
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

    /// Whether one more request fits.
    fn leaves(self, more: Self, most: Self) -> bool {
        self.requests < most.requests && self.bytes + more.bytes <= most.bytes
    }

    fn remove(&mut self, less: Self) {
        self.requests = self.requests.saturating_sub(less.requests);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// Copies a request, so that it does not keep the buffer of its frame, which also holds other requests.
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

/// The load of the waiting requests, and its limit.
#[derive(Debug)]
pub(super) struct Backlog {
    limit: Load,
    /// The load of one connection before it is slowed down or refused.
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

/// Why a request did not fit: what is used, and the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The requests of all connections use too much: their load, and the limit.
    OfAll(Load, Load),
    /// The requests of its own connection use too much: their load, and the limit.
    OfConnection(Load, Load),
}

impl Backlog {
    /// Creates a backlog for this load. A connection may have one of `parts` parts of it.
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

    /// Counts a request, if it fits into the limit of all requests and into that of its connection. The first one of a
    /// connection may be larger than its share.
    pub(super) fn enter_in_share(self: &Arc<Self>, peer: &Peer, load: Load) -> Result<BacklogEntry, NoRoom> {
        let mut used = lock(&self.used);
        let of_connection = used.connections.get(&peer.id());
        let of_connection = of_connection.map_or_else(Load::default, |connection| connection.used);
        if of_connection.requests > 0 && !of_connection.leaves(load, self.share) {
            return Err(NoRoom::OfConnection(of_connection, self.share));
        }
        if !used.all.leaves(load, self.limit) {
            return Err(NoRoom::OfAll(used.all, self.limit));
        }
        used.all.add(load);
        used.connections.entry(peer.id()).or_default().used.add(load);
        Ok(self.entry(peer, load))
    }

    fn entry(self: &Arc<Self>, peer: &Peer, load: Load) -> BacklogEntry {
        BacklogEntry {
            backlog: Arc::clone(self),
            peer: peer.id(),
            load,
        }
    }

    /// Counts a request. One that may not be refused always fits. A connection that then uses its share is not read.
    pub(super) fn enter(
        self: &Arc<Self>,
        peer: &Peer,
        load: Load,
        may_refuse: bool,
    ) -> Result<BacklogEntry, BacklogFull> {
        let mut used = lock(&self.used);
        let is_full = !used.all.leaves(load, self.limit);
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
        Ok(self.entry(peer, load))
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

    #[test]
    fn a_connection_is_refused_more_than_its_share_and_read_on() {
        let most = Load {
            requests: 9,
            bytes: 900,
        };
        let backlog = Backlog::new(most, 3);
        let ((one, line), (other, _)) = (Line::peer(1), Line::peer(2));
        let large = backlog.enter_in_share(&one, of(301)).unwrap();
        let share = Load {
            requests: 3,
            bytes: 300,
        };
        assert_eq!(
            backlog.enter_in_share(&one, of(1)).unwrap_err(),
            NoRoom::OfConnection(of(301), share)
        );
        drop(large);
        let mut entries: Vec<_> = (0..3)
            .map(|_| backlog.enter_in_share(&one, of(100)).unwrap())
            .collect();
        let used = Load {
            requests: 3,
            bytes: 300,
        };
        assert_eq!(
            backlog.enter_in_share(&one, of(0)).unwrap_err(),
            NoRoom::OfConnection(used, share)
        );
        assert_eq!(
            backlog.enter_in_share(&other, of(601)).unwrap_err(),
            NoRoom::OfAll(used, most)
        );
        assert_eq!(line.pauses(), 0);
        entries.pop();
        entries.push(backlog.enter_in_share(&one, of(100)).unwrap());
        entries.push(backlog.enter_in_share(&other, of(100)).unwrap());
        drop(entries);
        assert!(backlog.is_empty());
    }
}
