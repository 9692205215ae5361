//! Log lines about refused connections: at most one in ten seconds, so that strangers cannot fill the disk.

use crate::net::CloseReason;
use crate::sync::lock;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    // Guards when a refused connection was last logged, and how many were refused since.
    last: Mutex<(Option<Instant>, u64)>,
}

impl RefusalLog {
    /// Logs a connection that was refused before its first request. Other ends of connections are no refusals.
    pub(crate) fn log(&self, peer: SocketAddr, reason: &CloseReason) {
        let refused = matches!(
            reason,
            CloseReason::PlainRefused
                | CloseReason::Handshake(_)
                | CloseReason::ProxyProtocol
                | CloseReason::ProxyHeader(_)
                | CloseReason::TooManyConnections
        );
        if !refused {
            return;
        }
        let mut last = lock(&self.last);
        if last.0.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            last.1 += 1;
            return;
        }
        let more = std::mem::take(&mut last.1);
        last.0 = Some(Instant::now());
        drop(last);
        tracing::warn!(%peer, %reason, not_logged = more, "refused a connection");
    }
}
