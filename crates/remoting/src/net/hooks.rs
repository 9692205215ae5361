//! What happens to every request besides its row: a server checks it before the row serves it, a client signs it before
//! it is queued (Apache `RPCHook`, `RequestPipeline`).

use super::Peer;
use crate::command::Command;
use std::fmt;
use std::sync::Arc;

/// Decides on a server whether a request may be served. It runs on the connection's task and must not block.
pub trait RequestCheck: Send + Sync + fmt::Debug + 'static {
    /// Returns the answer of a request that is refused; `None` lets its row serve it.
    fn check(&self, request: &Command, peer: &Peer) -> Option<Command>;
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
    /// Signs each request that is sent.
    pub signer: Option<Arc<dyn RequestSigner>>,
}

impl Security {
    /// Whether two clients may share connections: they send in the name of the same user.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.signer, &other.signer) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}
