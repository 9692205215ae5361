//! The way in: one appender under a lock.
//!
//! What a put costs: the record is laid out in a buffer of the calling thread (no allocation once it has grown), the keys are
//! hashed there too; under the lock three fields are patched, one positional write brings the record (or the whole batch) into the
//! page cache, and 20 bytes go to the queue's memory. No other system call, no other thread is woken.

use crate::checkpoint::{Mark, SLACK_MS};
use crate::commit::Burst;
use crate::commit_log::{CommitLog, Tail};
use crate::consume_queue::{ConsumeQueue, WRITE_NOW};
use crate::delay::delay_of;
use crate::error::StoreError;
use crate::format::{Unit, to_i64};
use crate::index_file::IndexEntry;
use crate::inner::Inner;
use crate::key_index::MessageKeys;
use crate::message::{Arrival, Batch, Message, Stored};
use crate::options::FlushDiskType;
use crate::recover::Recovered;
use crate::sync::lock;
use pyrmq_remoting::message::record::{BLANK_SIZE, Patch};
use pyrmq_remoting::message::{NewRecord, properties, sys_flag};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

/// A buffer that grew beyond this for a large message is given back.
const KEEP_BUFFER: usize = 1 << 20;
/// Waiting index entries from which the index thread is woken before its time.
const INDEX_SOON: usize = 1 << 14;
/// Waiting index entries from which the putting thread helps.
const INDEX_NOW: usize = 1 << 20;

/// What the append lock guards.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) tail: Tail,
    /// Keys that wait for the index thread.
    pub(crate) index: Vec<IndexEntry>,
    /// False while the index thread still reads the log: it will meet the new records there.
    pub(crate) index_direct: bool,
    /// Units that become readable once they are durable (`SYNC_FLUSH`).
    pub(crate) deferred: VecDeque<Deferred>,
    /// The newest time that the clock has shown, ms.
    high_ms: i64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
}

/// A unit that waits for an fsync.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) unit: Unit,
    pub(crate) store_ms: i64,
}

/// One record inside the thread's buffer.
#[derive(Debug, Clone, Copy)]
struct Piece {
    from: usize,
    size: usize,
    tags_code: i64,
    /// The time of storing is added to it: it says when a delayed message is due.
    is_delay: bool,
    /// End of its keys among the thread's hashes.
    keys_to: usize,
}

#[derive(Debug, Default)]
struct Scratch {
    records: Vec<u8>,
    pieces: Vec<Piece>,
    hashes: Vec<i32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    fn clear(&mut self) {
        self.records.clear();
        self.pieces.clear();
        self.hashes.clear();
        if self.records.capacity() > KEEP_BUFFER {
            self.records = Vec::new();
        }
    }

    fn lay_out(
        &mut self,
        message: &Message<'_>,
        with_keys: bool,
        delay_levels_ms: &[i64],
    ) -> Result<(), StoreError> {
        if message.properties.len() > properties::MAX_BYTES {
            return Err(StoreError::PropertiesTooLarge {
                size: message.properties.len(),
                limit: properties::MAX_BYTES,
            });
        }
        let from = self.records.len();
        let record = NewRecord {
            topic: message.topic,
            queue_id: message.queue_id,
            flag: message.flag,
            queue_offset: 0,
            physical_offset: 0,
            sys_flag: message.sys_flag,
            born_timestamp_ms: message.born_timestamp_ms,
            born_host: message.born_host,
            store_timestamp_ms: 0,
            store_host: message.store_host,
            reconsume_times: message.reconsume_times,
            prepared_transaction_offset: message.prepared_transaction_offset,
            body: message.body,
            properties: message.properties.as_bytes(),
        };
        record.encode(&mut self.records)?;
        if with_keys {
            let keys = MessageKeys {
                topic: message.topic,
                sys_flag: message.sys_flag,
                unique_key: message.unique_key,
                keys: message.keys,
                tag: message.tag,
            };
            keys.hashes(|hash| self.hashes.push(hash));
        }
        let delay_ms = delay_of(
            message.topic,
            properties::Properties::new(message.properties),
            delay_levels_ms,
        );
        self.pieces.push(Piece {
            from,
            size: self.records.len() - from,
            tags_code: delay_ms.unwrap_or(message.tags_code),
            is_delay: delay_ms.is_some(),
            keys_to: self.hashes.len(),
        });
        Ok(())
    }
}

impl Inner {
    /// Stores one message.
    pub(crate) fn put(&self, message: &Message<'_>, burst: Burst) -> Result<Stored, StoreError> {
        self.check_body(message.body.len())?;
        let hidden = sys_flag::is_hidden(message.sys_flag);
        self.put_laid_out(message.topic, message.queue_id, (hidden, burst), |scratch| {
            scratch.lay_out(message, self.index.is_some(), &self.options.delay_levels_ms)
        })
    }

    /// Stores a batch in one write.
    pub(crate) fn put_batch(&self, batch: &Batch<'_>, burst: Burst) -> Result<Stored, StoreError> {
        if batch.items.is_empty() {
            return Err(StoreError::EmptyBatch);
        }
        self.check_body(batch.items.iter().map(|item| item.body.len()).sum())?;
        let hidden = sys_flag::is_hidden(batch.sys_flag);
        self.put_laid_out(batch.topic, batch.queue_id, (hidden, burst), |scratch| {
            for item in batch.items {
                scratch.lay_out(
                    &batch.message(item),
                    self.index.is_some(),
                    &self.options.delay_levels_ms,
                )?;
            }
            Ok(())
        })
    }

    fn check_body(&self, size: usize) -> Result<(), StoreError> {
        let limit = self.options.max_message_bytes;
        if size > limit {
            return Err(StoreError::MessageTooLarge { size, limit });
        }
        Ok(())
    }

    fn put_laid_out(
        &self,
        topic: &str,
        queue_id: i32,
        (hidden, burst): (bool, Burst),
        lay_out: impl FnOnce(&mut Scratch) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        self.check_writable()?;
        self.check_brakes()?;
        let mut queue = self.queue_for_put(topic, queue_id)?;
        let (queue, (placed, waiting, keys_waiting)) = SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            lay_out(scratch)?;
            let room = usize::try_from(self.options.segment_bytes).unwrap_or(usize::MAX) - BLANK_SIZE;
            if scratch.records.len() > room {
                return Err(StoreError::MessageTooLarge {
                    size: scratch.records.len(),
                    limit: room,
                });
            }
            loop {
                if let Some(done) = self.append(scratch, &queue, hidden)? {
                    return Ok((queue, done));
                }
                // The topic is being deleted: this message is the first one of its next life.
                drop(lock(&self.deleted));
                let next = self.queue_for_put(topic, queue_id)?;
                if Arc::ptr_eq(&next, &queue) && self.is_stuck(&queue) {
                    let reason = "its deletion came to no end: delete the topic again";
                    return Err(StoreError::illegal_queue(topic, queue_id, reason));
                }
                queue = next;
            }
        })?;
        // The message is stored: what fails from here on stops the next put, not this one.
        if waiting >= WRITE_NOW {
            self.queues.note_unsynced(&queue);
            self.note_failure("cannot write a consume queue", queue.write_out(self.fs.as_ref()));
        }
        if self.disk.spend(placed.bytes())
            && let Err(error) = self.look_at_disk()
        {
            tracing::error!(%error, "cannot see how much space is free");
        }
        if keys_waiting >= INDEX_NOW {
            self.note_failure("cannot fill the key index", self.index_round());
        } else if keys_waiting >= INDEX_SOON {
            self.index_alarm.ring();
        }
        self.announce(&queue, (hidden, burst), &placed);
        Ok(placed.stored)
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

    /// Writes what was laid out; `None` when the queue is being deleted.
    fn append(
        &self,
        scratch: &mut Scratch,
        queue: &Arc<ConsumeQueue>,
        hidden: bool,
    ) -> Result<Option<(Placed, usize, usize)>, StoreError> {
        let deferred = self.options.flush == FlushDiskType::Sync;
        let mut append = self.wait_for_append()?;
        let _hold = self.brakes.hold();
        let append = &mut *append;
        // Looked at again under the lock: behind a failed write nothing may be written.
        self.check_writable()?;
        if queue.is_closing() {
            return Ok(None);
        }
        append
            .tail
            .make_room(&self.log, scratch.records.len())
            .inspect_err(|error| self.note_full(error))?;
        let store_ms = self.fs.now_ms();
        if store_ms + SLACK_MS <= append.high_ms {
            tracing::warn!(from_ms = append.high_ms, to_ms = store_ms, "the clock went back");
            self.checkpoint.fall_back(store_ms)?;
            append.high_ms = store_ms;
        }
        append.high_ms = append.high_ms.max(store_ms);
        let start = append.tail.position;
        let first = if hidden { 0 } else { queue.next() };
        for (number, piece) in scratch.pieces.iter().enumerate() {
            let patch = Patch {
                queue_offset: if hidden { 0 } else { first + to_i64(number) },
                physical_offset: start + to_i64(piece.from),
                store_timestamp_ms: store_ms,
            };
            let record = scratch.records.get_mut(piece.from..piece.from + piece.size);
            patch.apply(record.unwrap_or_default())?;
        }
        append
            .tail
            .write(&self.log, &scratch.records)
            .inspect_err(|error| self.note_full(error))?;
        append.tail.last_store_ms = store_ms;
        if let Some(last) = scratch.pieces.last() {
            append.tail.last = Mark {
                record: start + to_i64(last.from),
                end: append.tail.position,
            };
        }
        if append.tail.is_past_half(&self.log) {
            self.prepare_soon();
        }
        let mut waiting = 0;
        let mut keys_from = 0;
        let mut same_tag = true;
        let units = scratch.pieces.iter().map(|piece| Unit {
            position: start + to_i64(piece.from),
            size: i32::try_from(piece.size).unwrap_or(i32::MAX),
            tags_code: piece.tags_code + if piece.is_delay { store_ms } else { 0 },
        });
        if deferred && !hidden {
            append.deferred.extend(units.map(|unit| Deferred {
                queue: Arc::clone(queue),
                unit,
                store_ms,
            }));
        } else if !hidden {
            waiting = queue.push_all(units);
        }
        for piece in &scratch.pieces {
            let position = start + to_i64(piece.from);
            same_tag &= scratch
                .pieces
                .first()
                .is_some_and(|first| first.tags_code == piece.tags_code);
            if append.index_direct {
                let hashes = scratch.hashes.get(keys_from..piece.keys_to).unwrap_or_default();
                append.index.extend(hashes.iter().map(|hash| IndexEntry {
                    hash: *hash,
                    position,
                    store_ms,
                }));
            }
            keys_from = piece.keys_to;
        }
        if !hidden {
            queue.assign(to_i64(scratch.pieces.len()));
        }
        if waiting > 0 {
            // Under the lock: who fsyncs the queues up to this record must find this one in the list.
            self.queues.note_unwritten(queue);
        }
        append.messages += scratch.pieces.len() as u64;
        append.bytes += scratch.records.len() as u64;
        append.writes += 1;
        let placed = Placed::new(scratch, start, first, store_ms, same_tag);
        Ok(Some((placed, waiting, append.index.len())))
    }

    /// Tells the listener, or who will make the message durable first.
    fn announce(&self, queue: &Arc<ConsumeQueue>, (hidden, burst): (bool, Burst), placed: &Placed) {
        if self.options.flush == FlushDiskType::Sync {
            if burst == Burst::None {
                self.commit.alarm.ring();
            }
        } else if !hidden && let Some(listener) = self.listener.get() {
            let stored = &placed.stored;
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

/// A put's answer with what its listener is told.
#[derive(Debug)]
struct Placed {
    stored: Stored,
    tags_code: Option<i64>,
}

impl Placed {
    fn bytes(&self) -> u64 {
        u64::try_from(self.stored.end_position - self.stored.physical_offset).unwrap_or_default()
    }

    fn new(scratch: &Scratch, start: i64, queue_offset: i64, store_ms: i64, same_tag: bool) -> Self {
        let positions = scratch.pieces.iter().map(|piece| start + to_i64(piece.from));
        let tags_code = scratch.pieces.first().map(|piece| piece.tags_code);
        Self {
            stored: Stored {
                physical_offset: start,
                end_position: start + to_i64(scratch.records.len()),
                queue_offset,
                store_timestamp_ms: store_ms,
                count: u32::try_from(scratch.pieces.len()).unwrap_or(u32::MAX),
                batch_offsets: if scratch.pieces.len() > 1 {
                    positions.collect()
                } else {
                    Vec::new()
                },
            },
            tags_code: tags_code.filter(|_| same_tag),
        }
    }
}

impl Append {
    pub(crate) fn new(log: &CommitLog, recovered: &Recovered, high_ms: i64, index_direct: bool) -> Self {
        Self {
            high_ms: high_ms.max(recovered.last_store_ms),
            tail: Tail::new(log, recovered.last, recovered.last_store_ms),
            index: Vec::new(),
            index_direct,
            deferred: VecDeque::new(),
            messages: 0,
            bytes: 0,
            writes: 0,
        }
    }
}
