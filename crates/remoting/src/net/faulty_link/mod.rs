//! A link that fails on command: a TCP relay between clients and one server, for tests of either side.
//!
//! ```text
//! client -> near socket | take -> pieces, each with the time when it is due -> give | far socket -> server
//!                       |                        the same for answers               |
//! ```
//! No server or client uses it on its own. It lives as long as its [`FaultyLink`]. Its runtime needs threads that
//! nothing else blocks.

mod relay;

use crate::net::shutdown::Tracker;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// Connections that the system queues until they are accepted.
const BACKLOG: i32 = 1024;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From clients to the server.
    Requests,
    /// From the server to clients.
    Answers,
}

/// What happens to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passage {
    /// The bytes arrive.
    #[default]
    Pass,
    /// The bytes are held until the passage changes; connections stay open.
    Hold,
    /// The bytes are dropped. Connections stay open, and are reset when this ends, because their streams are
    /// incomplete.
    Drop,
}

/// Faults of one direction.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectionFaults {
    /// Delay of each piece of bytes.
    pub delay: Duration,
    /// Maximum rate in bytes per second.
    pub rate: Option<u64>,
    /// What happens to bytes.
    pub passage: Passage,
}

/// All faults of a link.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) requests: DirectionFaults,
    pub(super) answers: DirectionFaults,
    /// Until then, sends are answered SYSTEM_BUSY and do not reach the server.
    pub(super) busy_until: Option<Instant>,
    /// Number of times that connections were reset.
    pub(super) cuts: u64,
    refuses: bool,
    /// Number of the last change.
    version: u64,
}

impl Faults {
    pub(super) fn of(&self, direction: Direction) -> &DirectionFaults {
        match direction {
            Direction::Requests => &self.requests,
            Direction::Answers => &self.answers,
        }
    }

    fn drops(&self) -> bool {
        [self.requests, self.answers]
            .iter()
            .any(|faults| faults.passage == Passage::Drop)
    }
}

/// A relay to one target.
#[derive(Debug)]
pub struct FaultyLink {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    /// The last change that applies to new and existing connections.
    applied: watch::Receiver<u64>,
}

impl FaultyLink {
    /// Listens on a free port of the loopback address and relays to `target`, on the runtime of the calling task.
    #[expect(clippy::unused_async, reason = "callers are tasks: it needs their runtime")]
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        Self::bind(
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            target,
            &Tracker::current(),
        )
    }

    /// Listens on `address` and relays to `target`, in tasks of `tasks`.
    pub fn bind(address: SocketAddr, target: SocketAddr, tasks: &Tracker) -> io::Result<Self> {
        let socket = bound(address)?;
        let Some(address) = socket.local_addr()?.as_socket() else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let listener = listening(socket, tasks)?;
        let (faults, seen) = watch::channel(Faults::default());
        let (done, applied) = watch::channel(0);
        let run = Accepting {
            address,
            target,
            tasks: tasks.clone(),
            pairs: tasks.clone(),
        };
        tasks.spawn(run.run(listener, seen, done));
        Ok(Self {
            address,
            faults,
            applied,
        })
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes one direction.
    pub fn change(&self, direction: Direction, change: impl FnOnce(&mut DirectionFaults)) {
        self.modify(|faults| {
            let dropped = faults.drops();
            change(match direction {
                Direction::Requests => &mut faults.requests,
                Direction::Answers => &mut faults.answers,
            });
            if dropped && !faults.drops() {
                faults.cuts += 1;
            }
        });
    }

    /// Holds all bytes back; connections stay open.
    pub fn stall(&self) {
        self.both(|faults| faults.passage = Passage::Hold);
    }

    /// Lets all bytes pass again.
    pub fn flow(&self) {
        self.both(|faults| faults.passage = Passage::Pass);
    }

    /// Delays each piece of bytes by this time.
    pub fn delay(&self, delay: Duration) {
        self.both(|faults| faults.delay = delay);
    }

    /// Resets the existing connections; new ones pass.
    pub fn cut(&self) {
        self.modify(|faults| faults.cuts += 1);
    }

    /// With true, resets the existing connections and refuses new ones, until it is called with false. The port stays
    /// taken.
    pub fn refuse(&self, refuses: bool) {
        self.modify(|faults| {
            if refuses {
                faults.cuts += 1;
            }
            faults.refuses = refuses;
        });
    }

    /// Answers sends with SYSTEM_BUSY for this time; they do not reach the server.
    pub fn busy(&self, time: Duration) {
        self.modify(|faults| faults.busy_until = Some(Instant::now() + time));
    }

    /// Ends all faults, except that it keeps refusing connections if it does.
    pub fn heal(&self) {
        self.modify(|faults| {
            *faults = Faults {
                cuts: faults.cuts + u64::from(faults.drops()),
                refuses: faults.refuses,
                version: faults.version,
                ..Faults::default()
            };
        });
    }

    /// Waits until all changes so far are in effect, including cuts of connections.
    pub async fn settle(&self) {
        let version = self.faults.borrow().version;
        let mut applied = self.applied.clone();
        drop(applied.wait_for(|applied| *applied >= version).await);
    }

    fn both(&self, change: impl Fn(&mut DirectionFaults)) {
        self.change(Direction::Requests, &change);
        self.change(Direction::Answers, change);
    }

    fn modify(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(|faults| {
            change(faults);
            faults.version += 1;
        });
    }
}

/// Creates a socket that holds its port, and refuses connections until it listens.
fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

fn listening(socket: Socket, tasks: &Tracker) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let _runtime = tasks.handle().enter();
    TcpListener::from_std(socket.into())
}

/// Accepts connections and connects each to the target.
struct Accepting {
    address: SocketAddr,
    target: SocketAddr,
    tasks: Tracker,
    /// Connections since the last cut.
    pairs: Tracker,
}

impl Accepting {
    async fn run(
        mut self,
        listener: TcpListener,
        mut seen: watch::Receiver<Faults>,
        done: watch::Sender<u64>,
    ) {
        self.pairs = Tracker::new(self.tasks.handle().clone());
        let mut cuts = 0;
        let mut listener = Some(listener);
        let mut reserved = None;
        loop {
            let faults = *seen.borrow_and_update();
            if faults.refuses && listener.take().is_some() {
                reserved = bound(self.address).ok();
            }
            if faults.cuts != cuts {
                cuts = faults.cuts;
                // Every connection sees the same change, and ends on its own.
                self.pairs.idle().await;
            }
            if !faults.refuses && listener.is_none() {
                let socket = reserved.take().map_or_else(|| bound(self.address), Ok);
                listener = socket.and_then(|socket| listening(socket, &self.tasks)).ok();
            }
            done.send_replace(faults.version);
            tokio::select! {
                changed = seen.changed() => if changed.is_err() {
                    return;
                },
                near = accept(listener.as_ref()) => if let Ok(near) = near {
                    self.pairs.spawn(relay::join(near, self.target, seen.clone(), cuts));
                },
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}
