//! A message that the broker is about to store: a send, a retry, a delayed message whose time has come.
//!
//! A delay level redirects it to `SCHEDULE_TOPIC_XXXX` (Apache `HookUtils.transformDelayLevelMessage`): its real topic
//! and queue become properties, and its consume queue entry holds the delivery time instead of the tags code.

use crate::message::delay_levels::DelayLevels;
use crate::message::properties::{self, names};
use pyrmq_remoting::clock;
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_remoting::names::{HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC};
use pyrmq_store::{AppendBatch, NewMessage, OnStored, Store, StoreError, Stored};
use std::borrow::Cow;

/// A message to be stored.
#[derive(Debug)]
pub(crate) struct PendingMessage<'a> {
    /// The message as it is stored without a delay. Its properties are empty or end with a separator.
    pub(crate) message: NewMessage<'a>,
    /// The delay level; 0: deliver at once.
    pub(crate) delay_level: i32,
}

impl PendingMessage<'_> {
    /// Stores the message, redirected to the schedule topic if it is delayed.
    pub(crate) fn put(self, store: &Store, levels: &DelayLevels) -> Result<Stored, StoreError> {
        store.put(&self.redirected(levels))
    }

    /// Stores a message that the store accepted before: a smaller `maxMessageSize` does not refuse it now.
    pub(crate) fn put_accepted(self, store: &Store, levels: &DelayLevels) -> Result<Stored, StoreError> {
        store.put_accepted(&self.redirected(levels))
    }

    /// Stages the message in an append batch.
    pub(crate) fn stage(self, puts: &mut AppendBatch, levels: &DelayLevels, done: Box<OnStored>) {
        puts.stage(&self.redirected(levels), done);
    }
}

impl<'a> PendingMessage<'a> {
    /// The system topic that will hold the message until it is due or its transaction ends.
    pub(crate) fn waits_in(&self) -> Option<&'static str> {
        if self.delay_level > 0 {
            return Some(SCHEDULE_TOPIC);
        }
        let topic = self.message.topic;
        [HALF_TOPIC, TIMER_TOPIC]
            .into_iter()
            .find(|waits| *waits == topic)
    }

    /// The message as it is stored: in the schedule topic if it is delayed.
    fn redirected(self, levels: &DelayLevels) -> NewMessage<'a> {
        let Self {
            mut message,
            delay_level,
        } = self;
        let level = levels.clamp(delay_level);
        if level > 0 {
            let mut text = message.properties.into_owned();
            let extra = message.topic.len() + 40;
            if level != delay_level {
                text = properties::copy(&text, extra, |name| name == names::DELAY);
                properties::append(&mut text, names::DELAY, &level.to_string());
            }
            // A retry that is itself retried has these properties already.
            if properties::find(&text, names::REAL_TOPIC).is_some() {
                text = properties::copy(&text, extra, |name| {
                    matches!(name, names::REAL_TOPIC | names::REAL_QID)
                });
            }
            properties::append(&mut text, names::REAL_TOPIC, message.topic);
            properties::append(&mut text, names::REAL_QID, &message.queue_id.to_string());
            message.properties = text.into();
            message.topic = SCHEDULE_TOPIC;
            message.queue_id = level - 1;
            message.tags_code = clock::now_ms() + levels.delay_ms(level);
        }
        message
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
        properties: Cow::Borrowed(text),
        tags_code: java_hash::tags_code(parsed.tags),
        unique_key: parsed.unique_key,
        keys: parsed.keys,
        tag: parsed.tags,
    }
}
