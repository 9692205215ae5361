//! The bytes of a connection, plain or through TLS.
//!
//! TLS keeps bytes of its own: what it was given to write may not have left yet (`poll_sent`), and one record has at
//! most 16 KiB, so that a read takes as many as are there.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<Tls>),
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

    /// Says goodbye, if the socket takes it at once: a peer then knows that nothing was cut off.
    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_variables, reason = "plain TCP has no goodbye")
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
