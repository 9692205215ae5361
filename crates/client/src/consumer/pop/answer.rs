//! Parses the answer to a pop: messages, each with its receipt (Apache `MQClientAPIImpl#processPopResponse`).

use crate::consumer::pop::receipt::Receipt;
use crate::consumer::process_queue::{Chunk, QueueKey};
use crate::session::membership::Subscription;
use bytes::Bytes;
use pyrmq_remoting::WireError;
use pyrmq_remoting::header::pop::PopMessageResponseHeader;
use pyrmq_remoting::message::ReceiptHandle;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::receipt::PopSource;
use pyrmq_remoting::message::record::{self, Hop, Record};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A message that was handed out.
#[derive(Debug, Clone)]
pub struct Popped {
    /// Records of the same queue that came together.
    pub chunk: Arc<Chunk>,
    /// Index of the message in `chunk`.
    pub index: usize,
    /// Deliveries before this one that its record does not count: those of ordered groups.
    pub tries: i32,
    /// Acknowledges it.
    pub receipt: Arc<Receipt>,
}

impl Popped {
    /// How often it was delivered before.
    pub fn reconsume_times(&self) -> i32 {
        let record = self.chunk.record(self.index).and_then(Result::ok);
        record.map_or(0, |record| record.reconsume_times) + self.tries
    }

    /// Bytes of its record.
    pub(crate) fn bytes(&self) -> usize {
        self.chunk.record_bytes(self.index).map_or(0, <[u8]>::len)
    }
}

/// A pop that was sent: the broker and topic that answer it, and what was requested.
pub(crate) struct SentPop<'a> {
    pub(crate) topic: &'a Arc<str>,
    pub(crate) broker: &'a Arc<str>,
    pub(crate) subscription: &'a Subscription,
    pub(crate) until: Instant,
}

/// The messages of an answer; those that the subscription does not select are listed separately.
#[derive(Debug, Default)]
pub(crate) struct PopAnswer {
    pub(crate) messages: Vec<Popped>,
    /// Brokers compare tags by their hash: messages with another tag of the same hash are only acknowledged.
    pub(crate) unwanted: Vec<Arc<Receipt>>,
}

/// Numbers of an answer's header, by source and queue, or by a key that Apache calls `queueOffset`.
struct HeaderNumbers<'a>(HashMap<(&'static str, &'a str), i64>);

impl<'a> HeaderNumbers<'a> {
    /// Reads `source key number;source key number`.
    fn read(field: &'static str, text: Option<&'a str>) -> Result<Self, WireError> {
        let mut numbers = HashMap::new();
        for one in text.unwrap_or_default().split(';').filter(|one| !one.is_empty()) {
            let bad = || WireError::BadField {
                field,
                expected: "`source queue number`, with `;` between them",
                value: one.to_owned(),
            };
            let mut words = one.split(' ');
            let source: PopSource = words.next().unwrap_or_default().parse()?;
            let key = words.next().ok_or_else(bad)?;
            let number = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
            numbers.insert((source.as_str(), key), number);
        }
        Ok(Self(numbers))
    }

    fn get(&self, source: PopSource, key: &str) -> Option<i64> {
        self.0.get(&(source.as_str(), key)).copied()
    }

    /// Deliveries of a message of an ordered group, by its own count or its queue's, beyond those of its record.
    fn order_count(&self, source: PopSource, queue_id: &str, record: &Record<'_>) -> i32 {
        if self.0.is_empty() {
            return 0;
        }
        let own = self.get(source, &format!("qo{queue_id}%{}", record.queue_offset));
        let count = own.or_else(|| self.get(source, queue_id)).unwrap_or(0);
        match i32::try_from(count) {
            Ok(count) if count > 0 => count - record.reconsume_times,
            _ => 0,
        }
    }
}

/// Takes an answer apart.
pub(crate) fn read(
    sent: &SentPop<'_>,
    header: &PopMessageResponseHeader<'_>,
    body: &Bytes,
) -> Result<PopAnswer, WireError> {
    let starts = HeaderNumbers::read("startOffsetInfo", header.start_offset_info)?;
    let counts = HeaderNumbers::read("orderCountInfo", header.order_count_info)?;
    let tags = sent.subscription.tags();
    let mut first_offsets: HashMap<(&str, i32), i64> = HashMap::new();
    let all = Subscription::tags_of("*", 0);
    let mut found = PopAnswer::default();
    for run in runs(body)? {
        let bytes = body.slice(run.bytes);
        let queue = Arc::new(QueueKey {
            topic: sent.topic.clone(),
            broker: sent.broker.clone(),
            queue_id: run.queue_id,
        });
        let chunk = Arc::new(Chunk::new(queue, bytes, 0, &all)?);
        let queue_id = run.queue_id.to_string();
        for index in 0..chunk.len() {
            let Some(record) = chunk.record(index).transpose()? else {
                continue;
            };
            let source = PopSource::of(record.topic);
            // If the broker names no start, it is the offset of the queue's first message.
            let first = *first_offsets
                .entry((source.as_str(), record.queue_id))
                .or_insert(record.queue_offset);
            let start = starts.get(source, &queue_id).unwrap_or(first);
            let handle = own_handle(&record, header)
                .map_or_else(|| handle_of(sent, header, &record, start), str::to_owned);
            let receipt = Receipt::arrived(sent.topic.clone(), sent.broker.clone(), handle, sent.until);
            let receipt = Arc::new(receipt);
            let tag = record.properties.get(names::TAGS).unwrap_or_default();
            if !tags.is_empty() && !tags.contains(&tag) {
                found.unwanted.push(receipt);
                continue;
            }
            let tries = counts.order_count(source, &queue_id, &record);
            found.messages.push(Popped {
                chunk: chunk.clone(),
                index,
                tries,
                receipt,
            });
        }
    }
    Ok(found)
}

/// The handle of a message whose pop began at `start_offset` in its queue.
fn handle_of(
    sent: &SentPop<'_>,
    header: &PopMessageResponseHeader<'_>,
    record: &Record<'_>,
    start_offset: i64,
) -> String {
    let handle = ReceiptHandle {
        start_offset,
        pop_time: header.pop_time,
        invisible_time: header.invisible_time,
        revive_queue_id: header.revive_qid,
        source: PopSource::of(record.topic),
        broker_name: sent.broker,
        queue_id: record.queue_id,
        offset: Some(record.queue_offset),
    };
    handle.to_string()
}

/// The handle that the broker wrote into a message of a retry topic when it restored the name of the first topic. It
/// counts only if it is of this answer; any other is a property of the sender.
fn own_handle<'a>(record: &Record<'a>, header: &PopMessageResponseHeader<'_>) -> Option<&'a str> {
    let text = record.properties.get(names::POP_CK)?;
    let handle = ReceiptHandle::parse(text).ok()?;
    (handle.pop_time == header.pop_time && handle.source != PopSource::Topic).then_some(text)
}

/// Records of one queue that follow each other.
struct Run {
    queue_id: i32,
    bytes: Range<usize>,
}

fn runs(body: &Bytes) -> Result<Vec<Run>, WireError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    while let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) {
        let cut = || WireError::Truncated {
            what: "a popped record",
            needed: record::FIXED_V4,
            left: rest.len(),
        };
        let Hop::Record(size) = record::hop(rest) else {
            return Err(cut());
        };
        let queue_id = Record::decode(rest.get(..size).ok_or_else(cut)?)?.queue_id;
        match runs.last_mut() {
            Some(run) if run.queue_id == queue_id => run.bytes.end = at + size,
            _ => runs.push(Run {
                queue_id,
                bytes: at..at + size,
            }),
        }
        at += size;
    }
    Ok(runs)
}
