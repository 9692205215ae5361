//! The store's public face: its life cycle, and storing messages. `durability.rs` has the durability of messages,
//! `reads.rs` the reads, `status.rs` figures and health.

mod durability;
mod reads;
mod status;

use crate::append::batch::AppendBatch;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::fs::{Fs, LockGuard};
use crate::live::Live;
use crate::maintenance::{self, MaintenanceTask};
use crate::message::{BlockInPlace, MessageBatch, NewMessage, OnArrival, OnSlowFlush, Stage, Stored};
use crate::options::Options;
use crate::recovery::open::open;
use crate::sync::lock;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A message log in a directory. All methods may be called from any thread.
///
/// Dropping it closes it; [`Store::close`] also returns whether that succeeded.
#[derive(Debug)]
pub struct Store {
    engine: Arc<Engine>,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    threads: Vec<JoinHandle<()>>,
    lock: Option<Box<dyn LockGuard>>,
}

impl Store {
    /// Loads, recovers, and starts the store's threads.
    pub fn open(options: Options, fs: Arc<dyn Fs>) -> Result<Arc<Self>, StoreError> {
        let store = Self::open_without_threads(options, fs)?;
        lock(&store.running).threads = maintenance::start(&store.engine)?;
        Ok(store)
    }

    /// Like [`Store::open`], without threads: the caller does the work with [`Store::run`]. For tests that replay a run
    /// exactly.
    pub fn open_without_threads(options: Options, fs: Arc<dyn Fs>) -> Result<Arc<Self>, StoreError> {
        let (engine, guard) = open(options, fs)?;
        let running = Running {
            threads: Vec::new(),
            lock: Some(guard),
        };
        Ok(Arc::new(Self {
            engine,
            running: Mutex::new(running),
        }))
    }

    /// Runs one task of the store's threads, for a store without threads.
    pub fn run(&self, task: MaintenanceTask) -> Result<(), StoreError> {
        maintenance::run(&self.engine, task)
    }

    /// Sets the listener for readable messages; once, before the first message. Later calls do nothing. The listener
    /// runs on the putting thread (or on the flushing one with `SYNC_FLUSH`) and must be fast.
    pub fn on_arrival(&self, listener: Arc<OnArrival>) {
        self.engine.shared.listeners.set_arrival(listener);
    }

    /// Sets a callback that runs while [`AppendBatch::commit`] or a put blocks its thread because the disk hangs, so
    /// that other work of that thread can be moved: every 10 ms in an fsync, and in a write while there are writes. A
    /// write after a pause is noticed within a second. Once; later calls do nothing.
    pub fn on_slow_flush(&self, callback: Arc<OnSlowFlush>) {
        self.engine.shared.listeners.set_slow_flush(callback);
    }

    /// Sets what runs waits and writes that may block for long, such as tokio's `block_in_place`, which first moves the
    /// thread's other work. A put waits in it for another put's write that has been stuck for 100 ms, or for the
    /// deletion of its topic, and writes in it while an fsync of [`AppendBatch::commit`] has taken 5 ms. Once; later
    /// calls do nothing. Without it the thread itself waits, until the put is refused.
    pub fn set_block_in_place(&self, callback: Arc<BlockInPlace>) {
        self.engine.shared.listeners.set_block_in_place(callback);
    }

    /// Stores one message: it is in the page cache when this returns.
    pub fn put(&self, message: &NewMessage<'_>) -> Result<Stored, StoreError> {
        self.engine.appender.put(message)
    }

    /// Like [`Store::put`], for a message that this store accepted before and puts into another queue: its size was
    /// allowed then, so a smaller `maxMessageSize` does not refuse it now.
    pub fn put_accepted(&self, message: &NewMessage<'_>) -> Result<Stored, StoreError> {
        self.engine.appender.put_accepted(message)
    }

    /// Stores messages in this order, with one write unless they reach several segments. Returns the last one's result.
    /// After an error, earlier ones may be stored.
    pub fn put_all(&self, messages: &[NewMessage<'_>]) -> Result<Stored, StoreError> {
        self.engine.appender.put_all(messages)
    }

    /// Like [`Store::put_accepted`], for several messages: with one write for each segment that they reach. `stage_all`
    /// stages them, and learns of each at once whether it can be stored. Returns the outcome of each that was staged,
    /// in order. Nothing is readable before the write.
    pub fn put_accepted_all(
        &self,
        stage_all: impl FnOnce(&mut Stage<'_>),
    ) -> Vec<Result<Stored, StoreError>> {
        self.engine.appender.put_accepted_all(stage_all)
    }

    /// Stores a batch as consecutive records of one file.
    pub fn put_batch(&self, batch: &MessageBatch<'_>) -> Result<Stored, StoreError> {
        self.engine.appender.put_batch(batch)
    }

    /// Creates an append batch of this store: puts that enter the log together.
    pub fn append_batch(&self) -> AppendBatch {
        AppendBatch::new(&self.engine.appender)
    }

    /// Removes a topic's queues and deletes their files, durably. Its records stay, without a queue, until their
    /// segments are deleted.
    pub fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.engine.queue_maintenance.delete_topic(topic)
    }

    /// All topics that have queues, with the queues' ids, sorted.
    pub fn topics(&self) -> Vec<(String, Vec<i32>)> {
        self.engine.shared.queues.topics()
    }

    /// Deletes segments that are old enough now, at any hour. Returns how many files it deleted.
    pub fn delete_expired(&self) -> Result<u64, StoreError> {
        self.engine.shared.state.check_open()?;
        self.engine.retention.clean(true)
    }

    /// Position before which segments are deleted once another tenth of `storeMaxBytes` is stored; `None` without that
    /// limit.
    pub fn deleted_before(&self) -> Option<i64> {
        self.engine.retention.deleted_before()
    }

    /// The settings at the start; [`Store::live`] has those that may have changed since.
    pub fn options(&self) -> &Options {
        &self.engine.shared.options
    }

    /// The current values of the settings that may change.
    pub fn live(&self) -> &Live {
        &self.engine.shared.live
    }

    /// Applies those of these settings that are in [`Live`]; all others are ignored. After a change from `ASYNC_FLUSH`
    /// to `SYNC_FLUSH`, everything that was stored before is durable when this returns.
    pub fn reconfigure(&self, options: &Options) -> Result<(), StoreError> {
        options.validate()?;
        let _one_at_a_time = lock(&self.running);
        self.engine.reconfigure(options)
    }

    /// Whether the next start finds a crash, however this store is closed: as long as the caller has not done what a
    /// crash requires of its own files.
    pub fn set_unclean(&self, is_unclean: bool) {
        self.engine.stays_unclean.store(is_unclean, Ordering::Release);
    }

    /// Flushes everything and marks the stop as clean. Further calls do nothing. After a failed write the stop is
    /// unclean, so that the next start checks everything.
    pub fn close(&self) -> Result<(), StoreError> {
        let mut running = lock(&self.running);
        let Some(guard) = running.lock.take() else {
            return Ok(());
        };
        self.engine.stop();
        for thread in running.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
        let result = self.engine.finish();
        drop(guard);
        result
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the store could not be closed in order");
        }
    }
}
