//! A message on its way out: checked, with its properties in wire form.

use crate::error::ClientError;
use bytes::Bytes;
use pyrmq_remoting::clock;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::message::id::UniqueIds;
use pyrmq_remoting::message::properties::{self, AFTER_ID, BEFORE_ID, MAX_BYTES, NAME_END, VALUE_END};
use pyrmq_remoting::message::sys_flag;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Digits of a unique id.
pub(crate) const ID_DIGITS: usize = 32;

/// Which queue a message goes to.
#[derive(Debug, Clone, Default)]
pub enum Target {
    /// The producer chooses, and chooses again on a retry.
    #[default]
    Any,
    /// This queue, nowhere else.
    Queue {
        /// Broker name; empty: the only broker that has this queue, or the first.
        broker: Arc<str>,
        /// Queue number.
        id: i32,
    },
    /// The queue that this hash selects (Apache `SelectMessageQueueByHash`), and no other.
    Hash(i32),
}

/// A [`Target`], borrowed.
#[derive(Debug, Clone, Copy)]
pub enum TargetRef<'a> {
    /// Anywhere.
    Any,
    /// The queue of this hash.
    Hash(i32),
    /// This queue: broker name (empty: any that has it) and number.
    Queue(&'a str, i32),
}

impl Target {
    /// Borrows the target.
    pub fn to_ref(&self) -> TargetRef<'_> {
        match self {
            Self::Any => TargetRef::Any,
            Self::Queue { broker, id } => TargetRef::Queue(broker, *id),
            Self::Hash(hash) => TargetRef::Hash(*hash),
        }
    }
}

/// A checked message, or a batch of one topic, ready to be framed.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    /// Where it goes.
    pub topic: Arc<str>,
    /// The body as it travels.
    pub body: Bytes,
    /// Bytes that count in the in-flight limit: those of the bodies as the caller gave them, and of their own
    /// properties. The body that is sent may be smaller (compressed) or larger (a batch with its items' heads).
    pub charged_bytes: usize,
    /// Properties in wire form, the unique id among them (a batch has one for each item, in the body).
    pub properties: String,
    /// The unique id; of a batch, the ids of its items with commas between them.
    pub message_id: String,
    /// The user's own flag.
    pub flag: i32,
    /// System flag bits: compression.
    pub sys_flag: i32,
    /// Queue choice.
    pub target: Target,
    /// Messages of the batch in the body; `None`: a message that is sent alone.
    pub batch: Option<NonZeroU32>,
    /// The message answers a request: brokers push it to the requester.
    pub reply: bool,
}

impl OutgoingMessage {
    /// Whether it is a batch, perhaps of one message only.
    pub fn is_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Which request it is sent by.
    pub(super) fn request_code(&self) -> i32 {
        if self.reply {
            request::SEND_REPLY_MESSAGE_V2
        } else if self.is_batch() {
            request::SEND_BATCH_MESSAGE
        } else {
            request::SEND_MESSAGE_V2
        }
    }

    /// Messages in it: 1 if it is sent alone.
    pub fn messages(&self) -> u32 {
        self.batch.map_or(1, NonZeroU32::get)
    }

    /// The first phase of a transaction: it may be tried again only while it certainly is not stored.
    pub fn is_half(&self) -> bool {
        sys_flag::transaction(self.sys_flag) == sys_flag::TRANSACTION_PREPARED
    }
}

/// A body in the form in which it is sent alone: compressed, or as the caller gave it.
#[derive(Debug, Clone)]
pub struct EncodedBody {
    /// The body, compressed where that made it smaller.
    pub body: Bytes,
    /// System flag bits: which compression.
    pub flags: i32,
}

const SEPARATORS: &str = "the characters 0x01 and 0x02 separate properties";

/// Bytes are enough: both separators are ASCII.
fn has_separator(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.any(|byte| byte == NAME_END || byte == VALUE_END)
}

/// Writes a message's properties.
#[derive(Debug)]
pub struct Properties<'a> {
    topic: &'a str,
    text: String,
}

impl<'a> Properties<'a> {
    /// The properties of a message for this topic, which carries a new unique id: the first value written.
    pub fn new(topic: &'a str, ids: &UniqueIds) -> Self {
        let mut text = String::with_capacity(96);
        text.push_str(BEFORE_ID);
        ids.write_next(clock::now_ms(), &mut text);
        text.push_str(AFTER_ID);
        Self { topic, text }
    }

    /// Only the message's own properties: those of every message are added when the frame is written.
    pub fn bare(topic: &'a str) -> Self {
        let text = String::with_capacity(64);
        Self { topic, text }
    }

    /// The unique id.
    pub fn message_id(&self) -> &str {
        let id = BEFORE_ID.len()..BEFORE_ID.len() + ID_DIGITS;
        self.text.get(id).unwrap_or_default()
    }

    /// Appends a property with a name of Apache's. An empty value is left out, as readers would drop it.
    pub fn push(&mut self, name: &str, value: &str) -> Result<(), ClientError> {
        if has_separator(value) {
            return Err(self.refuse(name, SEPARATORS));
        }
        properties::append(&mut self.text, name, value);
        Ok(())
    }

    /// Appends a user's property.
    pub fn push_user(&mut self, name: &str, value: &str) -> Result<(), ClientError> {
        if name.is_empty() {
            return Err(self.refuse(name, "a name is not empty"));
        }
        if value.is_empty() {
            return Err(self.refuse(name, "a value is not empty: readers drop such a property"));
        }
        if properties::is_reserved(name) {
            return Err(self.refuse(name, "the name has a meaning of its own in RocketMQ; use another"));
        }
        if has_separator(name) {
            return Err(self.refuse(name, SEPARATORS));
        }
        self.push(name, value)
    }

    /// The wire form.
    pub fn finish(self) -> Result<String, ClientError> {
        if self.text.len() > MAX_BYTES {
            return Err(ClientError::Properties {
                topic: self.topic.to_owned(),
                bytes: self.text.len(),
            });
        }
        Ok(self.text)
    }

    /// The error for an invalid property.
    pub fn refuse(&self, name: &str, reason: &'static str) -> ClientError {
        ClientError::Property {
            topic: self.topic.to_owned(),
            name: name.escape_default().to_string(),
            reason,
        }
    }
}
