//! Messages of one topic and queue in one frame (Apache `MessageDecoder.encodeMessages`, plain batch).
//!
//! The broker makes a record of its own out of each item, so consumers need no support for it. Bodies are copied
//! once, from the caller's memory to their place in the frame; unique ids and the properties that every message has
//! are written in place.
//!
//! ```text
//! item properties   UNIQ_KEY 0x01 <32 digits> 0x02 <the message's own>
//! ids               <32 digits> , <32 digits> , ...
//! ```

use crate::producer::outgoing::{ID_DIGITS, OutgoingMessage, Target};
use bytes::Bytes;
use pyrmq_remoting::WireError;
use pyrmq_remoting::clock;
use pyrmq_remoting::message::batch::{self, BatchItem, ITEM_HEAD, ITEM_OVERHEAD};
use pyrmq_remoting::message::id::{HEX_PAIRS, UniqueIds};
use pyrmq_remoting::message::properties::{AFTER_ID, BEFORE_ID};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Digits of an id that never change within a producer: address, process, loader.
const FIXED_DIGITS: usize = 20;

/// Bytes of the properties that every message has.
pub const COMMON_PROPERTIES: usize = BEFORE_ID.len() + ID_DIGITS + AFTER_ID.len();

/// Initial capacity of a new batch; larger ones grow.
const FIRST_CAPACITY: usize = 64 * 1024;

/// Writes unique ids as text; the fixed part is formatted once.
#[derive(Debug, Clone, Copy)]
pub struct IdText {
    fixed: [u8; FIXED_DIGITS],
}

impl IdText {
    /// Writes ids of this generator, whose address is IPv4. Uses up one id.
    pub fn new(ids: &UniqueIds) -> Self {
        let text = ids.next(clock::now_ms()).to_string();
        let mut fixed = [b'0'; FIXED_DIGITS];
        if let Some(digits) = text.as_bytes().first_chunk::<FIXED_DIGITS>() {
            fixed = *digits;
        }
        Self { fixed }
    }

    /// The digits of the next id.
    pub fn next(&self, ids: &UniqueIds) -> [u8; ID_DIGITS] {
        self.next_at(ids, clock::now_ms())
    }

    /// The digits of the next id at `now_ms`, the wall clock's time.
    pub fn next_at(&self, ids: &UniqueIds, now_ms: i64) -> [u8; ID_DIGITS] {
        let id = ids.next(now_ms);
        let mut text = [b'0'; ID_DIGITS];
        let (fixed, moving) = text.split_at_mut(FIXED_DIGITS);
        fixed.copy_from_slice(&self.fixed);
        let bytes = id
            .month_ms
            .to_be_bytes()
            .into_iter()
            .chain(id.counter.to_be_bytes());
        for (pair, byte) in moving.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&HEX_PAIRS[usize::from(byte)]);
        }
        text
    }
}

/// Fills one batch.
#[derive(Debug)]
pub struct Batch {
    topic: Arc<str>,
    target: Target,
    limit: usize,
    body: Vec<u8>,
    ids: String,
    items: u32,
    /// Bytes of the bodies in it, and of the properties that are their own.
    charged_bytes: usize,
    /// The batch's own id: a topic of batches keeps it as one record.
    inner: Option<String>,
}

impl Batch {
    /// Empty; `limit` bytes of items at most.
    pub fn new(topic: Arc<str>, target: Target, limit: usize) -> Self {
        Self {
            topic,
            target,
            limit,
            body: Vec::new(),
            ids: String::new(),
            items: 0,
            charged_bytes: 0,
            inner: None,
        }
    }

    /// Gives the batch its own id: a topic of batches (`queue.type=BatchCQ`) keeps it as one record.
    #[must_use]
    pub fn with_id(mut self, id: String) -> Self {
        self.inner = Some(id);
        self
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Messages in it.
    pub fn len(&self) -> u32 {
        self.items
    }

    /// Bytes in it.
    pub fn bytes(&self) -> usize {
        self.body.len()
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
        self.reserve(item.encoded_size());
        batch::encode(&item, &mut self.body)?;
        self.note(message_id, charged_bytes(&item));
        Ok(())
    }

    /// Adds a message of another batch: its unique id is the first of its properties.
    pub fn push_again(&mut self, item: &BatchItem<'_>) -> Result<(), WireError> {
        let id = item.properties.get(BEFORE_ID.len()..BEFORE_ID.len() + ID_DIGITS);
        let id = id.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or_default();
        self.reserve(item.encoded_size());
        batch::encode(item, &mut self.body)?;
        self.note(id, charged_bytes(item));
        Ok(())
    }

    /// Adds a message with this unique id and these properties, in addition to those of every message.
    pub fn push_with_id(
        &mut self,
        body: &[u8],
        extra: &str,
        id: &[u8; ID_DIGITS],
        flag: i32,
    ) -> Result<(), WireError> {
        self.reserve(ITEM_OVERHEAD + body.len() + COMMON_PROPERTIES + extra.len());
        let properties = [
            BEFORE_ID.as_bytes(),
            id.as_slice(),
            AFTER_ID.as_bytes(),
            extra.as_bytes(),
        ];
        batch::encode_parts(flag, body, properties, &mut self.body)?;
        self.note(
            std::str::from_utf8(id).unwrap_or_default(),
            body.len() + extra.len(),
        );
        Ok(())
    }

    fn reserve(&mut self, size: usize) {
        if self.items == 0 {
            self.body.reserve(self.limit.min(FIRST_CAPACITY).max(size));
        }
    }

    fn note(&mut self, id: &str, charged_bytes: usize) {
        if self.items > 0 {
            self.ids.push(',');
        }
        self.ids.push_str(id);
        self.items += 1;
        self.charged_bytes += charged_bytes;
    }

    /// Returns what is to be sent: a batch or, if it has only one message, that message alone. Leaves this batch empty.
    pub fn finish(&mut self) -> OutgoingMessage {
        let alone = match batch::decode(&self.body) {
            Ok((item, _)) if self.items == 1 && self.inner.is_none() => {
                let properties = String::from_utf8_lossy(item.properties).into_owned();
                Some((ITEM_HEAD..ITEM_HEAD + item.body.len(), properties, item.flag))
            }
            _ => None,
        };
        let mut outgoing = self.finish_batch();
        if let Some((body, properties, flag)) = alone {
            outgoing.body = outgoing.body.slice(body);
            (outgoing.batch, outgoing.flag, outgoing.properties) = (None, flag, properties);
        }
        outgoing
    }

    /// Returns the batch as one outgoing message, even if it has only one message. Leaves this batch empty.
    pub fn finish_batch(&mut self) -> OutgoingMessage {
        let mut body = std::mem::take(&mut self.body);
        // A few messages must not hold the memory of a full batch until they are answered.
        if body.capacity() / 2 > body.len() {
            body.shrink_to_fit();
        }
        OutgoingMessage {
            topic: self.topic.clone(),
            body: Bytes::from(body),
            charged_bytes: std::mem::take(&mut self.charged_bytes),
            properties: (self.inner.take())
                .map(|id| alone_properties(&id, ""))
                .unwrap_or_default(),
            message_id: std::mem::take(&mut self.ids),
            flag: 0,
            sys_flag: 0,
            target: self.target.clone(),
            batch: NonZeroU32::new(std::mem::take(&mut self.items)),
            reply: false,
        }
    }
}

/// The bytes of an item that count in the in-flight limit: its body, and the properties that not every message has.
pub fn charged_bytes(item: &BatchItem<'_>) -> usize {
    item.body.len() + item.properties.len().saturating_sub(COMMON_PROPERTIES)
}

/// The properties of a message that travels alone: what every message has, then its own.
pub fn alone_properties(id: &str, extra: &str) -> String {
    let mut text = String::with_capacity(COMMON_PROPERTIES + extra.len());
    text.push_str(BEFORE_ID);
    text.push_str(id);
    text.push_str(AFTER_ID);
    text.push_str(extra);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_stays_alone_holds_no_room_for_others() {
        let ids = UniqueIds::new("127.0.0.1".parse().unwrap(), 1, 1);
        let text = IdText::new(&ids);
        for alone in [true, false] {
            let mut batch = Batch::new("T".into(), Target::Any, 4 << 20);
            batch.push_with_id(&[b'x'; 10], "", &text.next(&ids), 0).unwrap();
            let outgoing = if alone {
                batch.finish()
            } else {
                batch.finish_batch()
            };
            let room = outgoing.body.try_into_mut().unwrap().capacity();
            assert!(room < 1024, "{room} bytes");
        }
    }
}
