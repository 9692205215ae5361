//! Messages to store, and the callbacks of the store.

use crate::error::StoreError;
use crate::group_commit::BoxedCallback;
use crate::sync::Completion;
use pyrmq_remoting::clock;
use std::borrow::Cow;
use std::net::SocketAddr;

/// One message to store. Borrows everything; the properties may be owned. The caller has checked the topic against its
/// table.
#[derive(Debug, Clone)]
pub struct NewMessage<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue inside the topic, from 0.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// See `pyrmq_remoting::message::sys_flag`; the two host bits are set from the hosts.
    pub sys_flag: i32,
    /// Time at which the producer created the message, ms.
    pub born_timestamp_ms: i64,
    /// The producer's socket address.
    pub born_host: SocketAddr,
    /// The broker's advertised address.
    pub store_host: SocketAddr,
    /// Number of times that consumers sent the message back.
    pub reconsume_times: i32,
    /// Position of a transaction's prepared message.
    pub prepared_transaction_offset: i64,
    /// The body, compressed if the sys flag says so.
    pub body: &'a [u8],
    /// The properties in wire form.
    pub properties: Cow<'a, str>,
    /// What the consume queue keeps: the tag's Java hash, or a delivery time in the schedule topic.
    pub tags_code: i64,
    /// `UNIQ_KEY`, for the key index.
    pub unique_key: Option<&'a str>,
    /// `KEYS`, separated by spaces, for the key index.
    pub keys: Option<&'a str>,
    /// `TAGS`, for the key index.
    pub tag: Option<&'a str>,
}

impl<'a> NewMessage<'a> {
    /// A message that a server makes itself, now: without body, properties, keys and tag.
    pub fn new(topic: &'a str, queue_id: i32, host: SocketAddr) -> Self {
        Self {
            topic,
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: clock::now_ms(),
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &[],
            properties: Cow::Borrowed(""),
            tags_code: 0,
            unique_key: None,
            keys: None,
            tag: None,
        }
    }
}

/// One message of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchMessage<'a> {
    /// The user's flag.
    pub flag: i32,
    /// The body.
    pub body: &'a [u8],
    /// The properties in wire form.
    pub properties: &'a str,
    /// What the consume queue keeps: the tag's Java hash.
    pub tags_code: i64,
    /// `UNIQ_KEY`, for the key index.
    pub unique_key: Option<&'a str>,
    /// `KEYS`, separated by spaces, for the key index.
    pub keys: Option<&'a str>,
    /// `TAGS`, for the key index.
    pub tag: Option<&'a str>,
}

/// Messages for one queue that become consecutive records in one file.
#[derive(Debug, Clone, Copy)]
pub struct MessageBatch<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue inside the topic, from 0.
    pub queue_id: i32,
    /// See `pyrmq_remoting::message::sys_flag`; the two host bits are set from the hosts.
    pub sys_flag: i32,
    /// When the producer created the messages, ms.
    pub born_timestamp_ms: i64,
    /// The producer's socket address.
    pub born_host: SocketAddr,
    /// The broker's advertised address.
    pub store_host: SocketAddr,
    /// Number of times that consumers sent the messages back.
    pub reconsume_times: i32,
    /// The messages, at least one.
    pub items: &'a [BatchMessage<'a>],
}

impl<'a> MessageBatch<'a> {
    /// The message of an item, with the values that the batch shares.
    pub fn message(&self, item: &BatchMessage<'a>) -> NewMessage<'a> {
        NewMessage {
            topic: self.topic,
            queue_id: self.queue_id,
            flag: item.flag,
            sys_flag: self.sys_flag,
            born_timestamp_ms: self.born_timestamp_ms,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: 0,
            body: item.body,
            properties: Cow::Borrowed(item.properties),
            tags_code: item.tags_code,
            unique_key: item.unique_key,
            keys: item.keys,
            tag: item.tag,
        }
    }
}

/// Where a message, or the first one of a batch, was stored. It is in the page cache; see `Store::when_durable` for
/// more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// Position of the (first) record in the commit log.
    pub physical_offset: i64,
    /// Position after the (last) record: what `when_durable` takes.
    pub end_position: i64,
    /// Index of the (first) record in its consume queue.
    pub queue_offset: i64,
    /// Store time, ms.
    pub store_timestamp_ms: i64,
    /// Number of records.
    pub count: u32,
    /// Positions of all records of a batch; empty for a single message.
    pub batch_offsets: Vec<i64>,
}

impl Stored {
    /// Bytes of all records.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.end_position - self.physical_offset).unwrap_or(0)
    }

    /// The positions of all records.
    pub fn physical_offsets(&self) -> &[i64] {
        if self.batch_offsets.is_empty() {
            std::slice::from_ref(&self.physical_offset)
        } else {
            &self.batch_offsets
        }
    }
}

/// A message that became readable. For a batch there is one, of its last message.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue inside the topic.
    pub queue_id: i32,
    /// Index after the newest readable message.
    pub next_offset: i64,
    /// Number of messages that became readable at once.
    pub count: u32,
    /// The message's code, or `None` for several with different codes.
    pub tags_code: Option<i64>,
    /// Store time, ms.
    pub store_timestamp_ms: i64,
}

/// Called when messages became readable.
pub type OnArrival = dyn Fn(&Arrival<'_>) + Send + Sync;
/// Called with the outcome of a put of an append batch: where the message went, or why it was not stored.
///
/// It returns what is still to be done for the put. `Some((position, callback))`: `callback` is called once everything
/// before `position` is durable, or is known not to become so, as with [`crate::Store::when_durable`]; that happens at
/// the batch's commit or later. `None`: nothing, the put has been answered.
pub type OnStored = dyn Completion<Result<Stored, StoreError>, Option<(i64, OnDurable)>>;

/// Stages a message of [`crate::Store::put_accepted_all`], or says why it cannot be stored.
pub type Stage<'s> = dyn FnMut(&NewMessage<'_>) -> Result<(), StoreError> + 's;

/// Called while an inline fsync is slow.
pub type OnSlowFlush = dyn Fn() + Send + Sync;
/// Called with a function that may block for long. It runs that on the same thread, after it has moved other work of
/// that thread, or not at all if too many threads block already: then the put is refused.
pub type BlockInPlace = dyn Fn(&mut dyn FnMut()) + Send + Sync;
/// Called once: with `Ok` when messages are durable, with the error once it is known that they will not be.
pub type OnDurable = BoxedCallback<StoreError>;
