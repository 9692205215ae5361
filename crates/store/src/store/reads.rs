//! The store's answers to readers.

use crate::error::StoreError;
use crate::index::query::KeyQuery;
use crate::read::query::{Boundary, GetMessage, GetMessageResult, KeyMatches, QueueEntry};
use crate::store::Store;
use bytes::Bytes;

impl Store {
    /// Reads messages of a queue.
    pub fn get(&self, request: &GetMessage<'_>) -> Result<GetMessageResult, StoreError> {
        self.engine.reader.get(request)
    }

    /// Like [`Store::get`], but only from memory: `None` if the disk is needed. If [`Store::knows_cached`] is false, it
    /// may still wait for the disk.
    pub fn get_cached(&self, request: &GetMessage<'_>) -> Result<Option<GetMessageResult>, StoreError> {
        self.engine.reader.get_cached(request)
    }

    /// Whether the file system can say which parts of a file are in memory.
    pub fn knows_cached(&self) -> bool {
        self.engine.shared.fs.knows_cached()
    }

    /// The record that begins at a position, if one does.
    pub fn record_at(&self, physical_offset: i64) -> Result<Option<Bytes>, StoreError> {
        self.engine.reader.record_at(physical_offset)
    }

    /// Like [`Store::record_at`], but only what readers may see: with `SYNC_FLUSH` only durable records.
    pub fn readable_at(&self, physical_offset: i64) -> Result<Option<Bytes>, StoreError> {
        self.engine.reader.readable_at(physical_offset)
    }

    /// The records at these positions with these sizes, in this order; `None` if one of them does not exist.
    pub fn records_at(&self, places: &[(i64, i32)]) -> Result<Option<Bytes>, StoreError> {
        self.engine.reader.records_at(places)
    }

    /// The ids of a topic's queues.
    pub fn queue_ids(&self, topic: &str) -> Vec<i32> {
        let queues = self.engine.shared.queues.of(topic);
        queues.iter().map(|queue| queue.id).collect()
    }

    /// Index of the oldest message of a queue; 0 when there is no such queue.
    pub fn min_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.engine
            .shared
            .queues
            .range_of(topic, queue_id)
            .map_or(0, |(min, _)| min)
    }

    /// Index after the newest readable message of a queue; 0 when there is no such queue.
    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.queue_end(topic, queue_id).unwrap_or(0)
    }

    /// Index after the newest readable message of a queue; `None` without such a queue.
    pub fn queue_end(&self, topic: &str, queue_id: i32) -> Option<i64> {
        let range = self.engine.shared.queues.range_of(topic, queue_id);
        range.map(|(_, end)| end)
    }

    /// The entries of a consume queue from an index on, fewer than `count` at its end; `None` without such a queue.
    pub fn queue_entries(
        &self,
        topic: &str,
        queue_id: i32,
        index: i64,
        count: i64,
    ) -> Result<Option<Vec<QueueEntry>>, StoreError> {
        self.engine.reader.queue_entries(topic, queue_id, index, count)
    }

    /// The index of the message at a time; the one after the newest message for a later time.
    pub fn offset_by_time(
        &self,
        topic: &str,
        queue_id: i32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<i64, StoreError> {
        self.engine
            .reader
            .offset_by_time(topic, queue_id, timestamp_ms, boundary)
    }

    /// When the message at an index was stored, ms.
    pub fn store_time(
        &self,
        topic: &str,
        queue_id: i32,
        queue_offset: i64,
    ) -> Result<Option<i64>, StoreError> {
        self.engine.reader.store_time(topic, queue_id, queue_offset)
    }

    /// When the oldest message of a queue was stored, ms.
    pub fn earliest_time(&self, topic: &str, queue_id: i32) -> Result<Option<i64>, StoreError> {
        self.engine
            .reader
            .store_time(topic, queue_id, self.min_offset(topic, queue_id))
    }

    /// The index of the first message of a queue at or after a position of the log; the one after the newest message
    /// where none is.
    pub fn offset_by_position(&self, topic: &str, queue_id: i32, position: i64) -> Result<i64, StoreError> {
        self.engine.reader.offset_by_position(topic, queue_id, position)
    }

    /// Searches by key.
    pub fn query(&self, query: &KeyQuery<'_>) -> Result<KeyMatches, StoreError> {
        self.engine.reader.query(query, 0)
    }

    /// Like [`Store::query`], for messages at or after a position of the log: index files that end before it are not
    /// opened.
    pub fn query_from(&self, query: &KeyQuery<'_>, position: i64) -> Result<KeyMatches, StoreError> {
        self.engine.reader.query(query, position)
    }
}
