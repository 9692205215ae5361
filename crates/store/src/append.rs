//! The way in: one appender under a lock.
//!
//! What a put costs: the record is laid out in a buffer of the calling thread (`scratch`), the keys are hashed there
//! too; under the lock three fields are patched, one positional write brings the record (or the whole batch, or all
//! puts of a burst) into the page cache, and 20 bytes go to the queue's memory. No other system call, no other thread is woken.

use crate::checkpoint::SLACK_MS;
use crate::commit_log::{CommitLog, Tail};
use crate::consume_queue::{ConsumeQueue, WRITE_NOW};
use crate::error::StoreError;
use crate::format::{Unit, to_i64, to_usize};
use crate::inner::{Counts, Inner};
use crate::message::{Arrival, Batch, Message, Stored};
use crate::nul_records::looks_torn;
use crate::options::FlushDiskType;
use crate::recover::Recovered;
use crate::scratch::{Place, Placed, Scratch, Target};
use crate::sync::lock;
use crate::waiting_keys::WaitingKeys;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::record::BLANK_SIZE;
use pyrmq_remoting::message::sys_flag;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Waiting index entries from which the index thread is woken before its time.
const INDEX_SOON: usize = 1 << 14;
/// Waiting index entries from which the putting thread helps.
const INDEX_NOW: usize = 1 << 20;
/// Waiting index entries (some 100 MB) from which the putting thread waits for whoever fills the index.
const INDEX_MOST: usize = 1 << 23;

/// What the append lock guards.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) tail: Tail,
    /// Keys that wait for the index thread.
    pub(crate) index: WaitingKeys,
    /// False while the index thread still reads the log: it will meet the new records there.
    pub(crate) index_direct: bool,
    /// Units that become readable once they are durable (`SYNC_FLUSH`).
    pub(crate) deferred: VecDeque<Deferred>,
    /// The newest time that the clock has shown, ms.
    high_ms: i64,
}

/// A unit that waits for an fsync.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) unit: Unit,
    pub(crate) store_ms: i64,
}

/// One write that brought records into the log.
#[derive(Debug)]
struct Written {
    bytes: u64,
    /// Entries that the index has not got.
    keys_waiting: usize,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Inner {
    /// Stores one message.
    pub(crate) fn put(&self, message: &Message<'_>) -> Result<Stored, StoreError> {
        self.put_now(|scratch| self.lay_out(scratch, message))
    }

    /// Stores one message whose size was allowed when it was stored for the first time.
    pub(crate) fn put_accepted(&self, message: &Message<'_>) -> Result<Stored, StoreError> {
        self.put_now(|scratch| self.lay_out_accepted(scratch, message))
    }

    /// Stores a batch in one write.
    pub(crate) fn put_batch(&self, batch: &Batch<'_>) -> Result<Stored, StoreError> {
        self.put_now(|scratch| self.lay_out_batch(scratch, batch))
    }

    fn put_now(
        &self,
        lay_out: impl FnOnce(&mut Scratch) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            lay_out(scratch)?;
            let mut done = Err(StoreError::Closed);
            self.append_all(scratch, |stored| done = stored);
            if self.live.flush() == FlushDiskType::Sync && done.is_ok() {
                self.commit.alarm.ring();
            }
            done
        })
    }

    /// Gets a message ready to be appended.
    pub(crate) fn lay_out(&self, scratch: &mut Scratch, message: &Message<'_>) -> Result<(), StoreError> {
        self.check_body(message.body.len())?;
        self.lay_out_accepted(scratch, message)
    }

    fn lay_out_accepted(&self, scratch: &mut Scratch, message: &Message<'_>) -> Result<(), StoreError> {
        let hidden = sys_flag::is_hidden(message.sys_flag);
        self.lay_out_target(scratch, (message.topic, message.queue_id), hidden, |scratch| {
            scratch.add(message, &self.options, self.index.is_some())
        })
    }

    /// Gets a batch ready to be appended as consecutive records of one file.
    pub(crate) fn lay_out_batch(&self, scratch: &mut Scratch, batch: &Batch<'_>) -> Result<(), StoreError> {
        if batch.items.is_empty() {
            return Err(StoreError::EmptyBatch);
        }
        self.check_body(batch.items.iter().map(|item| item.body.len()).sum())?;
        let hidden = sys_flag::is_hidden(batch.sys_flag);
        self.lay_out_target(scratch, (batch.topic, batch.queue_id), hidden, |scratch| {
            scratch.add_batch(batch, &self.options, self.index.is_some())
        })
    }

    fn check_body(&self, size: usize) -> Result<(), StoreError> {
        let limit = self.live.max_message_bytes();
        if size > limit {
            return Err(StoreError::MessageTooLarge { size, limit });
        }
        Ok(())
    }

    /// Adds one target to what is laid out; what fails leaves it as it was.
    fn lay_out_target(
        &self,
        scratch: &mut Scratch,
        (topic, queue_id): (&str, i32),
        hidden: bool,
        records: impl FnOnce(&mut Scratch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.check_writable()?;
        self.check_brakes()?;
        let queue = self.queue_for_put(topic, queue_id)?;
        let before = scratch.filled();
        let done = records(scratch).and_then(|()| {
            let limit = usize::try_from(self.options.segment_bytes).unwrap_or(usize::MAX) - BLANK_SIZE;
            let size = scratch.records.len() - before.records;
            if size > limit {
                return Err(StoreError::MessageTooLarge { size, limit });
            }
            Ok(())
        });
        if done.is_err() {
            scratch.cut(before);
            return done;
        }
        scratch.targets.push(Target {
            queue,
            hidden,
            pieces: before.pieces..scratch.pieces.len(),
        });
        Ok(())
    }

    /// Appends all that was laid out, in one write for each segment that it reaches, and tells of each target, in their order,
    /// what has become of it.
    pub(crate) fn append_all(&self, scratch: &mut Scratch, mut tell: impl FnMut(Result<Stored, StoreError>)) {
        let mut next = 0;
        while next < scratch.targets.len() {
            match self.append(scratch, next) {
                Ok(None) => {
                    if let Err(error) = self.renew_queue(scratch, next) {
                        tell(Err(error));
                        next += 1;
                    }
                }
                Ok(Some(written)) => {
                    let count = scratch.placed.len();
                    self.after_write(&written);
                    for (at, placed) in scratch.placed.drain(..).enumerate() {
                        if let Some(target) = scratch.targets.get(next + at) {
                            self.after_append(target, &placed);
                        }
                        tell(Ok(placed.stored));
                    }
                    next += count;
                }
                Err(error) => {
                    for _ in next..scratch.targets.len() {
                        tell(Err(error.clone()));
                    }
                    return;
                }
            }
        }
    }

    /// The queue is being deleted: this message is the first one of its topic's next life.
    fn renew_queue(&self, scratch: &mut Scratch, at: usize) -> Result<(), StoreError> {
        let Some(target) = scratch.targets.get_mut(at) else {
            return Ok(());
        };
        drop(lock(&self.deleted));
        let (topic, id) = (target.queue.topic.to_string(), target.queue.id);
        let next = self.queue_for_put(&topic, id)?;
        if Arc::ptr_eq(&next, &target.queue) && self.is_stuck(&next) {
            let reason = "its deletion came to no end: delete the topic again";
            return Err(StoreError::illegal_queue(&topic, id, reason));
        }
        target.queue = next;
        Ok(())
    }

    /// The messages are stored: what fails from here on stops the next put, not these.
    fn after_write(&self, written: &Written) {
        if self.disk.spend(written.bytes)
            && let Err(error) = self.look_at_disk()
        {
            tracing::error!(%error, "cannot see how much space is free");
        }
        if written.keys_waiting >= INDEX_MOST {
            self.note_failure("cannot fill the key index", self.index_round());
        } else if written.keys_waiting >= INDEX_NOW {
            self.note_failure("cannot fill the key index", self.help_index());
        } else if written.keys_waiting >= INDEX_SOON {
            self.index_alarm.ring();
        }
    }

    /// The same for one queue.
    fn after_append(&self, target: &Target, placed: &Placed) {
        let queue = &target.queue;
        if placed.units_waiting >= WRITE_NOW {
            self.queues.note_unsynced(queue);
            if let Err(error) = queue.write_out(self.fs.as_ref()) {
                self.note_unwritten(error);
            }
        }
        self.announce(target, placed);
    }

    fn queue_for_put(&self, topic: &str, queue_id: i32) -> Result<Arc<ConsumeQueue>, StoreError> {
        if let Some(queue) = self.queues.get(topic, queue_id) {
            return Ok(queue);
        }
        let reason = if queue_id < 0 {
            "the queue id is negative"
        } else if topic.is_empty() || topic.len() > 255 {
            "a topic has 1 to 255 bytes"
        } else if topic.starts_with('.')
            || topic
                .bytes()
                .any(|byte| byte == b'/' || byte == b'\\' || byte == 0)
        {
            "the topic cannot be a directory's name"
        } else {
            return Ok(self.queues.get_or_add(topic, queue_id));
        };
        Err(StoreError::illegal_queue(topic, queue_id, reason))
    }

    /// True for a queue whose deletion has failed.
    fn is_stuck(&self, queue: &ConsumeQueue) -> bool {
        let _deleting = lock(&self.deleted);
        let _append = lock(&self.append);
        queue.is_closing()
    }

    /// Writes the targets from `from` on that fit into the segment, in one write, and notes their places in the scratch. `None`
    /// when the first one's queue is being deleted.
    fn append(&self, scratch: &mut Scratch, from: usize) -> Result<Option<Written>, StoreError> {
        let mut append = self.wait_for_append()?;
        let _hold = self.brakes.hold();
        let append = &mut *append;
        // Looked at again under the lock: behind a failed write nothing may be written.
        self.check_writable()?;
        let Some(first) = scratch
            .targets
            .get(from)
            .filter(|first| !first.queue.is_closing())
        else {
            return Ok(None);
        };
        let base = scratch.bytes_of(first).start;
        append
            .tail
            .make_room(&self.log, scratch.bytes_of(first).len())
            .inspect_err(|error| self.note_full(error))?;
        let run = from..scratch.run_end(from, base + append.tail.room(&self.log));
        let store_ms = self.append_time(append)?;
        let place = Place {
            buffer: append.tail.position - to_i64(base),
            store_ms,
        };
        let written = scratch.place(run.clone(), place).and_then(|end| {
            self.note_torn_looking(scratch, run.clone(), place)?;
            let records = scratch.records.get(base..end).unwrap_or_default();
            append
                .tail
                .write(&self.log, records)
                .inspect_err(|error| self.note_full(error))?;
            Ok(records.len() as u64)
        });
        let bytes = match written {
            Ok(bytes) => bytes,
            Err(error) => {
                scratch.take_back(run);
                return Err(error);
            }
        };
        append.tail.last_store_ms = store_ms;
        if self.live.flush() == FlushDiskType::Sync {
            append.tail.write_ahead(&self.log, self.options.flush_ahead_bytes);
        }
        if append.tail.is_past_half(&self.log) {
            self.prepare_soon();
        }
        Counts::add(&self.counts.bytes, bytes);
        Counts::add(&self.counts.writes, 1);
        self.hand_on(append, scratch, run, place);
        Ok(Some(Written {
            bytes,
            keys_waiting: append.index.len(),
        }))
    }

    /// Notes those records of a run that a start after a crash would take for torn, before they are written.
    fn note_torn_looking(
        &self,
        scratch: &Scratch,
        run: Range<usize>,
        place: Place,
    ) -> Result<(), StoreError> {
        for (position, bytes) in scratch.torn_looking(run, place) {
            let segment_begin = self.log.next_segment(position) - self.log.segment_bytes();
            let inside = to_usize(position - segment_begin);
            if Record::decode(bytes).is_ok_and(|record| looks_torn(&record, bytes, inside)) {
                let durable = self.checkpoint.log_end();
                self.nul_records
                    .add(self.fs.as_ref(), position, bytes, durable)
                    .inspect_err(|error| self.note_full(error))?;
            }
        }
        Ok(())
    }

    /// The time of this append; a clock that went back is noted first.
    fn append_time(&self, append: &mut Append) -> Result<i64, StoreError> {
        let store_ms = self.fs.now_ms();
        if store_ms + SLACK_MS <= append.high_ms {
            tracing::warn!(from_ms = append.high_ms, to_ms = store_ms, "the clock went back");
            self.checkpoint.fall_back(store_ms)?;
            append.high_ms = store_ms;
            // Also where the write that comes now fails: the next fsync must not say that later times are durable.
            append.tail.last_store_ms = append.tail.last_store_ms.min(store_ms);
        }
        append.high_ms = append.high_ms.max(store_ms);
        Ok(store_ms)
    }

    /// What was written goes to its queues and to the index.
    fn hand_on(&self, append: &mut Append, scratch: &mut Scratch, run: Range<usize>, place: Place) {
        let deferred = self.live.flush() == FlushDiskType::Sync;
        if append.index_direct {
            scratch.hand_keys(run.clone(), place, &mut append.index);
        }
        let mut messages = 0;
        let targets = scratch.targets.get(run).unwrap_or_default();
        for (target, placed) in targets.iter().zip(&mut scratch.placed) {
            let pieces = scratch.pieces.get(target.pieces.clone()).unwrap_or_default();
            let units = pieces.iter().map(|piece| piece.unit(place));
            if deferred && !target.hidden {
                append.deferred.extend(units.map(|unit| Deferred {
                    queue: Arc::clone(&target.queue),
                    unit,
                    store_ms: place.store_ms,
                }));
            } else if !target.hidden {
                placed.units_waiting = target.queue.push_all(units);
                placed.is_readable = true;
                // Under the lock: who fsyncs the queues up to this record must find this one in the list.
                self.queues.note_unwritten(&target.queue);
            }
            if let Some(last) = pieces.last() {
                append.tail.last.record = place.of(last);
            }
            messages += pieces.len() as u64;
        }
        Counts::add(&self.counts.messages, messages);
        append.tail.last.end = append.tail.position;
    }

    /// Tells the listener of what is readable now.
    fn announce(&self, target: &Target, placed: &Placed) {
        if placed.is_readable
            && let Some(listener) = self.listener.get()
        {
            let (queue, stored) = (&target.queue, &placed.stored);
            listener(&Arrival {
                topic: &queue.topic,
                queue_id: queue.id,
                next_offset: stored.queue_offset + i64::from(stored.count),
                count: stored.count,
                tags_code: placed.tags_code,
                store_timestamp_ms: stored.store_timestamp_ms,
            });
        }
    }
}

impl Append {
    pub(crate) fn new(log: &CommitLog, recovered: &Recovered, high_ms: i64, index_direct: bool) -> Self {
        Self {
            high_ms: high_ms.max(recovered.last_store_ms),
            tail: Tail::new(log, recovered.last, recovered.last_store_ms),
            index: WaitingKeys::default(),
            index_direct,
            deferred: VecDeque::new(),
        }
    }
}
