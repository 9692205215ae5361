//! Writes encoded records to the log under the append lock: assigns their positions, brings them into the page cache,
//! and passes them to queues and index.

use crate::append::appender::{Appender, Counts, INDEX_REFUSE_AT};
use crate::append::buffer::{AppendBuffer, LogPosition};
use crate::checkpoint::SLACK_MS;
use crate::error::StoreError;
use crate::format::{to_i64, to_usize};
use crate::log::nul_records::looks_torn;
use crate::options::FlushDiskType;
use crate::state::append_state::{AppendState, Deferred, Written};
use crate::sync::lock;
use pyrmq_remoting::message::Record;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Appender {
    /// Writes the queue appends from `from` on that fit into the segment with one write, and sets their positions in
    /// the append buffer. `None`: the queue of the first one is being deleted.
    pub(super) fn append(
        &self,
        append_buffer: &mut AppendBuffer,
        from: usize,
    ) -> Result<Option<Written>, StoreError> {
        if !self.flusher.watchdog.is_slow() {
            return self.append_here(append_buffer, from);
        }
        // One thread of the runtime is in that fsync. A write may hang with it, and would take a second one.
        let mut done = None;
        self.shared
            .listeners
            .block_in_place(&mut || done = Some(self.append_here(append_buffer, from)));
        done.unwrap_or_else(|| Err(self.flow_control.too_many(0)))
    }

    fn append_here(
        &self,
        append_buffer: &mut AppendBuffer,
        from: usize,
    ) -> Result<Option<Written>, StoreError> {
        let hold = &self.flow_control.hold;
        // In this order, so that the lock is free when the next thread wakes.
        let _wakes = hold.wakes_next();
        let mut append = self.flow_control.wait_for(&self.shared.append)?;
        let _held = hold.mark();
        let append = &mut *append;
        // Checked again under the lock: after a failed write nothing may be written.
        self.shared.state.check_writable()?;
        self.check_backlog(append)?;
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
            .make_room(&self.shared.log, append_buffer.bytes_of(first).len())
            .inspect_err(|error| self.shared.state.refuse_if_full(error))?;
        let run = from..append_buffer.run_end(from, base + append.tail.room(&self.shared.log));
        let store_ms = self.append_time(append)?;
        let log_position = LogPosition {
            buffer: append.tail.position - to_i64(base),
            store_ms,
        };
        let bytes = match self.write_run(append, append_buffer, (base, run.clone()), log_position) {
            Ok(bytes) => bytes,
            Err(error) => {
                append_buffer.undo_positions(run);
                return Err(error);
            }
        };
        append.tail.last_store_ms = store_ms;
        if self.shared.live.flush() == FlushDiskType::Sync {
            append
                .tail
                .write_ahead(&self.shared.log, self.shared.options.flush_ahead_bytes);
        }
        if append.tail.is_past_half(&self.shared.log) {
            self.request_segment();
        }
        Counts::add(&self.counts.bytes, bytes);
        Counts::add(&self.counts.writes, 1);
        self.publish(append, append_buffer, run, log_position);
        Ok(Some(Written {
            bytes,
            keys_waiting: append.index.len(),
        }))
    }

    /// An error while too much waits in memory, because a disk hangs: consume queues and keys that are to be written,
    /// or with `SYNC_FLUSH` units of records that no fsync has made durable. Their senders need not wait for that.
    fn check_backlog(&self, append: &AppendState) -> Result<(), StoreError> {
        let (bytes, most) = (
            self.shared.queues.backlog.bytes(),
            self.shared.options.max_unwritten_bytes,
        );
        let deferred = append.deferred.len();
        let limit = if bytes >= most {
            format!("{} KiB of consume queues wait to be written", bytes >> 10)
        } else if deferred.saturating_mul(size_of::<Deferred>()) >= most {
            format!("{deferred} messages wait for an fsync")
        } else if append.index.len() >= INDEX_REFUSE_AT {
            format!("{} keys wait for the key index", append.index.len())
        } else {
            return Ok(());
        };
        Err(self.flow_control.overloaded(0, limit))
    }

    /// Assigns positions to the records of a run and writes them. Returns the number of bytes.
    fn write_run(
        &self,
        append: &mut AppendState,
        append_buffer: &mut AppendBuffer,
        (base, run): (usize, Range<usize>),
        log_position: LogPosition,
    ) -> Result<u64, StoreError> {
        let end = append_buffer.assign_positions(run.clone(), log_position)?;
        self.record_torn_looking(append_buffer, run, log_position)?;
        let records = append_buffer.records.get(base..end).unwrap_or_default();
        append
            .tail
            .write(&self.shared.log, records)
            .inspect_err(|error| self.shared.state.refuse_if_full(error))?;
        Ok(records.len() as u64)
    }

    /// Records those of a run that a start after a crash would consider torn, before they are written.
    fn record_torn_looking(
        &self,
        append_buffer: &AppendBuffer,
        run: Range<usize>,
        log_position: LogPosition,
    ) -> Result<(), StoreError> {
        for (position, bytes) in append_buffer.torn_looking(run, log_position) {
            let segment_begin = self.shared.log.next_segment(position) - self.shared.log.segment_bytes();
            let inside = to_usize(position - segment_begin);
            if Record::decode(bytes).is_ok_and(|record| looks_torn(&record, bytes, inside)) {
                let durable = self.shared.checkpoint.log_end();
                self.shared
                    .nul_records
                    .add(self.shared.fs.as_ref(), position, bytes, durable)
                    .inspect_err(|error| self.shared.state.refuse_if_full(error))?;
            }
        }
        Ok(())
    }

    /// The store time of this append. If the clock went back, that is recorded first.
    fn append_time(&self, append: &mut AppendState) -> Result<i64, StoreError> {
        let store_ms = self.shared.fs.now_ms();
        if store_ms + SLACK_MS <= append.high_ms {
            tracing::warn!(from_ms = append.high_ms, to_ms = store_ms, "the clock went back");
            self.shared.checkpoint.record_clock_regression(store_ms)?;
            append.high_ms = store_ms;
            // Even if this write fails: the next fsync must not declare later times durable.
            append.tail.last_store_ms = append.tail.last_store_ms.min(store_ms);
        }
        append.high_ms = append.high_ms.max(store_ms);
        Ok(store_ms)
    }

    /// Passes the written records to the index, and to their queues if readers may see them now. With `SYNC_FLUSH`
    /// their units wait in `deferred` until an fsync has made the records durable: then `Flusher::publish_durable` in
    /// `flush/mod.rs` passes them on.
    fn publish(
        &self,
        append: &mut AppendState,
        append_buffer: &mut AppendBuffer,
        run: Range<usize>,
        log_position: LogPosition,
    ) {
        let deferred = self.shared.live.flush() == FlushDiskType::Sync;
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
                // Under the lock, so that a thread that fsyncs the queues up to this record finds this queue in the
                // list.
                self.shared.queues.list_unwritten(&queue_append.queue);
            }
            if let Some(last) = encoded_records.last() {
                append.tail.last.record = log_position.of(last);
            }
            messages += encoded_records.len() as u64;
        }
        Counts::add(&self.counts.messages, messages);
        append.tail.last.end = append.tail.position;
    }

    /// Requests the next segment, once for each.
    fn request_segment(&self) {
        let next = self.shared.log.next_segment(self.shared.log.appended());
        if self.requested_segment.swap(next, Ordering::Relaxed) != next {
            self.segment_wakeup.notify();
        }
    }

    /// Creates the next segment if it is time.
    pub(crate) fn prepare_segment(&self) -> Result<(), StoreError> {
        let is_time = lock(&self.shared.append).tail.is_past_half(&self.shared.log);
        if !is_time || self.shared.state.check_writable().is_err() {
            return Ok(());
        }
        // If this fails, the put that needs the segment tries again.
        self.shared
            .log
            .prepare_segment()
            .inspect_err(|error| self.shared.state.refuse_if_full(error))
    }
}
