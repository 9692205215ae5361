//! What a thread is about to append: records laid out in its buffer, with no allocation once it has grown, so that under the append
//! lock only that is left to do which only the lock can tell.

use crate::consume_queue::ConsumeQueue;
use crate::delay::delay_of;
use crate::error::StoreError;
use crate::format::{Unit, to_i64};
use crate::key_index::{MessageKeys, TopicKeys};
use crate::message::{Batch, Message, Stored};
use crate::nul_records::may_look_torn;
use crate::options::Options;
use crate::waiting_keys::{RecordKeys, WaitingKeys};
use pyrmq_remoting::message::record::Patch;
use pyrmq_remoting::message::{NewRecord, properties};
use pyrmq_remoting::names::SCHEDULE_TOPIC;
use std::ops::Range;
use std::sync::Arc;

/// A buffer that grew beyond this for a large message is given back.
const KEEP_BUFFER: usize = 1 << 20;

/// One record inside the thread's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    from: usize,
    size: usize,
    tags_code: i64,
    /// The time of storing is added to it: it says when a delayed message is due.
    is_delay: bool,
    /// End of its keys among the thread's hashes.
    keys_to: usize,
}

/// Where a thread's buffer goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Position in the log of the buffer's first byte.
    pub(crate) buffer: i64,
    pub(crate) store_ms: i64,
}

impl Place {
    pub(crate) fn of(self, piece: &Piece) -> i64 {
        self.buffer + to_i64(piece.from)
    }
}

impl Piece {
    pub(crate) fn unit(&self, place: Place) -> Unit {
        Unit {
            position: place.of(self),
            size: i32::try_from(self.size).unwrap_or(i32::MAX),
            tags_code: self.tags_code + if self.is_delay { place.store_ms } else { 0 },
        }
    }
}

/// What goes to one queue: a message, or those of a batch, neighbours in the thread's buffer.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) hidden: bool,
    pub(crate) pieces: Range<usize>,
}

/// What the messages of a put share besides their head.
struct Shared<'m> {
    /// `None` where there is no key index.
    keys: Option<TopicKeys>,
    /// The delays of the levels, in the topic that has such.
    delay_levels_ms: Option<&'m [i64]>,
}

impl<'m> Shared<'m> {
    fn new(message: &Message<'_>, options: &'m Options, with_keys: bool) -> Self {
        let is_delayed = message.topic == SCHEDULE_TOPIC;
        Self {
            keys: with_keys.then(|| TopicKeys::new(message.topic, message.sys_flag)),
            delay_levels_ms: is_delayed.then_some(options.delay_levels_ms.as_slice()),
        }
    }
}

fn record<'m>(message: &Message<'m>) -> NewRecord<'m> {
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

/// What one thread is about to append, and what has become of the part that was written last.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) records: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
    /// One for each piece, where there is a key index.
    keys: Vec<RecordKeys>,
    hashes: Vec<i32>,
    pub(crate) targets: Vec<Target>,
    pub(crate) placed: Vec<Placed>,
    /// A record may look torn, depending on where it comes to lie.
    may_look_torn: bool,
}

/// How much of a [`Scratch`] was filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filled {
    pub(crate) records: usize,
    pub(crate) pieces: usize,
    keys: usize,
    hashes: usize,
}

impl Scratch {
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.pieces.clear();
        self.keys.clear();
        self.hashes.clear();
        self.targets.clear();
        self.placed.clear();
        self.may_look_torn = false;
        if self.records.capacity() > KEEP_BUFFER {
            self.records = Vec::new();
        }
    }

    pub(crate) fn filled(&self) -> Filled {
        Filled {
            records: self.records.len(),
            pieces: self.pieces.len(),
            keys: self.keys.len(),
            hashes: self.hashes.len(),
        }
    }

    /// Forgets records that were laid out since then.
    pub(crate) fn cut(&mut self, filled: Filled) {
        self.records.truncate(filled.records);
        self.pieces.truncate(filled.pieces);
        self.keys.truncate(filled.keys);
        self.hashes.truncate(filled.hashes);
    }

    /// Bytes that wait to be written.
    pub(crate) fn bytes(&self) -> usize {
        self.records.len()
    }

    /// Where a target lies in the buffer.
    pub(crate) fn bytes_of(&self, target: &Target) -> Range<usize> {
        match self.pieces.get(target.pieces.clone()) {
            Some([first, .., last]) => first.from..last.from + last.size,
            Some([only]) => only.from..only.from + only.size,
            _ => 0..0,
        }
    }

    /// The target behind the last one of a run: all of it lies in front of `limit`, and no queue of it is being deleted.
    pub(crate) fn run_end(&self, from: usize, limit: usize) -> usize {
        let later = self.targets.get(from + 1..).unwrap_or_default();
        let fit = later
            .iter()
            .take_while(|target| !target.queue.is_closing() && self.bytes_of(target).end <= limit);
        from + 1 + fit.count()
    }

    /// Where the keys of a target begin among the hashes.
    fn keys_before(&self, target: usize) -> usize {
        let first = self.targets.get(target).map_or(0, |target| target.pieces.start);
        let before = first.checked_sub(1).and_then(|before| self.pieces.get(before));
        before.map_or(0, |piece| piece.keys_to)
    }

    /// Gives the targets of a run their places in queues and log; says where the last one ends in the buffer.
    pub(crate) fn place(&mut self, run: Range<usize>, place: Place) -> Result<usize, StoreError> {
        let mut end = 0;
        for target in self.targets.get(run).unwrap_or_default() {
            let pieces = self.pieces.get(target.pieces.clone()).unwrap_or_default();
            let first = if target.hidden {
                0
            } else {
                target.queue.assign(to_i64(pieces.len()))
            };
            self.placed.push(Placed::new(pieces, first, place));
            for (number, piece) in pieces.iter().enumerate() {
                let patch = Patch {
                    queue_offset: if target.hidden { 0 } else { first + to_i64(number) },
                    physical_offset: place.of(piece),
                    store_timestamp_ms: place.store_ms,
                };
                end = piece.from + piece.size;
                patch.apply(self.records.get_mut(piece.from..end).unwrap_or_default())?;
            }
        }
        Ok(end)
    }

    /// Position and bytes of the records of a run that may look torn; all of it, if any may.
    pub(crate) fn torn_looking(&self, run: Range<usize>, place: Place) -> impl Iterator<Item = (i64, &[u8])> {
        let run = if self.may_look_torn { run } else { 0..0 };
        let targets = self.targets.get(run).unwrap_or_default();
        let pieces = targets
            .iter()
            .flat_map(|target| self.pieces.get(target.pieces.clone()).unwrap_or_default());
        pieces.map(move |piece| {
            let bytes = self.records.get(piece.from..piece.from + piece.size);
            (place.of(piece), bytes.unwrap_or_default())
        })
    }

    /// Takes back what [`Scratch::place`] gave: nothing was written.
    pub(crate) fn take_back(&mut self, run: Range<usize>) {
        let targets = self.targets.get(run).unwrap_or_default();
        for (target, _) in targets.iter().zip(self.placed.drain(..)) {
            if !target.hidden {
                target.queue.assign(-to_i64(target.pieces.len()));
            }
        }
    }

    /// Hands the keys of a run's records over.
    pub(crate) fn hand_keys(&self, run: Range<usize>, place: Place, to: &mut WaitingKeys) {
        let of_run = self.targets.get(run.clone()).unwrap_or_default();
        if let [first, ..] = of_run
            && let [.., last] = of_run
            && let Some(newest) = last.pieces.end.checked_sub(1)
        {
            let hashes_to = self.pieces.get(newest).map_or(0, |piece| piece.keys_to);
            let hashes = self.hashes.get(self.keys_before(run.start)..hashes_to);
            let records = self.keys.get(first.pieces.start..last.pieces.end);
            to.add(
                place.buffer,
                place.store_ms,
                records.unwrap_or_default(),
                hashes.unwrap_or_default(),
            );
        }
    }

    /// Lays out one message.
    pub(crate) fn add(
        &mut self,
        message: &Message<'_>,
        options: &Options,
        with_keys: bool,
    ) -> Result<(), StoreError> {
        self.add_like(None, message, &Shared::new(message, options, with_keys))
    }

    /// Lays out the messages of a batch.
    pub(crate) fn add_batch(
        &mut self,
        batch: &Batch<'_>,
        options: &Options,
        with_keys: bool,
    ) -> Result<(), StoreError> {
        let Some((first, rest)) = batch.items.split_first() else {
            return Err(StoreError::EmptyBatch);
        };
        let (first, pattern) = (batch.message(first), self.records.len());
        let shared = Shared::new(&first, options, with_keys);
        self.add_like(None, &first, &shared)?;
        rest.iter()
            .try_for_each(|item| self.add_like(Some(pattern), &batch.message(item), &shared))
    }

    /// Lays out a message; its head is that of the record at `pattern`, if there is one.
    #[inline]
    fn add_like(
        &mut self,
        pattern: Option<usize>,
        message: &Message<'_>,
        shared: &Shared<'_>,
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
        if let Some(topic) = &shared.keys {
            let keys = MessageKeys {
                unique_key: message.unique_key,
                keys: message.keys,
                tag: message.tag,
            };
            let before = self.hashes.len();
            topic.hashes(&keys, |hash| self.hashes.push(hash));
            self.keys.push(RecordKeys::new(from, self.hashes.len() - before));
        }
        let delay_ms = shared.delay_levels_ms.and_then(|levels| {
            delay_of(
                SCHEDULE_TOPIC,
                properties::Properties::new(message.properties),
                levels,
            )
        });
        self.pieces.push(Piece {
            from,
            size: self.records.len() - from,
            tags_code: delay_ms.unwrap_or(message.tags_code),
            is_delay: delay_ms.is_some(),
            keys_to: self.hashes.len(),
        });
        Ok(())
    }
}

/// A put's answer, with what its listener is told and what waits behind it.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) stored: Stored,
    /// `None` for several with different codes.
    pub(crate) tags_code: Option<i64>,
    /// Bytes that its queue has not written.
    pub(crate) units_waiting: usize,
    /// Readers find it now, not only after an fsync.
    pub(crate) is_readable: bool,
}

impl Placed {
    fn new(pieces: &[Piece], queue_offset: i64, place: Place) -> Self {
        let positions = || pieces.iter().map(|piece| place.of(piece));
        let mut codes = pieces.iter().map(|piece| piece.tags_code);
        let tags_code = codes.next();
        Self {
            stored: Stored {
                physical_offset: positions().next().unwrap_or_default(),
                end_position: pieces.last().map_or(0, |last| place.of(last) + to_i64(last.size)),
                queue_offset,
                store_timestamp_ms: place.store_ms,
                count: u32::try_from(pieces.len()).unwrap_or(u32::MAX),
                batch_offsets: if pieces.len() > 1 {
                    positions().collect()
                } else {
                    Vec::new()
                },
            },
            tags_code: tags_code.filter(|first| codes.all(|code| code == *first)),
            units_waiting: 0,
            is_readable: false,
        }
    }
}
