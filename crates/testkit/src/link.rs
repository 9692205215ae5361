//! A link that fails on command: a TCP relay between a client and a server.

use pyrmq_remoting::net::Tracker;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Flow,
    Stall,
    Cut(u64),
}

/// A relay to one target. Lives as long as the test's runtime.
#[derive(Debug)]
pub struct FaultyLink {
    address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    delay: Arc<watch::Sender<Duration>>,
}

impl FaultyLink {
    /// Listens on a free port and relays to `target`.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mode = Arc::new(watch::Sender::new(Mode::Flow));
        let delay = Arc::new(watch::Sender::new(Duration::ZERO));
        let (relays, modes, delays) = (Tracker::current(), mode.clone(), delay.clone());
        let tracker = relays.clone();
        tracker.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(target).await else {
                    continue;
                };
                let (near_read, near_write) = near.into_split();
                let (far_read, far_write) = far.into_split();
                relays.spawn(relay(near_read, far_write, modes.subscribe(), delays.subscribe()));
                relays.spawn(relay(far_read, near_write, modes.subscribe(), delays.subscribe()));
            }
        });
        Ok(Self { address, mode, delay })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nothing passes any more; connections stay.
    pub fn stall(&self) {
        self.mode.send_replace(Mode::Stall);
    }

    /// Everything passes again.
    pub fn flow(&self) {
        self.mode.send_replace(Mode::Flow);
    }

    /// Ends the connections that exist; new ones pass.
    pub fn cut(&self) {
        self.mode.send_modify(|mode| {
            *mode = match *mode {
                Mode::Cut(times) => Mode::Cut(times + 1),
                Mode::Flow | Mode::Stall => Mode::Cut(0),
            }
        });
    }

    /// Each piece of bytes waits this long.
    pub fn delay(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }
}

async fn relay(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    delay: watch::Receiver<Duration>,
) {
    let mut buffer = vec![0; 64 * 1024];
    mode.mark_unchanged();
    loop {
        if *mode.borrow() == Mode::Stall {
            if mode.changed().await.is_err() || matches!(*mode.borrow(), Mode::Cut(_)) {
                return;
            }
            continue;
        }
        tokio::select! {
            changed = mode.changed() => {
                if changed.is_err() || matches!(*mode.borrow(), Mode::Cut(_)) {
                    return;
                }
            }
            read = from.read(&mut buffer) => {
                let Ok(read @ 1..) = read else { return };
                let wait = *delay.borrow();
                if !wait.is_zero() {
                    sleep(wait).await;
                }
                if to.write_all(buffer.get(..read).unwrap_or_default()).await.is_err() {
                    return;
                }
            }
        }
    }
}
