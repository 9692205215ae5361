//! What happens to every request in addition to its row (Apache `RPCHook`, `RequestPipeline`).
//!
//! ```text
//! client  RequestHook::before -> RequestSigner::sign -> queued .. answer -> RequestHook::after
//! server  RequestCheck::check -> row .. answer -> AuditLog
//! ```
//! A client without a hook pays one branch a request. Messages of such a client are signed while their head is written
//! (`OutboundRequest::write_head`), without a [`Command`]; those of a client with a hook are built as commands first.

use crate::command::Command;
#[cfg(feature = "tls")]
use crate::net::socket::tls::{ClientTls, ServerTls};
use crate::net::{AuditLog, CodeSet, Limits, NetError, Peer, ProxySources};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Decides on a server whether a request may be served. It runs on the connection's task and must not block.
pub trait RequestCheck: Send + Sync + fmt::Debug + 'static {
    /// Returns how a request is refused; `None` lets its row serve it.
    fn check(&self, request: &Command, peer: &Peer) -> Option<Refused>;
    /// Returns the user that a request names. It is who sent the request only if `check` lets the request pass.
    fn user<'r>(&self, request: &'r Command) -> Option<&'r str>;
    /// Whether a user may do what a request says, which need not be signed. Rows ask it about things that a request
    /// touches without naming them.
    fn may(&self, user: &str, request: &Command, source: IpAddr) -> bool;
}

/// How a request is refused.
#[derive(Debug)]
pub struct Refused {
    /// The answer.
    pub answer: Command,
    /// Why, for the log; the answer may say less.
    pub why: String,
    /// The sender of the request claims to be a user and is not. A request that names no user guesses nothing.
    pub is_failed_login: bool,
}

/// A port of its own for requests of administrators.
#[derive(Debug, Clone)]
pub struct AdminPort {
    /// Where it listens.
    pub address: SocketAddr,
    /// The request codes that no other port serves.
    pub codes: CodeSet,
}

/// Called around each request of one client (Apache `RPCHook`). Each of the clients that share connections has its own.
pub trait RequestHook: Send + Sync + fmt::Debug + 'static {
    /// Changes a request before it is signed and queued; again for each further attempt. It runs in the thread that
    /// sends, possibly under the lock of a connection: it must not block, and must not use the client.
    fn before(&self, request: &mut Command);

    /// Sees the outcome of a request with this code, and the time since it was sent. Nothing comes back for a oneway
    /// request. It runs in the connection's task, or in the thread that sends if nothing could be queued, and must not
    /// block. A panic in it is logged, and the sender gets the outcome all the same.
    fn after(&self, _code: i32, _outcome: &Result<Command, NetError>, _took: Duration) {}
}

/// Calls [`RequestHook::after`]. A panic in it must not lose the outcome.
pub fn call_after(hook: &dyn RequestHook, code: i32, outcome: &Result<Command, NetError>, took: Duration) {
    if catch_unwind(AssertUnwindSafe(|| hook.after(code, outcome, took))).is_err() {
        tracing::error!(code, "the hook after a request panicked");
    }
}

/// Adds the same fields to each request. None may have the name of a field of the request's own.
pub struct RequestFields(pub Vec<(String, String)>);

impl fmt::Debug for RequestFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A value may be a secret.
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl RequestHook for RequestFields {
    fn before(&self, request: &mut Command) {
        for (name, value) in &self.0 {
            request.fields.push(name, value);
        }
    }
}

/// Signs a client's requests, after its hook. It runs in the thread that sends.
pub trait RequestSigner: Send + Sync + fmt::Debug + 'static {
    /// Adds the fields of a signature, replacing those that are there.
    fn sign(&self, request: &mut Command);
}

/// How a server or client protects its requests. By default it does not.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// Decides about each request that a server gets.
    pub check: Option<Arc<dyn RequestCheck>>,
    /// How much a server lets one client use; `None`: there is no limit.
    pub limits: Option<Arc<Limits>>,
    /// The port that alone serves administrators; `None`: every port does.
    pub admin: Option<Arc<AdminPort>>,
    /// Writes down changes and refusals of a server.
    pub audit: Option<Arc<AuditLog>>,
    /// Signs each request that is sent.
    pub signer: Option<Arc<dyn RequestSigner>>,
    /// Peers whose PROXY headers are believed, which name the client's address; `None`: none.
    pub proxy_sources: Option<Arc<ProxySources>>,
    /// How a server takes TLS; `None`: it closes connections that begin it.
    #[cfg(feature = "tls")]
    pub server_tls: Option<Arc<ServerTls>>,
    /// How a client opens connections; `None`: plain.
    #[cfg(feature = "tls")]
    pub client_tls: Option<Arc<ClientTls>>,
}

impl Security {
    /// Whether two clients may share connections: they send in the name of the same user, and trust the same servers.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        #[cfg(feature = "tls")]
        if !is_same(self.client_tls.as_ref(), other.client_tls.as_ref()) {
            return false;
        }
        is_same(self.signer.as_ref(), other.signer.as_ref())
    }
}

fn is_same<T: ?Sized>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
