//! Messages that groups take without owning queues (Apache `PopMessageProcessor`): what the broker remembers of them.
//! The requests are answered in `processor/pop/`.
//!
//! ```text
//! pop     reads from the group's offset -> pop check point to the revive topic through the timer -> offset moves on
//! ack     an acknowledgement takes the same way, due when the message would come back
//! revive  a pop check point comes out of the timer, then its acknowledgements; what has none goes to the retry topic
//! ```
//! An ordered group has no pop check points: its offset stays at the first message that is not done, and `order` says
//! until when the queue is closed.

pub(crate) mod hold;
pub(crate) mod order;
pub(crate) mod pop_check_point;
pub(crate) mod request_mode;

use crate::block_in_place;
use crate::error::{BrokerError, Refusal};
use crate::options::Options;
use crate::tables::config_file::ConfigFile;
use hold::HeldPops;
use order::Orders;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::hash::NameState;
use pyrmq_remoting::message::{Record, record};
use pyrmq_remoting::sync::wakeup::Wakeup;
use pyrmq_remoting::sync::{LockWaiters, lock, try_lock};
use pyrmq_store::{GetMessage, Store, StoreError, TagFilter};
use request_mode::RequestModes;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum number of messages of a pop (Apache `PopMessageProcessor`): a pop check point has 32 bits.
pub(crate) const MAX_MESSAGES: i32 = 32;
const LOCKS: usize = 256;
/// How long a request waits for a queue before it continues in `block_in_place`, and before it is refused. The pop that
/// has the queue may wait for a disk that hangs.
const SHORT_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// What a broker remembers of pops.
#[derive(Debug)]
pub struct Pops {
    /// Queues of ordered groups.
    pub(crate) orders: Orders,
    /// Pops that wait for messages.
    pub(crate) held: HeldPops,
    /// Which groups pop and which pull.
    pub(crate) modes: RequestModes,
    /// Wakes the thread that brings messages back.
    pub(crate) revive_wakeup: Wakeup,
    // Guards how far the queues of the revive topic were read, as of the last pass. Held for a copy.
    revive_progress: Mutex<Vec<ReviveProgress>>,
    /// Counts pop check points, which go to the revive queues in turn.
    next_revive_queue: AtomicU32,
    /// Counts pops, which begin at one queue after the other.
    turns: AtomicU32,
    hash: NameState,
    locks: Vec<QueueLock>,
}

/// How far a queue of the revive topic was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReviveProgress {
    pub(crate) queue_id: i32,
    /// The first offset that was not read.
    pub(crate) next: i64,
    /// Pop check points that are not done.
    pub(crate) pending: usize,
    /// When the first of them is due, in ms.
    pub(crate) first_due_ms: Option<i64>,
}

/// The lock of the queues that are mapped to it: one pop at a time reads a queue for a group.
#[derive(Debug, Default)]
struct QueueLock {
    // Guards the offsets of the groups on the queues.
    mutex: Mutex<()>,
    waiters: LockWaiters,
    /// A held request has waited for this lock for [`SHORT_WAIT`] in vain. Cleared when the lock is released.
    is_stuck: AtomicBool,
}

/// A queue that no other pop of the group reads meanwhile.
pub(crate) struct LockedQueue<'p> {
    held: Option<MutexGuard<'p, ()>>,
    lock: &'p QueueLock,
}

impl Drop for LockedQueue<'_> {
    fn drop(&mut self) {
        drop(self.held.take());
        if self.lock.is_stuck.load(Ordering::Relaxed) {
            self.lock.is_stuck.store(false, Ordering::Relaxed);
        }
        self.lock.waiters.notify();
    }
}

impl QueueLock {
    fn taken<'p>(&'p self, guard: MutexGuard<'p, ()>) -> LockedQueue<'p> {
        LockedQueue {
            held: Some(guard),
            lock: self,
        }
    }

    /// Waits for up to [`SHORT_WAIT`], but not for a pop that others have waited for in vain.
    fn take_if_short(&self) -> Option<LockedQueue<'_>> {
        let since = Instant::now();
        let waits = || since.elapsed() < SHORT_WAIT && !self.is_stuck.load(Ordering::Relaxed);
        let guard = self.waiters.wait(&self.mutex, waits);
        if guard.is_none() {
            self.is_stuck.store(true, Ordering::Relaxed);
        }
        guard.map(|guard| self.taken(guard))
    }
}

impl Pops {
    /// Reads the files below `config/`.
    pub(crate) fn load(
        options: &Options,
        held: HeldPops,
        file: impl Fn(&str) -> ConfigFile,
    ) -> Result<Self, BrokerError> {
        Ok(Self {
            orders: Orders::load(file("consumerOrderInfo.json"))?,
            held,
            modes: RequestModes::load(options, file("messageRequestMode.json"))?,
            revive_wakeup: Wakeup::default(),
            revive_progress: Mutex::default(),
            next_revive_queue: AtomicU32::new(0),
            turns: AtomicU32::new(0),
            hash: NameState::default(),
            locks: std::iter::repeat_with(Default::default).take(LOCKS).collect(),
        })
    }

    /// How far the queues of the revive topic were read.
    pub(crate) fn revive_progress(&self) -> Vec<ReviveProgress> {
        lock(&self.revive_progress).clone()
    }

    pub(crate) fn set_revive_progress(&self, progress: Vec<ReviveProgress>) {
        *lock(&self.revive_progress) = progress;
    }

    /// The revive queue of the next pop check point.
    pub(crate) fn next_revive_queue(&self, queues: i32) -> i32 {
        let next = self.next_revive_queue.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        i32::try_from(next).unwrap_or(0) % queues.max(1)
    }

    /// A number for what pops do in turn: which queue first, whether retries first.
    pub(crate) fn next_turn(&self) -> u32 {
        // Spread, since clients that pop in turn would always get the same queue.
        self.turns
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9E37_79B1)
            >> 8
    }

    /// Keeps others from taking messages of a queue for a group.
    pub(crate) fn lock(&self, topic: &str, group: &str, queue_id: i32) -> Option<LockedQueue<'_>> {
        let of_queue = self.lock_of(topic, group, queue_id)?;
        Some(of_queue.taken(lock(&of_queue.mutex)))
    }

    /// Like [`Pops::lock`], on a thread of the runtime. Refused if another pop has the queue for [`MAX_WAIT`].
    pub(crate) fn lock_within_limit(
        &self,
        topic: &str,
        group: &str,
        queue_id: i32,
    ) -> Result<Option<LockedQueue<'_>>, Refusal> {
        let Some(of_queue) = self.lock_of(topic, group, queue_id) else {
            return Ok(None);
        };
        let QueueLock { mutex, waiters, .. } = of_queue;
        let mut held = try_lock(mutex);
        if held.is_none() {
            let since = Instant::now();
            held = waiters.wait(mutex, || since.elapsed() < SHORT_WAIT);
            if held.is_none() {
                block_in_place::POPS.run(&mut || {
                    held = waiters.wait(mutex, || since.elapsed() < MAX_WAIT);
                });
            }
        }
        let Some(held) = held else {
            let text = format!("queue {queue_id} of {topic} is locked by another request of {group}");
            return Err(Refusal::new(response::SYSTEM_BUSY, text));
        };
        Ok(Some(of_queue.taken(held)))
    }

    /// Like [`Pops::lock_within_limit`], for a request that was held, since requests of other groups wait for its task.
    /// `None`: another pop has had the queue for longer than a pop takes that does not wait for the disk.
    pub(crate) fn lock_if_short(&self, topic: &str, group: &str, queue_id: i32) -> Option<LockedQueue<'_>> {
        self.lock_of(topic, group, queue_id)?.take_if_short()
    }

    fn lock_of(&self, topic: &str, group: &str, queue_id: i32) -> Option<&QueueLock> {
        let hash = self.hash.hash_one((topic, group, queue_id));
        let at = usize::try_from(hash % LOCKS as u64).unwrap_or(0);
        self.locks.get(at)
    }

    /// Forgets a topic that was deleted, and wakes the pops that wait for it.
    pub(crate) fn remove_topic(&self, topic: &str) {
        self.orders.close(|of_topic, _| of_topic == topic);
        self.held.release_topic(topic);
    }

    /// Forgets a group that was deleted.
    pub(crate) fn remove_group(&self, group: &str) {
        self.orders.close(|_, of_group| of_group == group);
        self.held.release_group(group);
    }
}

/// Reads the message at an offset of a queue. `None`: the queue has none there any more.
pub(crate) fn message_at<T>(
    store: &Store,
    topic: &str,
    queue_id: i32,
    offset: i64,
    read: impl FnOnce(&Record<'_>) -> T,
) -> Result<Option<T>, StoreError> {
    let got = store.get(&GetMessage {
        topic,
        queue_id,
        offset,
        max_count: 1,
        max_bytes: 1,
        tags: TagFilter::All,
    })?;
    let record = record::records(&got.body).next().and_then(Result::ok);
    let record = record.filter(|record| record.queue_offset == offset);
    Ok(record.as_ref().map(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_were_held_wait_once_behind_a_pop_that_has_its_queue_for_long() {
        let of_queue = QueueLock::default();
        let long = of_queue.take_if_short().unwrap();
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let begun = Instant::now();
                let taken = (0..1000).filter(|_| of_queue.take_if_short().is_some()).count();
                (taken, begun.elapsed())
            });
            let (taken, took) = others.join().unwrap();
            assert_eq!(taken, 0);
            assert!(took < SHORT_WAIT * 100, "{took:?}");
        });
        drop(long);
        assert!(!of_queue.is_stuck.load(Ordering::Relaxed));
    }
}
