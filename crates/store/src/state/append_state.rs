//! What the append lock guards: the end of the log, and what queues and index have yet to get of its newest records.

use crate::checkpoint::Mark;
use crate::format::CqUnit;
use crate::index::pending::PendingKeys;
use crate::log::commit_log::CommitLog;
use crate::log::tail::Tail;
use crate::queue::consume_queue::ConsumeQueue;
use std::collections::VecDeque;
use std::sync::Arc;

/// What the append lock guards.
#[derive(Debug)]
pub(crate) struct AppendState {
    pub(crate) tail: Tail,
    /// Keys that wait for the index thread.
    pub(crate) index: PendingKeys,
    /// False while the index thread still reads the log, where it will reach the new records.
    pub(crate) index_direct: bool,
    /// Units that become readable once they are durable (`SYNC_FLUSH`).
    pub(crate) deferred: VecDeque<Deferred>,
    /// The newest time that the clock has shown, ms.
    pub(crate) high_ms: i64,
}

/// A unit that waits for an fsync.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) unit: CqUnit,
    pub(crate) store_ms: i64,
}

/// One write that brought records into the log.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    /// Number of entries that wait for the index.
    pub(crate) keys_waiting: usize,
}

impl AppendState {
    /// The state after `last`, the newest record. `high_ms` is the newest time that the clock is known to have shown.
    pub(crate) fn new(
        log: &CommitLog,
        (last, last_store_ms): (Mark, i64),
        high_ms: i64,
        index_direct: bool,
    ) -> Self {
        Self {
            high_ms: high_ms.max(last_store_ms),
            tail: Tail::new(log, last, last_store_ms),
            index: PendingKeys::default(),
            index_direct,
            deferred: VecDeque::new(),
        }
    }
}
