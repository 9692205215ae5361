//! Puts that go into the log together: an append batch.
//!
//! A put of an append batch is laid out in the batch's buffer and has no place in the log yet. When the batch is
//! committed, all of its puts get their places under one hold of the append lock and go into the page cache in one
//! write for each segment that they reach. No callback runs, and nothing is readable, before that write.

use crate::append::appender::Appender;
use crate::append::buffer::AppendBuffer;
use crate::append::staged::StagedPuts;
use crate::error::StoreError;
use crate::message::{Batch, Message, OnStored};
use std::fmt;
use std::sync::Arc;

/// What waits is written once it has this many bytes: they are still in the processor's cache then.
const FLUSH_AT: usize = 128 << 10;

/// An append batch of one store. A connection has one for its whole life and uses it again after each commit; it holds
/// memory only while something is staged. What is staged when it is dropped is not stored, and its callbacks are
/// dropped with it.
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

    /// Adds one message. `done` is called in the order of the puts, when the batch is committed or once it has many
    /// bytes; at once for a message that cannot be stored.
    pub fn stage(&mut self, message: &Message<'_>, done: Box<dyn OnStored>) {
        self.stage_by(done, |appender, append_buffer| {
            appender.encode(append_buffer, message)
        });
    }

    /// As [`AppendBatch::stage`], for a batch of messages, which become consecutive records of one file.
    pub fn stage_batch(&mut self, batch: &Batch<'_>, done: Box<dyn OnStored>) {
        self.stage_by(done, |appender, append_buffer| {
            appender.encode_batch(append_buffer, batch)
        });
    }

    /// Writes what was staged, and serves everyone who waits for the disk: if no fsync is in progress and fsyncs are
    /// fast, this thread does one for all of them and answers them before it returns. Otherwise the fsync is left to
    /// the thread that does one now or to the store's own thread, as it is when nobody waits.
    pub fn commit(&mut self) {
        self.write();
        self.appender.flusher.commit_batch();
    }

    fn stage_by(
        &mut self,
        done: Box<dyn OnStored>,
        encode: impl FnOnce(&Appender, &mut AppendBuffer) -> Result<(), StoreError>,
    ) {
        let staged = self
            .staged
            .get_or_insert_with(|| self.appender.staged_pool.take());
        if let Err(error) = encode(&self.appender, &mut staged.append_buffer) {
            let waiter = done.stored(Err(error));
            return self.appender.flusher.when_durable_in_batch(waiter.into_iter());
        }
        staged.done.push(done);
        if staged.append_buffer.bytes() >= FLUSH_AT {
            self.write();
        }
    }

    /// Writes what was staged.
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
        self.appender.append_all(append_buffer, |stored| {
            let waiter = done.next().and_then(|done| done.stored(stored));
            waiters.extend(waiter);
        });
        drop(done);
        if !waiters.is_empty() {
            self.appender.flusher.when_durable_in_batch(waiters.drain(..));
        }
        self.appender.staged_pool.give_back(staged);
    }
}
