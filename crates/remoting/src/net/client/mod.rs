//! The client: one connection for each address, opened when first needed (Apache `NettyRemotingClient`).
//!
//! A request costs no task and no timer: it is queued on its connection. The connection's task writes all queued frames
//! at once, finds the answer's callback by opaque number, and ends the waits whose deadline has passed.

pub(super) mod call;
mod links;
mod members;

use crate::command::{Command, FLAG_ONEWAY, FLAG_RESPONSE};
use crate::net::client::call::Call;
use crate::net::client::links::Links;
use crate::net::hooks::{RequestHook, Security, call_after};
use crate::net::link::RetireAddress;
use crate::net::link::outbound_request::{Commanded, Framed, Request};
use crate::net::link::pending::{Callback, MemberId, OutboundRequest};
use crate::net::link::send_queue::HEAD_ROOM;
use crate::net::socket::resolve::{Resolve, SystemResolver};
use crate::net::stats::Stats;
use crate::net::{ClientOptions, Events, NetError, Outbox, ProcessorTable};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Sends requests to servers. Clones are one client; dropping the last clone closes it. The clients that
/// [`WeakClient::join`] makes share the connections, which end with the last of them.
#[derive(Clone)]
pub struct Client {
    member: Arc<Member>,
    hook: Option<Arc<dyn RequestHook>>,
}

/// A set of connections that it does not keep open.
#[derive(Clone)]
pub struct WeakClient {
    links: Weak<Links>,
    hook: Option<Arc<dyn RequestHook>>,
}

/// One of the clients that share connections. Dropping its last clone closes it.
struct Member {
    links: Arc<Links>,
    id: MemberId,
    closed: AtomicBool,
}

impl Member {
    fn leave(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.links.leave(self.id);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Client {
    /// Creates a client whose connections run on this runtime. `table` answers requests of servers.
    pub fn new(
        handle: &Handle,
        options: ClientOptions,
        table: Arc<ProcessorTable>,
    ) -> Result<Self, NetError> {
        Self::with_events(handle, options, table, Arc::new(()))
    }

    /// Creates a client like [`Self::new`]; `events` is called for every connection.
    pub fn with_events(
        handle: &Handle,
        options: ClientOptions,
        table: Arc<ProcessorTable>,
        events: Arc<dyn Events>,
    ) -> Result<Self, NetError> {
        Self::with_resolver(handle, options, table, events, Arc::new(SystemResolver))
    }

    /// Creates a client like [`Self::with_events`]; `resolver` looks up hosts.
    pub fn with_resolver(
        handle: &Handle,
        options: ClientOptions,
        table: Arc<ProcessorTable>,
        events: Arc<dyn Events>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, NetError> {
        Self::secured(handle, options, table, events, (resolver, Security::default()))
    }

    /// Creates a client like [`Self::with_resolver`]; `security` says in whose name it sends.
    pub fn secured(
        handle: &Handle,
        options: ClientOptions,
        table: Arc<ProcessorTable>,
        events: Arc<dyn Events>,
        (resolver, security): (Arc<dyn Resolve>, Security),
    ) -> Result<Self, NetError> {
        let (links, id) = Links::new(handle, options, table, events, (resolver, security))?;
        Ok(Self::of(links, id))
    }

    fn of(links: Arc<Links>, id: MemberId) -> Self {
        let closed = AtomicBool::new(false);
        let member = Member { links, id, closed };
        Self {
            member: Arc::new(member),
            hook: None,
        }
    }

    /// This client with a hook around each of its requests, in place of the one that it has.
    #[must_use]
    pub fn hooked(self, hook: Option<Arc<dyn RequestHook>>) -> Self {
        Self { hook, ..self }
    }

    /// The hook around each request. It is for senders of an [`OutboundRequest`], which call it themselves.
    pub fn hook(&self) -> Option<&Arc<dyn RequestHook>> {
        self.hook.as_ref()
    }

    /// A handle to these connections that does not keep them open. The clients that it makes have this one's hook.
    pub fn downgrade(&self) -> WeakClient {
        WeakClient {
            links: Arc::downgrade(&self.member.links),
            hook: self.hook.clone(),
        }
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
        self.prepare(&mut command);
        let callback: Callback = match &self.hook {
            None => Box::new(callback),
            Some(hook) => {
                let (hook, code, began) = (hook.clone(), command.code, Instant::now());
                Box::new(move |outcome| {
                    call_after(&*hook, code, &outcome, began.elapsed());
                    callback(outcome);
                })
            }
        };
        let request = Commanded {
            address,
            command,
            callback,
        };
        self.submit(request, (Instant::now(), timeout));
    }

    /// Sends a request that writes its own frame, calls the hook and signs it if needed, and handles the outcome. The
    /// timeout starts at `now`.
    pub fn send(
        &self,
        outbound: Box<impl OutboundRequest + 'static>,
        (now, timeout): (std::time::Instant, Duration),
    ) {
        let mut head = Vec::with_capacity(HEAD_ROOM);
        let when = (Instant::from_std(now), timeout);
        self.submit(
            Framed {
                outbound,
                head: &mut head,
            },
            when,
        );
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
        if self.member.closed.load(Ordering::Acquire) {
            return Err(NetError::Closed);
        }
        self.prepare(&mut command);
        self.member.links.oneway(address, command)
    }

    /// Calls the hook before a request, then signs it.
    pub fn prepare(&self, command: &mut Command) {
        if let Some(hook) = &self.hook {
            hook.before(command);
        }
        if let Some(signer) = &self.member.links.security.signer {
            signer.sign(command);
        }
    }

    fn submit(&self, request: impl Request, when: (Instant, Duration)) {
        let member = &*self.member;
        member.links.submit(request, when, (member.id, &member.closed));
    }

    /// Connects if there is no connection yet.
    pub async fn warm(&self, address: &str) -> Result<(), NetError> {
        let (link, _) = self.member.links.link(address)?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        link.when_connected(Box::new(|result| drop(sender.send(result))));
        receiver.await.unwrap_or(Err(NetError::Closed))
    }

    /// Returns the addresses with a live connection.
    pub fn connected(&self) -> Vec<String> {
        let links = self.member.links.links();
        let live = links.iter().filter(|(_, link)| link.is_connected());
        live.map(|(address, _)| address.to_string()).collect()
    }

    /// Closes the connection to an address, if there is one, for all that share it, after all queued frames are
    /// written. The next request opens a new one.
    pub fn disconnect(&self, address: &str) {
        let link = self.member.links.links().remove(address);
        if let Some(link) = link {
            link.close();
        }
    }

    /// Resolves an address as connecting to it does.
    pub async fn resolve(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        self.member.links.resolver.resolve(address).await
    }

    /// Retires the connection to an address, if there is one: it ends when all of its requests are answered. The next
    /// request opens a new one, to the address as it then resolves.
    pub fn retire(&self, address: &str) {
        self.member.links.retire(address);
    }

    /// Returns the counters.
    pub fn stats(&self) -> Arc<Stats> {
        self.member.links.setting.stats.clone()
    }

    /// Ends every wait of this client at once, and every connection unless others share them. Further requests answer
    /// [`NetError::Closed`]. Idempotent.
    pub fn shut(&self) {
        self.member.leave();
    }

    /// Ends everything like [`Self::shut`], and waits until the task of every connection that ends has ended.
    pub async fn close(&self) {
        self.shut();
        let links = &self.member.links;
        if links.members.is_closed() {
            links.tracker.wait(Duration::from_secs(1)).await;
        }
    }
}

impl WeakClient {
    /// Another client over these connections: it has waits of its own, and `table` answers the requests of servers that
    /// are for it. `None` once the connections have ended.
    pub fn join(&self, table: Arc<ProcessorTable>) -> Option<Client> {
        let links = self.links.upgrade()?;
        let id = links.members.join(table)?;
        Some(Client::of(links, id).hooked(self.hook.clone()))
    }

    /// Whether somebody keeps the connections open.
    pub fn is_open(&self) -> bool {
        self.links
            .upgrade()
            .is_some_and(|links| !links.members.is_closed())
    }
}

impl fmt::Debug for WeakClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakClient").finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("connected", &self.connected())
            .finish_non_exhaustive()
    }
}
