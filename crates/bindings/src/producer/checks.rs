//! How a producer without a `check` answers a broker that asks for the state of a transaction.

use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{Peer, Processor, Reply};
use pyrmq_remoting::{Command, clock};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Minimum time between two log lines about transactions that this producer cannot check.
const LOG_INTERVAL_MS: i64 = 60_000;

/// Answers a broker that asks a plain producer for the state of a transaction, which another producer of its group
/// began.
pub(crate) fn refuse(group: String) -> Arc<dyn Processor> {
    let logged_at = AtomicI64::new(0);
    Arc::new(move |_: Command, peer: &Peer, reply: Reply| {
        let now = clock::now_ms();
        let last = logged_at.load(Ordering::Relaxed);
        let is_due = now - last >= LOG_INTERVAL_MS;
        if is_due
            && logged_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            tracing::warn!(group, broker = %peer.remote(), "a broker asks how a transaction ended, but this producer of its group has no `check`: give transactional producers a group of their own");
        }
        let remark = "this producer has no check for transactions";
        reply.send(Command::error(response::REQUEST_CODE_NOT_SUPPORTED, remark));
    })
}
