//! The server: accepts, counts, stops cleanly (Apache `NettyRemotingServer`).
//!
//! A clean stop: the port closes; peers that know GO_AWAY get it for every new request, others are served; a connection
//! ends once it is idle; at the deadline the rest is cut.

mod opening;

use crate::net::connection::{Connection, Setting};
use crate::net::hooks::Security;
use crate::net::limits::descriptors::{descriptor_limit, is_reserved};
use crate::net::limits::large_frames::LargeFramePermits;
use crate::net::limits::memory_budget::MemoryBudget;
use crate::net::limits::partial_frames::{PartialFrames, UnfinishedFrames};
use crate::net::limits::refusal_log::RefusalLog;
use crate::net::link::peer::next_peer_id;
use crate::net::link::send_queue::SendQueue;
use crate::net::link::{Link, Phase};
use crate::net::stats::{Snapshot, Stats};
use crate::net::{CloseReason, Events, NetError, Peer, ProcessorTable, ServerOptions, Shutdown, Tracker};
use crate::sync::lock;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Interval between log lines about connections refused for lack of descriptors.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a server's connections ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy at the deadline and were cut.
    pub cut: usize,
}

/// A bound port. [`Server::run`] accepts connections; until then the system queues them.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    options: ServerOptions,
    security: Security,
    shared: Arc<Shared>,
    unfinished: UnfinishedFrames,
}

struct Shared {
    setting: Arc<Setting>,
    events: Arc<dyn Events>,
    opaque: Arc<AtomicI32>,
    refusals: RefusalLog,
    // Guards the live connections: a stop must reach each of them.
    links: Mutex<HashMap<u64, Arc<Link>>>,
}

impl Server {
    /// Opens the port. Several servers may share one table.
    pub fn bind(
        address: SocketAddr,
        options: ServerOptions,
        table: Arc<ProcessorTable>,
        events: Arc<dyn Events>,
    ) -> Result<Self, NetError> {
        options.validate()?;
        let listener = listen(address, options.backlog).map_err(|source| NetError::Bind {
            address: address.to_string(),
            fix: fix(&source),
            source: Arc::new(source),
        })?;
        let local = listener.local_addr().unwrap_or(address);
        let partial_frames = PartialFrames::new(options.unfinished_total_bytes, options.unfinished_time);
        let unfinished = UnfinishedFrames(partial_frames.room.clone());
        Ok(Self {
            listener,
            address: local,
            options,
            security: Security::default(),
            shared: Arc::new(Shared {
                setting: Arc::new(Setting {
                    options: options.connection,
                    drain_quiet: options.drain_quiet,
                    table,
                    stats: Arc::default(),
                    large: options.large_frames.map(LargeFramePermits::new),
                    partial_frames: Some(partial_frames),
                    waiting: MemoryBudget::new(options.outgoing_total_bytes),
                }),
                events,
                opaque: Arc::default(),
                refusals: RefusalLog::default(),
                links: Mutex::default(),
            }),
            unfinished,
        })
    }

    /// Sets how its connections are protected; its table checks requests.
    #[must_use]
    pub fn secured(mut self, security: &Security) -> Self {
        self.security = security.clone();
        self
    }

    /// Returns the address that it listens on, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters, which outlive the server.
    pub fn stats(&self) -> Arc<Stats> {
        self.shared.setting.stats.clone()
    }

    /// Returns the memory of unfinished frames, which outlives the server.
    pub fn unfinished_frames(&self) -> UnfinishedFrames {
        self.unfinished.clone()
    }

    /// Serves until `shutdown`, then stops cleanly within the options' `drain` time (at once after `stop_now`).
    pub async fn run(self, shutdown: Shutdown) -> Result<Drained, NetError> {
        let tracker = Tracker::current();
        {
            let listener = TcpListener::from_std(self.listener).map_err(|source| NetError::Bind {
                address: self.address.to_string(),
                fix: fix(&source),
                source: Arc::new(source),
            })?;
            tokio::select! {
                () = shutdown.stopped() => {}
                () = accept(&listener, (&self.shared, &self.security), &tracker, &shutdown, self.options.max_connections) => {}
            }
        }
        self.shared.advance(Phase::Draining);
        let cut = tokio::select! {
            biased;
            () = shutdown.stopped_now() => tracker.running(),
            () = tokio::time::sleep(self.options.drain) => tracker.running(),
            () = tracker.idle() => 0,
        };
        self.shared.advance(Phase::Cut);
        tracker.wait(Duration::from_secs(1)).await;
        Ok(Drained { cut })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn links(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Link>>> {
        lock(&self.links)
    }

    fn advance(&self, phase: Phase) {
        for link in self.links().values() {
            link.advance(phase);
        }
    }

    fn add(&self, tally: Snapshot) {
        let mut tally = tally;
        self.setting.stats.add(&mut tally);
    }
}

async fn accept(
    listener: &TcpListener,
    (shared, security): (&Arc<Shared>, &Security),
    tracker: &Tracker,
    shutdown: &Shutdown,
    max: usize,
) {
    let mut failing = false;
    let mut logged_at: Option<Instant> = None;
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                failing = false;
                if tracker.running() >= max {
                    tracing::warn!(peer = %remote, max, "refused a connection: too many are open");
                    shared.add(Snapshot {
                        refused: 1,
                        ..Snapshot::default()
                    });
                    continue;
                }
                let (reserved, limit) = (shared.events.reserved_descriptors(), descriptor_limit());
                if is_reserved(stream.as_fd(), reserved, limit) {
                    shared.add(Snapshot {
                        refused: 1,
                        starved: 1,
                        ..Snapshot::default()
                    });
                    if logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                        logged_at = Some(Instant::now());
                        tracing::error!(
                            peer = %remote, limit, reserved,
                            "refused a connection: the remaining descriptors are needed for files; raise the limit of open files \
                             (`ulimit -n`, `LimitNOFILE` of systemd) or open fewer connections"
                        );
                    }
                    continue;
                }
                admit(stream, remote, (shared, security), tracker);
            }
            // The peer gave up while it waited in the backlog.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Usually a lack of file descriptors, which lasts for a while: log it once.
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!(%error, "cannot accept connections for now: the limit of open files may be too low");
                }
                if shutdown.sleep_or_stop(ACCEPT_PAUSE).await {
                    return;
                }
            }
        }
    }
}

fn admit(
    stream: TcpStream,
    remote: SocketAddr,
    (shared, security): (&Arc<Shared>, &Security),
    tracker: &Tracker,
) {
    // Both fail only if the peer is already gone; its first read will report it.
    drop(stream.set_nodelay(true));
    let local = stream.local_addr().unwrap_or(remote);
    let setting = shared.setting.clone();
    let link = Arc::new(Link::new(
        remote.to_string(),
        &setting.options,
        shared.opaque.clone(),
        true,
        None,
    ));
    let id = next_peer_id();
    shared.links().insert(id, link.clone());
    setting.stats.connections.fetch_add(1, Ordering::Relaxed);
    setting.stats.opened.fetch_add(1, Ordering::Relaxed);
    let mut presence = Presence {
        id,
        peer: None,
        link,
        shared: shared.clone(),
    };
    let security = security.clone();
    tracker.spawn(async move {
        let reason = presence.serve(stream, (remote, local), &security).await;
        let client = presence.peer.as_ref().map_or(remote, Peer::remote);
        presence.shared.refusals.log(client, &reason);
        tracing::debug!(peer = %client, %reason, "connection closed");
        drop(presence);
    });
}

/// A connection's entry in the server. On drop, however its task ends, the entry is removed and the end is reported.
struct Presence {
    id: u64,
    /// `None` until it is known whose connection it is.
    peer: Option<Peer>,
    link: Arc<Link>,
    shared: Arc<Shared>,
}

impl Presence {
    /// Serves the connection until it ends.
    async fn serve(
        &mut self,
        stream: TcpStream,
        (remote, local): (SocketAddr, SocketAddr),
        security: &Security,
    ) -> CloseReason {
        let setting = self.shared.setting.clone();
        let idle = setting.options.idle;
        let link = self.link.clone();
        let opened = async {
            let accepted = opening::accept(stream, remote, &link, security, idle).await?;
            let client = accepted.client;
            let used = match &security.limits {
                Some(limits) => Some(limits.admit(client.ip()).ok_or(CloseReason::TooManyConnections)?),
                None => None,
            };
            let peer = Peer::new(self.id, client, local, link.clone());
            self.peer = Some(peer.clone());
            self.shared.events.opened(&peer);
            let stream = opening::open(accepted, &link, security, idle).await?;
            let connection = Connection::new(stream, link.clone(), peer, setting).limited(used);
            Ok(Box::new(connection))
        };
        // A handshake needs kilobytes. Boxed, they are freed with it; otherwise each connection's task would keep them.
        match Box::pin(opened).await {
            Ok(connection) => connection.run().await,
            Err(reason) => {
                link.end(&SendQueue::default(), &reason, None);
                self.shared.add(Snapshot {
                    refused: 1,
                    ..Snapshot::default()
                });
                reason
            }
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.shared.links().remove(&self.id);
        let reason = self.link.reason().unwrap_or(CloseReason::Here);
        self.link.end(&SendQueue::default(), &reason, None);
        self.shared
            .setting
            .stats
            .connections
            .fetch_sub(1, Ordering::Relaxed);
        if let Some(peer) = &self.peer {
            self.shared.events.closed(peer, &reason);
        }
    }
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    // This allows a port in TIME_WAIT after a restart, but not one that another process listens on.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "stop the program that has the port, or choose another port (0: any free one)"
        }
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine, or 0.0.0.0 for all of them",
        io::ErrorKind::PermissionDenied => {
            "choose a port from 1024 up, or start with the right to use lower ones"
        }
        _ => "check the address, and how many sockets this process may open",
    }
}
