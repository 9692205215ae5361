//! What happens to every request apart from its row: a server checks it before the row serves it, a client signs it
//! before it is queued (Apache `RPCHook`, `RequestPipeline`).

use crate::command::Command;
#[cfg(feature = "tls")]
use crate::net::socket::tls::{ClientTls, ServerTls};
use crate::net::{AuditLog, CodeSet, Limits, Peer, ProxySources};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

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

/// Completes a client's requests. It runs in the thread that sends.
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
