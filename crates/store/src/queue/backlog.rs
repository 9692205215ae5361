//! The queues of which much waits to be written, and the wake-up of the thread that writes them. All others are written
//! less often, so that a file gets the units of many puts at once.
//!
//! Only a put whose queue's unwritten units reach a further [`BLOCK`] counts it, so that most puts count nothing.

use crate::queue::consume_queue::ConsumeQueue;
use crate::sync::lock;
use crate::sync::wakeup::Wakeup;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of one queue's units that are counted at once.
const BLOCK: usize = 64 << 10;

/// Queues with many units to be written, and the number of blocks that were counted for each. A queue may be there more
/// than once.
pub(super) type Large = Vec<(Arc<ConsumeQueue>, usize)>;

/// The units that wait to be written, if there are many of a queue.
#[derive(Debug, Default)]
pub(crate) struct QueueBacklog {
    large: Mutex<Large>,
    /// Number of blocks, with those that are being written.
    blocks: AtomicUsize,
    /// Wakes the thread that writes the queues.
    pub(crate) wakeup: Wakeup,
}

impl QueueBacklog {
    /// Counts units that were added to a queue, of which `waiting` bytes are unwritten now, and wakes the writing
    /// thread if there are many. The queue must be in the list of unwritten ones already.
    pub(crate) fn add(&self, queue: &Arc<ConsumeQueue>, waiting: usize, added: usize) {
        let blocks = waiting / BLOCK - waiting.saturating_sub(added) / BLOCK;
        if blocks > 0 {
            self.blocks.fetch_add(blocks, Ordering::Relaxed);
            lock(&self.large).push((Arc::clone(queue), blocks));
            self.wakeup.notify();
        }
    }

    /// Takes the queues out. The caller must write them and call [`QueueBacklog::done`], or put them back.
    pub(super) fn take(&self) -> Large {
        std::mem::take(&mut *lock(&self.large))
    }

    /// Puts queues back that could not be written.
    pub(super) fn put_back(&self, taken: &mut Large) {
        lock(&self.large).append(taken);
    }

    /// These queues were written.
    pub(super) fn done(&self, taken: &[(Arc<ConsumeQueue>, usize)]) {
        let blocks = taken.iter().map(|(_, blocks)| blocks).sum();
        self.blocks.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Bytes of units that are counted now.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.load(Ordering::Relaxed).saturating_mul(BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::files::handles::Handles;
    use std::path::PathBuf;
    use std::time::Duration;

    #[test]
    fn each_further_block_of_a_queue_is_counted_once_and_wakes_the_writing_thread() {
        let (backlog, handles) = (QueueBacklog::default(), Arc::new(Handles::new(1)));
        let queue = Arc::new(ConsumeQueue::new(
            &Arc::from("T"),
            0,
            PathBuf::new(),
            20,
            &handles,
        ));
        let is_woken = || backlog.wakeup.notified_within(Duration::ZERO);
        backlog.add(&queue, BLOCK - 20, 20);
        assert!(backlog.bytes() == 0 && !is_woken());
        backlog.add(&queue, BLOCK + 20, 40);
        assert!(backlog.bytes() == BLOCK && is_woken());
        backlog.add(&queue, 2 * BLOCK - 20, BLOCK - 40);
        assert!(backlog.bytes() == BLOCK && !is_woken());
        let mut taken = backlog.take();
        backlog.add(&queue, 4 * BLOCK, 3 * BLOCK);
        assert!(backlog.bytes() == 4 * BLOCK && is_woken());
        backlog.done(&taken);
        assert_eq!(backlog.bytes(), 3 * BLOCK);
        taken = backlog.take();
        backlog.put_back(&mut taken);
        assert_eq!(backlog.bytes(), 3 * BLOCK, "they still wait");
        backlog.done(&backlog.take());
        assert_eq!(backlog.bytes(), 0);
    }
}
