//! The client: one connection for each address, opened when first needed (Apache `NettyRemotingClient`).
//!
//! A request costs no task and no timer: it is queued on its connection. The connection's task writes all queued frames
//! at once, finds the answer's callback by opaque number, and ends the waits whose deadline has passed.

use super::call::Call;
use super::connection::{Connection, Setting};
use super::link::{Link, Phase, RetireAddress};
use super::memory_budget::MemoryBudget;
use super::outbound_request::{Commanded, Framed, Request};
use super::pending::OutboundRequest;
use super::resolve::{Resolve, SystemResolver};
use super::send_queue::{SendQueue, with_head};
use super::server::{Events, next_peer_id};
use super::stats::Stats;
use super::{ClientOptions, CloseReason, NetError, Outbox, Peer, Table, Tracker};
use crate::command::{Command, FLAG_ONEWAY, FLAG_RESPONSE};
use crate::hash::NameMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

/// Sends requests to servers. Clones share connections; dropping the last clone closes them.
#[derive(Clone)]
pub struct Client {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.shut();
    }
}

struct Shared {
    options: ClientOptions,
    setting: Arc<Setting>,
    events: Arc<dyn Events>,
    resolver: Arc<dyn Resolve>,
    tracker: Tracker,
    opaque: Arc<AtomicI32>,
    closed: AtomicBool,
    // Guards the current connection of each address.
    links: Mutex<NameMap<Box<str>, Arc<Link>>>,
}

impl Client {
    /// Creates a client whose connections run on this runtime. `table` answers requests of servers.
    pub fn new(handle: &Handle, options: ClientOptions, table: Arc<Table>) -> Result<Self, NetError> {
        Self::with_events(handle, options, table, Arc::new(()))
    }

    /// Creates a client like [`Self::new`]; `events` is called for every connection.
    pub fn with_events(
        handle: &Handle,
        options: ClientOptions,
        table: Arc<Table>,
        events: Arc<dyn Events>,
    ) -> Result<Self, NetError> {
        Self::with_resolver(handle, options, table, events, Arc::new(SystemResolver))
    }

    /// Creates a client like [`Self::with_events`]; `resolver` looks up hosts.
    pub fn with_resolver(
        handle: &Handle,
        options: ClientOptions,
        table: Arc<Table>,
        events: Arc<dyn Events>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, NetError> {
        options.validate()?;
        let shared = Arc::new(Shared {
            options,
            setting: Arc::new(Setting {
                options: options.connection,
                drain_quiet: Duration::ZERO,
                table,
                stats: Arc::default(),
                large: None,
                partial_frames: None,
                waiting: MemoryBudget::new(usize::MAX),
            }),
            events,
            resolver,
            tracker: Tracker::new(handle.clone()),
            opaque: Arc::default(),
            closed: AtomicBool::new(false),
            links: Mutex::default(),
        });
        let owner = Arc::new(Owner { shared });
        Ok(Self { owner })
    }

    /// Sends a request to `address` (`host:port`) and waits for the answer. A wait that is dropped ends at its timeout.
    pub async fn request(
        &self,
        address: &str,
        command: Command,
        timeout: Duration,
    ) -> Result<Command, NetError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.request_with(address, command, timeout, |result| drop(sender.send(result)));
        receiver.await.unwrap_or(Err(NetError::Closed))
    }

    /// Sends a request to `address`. The callback receives the outcome exactly once: in the connection's task, or in
    /// this call if nothing could be queued. It must not block.
    pub fn request_with(
        &self,
        address: &str,
        command: Command,
        timeout: Duration,
        callback: impl FnOnce(Result<Command, NetError>) + Send + 'static,
    ) {
        self.request_to(&Arc::from(address), command, timeout, callback);
    }

    /// Sends a request like [`Self::request_with`], without a copy of the address.
    pub fn request_to(
        &self,
        address: &Arc<str>,
        mut command: Command,
        timeout: Duration,
        callback: impl FnOnce(Result<Command, NetError>) + Send + 'static,
    ) {
        command.flag &= !(FLAG_RESPONSE | FLAG_ONEWAY);
        let request = Commanded {
            address,
            command,
            callback: Box::new(callback),
        };
        self.owner.shared.submit(request, (Instant::now(), timeout));
    }

    /// Sends a request that writes its own frame and handles the outcome. The timeout starts at `now`.
    pub fn send(
        &self,
        outbound: Box<impl OutboundRequest + 'static>,
        (now, timeout): (std::time::Instant, Duration),
    ) {
        with_head(|head| {
            let when = (Instant::from_std(now), timeout);
            self.owner.shared.submit(Framed { outbound, head }, when);
        });
    }

    /// Sends a request to `address` and returns a call, on which a thread without a runtime waits in slices.
    pub fn call(&self, address: &str, command: Command, timeout: Duration) -> Call {
        let (call, callback) = Call::new();
        self.request_with(address, command, timeout, callback);
        call
    }

    /// Sends a request to `address` and blocks the thread until the answer or the timeout. Never call it in a task of
    /// the runtime.
    pub fn request_blocking(
        &self,
        address: &str,
        command: Command,
        timeout: Duration,
    ) -> Result<Command, NetError> {
        let call = self.call(address, command, timeout);
        loop {
            if let Some(result) = call.wait(timeout) {
                return result;
            }
        }
    }

    /// Sends a oneway request. `Ok` means queued: whether it arrives is unknown.
    pub fn oneway(&self, address: &str, mut command: Command) -> Result<(), NetError> {
        loop {
            let (link, is_new) = self.owner.shared.link(address)?;
            match link.oneway(command) {
                Ok(()) => return Ok(()),
                Err(rejected) if !is_new && matches!(rejected.0, NetError::NotSent { .. }) => {
                    self.owner.shared.forget(&link);
                    command = rejected.1;
                }
                Err(rejected) => return Err(rejected.0),
            }
        }
    }

    /// Connects if there is no connection yet.
    pub async fn warm(&self, address: &str) -> Result<(), NetError> {
        let (link, _) = self.owner.shared.link(address)?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        link.when_connected(Box::new(|result| drop(sender.send(result))));
        receiver.await.unwrap_or(Err(NetError::Closed))
    }

    /// Returns the addresses with a live connection.
    pub fn connected(&self) -> Vec<String> {
        let links = self.owner.shared.links();
        let live = links.iter().filter(|(_, link)| link.is_connected());
        live.map(|(address, _)| address.to_string()).collect()
    }

    /// Closes the connection to an address, if there is one, after all queued frames are written. The next request
    /// opens a new one.
    pub fn disconnect(&self, address: &str) {
        let link = self.owner.shared.links().remove(address);
        if let Some(link) = link {
            link.close();
        }
    }

    /// Resolves an address as connecting to it does.
    pub async fn resolve(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        self.owner.shared.resolver.resolve(address).await
    }

    /// Retires the connection to an address, if there is one: it ends when all of its requests are answered. The next
    /// request opens a new one, to the address as it then resolves.
    pub fn retire(&self, address: &str) {
        self.owner.shared.retire(address);
    }

    /// Returns the counters.
    pub fn stats(&self) -> Arc<Stats> {
        self.owner.shared.setting.stats.clone()
    }

    /// Ends every wait and connection at once. Further requests answer [`NetError::Closed`]. Idempotent.
    pub fn shut(&self) {
        self.owner.shared.shut();
    }

    /// Ends everything like [`Self::shut`], and waits until every connection's task has ended.
    pub async fn close(&self) {
        self.shut();
        self.owner.shared.tracker.wait(Duration::from_secs(1)).await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("connected", &self.connected())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, NameMap<Box<str>, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut(&self) {
        self.closed.store(true, Ordering::Release);
        let links: Vec<_> = self.links().drain().collect();
        for (_, link) in links {
            link.advance_because(Phase::Cut, CloseReason::Here);
        }
    }

    /// Queues a request on the connection of its address.
    fn submit<Q: Request>(self: &Arc<Self>, mut request: Q, when: (Instant, Duration)) {
        loop {
            let (link, is_new) = match self.link(request.address()) {
                Ok(found) => found,
                Err(error) => return request.refuse(error),
            };
            match link.request(request, when) {
                Ok(()) => return,
                // The connection ended after the look-up: the next one is new. A new one that has ended already means
                // that its task cannot run, for instance because the runtime is gone: another would end the same way.
                Err(rejected) if !is_new && matches!(rejected.error, NetError::NotSent { .. }) => {
                    self.forget(&link);
                    request = rejected.request;
                }
                Err(rejected) => return rejected.request.refuse(rejected.error),
            }
        }
    }

    /// Returns the connection to an address, and whether it is new. A new one connects in its own task, and accepts
    /// requests meanwhile.
    fn link(self: &Arc<Self>, address: &str) -> Result<(Arc<Link>, bool), NetError> {
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
            shared: self.clone(),
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

impl RetireAddress for Shared {
    /// Ends a connection as soon as all of its requests are answered.
    fn retire(&self, address: &str) {
        let link = self.links().remove(address);
        if let Some(link) = link {
            link.advance(Phase::Draining);
        }
    }
}

/// Runs a connection: connect, serve, end.
async fn serve(mut presence: Presence) {
    let link = presence.link.clone();
    let stream = match connect(&link, &presence.shared).await {
        Ok(stream) => stream,
        Err(source) => {
            let error = NetError::Connect {
                address: link.address().to_owned(),
                source: Arc::new(source),
            };
            presence.shared.forget(&link);
            link.end(&SendQueue::default(), &CloseReason::Here, Some(&error));
            return;
        }
    };
    // Both fail only if the peer is already gone; the first read will report it.
    drop(stream.set_nodelay(true));
    let (Ok(remote), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
        link.end(&SendQueue::default(), &CloseReason::ByPeer, None);
        return;
    };
    let setting = presence.shared.setting.clone();
    let peer = Peer::new(next_peer_id(), remote, local, link.clone());
    setting.stats.connections.fetch_add(1, Ordering::Relaxed);
    setting.stats.opened.fetch_add(1, Ordering::Relaxed);
    presence.shared.events.opened(&peer);
    presence.peer = Some(peer.clone());
    let connection = Connection::new(stream, link.clone(), peer, setting);
    link.connected();
    let reason = connection.run().await;
    tracing::debug!(address = link.address(), %reason, "connection closed");
    drop(presence);
}

/// Connects within the timeout, and ends the waits that expire earlier. Closing the client aborts it.
async fn connect(link: &Link, shared: &Shared) -> io::Result<TcpStream> {
    let limit = shared.options.connect_timeout;
    let open = async {
        let found = shared.resolver.resolve(link.address()).await?;
        TcpStream::connect(found.as_slice()).await
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

/// A connection's entry in the client. On drop, however its task ends, the entry is removed and the end is reported.
struct Presence {
    link: Arc<Link>,
    shared: Arc<Shared>,
    peer: Option<Peer>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.shared.forget(&self.link);
        let reason = self.link.reason().unwrap_or(CloseReason::Here);
        self.link.end(&SendQueue::default(), &reason, None);
        if let Some(peer) = &self.peer {
            self.shared
                .setting
                .stats
                .connections
                .fetch_sub(1, Ordering::Relaxed);
            self.shared.events.closed(peer, &reason);
        }
    }
}
