//! Puts that go into the log together: an append batch.
//!
//! A put of an append batch is laid out in the batch's buffer and has no place in the log yet. When the batch is
//! committed, all of its puts get their places under one hold of the append lock and go into the page cache in one
//! write for each segment that they reach. No callback runs, and nothing is readable, before that write.

use crate::append::appender::Appender;
use crate::append::buffer::AppendBuffer;
use crate::error::StoreError;
use crate::message::{Batch, Message, OnDurable, OnStored};
use std::fmt;
use std::mem;
use std::sync::Arc;

/// What waits is written once it has this many bytes: they are still in the processor's cache then.
const FLUSH_AT: usize = 128 << 10;

/// An append batch of one store. It is used again after each commit and keeps its memory: a connection has one for its
/// whole life. What is staged when it is dropped is not stored, and its callbacks are dropped with it.
pub struct AppendBatch {
    appender: Arc<Appender>,
    staged: StagedPuts,
}

/// The puts that wait for the commit.
#[derive(Default)]
struct StagedPuts {
    append_buffer: AppendBuffer,
    /// The callback of each queue append in the buffer.
    done: Vec<Box<dyn OnStored>>,
    /// Those that wait for the disk.
    waiters: Vec<(i64, OnDurable)>,
}

impl fmt::Debug for AppendBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AppendBatch")
            .field("puts", &self.staged.done.len())
            .field("bytes", &self.staged.append_buffer.bytes())
            .finish_non_exhaustive()
    }
}

impl AppendBatch {
    pub(crate) fn new(appender: &Arc<Appender>) -> Self {
        Self {
            appender: Arc::clone(appender),
            staged: StagedPuts::default(),
        }
    }

    /// Adds one message. `done` is called in the order of the puts, when the batch is committed or once it has many
    /// bytes; at once for a message that cannot be stored.
    pub fn stage(&mut self, message: &Message<'_>, done: Box<dyn OnStored>) {
        let encoded = self.appender.encode(&mut self.staged.append_buffer, message);
        self.staged(encoded, done);
    }

    /// As [`AppendBatch::stage`], for a batch of messages, which become consecutive records of one file.
    pub fn stage_batch(&mut self, batch: &Batch<'_>, done: Box<dyn OnStored>) {
        let encoded = self.appender.encode_batch(&mut self.staged.append_buffer, batch);
        self.staged(encoded, done);
    }

    /// Writes what was staged, and serves whoever waits for the disk: where no fsync is under way and fsyncs are quick,
    /// this thread does one for all of them and answers them before it returns. Otherwise the fsync is left to the
    /// thread that does one now or to the thread of the store, as it is when nobody waits.
    pub fn commit(&mut self) {
        self.write();
        self.appender.flusher.commit_batch();
    }

    fn staged(&mut self, encoded: Result<(), StoreError>, done: Box<dyn OnStored>) {
        if let Err(error) = encoded {
            let waiter = done.stored(Err(error));
            return self.appender.flusher.when_durable_in_batch(waiter.into_iter());
        }
        self.staged.done.push(done);
        if self.staged.append_buffer.bytes() >= FLUSH_AT {
            self.write();
        }
    }

    /// Writes what was staged.
    fn write(&mut self) {
        if self.staged.done.is_empty() {
            return;
        }
        // Taken out, so that nothing is written twice if a callback panics.
        let mut staged = mem::take(&mut self.staged);
        let mut done = staged.done.drain(..);
        self.appender.append_all(&mut staged.append_buffer, |stored| {
            let waiter = done.next().and_then(|done| done.stored(stored));
            staged.waiters.extend(waiter);
        });
        drop(done);
        if !staged.waiters.is_empty() {
            self.appender
                .flusher
                .when_durable_in_batch(staged.waiters.drain(..));
        }
        staged.append_buffer.clear();
        self.staged = staged;
    }
}
