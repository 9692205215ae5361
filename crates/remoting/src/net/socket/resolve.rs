//! Resolving host names, for each connection and for lists of servers.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

/// The future of a look-up.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Finds the addresses of `host:port`.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// Returns all known addresses, in the order in which to try them.
    fn resolve<'a>(&'a self, address: &'a str) -> ResolveFuture<'a>;
}

/// The system's resolver (`getaddrinfo`), on a thread that may block. A numeric address needs no look-up.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, address: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host(address).await?.collect()) })
    }
}
