//! A client's connections: one for each address, opened when first needed.

use crate::command::Command;
use crate::hash::NameMap;
use crate::net::client::members::Members;
use crate::net::connection::{Connection, Setting};
use crate::net::hooks::Security;
use crate::net::limits::memory_budget::MemoryBudget;
use crate::net::link::outbound_request::Request;
use crate::net::link::peer::next_peer_id;
use crate::net::link::pending::MemberId;
use crate::net::link::send_queue::SendQueue;
use crate::net::link::{Link, Phase, RetireAddress};
use crate::net::socket::resolve::Resolve;
use crate::net::socket::stream::Stream;
use crate::net::{ClientOptions, CloseReason, Events, NetError, Peer, ProcessorTable, Tracker};
use crate::sync::lock;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

/// The connections of one client, or of several that share them.
pub(super) struct Links {
    options: ClientOptions,
    pub(super) setting: Arc<Setting>,
    events: Arc<dyn Events>,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) security: Security,
    pub(super) tracker: Tracker,
    pub(super) members: Arc<Members>,
    opaque: Arc<AtomicI32>,
    closed: AtomicBool,
    // Guards the current connection of each address.
    by_address: Mutex<NameMap<Box<str>, Arc<Link>>>,
}

impl Links {
    /// Connections of one member, whose `table` answers requests of servers.
    pub(super) fn new(
        handle: &Handle,
        options: ClientOptions,
        table: Arc<ProcessorTable>,
        events: Arc<dyn Events>,
        (resolver, security): (Arc<dyn Resolve>, Security),
    ) -> Result<(Arc<Self>, MemberId), NetError> {
        options.validate()?;
        let (members, first) = Members::new(table);
        let mut table = ProcessorTable::new();
        table.rest(members.clone());
        let links = Self {
            options,
            setting: Arc::new(Setting {
                options: options.connection,
                drain_quiet: Duration::ZERO,
                table: Arc::new(table),
                stats: Arc::default(),
                large: None,
                partial_frames: None,
                waiting: MemoryBudget::new(usize::MAX),
            }),
            events,
            resolver,
            security,
            tracker: Tracker::new(handle.clone()),
            members,
            opaque: Arc::default(),
            closed: AtomicBool::new(false),
            by_address: Mutex::default(),
        };
        Ok((Arc::new(links), first))
    }

    /// Ends the waits of a member. With the last one every connection ends.
    pub(super) fn leave(&self, member: MemberId) {
        if self.members.leave(member) {
            self.shut();
        } else {
            self.abandon(member);
        }
    }

    fn abandon(&self, member: MemberId) {
        let links: Vec<_> = self.links().values().cloned().collect();
        for link in links {
            link.abandon(member);
        }
    }

    /// Queues a oneway request.
    pub(super) fn oneway(self: &Arc<Self>, address: &str, mut command: Command) -> Result<(), NetError> {
        loop {
            let (link, is_new) = self.link(address)?;
            match link.oneway(command) {
                Ok(()) => return Ok(()),
                Err(rejected) if !is_new && has_ended(&rejected.0) => {
                    self.forget(&link);
                    command = rejected.1;
                }
                Err(rejected) => return Err(rejected.0),
            }
        }
    }

    pub(super) fn links(&self) -> MutexGuard<'_, NameMap<Box<str>, Arc<Link>>> {
        lock(&self.by_address)
    }

    fn shut(&self) {
        self.closed.store(true, Ordering::Release);
        let links: Vec<_> = self.links().drain().collect();
        for (_, link) in links {
            link.advance_because(Phase::Cut, CloseReason::Here);
        }
    }

    /// Queues a request of a member on the connection of its address.
    pub(super) fn submit<Q: Request>(
        self: &Arc<Self>,
        mut request: Q,
        when: (Instant, Duration),
        (member, closed): (MemberId, &AtomicBool),
    ) {
        loop {
            let (link, is_new) = match self.link(request.address()) {
                Ok(_) if closed.load(Ordering::Acquire) => return request.refuse(NetError::Closed),
                Ok(found) => found,
                Err(error) => return request.refuse(error),
            };
            match link.request(request, when, member) {
                Ok(()) => {
                    // It may have left since the check above: then nobody else ends this wait before its time.
                    if closed.load(Ordering::Acquire) {
                        link.abandon(member);
                    }
                    return;
                }
                // The connection ended after the look-up: the next one is new. A new one that has ended already means
                // that its task cannot run, for instance because the runtime is gone: another would end the same way.
                Err(rejected) if !is_new && has_ended(&rejected.error) => {
                    self.forget(&link);
                    request = rejected.request;
                }
                Err(rejected) => return rejected.request.refuse(rejected.error),
            }
        }
    }

    /// Returns the connection to an address, and whether it is new. A new one connects in its own task, and accepts
    /// requests meanwhile.
    pub(super) fn link(self: &Arc<Self>, address: &str) -> Result<(Arc<Link>, bool), NetError> {
        let mut links = self.links();
        // Checked under the lock, so that `shut` finds every connection.
        if self.closed.load(Ordering::Acquire) {
            return Err(NetError::Closed);
        }
        if let Some(link) = links.get(address) {
            return Ok((link.clone(), false));
        }
        let options = &self.options.connection;
        let this: Arc<dyn RetireAddress> = self.clone();
        let retire = Some(Arc::downgrade(&this));
        let link = Arc::new(Link::new(
            address.to_owned(),
            options,
            self.opaque.clone(),
            false,
            retire,
        ));
        links.insert(address.into(), link.clone());
        drop(links);
        let presence = Presence {
            link: link.clone(),
            links: self.clone(),
            peer: None,
        };
        self.tracker.spawn(serve(presence));
        Ok((link, true))
    }

    /// Removes a connection, unless its address has a newer one.
    fn forget(&self, link: &Arc<Link>) {
        let mut links = self.links();
        if links
            .get(link.address())
            .is_some_and(|current| Arc::ptr_eq(current, link))
        {
            links.remove(link.address());
        }
    }
}

impl RetireAddress for Links {
    /// Ends a connection as soon as all of its requests are answered.
    fn retire(&self, address: &str) {
        let link = self.links().remove(address);
        if let Some(link) = link {
            link.advance(Phase::Draining);
        }
    }
}

/// Whether a request was rejected because its connection has ended, so that a new one may take it.
fn has_ended(error: &NetError) -> bool {
    matches!(error, NetError::NotSent { .. } | NetError::Connect { .. })
}

/// Runs a connection: connect, serve, end.
async fn serve(mut presence: Presence) {
    let link = presence.link.clone();
    // Boxed: a handshake needs kilobytes, which the connection's task would keep otherwise.
    let (stream, remote, local) = match Box::pin(connect(&link, &presence.links)).await {
        Ok(connected) => connected,
        Err(source) => {
            let error = NetError::Connect {
                address: link.address().to_owned(),
                source: Arc::new(source),
            };
            presence.links.forget(&link);
            link.end(&SendQueue::default(), &CloseReason::Here, Some(&error));
            return;
        }
    };
    let setting = presence.links.setting.clone();
    let peer = Peer::new(next_peer_id(), remote, local, link.clone());
    setting.stats.connections.fetch_add(1, Ordering::Relaxed);
    setting.stats.opened.fetch_add(1, Ordering::Relaxed);
    presence.links.events.opened(&peer);
    presence.peer = Some(peer.clone());
    let connection = Box::new(Connection::new(stream, link.clone(), peer, setting));
    link.connected();
    let reason = connection.run().await;
    tracing::debug!(address = link.address(), %reason, "connection closed");
    drop(presence);
}

/// Connects within the timeout, and ends the waits that expire earlier. Closing the client aborts it.
async fn connect(link: &Link, links: &Links) -> io::Result<(Stream, SocketAddr, SocketAddr)> {
    let limit = links.options.connect_timeout;
    let open = async {
        let found = links.resolver.resolve(link.address()).await?;
        let stream = TcpStream::connect(found.as_slice()).await?;
        // It fails only if the peer is already gone; the first read will report it.
        drop(stream.set_nodelay(true));
        let (remote, local) = (stream.peer_addr()?, stream.local_addr()?);
        Ok((
            secured(stream, link.address(), &links.security).await?,
            remote,
            local,
        ))
    };
    let mut connecting = pin!(timeout_at(Instant::now() + limit, open));
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    poll_fn(|cx| {
        if let Poll::Ready(result) = connecting.as_mut().poll(cx) {
            let late = |_| {
                let text = format!("no answer within {} ms", limit.as_millis());
                io::Error::new(io::ErrorKind::TimedOut, text)
            };
            return Poll::Ready(result.unwrap_or_else(|elapsed| Err(late(elapsed))));
        }
        if link.phase() >= Phase::Cut {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the client was closed",
            )));
        }
        while tick.poll_tick(cx).is_ready() {
            link.expire(Instant::now(), &mut SendQueue::default());
        }
        Poll::Pending
    })
    .await
}

/// Performs the TLS handshake if the client has TLS.
#[cfg(feature = "tls")]
async fn secured(stream: TcpStream, address: &str, security: &Security) -> io::Result<Stream> {
    match &security.client_tls {
        Some(tls) => tls.connect(stream, address).await,
        None => Ok(Stream::plain(stream)),
    }
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "with TLS it waits for the handshake")]
async fn secured(stream: TcpStream, _: &str, _: &Security) -> io::Result<Stream> {
    Ok(Stream::plain(stream))
}

/// A connection's entry in the client. On drop, however its task ends, the entry is removed and the end is reported.
struct Presence {
    link: Arc<Link>,
    links: Arc<Links>,
    peer: Option<Peer>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.links.forget(&self.link);
        let reason = self.link.reason().unwrap_or(CloseReason::Here);
        self.link.end(&SendQueue::default(), &reason, None);
        if let Some(peer) = &self.peer {
            self.links
                .setting
                .stats
                .connections
                .fetch_sub(1, Ordering::Relaxed);
            self.links.events.closed(peer, &reason);
        }
    }
}
