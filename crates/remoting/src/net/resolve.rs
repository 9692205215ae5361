//! Where the host of an address is: asked for each connection, and by whoever keeps a list of servers.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

/// What becomes of a look-up.
pub type Found<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Finds the addresses of `host:port`.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// All that are known, in the order in which they are to be tried.
    fn resolve<'a>(&'a self, address: &'a str) -> Found<'a>;
}

/// The system's own (`getaddrinfo`), on a thread that may block; an address in digits costs no look-up.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, address: &'a str) -> Found<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host(address).await?.collect()) })
    }
}
