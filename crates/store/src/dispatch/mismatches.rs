//! Units of consume queues to which a reader found no record, and what is damaged there.
//!
//! If the queue is wrong, the next start rebuilds the queues from the log. If the log is damaged, the queues are right,
//! and health reports the damage: a rebuild would need a log that can be read as a whole, so a start that tried it
//! would be refused.

use crate::error::StoreError;
use crate::log::commit_log::CommitLog;
use crate::log::damage::damage_at;
use crate::queue::consume_queue::ConsumeQueue;
use crate::state::StoreState;
use crate::state::shared::Shared;
use crate::sync::lock;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of units that are checked between two starts.
const MAX_MISMATCHES: usize = 1024;
/// Maximum number of units that the maintenance thread checks in one round, and that are checked at the end. Each may
/// read some MiB of the log.
const MAX_CHECKED: usize = 8;
const MAX_CHECKED_AT_END: usize = 64;

/// Units to which readers found no record.
pub(crate) struct Mismatches {
    state: Arc<StoreState>,
    log: Arc<CommitLog>,
    found: Mutex<MismatchedUnits>,
    /// Whether a queue has a wrong unit.
    is_queue_damaged: AtomicBool,
}

#[derive(Default)]
struct MismatchedUnits {
    unchecked: VecDeque<Mismatch>,
    /// Position and size of all units that were found, checked or not.
    known: HashSet<(i64, i32)>,
    /// Parts of the log that are known to have no record.
    damaged: Vec<Range<i64>>,
}

/// A unit, and the queue that has it.
struct Mismatch {
    topic: Arc<str>,
    queue: i32,
    position: i64,
    size: i32,
}

impl MismatchedUnits {
    fn is_damaged(&self, position: i64) -> bool {
        self.damaged.iter().any(|part| part.contains(&position))
    }
}

impl Mismatches {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            state: Arc::clone(&shared.state),
            log: Arc::clone(&shared.log),
            found: Mutex::default(),
            is_queue_damaged: AtomicBool::new(false),
        }
    }

    /// Records that a reader found no record where a unit of a queue points to. [`Mismatches::check`] finds out why, on
    /// another thread, because that may read much.
    pub(crate) fn record(&self, queue: &ConsumeQueue, position: i64, size: i32) {
        let mut found = lock(&self.found);
        let is_known = found.is_damaged(position) || found.known.len() >= MAX_MISMATCHES;
        if !is_known && found.known.insert((position, size)) {
            found.unchecked.push_back(Mismatch {
                topic: Arc::clone(&queue.topic),
                queue: queue.id,
                position,
                size,
            });
        }
    }

    /// Finds out what is damaged where readers found no record, and reports it. One round of several.
    pub(crate) fn check(&self) {
        self.check_some(MAX_CHECKED);
    }

    fn check_some(&self, max_count: usize) {
        for _ in 0..max_count {
            let mut found = lock(&self.found);
            let Some(mismatch) = found.unchecked.pop_front() else {
                return;
            };
            if found.is_damaged(mismatch.position) {
                continue;
            }
            drop(found);
            let end = self.log.appended();
            match damage_at(&self.log, mismatch.position, mismatch.size) {
                Ok(Some(damage)) => {
                    // Without a good record after it, the rest of the log is damaged.
                    let until = match damage.error {
                        StoreError::Damaged { good, .. } => good,
                        _ => end,
                    };
                    lock(&self.found).damaged.push(damage.from..until);
                    self.state.report_damage(damage);
                }
                Ok(None) => self.report_queue(&mismatch),
                Err(error) => {
                    // The next reader of the unit records it again.
                    let Mismatch { position, size, .. } = mismatch;
                    lock(&self.found).known.remove(&(position, size));
                    tracing::warn!(position, %error, "cannot check whether the log is damaged");
                }
            }
        }
    }

    fn report_queue(&self, mismatch: &Mismatch) {
        if self.is_queue_damaged.swap(true, Ordering::AcqRel) {
            return;
        }
        let error = StoreError::QueueMismatch {
            position: mismatch.position,
            size: mismatch.size,
        };
        tracing::error!(
            topic = %mismatch.topic, queue = mismatch.queue, %error,
            "a consume queue is damaged: the next start builds the queues again"
        );
    }

    /// Whether the next start must rebuild the queues: one of them is damaged, and the log is not.
    pub(crate) fn need_rebuild(&self) -> bool {
        self.check_some(MAX_CHECKED_AT_END);
        if !self.is_queue_damaged.load(Ordering::Acquire) {
            return false;
        }
        let damage = self.state.damage();
        if let Some(damage) = &damage {
            tracing::warn!(%damage, "a damaged consume queue stays as it is, because the log is damaged, too");
        }
        damage.is_none()
    }
}
