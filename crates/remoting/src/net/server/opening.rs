//! What a server does with a new connection before its first frame: it reads a PROXY header, then performs a TLS
//! handshake. A stop ends both.

use crate::net::link::{Link, Park, Phase};
use crate::net::socket::proxy_protocol::{self, OPENING_TIMEOUT};
use crate::net::socket::stream::Stream;
use crate::net::{CloseReason, Security};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// A connection whose PROXY header, if it had one, has been read.
pub(super) struct Accepted {
    stream: TcpStream,
    /// The client's address: the one that the header names, or else the peer's own.
    pub(super) client: SocketAddr,
    /// When the connection was accepted.
    begun: Instant,
    /// How long the header took from its first byte to its last.
    spent: Duration,
}

/// Reads the PROXY header if the peer may send one and does. A peer that may and does not is served under its own
/// address, as Apache's server does: a header cannot be left out by the client behind a balancer.
pub(super) async fn accept(
    mut stream: TcpStream,
    remote: SocketAddr,
    link: &Link,
    security: &Security,
    idle: Duration,
) -> Result<Accepted, CloseReason> {
    let begun = Instant::now();
    let trusted = security
        .proxy_sources
        .as_ref()
        .is_some_and(|sources| sources.trusts(remote.ip()));
    if !trusted {
        return Ok(Accepted {
            stream,
            client: remote,
            begun,
            spent: Duration::ZERO,
        });
    }
    let (limit, may_be_silent) = limits(security);
    let mut client = remote;
    let mut spent = Duration::ZERO;
    until_stopped(link, async {
        let mut first = [0; 1];
        let silent = if may_be_silent { idle } else { limit };
        let there = timeout(silent, stream.peek(&mut first))
            .await
            .map_err(|_| CloseReason::Idle)??;
        let [first] = first;
        if there == 0 {
            return Err(CloseReason::ByPeer);
        }
        if !proxy_protocol::begins_header(first) {
            return Ok(());
        }
        let waited = if may_be_silent {
            Duration::ZERO
        } else {
            begun.elapsed()
        };
        let seen = Instant::now();
        client = named(&mut stream, first, limit.saturating_sub(waited))
            .await?
            .unwrap_or(remote);
        spent = seen.elapsed();
        Ok(())
    })
    .await?;
    Ok(Accepted {
        stream,
        client,
        begun,
        spent,
    })
}

/// Reads the header that begins with this byte; returns the address that it names.
async fn named(
    stream: &mut TcpStream,
    first: u8,
    limit: Duration,
) -> Result<Option<SocketAddr>, CloseReason> {
    timeout(limit, proxy_protocol::read(stream, first))
        .await
        .map_err(|_| CloseReason::ProxyHeader("the rest of it did not come in time"))?
}

/// Performs the TLS handshake if the server has TLS and the peer begins it.
#[cfg_attr(
    not(feature = "tls"),
    expect(clippy::unused_async, reason = "only a handshake is awaited")
)]
pub(super) async fn open(
    accepted: Accepted,
    link: &Link,
    security: &Security,
    idle: Duration,
) -> Result<Stream, CloseReason> {
    #[cfg(feature = "tls")]
    if let Some(tls) = &security.server_tls {
        let spent = (accepted.begun, accepted.spent);
        return until_stopped(link, tls.accept(accepted.stream, spent, idle)).await;
    }
    let (_, _, _, _, _) = (link, security, idle, accepted.begun, accepted.spent);
    Ok(Stream::plain(accepted.stream))
}

/// How long header and handshake may take, and whether a plain connection may be silent before its first byte.
fn limits(security: &Security) -> (Duration, bool) {
    #[cfg(feature = "tls")]
    if let Some(tls) = &security.server_tls {
        return tls.limits();
    }
    let _ = security;
    (OPENING_TIMEOUT, true)
}

/// Waits for an outcome; a stop of the server ends the wait.
async fn until_stopped<T>(
    link: &Link,
    outcome: impl Future<Output = Result<T, CloseReason>>,
) -> Result<T, CloseReason> {
    let mut outcome = pin!(outcome);
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = outcome.as_mut().poll(cx) {
            return Poll::Ready(outcome);
        }
        match link.park(cx.waker(), Phase::Open, true) {
            Park::Asleep(_) => Poll::Pending,
            Park::Awake => Poll::Ready(Err(link.reason().unwrap_or(CloseReason::Drained))),
        }
    })
    .await
}
