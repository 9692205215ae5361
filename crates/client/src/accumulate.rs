//! Messages of one topic and queue in one frame (Apache `MessageDecoder.encodeMessages`, plain batch).
//!
//! The broker makes a record of its own out of each item, so consumers need no support for it. Bodies are copied
//! once, from the caller's memory to their place in the frame.

use crate::draft::{Draft, Target};
use bytes::Bytes;
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::batch::{self, BatchItem, ITEM_OVERHEAD};
use std::sync::Arc;

/// Fills one batch.
#[derive(Debug)]
pub struct Accumulator {
    topic: Arc<str>,
    target: Target,
    limit: usize,
    body: Vec<u8>,
    ids: String,
    items: u32,
}

impl Accumulator {
    /// Empty; `limit` bytes of items at most.
    pub fn new(topic: Arc<str>, target: Target, limit: usize) -> Self {
        Self {
            topic,
            target,
            limit,
            body: Vec::new(),
            ids: String::new(),
            items: 0,
        }
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Messages in it.
    pub fn len(&self) -> u32 {
        self.items
    }

    /// Whether another item fits; the first always does.
    pub fn fits(&self, body: usize, properties: usize) -> bool {
        self.items == 0 || self.body.len() + ITEM_OVERHEAD + body + properties <= self.limit
    }

    /// Adds a message whose properties carry the unique id `message_id`.
    pub fn push(
        &mut self,
        body: &[u8],
        properties: &str,
        message_id: &str,
        flag: i32,
    ) -> Result<(), WireError> {
        let item = BatchItem {
            flag,
            body,
            properties: properties.as_bytes(),
        };
        if self.items == 0 {
            self.body
                .reserve(self.limit.min(64 * 1024).max(item.encoded_size()));
        }
        batch::encode(&item, &mut self.body)?;
        if self.items > 0 {
            self.ids.push(',');
        }
        self.ids.push_str(message_id);
        self.items += 1;
        Ok(())
    }

    /// The batch as one draft; the accumulator is empty again.
    pub fn take(&mut self) -> Draft {
        Draft {
            topic: self.topic.clone(),
            body: Bytes::from(std::mem::take(&mut self.body)),
            properties: "WAIT\u{1}true\u{2}".to_owned(),
            message_id: std::mem::take(&mut self.ids),
            flag: 0,
            sys_flag: 0,
            target: self.target.clone(),
            items: std::mem::take(&mut self.items),
        }
    }
}
