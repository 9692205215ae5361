//! Encodes puts into an append buffer before they have a position in the log: checked, encoded, and with their queue.

use crate::append::appender::Appender;
use crate::append::buffer::{AppendBuffer, QueueAppend};
use crate::error::StoreError;
use crate::message::{MessageBatch, NewMessage};
use crate::queue::consume_queue::ConsumeQueue;
use pyrmq_remoting::message::record::BLANK_SIZE;
use pyrmq_remoting::message::sys_flag;
use std::sync::Arc;

impl Appender {
    /// Prepares a message to be appended.
    pub(crate) fn encode(
        &self,
        append_buffer: &mut AppendBuffer,
        message: &NewMessage<'_>,
    ) -> Result<(), StoreError> {
        self.check_body(message.body.len())?;
        self.encode_accepted(append_buffer, message)
    }

    pub(super) fn encode_accepted(
        &self,
        append_buffer: &mut AppendBuffer,
        message: &NewMessage<'_>,
    ) -> Result<(), StoreError> {
        let hidden = sys_flag::is_hidden(message.sys_flag);
        self.encode_for_queue(
            append_buffer,
            (message.topic, message.queue_id),
            hidden,
            |append_buffer| append_buffer.add(message, &self.shared.options, self.indexing.index.is_some()),
        )
    }

    /// Prepares a batch to be appended as consecutive records of one file.
    pub(crate) fn encode_batch(
        &self,
        append_buffer: &mut AppendBuffer,
        batch: &MessageBatch<'_>,
    ) -> Result<(), StoreError> {
        if batch.items.is_empty() {
            return Err(StoreError::EmptyBatch);
        }
        self.check_body(batch.items.iter().map(|item| item.body.len()).sum())?;
        let hidden = sys_flag::is_hidden(batch.sys_flag);
        self.encode_for_queue(
            append_buffer,
            (batch.topic, batch.queue_id),
            hidden,
            |append_buffer| {
                append_buffer.add_batch(batch, &self.shared.options, self.indexing.index.is_some())
            },
        )
    }

    fn check_body(&self, size: usize) -> Result<(), StoreError> {
        let limit = self.shared.live.max_message_bytes();
        if size > limit {
            return Err(StoreError::MessageTooLarge { size, limit });
        }
        Ok(())
    }

    /// Adds the records for one queue to the buffer. A failure leaves the buffer unchanged.
    fn encode_for_queue(
        &self,
        append_buffer: &mut AppendBuffer,
        (topic, queue_id): (&str, i32),
        hidden: bool,
        records: impl FnOnce(&mut AppendBuffer) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.shared.state.check_writable()?;
        self.flow_control.check()?;
        let queue = self.queue_for_put(topic, queue_id)?;
        let before = append_buffer.lengths();
        let done = records(append_buffer).and_then(|()| {
            let limit = usize::try_from(self.shared.options.segment_bytes).unwrap_or(usize::MAX) - BLANK_SIZE;
            let size = append_buffer.records.len() - before.records;
            if size > limit {
                return Err(StoreError::MessageTooLarge { size, limit });
            }
            Ok(())
        });
        if done.is_err() {
            append_buffer.cut(before);
            return done;
        }
        append_buffer.queue_appends.push(QueueAppend {
            queue,
            hidden,
            encoded_records: before.encoded_records..append_buffer.encoded_records.len(),
        });
        Ok(())
    }

    pub(super) fn queue_for_put(&self, topic: &str, queue_id: i32) -> Result<Arc<ConsumeQueue>, StoreError> {
        if let Some(queue) = self.shared.queues.get(topic, queue_id) {
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
            "the topic cannot be the name of a directory"
        } else {
            return Ok(self.shared.queues.get_or_add(topic, queue_id));
        };
        Err(StoreError::illegal_queue(topic, queue_id, reason))
    }
}
