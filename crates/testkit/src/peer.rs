//! Peers that do exactly what a test specifies, byte for byte.

use crate::frame::{self, Raw};
use crate::wait::LIMIT;
use pyrmq_remoting::net::Tracker;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A connection to a server under test, or from a client under test. Every wait has a limit.
#[derive(Debug)]
pub struct RawPeer {
    stream: TcpStream,
}

impl From<TcpStream> for RawPeer {
    fn from(stream: TcpStream) -> Self {
        Self { stream }
    }
}

impl RawPeer {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Returns the socket.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Writes bytes.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        bounded(self.stream.write_all(bytes)).await
    }

    /// Reads the next frame.
    pub async fn receive(&mut self) -> io::Result<Raw> {
        bounded(frame::read(&mut self.stream)).await
    }

    /// Sends one frame and reads the next.
    pub async fn ask(&mut self, bytes: &[u8]) -> io::Result<Raw> {
        self.send(bytes).await?;
        self.receive().await
    }

    /// Waits until the other side closes, and returns the bytes received before.
    pub async fn closed(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        match bounded(self.stream.read_to_end(&mut rest)).await {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
            _ => Ok(rest),
        }
    }
}

async fn bounded<T>(io: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(LIMIT, io).await?
}

/// A server that runs a script on every connection.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl ScriptedServer {
    /// Listens on a free port, for as long as the test's runtime lives. The script receives each connection and its
    /// number.
    pub async fn start<F, S>(script: S) -> io::Result<Self>
    where
        S: Fn(RawPeer, usize) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let tracker = Tracker::current();
        let scripts = tracker.clone();
        tracker.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                scripts.spawn(script(
                    RawPeer::from(stream),
                    count.fetch_add(1, Ordering::SeqCst),
                ));
            }
        });
        Ok(Self { address, accepted })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}
