//! The way in: one appender under a lock.
//!
//! What a put costs: the record is laid out in a buffer of the calling thread (`buffer.rs`), the keys are hashed there
//! too; under the lock three fields are patched, one positional write brings the record (or the whole batch, or all
//! puts of an append batch) into the page cache, and 20 bytes go to the queue's memory. No other system call, no other
//! thread is woken.

pub(crate) mod batch;
pub(crate) mod buffer;
pub(crate) mod flow_control;
pub(crate) mod stall;

use crate::append::buffer::{AppendBuffer, Appended, LogPosition, QueueAppend};
use crate::checkpoint::SLACK_MS;
use crate::engine::{Counts, Engine};
use crate::error::StoreError;
use crate::format::{CqUnit, to_i64, to_usize};
use crate::index::pending::PendingKeys;
use crate::log::commit_log::{CommitLog, Tail};
use crate::log::nul_records::looks_torn;
use crate::message::{Arrival, Batch, Message, Stored};
use crate::options::FlushDiskType;
use crate::queue::consume_queue::{ConsumeQueue, WRITE_NOW};
use crate::recovery::Recovered;
use crate::sync::lock;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::record::BLANK_SIZE;
use pyrmq_remoting::message::sys_flag;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Waiting index entries from which the index thread is woken before its time.
const INDEX_WAKE_AT: usize = 1 << 14;
/// Waiting index entries from which the putting thread helps.
const INDEX_HELP_AT: usize = 1 << 20;
/// Waiting index entries (some 100 MB) from which the putting thread waits for whoever fills the index.
const INDEX_BLOCK_AT: usize = 1 << 23;

/// What the append lock guards.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) tail: Tail,
    /// Keys that wait for the index thread.
    pub(crate) index: PendingKeys,
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
    pub(crate) unit: CqUnit,
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
    static APPEND_BUFFER: RefCell<AppendBuffer> = RefCell::default();
}

impl Engine {
    /// Stores one message.
    pub(crate) fn put(&self, message: &Message<'_>) -> Result<Stored, StoreError> {
        self.put_directly(|append_buffer| self.encode(append_buffer, message))
    }

    /// Stores one message whose size was allowed when it was stored for the first time.
    pub(crate) fn put_accepted(&self, message: &Message<'_>) -> Result<Stored, StoreError> {
        self.put_directly(|append_buffer| self.encode_accepted(append_buffer, message))
    }

    /// Stores a batch in one write.
    pub(crate) fn put_batch(&self, batch: &Batch<'_>) -> Result<Stored, StoreError> {
        self.put_directly(|append_buffer| self.encode_batch(append_buffer, batch))
    }

    fn put_directly(
        &self,
        encode: impl FnOnce(&mut AppendBuffer) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        APPEND_BUFFER.with_borrow_mut(|append_buffer| {
            append_buffer.clear();
            encode(append_buffer)?;
            let mut done = Err(StoreError::Closed);
            self.append_all(append_buffer, |stored| done = stored);
            if self.live.flush() == FlushDiskType::Sync && done.is_ok() {
                self.group_commit.wakeup.notify();
            }
            done
        })
    }

    /// Gets a message ready to be appended.
    pub(crate) fn encode(
        &self,
        append_buffer: &mut AppendBuffer,
        message: &Message<'_>,
    ) -> Result<(), StoreError> {
        self.check_body(message.body.len())?;
        self.encode_accepted(append_buffer, message)
    }

    fn encode_accepted(
        &self,
        append_buffer: &mut AppendBuffer,
        message: &Message<'_>,
    ) -> Result<(), StoreError> {
        let hidden = sys_flag::is_hidden(message.sys_flag);
        self.encode_for_queue(
            append_buffer,
            (message.topic, message.queue_id),
            hidden,
            |append_buffer| append_buffer.add(message, &self.options, self.index.is_some()),
        )
    }

    /// Gets a batch ready to be appended as consecutive records of one file.
    pub(crate) fn encode_batch(
        &self,
        append_buffer: &mut AppendBuffer,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        if batch.items.is_empty() {
            return Err(StoreError::EmptyBatch);
        }
        self.check_body(batch.items.iter().map(|item| item.body.len()).sum())?;
        let hidden = sys_flag::is_hidden(batch.sys_flag);
        self.encode_for_queue(
            append_buffer,
            (batch.topic, batch.queue_id),
            hidden,
            |append_buffer| append_buffer.add_batch(batch, &self.options, self.index.is_some()),
        )
    }

    fn check_body(&self, size: usize) -> Result<(), StoreError> {
        let limit = self.live.max_message_bytes();
        if size > limit {
            return Err(StoreError::MessageTooLarge { size, limit });
        }
        Ok(())
    }

    /// Adds the records for one queue to what is laid out; what fails leaves it as it was.
    fn encode_for_queue(
        &self,
        append_buffer: &mut AppendBuffer,
        (topic, queue_id): (&str, i32),
        hidden: bool,
        records: impl FnOnce(&mut AppendBuffer) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.check_writable()?;
        self.check_flow_control()?;
        let queue = self.queue_for_put(topic, queue_id)?;
        let before = append_buffer.lengths();
        let done = records(append_buffer).and_then(|()| {
            let limit = usize::try_from(self.options.segment_bytes).unwrap_or(usize::MAX) - BLANK_SIZE;
            let size = append_buffer.records.len() - before.records;
            if size > limit {
                return Err(StoreError::MessageTooLarge { size, limit });
            }
            Ok(())
        });
        if done.is_err() {
            append_buffer.cut(before);
            return done;
        }
        append_buffer.queue_appends.push(QueueAppend {
            queue,
            hidden,
            encoded_records: before.encoded_records..append_buffer.encoded_records.len(),
        });
        Ok(())
    }

    /// Appends all that was laid out, in one write for each segment that it reaches, and reports what became of each
    /// queue append, in their order.
    pub(crate) fn append_all(
        &self,
        append_buffer: &mut AppendBuffer,
        mut notify_put: impl FnMut(Result<Stored, StoreError>),
    ) {
        let mut next = 0;
        while next < append_buffer.queue_appends.len() {
            match self.append(append_buffer, next) {
                Ok(None) => {
                    if let Err(error) = self.renew_queue(append_buffer, next) {
                        notify_put(Err(error));
                        next += 1;
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

    /// The queue is being deleted: this message is the first one of its topic's next life.
    fn renew_queue(&self, append_buffer: &mut AppendBuffer, at: usize) -> Result<(), StoreError> {
        let Some(queue_append) = append_buffer.queue_appends.get_mut(at) else {
            return Ok(());
        };
        drop(lock(&self.deleted));
        let (topic, id) = (queue_append.queue.topic.to_string(), queue_append.queue.id);
        let next = self.queue_for_put(&topic, id)?;
        if Arc::ptr_eq(&next, &queue_append.queue) && self.is_stuck(&next) {
            let reason = "its deletion came to no end: delete the topic again";
            return Err(StoreError::illegal_queue(&topic, id, reason));
        }
        queue_append.queue = next;
        Ok(())
    }

    /// The messages are stored: what fails from here on stops the next put, not these.
    fn after_write(&self, written: &Written) {
        if self.disk.spend(written.bytes)
            && let Err(error) = self.look_at_disk()
        {
            tracing::error!(%error, "cannot see how much space is free");
        }
        if written.keys_waiting >= INDEX_BLOCK_AT {
            self.note_failure("cannot fill the key index", self.index_round());
        } else if written.keys_waiting >= INDEX_HELP_AT {
            self.note_failure("cannot fill the key index", self.help_index());
        } else if written.keys_waiting >= INDEX_WAKE_AT {
            self.index_wakeup.notify();
        }
    }

    /// What follows a write for one of its queues, as [`Engine::after_write`] for the log.
    fn after_append(&self, queue_append: &QueueAppend, appended: &Appended) {
        let queue = &queue_append.queue;
        if appended.units_waiting >= WRITE_NOW {
            self.queues.note_unsynced(queue);
            if let Err(error) = queue.write_out(self.fs.as_ref()) {
                self.note_unwritten(error);
            }
        }
        self.announce(queue_append, appended);
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

    /// Writes the queue appends from `from` on that fit into the segment, in one write, and notes their positions in
    /// the append buffer. `None` when the first one's queue is being deleted.
    fn append(&self, append_buffer: &mut AppendBuffer, from: usize) -> Result<Option<Written>, StoreError> {
        let mut append = self.wait_for_append()?;
        let _hold = self.flow_control.mark_held();
        let append = &mut *append;
        // Looked at again under the lock: behind a failed write nothing may be written.
        self.check_writable()?;
        let Some(first) = append_buffer
            .queue_appends
            .get(from)
            .filter(|first| !first.queue.is_closing())
        else {
            return Ok(None);
        };
        let base = append_buffer.bytes_of(first).start;
        append
            .tail
            .make_room(&self.log, append_buffer.bytes_of(first).len())
            .inspect_err(|error| self.note_full(error))?;
        let run = from..append_buffer.run_end(from, base + append.tail.room(&self.log));
        let store_ms = self.append_time(append)?;
        let log_position = LogPosition {
            buffer: append.tail.position - to_i64(base),
            store_ms,
        };
        let written = append_buffer
            .assign_positions(run.clone(), log_position)
            .and_then(|end| {
                self.note_torn_looking(append_buffer, run.clone(), log_position)?;
                let records = append_buffer.records.get(base..end).unwrap_or_default();
                append
                    .tail
                    .write(&self.log, records)
                    .inspect_err(|error| self.note_full(error))?;
                Ok(records.len() as u64)
            });
        let bytes = match written {
            Ok(bytes) => bytes,
            Err(error) => {
                append_buffer.undo_positions(run);
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
        self.publish(append, append_buffer, run, log_position);
        Ok(Some(Written {
            bytes,
            keys_waiting: append.index.len(),
        }))
    }

    /// Notes those records of a run that a start after a crash would take for torn, before they are written.
    fn note_torn_looking(
        &self,
        append_buffer: &AppendBuffer,
        run: Range<usize>,
        log_position: LogPosition,
    ) -> Result<(), StoreError> {
        for (position, bytes) in append_buffer.torn_looking(run, log_position) {
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
            self.checkpoint.note_clock_regression(store_ms)?;
            append.high_ms = store_ms;
            // Also where the write that comes now fails: the next fsync must not say that later times are durable.
            append.tail.last_store_ms = append.tail.last_store_ms.min(store_ms);
        }
        append.high_ms = append.high_ms.max(store_ms);
        Ok(store_ms)
    }

    /// What was written goes to its queues and to the index.
    fn publish(
        &self,
        append: &mut Append,
        append_buffer: &mut AppendBuffer,
        run: Range<usize>,
        log_position: LogPosition,
    ) {
        let deferred = self.live.flush() == FlushDiskType::Sync;
        if append.index_direct {
            append_buffer.move_keys(run.clone(), log_position, &mut append.index);
        }
        let mut messages = 0;
        let queue_appends = append_buffer.queue_appends.get(run).unwrap_or_default();
        for (queue_append, appended) in queue_appends.iter().zip(&mut append_buffer.appended) {
            let encoded_records = append_buffer
                .encoded_records
                .get(queue_append.encoded_records.clone())
                .unwrap_or_default();
            let units = encoded_records
                .iter()
                .map(|encoded_record| encoded_record.unit(log_position));
            if deferred && !queue_append.hidden {
                append.deferred.extend(units.map(|unit| Deferred {
                    queue: Arc::clone(&queue_append.queue),
                    unit,
                    store_ms: log_position.store_ms,
                }));
            } else if !queue_append.hidden {
                appended.units_waiting = queue_append.queue.push_all(units);
                appended.is_readable = true;
                // Under the lock: a thread that fsyncs the queues up to this record must find this queue in the list.
                self.queues.note_unwritten(&queue_append.queue);
            }
            if let Some(last) = encoded_records.last() {
                append.tail.last.record = log_position.of(last);
            }
            messages += encoded_records.len() as u64;
        }
        Counts::add(&self.counts.messages, messages);
        append.tail.last.end = append.tail.position;
    }

    /// Tells the listener of what is readable now.
    fn announce(&self, queue_append: &QueueAppend, appended: &Appended) {
        if appended.is_readable
            && let Some(listener) = self.listener.get()
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

impl Append {
    pub(crate) fn new(log: &CommitLog, recovered: &Recovered, high_ms: i64, index_direct: bool) -> Self {
        Self {
            high_ms: high_ms.max(recovered.last_store_ms),
            tail: Tail::new(log, recovered.last, recovered.last_store_ms),
            index: PendingKeys::default(),
            index_direct,
            deferred: VecDeque::new(),
        }
    }
}
