//! Records that are encoded in a buffer, so that only what depends on the append lock is left to do under it. A buffer
//! that has grown allocates nothing.

use crate::append::appended::Appended;
use crate::delay::delay_of;
use crate::error::StoreError;
use crate::format::{CqUnit, to_i64};
use crate::index::pending::{PendingKeys, RecordKeys};
use crate::index::{MessageKeys, TopicKeys};
use crate::log::nul_records::may_look_torn;
use crate::message::{MessageBatch, NewMessage};
use crate::options::Options;
use crate::queue::consume_queue::ConsumeQueue;
use pyrmq_remoting::message::record::Patch;
use pyrmq_remoting::message::{NewRecord, properties};
use pyrmq_remoting::names::SCHEDULE_TOPIC;
use std::ops::Range;
use std::sync::Arc;

/// A buffer that grew beyond this for a large message is freed.
const KEEP_BUFFER: usize = 1 << 20;
/// A buffer beyond this size is freed after [`MAX_UNFILLED_ROUNDS`] rounds that filled less than an eighth of it, so
/// that one large batch does not hold memory while small messages are sent.
const KEEP_UNFILLED: usize = 64 << 10;
const MAX_UNFILLED_ROUNDS: u8 = 64;

/// One record inside the buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedRecord {
    pub(super) from: usize,
    pub(super) size: usize,
    pub(super) tags_code: i64,
    /// Whether `tags_code` is a delay, to which the store time is added to get the delivery time.
    is_delay: bool,
    /// End of its keys in the buffer's hashes.
    keys_end: usize,
}

/// Where a buffer will be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPosition {
    /// Position in the log of the buffer's first byte.
    pub(crate) buffer: i64,
    pub(crate) store_ms: i64,
}

impl LogPosition {
    pub(crate) fn of(self, encoded_record: &EncodedRecord) -> i64 {
        self.buffer + to_i64(encoded_record.from)
    }
}

impl EncodedRecord {
    pub(crate) fn unit(&self, log_position: LogPosition) -> CqUnit {
        CqUnit {
            position: log_position.of(self),
            size: i32::try_from(self.size).unwrap_or(i32::MAX),
            tags_code: self.tags_code + if self.is_delay { log_position.store_ms } else { 0 },
        }
    }
}

/// The records for one queue: that of a message, or those of a batch, consecutive in the buffer.
#[derive(Debug)]
pub(crate) struct QueueAppend {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) hidden: bool,
    pub(crate) encoded_records: Range<usize>,
}

/// The values, other than their heads, that the messages of a put share.
struct CommonFields<'m> {
    /// The topic's part of the keys; `None` without a key index.
    keys: Option<TopicKeys>,
    /// The delays of the levels; `None` outside the schedule topic.
    delay_levels_ms: Option<&'m [i64]>,
}

impl<'m> CommonFields<'m> {
    fn new(message: &NewMessage<'_>, options: &'m Options, with_keys: bool) -> Self {
        let is_delayed = message.topic == SCHEDULE_TOPIC;
        Self {
            keys: with_keys.then(|| TopicKeys::new(message.topic, message.sys_flag)),
            delay_levels_ms: is_delayed.then_some(options.delay_levels_ms.as_slice()),
        }
    }
}

fn record<'m>(message: &'m NewMessage<'_>) -> NewRecord<'m> {
    NewRecord {
        topic: message.topic,
        queue_id: message.queue_id,
        flag: message.flag,
        queue_offset: 0,
        physical_offset: 0,
        sys_flag: message.sys_flag,
        born_timestamp_ms: message.born_timestamp_ms,
        born_host: message.born_host,
        store_timestamp_ms: 0,
        store_host: message.store_host,
        reconsume_times: message.reconsume_times,
        prepared_transaction_offset: message.prepared_transaction_offset,
        body: message.body,
        properties: message.properties.as_bytes(),
    }
}

/// Encoded records, and the outcome of the part that was written last.
#[derive(Debug, Default)]
pub(crate) struct AppendBuffer {
    pub(crate) records: Vec<u8>,
    pub(crate) encoded_records: Vec<EncodedRecord>,
    /// The keys of each record; empty without a key index.
    keys: Vec<RecordKeys>,
    hashes: Vec<i32>,
    pub(crate) queue_appends: Vec<QueueAppend>,
    pub(crate) appended: Vec<Appended>,
    /// Whether a record may look torn, depending on its position.
    may_look_torn: bool,
    /// Number of consecutive rounds that filled little of a large buffer.
    unfilled_rounds: u8,
}

/// How much of an [`AppendBuffer`] was filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferLengths {
    pub(crate) records: usize,
    pub(crate) encoded_records: usize,
    keys: usize,
    hashes: usize,
}

impl AppendBuffer {
    pub(crate) fn clear(&mut self) {
        let (capacity, filled) = (self.records.capacity(), self.records.len());
        let is_unfilled = capacity > KEEP_UNFILLED && filled < capacity / 8;
        self.unfilled_rounds = if is_unfilled { self.unfilled_rounds + 1 } else { 0 };
        if capacity > KEEP_BUFFER || self.unfilled_rounds >= MAX_UNFILLED_ROUNDS {
            self.records = Vec::new();
            self.unfilled_rounds = 0;
        }
        self.records.clear();
        self.encoded_records.clear();
        self.keys.clear();
        self.hashes.clear();
        self.queue_appends.clear();
        self.appended.clear();
        self.may_look_torn = false;
    }

    pub(crate) fn lengths(&self) -> BufferLengths {
        BufferLengths {
            records: self.records.len(),
            encoded_records: self.encoded_records.len(),
            keys: self.keys.len(),
            hashes: self.hashes.len(),
        }
    }

    /// Removes the records that were encoded since `lengths` were taken.
    pub(crate) fn cut(&mut self, lengths: BufferLengths) {
        self.records.truncate(lengths.records);
        self.encoded_records.truncate(lengths.encoded_records);
        self.keys.truncate(lengths.keys);
        self.hashes.truncate(lengths.hashes);
    }

    /// Number of bytes that wait to be written.
    pub(crate) fn bytes(&self) -> usize {
        self.records.len()
    }

    /// The range of a queue append's records in the buffer.
    pub(crate) fn bytes_of(&self, queue_append: &QueueAppend) -> Range<usize> {
        match self.encoded_records.get(queue_append.encoded_records.clone()) {
            Some([first, .., last]) => first.from..last.from + last.size,
            Some([only]) => only.from..only.from + only.size,
            _ => 0..0,
        }
    }

    /// The index after the last queue append of a run whose records all lie before `limit` and of whose queues none is
    /// being deleted.
    pub(crate) fn run_end(&self, from: usize, limit: usize) -> usize {
        let later = self.queue_appends.get(from + 1..).unwrap_or_default();
        let fit = later.iter().take_while(|queue_append| {
            !queue_append.queue.is_closing() && self.bytes_of(queue_append).end <= limit
        });
        from + 1 + fit.count()
    }

    /// Where the keys of a queue append begin in the hashes.
    fn keys_before(&self, index: usize) -> usize {
        let first = self
            .queue_appends
            .get(index)
            .map_or(0, |queue_append| queue_append.encoded_records.start);
        let before = first
            .checked_sub(1)
            .and_then(|before| self.encoded_records.get(before));
        before.map_or(0, |encoded_record| encoded_record.keys_end)
    }

    /// Assigns positions in queues and log to the records of a run. Returns where the last one ends in the buffer.
    pub(crate) fn assign_positions(
        &mut self,
        run: Range<usize>,
        log_position: LogPosition,
    ) -> Result<usize, StoreError> {
        let mut end = 0;
        for queue_append in self.queue_appends.get(run).unwrap_or_default() {
            let encoded_records = self
                .encoded_records
                .get(queue_append.encoded_records.clone())
                .unwrap_or_default();
            let first = if queue_append.hidden {
                0
            } else {
                queue_append.queue.assign(to_i64(encoded_records.len()))
            };
            self.appended
                .push(Appended::new(encoded_records, first, log_position));
            for (number, encoded_record) in encoded_records.iter().enumerate() {
                let patch = Patch {
                    queue_offset: if queue_append.hidden {
                        0
                    } else {
                        first + to_i64(number)
                    },
                    physical_offset: log_position.of(encoded_record),
                    store_timestamp_ms: log_position.store_ms,
                };
                end = encoded_record.from + encoded_record.size;
                patch.apply(self.records.get_mut(encoded_record.from..end).unwrap_or_default())?;
            }
        }
        Ok(end)
    }

    /// Position and bytes of each record of a run that may look torn; of all its records if any may.
    pub(crate) fn torn_looking(
        &self,
        run: Range<usize>,
        log_position: LogPosition,
    ) -> impl Iterator<Item = (i64, &[u8])> {
        let run = if self.may_look_torn { run } else { 0..0 };
        let queue_appends = self.queue_appends.get(run).unwrap_or_default();
        let encoded_records = queue_appends.iter().flat_map(|queue_append| {
            self.encoded_records
                .get(queue_append.encoded_records.clone())
                .unwrap_or_default()
        });
        encoded_records.map(move |encoded_record| {
            let bytes = self
                .records
                .get(encoded_record.from..encoded_record.from + encoded_record.size);
            (log_position.of(encoded_record), bytes.unwrap_or_default())
        })
    }

    /// Undoes [`AppendBuffer::assign_positions`], because nothing was written.
    pub(crate) fn undo_positions(&mut self, run: Range<usize>) {
        let queue_appends = self.queue_appends.get(run).unwrap_or_default();
        for (queue_append, _) in queue_appends.iter().zip(self.appended.drain(..)) {
            if !queue_append.hidden {
                queue_append
                    .queue
                    .assign(-to_i64(queue_append.encoded_records.len()));
            }
        }
    }

    /// Moves the keys of a run's records to the pending keys.
    pub(crate) fn move_keys(&self, run: Range<usize>, log_position: LogPosition, to: &mut PendingKeys) {
        let of_run = self.queue_appends.get(run.clone()).unwrap_or_default();
        if let [first, ..] = of_run
            && let [.., last] = of_run
            && let Some(newest) = last.encoded_records.end.checked_sub(1)
        {
            let hashes_to = self
                .encoded_records
                .get(newest)
                .map_or(0, |encoded_record| encoded_record.keys_end);
            let hashes = self.hashes.get(self.keys_before(run.start)..hashes_to);
            let records = self
                .keys
                .get(first.encoded_records.start..last.encoded_records.end);
            to.add(
                log_position.buffer,
                log_position.store_ms,
                records.unwrap_or_default(),
                hashes.unwrap_or_default(),
            );
        }
    }

    /// Encodes one message.
    pub(crate) fn add(
        &mut self,
        message: &NewMessage<'_>,
        options: &Options,
        with_keys: bool,
    ) -> Result<(), StoreError> {
        self.add_like(None, message, &CommonFields::new(message, options, with_keys))
    }

    /// Encodes the messages of a batch.
    pub(crate) fn add_batch(
        &mut self,
        batch: &MessageBatch<'_>,
        options: &Options,
        with_keys: bool,
    ) -> Result<(), StoreError> {
        let Some((first, rest)) = batch.items.split_first() else {
            return Err(StoreError::EmptyBatch);
        };
        let (first, pattern) = (batch.message(first), self.records.len());
        let common = CommonFields::new(&first, options, with_keys);
        self.add_like(None, &first, &common)?;
        rest.iter()
            .try_for_each(|item| self.add_like(Some(pattern), &batch.message(item), &common))
    }

    /// Encodes a message with the head of the record at `pattern`, if there is one.
    #[inline]
    fn add_like(
        &mut self,
        pattern: Option<usize>,
        message: &NewMessage<'_>,
        common: &CommonFields<'_>,
    ) -> Result<(), StoreError> {
        if message.properties.len() > properties::MAX_BYTES {
            return Err(StoreError::PropertiesTooLarge {
                size: message.properties.len(),
                limit: properties::MAX_BYTES,
            });
        }
        self.may_look_torn |= may_look_torn(message.properties.as_bytes());
        let (record, from) = (record(message), self.records.len());
        match pattern {
            Some(pattern) => record.encode_like(pattern, &mut self.records)?,
            None => record.encode(&mut self.records)?,
        }
        if let Some(topic) = &common.keys {
            let keys = MessageKeys {
                unique_key: message.unique_key,
                keys: message.keys,
                tag: message.tag,
            };
            let before = self.hashes.len();
            topic.hashes(&keys, |hash| self.hashes.push(hash));
            self.keys.push(RecordKeys::new(from, self.hashes.len() - before));
        }
        let delay_ms = common.delay_levels_ms.and_then(|levels| {
            delay_of(
                SCHEDULE_TOPIC,
                properties::Properties::new(&message.properties),
                levels,
            )
        });
        self.encoded_records.push(EncodedRecord {
            from,
            size: self.records.len() - from,
            tags_code: delay_ms.unwrap_or(message.tags_code),
            is_delay: delay_ms.is_some(),
            keys_end: self.hashes.len(),
        });
        Ok(())
    }
}
