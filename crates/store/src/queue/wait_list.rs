//! Lists of queues that wait to be written or fsynced. A queue is in a list at most once.
//!
//! Contract: a thread changes a queue first, then calls [`WaitList::add`]. A round calls [`WaitList::take`], then
//! [`InList::leave`] for each queue, and then looks at the queue. So either the round sees the change, or the queue is
//! in the list again. `tests/loom_queue_lists.rs` goes through the interleavings.

use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use std::sync::Arc;

/// Whether a queue is in a list.
#[derive(Debug)]
pub(crate) struct InList(AtomicBool);

impl Default for InList {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl InList {
    /// Marks the queue as taken out of the list: a later change adds it again.
    pub(crate) fn leave(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Queues that wait for a round of work.
#[derive(Debug)]
pub(crate) struct WaitList<T> {
    waiting: Mutex<Vec<Arc<T>>>,
}

impl<T> Default for WaitList<T> {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Vec::new()),
        }
    }
}

impl<T> WaitList<T> {
    /// Adds a queue unless it is in the list.
    pub(crate) fn add(&self, queue: &Arc<T>, in_list: &InList) {
        if in_list.0.load(Ordering::Relaxed) {
            return;
        }
        // Under the lock, so that a round that takes the list later finds a queue that is marked as listed.
        let mut waiting = lock(&self.waiting);
        if !in_list.0.swap(true, Ordering::AcqRel) {
            waiting.push(Arc::clone(queue));
        }
    }

    /// Takes all queues out. The caller must call [`InList::leave`] for each before it looks at the queue.
    pub(crate) fn take(&self) -> Vec<Arc<T>> {
        std::mem::take(&mut *lock(&self.waiting))
    }

    /// Puts queues back that were taken but not processed.
    pub(crate) fn put_back(&self, queues: &mut Vec<Arc<T>>) {
        lock(&self.waiting).append(queues);
    }

    /// The queues that wait now.
    pub(crate) fn waiting(&self) -> Vec<Arc<T>> {
        lock(&self.waiting).clone()
    }
}
