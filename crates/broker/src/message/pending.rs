//! A message that the broker is about to store: a send, a retry, a delayed message whose time has come.
//!
//! A delay level redirects it to `SCHEDULE_TOPIC_XXXX` (Apache `HookUtils.transformDelayLevelMessage`): its real topic
//! and queue become properties, and its consume queue entry holds the delivery time instead of the tags code.

use crate::message::delay_levels::DelayLevels;
use crate::message::properties::{self, names};
use pyrmq_remoting::clock;
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_remoting::names::SCHEDULE_TOPIC;
use pyrmq_store::{AppendBatch, NewMessage, OnStored, Store, StoreError, Stored};
use std::net::SocketAddr;

/// A message to be stored. `properties` is empty or ends with a separator.
#[derive(Debug)]
pub(crate) struct PendingMessage<'a> {
    pub(crate) topic: &'a str,
    pub(crate) queue_id: i32,
    /// The delay level; 0: deliver at once.
    pub(crate) delay_level: i32,
    pub(crate) flag: i32,
    pub(crate) sys_flag: i32,
    pub(crate) born_ms: i64,
    pub(crate) born_host: SocketAddr,
    pub(crate) store_host: SocketAddr,
    pub(crate) reconsume_times: i32,
    pub(crate) body: &'a [u8],
    pub(crate) properties: String,
    pub(crate) unique_key: Option<&'a str>,
    pub(crate) keys: Option<&'a str>,
    pub(crate) tags: Option<&'a str>,
}

impl PendingMessage<'_> {
    /// Stores the message, redirected to the schedule topic if it is delayed.
    pub(crate) fn put(self, store: &Store, levels: &DelayLevels) -> Result<Stored, StoreError> {
        self.put_by(levels, |message| store.put(message))
    }

    /// Stores a message that the store accepted before: a smaller `maxMessageSize` does not refuse it now.
    pub(crate) fn put_accepted(self, store: &Store, levels: &DelayLevels) -> Result<Stored, StoreError> {
        self.put_by(levels, |message| store.put_accepted(message))
    }

    /// Stages the message in an append batch.
    pub(crate) fn stage(self, puts: &mut AppendBatch, levels: &DelayLevels, done: Box<OnStored>) {
        self.put_by(levels, |message| puts.stage(message, done));
    }

    fn put_by<T>(mut self, levels: &DelayLevels, put: impl FnOnce(&NewMessage<'_>) -> T) -> T {
        let level = levels.clamp(self.delay_level);
        let mut tags_code = java_hash::tags_code(self.tags);
        if level > 0 && level != self.delay_level {
            self.properties = properties::copy(&self.properties, self.topic.len() + 40, |name| {
                name == names::DELAY
            });
            properties::append(&mut self.properties, names::DELAY, &level.to_string());
        }
        let (topic, queue_id) = if level > 0 {
            // A retry that is itself retried has these properties already.
            if properties::find(&self.properties, names::REAL_TOPIC).is_some() {
                self.properties = properties::copy(&self.properties, self.topic.len() + 40, |name| {
                    matches!(name, names::REAL_TOPIC | names::REAL_QID)
                });
            }
            properties::append(&mut self.properties, names::REAL_TOPIC, self.topic);
            properties::append(&mut self.properties, names::REAL_QID, &self.queue_id.to_string());
            tags_code = clock::now_ms() + levels.delay_ms(level);
            (SCHEDULE_TOPIC, level - 1)
        } else {
            (self.topic, self.queue_id)
        };
        put(&NewMessage {
            topic,
            queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp_ms: self.born_ms,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: 0,
            body: self.body,
            properties: &self.properties,
            tags_code,
            unique_key: self.unique_key,
            keys: self.keys,
            tag: self.tags,
        })
    }
}

/// A copy of a record under another topic, with other properties.
pub(crate) fn copy_of<'a>(
    record: &Record<'a>,
    topic: &'a str,
    queue_id: i32,
    text: &'a str,
) -> NewMessage<'a> {
    let parsed = properties::parse(text);
    NewMessage {
        topic,
        queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp_ms: record.born_timestamp_ms,
        born_host: record.born_host,
        store_host: record.store_host,
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: 0,
        body: record.body,
        properties: text,
        tags_code: java_hash::tags_code(parsed.tags),
        unique_key: parsed.unique_key,
        keys: parsed.keys,
        tag: parsed.tags,
    }
}
