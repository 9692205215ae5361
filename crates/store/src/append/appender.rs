//! Puts from beginning to end: `encode.rs` encodes them, `write.rs` writes them to the log under the append lock, and
//! this file does what follows a write.

use crate::append::appended::Appended;
use crate::append::buffer::{AppendBuffer, QueueAppend};
use crate::append::flow_control::FlowControl;
use crate::append::staged::StagedPool;
use crate::dispatch::indexing::Indexing;
use crate::dispatch::queue_maintenance::QueueMaintenance;
use crate::error::StoreError;
use crate::flush::Flusher;
use crate::format::CQ_UNIT_SIZE;
use crate::message::{Arrival, MessageBatch, NewMessage, Stage, Stored};
use crate::options::FlushDiskType;
use crate::queue::consume_queue::ConsumeQueue;
use crate::queue::deleted_topics::DeletedTopics;
use crate::state::append_state::Written;
use crate::state::shared::Shared;
use crate::sync::MutexGuard;
use crate::sync::wakeup::Wakeup;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Number of waiting index entries at which the index thread is woken early.
const INDEX_WAKE_AT: usize = 1 << 14;
/// Number of waiting index entries at which the putting thread helps.
const INDEX_HELP_AT: usize = 1 << 20;
/// Number of waiting index entries (some 100 MB) at which the putting thread waits for the index thread.
const INDEX_BLOCK_AT: usize = 1 << 23;
/// Number of waiting index entries at which puts are refused.
pub(super) const INDEX_REFUSE_AT: usize = 2 * INDEX_BLOCK_AT;

/// Stores messages.
pub(crate) struct Appender {
    pub(crate) queue_maintenance: Arc<QueueMaintenance>,
    pub(crate) indexing: Arc<Indexing>,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) flow_control: FlowControl,
    pub(crate) staged_pool: StagedPool,
    pub(crate) segment_wakeup: Wakeup,
    /// Base of the segment that was last requested from the segment thread.
    pub(crate) requested_segment: AtomicI64,
    pub(crate) counts: Counts,
    /// What all parts of the store share.
    pub(crate) shared: Shared,
}

/// Counters of puts. They are written under the append lock but read without it, so that a reader does not wait for a
/// disk that hangs in a write.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
}

impl Counts {
    /// Adds to a counter. Only under the append lock, which allows an unlocked instruction.
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// What to do with the messages after one whose queue waits too long for a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtBusy {
    /// They belong to other senders, and are stored.
    GoOn,
    /// They belong to the same put, which is tried again from the first that failed: they fail with it.
    Stop,
}

impl Appender {
    pub(crate) fn new(
        shared: &Shared,
        queue_maintenance: &Arc<QueueMaintenance>,
        indexing: &Arc<Indexing>,
        flusher: &Arc<Flusher>,
    ) -> Self {
        Self {
            queue_maintenance: Arc::clone(queue_maintenance),
            indexing: Arc::clone(indexing),
            flow_control: FlowControl::new(&shared.live, &shared.group_commit, &flusher.append_hold),
            flusher: Arc::clone(flusher),
            staged_pool: StagedPool::default(),
            segment_wakeup: Wakeup::default(),
            requested_segment: AtomicI64::new(-1),
            counts: Counts::default(),
            shared: shared.clone(),
        }
    }

    /// Stores one message.
    pub(crate) fn put(&self, message: &NewMessage<'_>) -> Result<Stored, StoreError> {
        self.put_directly(|append_buffer| self.encode(append_buffer, message))
    }

    /// Stores a message whose size was checked when it was stored for the first time.
    pub(crate) fn put_accepted(&self, message: &NewMessage<'_>) -> Result<Stored, StoreError> {
        self.put_directly(|append_buffer| self.encode_accepted(append_buffer, message))
    }

    /// Stores messages in one write.
    pub(crate) fn put_all(&self, messages: &[NewMessage<'_>]) -> Result<Stored, StoreError> {
        let mut messages = messages.iter();
        self.put_directly(|append_buffer| {
            messages.try_for_each(|message| self.encode(append_buffer, message))
        })
    }

    /// Stores messages in one write, whose sizes were checked when they were stored for the first time. `stage_all`
    /// stages them; returns the outcome of each that was staged.
    pub(crate) fn put_accepted_all(
        &self,
        stage_all: impl FnOnce(&mut Stage<'_>),
    ) -> Vec<Result<Stored, StoreError>> {
        let mut staged = self.staged_pool.acquire();
        stage_all(&mut |message| self.encode_accepted(&mut staged.append_buffer, message));
        let mut outcomes = Vec::with_capacity(staged.append_buffer.queue_appends.len());
        self.append_all(&mut staged.append_buffer, AtBusy::Stop, |stored| {
            outcomes.push(stored);
        });
        self.staged_pool.release(staged);
        if self.shared.live.flush() == FlushDiskType::Sync {
            self.shared.group_commit.wakeup.notify();
        }
        outcomes
    }

    /// Stores a batch in one write.
    pub(crate) fn put_batch(&self, batch: &MessageBatch<'_>) -> Result<Stored, StoreError> {
        self.put_directly(|append_buffer| self.encode_batch(append_buffer, batch))
    }

    fn put_directly(
        &self,
        encode: impl FnOnce(&mut AppendBuffer) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        let mut staged = self.staged_pool.acquire();
        let mut failed = encode(&mut staged.append_buffer).err();
        let mut done = Err(StoreError::Closed);
        if failed.is_none() {
            self.append_all(&mut staged.append_buffer, AtBusy::Stop, |stored| match stored {
                Ok(stored) => done = Ok(stored),
                Err(error) => failed = failed.take().or(Some(error)),
            });
        }
        self.staged_pool.release(staged);
        let done = failed.map_or(done, Err);
        if self.shared.live.flush() == FlushDiskType::Sync && done.is_ok() {
            self.shared.group_commit.wakeup.notify();
        }
        done
    }

    /// Appends all encoded puts, with one write for each segment that they reach, and reports the outcome of each queue
    /// append, in order.
    pub(crate) fn append_all(
        &self,
        append_buffer: &mut AppendBuffer,
        at_busy: AtBusy,
        mut notify_put: impl FnMut(Result<Stored, StoreError>),
    ) {
        let mut next = 0;
        while next < append_buffer.queue_appends.len() {
            match self.append(append_buffer, next) {
                Ok(None) => {
                    if let Err(error) = self.renew_queue(append_buffer, next) {
                        let is_last = at_busy == AtBusy::Stop && matches!(error, StoreError::Busy { .. });
                        let end = if is_last {
                            append_buffer.queue_appends.len()
                        } else {
                            next + 1
                        };
                        for _ in next..end {
                            notify_put(Err(error.clone()));
                        }
                        next = end;
                    }
                }
                Ok(Some(written)) => {
                    let count = append_buffer.appended.len();
                    self.after_write(&written);
                    for (at, appended) in append_buffer.appended.drain(..).enumerate() {
                        if let Some(queue_append) = append_buffer.queue_appends.get(next + at) {
                            self.after_append(queue_append, &appended);
                        }
                        notify_put(Ok(appended.stored));
                    }
                    next += count;
                }
                Err(error) => {
                    for _ in next..append_buffer.queue_appends.len() {
                        notify_put(Err(error.clone()));
                    }
                    return;
                }
            }
        }
    }

    /// The queue was deleted, or its deletion is under way: this message becomes the first of a new queue. An error if
    /// the deletion takes longer than `waitTimeMillsInSendQueue`.
    fn renew_queue(&self, append_buffer: &mut AppendBuffer, at: usize) -> Result<(), StoreError> {
        let Some(queue_append) = append_buffer.queue_appends.get_mut(at) else {
            return Ok(());
        };
        drop(self.wait_for_deletion()?);
        let (topic, id) = (queue_append.queue.topic.to_string(), queue_append.queue.id);
        let next = self.queue_for_put(&topic, id)?;
        if Arc::ptr_eq(&next, &queue_append.queue) && self.is_stuck(&next)? {
            let reason = "its deletion did not finish: delete the topic again";
            return Err(StoreError::illegal_queue(&topic, id, reason));
        }
        queue_append.queue = next;
        Ok(())
    }

    /// Waits until no topic is being deleted, for at most `waitTimeMillsInSendQueue`.
    fn wait_for_deletion(&self) -> Result<MutexGuard<'_, DeletedTopics>, StoreError> {
        let deleted = &self.queue_maintenance.deleted;
        self.flow_control.wait_for_other(deleted)
    }

    /// The messages are stored, so a failure from here on stops the next put, not these.
    fn after_write(&self, written: &Written) {
        if self.shared.state.disk.spend(written.bytes)
            && let Err(error) = self.shared.state.check_disk_space()
        {
            tracing::error!(%error, "cannot see how much space is free");
        }
        if written.keys_waiting >= INDEX_BLOCK_AT {
            // The index may be on a disk that hangs, and the sender waits for its answer.
            let most = Duration::from_millis(self.shared.live.send_wait_ms());
            let done = self.indexing.round_of_put(most);
            self.shared
                .state
                .handle_failure("cannot fill the key index", done);
        } else if written.keys_waiting >= INDEX_HELP_AT {
            self.shared
                .state
                .handle_failure("cannot fill the key index", self.indexing.help());
        } else if written.keys_waiting >= INDEX_WAKE_AT {
            self.indexing.wakeup.notify();
        }
    }

    /// The steps after a write for one of its queues; [`Appender::after_write`] has those for the log.
    fn after_append(&self, queue_append: &QueueAppend, appended: &Appended) {
        let added = queue_append.encoded_records.len() * CQ_UNIT_SIZE;
        let backlog = &self.shared.queues.backlog;
        backlog.add(&queue_append.queue, appended.units_waiting, added);
        self.notify_arrival(queue_append, appended);
    }

    /// Whether the queue's deletion has failed.
    fn is_stuck(&self, queue: &ConsumeQueue) -> Result<bool, StoreError> {
        let _deleting = self.wait_for_deletion()?;
        let _wakes = self.flow_control.hold.wakes_next();
        let _append = self.flow_control.wait_for(&self.shared.append)?;
        Ok(queue.is_closing())
    }

    /// Reports to the listener which messages are readable now.
    fn notify_arrival(&self, queue_append: &QueueAppend, appended: &Appended) {
        if appended.is_readable
            && let Some(listener) = self.shared.listeners.arrival()
        {
            let (queue, stored) = (&queue_append.queue, &appended.stored);
            listener(&Arrival {
                topic: &queue.topic,
                queue_id: queue.id,
                next_offset: stored.queue_offset + i64::from(stored.count),
                count: stored.count,
                tags_code: appended.tags_code,
                store_timestamp_ms: stored.store_timestamp_ms,
            });
        }
    }
}
