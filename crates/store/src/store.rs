//! The store as its users see it.

use crate::error::StoreError;
use crate::fs::Fs;
use crate::message::{Arrival, Batch, Message, Stored};
use crate::options::Options;
use crate::query::{Boundary, Found, Get, Got, KeyQuery};
use crate::stats::{Health, Stats};
use bytes::Bytes;
use std::sync::Arc;

/// Called when messages became readable.
pub type OnArrival = dyn Fn(&Arrival<'_>) + Send + Sync;
/// Called once when messages are durable, or are known not to be.
pub type OnDurable = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A message log in a directory. All methods may be called from any thread.
#[derive(Debug)]
pub struct Store {
    _options: Options,
}

#[expect(
    unused_variables,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "the signatures come first"
)]
impl Store {
    /// Loads, recovers, and starts the store's threads.
    pub fn open(options: Options, fs: Arc<dyn Fs>) -> Result<Arc<Self>, StoreError> {
        Err(StoreError::Closed)
    }
    /// Sets who is told of readable messages; once, before the first message.
    pub fn on_arrival(&self, listener: Arc<OnArrival>) {}
    /// Stores one message.
    pub fn put(&self, message: &Message<'_>) -> Result<Stored, StoreError> {
        Err(StoreError::Closed)
    }
    /// Stores a batch as consecutive records of one file.
    pub fn put_batch(&self, batch: &Batch<'_>) -> Result<Stored, StoreError> {
        Err(StoreError::Closed)
    }
    /// Calls back when everything before `position` is durable.
    pub fn when_durable(&self, position: i64, done: OnDurable) {
        done(Err(StoreError::Closed));
    }
    /// Reads messages of a queue.
    pub fn get(&self, request: &Get<'_>) -> Result<Got, StoreError> {
        Err(StoreError::Closed)
    }
    /// The record at a position, if one begins there.
    pub fn record_at(&self, physical_offset: i64) -> Result<Option<Bytes>, StoreError> {
        Err(StoreError::Closed)
    }
    /// Index of the oldest message of a queue; 0 when there is no such queue.
    pub fn min_offset(&self, topic: &str, queue_id: i32) -> i64 {
        0
    }
    /// Index behind the newest readable message of a queue; 0 when there is no such queue.
    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        0
    }
    /// The index of the message at a time.
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<i64, StoreError> {
        Err(StoreError::Closed)
    }
    /// When the message at an index was stored, ms.
    pub fn store_time(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        Err(StoreError::Closed)
    }
    /// When the oldest message of a queue was stored, ms.
    pub fn earliest_time(&self, topic: &str, queue_id: i32) -> Result<Option<i64>, StoreError> {
        Err(StoreError::Closed)
    }
    /// Searches by key.
    pub fn query(&self, query: &KeyQuery<'_>) -> Result<Found, StoreError> {
        Err(StoreError::Closed)
    }
    /// Forgets a topic's queues and deletes their files.
    pub fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }
    /// All topics that have queues, with the queues' ids.
    pub fn topics(&self) -> Vec<(String, Vec<i32>)> {
        Vec::new()
    }
    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
    /// The state of the store.
    pub fn health(&self) -> Health {
        Health::default()
    }
    /// Flushes everything and marks the stop as clean. May be called again.
    pub fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
