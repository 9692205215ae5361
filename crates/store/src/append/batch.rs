//! Append batches: puts that enter the log together.
//!
//! A put of an append batch is encoded in the batch's buffer and has no position in the log yet. At the commit, all
//! puts get their positions under one hold of the append lock and reach the page cache with one write for each segment.
//! No callback runs, and nothing is readable, before that write.

use crate::append::appender::{Appender, AtBusy};
use crate::append::buffer::AppendBuffer;
use crate::append::staged::StagedPuts;
use crate::error::StoreError;
use crate::message::{MessageBatch, NewMessage, OnStored};
use std::fmt;
use std::sync::Arc;

/// Number of bytes at which staged puts are written early: they are still in the processor's cache then.
const FLUSH_AT: usize = 128 << 10;

/// An append batch of one store. A connection keeps one for its lifetime and reuses it after each commit; it holds
/// memory only while something is staged. Puts that are staged when it is dropped are not stored, and their callbacks
/// are dropped.
pub struct AppendBatch {
    appender: Arc<Appender>,
    /// `None` while nothing is staged.
    staged: Option<Box<StagedPuts>>,
}

impl fmt::Debug for AppendBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let staged = self.staged.as_deref();
        formatter
            .debug_struct("AppendBatch")
            .field("puts", &staged.map_or(0, |staged| staged.done.len()))
            .field("bytes", &staged.map_or(0, |staged| staged.append_buffer.bytes()))
            .finish_non_exhaustive()
    }
}

impl AppendBatch {
    pub(crate) fn new(appender: &Arc<Appender>) -> Self {
        Self {
            appender: Arc::clone(appender),
            staged: None,
        }
    }

    /// Stages one message. `done` is called in the order of the puts: at the commit, or once the batch has enough
    /// bytes; at once for a message that cannot be stored.
    pub fn stage(&mut self, message: &NewMessage<'_>, done: Box<OnStored>) {
        self.stage_by(done, |appender, append_buffer| {
            appender.encode(append_buffer, message)
        });
    }

    /// Like [`AppendBatch::stage`], for a batch of messages, which become consecutive records of one file.
    pub fn stage_batch(&mut self, batch: &MessageBatch<'_>, done: Box<OnStored>) {
        self.stage_by(done, |appender, append_buffer| {
            appender.encode_batch(append_buffer, batch)
        });
    }

    /// Writes the staged puts and serves all waiters for the disk. If no fsync is in progress and fsyncs are fast, this
    /// thread fsyncs once for all of them and answers them before it returns. Otherwise the thread that is fsyncing now
    /// or the store's own thread does it, as it does when no sender waits.
    pub fn commit(&mut self) {
        self.write();
        self.appender.flusher.commit_batch();
    }

    fn stage_by(
        &mut self,
        done: Box<OnStored>,
        encode: impl FnOnce(&Appender, &mut AppendBuffer) -> Result<(), StoreError>,
    ) {
        let staged = self
            .staged
            .get_or_insert_with(|| self.appender.staged_pool.acquire());
        if let Err(error) = encode(&self.appender, &mut staged.append_buffer) {
            let waiter = done.complete(Err(error));
            return self.appender.flusher.when_durable_in_batch(waiter.into_iter());
        }
        staged.done.push(done);
        if staged.append_buffer.bytes() >= FLUSH_AT {
            self.write();
        }
    }

    /// Writes the staged puts.
    fn write(&mut self) {
        // Taken out, so that nothing is written twice if a callback panics.
        let Some(mut staged) = self.staged.take() else {
            return;
        };
        let StagedPuts {
            append_buffer,
            done,
            waiters,
        } = staged.as_mut();
        let mut done = done.drain(..);
        self.appender.append_all(append_buffer, AtBusy::GoOn, |stored| {
            let waiter = done.next().and_then(|done| done.complete(stored));
            waiters.extend(waiter);
        });
        drop(done);
        if !waiters.is_empty() {
            self.appender.flusher.when_durable_in_batch(waiters.drain(..));
        }
        self.appender.staged_pool.release(staged);
    }
}
