//! The bytes of a connection, plain or through TLS.
//!
//! TLS keeps bytes of its own: what it was given to write may not have left yet (`poll_sent`), and one record has at
//! most 16 KiB, so that a read takes as many as are there.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<Tls>),
}

/// Whether the peer has closed a connection that is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerEnd {
    /// The peer has not closed it, as far as the system has said.
    Open,
    /// The peer has closed it, and bytes that it sent before may be unread.
    ClosedBehindBytes,
    /// The peer has closed it, and everything that it sent was read.
    Closed,
}

/// A connection through TLS.
#[cfg(feature = "tls")]
#[derive(Debug)]
pub(crate) struct Tls {
    stream: tokio_rustls::TlsStream<TcpStream>,
    /// Bytes were written since all of them had left.
    unsent: bool,
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self::Plain(stream)
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls(stream: tokio_rustls::TlsStream<TcpStream>) -> Self {
        Self::Tls(Box::new(Tls {
            stream,
            unsent: false,
        }))
    }

    /// Whether the socket has taken everything that was written.
    pub(crate) fn is_sent(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            #[cfg(feature = "tls")]
            Self::Tls(tls) => !tls.unsent,
        }
    }

    /// Looks, without reading, whether the peer has closed the connection. Wakes the task once that is so, but not
    /// while bytes are unread: then the caller has to ask again.
    pub(crate) fn peer_end(&self, cx: &mut Context<'_>) -> io::Result<PeerEnd> {
        let (socket, is_plain) = match self {
            Self::Plain(stream) => (stream, true),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => (tls.stream.get_ref().0, false),
        };
        let mut byte = [0];
        match socket.poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Pending => return Ok(PeerEnd::Open),
            // TLS may have bytes that it has taken from the socket.
            Poll::Ready(Ok(0)) if is_plain => return Ok(PeerEnd::Closed),
            Poll::Ready(peeked) => peeked?,
        };
        Ok(match pin!(socket.ready(Interest::READABLE)).poll(cx) {
            Poll::Ready(Ok(ready)) if ready.is_read_closed() => PeerEnd::ClosedBehindBytes,
            Poll::Ready(_) | Poll::Pending => PeerEnd::Open,
        })
    }

    /// Waits until the socket has taken everything that was written.
    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_variables, reason = "plain TCP has nothing to wait for")
    )]
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => {
                if !tls.unsent {
                    return Poll::Ready(Ok(()));
                }
                let sent = Pin::new(&mut tls.stream).poll_flush(cx);
                tls.unsent = sent.is_pending();
                sent
            }
        }
    }

    /// Sends TLS's `close_notify`, if the socket takes it at once: a peer then knows that nothing was cut off.
    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_variables, reason = "plain TCP has no such message")
    )]
    pub(crate) fn end(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Plain(_) => {}
            #[cfg(feature = "tls")]
            Self::Tls(tls) => {
                let _ended = Pin::new(&mut tls.stream).poll_shutdown(cx).is_ready();
            }
        }
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// Reads all records that are there and fit.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        while buffer.remaining() > 0 {
            let filled = buffer.filled().len();
            match Pin::new(&mut self.stream).poll_read(cx, buffer) {
                Poll::Ready(Ok(())) if buffer.filled().len() > filled => {}
                // The end of the stream, an error or a wait: the next call sees it again.
                _ if filled > before => break,
                other => return other,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => {
                tls.unsent = true;
                Pin::new(&mut tls.stream).poll_write_vectored(cx, slices)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_sent(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_shutdown(cx),
        }
    }
}
