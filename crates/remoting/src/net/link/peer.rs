//! A connection as a processor sees it, and the right to answer one request.

use crate::codes::response;
use crate::command::{Command, FLAG_RESPONSE, SerializeType};
use crate::frame;
use crate::header::{Head, HeadWriter};
use crate::net::audit::AuditEntry;
use crate::net::limits::large_frames::LargeFramePermit;
use crate::net::link::pending::Callback;
use crate::net::link::send_queue::HEAD_ROOM;
use crate::net::{CloseReason, NetError};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Queue of a connection's outgoing frames. The server and the client implement it; tests may too.
pub trait Outbox: Send + Sync + 'static {
    /// Queues a frame and wakes the connection's task if it sleeps. A closed connection drops it.
    fn push(&self, command: Command);
    /// Queues the answer to a request of the peer.
    fn reply(&self, command: Command) {
        self.push(command);
    }
    /// Queues an answer without a body whose head is already written.
    fn reply_written(&self, head: &[u8]) {
        match frame::decode(&mut head.into(), &frame::Limits::default()) {
            Ok(Some(command)) => self.reply(command),
            // A partial frame is never written.
            Ok(None) | Err(_) => self.silence(),
        }
    }
    /// Ends a request of the peer without an answer.
    fn silence(&self) {}
    /// Queues a request to the peer and calls back with its outcome, from the connection's task: the callback must
    /// not block.
    fn request(&self, command: Command, timeout: Duration, callback: Callback) {
        let _ = (command, timeout);
        callback.complete(Err(NetError::Closed));
    }
    /// Stops the reading of requests, until [`Outbox::read_on`] was called as often.
    fn pause(&self) {}
    /// Ends one pause.
    fn read_on(&self) {}
    /// Returns true while there are pauses.
    fn is_paused(&self) -> bool {
        false
    }
    /// Returns true once the connection is closed, or its peer has closed it.
    fn is_closed(&self) -> bool;
    /// Closes the connection after all queued frames are written.
    fn close(&self);
}

static NEXT_PEER: AtomicU64 = AtomicU64::new(1);

/// Returns a connection number that is unique in this process.
pub(crate) fn next_peer_id() -> u64 {
    NEXT_PEER.fetch_add(1, Ordering::Relaxed)
}

/// A live connection. Cloning is cheap. Equality compares ids, which are unique in a process.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    id: u64,
    remote: SocketAddr,
    local: SocketAddr,
    outbox: Arc<dyn Outbox>,
}

impl Peer {
    /// Creates a peer over an outbox.
    pub fn new(id: u64, remote: SocketAddr, local: SocketAddr, outbox: Arc<dyn Outbox>) -> Self {
        Self {
            inner: Arc::new(Inner {
                id,
                remote,
                local,
                outbox,
            }),
        }
    }

    /// Returns the connection's number in this process.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Returns the remote address.
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        self.inner.local
    }

    /// Queues a frame unchanged: for notices (oneway requests) to the peer.
    pub fn send(&self, command: Command) {
        self.inner.outbox.push(command);
    }

    /// Sends a request to the peer. The callback receives the answer or the error in the connection's task: it must not
    /// block.
    pub fn request_with(
        &self,
        command: Command,
        timeout: Duration,
        callback: impl FnOnce(Result<Command, NetError>) + Send + 'static,
    ) {
        self.inner.outbox.request(command, timeout, Box::new(callback));
    }

    /// Sends a request to the peer and waits for the answer.
    pub async fn request(&self, command: Command, timeout: Duration) -> Result<Command, NetError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.request_with(command, timeout, |result| drop(sender.send(result)));
        receiver.await.unwrap_or(Err(NetError::Closed))
    }

    /// Returns true once the connection is closed. If the peer closes a paused connection, this is true within a
    /// second, although requests that it sent before may still be served.
    pub fn is_closed(&self) -> bool {
        self.inner.outbox.is_closed()
    }

    /// Reads no more requests of this connection while what is returned lives; its peer is slowed down once the
    /// buffers between the two are full. A request that is being dispatched may still come. If the peer closes the
    /// connection meanwhile, it ends once all requests that the peer sent before were read, at once if there are none;
    /// after a reset those are lost that had not left the socket.
    pub fn pause(&self) -> Pause {
        self.inner.outbox.pause();
        Pause(self.clone())
    }

    /// Returns true while the connection is not read: its peer may have sent something, and is not silent.
    pub fn is_paused(&self) -> bool {
        self.inner.outbox.is_paused()
    }

    /// Closes the connection after all queued frames are written.
    pub fn close(&self) {
        self.inner.outbox.close();
    }
}

/// A connection is not read while this lives.
#[derive(Debug)]
#[must_use = "the connection is read on when this is dropped"]
pub struct Pause(Peer);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.inner.outbox.read_on();
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Peer {}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("id", &self.id())
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}

/// Receives events of every connection, on the connection's own task: implementations must not block.
pub trait Events: Send + Sync + 'static {
    /// A peer has connected; nothing has been read yet but a PROXY header.
    fn opened(&self, peer: &Peer) {
        let _ = peer;
    }
    /// A connection has ended. Called exactly once for each `opened`.
    fn closed(&self, peer: &Peer, reason: &CloseReason) {
        let _ = (peer, reason);
    }
    /// Returns how many of this process's descriptors connections must leave free. Called at each new connection, which
    /// is refused if it took one of them.
    fn reserved_descriptors(&self) -> usize {
        16
    }
}

/// Ignores all events.
impl Events for () {}

/// The right and duty to answer one request, once.
#[derive(Debug)]
pub struct Reply {
    peer: Peer,
    code: i32,
    opaque: i32,
    serialize_type: SerializeType,
    oneway: bool,
    open: bool,
    arrived: Option<Instant>,
    // Released when the request is answered.
    permit: Option<LargeFramePermit>,
    // Written to the audit log with the answer.
    audit_entry: Option<Box<AuditEntry>>,
}

impl Reply {
    /// Creates the reply for this request on this connection.
    pub fn new(peer: Peer, request: &Command) -> Self {
        Self {
            peer,
            code: request.code,
            opaque: request.opaque,
            serialize_type: request.serialize_type,
            oneway: request.is_oneway(),
            open: true,
            arrived: None,
            permit: None,
            audit_entry: None,
        }
    }

    /// Sets when the request arrived, or from when on the log counts its time.
    #[must_use]
    pub fn arrived_at(mut self, arrived: Instant) -> Self {
        self.arrived = Some(arrived);
        self
    }

    /// Returns how long the request waited until a row began to serve it.
    pub fn waited(&self, began: Instant) -> Duration {
        let arrived = self.arrived.unwrap_or(began);
        began.saturating_duration_since(arrived)
    }

    /// Returns how long the request waited until a row began to serve it, and how long that has taken.
    pub fn times(&self, began: Instant) -> (Duration, Duration) {
        (self.waited(began), began.elapsed())
    }

    /// Returns the code of the request.
    pub fn request_code(&self) -> i32 {
        self.code
    }

    /// Returns when the request arrived, if a connection received it.
    pub fn arrived(&self) -> Option<Instant> {
        self.arrived
    }

    /// Writes an administrative change to the audit log when it is answered.
    pub(crate) fn noting(mut self, entry: Option<Box<AuditEntry>>) -> Self {
        self.audit_entry = entry;
        self
    }

    /// Writes no change to the audit log: the request is refused.
    pub(crate) fn without_change(mut self) -> Self {
        self.audit_entry = None;
        self
    }

    fn write_down(&mut self, answer: Option<i32>, remark: Option<&str>) {
        if let Some(entry) = self.audit_entry.take() {
            entry.answered(answer, remark);
        }
    }

    /// Holds the permit with which the request was read until it is answered.
    pub(crate) fn holding(mut self, permit: Option<LargeFramePermit>) -> Self {
        self.permit = permit;
        self
    }

    /// Returns true for a oneway request: nobody waits for the answer.
    pub fn is_oneway(&self) -> bool {
        self.oneway
    }

    /// Returns true once the connection is closed: data held for it may be dropped.
    pub fn is_closed(&self) -> bool {
        self.peer.is_closed()
    }

    /// Returns the connection that sent the request.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Answers the request. Fills in opaque number, response bit and header form (the request's). An answer to a oneway
    /// request is dropped.
    pub fn send(mut self, response: Command) {
        self.answer(response);
    }

    /// Answers with a frame into which `write` writes the fields directly. Fills in opaque number, response bit and
    /// header form. An answer to a oneway request is dropped.
    pub fn send_written(mut self, code: i32, remark: Option<&str>, write: impl FnOnce(&mut HeadWriter<'_>)) {
        self.write_down(Some(code), remark);
        if self.oneway {
            self.open = false;
            return;
        }
        let head = Head {
            serialize_type: self.serialize_type,
            code,
            flag: FLAG_RESPONSE,
            opaque: self.opaque,
            remark,
        };
        let mut out = Vec::with_capacity(HEAD_ROOM);
        let mut head = HeadWriter::new(&mut out, head);
        write(&mut head);
        match head.finish(0) {
            Ok(()) => {
                self.open = false;
                self.peer.inner.outbox.reply_written(&out);
            }
            Err(error) => self.answer(Command::error(response::SYSTEM_ERROR, error.to_string())),
        }
    }

    /// Deliberately ends the request without an answer, where the protocol expects none.
    pub fn silence(mut self) {
        self.open = false;
        self.write_down(None, None);
        if !self.oneway {
            self.peer.inner.outbox.silence();
        }
    }

    fn answer(&mut self, mut response: Command) {
        self.open = false;
        self.write_down(Some(response.code), response.remark.as_deref());
        if self.oneway {
            return;
        }
        response.opaque = self.opaque;
        response.flag |= FLAG_RESPONSE;
        response.serialize_type = self.serialize_type;
        self.peer.inner.outbox.reply(response);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.open {
            let remark = if std::thread::panicking() {
                "the server failed while it handled this request; its log has the details"
            } else {
                "not set any response code"
            };
            self.answer(Command::error(response::SYSTEM_ERROR, remark));
        }
    }
}
