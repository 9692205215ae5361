//! One connection as a processor sees it, and the right to answer one request.

use super::NetError;
use super::large_frames::Permit;
use super::pending::Callback;
use super::send_queue::with_head;
use crate::codes::response;
use crate::command::{Command, FLAG_RESPONSE, SerializeType};
use crate::frame;
use crate::header::{Head, HeadWriter};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Where a connection's outgoing frames go. The server and the client implement it; tests may.
pub trait Outbox: Send + Sync + 'static {
    /// Queues a frame and wakes the connection's task if it sleeps. A closed connection drops it.
    fn push(&self, command: Command);
    /// Queues the answer to a request of the peer.
    fn reply(&self, command: Command) {
        self.push(command);
    }
    /// Queues an answer without a body whose head is written already.
    fn reply_written(&self, head: &[u8]) {
        match frame::decode(&mut head.into(), &frame::Limits::default()) {
            Ok(Some(command)) => self.reply(command),
            // Nobody writes half a frame.
            Ok(None) | Err(_) => self.silence(),
        }
    }
    /// A request of the peer ends without an answer.
    fn silence(&self) {}
    /// Queues a request to the peer and calls back with its outcome, from the connection's task: the callback must
    /// not block.
    fn request(&self, command: Command, timeout: Duration, callback: Callback) {
        let _ = (command, timeout);
        callback.on_response(Err(NetError::Closed));
    }
    /// True once the connection is gone.
    fn is_closed(&self) -> bool;
    /// Closes the connection after what is queued has been written.
    fn close(&self);
}

/// A live connection. Cloning is cheap; equality is by id, which is never used twice in a process.
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
    /// A peer over an outbox.
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

    /// The connection's number in this process.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The other side's address.
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote
    }

    /// Our side's address.
    pub fn local(&self) -> SocketAddr {
        self.inner.local
    }

    /// Queues a frame as it is: for notices (oneway requests) to the peer.
    pub fn send(&self, command: Command) {
        self.inner.outbox.push(command);
    }

    /// Asks the peer something. The callback gets the answer, or why there is none, from the connection's task: it
    /// must not block.
    pub fn request_with(
        &self,
        command: Command,
        timeout: Duration,
        callback: impl FnOnce(Result<Command, NetError>) + Send + 'static,
    ) {
        self.inner.outbox.request(command, timeout, Box::new(callback));
    }

    /// Asks the peer something and waits for the answer.
    pub async fn request(&self, command: Command, timeout: Duration) -> Result<Command, NetError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.request_with(command, timeout, |result| drop(sender.send(result)));
        receiver.await.unwrap_or(Err(NetError::Closed))
    }

    /// True once the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.inner.outbox.is_closed()
    }

    /// Closes the connection after what is queued has been written.
    pub fn close(&self) {
        self.inner.outbox.close();
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

/// The right and duty to answer one request, once.
#[derive(Debug)]
pub struct Reply {
    peer: Peer,
    opaque: i32,
    serialize_type: SerializeType,
    oneway: bool,
    open: bool,
    // Given back when the request is done with.
    permit: Option<Permit>,
}

impl Reply {
    /// For this request on this connection.
    pub fn new(peer: Peer, request: &Command) -> Self {
        Self {
            peer,
            opaque: request.opaque,
            serialize_type: request.serialize_type,
            oneway: request.is_oneway(),
            open: true,
            permit: None,
        }
    }

    /// Keeps the permit by which the request was read until it is answered.
    pub(super) fn holding(mut self, permit: Option<Permit>) -> Self {
        self.permit = permit;
        self
    }

    /// True when nobody waits for the answer.
    pub fn is_oneway(&self) -> bool {
        self.oneway
    }

    /// True once the connection is gone: what is held for it may be dropped.
    pub fn is_closed(&self) -> bool {
        self.peer.is_closed()
    }

    /// The connection that asked.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Answers. Opaque number, response bit and header form (the request's) are filled here; an answer to a oneway
    /// request vanishes.
    pub fn send(mut self, response: Command) {
        self.answer(response);
    }

    /// Answers with a frame whose fields are written straight into it. Opaque number, response bit and header form are
    /// filled here; an answer to a oneway request vanishes.
    pub fn send_written(mut self, code: i32, remark: Option<&str>, write: impl FnOnce(&mut HeadWriter<'_>)) {
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
        with_head(|out| {
            let mut head = HeadWriter::new(out, head);
            write(&mut head);
            match head.finish(0) {
                Ok(()) => {
                    self.open = false;
                    self.peer.inner.outbox.reply_written(out);
                }
                Err(error) => self.answer(Command::error(response::SYSTEM_ERROR, error.to_string())),
            }
        });
    }

    /// Ends the request without an answer, on purpose (the peer protocol wants silence).
    pub fn silence(mut self) {
        self.open = false;
        if !self.oneway {
            self.peer.inner.outbox.silence();
        }
    }

    fn answer(&mut self, mut response: Command) {
        self.open = false;
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
