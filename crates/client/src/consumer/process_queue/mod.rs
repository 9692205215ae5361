//! One queue of a puller: its messages that were fetched, handed out and done.
//!
//! ```text
//! offsets   ....|done       |delivered        |buffered ...       |next pull
//!               commit here  handed out by poll  chunks, not handed out
//! ```
//! A poll makes what the polls before it delivered done; `commit` makes everything delivered done.

mod chunk;
pub(crate) mod in_flight;
pub(crate) mod key_order;
pub(crate) mod listener_state;
pub(crate) mod phase;
mod queue_key;
pub(crate) mod share;

use crate::consumer::process_queue::listener_state::ListenerState;
use crate::consumer::process_queue::phase::Phase;
use crate::consumer::process_queue::share::Share;
use crate::session::membership::Subscription;
use pyrmq_remoting::message::properties::names;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

pub use chunk::{Chunk, Span};
pub use queue_key::QueueKey;

/// A message that comes alone and cannot be read is requested this often before it is skipped.
const UNREADABLE_TRIES: u32 = 4;

/// Messages that wait are copied when they are at most this part of their answer: a quarter.
const SMALL_PART: usize = 4;

/// Some records of a chunk, in order.
#[derive(Debug, Clone)]
pub struct Messages {
    /// The answer that they came with.
    pub chunk: Arc<Chunk>,
    /// Index of the first.
    pub first: usize,
    /// Index after the last.
    pub end: usize,
    /// How often listeners of this process got them before.
    pub tries: i32,
    /// How often its broker refused to take it back.
    pub(crate) refusals: u32,
}

/// How an assigned queue stands.
#[derive(Debug, Clone)]
pub struct QueueState {
    /// The queue.
    pub key: Arc<QueueKey>,
    /// The offset that a commit would send; -1 until the start is known.
    pub position: i64,
    /// Messages from there to the end of the queue, by its broker's last answer; `None` before the first answer.
    pub lag: Option<i64>,
    /// Messages that were fetched and not handed out.
    pub waiting: usize,
    /// Bytes of memory of messages that were fetched and are not done.
    pub bytes: usize,
    /// Messages that listeners have.
    pub in_flight: usize,
}

/// The state of an assigned queue.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a state of its own: any of them may hold together"
)]
pub(crate) struct ProcessQueue {
    pub(crate) key: Arc<QueueKey>,
    pub(crate) subscription: Arc<Subscription>,
    /// Distinguishes this assignment, and each seek in it: answers to older pulls are dropped.
    pub(crate) generation: u64,
    /// Offset of the next pull; `None` until the start is known.
    pub(crate) next_pull: Option<i64>,
    /// A pull is in flight, or will be sent after a pause.
    pub(crate) pull_is_scheduled: bool,
    /// Where this assignment began, or continued after a seek.
    pub(crate) began: i64,
    pub(crate) delivered: i64,
    /// The offset after the last message that was handed out; -1 if there is none.
    pub(crate) returned: i64,
    pub(crate) done: i64,
    pub(crate) committed: i64,
    /// The broker was unreachable since: if it was killed, it has lost what it had not written.
    pub(crate) is_commit_in_doubt: bool,
    /// Held during a commit: brokers may process requests of one connection concurrently, and an older position that is
    /// processed last would stay.
    pub(crate) committing: Arc<tokio::sync::Mutex<()>>,
    /// Messages that the next poll confirms.
    pub(crate) confirmable: usize,
    /// The offset that the queue's next message would have got when its broker answered last.
    pub(crate) end: Option<i64>,
    pub(crate) failures: u32,
    /// Messages before this offset are pulled one by one, because an answer with several of them could not be parsed.
    pub(crate) suspect_until: i64,
    /// The position began at the group's offset, and nothing has moved it since (see [`Self::is_untouched`]).
    pub(crate) is_group_start: bool,
    /// The number of the check for a last commit of the queue's previous member; nothing is handed out until it ends.
    pub(crate) settling: Option<u64>,
    /// An offset that the application commits meanwhile, which is not the previous member's.
    pub(crate) own_commit: Option<i64>,
    /// Nothing is handed out or pulled until it is resumed.
    pub(crate) is_paused: bool,
    /// Whether the application knows that the queue was assigned, or is revoked.
    pub(crate) phase: Phase,
    pub(crate) pulled_at: Option<Instant>,
    /// The replica that the broker has suggested to read from; 0 is the master.
    pub(crate) replica: i64,
    /// The broker does not know the topic: the start of its queue is requested again before the next pull.
    pub(crate) is_gone: bool,
    /// How far it is handed out to listeners beyond the first unfinished message.
    pub(crate) max_span: usize,
    /// The messages that listeners have; unused for a queue that is polled.
    pub(crate) listeners: ListenerState,
    /// True while the queue is in the list of those with something to hand out.
    pub(crate) is_ready: bool,
    chunks: VecDeque<(Arc<Chunk>, usize)>,
    buffered: usize,
    /// Expected memory of an answer, by the last ones: Apache's brokers return what they are configured to, whatever is
    /// requested.
    usual_answer: usize,
}

impl ProcessQueue {
    pub(crate) fn new(key: Arc<QueueKey>, subscription: Arc<Subscription>, generation: u64) -> Self {
        Self {
            key,
            subscription,
            generation,
            next_pull: None,
            pull_is_scheduled: false,
            began: -1,
            delivered: -1,
            returned: -1,
            done: -1,
            committed: -1,
            is_commit_in_doubt: false,
            committing: Arc::default(),
            confirmable: 0,
            end: None,
            failures: 0,
            suspect_until: -1,
            is_group_start: false,
            settling: None,
            own_commit: None,
            is_paused: false,
            phase: Phase::Held,
            pulled_at: None,
            replica: 0,
            is_gone: false,
            max_span: usize::MAX,
            listeners: ListenerState::default(),
            is_ready: false,
            chunks: VecDeque::new(),
            buffered: 0,
            usual_answer: 0,
        }
    }

    /// Continues at this offset; fetched messages are dropped.
    pub(crate) fn restart(&mut self, offset: i64, generation: u64) {
        self.generation = generation;
        self.next_pull = Some(offset);
        (self.began, self.delivered, self.done) = (offset, offset, offset);
        self.returned = -1;
        self.confirmable = 0;
        self.pull_is_scheduled = false;
        self.is_gone = false;
        self.is_group_start = false;
        self.settling = None;
        self.failures = 0;
        self.suspect_until = -1;
        self.chunks.clear();
        self.buffered = 0;
        self.listeners.restart();
    }

    /// Goes back to this offset, and drops fetched messages; those that were done after it are no longer done. False:
    /// the queue is not beyond this offset, and stays where it is.
    pub(crate) fn go_back(&mut self, offset: i64, generation: u64) -> bool {
        if offset >= self.delivered {
            return false;
        }
        let done = self.done.min(offset);
        self.restart(offset, generation);
        self.done = done;
        true
    }

    /// True while no message was done here since the queue was taken: the group already has its position. If another
    /// member has committed since, this position would move the group backwards.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_group_start && self.done == self.began && self.committed < 0
    }

    /// True when the next pull asks for one message only.
    pub(crate) fn is_suspect(&self) -> bool {
        self.next_pull.is_some_and(|next| next < self.suspect_until)
    }

    /// Handles an answer that cannot be parsed. Returns the offset of the message to skip, if it came alone and could
    /// not be read repeatedly: all others are kept.
    pub(crate) fn refuse_answer(&mut self, next_offset: i64) -> Option<i64> {
        let offset = self.next_pull?;
        if !self.is_suspect() {
            self.suspect_until = next_offset.max(offset + 1);
            return None;
        }
        if self.failures < UNREADABLE_TRIES {
            return None;
        }
        self.failures = 0;
        self.next_pull = Some(offset + 1);
        if self.chunks.is_empty() {
            self.skip_to(offset + 1);
        }
        Some(offset)
    }

    /// Adds an answer. True if there are messages to hand out.
    pub(crate) fn arrive(&mut self, chunk: Chunk) -> bool {
        self.next_pull = Some(chunk.next_offset);
        if chunk.is_empty() {
            if self.chunks.is_empty() {
                self.skip_to(chunk.next_offset);
            }
            return false;
        }
        self.buffered += chunk.bytes();
        self.usual_answer = chunk.bytes().max(self.usual_answer / 2);
        self.chunks.push_back((Arc::new(chunk), 0));
        true
    }

    /// Skips to this offset: no message lies between the delivered ones and it.
    fn skip_to(&mut self, offset: i64) {
        if self.done == self.delivered {
            self.done = offset;
        }
        self.delivered = offset;
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.chunks.is_empty() && !self.is_paused && self.settling.is_none() && self.phase.is_held()
    }

    /// Messages that were fetched and not handed out, and the memory of their answers.
    pub(crate) fn held(&self) -> (usize, usize) {
        let chunks = self.chunks.iter();
        let messages = chunks.map(|(chunk, at)| chunk.len() - at).sum();
        (messages, self.buffered)
    }

    /// True when the next answer fits into the queue's share, and always if the queue has no messages.
    pub(crate) fn wants_pull(&self, share: Share) -> bool {
        let answer = share.answer_memory().max(self.usual_answer);
        let in_flight = self.listeners.in_flight.bytes();
        let fits = self.buffered + in_flight + answer <= share.bytes && self.has_room(share);
        // A large message that a listener has does not stop those after it.
        let fits = fits || (self.chunks.is_empty() && in_flight <= share.bytes * 2 && self.has_room(share));
        let is_wanted = !self.is_paused && !self.phase.is_going();
        !self.pull_is_scheduled && is_wanted && self.next_pull.is_some() && fits
    }

    /// True when another answer's messages fit into the queue's share.
    fn has_room(&self, share: Share) -> bool {
        share.messages.is_none() || {
            let (waiting, _) = self.held();
            share.has_room_beside(waiting + self.listeners.in_flight.len())
        }
    }

    /// How the queue stands.
    pub(crate) fn state(&self) -> QueueState {
        let (waiting, bytes) = self.held();
        QueueState {
            key: self.key.clone(),
            position: self.done,
            lag: self.end.map(|end| (end - self.done).max(0)),
            waiting,
            bytes: bytes + self.listeners.in_flight.bytes(),
            in_flight: self.listeners.in_flight.len(),
        }
    }

    /// Hands out up to `max` records of the first chunk.
    pub(crate) fn deliver(&mut self, max: usize) -> Option<Messages> {
        let (chunk, at) = self.chunks.front_mut()?;
        let first = *at;
        let end = chunk.len().min(first.saturating_add(max));
        *at = end;
        self.returned = chunk.offset(end - 1).map_or(self.returned, |last| last + 1);
        let messages = Messages {
            chunk: chunk.clone(),
            first,
            end,
            tries: 0,
            refusals: 0,
        };
        if end < chunk.len() {
            self.delivered = chunk.offset(end).unwrap_or(self.delivered);
        } else {
            self.delivered = chunk.next_offset;
            self.buffered = self.buffered.saturating_sub(chunk.bytes());
            self.chunks.pop_front();
        }
        Some(messages)
    }
}

impl Messages {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.end - self.first
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    #[must_use]
    pub fn one(&self, index: usize) -> Self {
        let first = self.first + index;
        Self {
            chunk: self.chunk.clone(),
            first,
            end: self.end.min(first + 1),
            tries: self.tries,
            refusals: self.refusals,
        }
    }

    /// Copies the messages out of their answer where they are a small part of it, so that it can be freed.
    pub(crate) fn detach(&mut self) {
        let spans = self.chunk.spans.get(self.first..self.end).unwrap_or_default();
        let own: usize = spans.iter().map(Span::len).sum();
        if own.saturating_mul(SMALL_PART) > self.chunk.body_bytes() {
            return;
        }
        self.chunk = Arc::new(self.chunk.copy_of(self.first, self.end));
        (self.first, self.end) = (0, self.chunk.len());
    }

    /// True when the first message can be read: listeners cannot handle one that cannot, and no broker takes it back.
    pub(crate) fn is_readable(&self) -> bool {
        self.chunk.record(self.first).is_some_and(|record| record.is_ok())
    }

    /// How often the first message was delivered, this time included.
    pub fn deliveries(&self) -> i32 {
        let record = self.chunk.record(self.first).and_then(Result::ok);
        record.map_or(0, |record| record.reconsume_times) + self.tries + 1
    }

    /// The first message's sharding key. A message that cannot be decoded has none; its listener reports that.
    pub(crate) fn sharding_key(&self) -> Option<Box<str>> {
        let record = self.chunk.record(self.first)?.ok()?;
        record.properties.get(names::SHARDINGKEY).map(Box::from)
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunk, ProcessQueue, QueueKey};
    use crate::consumer::process_queue::chunk::Span;
    use crate::consumer::process_queue::share::Share;
    use crate::session::membership::Subscription;
    use bytes::Bytes;
    use pyrmq_remoting::message::NewRecord;
    use pyrmq_testkit::new_record;
    use std::sync::Arc;

    #[test]
    fn the_bound_is_of_the_memory_that_answers_keep() {
        let key = Arc::new(QueueKey {
            topic: "orders".into(),
            broker: "b".into(),
            queue_id: 0,
        });
        let subscription = Arc::new(Subscription::tags_of("*", 0));
        // With 4,096 the head of an answer is a large part of its share.
        for queues in [1, 256, 4096] {
            let share = Share::new(64 << 20, None, queues);
            let mut queue = ProcessQueue::new(key.clone(), subscription.clone(), 1);
            queue.restart(0, 1);
            let (mut kept, mut answers, mut offset) = (0, 0, 0);
            while queue.wants_pull(share) {
                // As a broker does: messages up to the number of bytes that was requested.
                let mut records = Vec::new();
                loop {
                    let before = records.len();
                    let record = NewRecord {
                        properties: b"UNIQ_KEY\x017F0000010EC7251A69D793A2B4C50001\x02",
                        ..new_record("orders", 0, offset)
                    };
                    record.encode(&mut records).unwrap();
                    if records.len() > share.answer_bytes() {
                        records.truncate(before);
                        break;
                    }
                    offset += 1;
                    kept += size_of::<Span>();
                }
                kept += records.len();
                answers += 1;
                let chunk = Chunk::new(key.clone(), Bytes::from(records), offset, &subscription);
                queue.arrive(chunk.unwrap());
            }
            assert!(answers >= 2, "one comes while the last is handed out");
            assert!(kept <= share.bytes, "{queues} queues: {kept} of {}", share.bytes);
            assert!(
                kept * 4 > share.bytes * 3,
                "{queues} queues: {kept} of {}",
                share.bytes
            );
        }
    }
}
